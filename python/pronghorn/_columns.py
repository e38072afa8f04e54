"""Columns of a table by name: a client's table may have the model's features in any order, and others beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pronghorn.errors import InputError

SHOWN = 10
"""Names in a message, at most."""


def listed(names: Sequence[str]) -> str:
    """Names, as many as a line takes."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def names_of(names: Sequence[Any]) -> tuple[str, ...]:
    """Names that tell columns apart, stripped; none where they do not, or are numbers of columns."""
    found = tuple(str(name).strip() for name in names)
    keys = {_key(name) for name in found}
    tell = len(keys) == len(found) and all(found) and not all(name.isdecimal() for name in found)
    return found if tell else ()


def frame_columns(array: Any) -> tuple[str, ...]:
    """The names of the columns of a data frame; none of anything else."""
    columns = getattr(array, "columns", None)
    return () if columns is None or callable(columns) else names_of(list(columns))


def places(wanted: Sequence[str], found: Sequence[str], what: str) -> list[int]:
    """Where the columns of these names are among those found, whatever their case.

    Raises:
        InputError: one is missing, or there are two of it.
    """
    keys = [_key(name) for name in found]
    missing = [name for name in wanted if _key(name) not in keys]
    if missing:
        raise InputError(
            f"{what} lacks the columns {listed(missing)}: it has {listed(found)}; the model takes {listed(wanted)}\n"
            "  what to do: give columns the model's names; or give values without names, in the model's order"
        )
    counts = Counter(keys)
    twice = [name for name in wanted if counts[_key(name)] > 1]
    if twice:
        raise InputError(f"{what} has the columns {listed(twice)} twice: leave one of each out")
    return [keys.index(_key(name)) for name in wanted]


def in_order(array: Any, wanted: Sequence[str], what: str = "the data frame") -> Any:
    """A data frame's columns as the model takes them; anything else as it is.

    Raises:
        InputError: as `places`.
    """
    found = frame_columns(array)
    if not wanted or not found:
        return array
    names = list(array.columns)
    return array[[names[place] for place in places(wanted, found, what)]]


def _key(name: str) -> str:
    return name.strip().casefold()
