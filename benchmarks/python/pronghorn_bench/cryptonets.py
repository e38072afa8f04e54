"""CryptoNets on MNIST through two processes, and `pronghorn bench cryptonets-relu`."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn import _processes
from pronghorn._data import Preprocessing, load_images
from pronghorn._demo import example
from pronghorn._float import run_float
from pronghorn._model import load
from pronghorn_bench.records import Reference, Report, Sheet, core_counts, cores

RELU = "cryptonets_relu.onnx"
SQUARE = "cryptonets_square.onnx"
IMAGES = "t10k-images-idx3-ubyte.gz"
COUNT = 10_000
"""Images in that file."""

REPEATS = 7
NGRAPH = "nGraph-HE2 (arXiv 1908.04172), CryptoNets with ReLU, client-aided"
SPEEDS: dict[int, Reference] = {
    1: (694.0, f"{NGRAPH}, a thread, localhost"),
    2: (2959.0, f"{NGRAPH}, 24 threads, LAN"),
}
"""By cores."""
BYTES = (0.03e6, f"{NGRAPH}, 0.03 MB an image")


@cache
def images() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """All MNIST test images `(10000, 1, 28, 28)` and their labels."""
    found = load_images(example(IMAGES), (1, 28, 28), Preprocessing())
    assert found.labels is not None
    return found.images, found.labels.astype(np.int64)


@cache
def float_accuracy(model: str) -> Reference:
    """The accuracy of a model in the clear on all test images, computed here."""
    loaded = load(example(model))
    pixels, labels = images()
    outputs, by = run_float(loaded._imported, loaded._native, pixels)
    return float(np.mean(loaded.classes(outputs) == labels)), f"the float model by {by} on the same images, here"


@dataclass(frozen=True)
class TwoProcesses:
    """MNIST test images, again and again over one connection, from a client process to a server process."""

    model: str
    images: int
    first: dict[str, float]
    """Seconds and bytes of the first repeat, which may send keys."""
    steady: list[dict[str, float]]
    """The same of the others."""
    accuracy: float
    server_memory: float
    client_memory: float
    plan: dict[str, Any]
    plan_hash: str
    security_bits: int

    @classmethod
    def run(cls, model: str, trust: str, images: int, repeats: int) -> TwoProcesses:
        """Client and server on the cores this process is pinned to."""
        data = example(IMAGES)
        options = ["--limit", str(images), "--repeat", str(repeats + 1), "--with-plan"]
        with _processes.served(example(model), trust, ["--data", str(data)]) as server:
            found = _processes.predict(server.address, trust, data, options)
            memory = server.stop()["peak_memory_bytes"]
        first, *steady = found["runs"]
        return cls(
            model,
            images,
            first,
            steady,
            found["accuracy"],
            memory,
            found["peak_memory_bytes"],
            found["plan"],
            found["plan_hash"],
            found["security_bits"],
        )

    @property
    def speeds(self) -> list[float]:
        """Images a second of the steady repeats."""
        return [self.images / run["seconds"] for run in self.steady]

    @property
    def speed(self) -> float:
        """Their median."""
        return statistics.median(self.speeds)

    def sheet(self, report: Report, suite: str, case: str) -> Sheet:
        """For figures of this run."""
        parameters = {
            "images": self.images,
            "repeats": len(self.steady),
            "plan_hash": self.plan_hash,
            "plan": self.plan,
        }
        return Sheet(report, suite, case, parameters, self.security_bits)

    def add_speed(self, sheet: Sheet, references: list[Reference]) -> None:
        """Images a second of both processes."""
        sheet.add("images/s", self.speed, "images/s", references, headline=1)
        sheet.add("images/s, slowest repeat", min(self.speeds), "images/s")
        sheet.add("images/s, first repeat of a connection", self.images / self.first["seconds"], "images/s")

    def add_sizes(self, sheet: Sheet, bytes_an_image: list[Reference], memory: list[Reference]) -> None:
        """Bytes and memory."""
        last = self.steady[-1]
        sent, received = last["bytes_sent"] / self.images, last["bytes_received"] / self.images
        sheet.add("bytes sent an image", sent, "bytes")
        sheet.add("bytes received an image", received, "bytes")
        sheet.add("bytes an image", sent + received, "bytes", bytes_an_image, headline=len(bytes_an_image[:1]))
        # The first repeat's, and what keys it sends.
        sheet.add("bytes of keys", self.first["bytes_sent"] - last["bytes_sent"], "bytes a connection")
        sheet.add("peak memory, server", self.server_memory, "bytes", memory)
        sheet.add("peak memory, client", self.client_memory, "bytes", memory)

    def add_accuracy(self, sheet: Sheet, references: list[Reference]) -> None:
        """Accuracy beside that of the float model and others, where all images were run."""
        whole = self.images == COUNT
        beside = [float_accuracy(self.model), *references] if whole else []
        sheet.add("accuracy", self.accuracy, "share", beside, headline=int(len(references) <= 1))


def bench_cryptonets_relu(report: Report, quick: bool) -> None:
    """ReLU by the client: all test images through two processes, on one core together and on two."""
    available = _processes.available_cores()
    count_of_images, repeats = (4096, 2) if quick else (COUNT, REPEATS)
    for count in core_counts(quick):
        with _processes.pinned(available[:count]):
            run = TwoProcesses.run(RELU, "client-aided", count_of_images, repeats)
        sheet = run.sheet(report, "cryptonets-relu", cores(count))
        run.add_speed(sheet, [SPEEDS[count]])
        run.add_sizes(sheet, [BYTES], [])
        run.add_accuracy(sheet, [])
