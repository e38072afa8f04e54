"""Inputs and labels as arrays, and whether they are what a plan expects."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn.errors import InputError, InputWarning

Floats = npt.NDArray[np.float32]
Range = tuple[float, float]

BYTES: Range = (0.0, 255.0)
"""The range of bytes as they are."""
FAR = 4.0
"""Inputs that leave the planned range by this many times its width are not of its kind,"""
OUTLIERS = 1e-3
"""unless they are no more than this share of all."""
NARROW = 0.4
"""Nor are inputs that can never fill this share of it: made-up samples widen a range by two, real
ones never do."""
TINY = 1 / 64
"""Nor are actual inputs that fill less than this share of it."""


def as_inputs(array: npt.ArrayLike, shape: tuple[int, ...], what: str = "inputs") -> Floats:
    """`array` as contiguous float32 `(images, *shape)`.

    Raises:
        InputError: another shape, no images, or values that are not numbers.
    """
    found = _array(array, what)
    if found.dtype.kind not in "fiub":
        raise InputError(f"{what} have type {found.dtype}; numbers are needed")
    if found.shape[1:] != shape or found.ndim != len(shape) + 1 or len(found) == 0:
        wanted = ", ".join(map(str, ("images", *shape)))
        raise InputError(f"{what} have shape {list(found.shape)}; the model takes ({wanted}), at least one image")
    inputs = np.ascontiguousarray(found, dtype=np.float32)
    if not np.isfinite(inputs).all():
        raise InputError(f"{what} hold infinite values or NaN")
    return inputs


def _array(given: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise InputError(f"{what} are not an array: {error}") from None


def as_labels(labels: npt.ArrayLike, images: int) -> npt.NDArray[np.int64]:
    """One class for each image."""
    found = _array(labels, "labels")
    if found.size != images or found.dtype.kind not in "iub":
        raise InputError(
            f"labels have shape {list(found.shape)} and type {found.dtype}; "
            f"one integer for each of {images} images is needed"
        )
    return found.reshape(-1).astype(np.int64)


def planned_range(plan_json: str) -> Range:
    """The least and the largest input of a plan."""
    value: dict[str, Any] = json.loads(plan_json)["steps"][0]["value"]
    unit = 2.0 ** -value["fraction_bits"]
    return value["low"] * unit, value["high"] * unit


def takes_bytes(expected: Range) -> bool:
    """Whether a plan's range is that of bytes as they are, and not of bytes that are divided."""
    return expected[0] > -1 and 128 <= expected[1] <= 2 * (BYTES[1] + 1)


def looks_like_pixels(values: npt.NDArray[Any]) -> bool:
    """Whether these are whole numbers as pictures have: from 0 up to 128 or more."""
    if values.size == 0 or values.min() < 0 or not 128 <= values.max() <= 65535:
        return False
    return values.dtype.kind in "iu" or not np.any(values % 1)


def beyond(values: Floats, expected: Range) -> str | None:
    """That `values` reach far beyond what a plan is for; None where they do not."""
    if values.size == 0 or np.isnan(values).any():
        return None  # What is wrong there is said elsewhere.
    low, high = float(values.min()), float(values.max())
    far = FAR * (expected[1] - expected[0])
    if max(high - expected[1], expected[0] - low) <= far:
        return None
    outside = np.count_nonzero((values > expected[1] + far) | (values < expected[0] - far))
    if outside <= OUTLIERS * values.size:
        return None
    hint = "; they look like pixels that are not scaled" if looks_like_pixels(values) else ""
    return f"the inputs reach from {low:.4g} to {high:.4g}, but {_planned(expected)}, to which they are clamped{hint}"


def only_a_part(values: Floats, expected: Range) -> str | None:
    """That `values` fill so little of what a plan is for that they were probably scaled otherwise;
    None where not."""
    if values.size == 0 or np.isnan(values).any():
        return None
    low, high = float(values.min()), float(values.max())
    if high == low or high - low >= TINY * (expected[1] - expected[0]):
        return None
    return f"the inputs reach only from {low:.4g} to {high:.4g}, but {_planned(expected)}"


def _planned(expected: Range) -> str:
    return f"the plan is for {expected[0]:.4g} to {expected[1]:.4g}"


def warn_of_scale(values: Floats, expected: Range, stacklevel: int) -> None:
    """Warns the caller of the public API of inputs that a plan was hardly made for."""
    problem = beyond(values, expected) or only_a_part(values, expected)
    if problem is not None:
        advice = "scale inputs as the samples that the plan was made with"
        warnings.warn(f"{problem}\n  what to do: {advice}", InputWarning, stacklevel=stacklevel + 1)


def warn_of_pixels(samples: Floats, stacklevel: int) -> None:
    """Warns the caller of the public API of samples that set a range of 0 to 255 where 0 to 1 may
    be meant."""
    if looks_like_pixels(samples):
        problem = f"the samples are whole numbers up to {samples.max():.0f}, as pixels are that are not scaled"
        advice = (
            "if the model was trained on 0..1, divide them and all inputs (--scale 255); else all is well (--scale 1)"
        )
        warnings.warn(f"{problem}\n  what to do: {advice}", InputWarning, stacklevel=stacklevel + 1)


def warn_of_fractions(inputs: Floats, stacklevel: int) -> None:
    """Warns the caller of the public API of fractions for a model of integers, which cuts them off."""
    fractions = inputs[inputs % 1 != 0]
    if fractions.size:
        problem = (
            f"the model takes integers, but {fractions.size} of {inputs.size} values are none ({fractions[0]:.4g})"
        )
        advice = "give integers, as bytes are; do not divide them by 255 (--scale 1)"
        warnings.warn(f"{problem}\n  what to do: {advice}", InputWarning, stacklevel=stacklevel + 1)
