"""A prediction of any length: in pieces whose results are on the disk as they come, and go on after a failure."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import hashlib
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

import numpy as np
import numpy.typing as npt

from pronghorn._network import Client
from pronghorn._outputs import Predictions
from pronghorn.cli.console import say
from pronghorn.errors import InputError, OutputError, RunError

Floats = npt.NDArray[np.float32]
Result = TypeVar("Result")

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
"""Seconds before the first new attempt, which double, and at most."""

VERSION = 1
"""Of the layout of a folder of pieces."""

FORMATS = (".parquet", ".csv", ".npz", ".npy")


MANIFEST = "work.json"


def _folder(out: Path) -> Path:
    return out.with_name(f"{out.name}.parts")


class Pieces:
    """The folder `OUT.parts`: what the work is, and a file of each piece that is done.

    A piece is there whole or not at all. One process uses a folder at a time.
    """

    def __init__(self, out: Path, work: dict[str, Any], resume: bool) -> None:
        """Begins a work, or goes on with it.

        Args:
            out: the file of the results.
            work: what it is: the inputs, the plan, the images of a piece.
            resume: whether to go on with what is there.

        Raises:
            InputError: there is a work and `resume` says no, it is another one, or another process does it.
            OutputError: the folder cannot be written.
        """
        self.folder = _folder(out)
        self.work = {"version": VERSION, **work}
        manifest = self.folder / MANIFEST
        with _writing(self.folder):
            self.folder.mkdir(exist_ok=True)
            self._lock: TextIO = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another process works on {out}") from None
        if not manifest.exists():
            with _writing(manifest):
                _write(manifest, json.dumps(self.work).encode())
            return
        known = json.loads(manifest.read_text())
        if not resume:
            raise InputError(f"{self.folder} has results of an earlier run: --resume goes on with them; or remove it")
        if known != self.work:
            other = sorted(key for key in self.work if known.get(key) != self.work[key])
            raise InputError(f"{self.folder} has results of another work: of other {', '.join(other)}; remove it first")

    @staticmethod
    def size_of(out: Path) -> int | None:
        """The images of a piece of the work that is there; None without one."""
        try:
            size = json.loads((_folder(out) / MANIFEST).read_text())["piece"]
        except (OSError, ValueError, KeyError):
            return None
        return int(size)

    def missing(self) -> list[range]:
        """The images of each piece that is not done."""
        size, images = self.work["piece"], self.work["images"]
        pieces = [range(first, min(first + size, images)) for first in range(0, images, size)]
        return [piece for piece in pieces if not self._file(piece).exists()]

    def add(self, piece: range, outputs: Floats) -> None:
        """Keeps the results of a piece.

        Raises:
            OutputError: they cannot be written.
        """
        path = self._file(piece)
        with _writing(path):
            coming = path.with_suffix(".coming")
            with coming.open("wb") as file:
                np.save(file, outputs)
                file.flush()
                os.fsync(file.fileno())
            coming.replace(path)
            _sync_folder(self.folder)

    def outputs(self) -> Iterator[Floats]:
        """The results of all pieces, in order."""
        size, images = self.work["piece"], self.work["images"]
        for first in range(0, images, size):
            yield np.load(self._file(range(first, min(first + size, images))))

    def remove(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, piece: range) -> Path:
        return self.folder / f"{piece.start:09}.npy"


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"{path} cannot be written: {error}"
        raise OutputError(f"{problem}\n  what to do: make room, and go on with --resume") from error


def _write(path: Path, content: bytes) -> None:
    """Puts a file in its place, whole and on the disk."""
    coming = path.with_name(f".{path.name}.{os.getpid()}")
    with coming.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    coming.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def digest(images: Floats) -> str:
    """A name for inputs."""
    return hashlib.blake2b(np.ascontiguousarray(images).data, digest_size=16).hexdigest()


@dataclass
class Attempts:
    """Connects, and connects again after failures that pass, with pauses that grow."""

    connect: Callable[[], Client]
    """Makes a connection."""
    give_up: float
    """Seconds without a result after which a failure is final."""
    client: Client | None = None
    """The connection; None after a failure."""
    failures: int = 0
    """Failures in all."""

    def connected(self) -> Client:
        """The connection.

        Raises:
            RunError: a failure that does not pass, or that lasts.
        """
        return self._insist(lambda client: client)

    def predict(self, images: Floats) -> Floats:
        """The outputs of a piece.

        Raises: as `connected`.
        """
        return self._insist(lambda client: client.predict(images))

    def _insist(self, act: Callable[[Client], Result]) -> Result:
        began, pause = time.monotonic(), FIRST_PAUSE
        while True:
            try:
                if self.client is None:
                    self.client = self.connect()
                return act(self.client)
            except RunError as error:
                self.close()
                if not error.retryable or time.monotonic() - began + pause > self.give_up:
                    raise
                self.failures += 1
                say(f"[yellow]{error.code}[/]: trying again in {pause:.1f} s")
            # Not all clients of a server that comes back at one time.
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)

    def close(self) -> None:
        """Ends the connection."""
        client, self.client = self.client, None
        if client is not None:
            client.close()


Read = Callable[[Floats], Predictions]


def check_format(out: Path) -> None:
    """Refuses files that results in pieces are not written to.

    Raises:
        InputError: another kind, or parquet without pyarrow.
    """
    if out.suffix not in FORMATS:
        raise InputError(f"{out} is none of {', '.join(FORMATS)}")
    if out.suffix == ".parquet":
        _pyarrow(out)
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out} cannot be written: there is no folder {out.parent}")


def write(out: Path, titles: list[str], pieces: Pieces, read: Read) -> None:
    """Writes the results of all pieces to a file, which takes its place once it is whole.

    Raises:
        OutputError: it cannot be written; the pieces are kept.
    """
    coming = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with _writing(out):
            _WRITERS[out.suffix](coming, titles, pieces, read)
            with coming.open("rb") as file:
                os.fsync(file.fileno())
            coming.replace(out)
            _sync_folder(out.absolute().parent)
    finally:
        coming.unlink(missing_ok=True)


def _tables(titles: list[str], pieces: Pieces, read: Read) -> Iterator[dict[str, Any]]:
    """The columns of each piece: index and name of the input, class and its probability, outputs."""
    first = 0
    for outputs in pieces.outputs():
        found, last = read(outputs), first + len(outputs)
        table: dict[str, Any] = {"index": list(range(first, last)), "input": titles[first:last]}
        if found.classes is not None:
            table["class"] = found.classes.tolist()
            if found.probabilities is not None:
                table["probability"] = found.probabilities.max(axis=1).tolist()
        table["outputs"] = outputs.reshape(len(outputs), -1).tolist()
        first = last
        yield table


def _write_parquet(path: Path, titles: list[str], pieces: Pieces, read: Read) -> None:
    pyarrow = _pyarrow(path)
    writer = None
    try:
        for columns in _tables(titles, pieces, read):
            floats = {"probability": pyarrow.float32(), "outputs": pyarrow.list_(pyarrow.float32())}
            arrays = {name: pyarrow.array(values, floats.get(name)) for name, values in columns.items()}
            table = pyarrow.table(arrays)
            writer = writer or pyarrow.parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(f"{path} needs pyarrow: pip install pyarrow, or write .csv, .npz or .npy") from None
    return pyarrow


def _write_csv(path: Path, titles: list[str], pieces: Pieces, read: Read) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        header: list[str] = []
        for table in _tables(titles, pieces, read):
            values = table.pop("outputs")
            if not header:
                header = [*table, *(f"output {index}" for index in range(len(values[0])))]
                writer.writerow(header)
            for row in zip(*table.values(), values, strict=True):
                writer.writerow([*row[:-1], *row[-1]])


def _write_npy(path: Path, titles: list[str], pieces: Pieces, read: Read) -> None:
    with path.open("wb") as file:
        np.save(file, np.concatenate(list(pieces.outputs())))


def _write_npz(path: Path, titles: list[str], pieces: Pieces, read: Read) -> None:
    outputs = np.concatenate(list(pieces.outputs()))
    found = read(outputs)
    with path.open("wb") as file:
        arrays = {"outputs": outputs, "classes": found.classes, "probabilities": found.probabilities}
        np.savez(file, allow_pickle=False, **{name: array for name, array in arrays.items() if array is not None})


_WRITERS: dict[str, Callable[[Path, list[str], Pieces, Read], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".npz": _write_npz,
    ".npy": _write_npy,
}
