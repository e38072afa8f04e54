"""`pronghorn bench activations`: Table XI of Gazelle, and what activations are made of."""

from __future__ import annotations

from pronghorn import _processes
from pronghorn_bench import _core
from pronghorn_bench.records import Reference, Report, Sheet, core_counts, cores

SUITE = "activations"
PAPER = "Gazelle (Juvekar, Vaikuntanathan, Chandrakasan, USENIX Security 2018), Table XI"

TABLE: dict[tuple[str, int], tuple[tuple[float, float], tuple[float, float]]] = {
    ("square", 2048): ((0.5, 1.4), (0.0, 0.093)),
    ("relu", 1000): ((89, 201), (5.43, 1.68)),
    ("relu", 10_000): ((551, 1307), (54.3, 16.8)),
    ("max pool", 1000): ((164, 426), (15.6, 8.39)),
    ("max pool", 10_000): ((1413, 3669), (156.0, 83.9)),
}
"""Milliseconds, then MB, offline and online, by function and outputs."""

GOALS: dict[tuple[str, int], tuple[float, float]] = {("relu", 10_000): (10, 5)}
"""How many times less of time and of bytes."""

RATE_GOALS = {
    "AND gates garbled": 400e6,
    "AND gates evaluated": 800e6,
    "OTs at the sender": 60e6,
    "OTs at the receiver": 60e6,
}

ROUNDS = 20
QUICK_ROUNDS = 1
OFFLINE, ONLINE, AT_ONCE = "offline", "online", "at once"


def bench_activations(report: Report, quick: bool) -> None:
    """Both parties in one process, connected by memory and taking turns, on one core and on two."""
    available = _processes.available_cores()
    for threads in core_counts(quick):
        with _processes.pinned(available[:threads]):
            bench_functions(report, SUITE, threads, quick)
    with _processes.pinned(available[:1]):
        _rates(report, QUICK_ROUNDS if quick else ROUNDS)


def bench_functions(report: Report, suite: str, threads: int, quick: bool) -> None:
    """The rows of Table XI, for a suite, on the cores that this process is pinned to."""
    bench = _core.ActivationBench()
    table = "" if suite == SUITE else "table XI, "
    setup = f"{table}set-up of OTs, {cores(threads)}"
    _setup(Sheet(report, suite, setup, "ML-KEM, once a connection", 128), bench)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    for function, outputs in TABLE:
        if quick and outputs >= 10_000:
            continue
        parameters = {
            "values": "20 bits, shares modulo 2^20",
            "window": "2x2" if function == "max pool" else None,
            "timing": f"least of {rounds} runs, each phase; the parties take turns, so their times are added up",
        }
        case = f"{table}{function}, {outputs:,} outputs, {cores(threads)}"
        _function(Sheet(report, suite, case, parameters, 128), bench, (function, outputs), threads, rounds)


def _setup(sheet: Sheet, bench: _core.ActivationBench) -> None:
    sheet.add("time", _milliseconds(bench.setup), "ms")
    sheet.add("traffic", _megabytes(bench.setup), "MB")


def _function(sheet: Sheet, bench: _core.ActivationBench, row: tuple[str, int], threads: int, rounds: int) -> None:
    function, outputs = row
    runs = [bench.run(function, outputs, threads) for _ in range(rounds)]
    times, sizes = TABLE[row]
    time_goal, size_goal = GOALS.get(row, (None, None))
    phases = ((OFFLINE, times[0], sizes[0]), (ONLINE, times[1], sizes[1]), (AT_ONCE, sum(times), sum(sizes)))
    for phase, time, size in phases:
        milliseconds = min(_milliseconds(run[phase]) for run in runs)
        sheet.add(phase, milliseconds, "ms", _references(time, time_goal))
        sheet.add(phase, _megabytes(runs[0][phase]), "MB", _references(size, size_goal))
    both = min(_milliseconds(run[OFFLINE]) + _milliseconds(run[ONLINE]) for run in runs)
    sheet.add("offline and online", both, "ms", _references(sum(times), time_goal), headline=1)
    size = _megabytes(runs[0][OFFLINE]) + _megabytes(runs[0][ONLINE])
    sheet.add("offline and online", size, "MB", _references(sum(sizes), size_goal), headline=1)


def _references(paper: float, goal: float | None) -> list[Reference]:
    """None where the paper's figure is zero: there is no ratio."""
    if not paper:
        return []
    references = [(paper, PAPER)]
    if goal is not None:
        references.append((paper / goal, f"goal: {goal:g} times less than that"))
    return references


def _rates(report: Report, rounds: int) -> None:
    found = _core.ActivationBench.rates(rounds)
    parameters = f"in memory; the fastest message of {rounds} runs"
    sheet = Sheet(report, SUITE, f"rates, {cores(1)}", parameters, 128)
    for (metric, goal), rate in zip(RATE_GOALS.items(), found, strict=True):
        sheet.add(metric, rate / 1e6, "M/s", [(goal / 1e6, "goal")], headline=1)


def _milliseconds(phase: dict[str, float]) -> float:
    return 1e3 * (phase["client_seconds"] + phase["server_seconds"])


def _megabytes(phase: dict[str, float]) -> float:
    return (phase["bytes_up"] + phase["bytes_down"]) / 1e6
