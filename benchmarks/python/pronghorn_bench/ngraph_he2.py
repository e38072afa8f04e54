"""`pronghorn bench ngraph-he2`: Tables 2 to 7 and 9 of nGraph-HE2, row by row."""

from __future__ import annotations

from functools import partial

from pronghorn import _processes
from pronghorn._model import Model
from pronghorn_bench import _core, chains, timing
from pronghorn_bench.chains import Chain
from pronghorn_bench.cryptonets import COUNT, RELU, TwoProcesses
from pronghorn_bench.packing import table_6
from pronghorn_bench.records import Report, Sheet, core_counts, cores
from pronghorn_bench.squares import MEMORY_GOAL, SERVER_SPEEDS, TRUST, Batches, squares, two_processes

SUITE = "ngraph-he2"

# By degree and primes.
TABLE_2 = {
    (4096, 1): {"general": (605.0, 32_768), "scalar": (177.0, 8)},
    (8192, 3): {"general": (2951.0, 196_608), "scalar": (202.0, 24)},
    (16384, 8): {"general": (38_938.0, 1_048_576), "scalar": (443.0, 64)},
}
"""Nanoseconds and bytes."""
TABLE_3 = {(4096, 1): (2.3, 0.9), (8192, 3): (12.6, 4.5), (16384, 8): (124.5, 30.0)}
TABLE_4 = {(8192, 3): (181.7, 71.1), (16384, 8): (966.6, 377.6)}
"""Microseconds, general and scalar."""
TABLE_9 = {
    "add": (16, 59, 237),
    "multiply_plain": (58, 234, 936),
    "decrypt": (54, 214, 883),
    "square": (105, 476, 2411),
    "multiply": (155, 709, 3482),
    "rescale": (440, 2224, 10_189),
    "encode": (1654, 4029, 10_989),
    "encrypt": (1514, 4808, 16_941),
    "relinearise": (936, 4636, 27_681),
    "decode": (2153, 7372, 30_175),
    "rotate": (1098, 5294, 30_338),
    "rotate_random": (4683, 25_270, 158_905),
}
"""Microseconds at the degrees of `chains.WIDE`."""
TABLE_7 = {
    "LoLa": (0.9895, 2.2, 0.5),
    "FHE-DiNN100": (0.9635, 1.65, 0.6),
    "CryptoNets": (0.9895, 250.0, 16.4),
    "Faster CryptoNets": (0.987, 39.1, 210.0),
    "nGraph-HE": (0.9895, 16.7, 245.0),
    "CryptoNets 3.2": (0.9895, 25.6, 320.0),
    "nGraph-HE2, 24 threads": (0.9895, 2.05, 1998.0),
}
"""Accuracy, seconds until the results are there, and images a second, without interaction."""
TABLE_7_INTERACTIVE = {
    "Chameleon": (0.99, 2.24, 1.0, 5.1e6),
    "MiniONN": (0.9895, 1.28, 2.4, 44e6),
    "Gazelle": (0.9895, 0.03, 33.3, 0.5e6),
    "nGraph-HE2-ReLU, 24 threads": (0.9862, 0.69, 2959.0, 0.03e6),
}
"""The same with interaction, and bytes an image."""

LAZY: dict[tuple[int, bool], tuple[float, float, str]] = {
    (1, False): (242.51, 59.21, "Table 5, a thread, rescaling after every multiplication of a layer too"),
    (1, True): (29.62, 7.23, "Table 5, a thread, lazy rescaling"),
    (2, True): (2.05, 0.50, "Table 5, 24 threads, lazy rescaling"),
}
"""Seconds of a batch of 4,096 images and milliseconds an image, by cores and whether rescaling is lazy."""


def bench_ngraph_he2(report: Report, quick: bool) -> None:
    """All tables, on one core and on two; a quick run on all cores alone."""
    available = _processes.available_cores()
    for count in core_counts(quick):
        with _processes.pinned(available[:count]):
            for (degree, primes), rows in TABLE_2.items():
                _table_2(report, _thirty_bits(degree, primes), rows, count, quick)
            for table, rows_of in ((3, TABLE_3), (4, TABLE_4)):
                for (degree, primes), times in rows_of.items():
                    _table_3_or_4(report, table, _thirty_bits(degree, primes), times, count, quick)
            for index, degree in list(enumerate(chains.WIDE))[: 1 if quick else None]:
                for chain in (chains.WIDE[degree], chains.NARROW[degree]):
                    _table_9(report, chain, index, count, quick)
    model = squares()
    for count in core_counts(quick):
        with _processes.pinned(available[:count]):
            latency = _table_5(report, model, count, quick)
            _tables_6_and_7(report, latency, count, quick)


# Operations.


def _thirty_bits(degree: int, primes: int) -> Chain:
    """Primes of 30 bits, as in the paper's Table 4; it does not say of which Tables 2 and 3 are. No key switching."""
    return Chain(degree, [30] * primes, [], 32)


def _sheet(report: Report, table: int, chain: Chain, made: _core.CkksBench, count: int, quick: bool) -> Sheet:
    parameters = chains.described(chain, made, timing.described(quick))
    case = f"table {table}, {chain}, {chains.secure(made)}, {_at_once(count)}"
    return Sheet(report, SUITE, case, parameters, made.security_bits)


def _at_once(count: int) -> str:
    return cores(count) if count == 1 else f"{cores(count)}, an operation each: time by operations"


def _run(made: _core.CkksBench, operation: str, threads: int) -> timing.Run:
    return partial(made.seconds, operation, threads=threads)


