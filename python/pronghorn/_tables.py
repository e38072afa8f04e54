"""Tables: CSV files, also gzipped, and parquet files with pyarrow. Rows are inputs, columns are features."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Container, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pronghorn._columns import MOST_WHOLE, are_nameless, is_name, listed, places
from pronghorn._headers import DECIMAL_COMMA, TRUTHS, has_names
from pronghorn.errors import InputError

Array = npt.NDArray[Any]

TEXT_SUFFIXES = (".csv", ".tsv")
TABLE_SUFFIXES = (*TEXT_SUFFIXES, ".parquet")
LABEL_COLUMNS = ("label", "labels", "target", "y")
"""Columns that are taken for labels, whatever their case, where no other is named."""
LOCAL_NUMBER = re.compile(r"[+-]?\d+,\d+")
"""A number with a comma before the fraction."""
DECORATED = re.compile(r"\s*[^\w\s.+-]?\s*[+-]?(\d+|\d{1,3}(?:[,'\u2019 ]\d{3})+)(\.\d*)?\s*[^\w\s.,]?\s*")
"""Numbers with thousands separators, or with a sign such as % or $ on either side."""


class _Column(NamedTuple):
    name: str
    values: list[Any]
    """As the file has them: texts in CSV."""


class Table(NamedTuple):
    """The numbers of a table, and its categories."""

    values: Array
    """`(rows, columns)`."""
    labels: Array | None
    """Numbers, or as the file has them where they are others or written otherwise."""
    names: tuple[str, ...]
    """Of the columns of numbers; none where the file has none."""


class _Content(NamedTuple):
    has_names: bool
    columns: list[_Column]
    lines: list[int]
    """The line or row of each value, for errors."""


def is_table(path: Path) -> bool:
    """Whether a file is a table, by its name."""
    return _kind(path) in TABLE_SUFFIXES


def _kind(path: Path) -> str:
    """The suffix of a file, and of a gzipped text the one before."""
    name = path.name.lower()
    plain = Path(name.removesuffix(".gz")).suffix
    return plain if plain in TEXT_SUFFIXES else Path(name).suffix


def _open(path: Path) -> IO[bytes]:
    """The bytes of a file, as they were before it was gzipped."""
    return cast("IO[bytes]", gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def whole(values: Array) -> Array:
    """Numbers as integers, where all are."""
    is_whole = (values % 1 == 0).all() and (np.abs(values) < MOST_WHOLE).all()
    return values.astype(np.int64) if is_whole else values


def read_table(
    path: Path,
    label_column: str | None = None,
    features: int | None = None,
    wanted: Sequence[str] = (),
    has_header: bool | None = None,
    categories: Container[int] = (),
) -> Table:
    """A table without the column of labels, and the labels.

    Args:
        path: the file.
        label_column: the name of the column of labels; by default one of `LABEL_COLUMNS`.
        features: the columns that a model takes. Where the table has no more, none is taken for
            labels unasked.
        wanted: the names of the columns that a model takes, in its order; none: all columns, in the file's order. A
            file without names has them in the model's order.
        categories: the places of columns that are categories, whose cells stay as they are.
        has_header: whether the first line of CSV has names; where None, it has where a cell of it is no number, or
            where its numbers are clearly names.

    Raises:
        InputError: the file cannot be read, a cell is no number, or there is no such column.
    """
    content = _read(path, wanted, has_header)
    names = [column.name for column in content.columns]
    if label_column in wanted:
        raise InputError(f"--labels {label_column}: the model takes this column, so it holds no labels")
    if label_column is not None and label_column not in names:
        raise InputError(f"--labels {label_column} is no file, and no column of {path}, which has {listed(names)}")
    spare = features is None or len(names) > features
    of_labels = (label_column,) if label_column is not None else LABEL_COLUMNS if spare else ()
    features_too = {name.casefold() for name in wanted}
    keys = [name if label_column else name.lower() for name in names]
    # The first of these names that a column has, and not the first column.
    labels_at = (keys.index(name) for name in of_labels if name in keys and name not in features_too)
    at = next(labels_at, None)
    rest = [column for i, column in enumerate(content.columns) if i != at]
    own = tuple(column.name for column in rest) if content.has_names else ()
    if wanted and content.has_names and not are_nameless(wanted, own):
        what = (
            str(path)
            if path.suffix.lower() == ".parquet"
            else f"{path}, whose line 1 has names (else say --no-header),"
        )
        rest = [rest[place] for place in places(wanted, own, what)]
        own = tuple(wanted)
    values = [
        np.array(column.values, object) if place in categories else _numbers(path, column, content.lines)
        for place, column in enumerate(rest)
    ]
    labels = None if at is None else _labels(content.columns[at])
    return Table(np.stack(values, axis=1) if values else np.empty((len(content.lines), 0)), labels, own)


def _read(path: Path, wanted: Sequence[str] = (), has_header: bool | None = None) -> _Content:
    return _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path, wanted, has_header)


def _delimiter(path: Path, lines: list[str]) -> str:
    """That of a file, by its first lines: names may have commas."""
    if _kind(path) == ".tsv" and "\t" in lines[0]:
        return "\t"
    if all(";" in line and "\t" not in line and _has_local_numbers(line) for line in lines if line.strip()):
        return ";"
    return max(",;\t", key=lambda each: min(line.count(each) for line in lines if line.strip() or line is lines[0]))


def _has_local_numbers(line: str) -> bool:
    """Whether all commas between semicolons are those of fractions."""
    return all("," not in cell or LOCAL_NUMBER.fullmatch(cell.strip()) for cell in line.split(";"))


def _read_csv(path: Path, wanted: Sequence[str], has_header: bool | None) -> _Content:
    try:
        with _open(path) as content, io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as file:
            first = [file.readline(), file.readline()]
            file.seek(0)
            reader = csv.reader(file, delimiter=_delimiter(path, first))
            rows = [(reader.line_num, row) for row in reader if row]
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}{_encoding_advice(path, error)}") from error
    if not rows:
        raise InputError(f"{path} is empty")
    width = len(rows[0][1])
    for line, row in rows:
        if len(row) != width:
            raise InputError(f"line {line} of {path} has {len(row)} cells, the first has {width}")
    header = has_names(path, [row for _, row in rows], wanted, has_header)
    names = [cell.strip() for cell in rows[0][1]] if header else [str(index + 1) for index in range(width)]
    rows = rows[1:] if header else rows
    columns = [_Column(name, [row[index] for _, row in rows]) for index, name in enumerate(names)]
    return _Content(header, columns, [line for line, _ in rows])


def _encoding_advice(path: Path, error: Exception) -> str:
    """The way to text that can be read; empty where something else is wrong."""
    if not isinstance(error, UnicodeDecodeError):
        return ""
    with _open(path) as file:
        is_wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return f"\n  what to do: save it as UTF-8{', not UTF-16' if is_wide else ''}"


def _read_parquet(path: Path) -> _Content:
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError(f"{path} needs pyarrow: pip install pyarrow, or save the table as CSV") from None
    try:
        table = pyarrow.parquet.read_table(path)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{path} cannot be read as parquet: {error}") from error
    columns = [
        _Column(str(name).strip(), column.to_pylist())
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return _Content(True, columns, list(range(1, table.num_rows + 1)))


def _number(cell: Any) -> float | None:
    """A finite number, or that of a boolean; None for anything else."""
    if isinstance(cell, str) and cell.strip().lower() in TRUTHS:
        return TRUTHS[cell.strip().lower()]
    if isinstance(cell, str) and is_name(cell):
        return None
    try:
        number = float(cell)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _numbers(path: Path, column: _Column, lines: list[int]) -> Array:
    found = [_number(value) for value in column.values]
    if None in found:
        at = found.index(None)
        where = f"row {lines[at]}, column {column.name!r} of {path}"
        value = column.values[at]
        raise InputError(f"{where} holds {value!r}, which is no number\n  what to do: {_advice(value)}")
    return np.array(found, np.float64)


def _advice(value: Any) -> str:
    """The way to a number."""
    if isinstance(value, str) and DECIMAL_COMMA.fullmatch(value):
        return "write a decimal point where this has a decimal comma, and no thousands separators: 57.0, not 57,0"
    if isinstance(value, str) and DECORATED.fullmatch(value):
        return (
            "write plain numbers in the model's unit, without thousands separators and signs such as % and $: "
            "1564.0, not 1,564.0"
        )
    return (
        "leave such rows or columns out; a column of labels has the name "
        f"{', '.join(LABEL_COLUMNS[:-1])} or {LABEL_COLUMNS[-1]}, or is named by --labels"
    )


def _labels(column: _Column) -> Array:
    """Numbers, or texts where these are others than numbers are written as, such as `01` and `true`."""
    texts = np.array([str(value) for value in column.values])
    numbers = numbers_of(texts)
    if numbers is None or (numbers.dtype.kind == "i" and (numbers.astype(str) != texts).any()):
        return texts
    return numbers


def numbers_of(texts: Array) -> Array | None:
    """The numbers that texts are, as integers where all are; None where one is no number."""
    found = [_number(text) for text in texts.ravel().tolist()]
    return None if None in found else whole(np.array(found, np.float64).reshape(texts.shape))


def header(path: Path, has_header: bool | None = None) -> tuple[str, ...]:
    """The names of a table's columns; none where it has none. `has_header`: as for `read_table`.

    Raises:
        InputError: it cannot be read.
    """
    content = _read(path, has_header=has_header)
    return tuple(column.name for column in content.columns) if content.has_names else ()


def only_labels(path: Path) -> Array:
    """The labels of a table: its column of labels, or its only one.

    Raises:
        InputError: it cannot be read, or has several columns and none of labels.
    """
    columns = _read(path).columns
    named = next((column for column in columns if column.name.lower() in LABEL_COLUMNS), None)
    if named is None and len(columns) != 1:
        raise InputError(f"{path} has {len(columns)} columns: name the one of the labels 'labels'")
    return _labels(named or columns[0])
