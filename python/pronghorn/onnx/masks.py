"""Masks: constants far below zero that are added to the scores of a Softmax, so that places count for nothing.

They have no fixed point beside scores, and scores of masked places may be far above the others. So a mask stays apart
from its scores until they are read. A Softmax takes each row without its masked places, as exactly as the file does.
Every other operator reads the sum.

Biases may be as large, where scores are, and masks none of their places. So a mask is known by its form: it changes no
place that it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import NodeProto

from pronghorn.onnx.registry import name_of
from pronghorn.onnx.site import Site

if TYPE_CHECKING:
    from pronghorn.onnx.lowering import Array, Lowering, Value

MASKED = -1e3
"""A summand so far below that of a kept place masks its own, where the form is that of a mask: `exp(-104)` is zero in
float32. No score is so far above others but one that has a bias to match."""

FAR = -9e3
"""In a row of two places, too, where a bias has the form of a mask."""

NEAR = 0.01
"""In rows of attention that differ, summands that keep places may differ by this part of how far the others are below
them."""

VERY_FAR = 1e6
"""Summands of any form mask places that are so many times as far below the kept ones as these are from zero, and from
1."""

FARTHEST = 1e8
"""The same where there is one row that may be of classes, whose biases are as large where scores are."""

LEFT_OUT = -24.0
"""At the client's end a masked place becomes a kept one of its row, and so much less: `exp(-24)` of its share."""

SWALLOWED = 8.0
"""Summands whose last bit is worth so much leave nothing of scores in float32."""

BESIDE = 1e4
"""A computed value that is multiplied by so much leaves no fixed point to scores beside it."""

READERS = ("ArgMax", "LogSoftmax", "ReduceLogSumExp", "Softmax")
"""Operators that leave masked places out."""

MIXING = ("Einsum", "Gemm", "MatMul")
"""Operators by which shares of places weigh values, as attention has it."""

