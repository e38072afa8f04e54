"""`pronghorn bench multikey-network`: the network of Tables 3 and 4 of the multi-key paper (ePrint 2019/524).

An encrypted model on encrypted images, under two keys, in one process and on one core.
"""

from __future__ import annotations

from collections import defaultdict
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

STAGES = ("convolution", "first square", "FC-1", "second square", "FC-2")
TABLE_4 = {"convolution": 705.0, "first square": 143.0, "FC-1": 739.0, "second square": 75.0, "FC-2": 135.0}
TOTAL, IMAGE, MODEL = 1797.0, 31.0, 236.0
"""Milliseconds of the evaluation, and of the encryption of an image and of the model."""
IMAGE_BYTES, MODEL_BYTES = 1.75 * 2**20, 18.5 * 2**20
PAPER_BITS = 32.0
"""Bits after the binary point that the paper states."""


def bench_multikey_network(report: Report, quick: bool) -> None:
    """Both parameter sets on the first test images."""
    images = 2 if quick else IMAGES
    with _processes.pinned(_processes.available_cores()[:1]), mnist("Table 3", "multikey_mnist.onnx", images) as case:
        _run(report, case, "as in the paper, without floods", chain=SET_II)
        _run(report, case, "floods of 40 bits", aim=(ERROR, RESULTS))


def _run(
    report: Report,
    case: Case,
    name: str,
    aim: tuple[float, int] | None = None,
    chain: Chain | None = None,
) -> None:
    samples = np.load(case.samples)
    network = _core.MultiKeyNetwork(in_core(case.model), samples, aim, chain)
    least: dict[str, float] = defaultdict(lambda: float("inf"))
    right = same = 0
    worst = 0.0
    wanted = case.model.run_float(case.images)
    for index, image in enumerate(case.images):
        run = network.run(np.ascontiguousarray(image))
        worst = max(worst, run["error"])
        stages = [("encryption", run["encryption"]), *run["decryption"]]
        stages += zip(STAGES, (seconds for _, seconds in run["products"]), strict=True)
        for stage, seconds in stages:
            least[stage] = min(least[stage], 1e3 * seconds)
        label = int(np.argmax(run["outputs"]))
        same += label == int(np.argmax(wanted[index]))
        right += case.labels is not None and label == int(case.labels[index])
    described: dict[str, Any] = {**network.described, "images": len(case.images), "timing": "least of all images"}
    sheet = Sheet(report, SUITE, f"table 4, {name}, {cores(1)}", described, network.security_bits)
    table = f"{PAPER}, Table 4"
    for stage in STAGES:
        sheet.add(f"{stage} layer", least[stage], "ms", [(TABLE_4[stage], table)], headline=1)
    total = sum(least[stage] for stage in STAGES)
    goal = (TOTAL / GOAL, f"goal: {GOAL} times as fast as that")
    sheet.add("evaluation", total, "ms", [(TOTAL, table), goal], headline=1)
    sheet.add("image encryption", least["encryption"], "ms", [(IMAGE, table)], headline=1)
    keys, model, expansion = (1e3 * seconds for seconds in network.seconds)
    sheet.add("model encryption", model, "ms", [(MODEL, table)], headline=1)
    sheet.add("keys of both parties", keys, "ms")
    sheet.add("model, expanded by the cloud", expansion, "ms")
    for stage in [stage for stage in least if stage not in (*STAGES, "encryption")]:
        sheet.add(f"decryption: {stage}", least[stage], "ms")
    source = f"{PAPER}, section 6.3.2"
    sheet.add("image", described["image bytes"], "bytes", [(IMAGE_BYTES, source)], headline=1)
    sheet.add("model", described["model bytes"], "bytes", [(MODEL_BYTES, source)], headline=1)
    for party, count in zip(("client", "model owner"), described["key bytes"], strict=True):
        sheet.add(f"public keys of the {party}", count, "bytes")
    sheet.add("result under both keys", described["result bytes"], "bytes")
    sheet.add("precision, measured", -log2(worst), "times 2^-1", [(PAPER_BITS, source)], headline=1)
    sheet.add("precision, stated", -log2(network.stated_error), "times 2^-1", [(PAPER_BITS, source)], headline=1)
    count = len(case.images)
    sheet.add("labels equal to the float model's", same / count, f"share of {count}", headline=1)
    sheet.add("labels right", right / count, f"share of {count}", headline=1)
