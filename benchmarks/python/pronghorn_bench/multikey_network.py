"""`pronghorn bench multikey-network`: the network of Tables 3 and 4 of the multi-key paper (ePrint 2019/524).

An encrypted model on encrypted images, under two keys, in one process. Beside it a network that nobody prepared for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np

from pronghorn import _processes
from pronghorn_bench import _core
from pronghorn_bench.cases import Case, mnist
from pronghorn_bench.compiled import in_core
from pronghorn_bench.records import Report, Sheet, cores

SUITE = "multikey-network"
PAPER = "Chen, Dai, Kim, Song (ePrint 2019/524)"
IMAGES = 200
OTHERS = {"CryptoNets": "cryptonets_square.onnx"}
OTHER_IMAGES = 20
GOAL = 10
"""How many times as fast as the paper's the network should be."""

ERROR = 2.0**-10
"""The error that results may have where floods protect the parties."""
RESULTS = 1024
"""Results that a key decrypts."""

Chain = tuple[int, list[int], list[int], int, list[int]]
SET_II: Chain = (16384, [28] * 3, [27] * 2, 5, [30] * 2)
"""The paper's set II moved inside the table of ePrint 2024/463, one level fewer: primes of the result, of each level,
levels, special primes. It leaves no room for floods, as in the paper."""

TABLE_4 = {"convolution": 705.0, "first square": 143.0, "FC-1": 739.0, "second square": 75.0, "FC-2": 135.0}
TOTAL, IMAGE, MODEL = 1797.0, 31.0, 236.0
"""Milliseconds of the evaluation, and of the encryption of an image and of the model."""
IMAGE_BYTES, MODEL_BYTES = 1.75 * 2**20, 18.5 * 2**20
PAPER_BITS = 32
"""Bits after the binary point that the paper states."""


def bench_multikey_network(report: Report, quick: bool) -> None:
    """Both parameter sets on the first test images."""
    images = 2 if quick else IMAGES
    available = _processes.available_cores()
    for threads in sorted({len(available)} if quick else {1, len(available)}):
        with _processes.pinned(available[:threads]):
            with mnist("Table 3", "multikey_mnist.onnx", images) as case:
                _table_4(report, case, threads, "as in the paper, without floods", chain=SET_II)
                _table_4(report, case, threads, "floods of 40 bits", aim=(ERROR, RESULTS))
            for name, file in [] if quick else OTHERS.items():
                with mnist(name, file, OTHER_IMAGES) as case:
                    _other(report, case, threads, name)


@dataclass(frozen=True)
class Run:
    """A network on all images of a case; milliseconds are the least of all images."""

    described: dict[str, Any]
    security_bits: int | None
    encryption: float
    products: list[float]
    decryption: dict[str, float]
    seconds: tuple[float, float, float]
    """Of keys, the model's encryption and its expansion."""
    error: float
    stated: float
    count: int
    same: int
    """Labels equal to the float model's."""
    right: int


def _run(case: Case, threads: int, aim: tuple[float, int] | None = None, chain: Chain | None = None) -> Run:
    network = _core.MultiKeyNetwork(in_core(case.model), np.load(case.samples), threads, aim, chain)
    wanted = case.model.run_float(case.images)
    least: dict[str, float] = {}
    products: list[float] = []
    same = right = 0
    worst = 0.0
    for index, image in enumerate(case.images):
        run = network.run(np.ascontiguousarray(image))
        worst = max(worst, run["error"])
        seconds = [seconds for _, seconds in run["products"]]
        products = [min(pair) for pair in zip(products or seconds, seconds, strict=True)]
        for stage, of_stage in [("encryption", run["encryption"]), *run["decryption"]]:
            least[stage] = min(least.get(stage, of_stage), of_stage)
        label = int(np.argmax(run["outputs"]))
        same += label == int(np.argmax(wanted[index]))
        right += case.labels is not None and label == int(case.labels[index])
    encryption = 1e3 * least.pop("encryption")
    return Run(
        described={**network.described, "images": len(case.images), "timing": "least of all images"},
        security_bits=network.security_bits,
        encryption=encryption,
        products=[1e3 * seconds for seconds in products],
        decryption={stage: 1e3 * seconds for stage, seconds in least.items()},
        seconds=network.seconds,
        error=worst,
        stated=network.stated_error,
        count=len(case.images),
        same=same,
        right=right,
    )


def _table_4(
    report: Report,
    case: Case,
    threads: int,
    name: str,
    aim: tuple[float, int] | None = None,
    chain: Chain | None = None,
) -> None:
    run = _run(case, threads, aim, chain)
    sheet = Sheet(report, SUITE, f"table 4, {name}, {cores(threads)}", run.described, run.security_bits)
    table = f"{PAPER}, Table 4"
    for stage, milliseconds in zip(TABLE_4, run.products, strict=True):
        sheet.add(f"{stage} layer", milliseconds, "ms", [(TABLE_4[stage], table)], headline=1)
    goal = (TOTAL / GOAL, f"goal: {GOAL} times as fast as that")
    sheet.add("evaluation", sum(run.products), "ms", [(TOTAL, table), goal], headline=2)
    sheet.add("image encryption", run.encryption, "ms", [(IMAGE, table)], headline=1)
    sheet.add("model encryption", 1e3 * run.seconds[1], "ms", [(MODEL, table)], headline=1)
    source = f"{PAPER}, section 6.3.2"
    sheet.add("image", run.described["image bytes"], "bytes", [(IMAGE_BYTES, source)], headline=1)
    sheet.add("model", run.described["model bytes"], "bytes", [(MODEL_BYTES, source)], headline=1)
    sheet.add("largest error", run.error, "of a result", [(2**-PAPER_BITS, source)], headline=1)
    _shared(sheet, run)


def _other(report: Report, case: Case, threads: int, name: str) -> None:
    run = _run(case, threads, aim=(ERROR, RESULTS))
    sheet = Sheet(report, SUITE, f"{name}, floods of 40 bits, {cores(threads)}", run.described, run.security_bits)
    sheet.add("evaluation", sum(run.products), "ms", headline=1)
    _shared(sheet, run)


def _shared(sheet: Sheet, run: Run) -> None:
    """Figures that the paper does not have."""
    keys, _, expansion = (1e3 * seconds for seconds in run.seconds)
    sheet.add("keys of both parties", keys, "ms")
    sheet.add("model, expanded by the cloud", expansion, "ms")
    for stage, milliseconds in run.decryption.items():
        sheet.add(f"decryption: {stage}", milliseconds, "ms", headline=1)
    for party, count in zip(("client", "model owner"), run.described["key bytes"], strict=True):
        sheet.add(f"public keys of the {party}", count, "bytes", headline=1)
    sheet.add("result under both keys", run.described["result bytes"], "bytes")
    sheet.add("precision, measured", -log2(run.error), "bits", headline=1)
    sheet.add("precision, stated for any input", -log2(run.stated), "bits", headline=1)
    sheet.add("labels equal to the float model's", run.same / run.count, f"share of {run.count}", headline=1)
    sheet.add("labels right", run.right / run.count, f"share of {run.count}", headline=1)
