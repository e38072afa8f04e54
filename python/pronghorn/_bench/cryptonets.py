"""CryptoNets through two processes, and `pronghorn bench cryptonets-relu`."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from pronghorn import _processes
from pronghorn._bench.records import Report, Sheet, core_counts, cores
from pronghorn._demo import example

IMAGES = 10_000
REPEATS = 7
NGRAPH = "nGraph-HE2 (arXiv 1908.04172), CryptoNets with ReLU, client-aided"
REFERENCES = {
    1: (694.0, f"{NGRAPH}, a thread, localhost"),
    2: (2959.0, f"{NGRAPH}, 24 threads, LAN"),
    "bytes": (0.03e6, f"{NGRAPH}, 0.03 MB an image"),
    "accuracy": (0.9877, "the float model by onnxruntime on the same images"),
}


@dataclass(frozen=True)
class TwoProcesses:
    """All MNIST test images, again and again over one connection, from a client process to a server process."""

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
        data = example("t10k-images-idx3-ubyte.gz")
        options = ["--limit", str(images), "--repeat", str(repeats + 1), "--with-plan"]
        with _processes.served(example(model), trust, ["--data", str(data)]) as server:
            found = _processes.predict(server.address, trust, data, options)
            memory = server.stop()["peak_memory_bytes"]
        first, *steady = found["runs"]
        return cls(
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

    @property
    def bytes_an_image(self) -> float:
        """Both ways, in the steady state."""
        return (self.steady[-1]["bytes_sent"] + self.steady[-1]["bytes_received"]) / self.images

    def sheet(self, report: Report, suite: str, case: str) -> Sheet:
        """For figures of this run."""
        parameters = {
            "images": self.images,
            "repeats": len(self.steady),
            "plan_hash": self.plan_hash,
            "plan": self.plan,
        }
        return Sheet(report, suite, case, parameters, self.security_bits)


def bench_cryptonets(report: Report, quick: bool) -> None:
    """All MNIST test images through two processes, on one core together and on two."""
    available = _processes.available_cores()
    images, repeats = (4096, 2) if quick else (IMAGES, REPEATS)
    for count in core_counts():
        with _processes.pinned(available[:count]):
            run = TwoProcesses.run("cryptonets_relu.onnx", "client-aided", images, repeats)
        first = run.first
        add = run.sheet(report, "cryptonets-relu", cores(count)).add
        add("images/s", run.speed, "images/s", [REFERENCES[count]])
        add("images/s, slowest repeat", min(run.speeds), "images/s")
        add("images/s, first batch of a connection", images / first["seconds"], "images/s")
        add("bytes sent an image", first["bytes_sent"] / images, "bytes")
        add("bytes received an image", first["bytes_received"] / images, "bytes")
        bytes_an_image = (first["bytes_sent"] + first["bytes_received"]) / images
        add("bytes an image", bytes_an_image, "bytes", [REFERENCES["bytes"]])
        add("peak memory, server", run.server_memory, "bytes")
        add("peak memory, client", run.client_memory, "bytes")
        add("accuracy", run.accuracy, "share", [REFERENCES["accuracy"]] if images == IMAGES else [])
