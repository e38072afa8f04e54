"""The end of a model, which the client computes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import OTHER_AXIS, Lowering, Value
from pronghorn.onnx.masks import Score, apart, at_the_end
from pronghorn.onnx.operators.exponentials import log_softmax_within, softmax_within
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

PLAIN = {"Exp": "exp", "Log": "log", "Sigmoid": "sigmoid", "Sqrt": "sqrt"}
"""Functions of each value. Within a network they have tables; a Sigmoid is one until something reads it."""


POSITIVE = ("exp", "sigmoid", "softplus")
"""Functions that are positive."""


@operator(*PLAIN, on_result=True, pointwise=True)
def _plain(lowering: Lowering, site: Site) -> Value:
    # The attribute is that of endings.py.
    less_one = site.operator == "Exp" and bool(site.integer("minus_one", 0))
    if site.operator != "Sigmoid" and lowering.is_within(site):
        result = lowering.function(site, lowering.value_within(site), PLAIN[site.operator])
        return lowering.affine(site, result, add=-1.0) if less_one else result
    value = lowering.value(site)
    made = lowering.nodes[value.index]
    if site.operator == "Exp" and not less_one and made["op"].get("of") == "log_softmax":
        before = Value(made["inputs"][0], value.shape)
        return _softmax_over(lowering, site, before, [made["op"]["axis"] + 1])
    kind = "exp_m1" if less_one else PLAIN[site.operator]
    return lowering.emit(site, {"kind": kind}, [value], value.inner)


@operator("Softmax", on_result=True, unbatched=True)
def _softmax(lowering: Lowering, site: Site) -> Value:
    score = lowering.score(site)
    value, mask = score
    _refuse_larger(site, value)
    axes = _softmax_axes(lowering, site, value)
    if lowering.is_within(site):
        score = lowering.score_within(site)
        return softmax_within(lowering, site, score, _axis(lowering, site, value, axes) + int(value.batched))
    if mask is not None:
        value = at_the_end(lowering, site, score, _axis(lowering, site, value, axes) + int(value.batched))
    return _softmax_over(lowering, site, value, axes)


def _refuse_larger(site: Site, value: Value) -> None:
    """Refuses zeros in place of shares that are no numbers (softmaxes.py), where shares are broadcast to them."""
    zeros = site.integers("shape_of_zeros") or []
    sizes = zip(reversed(zeros), reversed(value.shape), strict=False)
    if len(zeros) > len(value.shape) or any(size not in (1, own) for size, own in sizes):
        problem = f"zeros of shape {zeros} stand for shares of shape {list(value.shape)} that are no numbers"
        site.fail(problem, "make them one zero, without dimensions (masked_fill, or torch.where with 0.0)")


def _softmax_over(lowering: Lowering, site: Site, value: Value, axes: list[int]) -> Value:
    op: dict[str, Any] = {"kind": "softmax"}
    if value.batched and _is_whole(value, axes):
        return lowering.emit(site, op, [value], value.inner)
    op = {"kind": "along", "of": "softmax", "axis": _axis(lowering, site, value, axes)}
    return lowering.in_shape_of(value, lowering.emit(site, op, [value], value.inner))


def shares(lowering: Lowering, site: Site, value: Value) -> Value:
    """Each value of a row as a part of their sum, `(1, count)`.

    The client divides: small values that fixed point has as 0 may be all of a row. So it computes sigmoids before, too.
    """
    scores = _before_sigmoids(lowering, site, value, {})
    if scores is not None:
        value = lowering.emit(site, {"kind": "sigmoid"}, [scores], scores.inner)
    return lowering.emit(site, {"kind": "along", "of": "shares", "axis": 0}, [value], value.inner)


def _before_sigmoids(lowering: Lowering, site: Site, value: Value, found: dict[int, Value | None]) -> Value | None:
    """The scores whose sigmoids are values; None where these are others. `found`: those of values so far."""
    if value.index not in found:
        found[value.index] = _before(lowering, site, value, found)
    return found[value.index]


def _before(lowering: Lowering, site: Site, value: Value, found: dict[int, Value | None]) -> Value | None:
    node = lowering.nodes[value.index]
    op = node["op"]
    inputs = [Value(index, (1, *lowering.nodes[index]["shape"])) for index in node["inputs"]]
    if op.get("function", op).get("name", op["kind"]) == "sigmoid":
        return inputs[0]
    if op["kind"] not in ("concat", "reshape", "take", "transpose"):
        return None
    before = [_before_sigmoids(lowering, site, each, found) for each in inputs]
    scores = [each for each in before if each is not None]
    return lowering.emit(site, op, scores, node["shape"]) if len(scores) == len(inputs) else None


def may_be_zero(lowering: Lowering, value: Value) -> bool:
    """Whether a value may be zero, as it is made of other functions than such that are positive."""
    pending, seen = [value.index], set[int]()
    while pending:
        index = pending.pop()
        node = lowering.nodes[index]
        op = node["op"]
        if index in seen:
            continue
        seen.add(index)
        if op["kind"] in ("concat", "reshape", "take", "transpose"):
            pending += node["inputs"]
        elif op.get("function", op).get("name", op["kind"]) not in POSITIVE:
            return True
    return False


@operator("LogSoftmax", on_result=True, unbatched=True)
def _log_softmax(lowering: Lowering, site: Site) -> Value:
    """Also `x - logsumexp(x)` (endings.py): over one axis at any opset, and of rows where the sum is made a column."""
    score = lowering.score(site)
    value, _ = score
    if site.integer("rank", len(value.shape)) != len(value.shape):
        problem = f"it subtracts a column from a value of shape {list(value.shape)}"
        site.fail(problem, f"keep the axis of the sum (keepdims=1), {CUT}")
    axis = _axis(lowering, site, value, _softmax_axes(lowering, site, value))
    if lowering.is_within(site):
        return log_softmax_within(lowering, site, lowering.score_within(site), axis + int(value.batched))
    found = apart(lowering, site, score, axis + int(value.batched))
    if not found.kept.all():
        problem = "its input has a mask, and logarithms of masked places are too far from the others"
        site.fail(problem, f"end in a Softmax, whose masked places are zeros, {CUT}")
    made = lowering.emit(site, {"kind": "along", "of": "log_softmax", "axis": axis}, [found.scores], value.inner)
    return lowering.in_shape_of(value, made)


@operator("ArgMax", on_result=True, unbatched=True)
def _arg_max(lowering: Lowering, site: Site) -> Value:
    return _largest(lowering, site, lowering.score(site))


@operator("ArgMin", unbatched=True)
def _arg_min(lowering: Lowering, site: Site) -> Value:
    """The index of the largest of the negative values."""
    value = lowering.value(site)
    negative = lowering.affine(site, Value(value.index, (1, *value.inner)), mul=-1.0)
    return _largest(lowering, site, (lowering.in_shape_of(value, negative), None))


def _largest(lowering: Lowering, site: Site, score: Score) -> Value:
    """The index of the largest value over the axis of a node."""
    value, mask = score
    rank = len(value.shape)
    axis = site.axis(site.integer("axis", 0), rank)
    lowering.not_over_images(site, [axis])
    if mask is not None:
        value = at_the_end(lowering, site, score, _axis(lowering, site, value, [axis]) + int(value.batched))
    keep = site.integer("keepdims", 1)
    if site.integer("select_last_index", 0):
        site.fail("select_last_index is not supported", "export it with 0: of equal values the first is taken then")
    if value.batched and _is_whole(value, [axis]):
        result = lowering.emit(site, {"kind": "arg_max"}, [value], [1] if keep else [])
        return lowering.reshape(site, result, [1] * (rank - 1 if keep else rank - 2))
    inner = _axis(lowering, site, value, [axis])
    left = [size for place, size in enumerate(value.inner) if place != inner]
    result = lowering.emit(site, {"kind": "along", "of": "arg_max", "axis": inner}, [value], left)
    made = lowering.reshape(site, result, [*left[:inner], 1, *left[inner:]] if keep else left)
    return lowering.in_shape_of(value, made)


def _is_whole(value: Value, axes: Iterable[int]) -> bool:
    """Whether an operation over these axes is over all of an image's values."""
    return math.prod(value.shape[axis] for axis in axes) == math.prod(value.shape)


def _axis(lowering: Lowering, site: Site, value: Value, axes: Iterable[int]) -> int:
    """The one axis, batch not counted, that an operation is over."""
    axes = [axis for axis in axes if value.shape[axis] > 1] or list(axes)[-1:]
    if not value.batched:
        lowering.keeps_images(site, value, axes)
    elif axes == [0]:
        site.fail("it works over the batch (axis 0)", OTHER_AXIS)
    if len(axes) > 1:
        name = site.input(0)
        site.fail(
            f"it works on parts of a value of shape {list(value.shape)} that are no axis",
            f"export with opset 13 or later, or end the model before it (--output {name}, output={name!r})",
        )
    return axes[0] - int(value.batched)


def _softmax_axes(lowering: Lowering, site: Site, value: Value) -> list[int]:
    rank = len(value.shape)
    axis = site.axis(site.integer("axis", 1 if site.opset < 13 else -1), rank)
    axes = [axis] if site.opset >= 13 or site.integer("one_axis", 0) else list(range(axis, rank))
    lowering.not_over_images(site, axes)
    return axes
