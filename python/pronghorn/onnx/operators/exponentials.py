"""Softmax and its kin within a network. At the end of a model the client computes them (finish.py).

`exp(x - max(x))` is from 0 to 1, and one of these is 1. Zeros fill them up to a power of two: then their mean is exact,
without a factor, and the reciprocal has that factor.
"""

from __future__ import annotations

from dataclasses import dataclass

from pronghorn.onnx.lowering import Lowering, Value
from pronghorn.onnx.operators.pooling import filled_mean, maximum
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site


@dataclass(frozen=True)
class Exponentials:
    """`exp(x - max(x))` over one axis, which comes first."""

    largest: Value
    """`max(x)`, `(1, *places)`."""
    below: Value
    """`max(x) - x`, `(count, *places)`."""
    powers: Value
    part: Value
    """The sum of the powers over `full`, `(1, *places)`."""
    full: int
    """The least power of two from the count on."""


def softmax_within(lowering: Lowering, site: Site, value: Value, axis: int) -> Value:
    """`exp(x) / sum(exp(x))` over an axis (batch counted), of two values as `sigmoid(x - other)`."""

    def of_rows(rows: Value) -> Value:
        if rows.inner[0] == 2:
            other = lowering.take(site, rows, 0, 2, lambda place: 1 - place)
            return lowering.function(site, lowering.minus(site, rows, other), "sigmoid")
        found = _exponentials(lowering, site, rows)
        share = lowering.function(site, found.part, "reciprocal", scale=1 / found.full)
        return lowering.times(site, found.powers, share)

    return lowering.with_axis_first(site, value, axis, of_rows)


def log_softmax_within(lowering: Lowering, site: Site, value: Value, axis: int) -> Value:
    """`x - log(sum(exp(x)))` over an axis (batch counted)."""

    def of_rows(rows: Value) -> Value:
        found = _exponentials(lowering, site, rows)
        both = lowering.plus(site, found.below, _logarithm(lowering, site, found))
        return lowering.affine(site, both, mul=-1.0)

    return lowering.with_axis_first(site, value, axis, of_rows)


@operator("ReduceLogSumExp", unbatched=True)
def _reduce_log_sum_exp(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    rank = len(value.shape)
    axes = site.axes(lowering.axes(site, since=18) or list(range(rank)), rank)
    if len(axes) != 1:
        site.fail(f"it sums over {len(axes)} axes", "sum over one, reshaped before")
    lowering.keeps_images(site, value, axes)

    def of_rows(rows: Value) -> Value:
        found = _exponentials(lowering, site, rows)
        return lowering.plus(site, found.largest, _logarithm(lowering, site, found))

    kept = lowering.with_axis_first(site, value, axes[0], of_rows)
    shape = [size for at, size in enumerate(kept.shape) if at != axes[0] or site.integer("keepdims", 1)]
    return lowering.reshape_onnx(site, kept, shape, merges=not value.batched)


def _logarithm(lowering: Lowering, site: Site, found: Exponentials) -> Value:
    total = lowering.affine(site, found.part, mul=float(found.full))
    return lowering.function(site, total, "log")


def _exponentials(lowering: Lowering, site: Site, rows: Value) -> Exponentials:
    largest = maximum(lowering, site, rows, [1], keep=True)
    below = lowering.minus(site, largest, rows)
    powers = lowering.function(site, below, "decay")
    return Exponentials(largest, below, powers, *filled_mean(lowering, site, powers, 1, keep=True))
