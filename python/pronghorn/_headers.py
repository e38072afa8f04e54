"""Whether the first line of a CSV file has names of columns, or values: names may be numbers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

from pronghorn._columns import is_number, listed
from pronghorn.errors import InputError, InputWarning

WHOLE = re.compile(r"[0-9]{1,18}")
"""How whole numbers are written that are names of columns."""
INTEGER = re.compile(r"[+-]?[0-9]+")
"""How integers are written among values: floats have a point or an exponent."""
TRUTHS = {"true": 1.0, "false": 0.0}
"""Booleans, as pandas writes them."""
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d[\d. ]*,\d+\s*")
"""Numbers as some languages write them, with a comma before the fraction."""
ENOUGH = 8
"""Rows from which on the first line's being outside a column's range says something."""


def has_names(path: Path, rows: Sequence[Sequence[str]], wanted: Sequence[str], told: bool | None) -> bool:
    """Whether the first row of a file has names.

    Args:
        path: the file, for messages.
        rows: all rows.
        wanted: the names of the columns that a model takes.
        told: what the user says; None where nothing is said.

    Raises:
        InputError: its numbers may be either, and nothing is said.
    """
    first = [cell.strip() for cell in rows[0]]
    if told is not None:
        return told
    if any(map(_is_name, first)):
        return True
    has_all = bool(wanted) and set(first) >= set(wanted)
    # Names that are numbers, such as years, are known by those that the model takes; but places are no names.
    if has_all and set(wanted) != {str(place) for place in range(len(wanted))}:
        return True
    # An index of rows that pandas writes has an empty name.
    skipped = int(len(first) > 2 and not first[0])
    names, below = first[skipped:], [[cell.strip() for cell in row[skipped:]] for row in rows[1:]]
    return (_in_sequence(names) or has_all) and _are_names(path, names, below)


def _is_name(cell: str) -> bool:
    """Whether a cell is no value."""
    is_value = is_number(cell) or cell.lower() in TRUTHS or DECIMAL_COMMA.fullmatch(cell) is not None
    return bool(cell) and not is_value


def _in_sequence(cells: Sequence[str]) -> bool:
    """Whether cells are two or more whole numbers, each the one before and 1."""
    if len(cells) < 2 or not all(WHOLE.fullmatch(cell) for cell in cells):
        return False
    return [str(int(cells[0]) + place) for place in range(len(cells))] == list(cells)


def _are_names(path: Path, names: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether whole numbers in sequence are names, by how they differ from the values below.

    Raises:
        InputError: that is not clear.
    """
    from_zero = "0" in names
    columns = list(zip(*below, strict=True))
    # Rows that go on like the first are values: so are rows of one ramp.
    goes_on = bool(below) and _in_sequence(below[0])
    written = [not any(INTEGER.fullmatch(cell) for cell in column) for column in columns]
    apart = [_is_outside(name, column) for name, column in zip(names, columns, strict=False)]
    if below and all(written) and len(names) > 2 and (from_zero or len(below) >= ENOUGH):
        return True
    if not from_zero:
        if len(names) < 3 or goes_on or not below:
            return False
        differs = [form or outside for form, outside in zip(written, apart, strict=True)]
        if all(differs) and len(below) >= ENOUGH:
            return True
        if sum(differs) * 2 < len(names):
            return False
    elif below and not goes_on and (any(written) or (sum(apart) * 2 > len(names) and len(below) >= ENOUGH)):
        warnings.warn(
            f"the first line of {path}, {listed(names)}, is taken for names of its columns\n"
            "  what to do: --header says so, and --no-header takes it for values",
            InputWarning,
            stacklevel=2,
        )
        return True
    elif len(names) == 2 and below:
        # One row of two bits in four is this.
        warnings.warn(
            f"the first line of {path}, {listed(names)}, is taken for values\n"
            "  what to do: --no-header says so, and --header takes it for names of columns",
            InputWarning,
            stacklevel=2,
        )
        return False
    raise InputError(
        f"the first line of {path}, {listed(names)}, may be names of its columns or values\n"
        "  what to do: say --header or --no-header; or write names that are no numbers, and values with a point (0.0)"
    )


def _is_outside(name: str, column: Sequence[str]) -> bool:
    """Whether a number is outside the range of a column's."""
    values = [float(cell) for cell in column if is_number(cell)]
    return not values or not min(values) <= float(name) <= max(values)
