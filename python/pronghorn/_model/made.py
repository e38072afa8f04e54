"""Samples that are made of the owner's: a plan may have room for them, and its error is not theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pronghorn import _native
from pronghorn._arrays import Floats
from pronghorn._categories import Categories

MOST_COLUMNS = 128
"""Columns of which samples with rare values are made, at most."""
ROWS = 16
"""Samples with such values that a column needs: so many are made where there are fewer."""
MOST_ROWS = 1024
"""Of all columns, at most."""
OTHERS = {0.0: 1.0, 1.0: 0.0, -1.0: 1.0}
"""The rare value of a flag, by the one that all samples have."""
MOST_SHOWN = 3
"""Columns that a warning names, at most."""
FAR = 3.0
"""Errors of so many times the aim are told,"""
MOST_CHANGED = 0.1
"""and where a larger part of classes changes."""
WORTHWHILE = 0.5
"""Ranges that hold such values are worth a plan of their own where they leave at most this part of the error."""


@dataclass(frozen=True)
class Rare:
    """Samples with a rare value in a column that is the same in nearly all samples, and that a product reads."""

    rows: Floats
    """`(rows, *input_shape)`."""
    columns: npt.NDArray[np.int64]
    """The column of each."""
    are_classes: bool
    """Whether results are the indices of classes."""

    @classmethod
    def of(cls, samples: Floats, categories: Categories, native: _native.Model, *, are_classes: bool) -> Rare:
        """The rows for samples `(images, *input_shape)`, those alone for which the model has results. With few samples
        there are none: these tell little of any column."""
        indicators = {at for columns in categories.columns().values() for at in range(columns.start, columns.stop)}
        read = native.features_in_products() if len(samples) >= ROWS else []
        rows, columns = _with_rare(samples, [at for at in read if at not in indicators])
        kept = have_results(rows, native)
        return cls(rows[kept], columns[kept], are_classes)

    def errors(self, wanted: Floats, found: Floats) -> dict[int, float]:
        """The error of the results for each column, as a part of their spread over that column's rows; of classes the
        part that changes.

        Args:
            wanted: the float model's results, `(rows, *output_shape)`.
            found: the plan's.
        """
        wanted = wanted.reshape(len(wanted), -1).astype(np.float64)
        squares = np.square(found.reshape(wanted.shape) - wanted).mean(axis=1)
        errors = {}
        for at in np.unique(self.columns):
            rows = self.columns == at
            if self.are_classes:
                errors[int(at)] = float(np.mean(squares[rows] > 0.0))
                continue
            spread = np.square(wanted[rows] - wanted[rows].mean(axis=0)).mean()
            errors[int(at)] = float(np.sqrt(squares[rows].mean() / spread)) if spread > 0.0 else 0.0
        return errors

    def warning(self, errors: Mapping[int, float], aim: float, names: tuple[str, ...]) -> str | None:
        """That results are far less precise than was aimed at; None where they are not. `names`: of the columns, or
        none."""
        most = MOST_CHANGED if self.are_classes else FAR * aim
        far = [at for at, error in errors.items() if error > most]
        if not far:
            return None
        shown = [repr(names[at]) if at < len(names) else str(at) for at in far[:MOST_SHOWN]]
        more = f" and {len(far) - MOST_SHOWN} more" if len(far) > MOST_SHOWN else ""
        one = len(far) == 1
        columns = f"column {shown[0]}, which has" if one else f"columns {', '.join(shown)}{more}, which have"
        results = "often have other classes" if self.are_classes else "are far less precise than expected"
        return (
            f"products or functions read {columns} one value in nearly all samples: results of inputs with other "
            f"values there {results}\n"
            f"  what to do: give {ROWS} samples or more with other values in {'it' if one else 'each'}"
        )


def have_results(rows: Floats, native: _native.Model) -> npt.NDArray[np.bool_]:
    """Of each row whether the model has results: rows of padding alone may have none."""
    if not len(rows):
        return np.zeros(0, bool)
    try:
        results = native.run_float(rows, None)
    except _native.NativeError:
        return np.zeros(len(rows), bool)
    return np.asarray(np.isfinite(results.reshape(len(rows), -1)).all(axis=1), bool)


def _with_rare(samples: Floats, columns: list[int]) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Samples, some of them, with a rare value in a column that has its usual one in nearly all: where a product reads
    it, they tell nothing of the product. It is the one farthest from the usual, or that of a flag. The column of each,
    too.
    """
    flat = samples.reshape(len(samples), -1)
    read = flat[:, columns]
    usual = np.partition(read, len(flat) // 2, axis=0)[len(flat) // 2]
    away = np.abs(read - usual)
    others = {}
    for place in np.flatnonzero(np.count_nonzero(away, axis=0) < min(ROWS, len(flat) // 2)):
        farthest = read[away[:, place].argmax(), place]
        other = farthest if farthest != usual[place] else OTHERS.get(float(usual[place]))
        if other is not None:
            others[columns[place]] = other
    rare = np.array(list(others)[:MOST_COLUMNS], np.int64)
    of_rows = np.tile(rare, min(ROWS, MOST_ROWS // max(len(rare), 1)))
    rows: Floats = flat[np.linspace(0, len(flat) - 1, len(of_rows)).astype(int)]
    rows[np.arange(len(rows)), of_rows] = [others[at] for at in of_rows]
    return rows.reshape(-1, *samples.shape[1:]), of_rows


BEYOND = 1 / 8
"""How far beyond its thresholds a feature's values are kept apart, as a part of what lies between these."""


def within_thresholds(samples: Floats, thresholds: Mapping[int, tuple[float, float]]) -> tuple[Floats, Floats]:
    """Samples whose features end not far beyond the thresholds they are compared with, and two rows of these ends.

    Comparisons say the same of them. So ranges hold all thresholds, and no value far beyond them takes bits away.
    """
    kept = samples.copy()
    ends = np.repeat(samples[:1], 2, axis=0)
    for feature, (low, high) in thresholds.items():
        # Of one threshold alone, the distances of samples tell how far to look.
        values = samples[:, feature].astype(np.float64)
        apart = np.abs(values - low)
        typical = float(np.median(apart[apart > 0])) if (apart > 0).any() else abs(low)
        width = high - low or typical or 1.0
        # The samples' own ends, so that inputs like them are not said to be clamped.
        least, most = max(values.min(), low - width), min(values.max(), high + width)
        ends[:, feature] = min(least, low - BEYOND * width), max(most, high + BEYOND * width)
        kept[:, feature] = np.clip(samples[:, feature], *ends[:, feature])
    return kept, ends
