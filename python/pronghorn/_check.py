"""Arguments of the public API: checked, and refused by name, before the compiled core sees them."""

from __future__ import annotations

import math
import operator
from pathlib import Path
from typing import Any

from pronghorn.errors import InputError

MOST_THREADS = 512
"""As in `machine.rs`."""
LARGEST = 2**63 - 1


def whole(name: str, value: Any, least: int, most: int = LARGEST) -> int:
    """A whole number within bounds.

    Raises:
        InputError: another type, or beyond them.
    """
    bounds = f"{least} or more" if most == LARGEST else f"{least} to {most}"
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{name} is {value!r}: give a whole number, {bounds}") from None
    if isinstance(value, bool) or not least <= number <= most:
        raise InputError(f"{name} is {value!r}, but must be {bounds}")
    return number


def optional(name: str, value: Any, least: int, most: int = LARGEST) -> int | None:
    """A whole number within bounds, or None."""
    return None if value is None else whole(name, value, least, most)


def threads(value: Any) -> int | None:
    """A number of threads; None for all cores."""
    return optional("threads", value, 1, MOST_THREADS)


def number(name: str, value: Any, least: float, most: float) -> float:
    """A number within bounds.

    Raises:
        InputError: another type, or beyond them.
    """
    advice = f"give a number from {least:g} to {most:g}"
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {value!r}: {advice}") from None
    if not least <= found <= most:
        raise InputError(f"{name} is {value!r}: {advice}")
    return found


def seconds(name: str, value: Any) -> float:
    """A positive time.

    Raises:
        InputError: not a number, or not a positive one.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {value!r}: give seconds, as a number above 0") from None
    if not 0 < number <= 1e9 or math.isnan(number):
        raise InputError(f"{name} is {value!r}: give seconds, above 0 and at most 1e9")
    return number


def text(name: str, value: Any, example: str) -> str:
    """A string.

    Raises:
        InputError: anything else.
    """
    if not isinstance(value, str):
        raise InputError(f"{name} is {value!r}: give a string, such as {example!r}")
    return value


def address(name: str, value: Any) -> str:
    """A host and a port.

    Raises:
        InputError: anything else.
    """
    example = "127.0.0.1:7700"
    _, colon, port = text(name, value, example).rpartition(":")
    if not (colon and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise InputError(f"{name} is {value!r}: give HOST:PORT with a port of at most 65535, such as {example}")
    return str(value)


def monitor_address(value: str) -> str:
    """`HOST:PORT`, or `PORT` on this machine, as `--metrics` takes it."""
    return address("--metrics", value if ":" in value else f"127.0.0.1:{value}")


def directory(name: str, value: Any) -> Path | None:
    """A path to a directory, which may be missing, or None.

    Raises:
        InputError: anything else.
    """
    if value is None:
        return None
    try:
        path = Path(value)
    except TypeError:
        raise InputError(f"{name} is {value!r}: give the path of a directory") from None
    if not str(value):
        raise InputError(f"{name} is empty: give the path of a directory, or leave it out")
    if path.exists() and not path.is_dir():
        raise InputError(f"{name} is {str(path)!r}, which is not a directory: give the path of one, or of one to make")
    return path


def callback(name: str, value: Any) -> Any:
    """Something to call, or None.

    Raises:
        InputError: anything else.
    """
    if value is not None and not callable(value):
        raise InputError(f"{name} is {value!r}, which cannot be called: give a function")
    return value


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """One of some words.

    Raises:
        InputError: anything else.
    """
    if value not in allowed:
        raise InputError(f"{name} is {value!r}: give one of {', '.join(allowed)}")
    return str(value)
