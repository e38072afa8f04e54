"""A prediction of any length: in pieces whose results are on the disk as they come, and go on after a failure."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import hashlib
import io
import json
import os
import random
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Generic, Protocol, TextIO, TypeVar

import numpy as np
import numpy.typing as npt

from pronghorn._outputs import MARKS, Predictions
from pronghorn._streams import Images
from pronghorn.cli.console import say, warn
from pronghorn.errors import InputError, OutputError, RunError

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Marks = npt.NDArray[np.int8]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Answer:
    """The results of a piece."""

    outputs: Floats
    beyond_samples: Flags | None = None
    """As of `Predictions`, and the next."""
    clamped: Flags | None = None


class Answering(Protocol):
    """A connection to whoever predicts."""

    def close(self) -> None: ...  # noqa: D102


Party = TypeVar("Party", bound=Answering)

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
"""Seconds before the first new attempt, which double, and at most."""
LONGEST_WAITS = {"owner-away": 5.0}
"""The same by what is wrong, where it costs little to ask."""

VERSION = 4
"""Of the layout of a folder of pieces."""
CHECKSUM = 16
"""Bytes at the end of a piece's file, of what stands before them."""

FAILED_CHECK = "failed-check"
"""The code of a prediction of which a check of decrypted values has failed. The session goes on."""
SHOWN_FAILURES = 5

UNKNOWN = np.int8(-1)
"""Stands for a mark that is not known."""

FORMATS = (".parquet", ".csv", ".npz", ".npy")


MANIFEST = "work.json"
FAILED = ".failed"


def _folder(out: Path) -> Path:
    return out.with_name(f"{out.name}.parts")


class Pieces:
    """The folder `OUT.parts`: what the work is, and a file of each piece that is done.

    A piece is there whole or not at all: one that has changed since is not done. One process uses a folder at a time.
    """

    def __init__(self, out: Path, work: dict[str, Any], resume: bool) -> None:
        """Begins a work, or goes on with it.

        Args:
            out: the file of the results.
            work: what it is: the inputs, the plan, the images of a piece.
            resume: whether to go on with what is there.

        Raises:
            InputError: there is a work and `resume` says no, it is another one or damaged, or another process does it.
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
        if not resume:
            raise InputError(f"{self.folder} has results of an earlier run: --resume goes on with them; or remove it")
        known = self._known(manifest)
        if known != self.work:
            other = sorted(key for key in self.work if known.get(key) != self.work[key])
            raise InputError(f"{self.folder} has results of another work: of other {', '.join(other)}; remove it first")
        self._remove_damaged()

    def _known(self, manifest: Path) -> dict[str, Any]:
        try:
            return dict(json.loads(manifest.read_text()))
        except (OSError, ValueError, TypeError) as error:
            problem = f"{manifest} cannot be read, so nobody knows whose results are there: {error}"
            raise InputError(f"{problem}\n  what to do: remove {self.folder}, and begin anew") from error

    def _remove_damaged(self) -> None:
        """Removes pieces that have changed since they were written: they are asked for again."""
        for piece in self.all():
            path = self._file(piece)
            if path.exists() and _load(path) is None:
                warn(f"{path} is damaged: inputs {piece.start} to {piece.stop - 1} are predicted again")
                with _writing(path):
                    path.unlink()

    @staticmethod
    def size_of(out: Path) -> int | None:
        """The images of a piece of the work that is there; None without one."""
        try:
            size = json.loads((_folder(out) / MANIFEST).read_text())["piece"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return size if isinstance(size, int) and size > 0 else None

    def all(self) -> list[range]:
        """The images of each piece."""
        size, images = self.work["piece"], self.work["images"]
        return [range(first, min(first + size, images)) for first in range(0, images, size)]

    def missing(self) -> list[range]:
        """The images of each piece that is not done."""
        return [piece for piece in self.all() if not self._file(piece).exists()]

    def failed(self) -> list[range]:
        """The images of each piece of which a check has failed."""
        return [piece for piece in self.missing() if self._file(piece, FAILED).exists()]

    def add(self, piece: range, answer: Answer) -> None:
        """Keeps the results of a piece.

        Raises:
            OutputError: they cannot be written.
        """
        self._keep(self._file(piece), answer)
        self._file(piece, FAILED).unlink(missing_ok=True)

    def fail(self, piece: range, shape: tuple[int, ...]) -> None:
        """Notes that a check of a piece has failed. As much is written as of a piece that is done, in the same way: the
        server should not see by the time which it was.

        Raises:
            OutputError: it cannot be written.
        """
        self._keep(self._file(piece, FAILED), Answer(np.zeros((len(piece), *shape), np.float32)))

    def _keep(self, path: Path, answer: Answer) -> None:
        # As many bytes whether they are known or not.
        marks = np.full((len(MARKS), len(answer.outputs)), UNKNOWN)
        for place, name in enumerate(MARKS):
            if (known := getattr(answer, name)) is not None:
                marks[place] = known
        with _writing(path):
            content = io.BytesIO()
            np.save(content, answer.outputs)
            np.save(content, marks)
            coming = path.with_suffix(".coming")
            with coming.open("wb") as file:
                file.write(content.getvalue() + _checksum(content.getvalue()))
                file.flush()
                os.fsync(file.fileno())
            coming.replace(path)
            _sync_folder(self.folder)

    def outputs(self) -> Iterator[Floats]:
        """The results of all pieces, in order.

        Raises:
            OutputError: a piece is damaged.
        """
        for piece in self.all():
            yield self._loaded(piece)[0]

    def found(self, read: Read) -> Iterator[Predictions]:
        """The predictions of all pieces, in order.

        Raises:
            OutputError: a piece is damaged.
        """
        for piece in self.all():
            outputs, marks = self._loaded(piece)
            known = {
                name: flags.astype(np.bool_)
                for name, flags in zip(MARKS, marks, strict=True)
                if not np.any(flags == UNKNOWN)
            }
            yield replace(read(outputs), **known)

    def marked(self, name: str, read: Read) -> Flags | None:
        """A mark of all images; None where it is not known of all."""
        known = [getattr(found, name) for found in self.found(read)]
        return None if any(each is None for each in known) else np.concatenate(known)

    def __len__(self) -> int:
        """Images in all."""
        return int(self.work["images"])

    def release(self) -> None:
        """Lets other processes use the folder."""
        self._lock.close()

    def remove(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _loaded(self, piece: range) -> tuple[Floats, Marks]:
        found = _load(self._file(piece))
        if found is None:
            raise OutputError(f"{self._file(piece)} is damaged\n  what to do: --resume predicts its inputs again")
        return found

    def _file(self, piece: range, suffix: str = ".npy") -> Path:
        return self.folder / f"{piece.start:09}{suffix}"


def _load(path: Path) -> tuple[Floats, Marks] | None:
    """The outputs and marks of a piece; None where its file is damaged."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    content, checksum = whole[:-CHECKSUM], whole[-CHECKSUM:]
    if _checksum(content) != checksum:
        return None
    file = io.BytesIO(content)
    return np.load(file), np.load(file)


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=CHECKSUM).digest()


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


