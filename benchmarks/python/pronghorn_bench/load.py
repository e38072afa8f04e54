"""Many clients at once: throughput, latency, memory and fairness, and refusals where there are too many.

`python -m pronghorn_bench.load` runs 50 sessions for 10 minutes, half of them two-party and half client-aided, and then
200 against 50 places.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

import pronghorn
from pronghorn._data import Preprocessing, load_images
from pronghorn.errors import RunError
from pronghorn_bench.faults import EXAMPLES
from pronghorn_bench.service import Server

TRUSTS = {"two-party": 1, "client-aided": 100}
"""Images of a call, by trust level."""
QUARTERS = 4
LOOK = 2.0
"""Seconds between two looks at the server's memory."""
PAUSE = 0.2
"""Seconds before a refused client tries again, at least; up to four times as many."""


@dataclass
class Client:
    """What one client saw."""

    trust: str
    latencies: list[float] = field(default_factory=list)
    """Seconds of each prediction."""
    images: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    """Refusals by their codes, with `, final` where it was not to try again."""
    wrong: int = 0
    """Predictions with another result than the first."""


@dataclass(frozen=True)
class Level:
    """All clients of a trust level."""

    trust: str
    clients: int
    predictions: int
    images_per_second: float
    p50: float
    """Seconds."""
    p99: float
    most: float
    least_of_a_client: int
    """Predictions."""
    median_of_a_client: float
    most_of_a_client: int


@dataclass(frozen=True)
class Outcome:
    """What a crowd of clients saw."""

    clients: int
    seconds: float
    levels: list[Level]
    memory: list[tuple[int, int]]
    """Least and most bytes of the server's memory in each quarter."""
    refusals: dict[str, int]
    unserved: int
    """Clients without a prediction."""
    wrong: int


def crowd(server: Server, clients: int, seconds: float, images: npt.NDArray[np.float32]) -> Outcome:
    """So many clients, of the trust levels in turn, for so long."""
    trusts = list(TRUSTS)
    all_clients = [Client(trusts[index % len(trusts)]) for index in range(clients)]
    started = time.monotonic()
    end = started + seconds
    threads = [threading.Thread(target=_ask, args=(server.address, each, end, images)) for each in all_clients]
    for thread in threads:
        thread.start()
    memory = [_watched(server, started + seconds * quarter / QUARTERS) for quarter in range(1, QUARTERS + 1)]
    for thread in threads:
        thread.join()
    took = time.monotonic() - started
    served = [[each for each in all_clients if each.trust == trust] for trust in trusts]
    return Outcome(
        clients,
        took,
        [_level(found, took) for found in served if any(each.latencies for each in found)],
        memory,
        dict(sum((each.refusals for each in all_clients), Counter[str]())),
        sum(not each.latencies for each in all_clients),
        sum(each.wrong for each in all_clients),
    )


def _watched(server: Server, end: float) -> tuple[int, int]:
    """Least and most bytes of the server's memory until then."""
    found = [server.resident_bytes()]
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(LOOK, left))
        found.append(server.resident_bytes())
    return min(found), max(found)


def _ask(address: str, found: Client, end: float, images: npt.NDArray[np.float32]) -> None:
    """Asks until the end, and comes back after refusals that pass."""
    part, first = images[: TRUSTS[found.trust]], None
    while time.monotonic() < end:
        try:
            with pronghorn.connect(address, found.trust, model=found.trust, timeout=120) as client:
                while (began := time.monotonic()) < end:
                    outputs = client.predict(part)
                    found.latencies.append(time.monotonic() - began)
                    found.images += len(part)
                    first = outputs if first is None else first
                    found.wrong += not np.array_equal(outputs, first)
        except RunError as error:
            found.refusals[error.code if error.retryable else f"{error.code}, final"] += 1
            if not error.retryable:
                return
            time.sleep(random.uniform(PAUSE, 4 * PAUSE))


