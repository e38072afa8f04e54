"""Images of files of any size, of which a part at a time is in memory.

Files of arrays (npy, npz, IDX) and folders of pictures are read in parts. Tables and single pictures are read whole.
"""

from __future__ import annotations

import gzip
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from pronghorn._categories import NO_CATEGORIES, Categories
from pronghorn._data import (
    IDX_TYPES,
    IMAGE_KEYS,
    LABEL_KEYS,
    Preprocessing,
    are_bytes,
    arrange,
    folder_pictures,
    labels_beside,
    misfit,
    pick,
    read_images,
    read_picture,
    refuse_empty,
    refuse_unscaled,
    rows_of,
    titles_of,
)
from pronghorn._tables import is_table
from pronghorn.errors import InputError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Shape = tuple[int, ...]
Read = Callable[[int, int], Array]

LOOKED_AT = 256
"""Images that are looked at to see what a file has."""


@dataclass(frozen=True)
class _Raw:
    """Images as a file has them."""

    shape: Shape
    dtype: np.dtype[Any]
    read: Read
    """Rows from one to before another."""
    labels: Array | None = None


@dataclass(frozen=True)
class Opened:
    """The images of a file or a folder."""

    path: Path
    count: int
    labels: Array | None
    were_bytes: bool
    """Whether the file has bytes."""
    read: Callable[[int, int], Floats]
    """Images from one to before another, `(images, *shape)`, preprocessed."""
    titles: Callable[[int, int], list[str]]
    """What to call them."""


class Images:
    """The images of several files as one row of them, of which only parts are in memory."""

    def __init__(self, opened: Sequence[Opened], limit: int | None) -> None:
        """`limit`: the first so many."""
        self._opened = list(opened)
        self.total = sum(each.count for each in self._opened)
        self._count = self.total if limit is None else min(limit, self.total)

    def __len__(self) -> int:
        """How many."""
        return self._count

    def __getitem__(self, part: slice) -> Floats:
        """A part of them, `(images, *shape)`, preprocessed: a slice without steps."""
        first, last, _ = part.indices(self._count)
        parts = [each.read(start, end) for each, start, end in self._parts(first, last)]
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def checked(self, first: int, last: int) -> Floats:
        """A part of them.

        Raises:
            InputError: one holds no number.
        """
        part = self[first:last]
        finite = np.isfinite(part.reshape(len(part), -1)).all(axis=1)
        if not finite.all():
            raise InputError(f"{self.titles(first, last)[int(finite.argmin())]} holds infinite values or NaN")
        return part

    def titles(self, first: int, last: int) -> list[str]:
        """What to call a part of them."""
        return [title for each, start, end in self._parts(first, last) for title in each.titles(start, end)]

    def _parts(self, first: int, last: int) -> Iterator[tuple[Opened, int, int]]:
        before = 0
        for each in self._opened:
            start, end = max(first - before, 0), min(last - before, each.count)
            if start < end:
                yield each, start, end
            before += each.count


def open_images(
    path: Path,
    shape: Shape,
    preprocessing: Preprocessing,
    label_column: str | None = None,
    columns: Sequence[str] = (),
    categories: Categories = NO_CATEGORIES,
) -> Opened:
    """The images of a file, or of all pictures of a folder, and labels where it has them.

    `columns`: the names of the features that the model takes, where they are known. `categories`: the values of a row
    that are categories.

    Raises:
        InputError: the file is missing, damaged, or does not fit the model.
    """
    if categories.each:
        return _open_rows(path, shape, preprocessing, label_column, columns, categories)
    raw = _raw(path, shape, preprocessing, label_column, columns)
    refuse_empty(path, raw.shape)
    try:
        arranged = arrange(np.broadcast_to(np.empty((), raw.dtype), raw.shape), shape)
    except ValueError:
        raise misfit(path, raw.shape, shape) from None
    count = len(arranged)
    # One image without a dimension of images.
    is_one = count == 1 and raw.shape[0] != 1
    if preprocessing.scale is None and preprocessing.byte_scale != 1:
        refuse_unscaled(path, raw.read(0, raw.shape[0] if is_one else min(count, LOOKED_AT)), shape)

    def read(first: int, last: int) -> Floats:
        rows = raw.read(0, raw.shape[0]) if is_one else raw.read(first, last)
        return preprocessing.apply(arrange(rows, shape), shape)

    names = titles_of(path, count) if path.is_dir() or count == 1 else None

    def titles(first: int, last: int) -> list[str]:
        return names[first:last] if names else [f"{path.name}[{index}]" for index in range(first, last)]

    return Opened(path, count, raw.labels, are_bytes(raw.dtype, shape), read, titles)


