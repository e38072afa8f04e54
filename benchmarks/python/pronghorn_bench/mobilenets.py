"""`pronghorn bench mobilenets`: full batches of MobileNets under client-aided, beside Table 8 of nGraph-HE2."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx

from pronghorn import _processes
from pronghorn._data import load_images
from pronghorn._model import Floats, Model, load
from pronghorn.errors import RunError
from pronghorn_bench.cases import Choice, File
from pronghorn_bench.mobilenet_v2 import mobilenet_v2
from pronghorn_bench.records import Report, Sheet, cores, security_bits

SUITE = "mobilenets"
TRUST = "client-aided"
IMAGES = 4096
"""Those of the paper's batch."""
QUICK_IMAGES = 16
SAMPLES = 50
SEED = 3
COMPARED = 8
"""Images whose results are compared with the oracle's."""
BITS = 8
"""Of weights and of inputs, in the second run."""
ERROR = 2.0
"""The largest that may be asked for: with chosen bits it decides nothing."""


class Published(NamedTuple):
    """A row of Table 8: batches of 4,096 images, 56 threads."""

    milliseconds: float
    megabytes: float
    client_gigabytes: float
    server_gigabytes: float


TABLE_8 = {
    96: Published(27.0, 38.4, 8.6, 60.3),
    128: Published(46.0, 63.7, 12.6, 100.4),
    160: Published(71.0, 107.5, 17.9, 161.0),
    192: Published(103.0, 152.2, 24.2, 239.2),
    224: Published(129.0, 206.9, 56.9, 324.3),
}
"""MobileNetV2 0.35 by pixels, on one machine."""


def bench_mobilenets(report: Report, quick: bool) -> None:
    """MobileNetV2 0.35 at 96 pixels, with made-up weights and pictures; quickly, a narrower one at 32."""
    with tempfile.TemporaryDirectory(prefix="pronghorn-") as folder:
        pixels = 32 if quick else 96
        model, data = (Path(folder) / name for name in (f"mobilenetv2_035_{pixels}.onnx", "pictures.npy"))
        onnx.save(mobilenet_v2(0.1 if quick else 0.35, pixels), model)
        pictures = np.random.default_rng(SEED).random((2 * SAMPLES, 3, pixels, pixels), dtype=np.float32)
        np.save(data, pictures)
        run_mobilenets(Choice(files=(File(model, data),)), report, quick)


def run_mobilenets(choice: Choice, report: Report, quick: bool) -> None:
    """Each network on its pictures, again and again, in one batch: with default options, and with 8 bits."""
    count = choice.images or (QUICK_IMAGES if quick else IMAGES)
    for file in choice.files:
        bare = load(file.model)
        found = load_images(file.data, bare.input_shape, file.preprocessing).images
        for bits in (None, BITS):
            _run(file, bare, found, bits, count, report)


def _run(file: File, bare: Model, found: Floats, bits: int | None, count: int, report: Report) -> None:
    samples = found[-SAMPLES:]
    options: list[str] = ["--engine", "batch"]
    if bits is not None:
        options += ["--weight-bits", str(bits), "--input-bits", str(bits), "--error", str(ERROR)]
    with tempfile.TemporaryDirectory(prefix="pronghorn-") as folder:
        calibration, batch, out = (Path(folder) / name for name in ("samples.npy", "batch.npy", "out.npz"))
        np.save(calibration, samples)
        _repeat(found, count, batch)
        with _processes.served(file.model, TRUST, ["--data", str(calibration), *options]) as server:
            planned = server.processor_seconds()
            answer = _processes.predict(
                server.address, TRUST, batch, ["--limit", str(count), "--out", str(out), "--with-plan"]
            )
            worked = server.processor_seconds()
            memory = server.stop()["peak_memory_bytes"]
        outputs = np.load(out)["outputs"]
    compared = min(COMPARED, count, len(found))
    error = None if bits is None else ERROR
    model = load(file.model, samples=samples, weight_bits=bits, input_bits=bits, error=error)
    plan = model.plan(TRUST, engine="batch")
    if plan.hash != answer["plan_hash"]:
        raise RunError("the server's plan is not the one that was planned here")
    wanted = model.compiled(TRUST, engine="batch").run_oracle(found[:compared], None)[1]
    wrong = int((outputs[:compared].reshape(wanted.shape) != wanted).any(axis=-1).sum())
    run = answer["runs"][0]
    pixels = bare.input_shape[-1]
    paper = TABLE_8.get(pixels) if "035" in file.model.stem else None
    source = "nGraph-HE2, Table 8, 56 threads"
    precision = "default options" if bits is None else f"{bits} bits of weights and inputs"
    case = f"{file.model.stem}, {precision}, {cores(len(_processes.available_cores()))}"
    parameters = {"model": file.model.name, "images": count, "plan_hash": plan.hash, "bits": bits}
    sheet = Sheet(report, SUITE, case, parameters, security_bits(plan.details()))

    def add(figure: str, value: float, unit: str, published: float | None) -> None:
        sheet.add(figure, value, unit, [] if published is None else [(published, source)], headline=1)

    both = (run["bytes_sent"] + run["bytes_received"]) / count / 1e6
    add("an image", 1e3 * run["seconds"] / count, "ms", paper and paper.milliseconds)
    add("an image, both ways", both, "MB", paper and paper.megabytes)
    if planned is not None and worked is not None:
        sheet.add("an image, server's processors", 1e3 * (worked - planned) / count, "ms")
    add("peak memory, server", memory / 1e9, "GB", paper and paper.server_gigabytes)
    add("peak memory, client", answer["peak_memory_bytes"] / 1e9, "GB", paper and paper.client_gigabytes)
    sheet.add(f"images of {compared} whose results are not the oracle's", wrong, "images", headline=1)


def _repeat(found: Floats, count: int, path: Path) -> None:
    """The pictures again and again, without a copy of all in memory."""
    batch = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(count, *found.shape[1:]))
    for first in range(0, count, len(found)):
        rest = min(len(found), count - first)
        batch[first : first + rest] = found[:rest]
    batch.flush()
