"""`pronghorn demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from pronghorn._demo import run_demo


def demo(
    images: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="MNIST test images to classify.")] = 256,
) -> None:
    """Classify encrypted MNIST digits with a server and a client process."""
    print(run_demo(images))
