"""Inputs and labels as arrays, and whether they are what a plan expects."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pronghorn._arrays import as_array
from pronghorn._tables import whole
from pronghorn.errors import InputError, InputWarning

Floats = npt.NDArray[np.float32]
Range = tuple[float, float]
Bounds = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""The least and the largest input: a number each, or a row with one for each feature."""

BYTES: Range = (0.0, 255.0)
"""The range of bytes as they are."""
FAR = 4.0
"""Inputs that leave the planned range by this many times its width are not of its kind,"""
OUTLIERS = 1e-3
"""unless they are no more than this share of all."""
MUCH = 0.05
"""A value that is clamped by more than this share of the range may change a result,"""
PIXELS = 0.01
"""of an image where this share of its values is."""
MOST_EXPONENT = 64
"""That of a feature that keeps its one value, as in `features.rs`."""
NARROW = 0.4
"""Nor are inputs that can never fill this share of it: made-up samples, and rows of features, widen a range by
two."""
TINY = 1 / 64
"""Nor are actual inputs that fill less than this share of it."""
LEAST_ROWS = 16
"""Rows that tell of placeholders."""
LEAST_DISTINCT = 8
"""Other numbers of a feature that has one. Codes of kinds are fewer,"""
FAR_FROM_CODES = 50.0
"""and what is so many of their ranges away from them is none."""
REPEATED, FAR_AWAY = 2, 5.0
"""Times that a placeholder is there at least, and ranges of all others that it is away from them."""
MOST_REPEATED, MOST_ZEROS = 0.9, 0.5
"""The largest part of rows that have it, and where it is 0: more often that is a number as others are."""


def as_labels(labels: npt.ArrayLike, images: int, classes: int = 0, stacklevel: int = 3) -> npt.NDArray[np.int64]:
    """One class for each image. Warns where they are those of so many `classes`, counted from 1; 0: nobody knows."""
    found = as_array(labels, "labels")
    if found.size != images or found.dtype.kind not in "iub":
        raise InputError(
            f"labels have shape {list(found.shape)} and type {found.dtype}; "
            f"one integer for each of {images} images is needed"
        )
    indices = found.reshape(-1).astype(np.int64)
    if classes > 1 and indices.min() == 1 and indices.max() == classes:
        warnings.warn(
            f"labels are from 1 to {classes}, and the {classes} classes are counted from 0: accuracies are wrong\n"
            "  what to do: subtract 1 from the labels",
            InputWarning,
            stacklevel=stacklevel,
        )
    return indices


def names_of_labels(names: tuple[str, ...], outputs: str | None) -> tuple[str, ...]:
    """The names of classes that labels may be: none where the user says that the outputs are values."""
    return () if outputs == "values" else names


def as_indices(labels: npt.ArrayLike, names: Sequence[str], stacklevel: int = 3) -> npt.NDArray[Any]:
    """Labels that are all names of classes, as the indices of these; others as they are. Warns where they may be
    indices, too."""
    found = as_array(labels, "labels")
    if not names or found.size == 0:
        return found
    if found.dtype.kind == "O":
        found = found.astype(np.str_)
    plain = whole(found) if found.dtype.kind == "f" else found
    different, which = np.unique(plain, return_inverse=True)
    places = {name: index for index, name in enumerate(names)}
    indices = [places.get(str(label)) for label in different.tolist()]
    if None in indices:
        return found
    if plain.dtype.kind in "iu" and different.min() >= 0 and different.max() < len(names):
        warnings.warn(
            f"labels from {different.min()} to {different.max()} are taken for the model's names of its classes, "
            "not for their indices",
            InputWarning,
            stacklevel=stacklevel,
        )
    return np.array(indices, np.int64)[which].reshape(found.shape)


def as_targets(targets: npt.ArrayLike, images: int, outputs: int) -> npt.NDArray[np.float64]:
    """The wanted outputs of each image, `(images, outputs)`."""
    found = as_array(targets, "labels")
    if found.size != images * outputs or len(found) != images or found.dtype.kind not in "fiub":
        raise InputError(
            f"labels have shape {list(found.shape)} and type {found.dtype}; "
            f"{outputs} numbers for each of {images} images are needed, since the outputs are values"
        )
    wanted = found.reshape(images, outputs).astype(np.float64)
    if not np.isfinite(wanted).all():
        raise InputError("labels hold infinite values or NaN")
    return wanted


