"""Tables XII and XIII of Gazelle: whole networks, one image at a time, through two processes and networks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pronghorn import _network, _processes
from pronghorn._model import Floats, Stats
from pronghorn.errors import RunError
from pronghorn_bench import cases
from pronghorn_bench.cases import Case
from pronghorn_bench.predicted import ON_ONE_CORE, PLANNED_FOR, SOURCE, Predicted
from pronghorn_bench.records import RIVALS, Reference, Report, Sheet, cores, security_bits
from pronghorn_bench.shaper import LAN, WAN, Network, shaped

SUITE = "gazelle"
PAPER = "Gazelle (Juvekar, Vaikuntanathan, Chandrakasan, USENIX Security 2018)"
TRUST = "two-party"
ENGINES = ("coefficient", "slot")
IMAGES, QUICK_IMAGES = 1000, 8
"""For accuracy."""
TIMEOUT = 600.0


class Figures(NamedTuple):
    """A framework's, as far as it gives them: offline, online and in total."""

    seconds: tuple[float | None, float | None, float | None]
    megabytes: tuple[float | None, float | None, float | None]


@dataclass(frozen=True)
class Row:
    """A network of the tables. `goals`: of which phase, seconds and MB."""

    table: str
    network: str
    model: str | None
    """A file of the examples; none: MiniONN's network for CIFAR-10."""
    frameworks: dict[str, Figures]
    goals: tuple[str, float, float]

    def references(self, phase: str, unit: str, is_shaped: bool) -> list[Reference]:
        """What a figure is compared with; a figure of 0 leaves nothing to compare.

        Others than Gazelle, and goals, on loopback alone.
        """
        found = []
        for framework, figures in self.frameworks.items():
            value = (figures.seconds if unit == "s" else figures.megabytes)[PHASES.index(phase)]
            if value and (framework == "Gazelle" or not is_shaped):
                found.append((value, f"{PAPER}, Table {self.table}, {self.network}, {framework}"))
        which, seconds, megabytes = self.goals
        if which == phase and not is_shaped:
            found.append((seconds if unit == "s" else megabytes, "goal"))
        return found


OFFLINE, ONLINE, TOTAL = PHASES = ("offline", "online", "total")
AT_ONCE = "at once"
"""A run with nothing prepared; less than the total, which adds both phases."""
NONE = (None, None, None)

# The paper has the totals of MiniONN's megabytes of A and B in each other's place.
ROWS = (
    Row(
        "XII",
        "A",
        "gazelle_mnist_a.onnx",
        {
            "Gazelle": Figures((0, 0.03, 0.03), (0, 0.5, 0.5)),
            "MiniONN": Figures((0.9, 0.14, 1.04), (3.8, 12, 15.8)),
            "SecureML": Figures((4.7, 0.18, 4.88), NONE),
        },
        (ONLINE, 0.005, 0.15),
    ),
    Row(
        "XII",
        "B",
        "cryptonets_square.onnx",
        {
            "Gazelle": Figures((0, 0.03, 0.03), (0, 0.5, 0.5)),
            "MiniONN": Figures((0.88, 0.4, 1.28), (3.6, 44, 47.6)),
            "CryptoNets": Figures((None, None, 297.5), (None, None, 372.2)),
        },
        (ONLINE, 0.005, 0.15),
    ),
    Row(
        "XII",
        "C",
        "cryptonets_relu.onnx",
        {
            "Gazelle": Figures((0.15, 0.05, 0.20), (5.9, 2.1, 8.0)),
            "Chameleon": Figures((1.34, 1.36, 2.7), (7.8, 5.1, 12.9)),
            "DeepSecure": Figures((None, None, 9.67), (None, None, 791)),
        },
        (TOTAL, 0.02, 1.6),
    ),
    Row(
        "XII",
        "D",
        "gazelle_mnist_d.onnx",
        {
            "Gazelle": Figures((0.481, 0.33, 0.81), (47.5, 22.5, 70.0)),
            "MiniONN": Figures((3.58, 5.74, 9.32), (20.9, 636.6, 657.5)),
            "ExPC": Figures((None, None, 5.1), (None, None, 501)),
        },
        (TOTAL, 0.1, 14),
    ),
    Row(
        "XIII",
        "CIFAR-10",
        None,
        {
            "Gazelle": Figures((9.34, 3.56, 12.9), (940, 296, 1236)),
            "MiniONN": Figures((472, 72, 544), (3046, 6226, 9272)),
        },
        (TOTAL, 1.3, 250),
    ),
)
QUICK_ROWS = ("C",)
"""Networks of a quick run."""


