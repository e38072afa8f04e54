"""`pronghorn bench ntt`: transforms, and the key switches that are made of them."""

from __future__ import annotations

from functools import partial

from pronghorn import _processes
from pronghorn_bench import _core, chains, timing
from pronghorn_bench.chains import SEAL_HEXL, SEAL_HEXL_CKKS, SEAL_HEXL_INVERSE, SEAL_HEXL_NTT
from pronghorn_bench.records import Reference, Report, Sheet, cores

DEGREES = (2048, 4096, 8192, 16384, 32768, 65536)
SIZES = ((64, 60), (64, 50), (64, 30), (32, 30))
"""Words and primes, in bits."""

GOAL_NARROW = 1.8
"""How many times as fast a transform with a prime of 30 bits should be as SEAL + HEXL's."""
GOAL_KEY_SWITCH = 3.0
"""The same of relinearisations and rotations at the same modulus."""


def bench_ntt(report: Report, quick: bool) -> None:
    """One core: transforms of one limb by degree, prime, word and SIMD level, then CKKS operations at SEAL's moduli."""
    degrees = DEGREES[1:3] if quick else DEGREES
    with _processes.pinned(_processes.available_cores()[:1]):
        for degree in degrees:
            _transforms(report, degree, quick)
        for degree in sorted(SEAL_HEXL_CKKS["rotate"])[: 1 if quick else None]:
            for choice in (chains.WIDE, chains.WIDE_TWO_SPECIAL, chains.NARROW, chains.TWO_SPECIAL):
                if degree in choice:
                    _operations(report, choice[degree], quick)


def _transforms(report: Report, degree: int, quick: bool) -> None:
    """Each size at each level of SIMD, all in turn."""
    made = {size: _core.NttBench(size[0], degree, size[1]) for size in SIZES}
    cases = [(size, level) for size, bench in made.items() for level in bench.levels]
    for name, inverse, more in (("forward", False, 1.0), ("inverse", True, SEAL_HEXL_INVERSE)):
        runs = [partial(made[size].seconds, inverse, level=level) for size, level in cases]
        found = dict(zip(cases, timing.best_of_each(runs, quick), strict=True))
        for (size, level), seconds in found.items():
            word, bits = size
            best = level == made[size].levels[-1]
            shown = best and not inverse and degree in SEAL_HEXL_NTT and bits <= 50
            references = []
            if degree in SEAL_HEXL_NTT and bits <= 50:
                goal = GOAL_NARROW if word == 32 and best else 1.0
                references = _with_goal(SEAL_HEXL_NTT[degree] * more, goal)
            case = f"N = {degree}, a prime of {bits} bits in {word}-bit words, {level}, {cores(1)}"
            parameters = {"degree": degree, "prime": made[size].prime, "word_bits": word, "simd": level}
            sheet = _sheet(report, case, parameters, made[size].security_bits, quick)
            sheet.add(f"ntt {name}", 1e6 * seconds, "µs", references, headline=int(shown))
        wide, narrow = (found[size, made[size].levels[-1]] for size in ((64, 30), (32, 30)))
        bench = made[32, 30]
        case = f"N = {degree}, a prime of 30 bits, {bench.levels[-1]}, {cores(1)}"
        sheet = _sheet(report, case, {"degree": degree, "prime": bench.prime}, bench.security_bits, quick)
        sheet.add(f"ntt {name}: speedup of 32-bit words", wide / narrow, "times as fast")


def _sheet(report: Report, case: str, parameters: dict[str, object], bits: int | None, quick: bool) -> Sheet:
    return Sheet(report, "ntt", case, {**parameters, "timing": timing.described(quick)}, bits)


def _operations(report: Report, chain: chains.Chain, quick: bool) -> None:
    bench = chain.make()
    parameters = chains.described(chain, bench, timing.described(quick))
    sheet = Sheet(report, "ntt", f"{chain}, {chains.secure(bench)}, {cores(1)}", parameters, bench.security_bits)
    for operation in ("relinearise", "rotate", "rescale"):
        goal = GOAL_KEY_SWITCH if operation != "rescale" else 1.0
        seconds = timing.best(partial(bench.seconds, operation), quick)
        sheet.add(operation, 1e6 * seconds, "µs", _with_goal(SEAL_HEXL_CKKS[operation][chain.degree], goal), headline=1)


def _with_goal(microseconds: float, goal: float) -> list[Reference]:
    """SEAL with HEXL's time, and the goal where it is another."""
    references = [(microseconds, SEAL_HEXL)]
    if goal != 1.0:
        references.append((microseconds / goal, f"goal: {goal:g} times as fast as that"))
    return references
