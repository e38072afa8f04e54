"""Times of short operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

Run = Callable[[int], float]
"""Does something so many times; the seconds of one."""

ROUNDS = 40
QUICK_ROUNDS = 3
ROUND_SECONDS = 0.002
"""Shorter than what a scheduler gives a process in one go, so that some rounds are undisturbed."""
LONG = 0.1
"""An operation of so many seconds is measured three times only."""
STEP = 4
"""Iterations are multiples of this: an operation may go through so many cases in turn."""


def best(run: Run, quick: bool) -> float:
    """Seconds of one operation; see `best_of_each`."""
    return best_of_each([run], quick)[0]


def best_of_each(runs: Sequence[Run], quick: bool) -> list[float]:
    """Seconds of one operation of each: the least of several rounds, which take turns.

    What else runs on the machine makes operations slower, never faster, and hits those that take turns alike.
    """
    first = [run(STEP) for run in runs]
    counts = [STEP * max(1, round(ROUND_SECONDS / (STEP * max(seconds, 1e-9)))) for seconds in first]
    rounds = QUICK_ROUNDS if quick or max(first) > LONG else ROUNDS
    found = [[run(count) for run, count in zip(runs, counts, strict=True)] for _ in range(rounds)]
    return [min(times) for times in zip(*found, strict=True)]


def described(quick: bool) -> str:
    """How times were taken, for a record."""
    return f"least of {QUICK_ROUNDS if quick else ROUNDS} rounds, each the mean of a run"


def timed(work: Callable[[], object], iterations: int) -> float:
    """Seconds of `work`: the mean."""
    started = perf_counter()
    for _ in range(iterations):
        work()
    return (perf_counter() - started) / iterations