class _Scales(NamedTuple):
    """A plan's inputs as integers: `(x - offset) * 2^exponent * unit`, rounded, from `low` to `high`."""

    low: int
    high: int
    unit: float
    exponents: npt.NDArray[np.float64]
    """A number, or a row with one for each feature."""
    offsets: npt.NDArray[np.float64]
    """Likewise."""

    @classmethod
    def of(cls, plan_json: str) -> _Scales:
        step: dict[str, Any] = json.loads(plan_json)["steps"][0]
        value, kind = step["value"], step["kind"]
        ends = value["low"], value["high"], 2.0 ** value["fraction_bits"]
        if kind == "input":
            return cls(*ends, np.zeros(()), np.zeros(()))
        exponents = np.array([scale["exponent"] for scale in kind["features"]], np.float64)
        offsets = np.array([scale["offset"] for scale in kind["features"]], np.float64)
        return cls(*ends, exponents, offsets)


def planned_bounds(plan_json: str) -> Bounds:
    """The least and the largest input of a plan; with a scale for each feature, a row of each. They are the same where
    a feature keeps its one value."""
    scales = _Scales.of(plan_json)
    reach = np.where(scales.exponents < MOST_EXPONENT, 2.0**-scales.exponents / scales.unit, 0.0)
    low, high = (end * reach + scales.offsets for end in (scales.low, scales.high))
    return low, high


def values_clamped(inputs: Floats, plan_json: str) -> int:
    """How many values of inputs are outside the planned range, as a secure run counts them: after rounding."""
    scales = _Scales.of(plan_json)
    # Differences to the offsets, since a feature that keeps its value has no range beside it.
    values = inputs - scales.offsets if np.ndim(scales.offsets) else inputs
    reach = 2.0**-scales.exponents / scales.unit
    outside = (values < (scales.low - 0.5) * reach) | (values >= (scales.high + 0.5) * reach)
    return int(np.count_nonzero(outside))


def values_outside(count: int) -> str:
    """That so many values of inputs are outside a plan's range."""
    return "1 input value was outside" if count == 1 else f"{count:,} input values were outside"


def planned_range(plan_json: str) -> Range:
    """The least and the largest input of a plan; with a scale for each feature, those of all."""
    low, high = planned_bounds(plan_json)
    return float(np.min(low)), float(np.max(high))


def takes_bytes(expected: Range) -> bool:
    """Whether a plan's range is that of bytes as they are, and not of bytes that are divided."""
    return expected[0] > -1 and 128 <= expected[1] <= 2 * (BYTES[1] + 1)


def looks_like_pixels(values: npt.NDArray[Any]) -> bool:
    """Whether these are whole numbers as pictures have: from 0 up to 128 or more."""
    if values.size == 0 or values.min() < 0 or not 128 <= values.max() <= 65535:
        return False
    return values.dtype.kind in "iu" or not np.any(values % 1)


def beyond(values: Floats, expected: Bounds) -> str | None:
    """That `values` reach far beyond what a plan is for; None where they do not."""
    if values.size == 0 or np.isnan(values).any():
        return None  # What is wrong there is said elsewhere.
    low, high = expected
    far = np.where(high > low, FAR * (high - low), np.inf)
    if not np.any((values.max(axis=0) > high + far) | (values.min(axis=0) < low - far)):
        return None
    outside = (values > high + far) | (values < low - far)
    if np.count_nonzero(outside) <= OUTLIERS * values.size:
        return None
    hint = "; they look like pixels that are not scaled" if looks_like_pixels(values) else ""
    if np.ndim(low) == 0:
        reach = f"the inputs reach from {values.min():.4g} to {values.max():.4g}"
        return f"{reach}, but {_planned(float(low), float(high))}, to which they are clamped{hint}"
    worst = int(np.count_nonzero(outside, axis=0).argmax())
    reach = f"feature {worst} reaches from {values[:, worst].min():.4g} to {values[:, worst].max():.4g}"
    return f"{reach}, but {_planned(float(low[worst]), float(high[worst]))}, to which it is clamped{hint}"