def bench_gazelle_networks(report: Report, quick: bool) -> None:
    """All rows, engines and networks; raises where an output is not the oracle's."""
    for row in ROWS:
        if quick and row.network not in QUICK_ROWS:
            continue
        with _case(row, QUICK_IMAGES if quick else IMAGES) as case:
            for engine in ENGINES:
                _bench(row, case, engine, report, quick)


def _case(row: Row, most: int) -> AbstractContextManager[Case]:
    if row.model is None:
        return cases.cifar10(row.network, QUICK_IMAGES)
    return cases.mnist(row.network, row.model, most)


@dataclass(frozen=True)
class _Costs:
    """Of the client's phases of one image; what is negative for measurement's sake is zero."""

    seconds: float
    sent: float
    received: float

    @classmethod
    def of(cls, stats: Stats) -> _Costs:
        return cls(stats.seconds, stats.bytes_sent, stats.bytes_received)

    @classmethod
    def median(cls, every: list[_Costs]) -> _Costs:
        return cls(*(median(getattr(each, field.name) for each in every) for field in fields(cls)))

    def __add__(self, other: _Costs) -> _Costs:
        return _Costs(self.seconds + other.seconds, self.sent + other.sent, self.received + other.received)

    def beyond(self, other: _Costs) -> _Costs:
        """What this has more of."""
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return _Costs(*(max(0.0, mine - its) for mine, its in pairs))

    @property
    def megabytes(self) -> float:
        return (self.sent + self.received) / 1e6


class _Found(NamedTuple):
    """What was measured through one network: of an image, and once."""

    offline: _Costs
    online: _Costs
    at_once: _Costs
    processor_seconds: float | None
    """Of both parties, for an image at once."""
    connection: _Costs
    """Beyond an image's, the first image of a connection of a client that has been there before."""
    client: _Costs
    """Beyond that, the first image of a client."""


def _bench(row: Row, case: Case, engine: str, report: Report, quick: bool) -> None:
    """On each network, with the plan for it."""
    loopback: dict[str, _Found] = {}
    for network, images in _networks(row, quick):
        run = _Run(case, engine, PLANNED_FOR[network])
        options = ["--data", str(case.samples), "--engine", engine, "--idle-timeout", str(TIMEOUT)]
        options += ["--network", PLANNED_FOR[network]]
        with _processes.served(case.path, TRUST, options) as server:
            if run.plan.hash not in loopback:
                loopback[run.plan.hash] = run.measure(server.address, images, server.processor_seconds)
            beside = loopback[run.plan.hash]
            found = beside
            if network is not None:
                with shaped(server.address, network) as address:
                    found = run.measure(address, images, server.processor_seconds)
            name = "loopback" if network is None else str(network)
            title = f"table {row.table}, {row.network}, {engine}, {name}"
            parameters = {"model": case.path.name, "images": images, "plan_hash": run.plan.hash}
            described = f"{title}, {cores(len(_processes.available_cores()))}"
            sheet = Sheet(report, SUITE, described, parameters, security_bits(run.plan.details()))
            _report(sheet, row, found, network is not None)
            _compare(sheet, Predicted.of(run.plan), found, network, beside)
            if network is None and case.labels is not None:
                run.accuracy(server.address, case.labels, sheet)


def _networks(row: Row, quick: bool) -> list[tuple[Network | None, int]]:
    """With images to run after the first; none: loopback."""
    if quick:
        return [(None, 2), (WAN, 1)]
    if row.model is None:
        return [(None, 3), (LAN, 3), (WAN, 1)]
    return [(None, 15), (LAN, 7), (WAN, 5)]


