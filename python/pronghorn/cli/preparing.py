"""Batches prepared ahead. What fails there is a warning, since predictions go on without."""

from __future__ import annotations

from pronghorn._model import Stats
from pronghorn._network import Client
from pronghorn.cli.console import warn
from pronghorn.cli.progress import Bar
from pronghorn.errors import RunError


def prepare_ahead(client: Client, batches: int, images: int, bar: Bar, *, keeps: bool) -> Stats | None:
    """Prepares for the prediction of `images` images.

    Args:
        client: the connection, which may be over after a failure.
        batches: batches like them to keep prepared from then on, where `keeps` says so.
        images: how many.
        bar: shows how far it is.
        keeps: whether to keep any.

    Returns: what it cost; None where that was done before, or failed.
    """
    _warn_of_limit(client, batches)
    try:
        cost = _prepare_now(client, images, bar)
    except RunError as error:
        warn(f"nothing is prepared: {error}")
        return None
    if keeps:
        _keep_prepared(client, batches, images)
    return cost


def _warn_of_limit(client: Client, batches: int) -> None:
    """Says where the server keeps fewer prepared batches than `batches`."""
    most = client.most_prepared
    if 0 < most < batches:
        warn(f"--prepare {batches} is more than the server keeps for a client: at most {most} batches are prepared")


def _prepare_now(client: Client, images: int, bar: Bar) -> Stats | None:
    if client.is_prepared(images):
        return None
    bar.phase("preparing")
    return client.prepare(images, progress=bar.progress)


def _keep_prepared(client: Client, batches: int, images: int) -> None:
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
