"""A long work among kills: of the client, of the server and of the connection, at times that chance chooses.

`python -m pronghorn_bench.faults` kills 100 times while 10,000 digits are predicted, and checks that each label is
there once and right.
"""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from pronghorn import _processes
from pronghorn._data import Preprocessing, load_images
from pronghorn._model import Floats
from pronghorn.cli.config import Entry
from pronghorn.cli.kept import KeptPlans
from pronghorn.cli.options import ModelOptions, Preparation
from pronghorn.cli.serve import Planner
from pronghorn.errors import PronghornError, RunError
from pronghorn_bench.service import Line, Server

EXAMPLES = Path(__file__).parents[3] / "examples" / "mnist"
KINDS = ("client", "server", "connection")
LOOK = 0.005
"""Seconds between two looks at what is done."""
LONGEST = 0.5
"""Seconds that a kill comes after a piece at most."""


@dataclass(frozen=True)
class Work:
    """What is predicted, and by which network."""

    model: Path
    data: Path
    trust: str
    images: int
    """The first so many."""
    piece: int
    """Images of a piece."""


@dataclass(frozen=True)
class Outcome:
    """What came of a work."""

    images: int
    kills: dict[str, int]
    """How often each was killed."""
    missing: int
    """Labels that are not there."""
    doubled: int
    """Labels that are there again."""
    wrong: int
    """Labels or outputs other than those of the fixed-point network in the clear."""
    seconds: float
    tries: int
    """Processes of the client."""

    @property
    def is_right(self) -> bool:
        """Whether each label is there once and right."""
        return (self.missing, self.doubled, self.wrong) == (0, 0, 0)


def run(work: Work, kills: int, chance: random.Random, say: Callable[[str], None]) -> Outcome:
    """Predicts through `kills` kills, of each kind at least one in three.

    Raises:
        RunError: the client gave up, or was done before the last kill.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pronghorn-faults-") as name:
        folder = Path(name)
        entry = Entry(None, work.model, work.data, None, ModelOptions(trust=work.trust), Preparation())
        (folder / "plans").mkdir(mode=0o700)
        [(_, plan)] = Planner(KeptPlans(folder / "plans")).plan([entry])
        loaded = load_images(work.data, tuple(plan.compiled.input_shape), Preprocessing())
        wanted = plan.compiled.run_fixed(loaded.images[: work.images])
        options = [str(work.model), "--data", str(work.data), "--trust", work.trust, "--plans", str(folder / "plans")]
        server = Server([*options, "--store", str(folder / "store")])
        line = Line(server.address)
        client = _Client(work, line.address, folder)
        kinds = [KINDS[index % len(KINDS)] for index in range(kills)]
        chance.shuffle(kinds)
        try:
            for index, kind in enumerate(kinds):
                client.wait_for(index * client.pieces // (kills + 1))
                time.sleep(chance.uniform(0, LONGEST))
                if client.is_done():
                    raise RunError(f"the work was done after {index} kills: give it more images, or smaller pieces")
                say(f"kill {index + 1}: {kind}, {client.done()} of {client.pieces} pieces are done")
                if kind == "client":
                    client.restart()
                elif kind == "server":
                    server.restart()
                else:
                    while not line.cut(chance) and not client.is_done():
                        time.sleep(LOOK)
            client.wait()
        finally:
            client.kill()
            line.close()
            server.stop()
        counts = _compare(folder / "out.csv", wanted)
    return Outcome(work.images, dict(Counter(kinds)), *counts, time.monotonic() - started, client.tries)


class _Client:
    """A process of `pronghorn predict --batch`."""

    def __init__(self, work: Work, address: str, folder: Path) -> None:
        options = ["--server", address, "--trust", work.trust, "--limit", str(work.images), "--timeout", "60"]
        out = ["--batch", "--piece", str(work.piece), "--resume", "--out", str(folder / "out.csv")]
        self._command = [*_processes.COMMAND, "predict", str(work.data), *options, *out]
        self._parts = folder / "out.csv.parts"
        self._output = (folder / "client.log").open("w+")
        self.pieces = -(-work.images // work.piece)
        self.tries = 0
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.tries += 1
        return subprocess.Popen(self._command, stdout=self._output, stderr=subprocess.STDOUT)

    def done(self) -> int:
        """Pieces that are done."""
        return len(list(self._parts.glob("*.npy")))

    def is_done(self) -> bool:
        """Whether it has ended well.

        Raises:
            RunError: it has failed.
        """
        status = self._process.poll()
        if status:
            self._output.seek(0)
            raise RunError(f"the client ended with status {status}:\n{self._output.read()[-2000:]}")
        return status is not None

    def wait_for(self, pieces: int) -> None:
        """Waits until so many pieces are done."""
        while not self.is_done() and self.done() < pieces:
            time.sleep(LOOK)

    def wait(self) -> None:
        """Waits until all is done."""
        self._process.wait()
        self.is_done()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Kills it, and goes on with what it has done."""
        self.kill()
        self._process = self._start()


def _compare(out: Path, wanted: Floats) -> tuple[int, int, int]:
    """Labels that are missing, doubled and wrong."""
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    title, content = rows[0], rows[1:]
    first = title.index("output 0")
    seen = Counter(int(row[0]) for row in content)
    missing = sum(index not in seen for index in range(len(wanted)))
    doubled = sum(count - 1 for count in seen.values()) + sum(index >= len(wanted) for index in seen)
    flat = wanted.reshape(len(wanted), -1)
    wrong = 0
    for row in content:
        outputs = np.array(row[first:], np.float64).astype(np.float32)
        expected = flat[int(row[0]) % len(flat)]
        wrong += not np.array_equal(outputs, expected) or int(row[title.index("class")]) != int(expected.argmax())
    return missing, doubled, wrong


def main(
    model: Annotated[Path, typer.Option(help="An ONNX file.")] = EXAMPLES / "cryptonets_relu.onnx",
    data: Annotated[Path, typer.Option(help="Its inputs.")] = EXAMPLES / "t10k-images-idx3-ubyte.gz",
    trust: Annotated[str, typer.Option(metavar="LEVEL", help="The trust level.")] = "two-party",
    images: Annotated[int, typer.Option(min=1, help="Images.")] = 10_000,
    piece: Annotated[int, typer.Option(min=1, help="Images of a piece.")] = 40,
    kills: Annotated[int, typer.Option(min=0, help="Kills.")] = 100,
    seed: Annotated[int | None, typer.Option(help="Repeats the choices of an earlier run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict among random kills of client, server and connection, and check each label."""
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    print(f"seed {seed}", file=sys.stderr)
    try:
        found = run(Work(model, data, trust, images, piece), kills, random.Random(seed), _say)
    except PronghornError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(1) from None
    if as_json:
        print(json.dumps({**asdict(found), "seed": seed}))
    else:
        killed = ", ".join(f"{kind} {count}" for kind, count in sorted(found.kills.items()))
        print(f"{found.images:,} images in {found.seconds:.0f} s, {sum(found.kills.values())} kills ({killed})")
        print(f"labels missing: {found.missing}, doubled: {found.doubled}, wrong: {found.wrong}")
    if not found.is_right:
        raise typer.Exit(1)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    typer.run(main)
