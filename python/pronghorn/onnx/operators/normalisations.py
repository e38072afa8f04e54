"""Normalisations by a deviation, or by a root of a mean square, that is computed from the data.

`x - mean` and the mean square are sums, which cost nothing on shares. Zeros fill the squares up to a power of two:
then their mean is exact, without a factor. `1 / sqrt(mean square + epsilon)` is a function of one value for
each place, by which all elements of the place are multiplied.
"""

from __future__ import annotations

import math

import numpy as np

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import LEAST_EPSILON, Array, Floats, Lowering, Value
from pronghorn.onnx.operators.arithmetic import scaled_logarithm
from pronghorn.onnx.operators.elementwise import magnitude
from pronghorn.onnx.operators.finish import may_be_zero, shares
from pronghorn.onnx.operators.images import channels_of_parts, parts_of_channels, pooled
from pronghorn.onnx.operators.pooling import filled_mean, mean
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site
from pronghorn.onnx.window import Spatial

OF_CHANNELS = 21
"""The opset from which GroupNormalization has a factor and a summand for each channel."""

MOST_EPSILON = 1.0

MOST_APART = 8
"""Rows beside many others that are normalised by themselves, at most. Each of these normalisations takes as many rounds
as that of the others."""

MOST_SUMMANDS = 1000
"""Nodes that are looked at for them."""


@operator("LayerNormalization", unbatched=True)
def _layer_normalization(lowering: Lowering, site: Site) -> Value:
    """Over all axes from `axis` on, then a factor and a summand for each element of these axes."""
    value, axes = _last_axes(lowering, site)
    mul = _of_axes(lowering, site, 1, value, axes)
    add = _of_axes(lowering, site, 2, value, axes)
    return normalised(lowering, site, value, axes, 1e-5, mul, add)


@operator("RMSNormalization", unbatched=True)
def _rms_normalization(lowering: Lowering, site: Site) -> Value:
    """By the root of the mean square over all axes from `axis` on, then a factor for each element of these axes."""
    value, axes = _last_axes(lowering, site)
    mul = _of_axes(lowering, site, 1, value, axes)
    return normalised(lowering, site, value, axes, 1e-5, mul, centred=False)


@operator("MeanVarianceNormalization", unbatched=True)
def _mean_variance_normalization(lowering: Lowering, site: Site) -> Value:
    """Over any axes but the batch. Exporters' own pattern becomes this (normalisation_pattern.py), with its `epsilon`,
    `centred=0` where it subtracts no mean, `spatial=1` where its axes are all behind the channels, and the number
    of `places` by which it divides sums."""
    value = lowering.value(site)
    given = list(range(2, len(value.shape))) if site.integer("spatial", 0) else site.integers("axes")
    axes = site.axes([0, 2, 3] if given is None else given, len(value.shape))
    places = math.prod(value.shape[axis] for axis in axes)
    if round(site.number("places", places)) != places:
        problem = f"it divides sums of {places} places by {site.number('places', places):g}"
        site.fail(problem, "divide by the number of places, or take a LayerNormalization")
    return normalised(lowering, site, value, sorted(axes), 0.0, centred=bool(site.integer("centred", 1)))