def _table_2(report: Report, chain: Chain, rows: dict[str, tuple[float, int]], count: int, quick: bool) -> None:
    made = chain.make()
    sheet = _sheet(report, 2, chain, made, count, quick)
    operations = ("encode_scalar_copied", "encode_scalar", "encode")
    general, scalar, vector = timing.best_of_each([_run(made, name, count) for name in operations], quick)
    source = "nGraph-HE2, Table 2"
    for name, seconds, bytes_taken in zip(rows, (general, scalar), made.plain_bytes, strict=True):
        paper_time, paper_bytes = rows[name]
        sheet.add(f"{name} encoding of a scalar", 1e9 * seconds, "ns", [(paper_time, source)], headline=int(count == 1))
        if count == 1:
            sheet.add(f"{name} encoding, memory", bytes_taken, "bytes", [(paper_bytes, source)])
    speedup = rows["general"][0] / rows["scalar"][0]
    sheet.add("speedup of scalar encoding", general / scalar, "times as fast", [(speedup, source)])
    sheet.add("encoding of a vector, with an FFT and transforms", 1e9 * vector, "ns")


def _table_3_or_4(
    report: Report, table: int, chain: Chain, times: tuple[float, float], count: int, quick: bool
) -> None:
    made = chain.make()
    sheet = _sheet(report, table, chain, made, count, quick)
    verb = "add" if table == 3 else "multiply"
    runs = [_run(made, f"{verb}_{kind}", count) for kind in ("plain", "scalar")]
    found = timing.best_of_each(runs, quick)
    source = f"nGraph-HE2, Table {table}"
    for kind, seconds, paper in zip(("general", "scalar"), found, times, strict=True):
        sheet.add(f"{verb} a plaintext, {kind}", 1e6 * seconds, "µs", [(paper, source)], headline=int(count == 1))
    sheet.add(f"speedup of scalar {verb}", found[0] / found[1], "times as fast", [(times[0] / times[1], source)])


def _table_9(report: Report, chain: Chain, index: int, count: int, quick: bool) -> None:
    made = chain.make()
    sheet = _sheet(report, 9, chain, made, count, quick)
    primes = (2, 4, 8)[index]
    bits = chains.SEAL_DEFAULTS[chain.degree].total
    source = f"nGraph-HE2, Table 9, SEAL 3.3, {primes} primes and 1 special, {bits} bits"
    for operation, times in TABLE_9.items():
        seconds = timing.best(_run(made, operation, count), quick)
        shown = count == 1 and chain.word_bits == 32 and index == (0 if quick else 1)
        sheet.add(operation.replace("_", " "), 1e6 * seconds, "µs", [(times[index], source)], headline=int(shown))


# CryptoNets.


def _table_5(report: Report, model: Model, count: int, quick: bool) -> float:
    """With and without lazy rescaling. The seconds of both parties with it."""
    seconds = {}
    every = zip((False, True), Batches.run(model, count, quick, (["lazy-rescaling"], [])), strict=True)
    for lazy, batches in every:
        seconds[lazy] = batches.seconds
        switched = "on" if lazy else "off: after each layer and each product"
        sizes = f"batches of {batches.images} images, the paper's of 4096"
        case = f"table 5, lazy rescaling {switched}, {cores(count)}, {sizes}"
        sheet = Sheet(report, SUITE, case, batches.parameters, batches.security_bits)
        rows = [LAZY[count, lazy]] if (count, lazy) in LAZY else []
        batches.add_to(sheet, [(total, what) for total, _, what in rows], [(each, what) for _, each, what in rows])
        if lazy:
            batches.add_speed(sheet, SERVER_SPEEDS[count])
    speedup = (242.51 / 29.62, "nGraph-HE2, Table 5, a thread")
    case = f"table 5, {cores(count)}"
    Sheet(report, SUITE, case, batches.parameters, batches.security_bits).add(
        "speedup of lazy rescaling, both parties",
        seconds[False] / seconds[True],
        "times as fast",
        [speedup],
        headline=1,
    )
    return seconds[True]


def _tables_6_and_7(report: Report, latency: float, count: int, quick: bool) -> None:
    """Test images through two processes, without and with interaction. `latency`: the former's for one batch."""
    last = int(count == core_counts()[-1])
    whole = two_processes(quick)
    sheet = whole.sheet(report, SUITE, f"table 7, squares, {TRUST}, {cores(count)}")
    for name, (_, seconds, speed) in TABLE_7.items():
        sheet.add("client and server after each other", latency, "s a batch", [(seconds, name)])
        sheet.add("client and server process", whole.speed, "images/s", [(speed, name)], headline=last)
    whole.add_accuracy(sheet, [(accuracy, name) for name, (accuracy, *_) in TABLE_7.items()])
    whole.add_sizes(sheet, [], [MEMORY_GOAL])

    count_of_images, repeats = (4096, 1) if quick else (COUNT, 2)
    relu = TwoProcesses.run(RELU, "client-aided", count_of_images, repeats)
    sheet = relu.sheet(report, SUITE, f"table 7, ReLU, client-aided, {cores(count)}")
    for name, (_, seconds, speed, _) in TABLE_7_INTERACTIVE.items():
        until = count_of_images / relu.speed
        sheet.add("client and server process", until, f"s for {count_of_images} images", [(seconds, name)])
        sheet.add("client and server process", relu.speed, "images/s", [(speed, name)], headline=last)
    relu.add_accuracy(sheet, [(accuracy, name) for name, (accuracy, *_) in TABLE_7_INTERACTIVE.items()])
    relu.add_sizes(sheet, [(size, name) for name, (*_, size) in TABLE_7_INTERACTIVE.items()], [])
    table_6(report, SUITE, relu, count, quick)
