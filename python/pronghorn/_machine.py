"""The speed of this machine: measured once, kept, and used for the seconds that plans predict."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pronghorn import _native

FOLDER = "PRONGHORN_CACHE"
"""The environment variable that names another folder for what is kept."""
CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Speed:
    """Seconds of one core for each kind of work, as multiples of those of the nominal CPU."""

    products: float
    """Products of encrypted words by weights."""
    encryption: float
    """Transforms, encryption and packing."""
    garbling: float
    """Garbling and evaluating circuits."""
    transfers: float
    """Oblivious transfers."""


@dataclass(frozen=True)
class Machine:
    """What a measurement holds for: on another machine, or with another version, it is made again."""

    cpu: str
    """The CPU's name."""
    cores: int
    """Cores that this process may use."""
    simd: str
    """The SIMD level in use."""
    version: str
    """The version of Pronghorn."""

    @classmethod
    def here(cls) -> Machine:
        """This machine."""
        from pronghorn import __version__

        return cls(_cpu_name(), _cores(), _native.simd_level(), __version__)

    @property
    def path(self) -> Path:
        """The file of its measurement."""
        fields = json.dumps(dataclasses.astuple(self))
        return cache_folder() / f"speed-{hashlib.blake2b(fields.encode(), digest_size=8).hexdigest()}.json"

    def __str__(self) -> str:
        """For people."""
        return f"{self.cpu}, {self.cores} cores, {self.simd}"


@dataclass(frozen=True)
class Measurement:
    """The speed of a machine, and when it was measured."""

    machine: Machine
    speed: Speed
    measured: float
    """Seconds since 1970."""

    def __str__(self) -> str:
        """A line for people."""
        day = time.strftime("%Y-%m-%d", time.gmtime(self.measured))
        return (
            f"seconds are those of one core of this machine ({self.machine}), measured {day}; "
            "the other party's may differ"
        )


NOMINAL = (
    "seconds are those of one core of a nominal 3 GHz CPU with AVX-512; `pronghorn calibrate` measures this machine"
)
"""Said where there is no measurement."""


LATEST = 2.0**33
"""Seconds since 1970 that a date may have: the year 2242."""


def kept() -> Measurement | None:
    """The measurement of this machine, if one is kept. A damaged file is none."""
    machine = Machine.here()
    try:
        # Without a home folder there is no path.
        found = json.loads(machine.path.read_text(encoding="utf-8"))
        if found["machine"] != dataclasses.asdict(machine):
            return None
        measured = float(found["measured"])
        if not 0 <= measured < LATEST:
            return None
        return Measurement(machine, _speed(found["speed"]), measured)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RuntimeError):
        return None


def speed_of(measured: Measurement | None) -> Speed | None:
    """The speed to predict with; None for that of the nominal CPU."""
    return None if measured is None else measured.speed


def calibrate(measure: Callable[[], Mapping[str, float]] = _native.measure_speed) -> Measurement:
    """Measures this machine and keeps the measurement; the last one is replaced.

    Args:
        measure: gives the fields of `Speed`.

    Raises:
        OSError: it cannot be kept.
    """
    measured = Measurement(Machine.here(), _speed(measure()), time.time())
    path = measured.machine.path
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f".{path.name}.{os.getpid()}")
    written.write_text(json.dumps(dataclasses.asdict(measured), indent=2), encoding="utf-8")
    written.replace(path)
    return measured


def cache_folder() -> Path:
    """The user's folder for what can be made again, by the platform's custom."""
    named = os.environ.get(FOLDER)
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pronghorn"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "pronghorn" / "cache"
    base = os.environ.get("XDG_CACHE_HOME", "")
    # Relative paths are to be ignored by the specification.
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "pronghorn"


def _speed(found: Mapping[str, Any]) -> Speed:
    """A speed with factors that a machine can have.

    Raises:
        ValueError: it has others.
    """
    factors = {field.name: float(found[field.name]) for field in dataclasses.fields(Speed)}
    if not all(1e-3 <= factor <= 1e3 for factor in factors.values()):
        raise ValueError(f"no machine has the speed {factors}")
    return Speed(**factors)


def _cpu_name() -> str:
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
