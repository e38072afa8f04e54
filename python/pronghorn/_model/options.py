"""The options of a plan: one object from users to the compiled core."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pronghorn import _check, _native
from pronghorn._model.core import Floats, native_errors
from pronghorn._trust import DEFAULT, require
from pronghorn.errors import InputError

PASSES = tuple(name for name, _ in _native.passes())
ENGINES = tuple(name for name, _ in _native.engines())
OPENINGS = tuple(name for name, _ in _native.openings())
ROUNDINGS = tuple(name for name, _ in _native.roundings())
ASSUMPTIONS = tuple(name for name, _ in _native.assumptions())
OBJECTIVES = tuple(name for name, _ in _native.objectives())

PASSES_OF = "encrypted"
"""The trust level whose plans have passes that can be left out."""
MOST_NAME = 256
"""As in `checked.rs`."""
ENGINES_OF = ("two-party", "client-aided")
"""The trust levels whose linear steps run in engines that can be chosen."""
FLOODS_OF = "encrypted"
"""The trust level with floods and checked keys."""


@dataclass(frozen=True)
class PlanOptions:
    """How a model is planned. Checked when it is made; `compile` of the core reads its fields.

    Raises:
        TrustLevelRequired: there is no such trust level.
        InputError: an option that makes no sense, alone or with the trust level; the error names
            it.
    """

    trust: str = DEFAULT
    """The trust level."""
    samples: Floats | None = field(default=None, compare=False, repr=False)
    """Typical inputs `(images, *input_shape)`, which set range and precision. Not compared: options
    are compared for one model, whose samples stay."""
    made: int = 0
    """The last so many samples are made up: they tell ranges alone."""
    input_range: tuple[float, float] = (0.0, 1.0)
    """The least and the largest input, used without samples."""
    memory: int | None = None
    """Most bytes the server may use; None for the core's default."""
    weight_bits: int | None = None
    """Bits of all integer weights, 2 to 16; None for the planner's choice."""
    input_bits: int | None = None
    """Bits of all layers' integer inputs, 2 to 24; likewise."""
    error: float | None = None
    """The error of results to aim at, 0.0001 to 2 of the outputs' spread; None for the default."""
    without: tuple[str, ...] = ()
    """Passes over an encrypted network to leave out."""
    engine: str | None = None
    """The engine of linear layers; None for the planner's choice."""
    objective: str | None = None
    """What the plan is chosen for, where there is a choice; None for the level's default."""
    network: str | None = None
    """The network that latency is judged on: `loopback`, `lan`, `wan`, or milliseconds and Mbit/s."""

    opening: str | None = None
    """What clients learn: the `class`, or the `values`; None for the class of a model that ends in ArgMax."""

    rounding: str | None = None
    """How values between layers lose bits: to the `nearest` (the default), or `dithered`."""

    assume: str | None = None
    """What oblivious transfers may rest on beside base OTs; None for the least traffic."""

    name: str | None = None
    """The model's name in the plan, which clients get; None for `model`."""
    class_names: tuple[str, ...] = ()
    """The model's own names of its classes, which clients get too."""
    columns: tuple[str, ...] = ()
    """The names of the features of a row, which clients get too."""
    categories: str = "[]"
    """The values of a row that are categories, as JSON; clients get them too."""
    outputs: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Names and shapes of the outputs of a model of several, which clients get too."""
    key_checks: int | None = None
    """Sets of a client's keys, of which the server opens all but one: a power of two up to 256; None for 64."""
    flood_bits: int | None = None
    """Bits of the statistical distance that floods keep over all answers under a key, 40 to 128; None for 40."""

    def __post_init__(self) -> None:
        """Checks all fields, and brings them into one form."""
        checked = {
            "trust": require(self.trust),
            "input_range": _bounds(self.input_range),
            "memory": _check.optional("memory", self.memory, 1),
            "weight_bits": _check.optional("weight_bits", self.weight_bits, 2, 16),
            "input_bits": _check.optional("input_bits", self.input_bits, 2, 24),
            "error": None if self.error is None else _check.number("error", self.error, 1e-4, 2.0),
            "without": _passes(self.without),
            "engine": None if self.engine is None else _check.one_of("engine", self.engine, ENGINES),
            "objective": None if self.objective is None else _check.one_of("objective", self.objective, OBJECTIVES),
            "opening": None if self.opening is None else _check.one_of("opening", self.opening, OPENINGS),
            "rounding": None if self.rounding is None else _check.one_of("rounding", self.rounding, ROUNDINGS),
            "assume": None if self.assume is None else _check.one_of("assume", self.assume, ASSUMPTIONS),
            "flood_bits": _check.optional("flood_bits", self.flood_bits, 40, 128),
            "network": None if self.network is None else _network(self.network),
            "name": None if self.name is None else _name(self.name),
            "key_checks": _key_checks(self.key_checks),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self._check_trust()

    def changed(self, **options: Any) -> PlanOptions:
        """These options with others in their place; None leaves one as it is.

        Raises: as `PlanOptions`.
        """
        return dataclasses.replace(self, **{name: value for name, value in options.items() if value is not None})

    def _check_trust(self) -> None:
        """Refuses options that have no meaning at the trust level."""
        if self.without and self.trust != PASSES_OF:
            raise self._useless("without", "passes can be left out", PASSES_OF)
        if self.engine is not None and self.trust not in ENGINES_OF:
            raise self._useless("engine", "engines can be chosen", *ENGINES_OF)
        if self.engine == "slot" and self.trust == "client-aided":
            raise self._useless("engine", "slots are in use", "two-party")
        if self.objective is not None and self.trust not in ENGINES_OF:
            raise self._useless("objective", "plans can be chosen", *ENGINES_OF)
        if self.network is not None and self.trust != "two-party":
            raise self._useless("network", "a network is taken into account", "two-party")
        if self.assume is not None and self.trust != "two-party":
            raise self._useless("assume", "oblivious transfers are in use", "two-party")
        if self.rounding == "dithered" and self.trust != "two-party":
            raise self._useless("rounding", "values are rounded by a dither", "two-party")
        if self.flood_bits is not None and self.trust != FLOODS_OF:
            raise self._useless("flood_bits", "answers are flooded", FLOODS_OF)
        if self.key_checks is not None and self.trust != FLOODS_OF:
            raise self._useless("key_checks", "keys are checked", FLOODS_OF)
        if self.input_bits is not None and self.trust == "encrypted":
            raise InputError(
                "inputs of encrypted networks are not quantised: leave --input-bits (input_bits=) out, "
                "and set --weight-bits (weight_bits=) for the precision"
            )

    def _useless(self, name: str, what: str, *levels: str) -> InputError:
        where, flag = " and ".join(levels), "--" + name.replace("_", "-")
        return InputError(f"{what} at trust level {where} only, not at {self.trust}: leave {flag} ({name}=) out")


def _name(name: Any) -> str:
    checked = _check.text("name", name, "triage")
    if not checked or not checked.isprintable() or len(checked.encode()) > MOST_NAME:
        raise InputError(f"name is {name!r}: give printable characters, 1 to {MOST_NAME} bytes")
    return checked


def _key_checks(sets: Any) -> int | None:
    """A power of two up to 256."""
    checked: int | None = _check.optional("key_checks", sets, 1, 256)
    if checked is not None and checked & (checked - 1):
        raise InputError(f"key_checks is {checked}: give a power of two, such as 64")
    return checked


def _network(name: Any) -> str:
    if not isinstance(name, str):
        raise InputError(f"network is {name!r}: give a name, or milliseconds and Mbit/s as in '20,100'")
    with native_errors(InputError):
        _native.network(name)
    return name


def _bounds(input_range: Any) -> tuple[float, float]:
    try:
        low, high = map(float, input_range)
    except (TypeError, ValueError):
        raise InputError(f"input_range is {input_range!r}: give the least and the largest input") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(
            f"input_range is {low:g} to {high:g}, not a range: give two finite numbers, the smaller one first"
        )
    return low, high


def _passes(without: Any) -> tuple[str, ...]:
    """Names of passes to leave out, each once and in order."""
    if isinstance(without, str) or not isinstance(without, Iterable):
        raise InputError(f"without is {without!r}: give a list of passes, of {', '.join(PASSES)}")
    given = list(without)
    unknown = [name for name in given if name not in PASSES]
    if unknown:
        raise InputError(f"there is no pass {unknown[0]!r} to leave out; there are {', '.join(PASSES)}")
    return tuple(name for name in PASSES if name in given)