def digest(images: Images, size: int) -> str:
    """A name for inputs, of which `size` are read at a time.

    Raises:
        InputError: one holds no number.
    """
    name = hashlib.blake2b(digest_size=16)
    for first in range(0, len(images), size):
        name.update(np.ascontiguousarray(images.checked(first, first + size)).data)
    return name.hexdigest()


def end_of_failures(pieces: Pieces) -> RunError | None:
    """What is said at the end of a work of which checks have failed."""
    failed = pieces.failed()
    if not failed:
        return None
    shown = ", ".join(f"{piece.start} to {piece.stop - 1}" for piece in failed[:SHOWN_FAILURES])
    more = "" if len(failed) <= SHOWN_FAILURES else " and so on"
    return RunError(
        f"{len(failed)} of {len(pieces.all())} pieces are not there, since values that came for them lie outside their "
        f"range (inputs {shown}{more}): the server or the line has changed messages. The server was told nothing. "
        f"The other results are in {pieces.folder}\n"
        "  what to do: ask whether the server can be trusted. --resume asks for these pieces again, which tells the "
        "server that the checks failed, and that is a bit of the inputs (SECURITY.md)",
        code=FAILED_CHECK,
    )


@dataclass
class Attempts(Generic[Party]):
    """Connects, and connects again after failures that pass, with pauses that grow."""

    connect: Callable[[], Party]
    """Makes a connection."""
    ask: Callable[[Party, Floats], Answer]
    """The results of a piece."""
    give_up: float
    """Seconds without a result after which a failure is final."""
    client: Party | None = None
    """The connection; None after a failure."""
    failures: int = 0
    """Failures in all."""
    started: float = field(default_factory=time.monotonic)

    def connected(self) -> Party:
        """The connection.

        Raises:
            RunError: a failure that does not pass, or that lasts.
        """
        return self._insist(lambda client: client)

    def predict(self, images: Floats) -> Answer | None:
        """The results of a piece; None where a check of them has failed. The server is told nothing of that.

        Raises: as `connected`.
        """
        try:
            return self._insist(lambda client: self.ask(client, images))
        except RunError as error:
            if error.code != FAILED_CHECK:
                raise
            return None

    def _insist(self, act: Callable[[Party], Result]) -> Result:
        began, pause = time.monotonic(), FIRST_PAUSE
        while True:
            try:
                if self.client is None:
                    self.client = self.connect()
                return act(self.client)
            except RunError as error:
                if error.code == FAILED_CHECK:
                    # To end the connection, or to ask again, would tell the server.
                    raise
                self.close()
                if not error.retryable or time.monotonic() - began + pause > self.give_up:
                    raise
                self.failures += 1
                pause = min(pause, LONGEST_WAITS.get(error.code or "", LONGEST_PAUSE))
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
Titles = Callable[[int, int], list[str]]
"""The names of inputs from one to before another."""


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


