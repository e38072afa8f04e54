"""`pronghorn demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from pronghorn._demo import run_demo


def demo(images: Annotated[int, typer.Option(min=1, max=10_000, help="How many MNIST test images.")] = 256) -> None:
    """Classify encrypted MNIST digits through a server and a client process."""
    print(run_demo(images))