MOVING = (
    *("Cast", "Dropout", "Expand", "Flatten", "Gather", "Identity", "Reshape"),
    *("Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
)
"""Operators that take a mask along: of the graph's nodes they make those of `MOVES` alone."""

MOVES: dict[str, Callable[[Array, dict[str, Any]], Array]] = {
    "reshape": lambda array, node: array.reshape(node["shape"]),
    "take": lambda array, node: array.take(node["op"]["indices"], axis=node["op"]["axis"]),
    "transpose": lambda array, node: array.transpose(node["op"]["permutation"]),
}
"""What nodes of the graph that move values do, by their kinds."""

CHANGING = ("Add", "Clip", "Concat", "Div", "Max", "Mul", "Neg", "Sub", "Sum", "Where")
"""Operators that change a mask, or make it."""


@dataclass(frozen=True)
class Mask:
    """What the file's value is more than the graph's: it is `score * mul + add`, and the graph has the score."""

    site: Site
    """The node that added it."""
    name: str
    """The constant that it is, for errors."""
    mul: Array
    add: Array

    def changed(self, mul: Array | float, add: Array | float) -> Mask:
        """That of `value * mul + add`."""
        with np.errstate(all="ignore"):
            return replace(self, mul=self.mul * np.float32(mul), add=self.add * np.float32(mul) + np.float32(add))

    def chosen(self, kept: Array, other: Array) -> Mask:
        """That of the value where `kept`, and of a constant elsewhere."""
        return replace(self, mul=self.mul * kept, add=np.where(kept, self.add, other))

    def moved(self, nodes: list[dict[str, Any]], before: Value, after: Value) -> Mask:
        """That of the value `after`, which one of `MOVING` makes of `before`."""
        path, index = list[dict[str, Any]](), after.index
        while index != before.index:
            path.append(nodes[index])
            (index,) = nodes[index]["inputs"]
        mul, add = (np.broadcast_to(array, before.shape).reshape(before.inner) for array in (self.mul, self.add))
        for node in reversed(path):
            mul, add = (MOVES[node["op"]["kind"]](array, node) for array in (mul, add))
        return replace(self, mul=mul.reshape(after.shape), add=add.reshape(after.shape))

    def joined(self, parts: Sequence[Score | Array], axis: int) -> Mask:
        """That of scores and constants behind each other, of which this is one's."""
        none = no_mask(self.site, self.name)
        masks = [(part[0].shape, part[1] or none) if isinstance(part, tuple) else (part.shape, none) for part in parts]
        mul = np.concatenate([np.broadcast_to(mask.mul, shape) for shape, mask in masks], axis)
        return replace(self, mul=mul, add=np.concatenate([np.broadcast_to(m.add, shape) for shape, m in masks], axis))


Score = tuple["Value", Mask | None]
"""A value of the graph, and the mask that it lacks."""


@dataclass(frozen=True)
class Apart:
    """The scores of a Softmax over an axis, and which of them count."""

    scores: Value
    kept: Array
    """Whether each place counts, in the graph's shape with the axis first."""
    largest: Array
    """What was taken off each row, `(1, *places)`."""
    none: Array
    """Rows without any place, whose shares are no numbers in the file, `(1, *places)`."""
    left: Mask
    """What is left of the mask, where it masks."""


def scored(nodes: Iterable[NodeProto], constants: Container[str]) -> set[str]:
    """The values that one of `READERS` reads, or that such a value follows from by `MOVING` and `CHANGING`."""
    found: set[str] = set()
    for node in reversed(list(nodes)):
        if name_of(node) in READERS:
            found.add(node.input[0])
        elif name_of(node) in (*MOVING, *CHANGING) and found.intersection(node.output):
            found.update(name for name in node.input if name and name not in constants)
    return found


def attended(nodes: Iterable[NodeProto], constants: Container[str]) -> set[str]:
    """The results of Softmaxes that weigh other computed values: shares of places, and not of classes."""
    nodes = list(nodes)
    sources = dict[str, set[str]]()
    found = set[str]()
    for node in nodes:
        computed = [name for name in node.input if name and name not in constants]
        if name_of(node) == "Softmax":
            sources[node.output[0]] = {node.output[0]}
        elif name_of(node) in MIXING and len(computed) > 1:
            found.update(*(sources.get(name, ()) for name in computed))
        elif name_of(node) in (*MOVING, *CHANGING):
            sources[node.output[0]] = set().union(*(sources.get(name, ()) for name in computed))
    return found


def is_mask(lowering: Lowering, site: Site, summand: Array | float) -> bool:
    """Whether a summand of a node may mask places of a Softmax behind it: it leaves others, or is very far below."""
    size = np.abs(summand)
    has_rows = np.squeeze(size).ndim > 1
    left = NEAR * -MASKED if has_rows else 0.0
    is_large = bool(np.any(size >= -MASKED) and np.any(size <= left)) or bool(np.any(size >= VERY_FAR))
    return site.node.output[0] in lowering.scored and is_large


def _masks(add: Array, mul: Array, is_attention: bool) -> Array:
    """Which places of rows along the first axis their summands mask, beside the factors of scores; `is_attention`:
    whether shares of places weigh other values."""
    with np.errstate(all="ignore"):
        gap = add.max(axis=0, keepdims=True) - add
        far = gap >= -MASKED
        kept = np.where(far, np.float32(0), np.abs(add)).max(axis=0, keepdims=True)
        least = np.where(far, gap, np.float32(np.inf)).min(axis=0, keepdims=True)
        most = np.where(far, gap, np.float32(-np.inf)).max(axis=0, keepdims=True)
        # Of a mask that was added before scores were divided, as much is left.
        factor = np.where(far, np.float32(0), np.abs(mul)).max(axis=0, keepdims=True)
        is_far = least >= -FAR * np.minimum(factor, np.float32(1))
        rows = add.reshape(len(add), -1)
        # Scores that are replaced do not count, whatever they are.
        are_replaced = np.where(far, mul, np.float32(0)) == 0
        may_be_classes = rows.shape[1] == 1 and not is_attention
        of_form = (kept == 0) & (least == most) & ((len(add) > 2) | is_far)
        of_form &= np.logical_not(may_be_classes) | are_replaced.all(axis=0, keepdims=True)
        # Rows of classes have biases of their own. In those of attention they are of positions, beside a mask.
        if is_attention and (rows != rows[:, :1]).any():
            of_form |= (kept <= NEAR * least) & ((most - least <= NEAR * least) | is_far)
        very_far = FARTHEST if may_be_classes else VERY_FAR
        return np.asarray(far & (np.isposinf(gap) | of_form | (gap >= very_far * (1 + kept))))


def scaled(
    lowering: Lowering, site: Site, score: Score, mul: Array | float = 1.0, add: Array | float = 0.0, name: str = ""
) -> Value:
    """A value times `mul`, plus `add`, which may be a mask; `name` is that of the constant."""
    value, mask = score
    if mask is None and not is_mask(lowering, site, add):
        return lowering.affine(site, value, mul, lowering.floats(site, np.asarray(add), name))
    made = _in_shape(lowering, site, value, mul, add)
    return masked(lowering, site, made, (mask or no_mask(site, name)).changed(mul, add))


def chosen(lowering: Lowering, site: Site, score: Score, kept: Array, other: Array, name: str) -> Value:
    """A value where `kept`, and elsewhere a constant, which may be a mask."""
    value, mask = score
    masks = mask is not None or (site.node.output[0] in lowering.scored and bool(np.any(np.abs(other) >= -MASKED)))
    other = lowering.floats(site, other, name, finite=not masks)
    if not masks:
        return lowering.affine(site, value, mul=kept, add=other)
    made = _in_shape(lowering, site, value, kept, other)
    return masked(lowering, site, made, (mask or no_mask(site, name)).chosen(kept, other))


def chosen_mask(lowering: Lowering, site: Site, scores: tuple[Score, Score], first: Array) -> Value:
    """One value with the mask of the first where `first` is true, and with the second's elsewhere."""
    value = scores[0][0]
    masks = [mask or no_mask(site, site.input(place + 1)) for place, (_, mask) in enumerate(scores)]
    mul, add = (np.where(first, *arrays) for arrays in zip(*((mask.mul, mask.add) for mask in masks), strict=True))
    made = _in_shape(lowering, site, value, mul)
    return masked(lowering, site, made, replace(no_mask(site, site.input(0)), mul=mul, add=add))


def sum_of(lowering: Lowering, site: Site, left: Score, right: Score, sign: float) -> Value:
    """The sum of two values, or their difference where `sign` is -1, whose masks are added up."""
    values = [value if mask is None else lowering.affine(mask.site, value, mask.mul) for value, mask in (left, right)]
    _refuse_computed(lowering, site, values)
    made = lowering.plus(site, *values) if sign > 0 else lowering.minus(site, *values)
    masks = [(mask, of) for (_, mask), of in ((left, 1.0), (right, sign)) if mask is not None]
    if not masks:
        return made
    add = sum((of * mask.add for mask, of in masks), np.zeros((), np.float32))
    return masked(lowering, site, made, replace(masks[0][0], mul=np.ones((), np.float32), add=add))


def at_least(lowering: Lowering, site: Site, position: int, bound: Array | float | None) -> Value | None:
    """The larger of scores that have a mask and a constant; None without a mask, and where the constant is near it."""
    value, mask = lowering.score(site, position)
    if mask is None or bound is None:
        return None
    bound = np.asarray(bound, np.float32)
    value = _in_shape(lowering, site, value, bound)
    above = mask.add >= bound - FAR
    below = (mask.add <= bound + FAR) | ((mask.add <= bound) & _swallows(bound))
    return masked(lowering, site, value, mask.chosen(above, bound)) if (above | below).all() else None


def _swallows(summand: Array) -> Array:
    """Whether float32 leaves nothing of scores beside summands."""
    with np.errstate(all="ignore"):
        return np.asarray(np.spacing(np.abs(summand)) >= SWALLOWED)


def no_mask(site: Site, name: str) -> Mask:
    """The mask that changes nothing."""
    return Mask(site, name, np.ones((), np.float32), np.zeros((), np.float32))


def masked(lowering: Lowering, site: Site, value: Value, mask: Mask) -> Value:
    """The score of a node's result, whose mask readers find."""
    _refuse_summands(lowering, site, value, mask)
    lowering.masks[site.node.output[0]] = mask
    return value


def _in_shape(lowering: Lowering, site: Site, value: Value, *constants: Array | float) -> Value:
    """A value in the shape that it has beside constants."""
    for constant in constants:
        value = lowering.affine(site, value, add=np.zeros(np.shape(constant)))
    return value


def apart(
    lowering: Lowering, site: Site, score: Score, axis: int, may_be_none: bool = False, reads_masked: bool = False
) -> Apart:
    """Scores over an axis (batch counted) without their mask.

    Of rows without one, what summands differ by counts.

    Args:
        may_be_none: whether a row without any place is a case that the file treats.
        reads_masked: whether the scores of masked places are read, too.
    """
    value, mask = score
    axes = axis - int(value.batched), 0
    mask = mask or no_mask(site, "")
    mul, add = (np.moveaxis(np.broadcast_to(a, value.shape).reshape(value.inner), *axes) for a in (mask.mul, mask.add))
    largest = add.max(axis=0, keepdims=True)
    none = np.isneginf(largest) if may_be_none else np.zeros_like(largest, bool)
    _refuse_empty(site, largest, none)
    largest = np.where((np.abs(largest) >= -MASKED) & ~none, largest, np.float32(0))
    is_attention = site.node.output[0] in lowering.attended
    kept = none | ~_masks(np.where(none, np.float32(0), add), mul, is_attention)
    left = np.where(kept, np.float32(0), add - largest)
    # A row that is masked as a whole: float32 leaves nothing of its scores.
    mul = np.where(_swallows(largest) & (add == largest).all(axis=0, keepdims=True), np.float32(0), mul)
    if not reads_masked:
        # Masked places get the factor of a kept one: one factor for all is the usual case.
        first = kept.argmax(axis=0, keepdims=True)
        mul = np.where(kept, mul, np.take_along_axis(mul, first, axis=0))
    add = np.where(kept & ~none, add - largest, np.float32(0))
    mul, add, left = (np.moveaxis(array, 0, axes[0]).reshape(value.shape) for array in (mul, add, left))
    scores = lowering.affine(mask.site, value, mul, add)
    return Apart(scores, kept, largest, none, replace(mask, mul=np.ones((), np.float32), add=left))


def _refuse_empty(site: Site, largest: Array, none: Array) -> None:
    """Refuses rows of which a mask leaves nothing."""
    bad = ~(np.isfinite(largest) | none)
    if bad.any():
        where = [int(place) for place in np.argwhere(bad)[0][1:]]
        problem = f"its mask leaves no place of row {where or 0}, whose results are no numbers"
        site.fail(problem, "let each row keep a place")


def filled(lowering: Lowering, site: Site, rows: Value, kept: Array) -> Value:
    """Rows along the first axis, in whose masked places kept ones of the same row stand."""
    if kept.all():
        return rows
    places = np.arange(kept.size).reshape(kept.shape)
    first = np.take_along_axis(places, kept.argmax(axis=0, keepdims=True), axis=0)
    source = np.where(kept, places, first).ravel()
    flat = lowering.reshape(site, rows, (kept.size,))
    return lowering.reshape(site, lowering.take(site, flat, 0, kept.size, source.__getitem__), rows.inner)


def only(lowering: Lowering, site: Site, value: Value, kept: Array, made: Callable[[Value], Value]) -> Value:
    """What `made` makes of each kept place, and zeros at the others."""
    if kept.all():
        return made(value)
    places = np.flatnonzero(kept)
    flat = lowering.reshape(site, value, (kept.size,))
    found = made(lowering.take(site, flat, 0, len(places), places.__getitem__))
    with_zero = lowering.zeros_around(site, found, [0], [1])
    order = np.where(kept.ravel(), np.cumsum(kept) - 1, len(places))
    back = lowering.take(site, with_zero, 0, kept.size, order.__getitem__)
    return lowering.reshape(site, back, value.inner)


def at_the_end(lowering: Lowering, site: Site, score: Score, axis: int) -> Value:
    """Scores over an axis (batch counted) of which the client takes shares, or the largest. Masked ones are far below
    a kept one."""
    if score[1] is None:
        return score[0]
    found = apart(lowering, site, score, axis)

    def of_rows(rows: Value) -> Value:
        below = np.where(found.kept, np.float32(0), np.float32(LEFT_OUT))
        return lowering.affine(site, filled(lowering, site, rows, found.kept), add=below[None])

    return lowering.with_axis_first(site, found.scores, axis, of_rows)


def _refuse_summands(lowering: Lowering, site: Site, value: Value, mask: Mask) -> None:
    """Refuses a mask on scores that were added to as much: the sum tells which places count, and the mask does not."""
    summand = lowering.largest_summand(value)
    if summand >= -MASKED:
        problem = f"its mask {mask.name} is beside {summand:g}, which scores were added to before"
        site.fail(
            problem, "make both one constant, or the other below 1000: exponentials of -100 are next to zero, too"
        )


def _refuse_computed(lowering: Lowering, site: Site, values: list[Value]) -> None:
    """Refuses a sum of scores and a mask that is computed from the input, which would leave scores no precision."""
    least, largest = sorted(lowering.largest_factor(value) for value in values)
    if site.node.output[0] in lowering.scored and least < BESIDE <= largest:
        problem = f"it adds a mask to scores that is computed from the model's input, and multiplied by {largest:g}"
        site.fail(problem, "multiply it by 100 in the model: exponentials of -100 are next to zero, too")
