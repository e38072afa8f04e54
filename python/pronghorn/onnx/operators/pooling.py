"""Poolings and means."""

from __future__ import annotations

import math
from collections.abc import Callable

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import Lowering, Value
from pronghorn.onnx.operators.elementwise import magnitude
from pronghorn.onnx.operators.images import (
    as_image,
    channels_of_parts,
    like,
    parts_of_channels,
    pooled,
    spatial_of,
)
from pronghorn.onnx.operators.volumes import RANK, pool_volume
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site
from pronghorn.onnx.window import Spatial

MOST_FACTORS = 16
"""Most values of one product: each pair of them takes precision."""


@operator("MaxPool", unbatched=True)
def _max_pool(lowering: Lowering, site: Site) -> Value:
    value, parts = channels_of_parts(lowering, site, lowering.value(site))
    if len(value.shape) == RANK:
        return pool_volume(lowering, site, value, _pool(site, value), kind="max_pool")
    image, spatial = as_image(lowering, site, value), _pool(site, value)
    result = pooled(lowering, site, image, spatial, kind="max_pool")
    return parts_of_channels(lowering, site, like(lowering, site, result, len(value.shape)), parts)


@operator("AveragePool", unbatched=True)
def _average_pool(lowering: Lowering, site: Site) -> Value:
    value, parts = channels_of_parts(lowering, site, lowering.value(site))
    include = bool(site.integer("count_include_pad", 0))
    if len(value.shape) == RANK:
        spatial = _pool(site, value)
        if include:
            value = lowering.zeros_around(site, value, [0, *spatial.before], [0, *spatial.after])
            spatial = spatial.without_padding()
        return pool_volume(lowering, site, value, spatial, kind="average_pool", count_include_pad=False)
    image, spatial = as_image(lowering, site, value), _pool(site, value)
    # What ceil_mode adds beyond the padding never counts, so padding that counts becomes zeros of
    # the input.
    if include and any(spatial.extra):
        top, left, bottom, right = spatial.window().padding
        image = lowering.zeros_around(site, image, [0, top, left], [0, bottom, right])
        spatial, include = spatial.without_padding(), False
    result = pooled(lowering, site, image, spatial, kind="average_pool", count_include_pad=include)
    return parts_of_channels(lowering, site, like(lowering, site, result, len(value.shape)), parts)


@operator("GlobalAveragePool", unbatched=True)
def _global_average_pool(lowering: Lowering, site: Site) -> Value:
    value, parts = channels_of_parts(lowering, site, lowering.value(site))
    made = mean(lowering, site, value, list(range(2, len(value.shape))), keep=True)
    return parts_of_channels(lowering, site, made, parts)


@operator("GlobalMaxPool", unbatched=True)
def _global_max_pool(lowering: Lowering, site: Site) -> Value:
    value, parts = channels_of_parts(lowering, site, lowering.value(site))
    made = maximum(lowering, site, value, list(range(2, len(value.shape))), keep=True)
    return parts_of_channels(lowering, site, made, parts)


@operator("ReduceL2", "ReduceSumSquare", unbatched=True)
def _reduce_squares(lowering: Lowering, site: Site) -> Value:
    """A sum of squares; of a norm the client takes the root."""
    value = lowering.value(site)
    if site.operator == "ReduceL2":
        lowering.refuse_cut_off(site, "it takes roots of whole numbers")
    square = lowering.in_shape_of(value, lowering.times(site, value, value))
    total = _over_axes(lowering, site, square, "ReduceSum")
    if site.operator == "ReduceSumSquare":
        return total
    return lowering.in_shape_of(total, lowering.root(site, total))


