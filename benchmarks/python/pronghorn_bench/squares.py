"""CryptoNets with squares, under encryption as a whole, and `pronghorn bench cryptonets-square`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pronghorn import _processes
from pronghorn._demo import example
from pronghorn._model import Model, load
from pronghorn_bench import _core
from pronghorn_bench.compiled import compile_in_core
from pronghorn_bench.cryptonets import COUNT, SQUARE, TwoProcesses, images
from pronghorn_bench.records import Reference, Report, Sheet, core_counts, cores, security_bits

SUITE = "cryptonets-square"
TRUST = "encrypted"
SAMPLES = 256

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
"""By cores."""
PAPER_ACCURACY = (0.9895, "nGraph-HE2")
MEMORY_GOAL = (1e9, "goal: at most")


def squares() -> Model:
    """The model, with the first test images as samples."""
    return load(example(SQUARE), samples=images()[0][:SAMPLES])


@dataclass(frozen=True)
class Batches:
    """Full batches, both parties in this process and in turn, with a clock for each."""

    images: int
    """Of a batch."""
    server: float
    """Seconds of the fastest batch after a first; so for the client."""
    client: float
    first_client: float
    """Of the first batch of a connection, for which it makes its keys."""
    bytes_up: float
    """Of a batch after the first."""
    bytes_down: float
    parameters: dict[str, Any]
    security_bits: int | None

    @classmethod
    def run(cls, model: Model, threads: int, quick: bool, variants: Sequence[Sequence[str]] = ((),)) -> list[Batches]:
        """A first batch and others on each of some connections; the variants, passes to leave out, in turn."""
        compiled = [compile_in_core(model, TRUST, without=without) for without in variants]
        rounds, steady = (1, 1) if quick else (2, 2)
        found: list[list[list[dict[str, float]]]] = [[] for _ in variants]
        for _ in range(rounds):
            for each, costs in zip(compiled, found, strict=True):
                inputs = np.resize(images()[0], ((1 + steady) * _batch(each), *model.input_shape))
                costs.append(_core.bench_parties(each, inputs, threads)[0])
        timed = f"least of {rounds * steady} batches, {steady} after a first one on each of {rounds} connections"
        return [cls._of(*each, timed) for each in zip(compiled, found, variants, strict=True)]

    @classmethod
    def _of(
        cls, compiled: _core.Compiled, rounds: list[list[dict[str, float]]], without: Sequence[str], timed: str
    ) -> Batches:
        steady = [cost for _, *rest in rounds for cost in rest]
        return cls(
            images=_batch(compiled),
            server=min(cost["server_seconds"] for cost in steady),
            client=min(cost["client_seconds"] for cost in steady),
            first_client=min(first["client_seconds"] for first, *_ in rounds),
            bytes_up=steady[0]["bytes_up"],
            bytes_down=steady[0]["bytes_down"],
            parameters={
                "images": _batch(compiled),
                "without": list(without),
                "plan": json.loads(compiled.plan_json()),
                "timing": timed,
            },
            security_bits=security_bits(compiled.plan_text(True)),
        )

    @property
    def seconds(self) -> float:
        """Of both parties, one after the other."""
        return self.server + self.client

    def add_to(self, sheet: Sheet, server: list[Reference], amortised: list[Reference]) -> None:
        """Seconds and bytes; what to compare the server's seconds a batch and milliseconds an image with."""
        sheet.add("server", self.server, "s a batch", server)
        sheet.add("server, amortised", 1e3 * self.server / self.images, "ms an image", amortised)
        sheet.add("client", self.client, "s a batch")
        sheet.add("client with its keys, first batch", self.first_client, "s a batch")
        sheet.add("bytes up", self.bytes_up, "bytes a batch")
        sheet.add("bytes down", self.bytes_down, "bytes a batch")

    def add_speed(self, sheet: Sheet, references: list[Reference]) -> None:
        """Images a second of each party by itself."""
        sheet.add("server", self.images / self.server, "images/s", references, headline=1)
        sheet.add("client", self.images / self.client, "images/s", headline=1)


def _batch(compiled: _core.Compiled) -> int:
    """Images of a full batch."""
    return int(json.loads(compiled.plan_json())["max_batch"])


def bench_cryptonets_square(report: Report, quick: bool) -> None:
    """Each party's seconds a batch in this process, and all test images through two; on one core and on two."""
    available, model = _processes.available_cores(), squares()
    for count in core_counts(quick):
        with _processes.pinned(available[:count]):
            (batches,) = Batches.run(model, count, quick)
            whole = two_processes(quick)
        case = f"both parties in a process, {cores(count)}"
        sheet = Sheet(report, SUITE, case, batches.parameters, batches.security_bits)
        batches.add_to(sheet, [], [])
        batches.add_speed(sheet, SERVER_SPEEDS[count])
        sheet = whole.sheet(report, SUITE, f"two processes, {cores(count)} together")
        whole.add_speed(sheet, [])
        whole.add_sizes(sheet, [], [MEMORY_GOAL])
        whole.add_accuracy(sheet, [PAPER_ACCURACY])


def two_processes(quick: bool) -> TwoProcesses:
    """All test images; a batch of them where it is to be quick."""
    return TwoProcesses.run(SQUARE, TRUST, *((4096, 1) if quick else (COUNT, 2)))
