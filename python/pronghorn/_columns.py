"""Columns of a table by name: a client's table may have the model's features in any order, and others beside them."""

from __future__ import annotations

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


def listed(names: Sequence[str]) -> str:
    """Names, as many as a line takes."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def unusable(names: Sequence[str]) -> str | None:
    """Why names of columns are of no use to clients; None where they are."""
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        return f"there are two of {listed(twice)}"
    if not all(names):
        return "one is empty"
    if not all(name.isprintable() and len(name.encode()) <= LONGEST for name in names):
        return f"one has more than {LONGEST} bytes, or hidden characters"
    return "they are too long" if sum(len(name.encode()) for name in names) > MOST_BYTES else None


def frame_names(array: Any) -> tuple[str, ...]:
    """The names of the columns of a data frame, stripped; none of anything else, and of columns that have numbers."""
    names = getattr(array, "column_names", None)
    names = getattr(array, "columns", None) if names is None else names
    if names is None or callable(names):
        return ()
    found = list(names)
    return tuple(str(name).strip() for name in found) if any(isinstance(name, str) for name in found) else ()


def places(wanted: Sequence[str], found: Sequence[str], what: str) -> list[int]:
    """Where the columns of these names are among those found; whatever their case, where that is clear.

    Raises:
        InputError: one is missing, or there are two of it.
    """
    folded = [name.casefold() for name in found]

    def at(name: str) -> list[int]:
        exact = [place for place, other in enumerate(found) if other == name]
        return exact or [place for place, other in enumerate(folded) if other == name.casefold()]

    all_places = [at(name.strip()) for name in wanted]
    missing = [name for name, here in zip(wanted, all_places, strict=True) if not here]
    if missing:
        raise InputError(
            f"{what} lacks the columns {listed(missing)}: it has {listed(found)}; the model takes {listed(wanted)}\n"
            "  what to do: give columns the model's names; or give values without names, in the model's order"
        )
    twice = [name for name, here in zip(wanted, all_places, strict=True) if len(here) > 1]
    if twice:
        raise InputError(f"{what} has the columns {listed(twice)} twice: leave one of each out")
    return [here[0] for here in all_places]


def in_order(array: Any, wanted: Sequence[str], what: str = "the data frame") -> Any:
    """A data frame's values as the model takes its columns; anything else as it is.

    Raises:
        InputError: as `places`.
    """
    found = frame_names(array)
    if not wanted or not found:
        return array
    names = list(getattr(array, "column_names", None) or array.columns)
    chosen = [names[place] for place in places(wanted, found, what)]
    return np.stack([np.asarray(array[name]) for name in chosen], axis=1)


def of_model(inputs: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """The names of a model's inputs, of which each is a column of its own; none of others."""
    are_columns = len(inputs) > 1 and all(size == 1 for _, size in inputs)
    return tuple(name for name, _ in inputs) if are_columns else ()
