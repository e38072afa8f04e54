"""Numbers whose differences single precision does not hold, as those of times in seconds."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn.errors import InputWarning

MUCH = 1 / 256
"""A rounding by more than this part of a column's range may change results."""

NOISE = 1e-12
"""Numbers that differ by less than this part of themselves are one number, but for rounding in double precision."""


def warn_of_rounding(exact: npt.NDArray[Any], what: str, names: Sequence[str] = ()) -> None:
    """Warns of columns that lose their differences in float32, which networks take.

    Args:
        exact: rows of numbers of any type.
        what: the rows' name.
        names: of their columns, or none.
    """
    if exact.ndim != 2 or len(exact) < 2 or exact.dtype.itemsize < 4 or exact.dtype == np.float32:
        return
    # What double precision rounds of whole numbers is nothing beside what single precision does.
    numbers = exact.astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        moved = np.abs(numbers - numbers.astype(np.float32)).max(axis=0)
        spans = np.ptp(numbers, axis=0)
        wrong = np.flatnonzero((moved > MUCH * spans) & (spans > NOISE * np.abs(numbers).max(axis=0)))
    if wrong.size == 0:
        return
    worst = int(wrong[0])
    name = f"column {names[worst]!r} of {what}" if len(names) == exact.shape[1] else f"{what}[:, {worst}]"
    warnings.warn(
        f"{name} has numbers near {exact[0, worst]:.6g} that differ by {spans[worst]:.4g} in all, and are rounded by "
        f"up to {moved[worst]:.4g} in float32, as networks take them: results may be wrong\n"
        "  what to do: subtract a number near all of them before, and train the model on the differences",
        InputWarning,
        stacklevel=5,
    )