@operator("ReduceL1", unbatched=True)
def _reduce_magnitudes(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    magnitudes = lowering.in_shape_of(value, magnitude(lowering, site, value))
    return _over_axes(lowering, site, magnitudes, "ReduceSum")


@operator("ReduceLogSum", unbatched=True)
def _reduce_log_sum(lowering: Lowering, site: Site) -> Value:
    """The logarithm of a sum, which at the end of the model is the client's."""
    lowering.refuse_cut_off(site, "it takes logarithms of whole numbers")
    total = _over_axes(lowering, site, lowering.value(site), "ReduceSum")
    if lowering.is_within(site):
        return lowering.in_shape_of(total, lowering.function(site, total, "log"))
    return lowering.in_shape_of(total, lowering.emit(site, {"kind": "log"}, [total], total.inner))


@operator("ReduceMin", unbatched=True)
def _reduce_min(lowering: Lowering, site: Site) -> Value:
    """`-max(-x)`."""
    negated = lowering.affine(site, lowering.value(site), mul=-1.0)
    return lowering.affine(site, _over_axes(lowering, site, negated, "ReduceMax"), mul=-1.0)


@operator("ReduceMean", "ReduceMax", "ReduceSum", "ReduceProd", unbatched=True)
def _reduce(lowering: Lowering, site: Site) -> Value:
    return _over_axes(lowering, site, lowering.value(site), site.node.op_type)


def _over_axes(lowering: Lowering, site: Site, value: Value, kind: str) -> Value:
    """ReduceMean, ReduceMax, ReduceSum or ReduceProd of a value over the axes of a node."""
    rank = len(value.shape)
    axes = lowering.axes(site, since=13 if site.operator == "ReduceSum" else 18)
    if not axes and site.integer("noop_with_empty_axes", 0):
        return value
    found = site.axes(axes, rank) if axes else list(range(rank))
    count = math.prod(value.shape[axis] for axis in found)
    if kind == "ReduceMean" and count > 1:
        lowering.refuse_cut_off(site, "it takes means of whole numbers")
    pool = {"ReduceMax": maximum, "ReduceProd": _product}.get(kind, mean)
    reduced = pool(lowering, site, value, found, bool(site.integer("keepdims", 1)))
    return lowering.affine(site, reduced, mul=count) if kind == "ReduceSum" else reduced


def _pool(site: Site, value: Value) -> Spatial:
    """The window of a pooling."""
    kernel = site.integers("kernel_shape")
    if kernel is None:
        site.fail("kernel_shape is absent", "repair the model")
    return spatial_of(site, kernel, value.shape[2:], bool(site.integer("ceil_mode", 0)))


def mean(lowering: Lowering, site: Site, value: Value, axes: list[int], keep: bool) -> Value:
    """Mean over axes (batch counted)."""

    def whole(image: Value) -> Value:
        return lowering.emit(site, {"kind": "global_average_pool"}, [image], (image.inner[0], 1, 1))

    return _reduced(lowering, site, value, axes, keep, whole)


def filled_mean(lowering: Lowering, site: Site, value: Value, axis: int, keep: bool) -> tuple[Value, int]:
    """The mean over an axis (batch counted) that zeros fill up to a power of two, and that power: sums on shares are
    exact then, without a factor."""
    inner, count = axis - int(value.batched), value.shape[axis]
    full = 1 << (count - 1).bit_length()
    after = [full - count if place == inner else 0 for place in range(len(value.inner))]
    filled = lowering.zeros_around(site, value, [0] * len(after), after)
    return mean(lowering, site, filled, [axis], keep), full


def maximum(lowering: Lowering, site: Site, value: Value, axes: list[int], keep: bool) -> Value:
    """Maximum over axes (batch counted)."""

    def whole(image: Value) -> Value:
        size = image.inner[1:]
        return pooled(lowering, site, image, Spatial.resolve(kernel=size, size=size), kind="max_pool")

    return _reduced(lowering, site, value, axes, keep, whole)


def _product(lowering: Lowering, site: Site, value: Value, axes: list[int], keep: bool) -> Value:
    """Product over axes (batch counted) of few places."""

    def whole(image: Value) -> Value:
        channels, *size = image.inner
        count = math.prod(size)
        if count > MOST_FACTORS:
            site.fail(f"it multiplies {count} values", f"at most {MOST_FACTORS} are supported, {CUT}")
        rows = lowering.reshape(site, image, (channels, count))
        factors = [lowering.take(site, rows, 1, 1, [place].__getitem__) for place in range(count)]
        # In pairs: the fewest products one after the other.
        while len(factors) > 1:
            pairs = zip(factors[::2], factors[1::2], strict=False)
            factors = [*(lowering.times(site, *pair) for pair in pairs), *factors[len(factors) & ~1 :]]
        return factors[0]

    return _reduced(lowering, site, value, axes, keep, whole)


def _reduced(
    lowering: Lowering, site: Site, value: Value, axes: list[int], keep: bool, pool: Callable[[Value], Value]
) -> Value:
    """Axes (batch counted) moved last and pooled; `pool` makes one value of each channel of that image."""
    if not axes:
        return value
    lowering.keeps_images(site, value, axes)
    rank, first = len(value.shape), int(value.batched)
    kept = [axis for axis in range(first, rank) if axis not in axes]
    shape = [1 if axis in axes else value.shape[axis] for axis in range(rank) if keep or axis not in axes]
    moved = lowering.transpose(site, value, [axis - first for axis in [*kept, *sorted(axes)]])
    channels = math.prod(value.shape[axis] for axis in kept)
    image_shape = (channels, *moved.inner[1:]) if len(moved.inner) == 3 and len(kept) == 1 else None
    reduced = math.prod(value.shape[axis] for axis in axes)
    image = lowering.reshape(site, moved, image_shape or (channels, 1, reduced))
    return lowering.reshape_onnx(site, pool(image), shape, merges=not value.batched)
