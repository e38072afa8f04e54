"""`pronghorn multikey check`: cloud, model owner and client as processes, compared with the float model."""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn._model import Model
from pronghorn._processes import COMMAND, said, stop
from pronghorn.errors import RunError

START_SECONDS = 600.0
"""Time that a process has for the line that it is waited for: an owner encrypts its model before."""
LOCAL = "127.0.0.1:0"
ROUNDED = 1e-5
"""The part of its largest output by which a float model rounds at most."""


@dataclass(frozen=True)
class Check:
    """What a run in processes gave."""

    images: int
    labels_equal: int | None
    """Images that get the float model's class; None where outputs are values."""
    accuracy: float | None
    """Of the encrypted run; None without labels."""
    largest_difference: float
    """From an output of the float model."""
    stated_error: float
    """From the network with exact weights, for any input in range."""
    are_indices: bool
    """Outputs are classes' indices, not values."""
    largest_output: float
    """Of the float model, in magnitude."""
    seconds: float
    """Of all images, in the client's process."""
    bytes_sent: float
    """By the client, an image."""
    bytes_received: float
    key_bytes: int
    """Public keys of the client."""
    peak_memory: dict[str, int]
    """Bytes of each process."""

    @property
    def ok(self) -> bool:
        """Whether 99 % of the labels are equal, and outputs are as exact as stated."""
        return (self.labels_equal is None or self.labels_equal >= 0.99 * self.images) and self.is_exact

    @property
    def is_exact(self) -> bool:
        """Whether outputs differ by twice what is stated at most, as a LogSoftmax may double it, and by what the float
        model rounds. The indices of classes tell nothing."""
        return self.are_indices or self.largest_difference <= 2 * self.stated_error + ROUNDED * self.largest_output

    @property
    def bits(self) -> float:
        """Bits of outputs after the point that are right."""
        return -math.log2(max(self.largest_difference, 2.0**-60))

    def to_json(self) -> str:
        """For programs."""
        return json.dumps({**asdict(self), "bits": self.bits, "is_exact": self.is_exact, "ok": self.ok})

    def __str__(self) -> str:
        """A line for each figure."""
        megabytes = {role: f"{count / 1e6:,.0f} MB" for role, count in self.peak_memory.items()}
        rows = []
        if self.labels_equal is not None:
            rows = [
                ("labels", f"{self.labels_equal:,} of {self.images:,} equal the float model's"),
                ("accuracy", "unknown" if self.accuracy is None else f"{100 * self.accuracy:.2f} %"),
            ]
        rows += [
            (
                "precision",
                f"{self.bits:.1f} bits: outputs are within {self.largest_difference:.3g} of the float model's; "
                f"{self.stated_error:.3g} is stated for any input{'' if self.is_exact else ': THIS IS A BUG'}",
            ),
            ("time", f"{self.seconds / self.images:.2f} s an image"),
            ("an image", f"{self.bytes_sent:,.0f} bytes sent by the client, {self.bytes_received:,.0f} received"),
            ("keys", f"{self.key_bytes:,} bytes of the client, sent once"),
            ("peak memory", ", ".join(f"{role} {size}" for role, size in megabytes.items())),
        ]
        title = f"{self.images:,} images through cloud, model owner and client, each a process"
        return "\n".join([title, *(f"  {name + ':':<13}{text}" for name, text in rows)])


@dataclass(frozen=True)
class Case:
    """A model and what it is checked on."""

    model: Model
    file: Path
    data: Path
    images: npt.NDArray[np.float32]
    truth: npt.NDArray[np.int64] | None
    kind: str
    """What outputs are: `classes`, `labels` or `values`."""
    reading: Sequence[str]
    """Options of how model and data are read."""
    terms: Sequence[str]
    """Options of the owner's key."""

    def run(self) -> Check:
        """Runs the three processes; this one compares."""
        with tempfile.TemporaryDirectory(prefix="pronghorn-") as name:
            folder = Path(name)
            return self._run(folder)

    def _run(self, folder: Path) -> Check:
        reports = {role: folder / f"{role}.json" for role in ("cloud", "owner")}
        store, secrets, own = (str(folder / part) for part in ("store", "owner", "client"))
        serve = ["cloud", "--listen", LOCAL, "--store", store, "--report", str(reports["cloud"])]
        with _process(serve) as cloud:
            address = _line(cloud, "listening on ")
            attend = ["owner", str(self.file), "--data", str(self.data), "--cloud", address, "--keys", secrets]
            attend += ["--report", str(reports["owner"]), *self.reading, *self.terms]
            with _process(attend) as owner:
                party = _line(owner, "model owner ")
                _line(owner, "attending")
                at = ["--cloud", address, "--owner", party, "--keys", own]
                client = _output(["name", *at]).strip()
                _output(["admit", client, "--keys", secrets])
                out = folder / "outputs.npz"
                wanted = ["--limit", str(len(self.images)), "--out", str(out), "--json"]
                found = json.loads(_output(["client", str(self.data), *at, *wanted, *self.reading]))
                outputs = np.load(out)["outputs"]
        peaks = {role: json.loads(path.read_text())["peak_memory_bytes"] for role, path in reports.items()}
        return self._compared(outputs, found, {**peaks, "client": found["peak_memory_bytes"]})

    def _compared(self, outputs: npt.NDArray[np.float32], found: dict[str, Any], peaks: dict[str, int]) -> Check:
        wanted = self.model.run_float(self.images)
        equal = accuracy = None
        if self.kind == "classes":
            classes, plain = self.model.classes(outputs), self.model.classes(wanted)
            equal = int((classes == plain).sum())
            accuracy = None if self.truth is None else float((classes == self.truth).mean())
        run, count = found["runs"][0], len(self.images)
        return Check(
            images=count,
            labels_equal=equal,
            accuracy=accuracy,
            largest_difference=float(np.abs(outputs.astype(np.float64) - wanted).max()),
            stated_error=found["error"],
            are_indices="arg_max" in self.model.finish,
            largest_output=float(np.abs(wanted).max()),
            seconds=run["seconds"],
            bytes_sent=run["bytes_sent"] / count,
            bytes_received=run["bytes_received"] / count,
            key_bytes=found["key_bytes_sent"] or 0,
            peak_memory=peaks,
        )


@contextmanager
def _process(arguments: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A role that runs until the end of `with`."""
    process = subprocess.Popen(
        [*COMMAND, "multikey", *arguments, "--exit-with-stdin", "--log-level", "warning"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        stop(process)


def _line(process: subprocess.Popen[str], start: str) -> str:
    """The rest of the next line, which begins so."""
    rest = said(process, start, START_SECONDS)
    if rest is None:
        raise RunError(f"a process ended before it said {start.strip()!r}; its messages are above")
    return rest


def _output(arguments: Sequence[str]) -> str:
    """What a command prints."""
    done = subprocess.run([*COMMAND, "multikey", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RunError(f"pronghorn multikey {arguments[0]} ended with status {done.returncode}")
    return done.stdout
