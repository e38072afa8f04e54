"""Samples that are made of the owner's: a plan has room for them, but they tell no errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pronghorn import _native
from pronghorn._arrays import Floats
from pronghorn._categories import Categories

MOST_COLUMNS = 32
"""Columns of which there are samples with values other than 0, at most."""
ROWS = 16
"""Samples with such values that a column needs: so many are made where there are fewer."""
MOST_SHOWN = 3
"""Columns that a warning names, at most."""


@dataclass(frozen=True)
class Made:
    """Rows with values that no sample has."""

    rows: Floats
    """`(rows, *input_shape)`."""
    categories: bool
    """Whether some have categories that no sample has."""
    columns: tuple[int, ...]
    """The columns of which hardly any sample has more than 0."""

    @classmethod
    def of(cls, samples: Floats, categories: Categories, native: _native.Model) -> Made:
        """The rows for samples `(images, *input_shape)`, those alone for which the model has results."""
        lacking = categories.lacking(samples)
        indicators = {at for columns in categories.columns().values() for at in range(columns.start, columns.stop)}
        columns = [at for at in native.features_in_products() if at not in indicators]
        rare, columns = _with_rare(samples, columns)
        made = np.concatenate([lacking, rare])
        if len(made):
            try:
                results = native.run_float(made, None)
            except _native.NativeError:
                return cls(made[:0], False, ())
            # Rows of padding alone may have none.
            made = made[np.isfinite(results.reshape(len(made), -1)).all(axis=1)]
        return cls(made, len(lacking) > 0, tuple(columns))

    def warning(self, names: tuple[str, ...]) -> str | None:
        """That samples tell too little of some columns; None where they tell enough. `names`: of all, or none."""
        if not self.columns:
            return None
        shown = [repr(names[at]) if at < len(names) else str(at) for at in self.columns[:MOST_SHOWN]]
        more = f" and {len(self.columns) - MOST_SHOWN} more" if len(self.columns) > MOST_SHOWN else ""
        one = len(self.columns) == 1
        columns = f"column {shown[0]}, which is" if one else f"columns {', '.join(shown)}{more}, which are"
        return (
            f"products or functions read {columns} 0 in all samples but {ROWS - 1} or fewer: results of inputs with "
            "other values there may be far less precise than expected\n"
            f"  what to do: give {ROWS} samples or more with other values in {'it' if one else 'each'}"
        )


def _with_rare(samples: Floats, columns: list[int]) -> tuple[Floats, list[int]]:
    """Samples, some of them, with a value in each of the columns that (nearly) all samples have 0 in: where a product
    reads it, they tell nothing of the product. It is the column's farthest value, or 1. These columns, too.
    """
    flat = samples.reshape(len(samples), -1)
    rare = [at for at in columns if np.count_nonzero(flat[:, at]) < min(ROWS, len(flat))][:MOST_COLUMNS]
    if not rare:
        return samples[:0], rare
    farthest = flat[np.abs(flat[:, rare]).argmax(axis=0), rare]
    places = np.linspace(0, len(flat) - 1, ROWS * len(rare)).astype(int)
    rows: Floats = flat[places]
    rows[np.arange(len(rows)), np.tile(rare, ROWS)] = np.tile(np.where(farthest == 0.0, 1.0, farthest), ROWS)
    return rows.reshape(-1, *samples.shape[1:]), rare
