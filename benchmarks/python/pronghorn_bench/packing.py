"""nGraph-HE2's Table 6: complex packing, for CryptoNets with ReLU in client-aided mode.

The paper puts one or two values in a slot of CKKS. So do the rows here with real and complex packing: an operation a
weight, both parties in this process, one after the other. Pronghorn itself runs such a network on its batch engine,
which puts a value in each coefficient, as many as complex packing has; that is the third row, by two processes.
"""

from __future__ import annotations

from typing import Any

from pronghorn_bench import _core
from pronghorn_bench.cryptonets import TwoProcesses
from pronghorn_bench.records import Reference, Report, Sheet, cores

DEGREE = 2048
PRIMES = {64: [53], 32: [27, 26]}
"""By word: the paper's one prime has 54 bits, a bit more than ePrint 2024/463 allows."""
SCALE, WEIGHT_SCALE = 27, 22

# Milliseconds an image and seconds a batch, by cores and whether packing is complex.
TABLE_6: dict[tuple[int, bool], list[tuple[float, float, str]]] = {
    (1, False): [(2.72, 2.79, "a thread, localhost, real packing, batch of 1,024")],
    (1, True): [(1.44, 2.94, "a thread, localhost, complex packing, batch of 2,048")],
    (2, True): [
        (0.24, 0.50, "24 threads, localhost, complex packing, batch of 2,048"),
        (0.34, 0.69, "24 threads, LAN, complex packing, batch of 2,048"),
    ],
}
ACCURACY = (0.9862, "nGraph-HE2, Table 6")
SPEEDUP = (2.72 / 1.44, "nGraph-HE2, Table 6, a thread")


def table_6(report: Report, suite: str, coefficients: TwoProcesses, count: int, quick: bool) -> None:
    """The rows; `coefficients`: a run of the third on `count` cores."""
    for word, primes in PRIMES.items():
        _slots(report, suite, word, primes, count, quick)
    sheet = coefficients.sheet(report, suite, f"table 6, ReLU, client-aided, values in coefficients, {cores(count)}")
    amortised, _ = _references(count, True)
    sheet.add("client and server process", 1e3 / coefficients.speed, "ms an image", amortised, headline=1)
    coefficients.add_accuracy(sheet, [ACCURACY])


def _slots(report: Report, suite: str, word: int, primes: list[int], count: int, quick: bool) -> None:
    """With values in slots, real and complex."""
    one_in, rounds = (50, 1) if quick else (1, 3)
    arguments = (word, DEGREE, primes, None, SCALE, WEIGHT_SCALE)
    found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for _ in range(rounds):
        for complex_packing, runs in found.items():
            runs.append(_core.bench_words("CryptoNets", *arguments, complex_packing, True, one_in, count))
    amortised: dict[bool, float] = {}
    for complex_packing, runs in found.items():
        seconds = min(sum(run["client"].values()) + sum(run["server"].values()) for run in runs)
        images = runs[0]["images"]
        parameters = {
            "degree": DEGREE,
            "prime_bits": primes,
            "word_bits": word,
            "scale": f"2^{SCALE}, weights 2^{WEIGHT_SCALE}",
            "images": images,
            "measured": f"one in {one_in} ciphertexts of each layer, times {one_in}; least of {rounds} runs in turn",
            "largest error of a result": max(run["error"] for run in runs),
        }
        packing = "complex" if complex_packing else "real"
        case = f"table 6, ReLU, client-aided, {packing} packing, {word}-bit words, {cores(count)}"
        sheet = Sheet(report, suite, case, parameters, runs[0]["security_bits"])
        amortised[complex_packing] = 1e3 * seconds / images
        an_image, a_batch = _references(count, complex_packing)
        sheet.add("client and server after each other", amortised[complex_packing], "ms an image", an_image, headline=1)
        sheet.add("client and server after each other", seconds, "s a batch", a_batch)
    sheet.add("speedup of complex packing", amortised[False] / amortised[True], "times as fast", [SPEEDUP])


def _references(count: int, complex_packing: bool) -> tuple[list[Reference], list[Reference]]:
    """Milliseconds an image, and seconds a batch."""
    rows = TABLE_6.get((count, complex_packing), [])
    source = "nGraph-HE2, Table 6"
    an_image = [(amortised, f"{source}, {what}") for amortised, _, what in rows]
    return an_image, [(total, f"{source}, {what}") for _, total, what in rows]
