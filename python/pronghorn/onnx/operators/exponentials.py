"""Softmax and its kin within a network. At the end of a model the client computes them (finish.py).

`exp(x - max(x))` is from 0 to 1, and one of these is 1. Zeros fill them up to a power of two: then their mean is exact,
without a factor, and the reciprocal has that factor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pronghorn.onnx.lowering import Array, Lowering, Value
from pronghorn.onnx.masks import Score, apart, filled, masked, only
from pronghorn.onnx.operators.pooling import filled_mean, maximum
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site


@dataclass(frozen=True)
class Exponentials:
    """`exp(x - max(x))` over one axis, which comes first."""

    largest: Value
    """`max(x)`, `(1, *places)`."""
    below: Value
    """`max(x) - x`, `(count, *places)`, with kept places in masked ones."""
    each: Value
    """Zeros at masked places."""
    part: Value
    """The sum of the powers over `full`, `(1, *places)`."""
    full: int
    """The least power of two from the count on."""


def softmax_within(lowering: Lowering, site: Site, score: Score, axis: int) -> Value:
    """`exp(x) / sum(exp(x))` over an axis (batch counted), of two values as `sigmoid(x - other)`. Where the file says
    so, shares of rows that are masked wholly are zeros."""
    found = apart(lowering, site, score, axis, may_be_none=bool(site.integer("zeros_of_none", 0)))

    def of_rows(rows: Value) -> Value:
        if rows.inner[0] == 2 and found.kept.all():
            other = lowering.take(site, rows, 0, 2, lambda place: 1 - place)
            return lowering.function(site, lowering.minus(site, rows, other), "sigmoid")
        powers = _exponentials(lowering, site, rows, found.kept)
        share = lowering.function(site, powers.part, "reciprocal", scale=1 / powers.full)
        return lowering.times(site, powers.each, share)

    def with_none(rows: Value) -> Value:
        some = np.broadcast_to(~found.none, found.kept.shape)
        return only(lowering, site, of_rows(rows), some, lambda shares: shares)

    made = lowering.with_axis_first(site, found.scores, axis, with_none)
    lowering.shares.add(made.index)
    return made


def log_softmax_within(lowering: Lowering, site: Site, score: Score, axis: int) -> Value:
    """`x - log(sum(exp(x)))` over an axis (batch counted); masked places keep their masks."""
    found = apart(lowering, site, score, axis, reads_masked=True)

    def of_rows(rows: Value) -> Value:
        powers = _exponentials(lowering, site, rows, found.kept)
        # Masked places have scores of their own, though powers of them do not count.
        below = powers.below if found.kept.all() else lowering.minus(site, powers.largest, rows)
        both = lowering.plus(site, below, _logarithm(lowering, site, powers))
        return lowering.affine(site, both, mul=-1.0)

    made = lowering.with_axis_first(site, found.scores, axis, of_rows)
    return made if found.kept.all() else masked(lowering, site, made, found.left)


@operator("ReduceLogSumExp", unbatched=True)
def _reduce_log_sum_exp(lowering: Lowering, site: Site) -> Value:
    score = lowering.score(site)
    value, _ = score
    rank = len(value.shape)
    axes = site.axes(lowering.axes(site, since=18) or list(range(rank)), rank)
    if len(axes) != 1:
        site.fail(f"it sums over {len(axes)} axes", "sum over one, reshaped before")
    lowering.keeps_images(site, value, axes)
    found = apart(lowering, site, score, axes[0])

    def of_rows(rows: Value) -> Value:
        powers = _exponentials(lowering, site, rows, found.kept)
        total = lowering.plus(site, powers.largest, _logarithm(lowering, site, powers))
        return lowering.affine(site, total, add=found.largest[None])

    kept = lowering.with_axis_first(site, found.scores, axes[0], of_rows)
    shape = [size for at, size in enumerate(kept.shape) if at != axes[0] or site.integer("keepdims", 1)]
    return lowering.reshape_onnx(site, kept, shape, merges=not value.batched)


def _logarithm(lowering: Lowering, site: Site, powers: Exponentials) -> Value:
    total = lowering.affine(site, powers.part, mul=float(powers.full))
    return lowering.function(site, total, "log")


def _exponentials(lowering: Lowering, site: Site, rows: Value, kept: Array) -> Exponentials:
    """Those of the places that count."""
    counted = filled(lowering, site, rows, kept)
    largest = maximum(lowering, site, counted, [1], keep=True)
    below = lowering.minus(site, largest, counted)
    powers = only(lowering, site, below, kept, lambda places: lowering.function(site, places, "decay"))
    return Exponentials(largest, below, powers, *filled_mean(lowering, site, powers, 1, keep=True))
