"""`pronghorn bench ngraph-he2`: Tables 2 to 7 and 9 of nGraph-HE2, row by row."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from pronghorn import _native, _processes
from pronghorn._bench import chains, timing
from pronghorn._bench.chains import Chain
from pronghorn._bench.cryptonets import IMAGES, TwoProcesses
from pronghorn._bench.packing import table_6
from pronghorn._bench.records import Reference, Report, Sheet, core_counts, cores, security_bits
from pronghorn._data import Preprocessing, load_images
from pronghorn._demo import example
from pronghorn._model import Model, load

SUITE = "ngraph-he2"
TRUST = "encrypted"

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
    "LoLa": (2.2, 0.5),
    "FHE-DiNN100": (1.65, 0.6),
    "CryptoNets": (250.0, 16.4),
    "Faster CryptoNets": (39.1, 210.0),
    "nGraph-HE": (16.7, 245.0),
    "CryptoNets 3.2": (25.6, 320.0),
    "nGraph-HE2, 24 threads": (2.05, 1998.0),
}
"""Seconds until the results are there, and images a second, without interaction."""
TABLE_7_INTERACTIVE = {
    "Chameleon": (2.24, 1.0, 5.1e6),
    "MiniONN": (1.28, 2.4, 44e6),
    "Gazelle": (0.03, 33.3, 0.5e6),
    "nGraph-HE2-ReLU, 24 threads": (0.69, 2959.0, 0.03e6),
}
"""The same with interaction, and bytes an image."""

LAZY = {
    (1, False): (242.51, "Table 5, a thread, rescaling after every multiplication of a layer too"),
    (1, True): (29.62, "Table 5, a thread, lazy rescaling"),
    (2, True): (2.05, "Table 5, 24 threads, lazy rescaling"),
}
"""Seconds of a batch of 4,096 images, by cores and whether rescaling is lazy."""
SERVER_SPEEDS: dict[int, list[Reference]] = {
    1: [
        (138.0, "nGraph-HE2, a thread"),
        (882.0, "SEAL 4.4 + HEXL on one core of another machine (Zen 5)"),
        (8800.0, "goal"),
    ],
    2: [
        (1998.0, "nGraph-HE2, 24 threads"),
        (4096 / 2.43, "SEAL 4.4 + HEXL on two cores of another machine (Zen 5)"),
        (2 * 8800.0, "goal: 8,800 a core"),
    ],
}
FLOAT_ACCURACY = (0.9922, "the float model by onnxruntime on the same images")
PAPER_ACCURACY = (0.9895, "nGraph-HE2")
MEMORY_GOAL = (1e9, "goal: at most")

SAMPLES = 256


def bench_ngraph_he2(report: Report, quick: bool) -> None:
    """All tables, on one core and on two."""
    available = _processes.available_cores()
    for count in core_counts():
        with _processes.pinned(available[:count]):
            for (degree, primes), rows in TABLE_2.items():
                _table_2(report, _thirty_bits(degree, primes), rows, count, quick)
            for table, rows_of in ((3, TABLE_3), (4, TABLE_4)):
                for (degree, primes), times in rows_of.items():
                    _table_3_or_4(report, table, _thirty_bits(degree, primes), times, count, quick)
            for index, degree in enumerate(chains.WIDE):
                for chain in (chains.WIDE[degree], chains.NARROW[degree]):
                    _table_9(report, chain, index, count, quick)
                if quick:
                    break
    model = _model()
    for count in core_counts():
        with _processes.pinned(available[:count]):
            latency = _table_5(report, model, count, quick)
            _tables_6_and_7(report, latency, count, quick)


# Operations.


def _thirty_bits(degree: int, primes: int) -> Chain:
    """Primes of 30 bits, as in the paper's Table 4; it does not say of which Tables 2 and 3 are. No key switching."""
    return Chain(degree, [30] * primes, [], 32)


def _sheet(report: Report, table: int, chain: Chain, made: _native.CkksBench, count: int, quick: bool) -> Sheet:
    parameters = chains.described(chain, made, timing.described(quick))
    case = f"table {table}, {chain}, {chains.secure(made)}, {_at_once(count)}"
    return Sheet(report, SUITE, case, parameters, made.security_bits)


def _at_once(count: int) -> str:
    return cores(count) if count == 1 else f"{cores(count)}, an operation each: time by operations"


def _run(made: _native.CkksBench, operation: str, threads: int) -> Callable[[int], float]:
    return lambda iterations: made.seconds(operation, iterations, threads)


def _table_2(report: Report, chain: Chain, rows: dict[str, tuple[float, int]], count: int, quick: bool) -> None:
    made = chain.make()
    sheet = _sheet(report, 2, chain, made, count, quick)
    operations = ("encode_scalar_copied", "encode_scalar", "encode")
    general, scalar, vector = timing.best_of_each([_run(made, name, count) for name in operations], quick)
    source = "nGraph-HE2, Table 2"
    for name, seconds, bytes_taken in zip(rows, (general, scalar), made.plain_bytes, strict=True):
        paper_time, paper_bytes = rows[name]
        sheet.add(f"{name} encoding of a scalar", 1e9 * seconds, "ns", [(paper_time, source)])
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
        sheet.add(f"{verb} a plaintext, {kind}", 1e6 * seconds, "µs", [(paper, source)])
    sheet.add(f"speedup of scalar {verb}", found[0] / found[1], "times as fast", [(times[0] / times[1], source)])


