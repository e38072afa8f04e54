"""Softmax and its kin within a network. At the end of a model the client computes them (finish.py).

`exp(x - max(x))` is from 0 to 1, and one of these is 1. Zeros fill them up to a power of two: then their mean is exact,
without a factor, and the reciprocal has that factor.

For shares a little more than the largest is taken away, so that arguments are below zero: a table of these has as many
entries as one of positive ones, and no value but the largest changes its sign. All exponentials are less by one factor
then, and an error of the largest is another factor of all. Shares have neither. Logarithms of sums take `max(x) - x`:
there these would show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pronghorn.onnx.lowering import Array, Floats, Lowering, Value
from pronghorn.onnx.masks import Score, apart, filled, masked, only
from pronghorn.onnx.operators.pooling import filled_mean, maximum
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

MORE = 1 / 4
"""What is taken away beside the largest score. Where that is off by more, its exponential is that of next to zero."""

RATES = (1e-6, 64.0)
"""Between these, a factor of scores becomes their exponentials'. Tables take larger and smaller ones, too, but such
scores have no precision."""


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
    scores, rate = found.scores, 1.0
    if found.scores.shape[axis] != 2:
        scores, rate = _scaled(lowering, site, found.scores)

    def of_rows(rows: Value) -> Value:
        if rows.inner[0] == 2 and found.kept.all():
            other = lowering.take(site, rows, 0, 2, lambda place: 1 - place)
            return lowering.function(site, lowering.minus(site, rows, other), "sigmoid")
        counted = filled(lowering, site, rows, found.kept)
        above = lowering.affine(site, maximum(lowering, site, counted, [1], keep=True), add=MORE / rate)
        below = lowering.minus(site, counted, above)
        powers = only(
            lowering, site, below, found.kept, lambda places: lowering.function(site, places, "decay", rate=rate)
        )
        part, full = filled_mean(lowering, site, powers, 1, keep=True)
        share = lowering.function(site, part, "reciprocal", scale=1 / full)
        made = lowering.times(site, powers, share)
        lowering.quotients[made.index] = powers, share
        return made

    def with_none(rows: Value) -> Value:
        some = np.broadcast_to(~found.none, found.kept.shape)
        return only(lowering, site, of_rows(rows), some, lambda shares: shares)

    made = lowering.with_axis_first(site, scores, axis, with_none)
    lowering.shares.add(made.index)
    return made


def divided(lowering: Lowering, site: Site, shares: Value, axis: int) -> tuple[Value, Value] | None:
    """Exponentials, and 1 over their sums along an axis (batch not counted), of shares over all places of that axis
    which were moved since; None of other values."""
    moves, index = [], shares.index
    while index not in lowering.quotients:
        node = lowering.nodes[index]
        if node["op"]["kind"] not in ("reshape", "transpose"):
            return None
        moves.append(node)
        (index,) = node["inputs"]
    each, over = lowering.quotients[index]
    count = each.inner[0]
    # The number of the sum of each share.
    sums = np.broadcast_to(np.arange(math.prod(over.inner)).reshape(over.inner), each.inner)
    for move in reversed(moves):
        if move["op"]["kind"] == "reshape":
            sums, each = sums.reshape(move["shape"]), lowering.reshape(site, each, tuple(move["shape"]))
        else:
            order = move["op"]["permutation"]
            sums, each = sums.transpose(order), lowering.transpose(site, each, order)
    first = sums.take([0], axis)
    if sums.shape[axis] != count or (sums != first).any():
        return None
    flat = lowering.reshape(site, over, (first.size,))
    return each, lowering.reshape(
        site, lowering.take(site, flat, 0, first.size, first.ravel().__getitem__), first.shape
    )


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
    lowering.refuse_cut_off(site, "it takes logarithms of whole numbers")
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
    powers = only(lowering, site, below, kept, lambda places: lowering.function(site, places, "decay", rate=-1.0))
    return Exponentials(largest, below, powers, *filled_mean(lowering, site, powers, 1, keep=True))


def _scaled(lowering: Lowering, site: Site, scores: Value) -> tuple[Value, float]:
    """Values and a positive factor that makes scores of them, if a factor of their own has made them, or one of what
    they are products, moves and sums with constants of."""
    factors: dict[int, float] = {}
    adds: dict[int, Floats] = {}
    order = _below(lowering, scores.index)
    for index in order:
        node = lowering.nodes[index]
        own, inputs = _factor(lowering, node), node["inputs"]
        factors[index] = 1.0 if own is None else own * math.prod(factors[each] for each in inputs)
        if factors[index] != 1.0 and node["op"].get("add") is not None:
            with np.errstate(all="ignore"):
                add = lowering.tensors[node["op"]["add"]].astype(np.float64)
                adds[index] = (add / factors[index]).astype(np.float32)
    rate = factors[scores.index]
    if rate == 1.0 or not RATES[0] < rate < RATES[1] or not all(np.isfinite(add).all() for add in adds.values()):
        return scores, 1.0
    made = lowering.unscaled
    for index in order:
        node = lowering.nodes[index]
        op, shape = node["op"], tuple(node["shape"])
        if factors[index] == 1.0:
            made[index] = index
        elif index not in made:
            inputs = [Value(made[each], (1, *lowering.nodes[each]["shape"])) for each in node["inputs"]]
            if index in adds:
                op = {"kind": "affine", "mul": None, "add": lowering.tensor(site, "add", adds[index])}
            is_factor = op["kind"] == "affine" and index not in adds
            made[index] = made[node["inputs"][0]] if is_factor else lowering.emit(site, op, inputs, shape).index
    return Value(made[scores.index], scores.shape), rate


def _below(lowering: Lowering, index: int) -> list[int]:
    """A node and all that its factor may come from. Nodes stand behind what they read."""
    seen: set[int] = set()
    waiting = [index]
    while waiting:
        index = waiting.pop()
        if index not in seen:
            seen.add(index)
            if _factor(lowering, lowering.nodes[index]) is not None:
                waiting += lowering.nodes[index]["inputs"]
    return sorted(seen)


def _factor(lowering: Lowering, node: dict[str, Any]) -> float | None:
    """The positive factor that a node adds to those of what it reads; None where it passes none on."""
    op = node["op"]
    if op["kind"] in ("reshape", "transpose", "take", "mat_mul") or (op["kind"] == "affine" and op["mul"] is None):
        return 1.0
    if op["kind"] != "affine":
        return None
    mul = lowering.tensors[op["mul"]]
    return float(mul.flat[0]) if mul.size == 1 and mul.flat[0] > 0 else None
