"""Operators that move values and leave them as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import add

import numpy as np
from onnx import TensorProto

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import Array, Lowering, Value
from pronghorn.onnx.masks import masked
from pronghorn.onnx.merging import of_several_images
from pronghorn.onnx.operators.comparisons import truth_of
from pronghorn.onnx.registry import COUNTED_TYPES, FLOAT_TYPES, WHOLE_TYPES, operator
from pronghorn.onnx.site import Shape, Site


@operator("Identity", on_result=True, unbatched=True)
def _identity(lowering: Lowering, site: Site) -> Value:
    return lowering.value(site)


@operator("Dropout", on_result=True, unbatched=True)
def _dropout(lowering: Lowering, site: Site) -> Value:
    training = lowering.constant(site, 2)
    if training is not None and training.any():
        site.fail("training mode is not supported", "export the model for inference (model.eval())")
    return lowering.value(site)


@operator("Cast", on_result=True, unbatched=True)
def _cast(lowering: Lowering, site: Site) -> Value:
    value, to = lowering.value(site), site.integer("to", 0)
    if site.node.output[0] in lowering.given:
        return value  # The type that it has in the file.
    if to == TensorProto.BOOL and (site.input(0) in lowering.counts or site.input(0) in lowering.whole):
        return truth_of(lowering, site, value)
    is_truth = value.index in lowering.truths and to in (TensorProto.BOOL, *WHOLE_TYPES)
    is_same = to in FLOAT_TYPES or is_truth or (to in COUNTED_TYPES and site.input(0) in lowering.counts)
    if is_truth and to in WHOLE_TYPES and to not in COUNTED_TYPES:
        lowering.narrow.update(site.node.output)
    if not is_same and lowering.finish_of(value) != "arg_max":
        name = TensorProto.DataType.Name(to) if to in TensorProto.DataType.values() else str(to)
        site.fail(f"a cast of a value to {name} is not supported", f"keep values in floating point, {CUT}")
    return value


@operator("Flatten", on_result=True, unbatched=True)
def _flatten(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    rank = len(value.shape)
    axis = site.integer("axis", 1)
    if not -rank <= axis <= rank:
        site.fail(f"axis {axis} does not exist in {rank} dimensions", "correct the axis")
    axis = axis + rank if axis < 0 else axis
    lowering.not_images(site, value, [axis] if not value.batched else [])
    shape, several = ((math.prod(each[:axis]), math.prod(each[axis:])) for each in (value.shape, value.of_several))
    return lowering.of_images(site, lowering.reshape_onnx(site, value, shape, merges=True), several)


@operator("Reshape", on_result=True, unbatched=True)
def _reshape(lowering: Lowering, site: Site) -> Value:
    value, target = lowering.value(site), lowering.constant(site, 1)
    if site.node.output[0] in lowering.parts:
        # All values of an image, wherever the batch is.
        return lowering.reshape(site, Value(value.index, (1, *value.inner)), [math.prod(value.inner)])
    if target is None:
        site.fail("its shape is absent", "repair the model")
    copy = not site.integer("allowzero", 0)

    def made(target: list[int], before: Shape) -> Shape:
        shape = [
            before[axis] if size == 0 and copy and axis < len(before) else size for axis, size in enumerate(target)
        ]
        rest = -math.prod(shape) if shape.count(-1) == 1 else 0
        return tuple(math.prod(before) // rest if size == -1 and rest > 0 else size for size in shape)

    shape = made([int(size) for size in target.flat], value.shape)
    several = of_several_images(lowering, site, value, shape, made)
    merges = several is not None
    return lowering.of_images(site, lowering.reshape_onnx(site, value, shape, merges), several)


@operator("Squeeze", on_result=True, unbatched=True)
def _squeeze(lowering: Lowering, site: Site) -> Value:
    value, axes = lowering.value(site), lowering.axes(site, since=13)
    rank = len(value.shape)
    # Without axes every dimension of size 1 goes; a batch that is free in use stays.
    first = 0 if lowering.one_image else 1
    found = [axis for axis in range(first, rank) if value.shape[axis] == 1] if axes is None else site.axes(axes, rank)
    if any(value.shape[axis] != 1 for axis in found):
        site.fail(f"axes {found} are not all of size 1", "correct the axes")
    shape, several = (
        tuple(size for axis, size in enumerate(each) if axis not in found) for each in (value.shape, value.of_several)
    )
    drops = any(value.of_several[axis] != 1 for axis in found)
    return lowering.of_images(site, lowering.reshape_onnx(site, value, shape), None if drops else several)


@operator("Unsqueeze", on_result=True, unbatched=True)
def _unsqueeze(lowering: Lowering, site: Site) -> Value:
    value, axes = lowering.value(site), lowering.axes(site, since=13)
    if axes is None:
        site.fail("its axes are absent", "repair the model")
    found = site.axes(axes, len(value.shape) + len(axes))
    lowering.not_images(site, value, found if not value.batched else [])

    def raised(sizes: Iterator[int]) -> Shape:
        return tuple(1 if axis in found else next(sizes) for axis in range(len(value.shape) + len(axes)))

    made = lowering.reshape_onnx(site, value, raised(iter(value.shape)))
    return lowering.of_images(site, made, raised(iter(value.of_several)))


@operator("Shape", "Size", on_result=True, unbatched=True)
def _shape(lowering: Lowering, site: Site) -> Value:
    """Becomes a constant: the caller finds it there."""
    value = lowering.value(site)
    shape = value.shape[slice(site.integer("start", 0), site.attributes.get("end"))]
    found = np.array(shape if site.node.op_type == "Shape" else math.prod(value.shape), np.int64)
    lowering.constants[site.node.output[0]] = found
    return value


@operator("Transpose", on_result=True, unbatched=True)
def _transpose(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    rank = len(value.shape)
    permutation = site.integers("perm") or list(range(rank))[::-1]
    if sorted(permutation) != list(range(rank)):
        site.fail(f"perm {permutation} is no permutation of {rank} dimensions", "repair the model")
    if permutation[0] != 0 and not lowering.one_image:
        # Keras' TimeDistributed brings the steps to the front, and its layer then takes each by itself.
        steps = rank > 3 and permutation[:2] == [1, 0]
        advice = "keep the batch first, and the images of a batch apart; or export with a batch of 1"
        if steps:
            advice = (
                "keep the batch first; in place of Keras' TimeDistributed take one layer for all steps, such as Conv2D "
                "of a kernel (1, k) for TimeDistributed(Conv1D(n, k))"
            )
        site.fail(f"perm {permutation} moves the first dimension, the batch", advice)
    first = int(value.batched)
    moved = lowering.transpose(site, value, [axis - first for axis in permutation if axis >= first])
    return lowering.reshape_onnx(site, moved, [value.shape[axis] for axis in permutation])


@operator("Pad", unbatched=True)
def _pad(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    rank, mode = len(value.shape), site.text("mode", "constant")
    pads = site.integers("pads")
    fill: float | None = site.number("value", 0.0)
    if site.opset >= 11:
        array, axes = lowering.constant(site, 1), lowering.constant(site, 3)
        pads = None if array is None else [int(size) for size in array.flat]
        fill = lowering.scalar(site, 2)
        if axes is not None and pads is not None and len(pads) == 2 * axes.size:
            pads = _pads_of_axes(pads, site.axes([int(axis) for axis in axes.flat], rank), rank)
    fill = (fill or 0.0) if mode == "constant" else 0.0
    if mode not in ("constant", *BORDERS) or not math.isfinite(fill):
        site.fail(f"mode {mode} with value {fill} is not supported", f"pad with a number or mode {', '.join(BORDERS)}")
    if abs(fill) >= MOST_FILL:
        problem = f"it pads with {fill:g}, and no fixed point holds other values beside that"
        site.fail(problem, "give a MaxPool behind it pads of its own, or pad with a number like the others")
    if pads is None or len(pads) != 2 * rank:
        site.fail(f"pads {pads} are not two numbers for each of {rank} dimensions", "repair the model")
    lowering.not_images(site, value, [axis % rank for axis, size in enumerate(pads) if size])
    if value.batched:
        return _padded(lowering, site, value, pads, fill, mode)
    # The batch is another dimension of size 1.
    raised = Value(value.index, (1, *value.shape))
    made = _padded(lowering, site, raised, [0, *pads[:rank], 0, *pads[rank:]], fill, mode)
    shape = made.shape[1:]
    return Value(lowering.reshape(site, made, Value(0, shape).inner).index, shape)


def _padded(lowering: Lowering, site: Site, value: Value, pads: list[int], fill: float, mode: str) -> Value:
    """With places around, batch counted."""
    rank = len(value.shape)
    value = _cropped(lowering, site, value, pads)
    before, after = ([max(size, 0) for size in sizes] for sizes in (pads[1:rank], pads[rank + 1 :]))
    if mode != "constant":
        return _bordered(lowering, site, value, before, after)
    # What is added and taken off becomes part of layers, and zeros the constant.
    padded = lowering.zeros_around(site, lowering.affine(site, value, add=-fill), before, after)
    return lowering.affine(site, padded, add=fill)


MOST_FILL = 1e4
"""Numbers below this pad. Values beside larger ones would keep few bits."""

BORDERS: dict[str, Callable[[int, int], int]] = {
    "edge": lambda place, size: min(max(place, 0), size - 1),
    "reflect": lambda place, size: size - 1 - abs(size - 1 - place % max(2 * size - 2, 1)),
    "wrap": lambda place, size: place % size,
}
"""The place of an axis that is repeated at a place outside of it, by the mode of `Pad`."""


def _cropped(lowering: Lowering, site: Site, value: Value, pads: list[int]) -> Value:
    """Without what negative pads (batch counted) take away."""
    rank = len(value.shape)
    for axis in range(1, rank):
        first, last = max(-pads[axis], 0), max(-pads[axis + rank], 0)
        if first or last:
            value = lowering.take(site, value, axis - 1, value.shape[axis] - first - last, partial(add, first))
    return value


def _bordered(lowering: Lowering, site: Site, value: Value, before: list[int], after: list[int]) -> Value:
    """With places of each axis repeated around it."""
    mode = site.text("mode", "constant")
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        size = value.inner[axis]
        if mode == "reflect" and max(first, last) >= size:
            site.fail(f"it reflects {max(first, last)} of {size} places", "pad by less than the size")
        if first or last:
            value = lowering.take(site, value, axis, first + size + last, partial(_border, mode, size, first))
    return value


def _border(mode: str, size: int, first: int, place: int) -> int:
    return BORDERS[mode](place - first, size)


def _pads_of_axes(pads: list[int], axes: list[int], rank: int) -> list[int]:
    """Pads of some axes as pads of all."""
    full = [0] * (2 * rank)
    for position, axis in enumerate(axes):
        full[axis], full[axis + rank] = pads[position], pads[position + len(axes)]
    return full


@operator("Concat", unbatched=True)
def _concat(lowering: Lowering, site: Site) -> Value:
    if site.integer("no_and_yes", 0):
        return _no_and_yes(lowering, site)
    names = enumerate(site.node.input)
    takes = [(lowering.required if name in lowering.constants else lowering.score, at) for at, name in names]
    parts = [take(site, at) for take, at in takes]
    made = joined(lowering, site, [part[0] if isinstance(part, tuple) else part for part in parts])
    masks = [part[1] for part in parts if isinstance(part, tuple) and part[1] is not None]
    if not masks:
        return made
    axis = site.axis(site.integer("axis", 1), len(made.shape))
    return masked(lowering, site, made, masks[0].joined(parts, axis))


def _no_and_yes(lowering: Lowering, site: Site) -> Value:
    """`Concat(1 - Sigmoid(z), Sigmoid(z))` of `z` (rewriting.py).

    Of one score these are two probabilities that add up to 1. Of others they are `Sigmoid(Concat(-z, z))`.
    """
    value = lowering.value(site)
    if value.shape == (1, 1) and site.axis(site.integer("axis", 1), 2) == 1 and not lowering.is_within(site):
        scores = lowering.linear(site, value, np.array([[-0.5], [0.5]]), np.zeros(2))
        return lowering.emit(site, {"kind": "softmax"}, [scores], scores.inner)
    scores = joined(lowering, site, [lowering.affine(site, value, mul=-1.0), value])
    return lowering.in_shape_of(scores, lowering.emit(site, {"kind": "sigmoid"}, [scores], scores.inner))


def joined(lowering: Lowering, site: Site, inputs: Sequence[Value | Array]) -> Value:
    """Values and constants behind each other along the node's axis."""
    shapes = [each.shape for each in inputs]
    values = [each for each in inputs if isinstance(each, Value)]
    rank = len(shapes[0])
    axis = site.axis(site.integer("axis", 1), rank)
    if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) != 1 or any(len(s) != rank for s in shapes):
        site.fail("its inputs differ in another dimension than the axis", "repair the model")
    # A batch of one image may stand anywhere, or become part of another dimension.
    whole = lowering.one_image and (axis == 0 or not all(value.batched for value in values))
    merged = not lowering.one_image and not any(value.batched for value in values)
    first = 0 if whole or merged else 1
    advice = "each image must be computed by itself: stack values behind the batch, as torch.stack(values, 1) does"
    site.not_batch([axis if merged else axis + 1 - first], advice)
    result = [*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :]]
    parts: list[Value | int] = [
        lowering.reshape(site, each, each.shape[first:]) if isinstance(each, Value) else each.shape[axis]
        for each in inputs
    ]
    padded, op = _with_gaps(lowering, site, parts, axis - first), {"kind": "concat", "axis": axis - first}
    joined = padded[0] if len(padded) == 1 else lowering.emit(site, op, padded, result[first:])
    if len(values) < len(inputs):
        pieces = [np.zeros(each.shape, np.float32) if isinstance(each, Value) else each for each in inputs]
        joined = lowering.affine(site, joined, add=np.concatenate(pieces, axis).reshape(1, *result[first:]))
    return lowering.reshape_onnx(site, joined, result)


def _with_gaps(lowering: Lowering, site: Site, parts: list[Value | int], axis: int) -> list[Value]:
    """The values among `parts`, with as many zeros around them along `axis` as the numbers between them say."""
    found: list[Value] = []
    gap = 0
    for part in parts:
        if isinstance(part, int):
            gap += part
            continue
        around = [0] * len(part.inner)
        around[axis], gap = gap, 0
        found.append(lowering.zeros_around(site, part, around, [0] * len(around)))
    if gap:
        after = [gap if at == axis else 0 for at in range(len(found[-1].inner))]
        found[-1] = lowering.zeros_around(site, found[-1], [0] * len(after), after)
    return found
