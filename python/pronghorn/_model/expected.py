"""The expected error of a plan."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

from pronghorn import _native
from pronghorn.errors import PrecisionWarning


@dataclass(frozen=True)
class OutputError:
    """The expected error of one output."""

    error: float
    """As `ExpectedError.error`, of this output."""
    rmse: float
    """Root mean square of the differences, in the output's unit."""


@dataclass(frozen=True)
class ExpectedError:
    """The difference of a plan's results to the float model's, measured on samples while planning.

    A secure run gives what the plan's network gives in the clear, so this is its error too. Under `encrypted` the noise
    of ciphertexts comes on top, of at most 0.4 of the aim.
    """

    error: float
    """Root mean square of the differences over that of the float model's outputs about the mean of each. With less than
    four tested samples that differ, and where no output differs: over that of the outputs. Of a model that ends in a
    Softmax or the like it is that of the outputs or of the values before, whichever is larger. Outputs whose spreads
    differ count alike, each as a part of its own spread, where the plan gives them scales."""
    aim: float
    """What the planner aimed at (`error=`, or a default)."""
    is_near: bool
    """Whether it is so near the aim that nobody is warned of it."""
    about_mean: bool
    """Whether the error is about the mean."""
    alike: float | None
    """The share of the samples whose class is the float model's; None where outputs are no scores of classes."""
    images: int
    """Samples that it was measured on, of which equal ones count once."""
    outputs: tuple[OutputError, ...]
    """The same for each output alone, in their order."""
    _text: str = field(repr=False)
    _outputs_text: str | None = field(repr=False)
    _warnings: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, compiled: _native.Compiled) -> ExpectedError:
        """That of a compiled plan."""
        found = compiled.fidelity
        return cls(
            error=found["error"],
            aim=found["aim"],
            is_near=found["is_near"],
            about_mean=found["about_mean"],
            alike=found["alike"],
            images=found["images"],
            outputs=tuple(OutputError(*pair) for pair in found["outputs"]),
            _text=found["text"],
            _outputs_text=found["outputs_text"],
            _warnings=tuple(found["warnings"]),
        )

    def __str__(self) -> str:
        """A line for people."""
        return self._text

    def details(self) -> str:
        """The line, and the error of each output where there are several: a line each, or with more
        than ten outputs one line for all."""
        return self._text if self._outputs_text is None else f"{self._text}\n{self._outputs_text}"

    def warn(self, stacklevel: int) -> None:
        """Warns where the aim is missed by far, few samples tell the error, larger outputs hide it, or a feature
        keeps one value."""
        for warning in self._warnings:
            warnings.warn(warning, PrecisionWarning, stacklevel=stacklevel + 1)
