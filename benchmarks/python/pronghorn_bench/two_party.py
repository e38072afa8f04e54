"""`pronghorn bench two-party`: networks on shares through two processes, offline and online, against the oracle."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from pronghorn import _processes
from pronghorn._data import load_images
from pronghorn._demo import example
from pronghorn._model import Floats, Model, load
from pronghorn.errors import InputError, RunError
from pronghorn_bench.cases import MNIST_IMAGES, SAMPLES, File
from pronghorn_bench.records import Report, Sheet, cores, security_bits

TRUST = "two-party"
IMAGES = 100
QUICK_IMAGES = 8


def bench_two_party(report: Report, quick: bool) -> None:
    """CryptoNets with ReLU, of the repository."""
    bench_files([File(example("cryptonets_relu.onnx"), example(MNIST_IMAGES))], report, quick)


def bench_files(files: list[File], report: Report, quick: bool) -> None:
    """Each network on its first images, in one batch: prepared ahead, then at once. The last calibrate it."""
    for file in files:
        _bench_file(file, QUICK_IMAGES if quick else IMAGES, report)


def _bench_file(network: File, most: int, report: Report) -> None:
    bare = load(network.model)
    found = load_images(network.data, bare.input_shape, network.preprocessing)
    images, labels = found.images[:most], found.labels
    if labels is None:
        raise InputError(f"{network.data} has no labels, which accuracy is measured with")
    samples = found.images[-SAMPLES:]
    model = bare.calibrated(samples)
    count = len(images)
    options = ["--limit", str(count)]
    with tempfile.TemporaryDirectory(prefix="pronghorn-") as folder:
        out, calibration = Path(folder) / "outputs.npz", Path(folder) / "samples.npy"
        np.save(calibration, samples)
        with _processes.served(network.model, TRUST, ["--data", str(calibration)]) as server:
            ahead = _processes.predict(
                server.address, TRUST, network.data, [*options, "--prepare", "1", "--out", str(out)]
            )
            outputs = np.load(out)["outputs"]
            at_once = _processes.predict(server.address, TRUST, network.data, [*options, "--out", str(out)])
            unprepared = np.load(out)["outputs"]
            alone = _processes.predict(server.address, TRUST, network.data, ["--limit", "1", "--repeat", "3"])
            memory = server.stop()["peak_memory_bytes"]
    wanted = _oracle(model, ahead["plan_hash"], images)
    wrong = max(_disagreements(run, wanted) for run in (outputs, unprepared))
    plan = model.plan(TRUST)
    parameters = {"model": network.model.name, "images": count, "plan_hash": plan.hash}
    case = f"{network.model.stem}, {count} images, {cores(len(_processes.available_cores()))}"
    sheet = Sheet(report, "two-party", case, parameters, security_bits(plan.details()))
    phases = {
        "offline": (count, ahead["prepared"]),
        "online": (count, ahead["runs"][0]),
        "at once": (count, at_once["runs"][0]),
        "one image alone, first of a connection": (1, alone["runs"][0]),
        "one image alone, later": (1, alone["runs"][-1]),
    }
    for phase, (images_run, costs) in phases.items():
        sheet.add(f"{phase}, an image", 1e3 * costs["seconds"] / images_run, "ms", headline=1)
        sheet.add(f"{phase}, sent an image", costs["bytes_sent"] / images_run, "bytes")
        sheet.add(f"{phase}, received an image", costs["bytes_received"] / images_run, "bytes")
    sheet.add("images whose outputs are not the oracle's", wrong, "images", headline=1)
    floats = float(np.mean(model.classes(model.run_float(images)) == labels[:count]))
    accuracy = float(np.mean(model.classes(outputs) == labels[:count]))
    sheet.add("accuracy", accuracy, "share", [(floats, "the float model on the same images, here")], headline=1)
    sheet.add("peak memory, server", memory, "bytes")
    sheet.add("peak memory, client", max(ahead["peak_memory_bytes"], at_once["peak_memory_bytes"]), "bytes")


def _oracle(model: Model, plan_hash: str, images: Floats) -> Floats:
    """What the plan that the server had makes of the images."""
    compiled = model.compiled(TRUST)
    if compiled.plan_hash != plan_hash:
        raise RunError("the server's plan is not the one that was planned here")
    return compiled.run_oracle(images, None)[1]


def _disagreements(outputs: Floats, wanted: Floats) -> int:
    """Images whose outputs differ in any bit."""
    differ = (outputs.reshape(wanted.shape) != wanted).reshape(len(wanted), -1)
    return int(differ.any(axis=1).sum())