@operator("LRN")
def _local_response_normalization(lowering: Lowering, site: Site) -> Value:
    """By a power of a summand and the mean square of the channels around, each place by itself."""
    value, size = lowering.value(site), site.integer("size", 0)
    alpha, beta, bias = (site.number(name, of) for name, of in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    if len(value.inner) < 2 or size < 1 or not bias > 0:
        problem = f"it has size {size} and bias {bias:g}, for a value of shape {list(value.shape)}"
        site.fail(problem, f"channels with places, a size of 1 or more and a bias above 0 are supported, {CUT}")
    channels, places = value.inner[0], math.prod(value.inner[1:])
    flat = lowering.reshape(site, value, (channels, places))
    squares = lowering.reshape(site, lowering.times(site, flat, flat), (1, channels, places))
    pads = ((size - 1) // 2, 0, size // 2, 0)
    around = Spatial.resolve(kernel=(size, 1), size=(channels, places), pads=pads)
    means = pooled(lowering, site, squares, around, kind="average_pool", count_include_pad=True)
    total = lowering.affine(site, lowering.reshape(site, means, (channels, places)), mul=alpha, add=bias)
    factors = lowering.function(site, scaled_logarithm(lowering, site, total, -beta), "exp")
    return lowering.in_shape_of(value, lowering.reshape(site, lowering.times(site, flat, factors), value.inner))


@operator("InstanceNormalization", unbatched=True)
def _instance_normalization(lowering: Lowering, site: Site) -> Value:
    """Each channel over its places, then a factor and a summand for each channel."""
    value, parts = channels_of_parts(lowering, site, lowering.value(site))
    if len(value.shape) < 3:
        site.fail(f"it has no places to normalise over: its input has shape {list(value.shape)}", "give it an image")
    made = normalised(lowering, site, value, list(range(2, len(value.shape))), 1e-5)
    constants = [lowering.required(site, position) for position in (1, 2)]
    return parts_of_channels(lowering, site, _of_channels(lowering, site, made, constants, parts), parts)


@operator("GroupNormalization", unbatched=True)
def _group_normalization(lowering: Lowering, site: Site) -> Value:
    """Each group of channels over these and their places, then a factor and a summand for each channel, before opset
    21 for each group."""
    given = lowering.value(site)
    groups, channels = site.integer("num_groups", 1), given.shape[1] if len(given.shape) > 1 else 1
    if groups < 1 or channels % groups:
        site.fail(f"{channels} channels are no {groups} groups", "make num_groups a divisor of the channels")
    constants = [lowering.required(site, position) for position in (1, 2)]
    if site.opset < OF_CHANNELS:
        for constant in constants:
            _refuse_others(site, constant, groups, "group")
        constants = [np.repeat(constant, channels // groups) for constant in constants]
    value, parts = channels_of_parts(lowering, site, given)
    rows = groups * max(parts, 1)
    grouped = lowering.reshape(site, value, (rows, math.prod(value.inner) // rows))
    made = lowering.reshape(site, normalised(lowering, site, grouped, [2], 1e-5), value.inner)
    return parts_of_channels(lowering, site, _of_channels(lowering, site, made, constants, parts), parts)


@operator("LpNormalization", unbatched=True)
def _lp_normalization(lowering: Lowering, site: Site) -> Value:
    """By the sum of magnitudes, or the root of the sum of squares, over one axis.

    A norm that exporters expand is no larger than the value.
    """
    value = lowering.value(site)
    expanded = site.integers("expanded") or []
    sizes = zip(reversed(expanded), reversed(value.shape), strict=False)
    if len(expanded) > len(value.shape) or any(size not in (1, own) for size, own in sizes):
        problem = f"its norm is expanded to {expanded}, beyond its input's shape {list(value.shape)}"
        site.fail(problem, "divide by the norm as it is, which is broadcast")
    order, axis = site.integer("p", 2), site.axis(site.integer("axis", -1), len(value.shape))
    if order not in (1, 2):
        site.fail(f"it divides by a norm of order {order}", "take p = 1 or p = 2")
    if order == 2:
        return of_unit_length(lowering, site, value, axis)
    is_row = len(value.shape) == 2 and axis == 1 and not lowering.is_within(site)
    if is_row and not may_be_zero(lowering, value):
        return shares(lowering, site, value)
    return of_sum_one(lowering, site, value, axis)


def _last_axes(lowering: Lowering, site: Site) -> tuple[Value, list[int]]:
    """The value, and its axes from `axis` on."""
    value = lowering.value(site)
    rank = len(value.shape)
    return value, list(range(site.axis(site.integer("axis", -1), rank), rank))


def of_unit_length(lowering: Lowering, site: Site, value: Value, axis: int) -> Value:
    """`x / sqrt(sum(x^2))` over an axis (batch counted); zeros stay zeros."""
    count = value.shape[axis]
    return normalised(lowering, site, value, [axis], 0.0, centred=False, scale=1 / math.sqrt(count))


def of_sum_one(lowering: Lowering, site: Site, value: Value, axis: int) -> Value:
    """`x / sum(|x|)` over an axis (batch counted); zeros stay zeros."""
    lowering.keeps_images(site, value, [axis])

    def of_rows(rows: Value) -> Value:
        part, full = filled_mean(lowering, site, magnitude(lowering, site, rows), 1, keep=True)
        return lowering.times(site, rows, lowering.function(site, part, "reciprocal", scale=1 / full))

    return lowering.with_axis_first(site, value, axis, of_rows)


def normalised(
    lowering: Lowering,
    site: Site,
    value: Value,
    axes: list[int],
    epsilon: float,
    mul: Array | None = None,
    add: Array | None = None,
    centred: bool = True,
    scale: float = 1.0,
) -> Value:
    """`(x - mean) / sqrt(mean((x - mean)^2) + epsilon)` over axes (batch counted, rising), times `mul`, plus `add`.

    Args:
        lowering: the graph.
        site: the node.
        value: what is normalised.
        axes: the axes that means are over.
        epsilon: its default; the node's attribute goes first.
        mul: a factor for each element of the axes, in their order.
        add: a summand for each.
        centred: whether the mean is subtracted.
        scale: a factor that the plan tells.
    """
    lowering.keeps_images(site, value, axes)
    if not value.batched:
        raised, behind = Value(value.index, (1, *value.shape)), [axis + 1 for axis in axes]
        made = normalised(lowering, site, raised, behind, epsilon, mul, add, centred, scale)
        return lowering.in_shape_of(value, made)
    if not axes:
        site.fail("it normalises over no axis", "name the axes of the features")
    epsilon = site.number("epsilon", epsilon)
    if not 0 <= epsilon <= MOST_EPSILON:
        site.fail(f"its epsilon is {epsilon:g}", f"make it a number from 0 to {MOST_EPSILON:g}")
    parts = [] if 1 in axes else _rows_apart(lowering, value)
    if parts:
        # Rows of their own have a size of their own: at one scale for all, the smaller ones have no digits.
        taken = [lowering.take(site, value, 0, len(part), part.__getitem__) for part in parts]
        each = [normalised(lowering, site, part, axes, epsilon, mul, add, centred, scale) for part in taken]
        return lowering.emit(site, {"kind": "concat", "axis": 0}, each, value.inner)
    order = [axis - 1 for axis in (*axes, *(a for a in range(1, len(value.shape)) if a not in axes))]
    first = lowering.transpose(site, value, order)
    count, places = math.prod(first.inner[: len(axes)]), first.inner[len(axes) :]
    rows = lowering.reshape(site, first, (count, *places))
    if centred:
        below = lowering.affine(site, mean(lowering, site, rows, [1], keep=True), mul=-1.0)
        rows = lowering.plus(site, rows, below)
    made = _of_rows(lowering, site, rows, max(epsilon, LEAST_EPSILON), scale, mul, add)
    back = lowering.reshape(site, made, first.inner)
    return lowering.transpose(site, back, [order.index(axis) for axis in range(len(order))])


def _rows_apart(lowering: Lowering, value: Value) -> list[range]:
    """The first rows and the others, or the others and the last, where few rows were put beside others, such as the
    token of the class: the value itself, or a summand of it on the way from there. Empty where none were."""
    rows, waiting = value.inner[0], [value.index]
    seen: set[int] = set()
    while waiting and len(seen) < MOST_SUMMANDS:
        index = waiting.pop()
        node = lowering.nodes[index]
        op, kind = node["op"], node["op"]["kind"]
        if index in seen or node["shape"] != list(value.inner):
            continue
        seen.add(index)
        end = 0
        if kind == "concat" and op["axis"] == 0 and len(node["inputs"]) == 2:
            end = lowering.nodes[node["inputs"][0]]["shape"][0]
        if kind == "pad" and not any((*op["before"][1:], *op["after"][1:])):
            end = op["before"][0] or rows - op["after"][0]
        if 0 < min(end, rows - end) <= MOST_APART:
            return [range(end), range(end, rows)]
        if kind in ("add", "affine"):
            waiting += node["inputs"]
    return []


def _of_rows(
    lowering: Lowering, site: Site, rows: Value, epsilon: float, scale: float, mul: Array | None, add: Array | None
) -> Value:
    """A value times `scale`, divided by the root of its mean square over its first dimension."""
    count, ones = rows.inner[0], [1] * (len(rows.inner) - 1)
    # The mean square, but for a part.
    square, full = filled_mean(lowering, site, lowering.times(site, rows, rows), 1, keep=True)
    part = count / full
    # Roots are few: as a part of them a factor costs nothing.
    root = lowering.inverse_root(site, square, epsilon * part, scale * math.sqrt(part))
    product = lowering.times(site, rows, root)
    factor, summand = (np.reshape(1.0 if a is None else a, (1, -1, *ones)) for a in (mul, add))
    return lowering.affine(site, product, factor, 0.0 if add is None else summand)


def _of_channels(lowering: Lowering, site: Site, value: Value, constants: list[Floats], parts: int) -> Value:
    """A factor and a summand for each channel, alike in all parts."""
    channels = value.inner[0]
    for constant in constants:
        _refuse_others(site, constant, channels // max(parts, 1), "channel")
    shape = (1, channels, *(1 for _ in value.inner[1:]))
    mul, add = (np.tile(constant.reshape(-1), max(parts, 1)).reshape(shape) for constant in constants)
    return lowering.affine(site, value, mul, add)


def _refuse_others(site: Site, constant: Floats, count: int, owner: str) -> None:
    """Refuses a constant that has not one number for each of `count` owners."""
    if constant.size != count:
        problem = f"its constant of shape {list(constant.shape)} does not fit {count} {owner}s"
        site.fail(problem, f"give one number a {owner}")


def _of_axes(lowering: Lowering, site: Site, position: int, value: Value, axes: list[int]) -> Array | None:
    """A constant input as one number for each element of the axes."""
    constant = lowering.weights(site, position)
    if constant is None:
        return None
    shape = tuple(value.shape[axis] for axis in axes)
    try:
        return np.broadcast_to(constant, shape).reshape(-1)
    except ValueError:
        problem = f"its constant of shape {list(constant.shape)} does not fit the normalised shape {list(shape)}"
        site.fail(problem, "give it a shape that is broadcast to the normalised axes")