def clamped(values: Floats, expected: Bounds) -> npt.NDArray[np.bool_]:
    """For each input, whether it has values which a plan clamps by much."""
    rows = values.reshape(len(values), -1)
    low, high = expected
    # A feature that keeps one value has no range to be compared with.
    room = np.where(high > low, MUCH * (high - low), np.inf)
    far = ((rows > high + room) | (rows < low - room)).mean(axis=1)
    return np.asarray(far > (PIXELS if values.ndim > 3 else 0.0))


def clamped_text(flags: npt.NDArray[np.bool_]) -> str | None:
    """That these inputs were clamped by much, and what to do; None where none was."""
    found = np.flatnonzero(flags)
    if found.size == 0:
        return None
    several = "1 input has" if found.size == 1 else f"{found.size} inputs have"
    listed = ", ".join(map(str, found[:5].tolist())) + (", ..." if found.size > 5 else "")
    return (
        f"{several} values beyond the range that the plan is for, and these were clamped (x[{listed}]): the results "
        "may be wrong. The model's owner can plan with samples like them"
    )


def only_a_part(values: Floats, expected: Bounds) -> str | None:
    """That `values` fill so little of what a plan is for that they were probably scaled otherwise;
    None where not, and where features have scales of their own."""
    if np.ndim(expected[0]) > 0 or values.size == 0 or np.isnan(values).any():
        return None
    bounds = float(expected[0]), float(expected[1])
    low, high = float(values.min()), float(values.max())
    if high == low or high - low >= TINY * (bounds[1] - bounds[0]):
        return None
    return f"the inputs reach only from {low:.4g} to {high:.4g}, but {_planned(*bounds)}"


def _planned(low: float, high: float) -> str:
    return f"the plan is for {low:.4g} to {high:.4g}"


def warn_of_scale(values: Floats, expected: Bounds, stacklevel: int) -> None:
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


def warn_of_placeholders(samples: Floats, names: Sequence[str], stacklevel: int) -> None:
    """Warns the caller of the public API of features in which one number repeats far away from all others, as
    placeholders for missing values do: it sets their ranges, and leaves the others little precision.

    Args:
        names: of the features, or none.
    """
    if samples.ndim != 2 or len(samples) < LEAST_ROWS:
        return
    found = {
        feature: number for feature, values in enumerate(samples.T) if (number := _placeholder(values)) is not None
    }
    if not found:
        return
    feature, number = next(iter(found.items()))
    name = repr(names[feature]) if len(names) == samples.shape[1] else str(feature)
    count = int(np.count_nonzero(samples[:, feature] == number))
    others = f", and {len(found) - 1} others have such a number" if len(found) > 1 else ""
    problem = f"feature {name} is {number:g} in {count} of {len(samples)} samples, far from all other values{others}"
    advice = (
        "if it stands for missing values, train the model with filled ones, such as the median; give samples without "
        "it, since beside it the others have little precision"
    )
    warnings.warn(f"{problem}\n  what to do: {advice}", InputWarning, stacklevel=stacklevel + 1)


def _placeholder(values: Floats) -> float | None:
    """The smallest or largest number, where it repeats far away from all others, which are many and differ; None
    without such."""
    for end in (values.min(), values.max()):
        others = values[values != end]
        most = MOST_REPEATED if end else MOST_ZEROS
        is_repeated = REPEATED <= len(values) - len(others) <= most * len(values)
        are_codes = len(np.unique(others)) < LEAST_DISTINCT
        far = FAR_FROM_CODES if are_codes else FAR_AWAY
        if is_repeated and np.abs(others - end).min() > far * np.ptp(others) > 0:
            return float(end)
    return None


def warn_of_fractions(inputs: Floats, stacklevel: int) -> None:
    """Warns the caller of the public API of fractions for a model of integers, which cuts them off."""
    fractions = inputs[inputs % 1 != 0]
    if fractions.size:
        problem = (
            f"the model takes integers, but {fractions.size} of {inputs.size} values are none ({fractions[0]:.4g})"
        )
        advice = "give integers, as bytes are; do not divide them by 255 (--scale 1)"
        warnings.warn(f"{problem}\n  what to do: {advice}", InputWarning, stacklevel=stacklevel + 1)
