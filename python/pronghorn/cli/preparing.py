"""Batches prepared ahead. What fails there is a warning, since predictions go on without."""

from __future__ import annotations

from pronghorn._model import Stats
from pronghorn._network import Client
from pronghorn.cli.console import warn
from pronghorn.cli.progress import Bar
from pronghorn.errors import RunError


def warn_of_limit(client: Client, batches: int) -> None:
    """Says where the server keeps fewer prepared batches than `batches`."""
    most = client.most_prepared
    if 0 < most < batches:
        warn(f"--prepare {batches} is more than the server keeps for a client: at most {most} batches are prepared")


def prepare_now(client: Client, images: int, bar: Bar) -> Stats | None:
    """Prepares for the prediction of `images` images; what it cost, None where that was done or
    failed."""
    if client.is_prepared(images):
        return None
    bar.phase("preparing")
    try:
        return client.prepare(images, progress=bar.progress)
    except RunError as error:
        warn(f"nothing is prepared: {error}")
        return None


def keep_prepared(client: Client, batches: int, images: int) -> None:
    """Keeps `batches` batches of `images` images prepared, where the server does."""
    try:
        client.keep_prepared(batches, images)
    except RunError as error:
        warn(f"no batches are kept prepared: {error}")


def wait_prepared(client: Client, bar: Bar) -> None:
    """Waits until the store is full, however long that takes."""
    bar.phase("preparing for later runs")
    try:
        while not client.wait_prepared(3600.0):
            pass
    except RunError as error:
        warn(f"not all batches are prepared for later runs: {error}")