def _level(clients: Sequence[Client], seconds: float) -> Level:
    latencies = sorted(latency for each in clients for latency in each.latencies)
    counts = [len(each.latencies) for each in clients]
    return Level(
        clients[0].trust,
        len(clients),
        len(latencies),
        sum(each.images for each in clients) / seconds,
        _quantile(latencies, 0.5),
        _quantile(latencies, 0.99),
        latencies[-1],
        min(counts),
        statistics.median(counts),
        max(counts),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def started(folder: Path, model: Path, data: Path, options: dict[str, Any]) -> Server:
    """A server of one network at both trust levels."""
    lines = ["[server]", f'plans = "{folder / "plans"}"', *(f"{name} = {value}" for name, value in options.items())]
    for trust in TRUSTS:
        lines += ["[[models]]", f'name = "{trust}"', f'trust = "{trust}"', f'file = "{model}"', f'data = "{data}"']
    (folder / "server.toml").write_text("\n".join(lines))
    return Server(["--config", str(folder / "server.toml")])


def lines_of(found: Outcome) -> list[str]:
    """What is printed."""
    lines = [f"{found.clients} clients for {found.seconds:.0f} s"]
    for level in found.levels:
        times = ", ".join(f"{1000 * each:,.0f}" for each in (level.p50, level.p99, level.most))
        counts = f"{level.least_of_a_client}, {level.median_of_a_client:g}, {level.most_of_a_client}"
        lines.append(
            f"{level.trust}: {level.images_per_second:.1f} images/s by {level.clients} clients; p50, p99, most {times} "
            f"ms; predictions of a client: least, median, most {counts}"
        )
    megabytes = ", ".join(f"{least / 1e6:,.0f} to {most / 1e6:,.0f}" for least, most in found.memory)
    lines.append(f"memory of the server in each quarter: {megabytes} MB")
    refusals = ", ".join(f"{code} {count}" for code, count in sorted(found.refusals.items()))
    lines.append(
        f"refusals: {refusals or 'none'}; clients without a prediction: {found.unserved}; wrong: {found.wrong}"
    )
    return lines


def main(
    model: Annotated[Path, typer.Option(help="An ONNX file.")] = EXAMPLES / "cryptonets_relu.onnx",
    data: Annotated[Path, typer.Option(help="Its inputs.")] = EXAMPLES / "t10k-images-idx3-ubyte.gz",
    sessions: Annotated[int, typer.Option(min=2, help="Clients at once that all have a place.")] = 50,
    seconds: Annotated[float, typer.Option(min=1, help="For so long.")] = 600.0,
    too_many: Annotated[int, typer.Option(min=0, help="Then so many clients; 0 leaves this out.")] = 200,
    places: Annotated[int, typer.Option(min=1, help="Against so many places.")] = 50,
    crowd_seconds: Annotated[float, typer.Option(min=1, help="For so long.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Load a server with many clients, two-party and client-aided, and then with more than it has places for."""
    parts: list[tuple[int, float, dict[str, float]]] = [(sessions, seconds, {"max-clients": sessions})]
    if too_many:
        # Few may wait, and not for long: the others hear that the server is busy.
        few = {"max-clients": places, "max-waiting": max(1, places // 2), "queue-timeout": 5.0}
        parts.append((too_many, crowd_seconds, few))
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="pronghorn-load-") as name:
        folder = Path(name)
        (folder / "plans").mkdir(mode=0o700)
        for clients, time_each, limits in parts:
            server = started(folder, model, data, limits)
            try:
                with pronghorn.connect(server.address, "two-party", model="two-party") as client:
                    shape = client.input_shape
                images = load_images(data, shape, Preprocessing()).images[: max(TRUSTS.values())]
                outcomes.append(crowd(server, clients, time_each, images))
            finally:
                server.stop()
            if not as_json:
                print("\n".join(lines_of(outcomes[-1])), flush=True)
    if as_json:
        print(json.dumps([asdict(outcome) for outcome in outcomes]))


if __name__ == "__main__":
    typer.run(main)
