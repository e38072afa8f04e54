"""A file for results, whose room is taken before the work that makes them."""

from __future__ import annotations

import atexit
import errno
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pronghorn._outputs import Predictions
from pronghorn.errors import InputError, OutputError

HEADERS = 4096
"""More bytes than the headers of a file take."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class OutputFile:
    """`.npy` for outputs, `.npz` for outputs, classes, probabilities and which are in doubt.

    A new file beside the named one takes its place once it is whole.
    """

    def __init__(self, path: Path) -> None:
        """Makes the file.

        Raises:
            InputError: another kind of file, or one that cannot be written.
        """
        if path.suffix not in (".npy", ".npz"):
            raise InputError(
                f"{path} is neither .npy (outputs) nor .npz (outputs, classes and probabilities); "
                "predict --batch writes .csv and .parquet"
            )
        if not path.parent.is_dir():
            raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
        self.path = path
        # What is no file of its own, such as a pipe, is written as it is.
        self._replaces = not path.exists() or path.resolve().is_file()
        self._target = path.resolve()
        self._written = self._target.with_name(f".{path.name}.{os.getpid()}") if self._replaces else self._target
        try:
            self._file: BinaryIO = self._written.open("wb")
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error}") from error
        atexit.register(self._discard)

    def reserve(self, images: int, output_shape: Sequence[int]) -> None:
        """Takes the room that the results of `images` images need.

        Raises:
            InputError: there is none.
        """
        # Outputs and probabilities take at most 8 bytes each, a class and marks 16 bytes an image.
        needed = HEADERS + images * (16 * math.prod(output_shape) + 16)
        if not self._replaces or not hasattr(os, "posix_fallocate"):
            return
        try:
            os.posix_fallocate(self._file.fileno(), 0, needed)
        except OSError as error:
            if error.errno in FULL:
                raise InputError(
                    f"{self.path} cannot hold the results, which take {needed:,} bytes: {error}"
                ) from error

    def write(self, found: Predictions) -> OutputError | None:
        """Writes the results; where that fails, to the folder for temporary files, and says so."""
        try:
            self._write(found)
        except OSError as error:
            return OutputError(f"{self.path} cannot be written: {error}\n  {self._rescue(found)}")
        return None

    def _write(self, found: Predictions) -> None:
        _save(self._file, self.path.suffix, found)
        if self._replaces:
            self._file.truncate()
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        if self._replaces:
            self._written.replace(self._target)

    def _rescue(self, found: Predictions) -> str:
        for folder in (tempfile.gettempdir(), os.getcwd(), Path.home()):
            try:
                number, name = tempfile.mkstemp(prefix="pronghorn-", suffix=self.path.suffix, dir=folder)
            except OSError:
                continue
            try:
                with open(number, "wb") as file:
                    _save(file, self.path.suffix, found)
            except OSError:
                Path(name).unlink(missing_ok=True)
                continue
            return f"the results are in {name} instead, and printed"
        return "the results are printed instead"

    def _discard(self) -> None:
        """Removes what a run that failed leaves."""
        if self._replaces:
            self._written.unlink(missing_ok=True)


def _save(file: BinaryIO, suffix: str, found: Predictions) -> None:
    if suffix == ".npy":
        np.save(file, found.outputs)
        return
    np.savez(file, allow_pickle=False, **found.arrays())
