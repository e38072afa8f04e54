"""`pronghorn bench words`: Table 2 of the 32-bit HE-Transformer paper."""

from __future__ import annotations

from typing import Any

from pronghorn import _processes
from pronghorn_bench import _core
from pronghorn_bench.records import Report, Sheet, core_counts, cores

PAPER = (
    "X. Li, M. Nishi, T. Shishido, K. Kimura, Acceleration of HE-Transformer with bit reduced SEAL and HEXL, Table 2, "
    "against SEAL 3.6.6"
)
SPEEDUPS = {(False, 1): 2.07, (False, 2): 2.07, (True, 1): 2.01, (True, 2): 1.96}
"""By complex packing and threads."""
GOAL = 1.9

DEGREE = 16384
PRIMES = [29] * 10
SPECIAL = 29
SCALE = 29
"""Listing 1: eleven primes of 29 bits, of which SEAL takes the last for key switching; scale 2^29."""
ONE_IN = 4
"""Few enough ciphertexts for 8 GB, and too many for caches with either word."""


def bench_words(report: Report, quick: bool) -> None:
    """CryptoNets with the paper's parameters, 32-bit and 64-bit words on the same code in turn."""
    available = _processes.available_cores()
    for packing in (False, True):
        for threads in core_counts():
            with _processes.pinned(available[:threads]):
                _compare(report, packing, threads, quick)


def _compare(report: Report, packing: bool, threads: int, quick: bool) -> None:
    one_in, rounds = (300, 1) if quick else (ONE_IN, 2)
    runs: dict[int, list[dict[str, Any]]] = {32: [], 64: []}
    for _ in range(rounds):
        for word, found in runs.items():
            found.append(
                _core.bench_cryptonets(word, DEGREE, PRIMES, SPECIAL, SCALE, None, packing, packing, one_in, threads)
            )
    any_run = runs[32][0]
    parameters = {
        "degree": DEGREE,
        "prime_bits": [*PRIMES, SPECIAL],
        "modulus_bits": any_run["modulus_bits"],
        "scale": f"2^{SCALE}",
        "images": any_run["images"],
        "activations": "ReLU by the client, who encrypts again" if packing else "squares under encryption",
        "measured": f"one in {one_in} ciphertexts of each layer, times {one_in}; least of {rounds} runs of each step",
        "largest error of a result": max(run["error"] for found in runs.values() for run in found),
    }
    case = f"{'complex' if packing else 'real'} packing, {cores(threads)}"
    sheet = Sheet(report, "words", case, parameters, any_run["security_bits"])
    least = {
        party: {
            step: {word: min(run[party][step] for run in found) for word, found in runs.items()}
            for step in any_run[party]
        }
        for party in ("client", "server")
    }
    for party, steps in least.items():
        for step, seconds in steps.items():
            sheet.add(f"{party}, {step}: speedup of 32-bit words", seconds[64] / seconds[32], "times as fast")
    totals = {
        word: {party: sum(step[word] for step in steps.values()) for party, steps in least.items()} for word in runs
    }
    for word, parties in totals.items():
        for party, seconds in parties.items():
            sheet.add(f"{party}, {word}-bit words", seconds, "s a batch")
        sheet.add(f"{word}-bit words", any_run["images"] / sum(parties.values()), "images/s")
    speedup = sum(totals[64].values()) / sum(totals[32].values())
    references = [(SPEEDUPS[packing, threads], PAPER), (GOAL, "goal")]
    sheet.add("speedup of 32-bit words, both parties", speedup, "times as fast", references, headline=1)