def _open_rows(
    path: Path,
    shape: Shape,
    preprocessing: Preprocessing,
    label_column: str | None,
    columns: Sequence[str],
    categories: Categories,
) -> Opened:
    """Rows of numbers and categories, which are small until indicators stand for these."""
    raw, labels, names = read_images(path, shape, preprocessing, label_column, columns, categories)
    rows = rows_of(path, raw, preprocessing, categories)
    titles = titles_of(path, len(rows))

    def read(start: int, end: int) -> Floats:
        return categories.encode(rows[start:end], shape, str(path), names)

    return Opened(path, len(rows), labels, False, read, lambda start, end: titles[start:end])


def _raw(
    path: Path, shape: Shape, preprocessing: Preprocessing, label_column: str | None, columns: Sequence[str]
) -> _Raw:
    if path.is_dir():
        pictures = folder_pictures(path)
        first = read_picture(pictures[0], shape, preprocessing)

        def read(start: int, end: int) -> Array:
            return np.concatenate([read_picture(each, shape, preprocessing) for each in pictures[start:end]])

        return _Raw((len(pictures), *first.shape[1:]), first.dtype, read)
    kind = b"" if is_table(path) else _first_bytes(path)
    with _reading(path):
        if kind[:6] == b"\x93NUMPY":
            found = _npy(path, lambda: path.open("rb"))
        elif kind[:2] == b"PK":
            found = _npz(path)
        elif kind[:2] in (b"\x1f\x8b", b"\0\0"):
            found = _idx(path, kind[:2] == b"\x1f\x8b")
        else:
            found = None
    if found is not None:
        return found
    images, labels, _ = read_images(path, shape, preprocessing, label_column, columns)
    return _Raw(images.shape, images.dtype, lambda start, end: images[start:end], labels)


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(6)
    except OSError:
        # Whoever reads it whole says why.
        return b""


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, EOFError, KeyError, zlib.error, zipfile.BadZipFile) as error:
        kinds = "npz, npy, IDX and CSV (both also gzipped), parquet"
        raise InputError(f"{path} cannot be read ({error}); {kinds} and image files are supported") from error


def _rows(path: Path, open_file: Callable[[], IO[bytes]], start: int, shape: Shape, dtype: np.dtype[Any]) -> Read:
    """Reads rows of a file, which stays open. One after the other is fast where it is compressed."""
    opened: list[IO[bytes]] = []
    width = math.prod(shape[1:]) * dtype.itemsize

    def read(first: int, last: int) -> Array:
        with _reading(path):
            if not opened:
                opened.append(open_file())
            opened[0].seek(start + first * width)
            wanted = (last - first) * width
            found = bytearray()
            while len(found) < wanted and (more := opened[0].read(wanted - len(found))):
                found += more
            if len(found) < wanted:
                raise ValueError(f"it ends before the {shape[0]} images that it says it has")
            values = np.frombuffer(found, dtype).reshape(last - first, *shape[1:])
            return values.astype(dtype.newbyteorder("="), copy=False)

    return read


def _npy_header(file: IO[bytes]) -> tuple[Shape, bool, np.dtype[Any], int]:
    """Shape, whether columns come first, type, and where the values begin."""
    version = np.lib.format.read_magic(file)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in headers:
        raise ValueError(f"version {version} of npy")
    shape, by_columns, dtype = headers[version](file)
    return shape, by_columns, dtype, file.tell()


def _npy(path: Path, open_file: Callable[[], IO[bytes]]) -> _Raw | None:
    """None where it has to be read whole."""
    with open_file() as file:
        shape, by_columns, dtype, start = _npy_header(file)
    if by_columns or dtype.kind not in "fiub" or not shape:
        return None
    return _Raw(shape, dtype.newbyteorder("="), _rows(path, open_file, start, shape, dtype))


def _npz(path: Path) -> _Raw | None:
    with zipfile.ZipFile(path) as archive:
        names = {name.removesuffix(".npy"): name for name in archive.namelist()}
    images = pick(path, names, IMAGE_KEYS, "images")

    def open_member() -> IO[bytes]:
        return zipfile.ZipFile(path).open(names[images])

    found = _npy(path, open_member)
    if found is None:
        return None
    key = next((key for key in LABEL_KEYS if key in names and key != images), None)
    if key is None:
        return found
    with np.load(path, allow_pickle=False) as archive:
        return _Raw(found.shape, found.dtype, found.read, archive[key])


def _idx(path: Path, is_compressed: bool) -> _Raw:
    def open_file() -> IO[bytes]:
        return cast("IO[bytes]", gzip.open(path, "rb")) if is_compressed else path.open("rb")

    with open_file() as file:
        start = file.read(4)
        if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in IDX_TYPES or start[3] == 0:
            raise ValueError("not a known format")
        rank = start[3]
        sizes = file.read(4 * rank)
    if len(sizes) < 4 * rank:
        raise ValueError("its header is cut")
    shape = tuple(int.from_bytes(sizes[at : at + 4], "big") for at in range(0, 4 * rank, 4))
    dtype = np.dtype(IDX_TYPES[start[2]])
    read = _rows(path, open_file, 4 + 4 * rank, shape, dtype)
    return _Raw(shape, dtype.newbyteorder("="), read, labels_beside(path))
