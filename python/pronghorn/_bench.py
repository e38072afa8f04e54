"""`pronghorn bench`: figures as records, each beside the published or measured figure it is compared with."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pronghorn import _native, _processes
from pronghorn._demo import TRUST, example

Record = dict[str, Any]
Report = Callable[[Record], None]

NGRAPH = "nGraph-HE2 (arXiv 1908.04172), CryptoNets with ReLU, client-aided"
REFERENCES = {
    "1 core": (694.0, f"{NGRAPH}, a thread, localhost"),
    "2 cores": (2959.0, f"{NGRAPH}, 24 threads, LAN"),
    "bytes": (0.03e6, f"{NGRAPH}, 0.03 MB an image"),
    "accuracy": (0.9877, "the float model by onnxruntime on the same images"),
}
REPEATS = 7
IMAGES = 10_000


def machine() -> Record:
    """What the figures were measured on."""
    return {
        "cpu": _cpu_name(),
        "cores": len(_processes.available_cores()),
        "simd": _native.simd_level(),
        "system": platform.platform(),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def record(
    suite: str,
    case: str,
    metric: str,
    value: float,
    unit: str,
    parameters: object,
    security_bits: int | None,
    reference: tuple[float, str] | None,
) -> Record:
    """One figure; `ratio` is value over reference."""
    return {
        "suite": suite,
        "case": case,
        "metric": metric,
        "value": value,
        "unit": unit,
        "parameters": parameters,
        "security_bits": security_bits,
        "machine": machine(),
        "reference": None if reference is None else {"value": reference[0], "source": reference[1]},
        "ratio": None if reference is None or not reference[0] else value / reference[0],
    }


def bench_batch(report: Report, quick: bool) -> None:
    """The batch engine's kernels on one core and on all, with their ceiling measured in the same run."""
    cores = _processes.available_cores()
    for count in sorted({1, len(cores)}):
        # A process each: the number of threads is set once a process.
        with _processes.pinned(cores[:count]):
            code = f"import json, pronghorn._native as n; print(json.dumps(n.bench_batch({count}, {quick})))"
            found = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
        for figure in json.loads(found.stdout):
            ceiling = figure.get("ceiling")
            reference = None if not ceiling else (float(ceiling), "the machine's ceiling, measured in the same run")
            case = f"{figure['case']}, {_cores(count)}"
            parameters, bits = figure["parameters"], figure["security_bits"]
            value, unit = figure["value"], figure["unit"]
            report(record("batch", case, figure["metric"], value, unit, parameters, bits, reference))


def bench_cryptonets(report: Report, quick: bool) -> None:
    """All MNIST test images through two processes, on one core together and on two."""
    cores = _processes.available_cores()
    for count in sorted({1, min(2, len(cores))}):
        with _processes.pinned(cores[:count]):
            _bench_cryptonets(report, _cores(count), quick)


def _bench_cryptonets(report: Report, case: str, quick: bool) -> None:
    model, data = example("cryptonets_relu.onnx"), example("t10k-images-idx3-ubyte.gz")
    repeats, images = (2, 4096) if quick else (REPEATS, IMAGES)
    options = ["--limit", str(images), "--repeat", str(repeats + 1), "--with-plan"]
    with _processes.served(model, TRUST, ["--data", str(data)]) as server:
        found = _processes.predict(server.address, TRUST, data, options)
        memory = server.stop()["peak_memory_bytes"]
    plan = found["plan"]
    parameters = {"images": images, "repeats": repeats, "plan_hash": found["plan_hash"], "plan": plan}

    def add(metric: str, value: float, unit: str, reference: tuple[float, str] | None = None) -> None:
        report(record("cryptonets-relu", case, metric, value, unit, parameters, found["security_bits"], reference))

    first, *steady = found["runs"]
    speeds = [images / run["seconds"] for run in steady]
    add("images/s", statistics.median(speeds), "images/s", REFERENCES[case])
    add("images/s, slowest repeat", min(speeds), "images/s")
    add("images/s, first batch of a connection", images / first["seconds"], "images/s")
    add("bytes sent an image", first["bytes_sent"] / images, "bytes")
    add("bytes received an image", first["bytes_received"] / images, "bytes")
    add("bytes an image", (first["bytes_sent"] + first["bytes_received"]) / images, "bytes", REFERENCES["bytes"])
    add("peak memory, server", memory, "bytes")
    add("peak memory, client", found["peak_memory_bytes"], "bytes")
    add("accuracy", found["accuracy"], "share", REFERENCES["accuracy"] if images == IMAGES else None)


def _layers(plan: Record) -> list[Record]:
    """The parameters of each layer of secret weights in a plan's JSON."""
    linear = [(step["name"], step["kind"]["linear"]) for step in plan["steps"] if "linear" in step["kind"]]
    names = ("degree", "modulus", "scale_log", "dropped_bits", "dropped_bits_a")
    return [{"name": name, **{field: kind[field] for field in names}} for name, kind in linear]


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"


SUITES: dict[str, Callable[[Report, bool], None]] = {"batch": bench_batch, "cryptonets-relu": bench_cryptonets}
