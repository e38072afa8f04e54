"""`pronghorn bench channels`: TLS beside plain TCP on loopback, in turn, with two servers that run at once."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pronghorn import _processes, _tls
from pronghorn._demo import example
from pronghorn.errors import RunError
from pronghorn_bench.cryptonets import COUNT, IMAGES, RELU
from pronghorn_bench.records import Report, Sheet, cores

ROUNDS = 5
PLAIN = "plain TCP"
TLS = "TLS 1.3, client with a certificate"


@dataclass(frozen=True)
class _Case:
    """A model's prediction, again and again over one connection."""

    name: str
    trust: str
    images: int
    repeats: int
    figure: tuple[str, str]
    """What is measured, and its unit."""
    of_seconds: Callable[[float, int], float]
    """The figure of a run."""


def bench_channels(report: Report, quick: bool) -> None:
    """Throughput of CryptoNets under `client-aided`, and latency of an image under `two-party`."""
    rounds = 1 if quick else ROUNDS
    cases = (
        _Case(
            "CryptoNets with ReLU, client-aided",
            "client-aided",
            4096 if quick else COUNT,
            3,
            ("throughput", "images/s"),
            lambda seconds, images: images / seconds,
        ),
        _Case(
            "network C, two-party, an image",
            "two-party",
            1,
            10 if quick else 40,
            ("latency", "ms"),
            lambda seconds, _: 1e3 * seconds,
        ),
    )
    for case in cases:
        _bench(case, rounds, report)


def _bench(case: _Case, rounds: int, report: Report) -> None:
    runs: dict[str, list[dict[str, Any]]] = {PLAIN: [], TLS: []}
    hashes: set[str] = set()
    model, data = example(RELU), example(IMAGES)
    with tempfile.TemporaryDirectory(prefix="pronghorn-") as folder, ExitStack() as stack:
        keys = Path(folder) / "keys"
        _tls.make_keys(keys, clients=["client"])
        options = {PLAIN: ([], []), TLS: (["--tls", str(keys / "server")], ["--tls", str(keys / "clients/client")])}
        addresses = {
            name: stack.enter_context(_processes.served(model, case.trust, ["--data", str(data), *theirs])).address
            for name, (theirs, _) in options.items()
        }
        wanted = ["--limit", str(case.images), "--repeat", str(case.repeats + 1), "--with-plan"]
        for _ in range(rounds):
            for name, (_, ours) in options.items():
                found = _processes.predict(addresses[name], case.trust, data, [*wanted, *ours])
                # The first sets up the connection.
                runs[name] += found["runs"][1:]
                hashes.add(found["plan_hash"])
                bits = found["security_bits"]
    if len(hashes) != 1:
        raise RunError("the two servers' plans differ: their figures cannot be compared")
    parameters = {"images": case.images, "repeats": rounds * case.repeats, "plan_hash": hashes.pop()}
    sheet = Sheet(report, "channels", f"{case.name}, {cores(len(_processes.available_cores()))}", parameters, bits)
    figures = {name: [case.of_seconds(run["seconds"], case.images) for run in found] for name, found in runs.items()}
    metric, unit = case.figure
    best = max if unit == "images/s" else min
    for said, choose in (("best", best), ("median", statistics.median)):
        plain, tls = choose(figures[PLAIN]), choose(figures[TLS])
        sheet.add(f"{metric}, {said}, {TLS}", tls, unit, [(plain, f"{PLAIN}, in turn, here")], headline=1)
