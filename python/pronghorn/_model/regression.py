"""Outputs that are values, compared with the values that they should have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MOST_LINES = 10
"""Outputs that are printed one by one, at most."""


@dataclass(frozen=True)
class Score:
    """The distance of outputs to the given values."""

    rmse: float
    """Root mean square of the differences."""
    r2: float | None
    """1 minus the squares of the differences over those of the given values about the mean of each
    output; None where these do not vary."""

    @classmethod
    def of(cls, found: npt.NDArray[np.float64], wanted: npt.NDArray[np.float64]) -> Score:
        """Of outputs `(images, outputs)`."""
        squares = float(np.square(found - wanted).sum())
        spread = float(np.square(wanted - wanted.mean(axis=0)).sum())
        return cls(float(np.sqrt(squares / wanted.size)), 1 - squares / spread if spread > 0 else None)

    def __str__(self) -> str:
        """For people."""
        return f"RMSE {self.rmse:.5g}" + ("" if self.r2 is None else f", R2 {self.r2:.4f}")


@dataclass(frozen=True)
class Scores:
    """Those of the three evaluators."""

    floating: Score
    fixed: Score
    secure: Score


@dataclass(frozen=True)
class Regression:
    """The scores of all outputs together, and of each."""

    total: Scores
    outputs: tuple[Scores, ...]
    """Of each value."""
    names: tuple[str, ...] = ()
    """The names of the values, of a model of several outputs; empty where there is one."""

    @classmethod
    def of(
        cls,
        wanted: npt.NDArray[np.float64],
        floating: npt.ArrayLike,
        fixed: npt.ArrayLike,
        secure: npt.ArrayLike,
        names: tuple[str, ...] = (),
    ) -> Regression:
        """Compares outputs `(images, ...)` with the wanted ones `(images, outputs)`."""
        found = [np.asarray(each, np.float64).reshape(wanted.shape) for each in (floating, fixed, secure)]
        each = (
            Scores(*(Score.of(values[:, [at]], wanted[:, [at]]) for values in found)) for at in range(wanted.shape[1])
        )
        return cls(Scores(*(Score.of(values, wanted) for values in found)), tuple(each), names)

    def lines(self, float_by: str, secure: bool) -> Iterator[str]:
        """For people; `secure`: whether there was a secure run, and not the oracle in its place."""
        yield f"against the labels, float model ({float_by}): {self.total.floating}"
        yield f"against the labels, fixed-point oracle: {self.total.fixed}"
        if secure:
            yield f"against the labels, secure run: {self.total.secure}"
        if len(self.outputs) > 1:
            for at, scores in enumerate(self.outputs[:MOST_LINES]):
                name = self.names[at] if self.names else f"output {at}"
                yield f"  {name}: {scores.secure} (float model: {scores.floating})"
            if len(self.outputs) > MOST_LINES:
                yield f"  and {len(self.outputs) - MOST_LINES} more outputs; --json has all"
