"""`pronghorn bench gazelle`: Tables V to XIII of Gazelle, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from pronghorn import _processes
from pronghorn_bench import _core, timing
from pronghorn_bench.activations import bench_functions
from pronghorn_bench.gazelle_networks import bench_gazelle_networks
from pronghorn_bench.records import RIVALS, Reference, Report, Sheet, cores

SUITE = "gazelle"
PAPER = "Gazelle (Juvekar, Vaikuntanathan, Chandrakasan, USENIX Security 2018)"
INSECURE = "the paper's N = 2048 with a prime of 60 bits, which protects nothing today"
SECURE = "N = 4096, primes of 50 and 50 bits"

TABLE_5 = {("q", False): 57, ("q", True): 54, ("p", False): 43, ("p", True): 38}
"""Microseconds of a transform and its inverse, modulo the ciphertexts' prime and the plaintexts'."""

TABLE_6 = {
    "key generation": 232,
    "encrypt": 186,
    "decrypt": 125,
    "add": 5,
    "multiply": 10,
    "rotation key": 466,
    "rotate": 268,
}
RAISED, HOISTED = 231, 35
"""Of a rotation: what is done once for several of one ciphertext, and the rest of each."""
MANY = 16
"""Rotations that the latter is measured of."""

TABLE_7 = {3: (466, 49.15, 35, 29.3), 6: (925, 98.30, 57, 19.3), 12: (1849, 196.61, 100, 14.8)}
"""By windows: microseconds of a key, its kB, microseconds of a hoisted rotation, bits of noise."""
WINDOWS = {False: {3: 25, 6: 17, 12: 9}, True: {3: 20, 6: 10, 12: 5}}
"""Bits of a window that make so many: of 60 bits, and of twice 50 (4 in place of 3)."""

# (inputs, outputs): method: milliseconds online and of the set-up.
TABLE_8 = {
    (2048, 1): {"naive": (7.9, 16.1), "diagonal": (383.3, 3326.8), "hybrid": (8.0, 16.2)},
    (1024, 128): {"naive": (880.0, 1849.2), "diagonal": (192.4, 1662.8), "hybrid": (16.2, 108.5)},
    (1024, 16): {"naive": (110.3, 231.4), "diagonal": (192.4, 1662.8), "hybrid": (7.8, 21.8)},
    (128, 16): {"naive": (77.4, 162.5), "diagonal": (25.4, 206.8), "hybrid": (5.3, 10.5)},
}
TABLE_9 = {(2048, 1): (3.6, 5.7), (1024, 128): (14.2, 87.2), (1024, 16): (7.8, 21.5), (128, 16): (2.5, 3.7)}
"""The hybrid method with windows made to measure; here the choice of method and parameters is."""

BITS = 20
"""Of plaintexts, as in the paper."""
GOAL = 10
"""How many times less of time than Tables VIII and X."""
ROUNDS = 20
QUICK_ROUNDS = 3


@dataclass(frozen=True)
class Conv:
    """A convolution that keeps the size of its input, but for its stride."""

    size: int
    inputs: int
    kernel: int
    outputs: int
    stride: int = 1

    def __str__(self) -> str:
        """As the paper writes it."""
        stride = "" if self.stride == 1 else f", stride {self.stride}"
        size, kernel = self.size, self.kernel
        return f"({size}x{size}, {self.inputs}) by ({kernel}x{kernel}, {self.outputs}){stride}"

    def run(self, method: str, rounds: int) -> dict[str, Any]:
        """On one thread."""
        pad = self.kernel // 2
        return _core.bench_slot_layer(
            (self.inputs, self.outputs),
            (self.size, self.size),
            (self.kernel, self.kernel),
            (self.stride, self.stride),
            (pad, pad, pad, pad),
            method,
            BITS,
            rounds,
            1,
        )


TABLE_10: dict[Conv, dict[str, tuple[float, float]]] = {
    Conv(28, 1, 5, 5, 2): {"input rotations": (14.4, 11.7), "output rotations": (9.2, 11.4)},
    Conv(16, 128, 1, 128): {"input rotations": (107, 334), "output rotations": (110, 226)},
    Conv(32, 32, 3, 32): {"input rotations": (208, 704), "output rotations": (195, 704)},
    Conv(16, 128, 3, 128): {"input rotations": (767, 3202), "output rotations": (704, 3312)},
}


def bench_gazelle(report: Report, quick: bool, insecure: bool = False) -> None:
    """Tables V to XI on one core, XII and XIII on all.

    `insecure`: V to VII with the paper's parameters too, which are not secure.
    """
    with _processes.pinned(_processes.available_cores()[:1]):
        for paper_parameters in (False, True) if insecure else (False,):
            _table_5(report, paper_parameters, quick)
            _table_6(report, paper_parameters, quick)
            _table_7(report, paper_parameters, quick)
        for sizes, rows in TABLE_8.items():
            _matrix(report, sizes, rows, quick)
        for conv, methods in TABLE_10.items():
            _convolution(report, conv, methods, quick)
        bench_functions(report, SUITE, 1, quick)
    bench_gazelle_networks(report, quick)


def _sheet(report: Report, table: str, case: str, insecure: bool, bits: int | None, quick: bool) -> Sheet:
    name = INSECURE if insecure else SECURE
    parameters = {"parameters": name, "t": f"{BITS} bits", "timing": timing.described(quick)}
    return Sheet(report, SUITE, f"table {table}, {case}{name}, {cores(1)}", parameters, bits)


def _source(table: str, row: str = "") -> str:
    return f"{PAPER}, Table {table}{row and ', '}{row}"


def _table_5(report: Report, insecure: bool, quick: bool) -> None:
    degree, bits = (2048, 60) if insecure else (4096, 50)
    made = {"q": _core.NttBench(64, degree, bits), "p": _core.NttBench(64, degree, BITS)}
    security = None if insecure else made["q"].security_bits
    sheet = _sheet(report, "V", "", insecure, security, quick)
    for (name, inverse), paper in TABLE_5.items():
        seconds = timing.best(partial(made[name].seconds, inverse), quick)
        metric = f"{'inverse NTT' if inverse else 'NTT'} ({name}, {bits if name == 'q' else BITS} bits)"
        sheet.add(metric, 1e6 * seconds, "µs", [(paper, _source("V"))], headline=1)


def _operation(made: _core.SlotBench, name: str, quick: bool) -> float:
    """Microseconds."""
    return 1e6 * timing.best(partial(made.seconds, name), quick)


def _rotation(made: _core.SlotBench, quick: bool) -> tuple[float, float]:
    """Microseconds of a rotation, and of one more of the same ciphertext."""
    one, many = (_operation(made, name, quick) for name in ("rotate", "rotate many"))
    return one, (many - one) / MANY


def _table_6(report: Report, insecure: bool, quick: bool) -> None:
    made = _core.SlotBench(insecure, WINDOWS[insecure][3])
    sheet = _sheet(report, "VI", "", insecure, made.security_bits, quick)
    for name, paper in TABLE_6.items():
        sheet.add(name, _operation(made, name, quick), "µs", [(paper, _source("VI"))], headline=1)
    one, more = _rotation(made, quick)
    # What else runs may hit either.
    sheet.add(
        "rotate, raised once for several",
        max(0.0, one - more),
        "µs",
        [(RAISED, _source("VI", "PermDecomp"))],
        headline=1,
    )
    sheet.add("rotate, each of several", more, "µs", [(HOISTED, _source("VI", "PermAuto"))], headline=1)


def _table_7(report: Report, insecure: bool, quick: bool) -> None:
    for windows, (key, size, hoisted, noise) in TABLE_7.items():
        bits = WINDOWS[insecure][windows]
        made = _core.SlotBench(insecure, bits)
        sheet = _sheet(report, "VII", f"windows of {bits} bits, ", insecure, made.security_bits, quick)
        source = _source("VII", f"{windows} windows")
        sheet.add("rotation key", _operation(made, "rotation key", quick), "µs", [(key, source)], headline=1)
        sheet.add("rotation key, half of it from a seed", made.key_bytes / 1e3, "kB", [(size, source)])
        sheet.add("rotate, each of several", _rotation(made, quick)[1], "µs", [(hoisted, source)], headline=1)
        sheet.add("noise of a rotation", made.log_noise, "bits", [(noise, source)])


def _layer(report: Report, case: str, found: dict[str, Any], online: list[Reference], setup: list[Reference]) -> None:
    """The paper's times are the server's, of products and rotations."""
    parameters = {"described": found["described"], "predicted_ms": 1e3 * found["predicted"]}
    sheet = Sheet(report, SUITE, f"{case}, {cores(1)}", parameters, found["security_bits"])
    sheet.add(
        "online: products and rotations",
        1e3 * found["evaluate"],
        "ms",
        online,
        headline=RIVALS if "chosen" in case else 0,
    )
    sheet.add("set-up of weights", 1e3 * found["setup"], "ms", setup)
    server = found["expand"] + found["evaluate"] + found["hide"]
    sheet.add("server, with seeds, masks and floods", 1e3 * server, "ms")
    sheet.add("client, encryption and decryption", 1e3 * (found["encrypt"] + found["decrypt"]), "ms")
    sheet.add("traffic", (found["up"] + found["down"]) / 1e3, "kB")
    sheet.add("keys, once", found["keys"] / 1e3, "kB")
    counts = ("input rotations", "output rotations", "products")
    for name in counts:
        sheet.add(name, found[name], "")


def _matrix(report: Report, sizes: tuple[int, int], rows: dict[str, tuple[float, float]], quick: bool) -> None:
    inputs, outputs = sizes
    layer = Conv(1, inputs, 1, outputs)
    case = f"{inputs} x {outputs}"
    for method, (online, setup) in _measured(rows, "hybrid", quick):
        found = layer.run(method, QUICK_ROUNDS)
        source = _source("VIII", method)
        _layer(report, f"table VIII, {case}, {method}", found, [(online, source)], [(setup, source)])
    found = layer.run("chosen", QUICK_ROUNDS if quick else ROUNDS)
    best, setup = rows["hybrid"]
    sized, sized_setup = TABLE_9[sizes]
    nine = _source("IX")
    online_references = [*_goal(best, "VIII", "hybrid"), (sized, nine)]
    setup_references = [(setup, _source("VIII", "hybrid")), (sized_setup, nine)]
    _layer(report, f"tables VIII and IX, {case}, chosen", found, online_references, setup_references)


def _convolution(report: Report, conv: Conv, rows: dict[str, tuple[float, float]], quick: bool) -> None:
    for method, (online, setup) in _measured(rows, "output rotations", quick):
        source = _source("X", method)
        found = conv.run(method, QUICK_ROUNDS)
        _layer(report, f"table X, {conv}, {method}", found, [(online, source)], [(setup, source)])
    found = conv.run("chosen", QUICK_ROUNDS if quick else ROUNDS)
    method, (online, setup) = min(rows.items(), key=lambda row: row[1][0])
    _layer(report, f"table X, {conv}, chosen", found, _goal(online, "X", method), [(setup, _source("X", method))])


def _measured(
    rows: dict[str, tuple[float, float]], quickest: str, quick: bool
) -> list[tuple[str, tuple[float, float]]]:
    return [(method, times) for method, times in rows.items() if not quick or method == quickest]


def _goal(paper: float, table: str, row: str) -> list[Reference]:
    return [(paper, _source(table, row)), (paper / GOAL, f"goal: {GOAL} times less than that")]