class _Run:
    """The client, in this process; checks every output."""

    def __init__(self, case: Case, engine: str, network: str) -> None:
        self._case = case
        self.plan = case.model.plan(TRUST, engine=engine, network=network)
        compiled = case.model.compiled(TRUST, engine=engine, network=network)
        self._wanted = compiled.run_oracle(case.images, None)[1]

    def measure(self, address: str, images: int, processor: Callable[[], float | None]) -> _Found:
        """Three connections: of a new client, of one that was there, and of one that keeps nothing on disk."""
        with tempfile.TemporaryDirectory(prefix="pronghorn-") as store:
            news = []
            for _ in range(2):
                with self._connect(address, Path(store)) as client:
                    news.append(self._predict(client, 0))
        later = range(1, images + 1)
        with self._connect(address, None) as client:
            self._predict(client, 0)
            before, started = processor(), _own_seconds()
            at_once = [self._predict(client, image) for image in later]
            after, ended = processor(), _own_seconds()
            pairs = [(_Costs.of(client.prepare(1)), self._predict(client, image, prepared=True)) for image in later]
        together = None if before is None or after is None else (after - before + ended - started) / images
        usual = _Costs.median(at_once)
        return _Found(
            offline=_Costs.median([offline for offline, _ in pairs]),
            online=_Costs.median([online for _, online in pairs]),
            at_once=usual,
            processor_seconds=together,
            connection=news[1].beyond(usual),
            client=news[0].beyond(news[1]),
        )

    def accuracy(self, address: str, labels: npt.NDArray[np.int64], sheet: Sheet) -> None:
        """Of all images in one batch, or as few as the plan allows."""
        model, images = self._case.model, self._case.images
        with self._connect(address, None) as client:
            outputs = self._outputs(client, 0, len(images))
        found, floats = (
            float(np.mean(model.classes(each) == labels[: len(images)])) for each in (outputs, model.run_float(images))
        )
        source = "the float model on the same images, here"
        sheet.add(f"accuracy, {len(images)} images", found, "share", [(floats, source)])

    def _connect(self, address: str, store: Path | None) -> _network.Client:
        return _network.connect(address, TRUST, plan_hash=self.plan.hash, timeout=TIMEOUT, store=store)

    def _predict(self, client: _network.Client, image: int, *, prepared: bool = False) -> _Costs:
        self._outputs(client, image, 1)
        stats = client.last_stats
        assert stats is not None
        if stats.prepared_batches != int(prepared):
            raise RunError(f"{stats.prepared_batches} prepared batches were used where {int(prepared)} was meant to be")
        return _Costs.of(stats)

    def _outputs(self, client: _network.Client, first: int, count: int) -> Floats:
        outputs = client.predict(self._case.images[first : first + count])
        if not np.array_equal(outputs, self._wanted[first : first + count].reshape(outputs.shape)):
            raise RunError(f"outputs of {self._case.path.name} are not the oracle's")
        return outputs


def _own_seconds() -> float:
    """Processor time of this process."""
    return sum(os.times()[:2])


def _report(sheet: Sheet, row: Row, found: _Found, is_shaped: bool) -> None:
    """Records of all; printed are online, total and at once on loopback, and the total's time through networks."""
    phases = {OFFLINE: found.offline, ONLINE: found.online, TOTAL: found.offline + found.online}
    for phase, costs in phases.items():
        printed = int(phase == TOTAL or (phase == ONLINE and not is_shaped))
        rivals = RIVALS if phase == TOTAL and not is_shaped else printed
        sheet.add(phase, costs.seconds, "s", row.references(phase, "s", is_shaped), headline=rivals)
        sizes = row.references(phase, "MB", is_shaped)
        sheet.add(phase, costs.megabytes, "MB", sizes, headline=printed * int(not is_shaped))
    for value, unit in ((found.at_once.seconds, "s"), (found.at_once.megabytes, "MB")):
        sheet.add(AT_ONCE, value, unit, row.references(TOTAL, unit, is_shaped), headline=int(not is_shaped))
    # The client's key for OTs, and what of the engine each connection needs.
    sheet.add("once a connection", found.connection.seconds, "s")
    sheet.add("once a connection", found.connection.megabytes, "MB")
    # Published polynomials, or keys for rotations.
    sheet.add("once a client and model", found.client.seconds, "s")
    sheet.add("once a client and model", found.client.megabytes, "MB")


def _compare(sheet: Sheet, predicted: Predicted, found: _Found, network: Network | None, beside: _Found | None) -> None:
    """What was measured, beside what the plan says of an image whose phases run at once."""
    costs = found.at_once
    sheet.add("traffic at once, beside the plan's", costs.sent + costs.received, "bytes", [(predicted.bytes, SOURCE)])
    seconds = predicted.seconds_through(network)
    sheet.add("time at once, beside the plan's", costs.seconds, "s", [(seconds, ON_ONE_CORE)])
    if network is None:
        sheet.add(
            "once a client and model, beside the plan's",
            1e6 * found.client.megabytes,
            "bytes",
            [(predicted.once, SOURCE)],
        )
        if found.processor_seconds is not None:
            own = "processor time at once, beside the plan's"
            sheet.add(own, found.processor_seconds, "s", [(predicted.seconds, ON_ONE_CORE)])
        return
    transfer = network.transfer_seconds(costs.sent + costs.received)
    # Where bytes take longer than the delay, computing goes on behind them.
    if beside is not None and transfer < predicted.rounds * network.round_trip:
        trips = max(0.0, (costs.seconds - beside.at_once.seconds - transfer) / network.round_trip)
        sheet.add("round trips that the delay at once makes", trips, "round trips", [(predicted.rounds, SOURCE)])
