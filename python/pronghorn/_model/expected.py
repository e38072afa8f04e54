"""The expected error of a plan."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

from pronghorn import _native
from pronghorn.errors import PrecisionWarning


@dataclass(frozen=True)
class ExpectedError:
    """The difference of a plan's results to the float model's, measured on samples while planning.

    A secure run gives what the plan's network gives in the clear, so this is its error too.
    """

    error: float
    """Root mean square of the differences, before a Softmax or the like, over that of the float
    model's outputs about the mean of each. With fewer than eight samples: over that of the outputs."""
    aim: float
    """What the planner aimed at (`error=`, or a default)."""
    about_mean: bool
    """Whether the error is about the mean."""
    alike: float
    """The share of the samples whose largest output is the float model's."""
    images: int
    """Samples that it was measured on."""
    _text: str = field(repr=False)
    _warning: str | None = field(repr=False)

    @classmethod
    def of(cls, compiled: _native.Compiled) -> ExpectedError:
        """That of a compiled plan."""
        found = compiled.fidelity
        numbers = (found[name] for name in ("error", "aim", "about_mean", "alike", "images", "text", "warning"))
        return cls(*numbers)

    def __str__(self) -> str:
        """A line for people."""
        return self._text

    def warn(self, stacklevel: int) -> None:
        """Warns where the aim is missed by far."""
        if self._warning is not None:
            warnings.warn(self._warning, PrecisionWarning, stacklevel=stacklevel + 1)
