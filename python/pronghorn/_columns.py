"""Columns of a table by name: a client's table may have the model's features in any order, and others beside them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from pronghorn.errors import InputError

SHOWN = 10
"""Names in a message, at most."""
LONGEST = 256
"""Bytes of a name, as in `names.rs`."""
MOST_BYTES = 1 << 16
"""Of all names."""
MOST_WHOLE = 2.0**53
"""Below it floats have all whole numbers."""


def listed(names: Sequence[str]) -> str:
    """Names, as many as a line takes."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def unusable(names: Sequence[str]) -> str | None:
    """Why names of columns are of no use to clients; None where they are."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        return f"there are two of {listed(twice)}"
    if not all(names):
        return "one is empty"
    if not all(name.isprintable() and len(name.encode()) <= LONGEST for name in names):
        return f"one has more than {LONGEST} bytes, or hidden characters"
    numbers = [is_number(name) for name in names]
    if any(numbers) and not all(numbers):
        return "some are numbers, as if the first line held values"
    return "they are too long" if sum(len(name.encode()) for name in names) > MOST_BYTES else None


def is_name(text: str) -> bool:
    """Whether Python alone takes a text for a number, as it takes `1_000`: others write names so."""
    return "_" in text or not text.strip().isascii()


def is_number(text: str) -> bool:
    """Whether a text is a number, or stands for one that is missing."""
    if is_name(text):
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


def counted(names: Sequence[str]) -> bool:
    """Whether names are 0, 1 and so on, as pandas has them where nobody gave any."""
    return list(names) == [str(place) for place in range(len(names))]


def are_nameless(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Whether columns go by their places: the model's are counted, and those found have names of their own."""
    return counted(wanted) and not set(wanted) & set(found)


def frame_names(array: Any) -> tuple[str, ...]:
    """The names of the columns of a data frame, stripped; none of anything else."""
    refuse_lazy(array)
    names = getattr(array, "column_names", None)
    names = getattr(array, "columns", None) if names is None else names
    if names is None or callable(names):
        return ()
    return tuple(str(name).strip() for name in names)


def refuse_lazy(array: Any) -> None:
    """Refuses a frame of polars that has no values yet.

    Raises:
        InputError: it is one.
    """
    if callable(getattr(array, "collect_schema", None)) and callable(getattr(array, "collect", None)):
        raise InputError(f"a {type(array).__name__} has no values yet: give frame.collect()")


def as_input(name: str) -> str:
    """A column's name as scikit-learn's exporter writes that of an input: `mean radius` becomes `mean_radius`."""
    written = re.sub(r"[^\w+]", "_", name)
    return "_" + written if written[:1].isdigit() else written


def places(wanted: Sequence[str], found: Sequence[str], what: str) -> list[int]:
    """Where the columns of these names are among those found; whatever their case, where that is clear. A name may be
    that of an input that is called after the column.

    Raises:
        InputError: one is missing, or there are two of it.
    """
    exact, folded = _index(found), _index([name.casefold() for name in found])
    counts = Counter(name.casefold() for name in wanted)
    known = set(wanted)
    written = _index(["" if name in known else as_input(name) for name in found])

    def at(name: str) -> list[int]:
        # Names that differ in case alone are two.
        alike = folded.get(name.casefold(), []) if counts[name.casefold()] == 1 else []
        here = exact.get(name, alike)
        return [*here, *(place for place in written.get(name, []) if place not in here)]

    all_places = [at(name) for name in wanted]
    missing = [name for name, here in zip(wanted, all_places, strict=True) if not here]
    if missing:
        raise InputError(
            f"{what} lacks the columns {listed(missing)}: it has {listed(found)}; the model takes {listed(wanted)}\n"
            "  what to do: give columns the model's names; or give values without names, in the model's order"
        )
    twice = [name for name, here in zip(wanted, all_places, strict=True) if len(here) > 1]
    if twice:
        several = [found[place] for here in all_places if len(here) > 1 for place in here]
        raise InputError(f"{what} has the columns {listed(twice)} twice ({listed(several)}): leave one of each out")
    return [here[0] for here in all_places]


def in_order(array: Any, wanted: Sequence[str], what: str = "the data frame") -> Any:
    """A data frame's values as the model takes its columns; anything else as it is.

    Raises:
        InputError: as `places`.
    """
    found = frame_names(array)
    is_any = not wanted or are_nameless(wanted, found)
    if not found or (is_any and len(set(found)) < len(found)):
        return array
    order = range(len(found)) if is_any else places(wanted, found, what)
    names = list(getattr(array, "column_names", None) or array.columns)
    columns = {name: np.asarray(array[name]) for name in (names[place] for place in order)}
    if is_any and not any(map(_is_beyond_floats, columns.values())):
        return array
    for name, column in columns.items():
        if column.dtype.kind not in "fiubOU":
            raise InputError(f"column {name!r} of {what} has type {column.dtype}; numbers are needed")
    if any(column.dtype.kind in "OU" or _is_beyond_floats(column) for column in columns.values()):
        # Beside texts NumPy makes texts of numbers, and beside floats floats. What is no number is named later.
        columns = {name: column.astype(object) for name, column in columns.items()}
    try:
        return np.stack(list(columns.values()), axis=1)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} has columns that do not go together: {error}") from error


def _is_beyond_floats(column: np.ndarray[Any, Any]) -> bool:
    """Whether some whole numbers are none in floats."""
    return column.dtype.kind in "iu" and bool((np.abs(column.astype(np.float64)) >= MOST_WHOLE).any())


def _index(names: Sequence[str]) -> dict[str, list[int]]:
    """The places of each name."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(name, []).append(place)
    return found


def of_model(inputs: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """The names of a model's inputs, of which each is a column of its own; none of others."""
    are_columns = len(inputs) > 1 and all(size == 1 for _, size in inputs)
    return tuple(name for name, _ in inputs) if are_columns else ()
