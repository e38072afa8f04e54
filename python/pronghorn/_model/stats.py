"""The cost of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stats:
    """The cost of a run, seen from the client."""

    images: int
    seconds: float
    """Wall-clock time of all images."""
    bytes_sent: int
    """Bytes of all images, to the server."""
    bytes_received: int
    """Bytes of all images, from the server."""
    clamped_inputs: int
    """Input values outside the planned range, which were moved to its ends."""
    clamped_activations: int | None
    """Activations beyond the ranges of the samples, likewise. Many mean that the samples do not
    represent the data. None under `two-party`, where no party sees them."""
    beyond_samples: int | None = None
    """Images whose result is beyond those of the samples, and so likely wrong. None where the plan does not say:
    without samples, for a class alone, and under `encrypted` and `multi-key`."""
    prepared_batches: int = 0
    """Batches that used a preparation."""
    lost_preparations: int = 0
    """Preparations of no use: damaged, or the server had its half no more."""

    @classmethod
    def of(cls, images: int, found: Mapping[str, Any]) -> Stats:
        """From the core's dictionary."""
        sent, received, inputs = (int(found[name]) for name in ("bytes_sent", "bytes_received", "clamped_inputs"))
        ahead = (int(found.get(name, 0)) for name in ("prepared_batches", "lost_preparations"))
        clamped, beyond = found["clamped_activations"], found.get("beyond_samples")
        return cls(images, float(found["seconds"]), sent, received, inputs, clamped, beyond, *ahead)

    @property
    def images_per_second(self) -> float:
        """Images a second."""
        return self.images / self.seconds if self.seconds > 0 else math.inf

    @property
    def speed(self) -> str:
        """Images a second, for people."""
        return speed(self.images_per_second)


def counted(number: int, noun: str) -> str:
    """A number with its noun, whose plural ends in s."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def speed(rate: float) -> str:
    """Images a second, for people."""
    return f"{rate:,.0f} images/s" if rate >= 10 else f"{rate:.2g} images/s"