def write(out: Path, titles: Titles, pieces: Pieces, read: Read) -> None:
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


def _tables(titles: Titles, pieces: Pieces, read: Read) -> Iterator[dict[str, Any]]:
    """The columns of each piece: index and name of the input, class and its probability, marks, outputs."""
    first = 0
    for found in pieces.found(read):
        last = first + len(found)
        table: dict[str, Any] = {"index": list(range(first, last)), "input": titles(first, last)}
        if found.classes is not None:
            table["class"] = found.classes.tolist()
            if found.class_names:
                table["name"] = found.named()
            if found.probabilities is not None:
                table["probability"] = found.probabilities.max(axis=1).tolist()
        for name in MARKS:
            if (marks := getattr(found, name)) is not None:
                table[name] = marks.tolist()
        parts = {f"output {name}": part for name, part in found.split().items()} or {"outputs": found.outputs}
        table |= {name: part.reshape(len(found), -1).tolist() for name, part in parts.items()}
        first = last
        yield table


def _holds_values(name: str) -> bool:
    """Whether a column has the values of the output, or of one of several."""
    return name == "outputs" or name.startswith("output ")


def _titles(name: str, count: int) -> list[str]:
    """The titles of an output's values, a column each."""
    if name == "outputs":
        return [f"output {index}" for index in range(count)]
    return [name] if count == 1 else [f"{name} {index}" for index in range(count)]


def _write_parquet(path: Path, titles: Titles, pieces: Pieces, read: Read) -> None:
    pyarrow = _pyarrow(path)
    writer = None
    try:
        for columns in _tables(titles, pieces, read):
            lists = dict.fromkeys(filter(_holds_values, columns), pyarrow.list_(pyarrow.float32()))
            floats = {"probability": pyarrow.float32(), **lists}
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


def _write_csv(path: Path, titles: Titles, pieces: Pieces, read: Read) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        header: list[str] = []
        for table in _tables(titles, pieces, read):
            values = {name: table.pop(name) for name in list(table) if _holds_values(name)}
            if not header:
                titled = [title for name, rows in values.items() for title in _titles(name, len(rows[0]))]
                # Two names may give one title.
                distinct = len(set(titled)) == len(titled)
                header = [*table, *(titled if distinct else _titles("outputs", len(titled)))]
                writer.writerow(header)
            for *row, parts in zip(*table.values(), zip(*values.values(), strict=True), strict=True):
                writer.writerow([*row, *(value for part in parts for value in part)])


def _write_npy(path: Path, titles: Titles, pieces: Pieces, read: Read) -> None:
    with path.open("wb") as file:
        _write_array(file, len(pieces), pieces.outputs())


def _write_npz(path: Path, titles: Titles, pieces: Pieces, read: Read) -> None:
    names = list(next(pieces.found(read)).arrays())
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            parts = (found.arrays()[name] for found in pieces.found(read))
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                _write_array(file, len(pieces), parts)


def _write_array(file: IO[bytes], rows: int, parts: Iterator[npt.NDArray[Any]]) -> None:
    """Writes an array of so many rows part by part."""
    for index, part in enumerate(parts):
        if index == 0:
            header = {"descr": part.dtype.str, "fortran_order": False, "shape": (rows, *part.shape[1:])}
            np.lib.format.write_array_header_1_0(file, header)
        file.write(np.ascontiguousarray(part).tobytes())


_WRITERS: dict[str, Callable[[Path, Titles, Pieces, Read], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".npz": _write_npz,
    ".npy": _write_npy,
}
