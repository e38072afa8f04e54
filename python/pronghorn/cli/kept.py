"""Plans that are kept on a disk, so that a server starts in seconds."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pronghorn
from pronghorn import _native
from pronghorn._model import Plan
from pronghorn.cli.config import Entry
from pronghorn.errors import InputError, PronghornError
from pronghorn.onnx import external_files


class KeptPlans:
    """A directory of plans with their weights: secrets, as the models are.

    A plan is found again by a digest of the model's file, of the samples, of all options and of the version of
    Pronghorn.
    """

    def __init__(self, directory: Path) -> None:
        """Makes the directory.

        Raises:
            InputError: it cannot be made, or others may enter it.
        """
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            others = directory.stat().st_mode & 0o077
        except OSError as error:
            raise InputError(f"plans cannot be kept in {directory}: {error}") from error
        if others and os.name == "posix":
            raise InputError(f"plans have weights, and others may enter {directory}: chmod 700 {directory}")
        self._directory = directory

    def plan(self, entry: Entry, make: Callable[[], Plan]) -> Plan:
        """The plan that is kept for an entry; where there is none, or it cannot be read, what `make` gives, which is
        kept from then on."""
        path = self._directory / f"{digest(entry)}.plan"
        found = _read(path, entry)
        if found is not None:
            return found
        plan = make()
        _write(path, plan.compiled.to_bytes())
        return plan


def digest(entry: Entry) -> str:
    """A name for all that a plan is made from.

    Raises:
        InputError: a file cannot be read.
    """
    hasher = hashlib.blake2b(digest_size=16)
    options = (pronghorn.__version__, entry.name, entry.options, entry.preparation, entry.labels)
    hasher.update(repr(options).encode())
    for path in (entry.file, *external_files(entry.file), *([] if entry.data is None else _files(entry.data))):
        hasher.update(f"\n{path.name}\n".encode())
        try:
            with path.open("rb") as file:
                hasher.update(hashlib.file_digest(file, "blake2b").digest())
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error}") from error
    return hasher.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    """A file, or all files of a folder."""
    if path.is_dir():
        yield from sorted(each for each in path.rglob("*") if each.is_file())
    else:
        yield path


def _read(path: Path, entry: Entry) -> Plan | None:
    try:
        return Plan(_native.Compiled.from_bytes(path.read_bytes(), list(entry.options.without or ())))
    except (OSError, _native.NativeError):
        # Not there, damaged, or of another version: it is made again.
        return None


def _write(path: Path, content: bytes) -> None:
    """Puts a file in its place, whole.

    Raises:
        PronghornError: it cannot be written.
    """
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with open(number, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise PronghornError(f"the plan cannot be kept in {path}: {error}") from error
