"""Operators that pick places along axes, or repeat them: free on shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import numpy as np

from pronghorn.onnx.advice import CUT, LOOK_UP
from pronghorn.onnx.lowering import Array, Lowering, Value
from pronghorn.onnx.masks import chosen, chosen_mask
from pronghorn.onnx.merging import gathered_of_several
from pronghorn.onnx.operators.comparisons import chosen_by
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

TO_THE_END = 10**9
"""The least end with which exporters say that a slice has none: no batch has so many images."""


@operator("Slice", unbatched=True)
def _slice(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    rank = len(value.shape)
    if site.opset < 10:
        starts, ends, axes, steps = (site.integers(name) for name in ("starts", "ends", "axes", "steps"))
    else:
        starts, ends, axes, steps = (lowering.integers(site, position) for position in range(1, 5))
    if starts is None or ends is None:
        site.fail("its starts or ends are absent", "repair the model")
    axes = site.axes(range(len(starts)) if axes is None else axes, rank)
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        problem = f"starts {starts}, ends {ends}, axes {axes} and steps {steps} do not fit each other"
        site.fail(problem, "repair the model")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if axis == 0 and start == 0 and step == 1 and end >= TO_THE_END:
            continue
        value = _taken(lowering, site, value, axis, range(value.shape[axis])[start:end:step])
    return value


@operator("Split", unbatched=True)
def _split(lowering: Lowering, site: Site) -> list[Value]:
    value = lowering.value(site)
    axis = site.axis(site.integer("axis", 0), len(value.shape))
    size, count = value.shape[axis], len(site.node.output)
    sizes = site.integers("split") if site.opset < 13 else lowering.integers(site, 1)
    if sizes is None:
        part = -(-size // count)
        sizes = [part] * (count - 1) + [size - part * (count - 1)]
    given = site.integer("num_outputs", count)
    if len(sizes) != count or given != count or sum(sizes) != size or min(sizes) < 1:
        site.fail(f"it splits {size} places into {sizes}, for {count} outputs", "repair the model")
    ends = list(accumulate(sizes))
    parts = [range(end - part, end) for part, end in zip(sizes, ends, strict=True)]
    return [_taken(lowering, site, value, axis, part) for part in parts]


def _taken(lowering: Lowering, site: Site, value: Value, axis: int, places: Sequence[int]) -> Value:
    """Places along an axis, batch counted where it is the first."""
    first = int(value.batched)
    if lowering.is_apart and list(places) == list(range(value.shape[axis])):
        return value  # Where images are apart the first dimension may be another than the batch, as before a state.
    lowering.not_images(site, value, [axis])
    taken = lowering.take(site, value, axis - first, len(places), places.__getitem__)
    return lowering.reshape_onnx(site, taken, (*value.shape[:axis], len(places), *value.shape[axis + 1 :]))


@operator("Gather", unbatched=True)
def _gather(lowering: Lowering, site: Site) -> Value:
    if site.input(0) in lowering.constants and site.input(1) in lowering.values:
        site.fail(*LOOK_UP)
    value = lowering.value(site)
    axis, first = site.axis(site.integer("axis", 0), len(value.shape)), int(value.batched)
    size, places = value.shape[axis], lowering.integers(site, 1)
    array = lowering.constant(site, 1)
    if places is None or array is None:
        site.fail("its indices are absent", "repair the model")
    wrong = [place for place in places if not -size <= place < size]
    if wrong:
        site.fail(f"index {wrong[0]} does not exist among {size} places", "correct the indices")
    several = gathered_of_several(lowering, site, value, array) if axis == 0 else None
    if several is None and not (axis < first and lowering.one_image and len(places) == 1):
        lowering.not_images(site, value, [axis])
    image = axis < first
    taken = value if image else lowering.take(site, value, axis - first, len(places), lambda at: places[at] % size)
    shape = [*value.shape[:axis], *array.shape, *value.shape[axis + 1 :]]
    return lowering.of_images(site, lowering.reshape_onnx(site, taken, shape, merges=not value.batched), several)


@operator("GatherND")
def _gather_nd(lowering: Lowering, site: Site) -> Value:
    """Places along several axes at once. `before` and `after` are the permutations around it (rewriting.py)."""
    value, indices = lowering.value(site), lowering.constant(site, 1)
    rank = len(value.shape)
    if indices is None or indices.dtype.kind not in "iu" or site.integer("batch_dims", 0):
        site.fail("its indices are no constant whole numbers, or differ between images", f"index by a constant, {CUT}")
    *shape, count = indices.shape or (0,)
    before = site.integers("before") or list(range(rank))
    if not 1 <= count <= rank or indices.size == 0 or sorted(before) != list(range(rank)):
        site.fail(f"indices of shape {list(indices.shape)} do not fit {rank} dimensions", "repair the model")
    indexed, rest = before[:count], before[count:]
    site.not_batch(indexed)
    # The axes of the result before the last permutation: those of the indices, and the rest.
    names = [*range(len(shape)), *(axis + len(shape) for axis in range(len(rest)))]
    batch = len(shape) + rest.index(0)
    after = site.integers("after") or names
    if sorted(after) != names or after[0] != batch:
        site.fail(f"its result has the batch at place {batch}", "keep the batch first")
    places = _flat(site, indices.reshape(-1, count), [value.shape[axis] for axis in indexed])
    others = [axis for axis in rest if axis != 0]
    moved = lowering.transpose(site, value, [axis - 1 for axis in (*others, *indexed)])
    sizes = moved.inner[: len(others)]
    flat = lowering.reshape(site, moved, (*sizes, math.prod(moved.inner[len(others) :])))
    taken = lowering.take(site, flat, len(others), len(places), places.__getitem__)
    found = lowering.reshape(site, taken, (*sizes, *shape))
    order = [len(shape) + rest.index(axis) for axis in others] + list(range(len(shape)))
    return lowering.transpose(site, found, [order.index(axis) for axis in after[1:]])


@operator("GatherElements")
def _gather_elements(lowering: Lowering, site: Site) -> Value:
    """For each place of the result a place along one axis."""
    value, indices = lowering.value(site), lowering.constant(site, 1)
    axis = site.axis(site.integer("axis", 0), len(value.shape))
    if indices is None or indices.dtype.kind not in "iu" or indices.ndim != len(value.shape) or indices.size == 0:
        site.fail("its indices are no constant whole numbers of as many dimensions", f"index by a constant, {CUT}")
    site.not_batch([axis])
    if not lowering.one_image:
        site.fail("its indices are those of one image", "export with a batch of 1, or choose with Gather")
    places = np.indices(indices.shape)
    places[axis] = indices
    flat = _flat(site, np.moveaxis(places, 0, -1).reshape(-1, len(value.shape)), list(value.shape))
    row = lowering.reshape(site, value, (math.prod(value.inner),))
    taken = lowering.take(site, row, 0, len(flat), flat.__getitem__)
    return lowering.reshape_onnx(site, taken, indices.shape)


def _flat(site: Site, indices: Array, sizes: list[int]) -> list[int]:
    """Places of several axes, a row each, as places of one axis that has all of them."""
    if ((indices < -np.array(sizes)) | (indices >= sizes)).any():
        site.fail(f"its indices do not all exist among {sizes} places", "correct the indices")
    return [int(place) for place in np.ravel_multi_index(tuple((indices % sizes).T), sizes)]


@operator("ReverseSequence", unbatched=True)
def _reverse_sequence(lowering: Lowering, site: Site) -> Value:
    """The first places of an axis in the reverse order; exporters write a bidirectional GRU so."""
    value, lengths = lowering.value(site), lowering.integers(site, 1)
    batch, time = (site.axis(site.integer(*axis), len(value.shape)) for axis in (("batch_axis", 1), ("time_axis", 0)))
    if lengths is None or len(lengths) != 1 or value.shape[batch] != 1 or batch == time:
        site.fail(f"it reverses parts of {lengths} places that differ", "give sequences of one length, batch first")
    if not 1 <= lengths[0] <= value.shape[time]:
        site.fail(f"it reverses {lengths[0]} of {value.shape[time]} places", "repair the model")
    order = [*reversed(range(lengths[0])), *range(lengths[0], value.shape[time])]
    return _taken(lowering, site, value, time, order)


@operator("Tile")
def _tile(lowering: Lowering, site: Site) -> Value:
    value, repeats = lowering.value(site), lowering.integers(site, 1)
    if repeats is None or len(repeats) != len(value.shape):
        site.fail(f"its repeats {repeats} are not one for each dimension", "repair the model")
    site.not_batch([axis for axis, times in enumerate(repeats) if times != 1])
    for axis, times in enumerate(repeats[1:]):
        size = value.inner[axis]
        value = lowering.take(site, value, axis, size * times, partial(_modulo, size))
    return value


def _modulo(size: int, place: int) -> int:
    return place % size


@operator("Expand")
def _expand(lowering: Lowering, site: Site) -> Value:
    value, target = lowering.value(site), lowering.integers(site, 1)
    try:
        shape = np.broadcast_shapes(value.shape, tuple(target or ()))
    except ValueError:
        shape = ()
    if math.prod(shape) < 1 or len(shape) != len(value.shape):
        problem = f"shape {target} does not fit its input of shape {list(value.shape)}"
        site.fail(problem, "expand dimensions of size 1 only, behind the batch")
    site.not_batch([axis for axis, size in enumerate(shape[:1]) if size != 1])
    for axis, size in enumerate(shape[1:]):
        if size != value.inner[axis]:
            value = lowering.take(site, value, axis, size, lambda _place: 0)
    return value


@operator("Where")
def _where(lowering: Lowering, site: Site) -> Value:
    """A choice. One that is fixed is free on shares: between two values by indices."""
    if site.input(0) in lowering.values:
        return lowering.lowered(site, chosen_by(lowering, site))
    condition = lowering.constant(site, 0)
    if condition is None or condition.dtype != np.bool_:
        site.fail("its condition is no tensor of booleans", "repair the model")
    first, second = (name in lowering.values for name in (site.input(1), site.input(2)))
    if first and second:
        scores = lowering.score(site, 1), lowering.score(site, 2)
        if scores[0][0] == scores[1][0] and any(mask is not None for _, mask in scores):
            return lowering.lowered(site, chosen_mask(lowering, site, scores, condition))
        made = _choice(lowering, site, condition, [lowering.value(site, 1), lowering.value(site, 2)])
        return lowering.lowered(site, made)
    at, position, kept = (1, 2, condition) if first else (2, 1, ~condition)
    other = lowering.constant(site, position)
    if other is None:
        site.fail(f"its input {position} is absent", "repair the model")
    try:
        # What is not chosen may be infinite.
        added = np.where(kept, np.zeros((), other.dtype), other)
    except ValueError:
        site.fail("its constants are not broadcast to one another", "repair the model")
    made = chosen(lowering, site, lowering.score(site, at), kept, added, site.input(position))
    return lowering.lowered(site, made)


def _choice(lowering: Lowering, site: Site, condition: Array, values: list[Value]) -> Value:
    first, second = lowering.alike(site, [lowering.affine(site, v, add=np.zeros(condition.shape)) for v in values])
    size = math.prod(first.inner)
    flat = [lowering.reshape(site, value, (size,)) for value in (first, second)]
    places = np.arange(size) + size * ~np.broadcast_to(condition, first.shape).reshape(-1)
    both = lowering.emit(site, {"kind": "concat", "axis": 0}, flat, (2 * size,))
    return lowering.reshape(site, lowering.take(site, both, 0, size, places.__getitem__), first.inner)