def _table_9(report: Report, chain: Chain, index: int, count: int, quick: bool) -> None:
    made = chain.make()
    sheet = _sheet(report, 9, chain, made, count, quick)
    primes = (2, 4, 8)[index]
    bits = chains.SEAL_DEFAULTS[chain.degree].total
    source = f"nGraph-HE2, Table 9, SEAL 3.3, {primes} primes and 1 special, {bits} bits"
    for operation, times in TABLE_9.items():
        seconds = timing.best(_run(made, operation, count), quick)
        sheet.add(operation.replace("_", " "), 1e6 * seconds, "µs", [(times[index], source)])


# CryptoNets.


def _images(model: Model) -> np.ndarray[Any, np.dtype[np.float32]]:
    return load_images(example("t10k-images-idx3-ubyte.gz"), model.input_shape, Preprocessing()).images


def _model() -> Model:
    bare = load(example("cryptonets_square.onnx"))
    return bare.calibrated(_images(bare)[:SAMPLES])


def _compiled(model: Model, lazy_rescaling: bool) -> _native.Compiled:
    """Beneath `Model.compiled`, which has no switch for passes."""
    options = (TRUST, model._samples, model._input_range, None, *model._bits)
    return model._native.compile(*options, lazy_rescaling=lazy_rescaling)


def _table_5(report: Report, model: Model, count: int, quick: bool) -> float:
    """Both parties in this process, with and without lazy rescaling. The seconds of both together with it."""
    seconds = {}
    for lazy in (False, True):
        compiled = _compiled(model, lazy)
        plan = json.loads(compiled.plan_json())
        batch, repeats = plan["max_batch"], 1 if quick else 3
        images = np.resize(_images(model), ((repeats + 1) * batch, *model.input_shape))
        costs, _ = _native.bench_parties(compiled, images, count)
        first, *steady = costs
        server, client = (min(cost[f"{party}_seconds"] for cost in steady) for party in ("server", "client"))
        seconds[lazy] = server + client
        parameters = {"images": batch, "plan": plan, "timing": f"least of {repeats} batches, after a first one"}
        case = f"table 5, lazy rescaling {'on' if lazy else 'off: after each layer and each product'}, {cores(count)}"
        sheet = Sheet(report, SUITE, case, parameters, security_bits(compiled.plan_text()))
        sheet.add("server", server, "s a batch", [LAZY[count, lazy]] if (count, lazy) in LAZY else [])
        sheet.add("client", client, "s a batch")
        sheet.add("server, amortised", 1e3 * server / batch, "ms an image")
        sheet.add("client with its keys, first batch", first["client_seconds"], "s")
        sheet.add("bytes up", steady[0]["bytes_up"], "bytes a batch")
        sheet.add("bytes down", steady[0]["bytes_down"], "bytes a batch")
        if lazy:
            sheet.add("server", batch / server, "images/s", SERVER_SPEEDS[count])
            sheet.add("client", batch / client, "images/s")
    speedup = (242.51 / 29.62, "nGraph-HE2, Table 5, a thread")
    case = f"table 5, {cores(count)}"
    Sheet(report, SUITE, case, None, None).add(
        "speedup of lazy rescaling, both parties", seconds[False] / seconds[True], "times as fast", [speedup]
    )
    return seconds[True]


def _tables_6_and_7(report: Report, latency: float, count: int, quick: bool) -> None:
    """All test images through two processes, without and with interaction. `latency`: the former's for one batch."""
    images, repeats = (4096, 1) if quick else (IMAGES, 2)
    squares = TwoProcesses.run("cryptonets_square.onnx", TRUST, images, repeats)
    sheet = squares.sheet(report, SUITE, f"table 7, squares, {TRUST}, {cores(count)}")
    for name, (seconds, speed) in TABLE_7.items():
        sheet.add("client and server after each other", latency, "s a batch", [(seconds, name)])
        sheet.add("client and server process", squares.speed, "images/s", [(speed, name)])
    accuracies = [PAPER_ACCURACY, FLOAT_ACCURACY] if images == IMAGES else []
    sheet.add("accuracy", squares.accuracy, "share", accuracies)
    sheet.add("bytes an image", squares.bytes_an_image, "bytes")
    sheet.add("bytes of keys", squares.first["bytes_sent"] - squares.steady[0]["bytes_sent"], "bytes a connection")
    sheet.add("peak memory, server", squares.server_memory, "bytes", [MEMORY_GOAL])
    sheet.add("peak memory, client", squares.client_memory, "bytes", [MEMORY_GOAL])

    relu = TwoProcesses.run("cryptonets_relu.onnx", "client-aided", images, repeats)
    sheet = relu.sheet(report, SUITE, f"table 7, ReLU, client-aided, {cores(count)}")
    for name, (seconds, speed, bytes_an_image) in TABLE_7_INTERACTIVE.items():
        sheet.add("client and server process", images / relu.speed, f"s for {images} images", [(seconds, name)])
        sheet.add("client and server process", relu.speed, "images/s", [(speed, name)])
        sheet.add("bytes an image", relu.bytes_an_image, "bytes", [(bytes_an_image, name)])
    table_6(report, SUITE, relu, count)
