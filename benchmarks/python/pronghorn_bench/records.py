"""Figures as records."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pronghorn import _native, _processes
from pronghorn._security import security_bits as security_bits

Record = dict[str, Any]
Reference = tuple[float, str]
"""What a figure is compared with, and where that is from."""

MORE_IS_BETTER = ("images/s", "M/s", "G", "times", "share")
"""First words of units; of all others less is better."""

RIVALS = 9
"""References of a headline that is printed beside all of them."""


@dataclass(frozen=True)
class Report:
    """What a suite measured."""

    records: list[Record] = field(default_factory=list)
    """All figures."""
    headlines: list[Record] = field(default_factory=list)
    """Those of them that are printed: few enough to be read in a minute."""

    def add(self, record: Record, *, headline: bool = False) -> None:
        """Takes a figure."""
        self.records.append(record)
        if headline:
            self.headlines.append(record)


def machine() -> Record:
    """What the figures were measured on."""
    return {
        "cpu": _cpu_name(),
        "cores": len(_processes.available_cores()),
        "simd": _native.simd_level(),
        "system": platform.platform(),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def record(
    suite: str,
    case: str,
    metric: str,
    value: float,
    unit: str,
    parameters: object,
    security_bits: int | None,
    reference: Reference | None,
) -> Record:
    """One figure. `ratio` says how many times better it is than the reference, as in the tables."""
    return {
        "suite": suite,
        "case": case,
        "metric": metric,
        "value": value,
        "unit": unit,
        "parameters": parameters,
        "security_bits": security_bits,
        "machine": machine(),
        "reference": None if reference is None else {"value": reference[0], "source": reference[1]},
        "ratio": None if reference is None else ratio(value, reference[0], unit),
    }


def ratio(value: float, reference: float, unit: str) -> float | None:
    """How many times better a figure is than its reference; below 1 it is worse. None where that divides by 0."""
    better, worse = (value, reference) if unit.split(" ")[0] in MORE_IS_BETTER else (reference, value)
    return better / worse if value and reference else None


@dataclass(frozen=True)
class Sheet:
    """Reports figures that have a suite, a case and parameters in common."""

    report: Report
    suite: str
    case: str
    parameters: object
    security_bits: int | None

    def add(
        self, metric: str, value: float, unit: str, references: Iterable[Reference] = (), *, headline: int = 0
    ) -> None:
        """A record for each reference; one without where there is none. A headline is printed too, beside so many."""
        every: list[Reference | None] = [*references] or [None]
        for index, reference in enumerate(every):
            made = record(self.suite, self.case, metric, value, unit, self.parameters, self.security_bits, reference)
            self.report.add(made, headline=index < headline)


def cores(count: int) -> str:
    """A number of cores in words."""
    return "1 core" if count == 1 else f"{count} cores"


def core_counts(quick: bool = False) -> list[int]:
    """One core, and two where there are two; the latter alone where it is to be quick."""
    counts = sorted({1, min(2, len(_processes.available_cores()))})
    return counts[-1:] if quick else counts
