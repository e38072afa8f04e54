"""Values that users type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pronghorn.errors import InputError


def parse_numbers(option: str, text: str) -> list[float]:
    """Numbers separated by commas.

    Raises:
        InputError: anything else; it names `option`.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} {text!r} is not a list of numbers: separate them by commas") from None


def parse_shape(text: str | None) -> dict[str, Sequence[int]] | Sequence[int] | None:
    """The shape `NAME=1,C,H,W`, or `1,C,H,W` without a name.

    Raises:
        InputError: anything else.
    """
    if text is None:
        return None
    name, equals, sizes = text.rpartition("=")
    try:
        parsed = [int(size) for size in sizes.split(",")]
    except ValueError:
        raise InputError(f"--shape {text!r} is not a shape: give NAME=1,C,H,W, such as input=1,3,224,224") from None
    return {name: parsed} if equals else parsed


def parse_fixed(texts: Sequence[str]) -> dict[str, Any]:
    """Values of inputs by name, of `NAME=NUMBER` or `NAME=FILE.npy`.

    Raises:
        InputError: anything else, or a file that cannot be read.
    """
    found = dict[str, Any]()
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            raise InputError(f"--fixed {text!r} has no name: give NAME=VALUE, such as rate=16000")
        try:
            found[name] = np.load(value, allow_pickle=False) if value.endswith(".npy") else _number(value)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"--fixed {text!r} is no number and no npy file: {error}") from None
    return found


def _number(text: str) -> int | float:
    """A whole number as such."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def parse_size(text: str | None) -> int | None:
    """The bytes of a size such as `500M`, `1.5GiB` or `1000`.

    Raises:
        InputError: anything else.
    """
    if text is None:
        return None
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    digits = text.upper().removesuffix("B").removesuffix("I")
    unit = units.get(digits[-1:], 1)
    try:
        return int(float(digits[:-1] if digits[-1:] in units else digits) * unit)
    except (ValueError, OverflowError):
        raise InputError(
            f"--memory {text!r} is not a size: give bytes, or a number with a unit, such as 500M or 8G"
        ) from None
