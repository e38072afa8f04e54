"""`pronghorn demo`: encrypted digits through two processes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from pronghorn import _processes
from pronghorn._data import Preprocessing, load_images
from pronghorn._model import load
from pronghorn._trust import DEFAULT as TRUST
from pronghorn._trust import REVEALS
from pronghorn.errors import InputError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "mnist"


def example(name: str) -> Path:
    """A file of `examples/mnist` in the repository."""
    path = EXAMPLES / name
    if not path.is_file():
        raise InputError(f"there is no {path}: run this from a checkout of the repository, which has the example")
    return path


def run_demo(images: int) -> str:
    """Classifies MNIST test images through a server and a client process; the result as text.

    The first images set the server's fixed point: its owner would take training images.
    """
    model, data = example("cryptonets_relu.onnx"), example("t10k-images-idx3-ubyte.gz")
    # The server starts meanwhile.
    with ThreadPoolExecutor(1) as pool:
        plain = pool.submit(_plain_accuracy, model, data, images)
        with _processes.served(model, TRUST, ["--data", str(data), "--objective", "throughput"]) as server:
            found = _processes.predict(server.address, TRUST, data, ["--limit", str(images)])
            report = server.stop()
        return _describe(plain.result(), found, report)


def _plain_accuracy(model: Path, data: Path, images: int) -> float:
    """The share of images that the float model puts into their class."""
    loaded = load(model)
    pixels, labels, *_ = load_images(data, loaded.input_shape, Preprocessing())
    assert labels is not None
    return float(np.mean(loaded.classes(loaded.run_float(pixels[:images])) == labels[:images]))


def _describe(plain: float, found: dict[str, Any], report: dict[str, Any]) -> str:
    count, run = found["images"], found["runs"][0]
    rows = [
        ("trust level", f"{TRUST}: {REVEALS[TRUST]}"),
        ("accuracy", f"{100 * found['accuracy']:.2f} % encrypted, {100 * plain:.2f} % by the float model"),
        (
            "speed",
            f"{count / run['seconds']:,.0f} images/s ({count:,} in {run['seconds']:.2f} s, first batch included)",
        ),
        (
            "an image",
            f"{run['bytes_sent'] / count:,.0f} bytes to the server, {run['bytes_received'] / count:,.0f} back",
        ),
        ("peak memory", f"server {megabytes(report)}, client {megabytes(found)}"),
    ]
    title = f"{count:,} encrypted MNIST test images through two processes over TCP"
    return "\n".join([title, *(f"  {name + ':':<13}{text}" for name, text in rows)])


def megabytes(found: dict[str, Any]) -> str:
    """A process's peak memory for people."""
    return f"{found['peak_memory_bytes'] / 1e6:,.0f} MB"
