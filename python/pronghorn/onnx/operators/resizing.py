"""Images resized, and channels moved into space: free on shares, but for interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from operator import mul

import numpy as np

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import Lowering, Value
from pronghorn.onnx.operators.interpolation import Resampled, cubic, linear, resample
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

HALF = Fraction(1, 2)

CLOSE = 1e-4
"""The part of a place by which a position may be off."""

MOST_EXACT = 1 << 12
"""Scales of whole numbers over powers of two, of which both are small, divide places exactly."""

POSITIONS: dict[str, Callable[[int, Fraction], Fraction]] = {
    "asymmetric": lambda place, scale: place / scale,
    "half_pixel": lambda place, scale: (place + HALF) / scale - HALF,
    "tf_half_pixel_for_nn": lambda place, scale: (place + HALF) / scale,
}
"""The position in the input of a place in the result, by `coordinate_transformation_mode`."""

ROUNDINGS: dict[str, Callable[[Fraction], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda position: math.ceil(position - HALF),
    "round_prefer_ceil": lambda position: math.floor(position + HALF),
}
"""The place at a position, by `nearest_mode`."""


@operator("DepthToSpace")
def _depth_to_space(lowering: Lowering, site: Site) -> Value:
    value, block = _blocks(lowering, site)
    channels, height, width = value.inner
    if channels % block**2:
        site.fail(f"{channels} channels are not a multiple of {block} x {block}", "correct the blocksize")
    mode, rest = site.text("mode", "DCR"), channels // block**2
    match mode:
        case "DCR":
            split, order = (block, block, rest, height, width), [2, 3, 0, 4, 1]
        case "CRD":
            split, order = (rest, block, block, height, width), [0, 3, 1, 4, 2]
        case _:
            site.fail(f"mode {mode} does not exist", "use DCR or CRD")
    moved = lowering.transpose(site, lowering.reshape(site, value, split), order)
    return lowering.reshape(site, moved, (rest, height * block, width * block))


@operator("SpaceToDepth")
def _space_to_depth(lowering: Lowering, site: Site) -> Value:
    value, block = _blocks(lowering, site)
    channels, height, width = value.inner
    if height % block or width % block:
        site.fail(f"{height} x {width} is not a multiple of {block}", "correct the blocksize")
    height, width = height // block, width // block
    split = lowering.reshape(site, value, (channels, height, block, width, block))
    moved = lowering.transpose(site, split, [2, 4, 0, 1, 3])
    return lowering.reshape(site, moved, (channels * block**2, height, width))


def _blocks(lowering: Lowering, site: Site) -> tuple[Value, int]:
    """The image and the size of its blocks."""
    value, block = lowering.value(site), site.integer("blocksize", 0)
    if len(value.shape) != 4 or block < 1:
        problem = f"its input has shape {list(value.shape)} and its blocksize is {block}"
        site.fail(problem, "it takes (batch, C, H, W) and a blocksize of at least 1")
    return value, block


@operator("Resize", "Upsample")
def _resize(lowering: Lowering, site: Site) -> Value:
    value, old = lowering.value(site), site.opset < 11 or site.node.op_type == "Upsample"
    mode = site.text("mode", "nearest")
    position = "asymmetric" if old else site.text("coordinate_transformation_mode", "half_pixel")
    scales = dict(enumerate(_scales(lowering, site, value, old)))
    changed = {axis: pair for axis, pair in scales.items() if pair != (value.shape[axis], Fraction(1))}
    site.not_batch(changed)
    if mode != "nearest":
        return _interpolated(lowering, site, value, mode, position, changed)
    rounding = "floor" if old else site.text("nearest_mode", "round_prefer_floor")
    for axis, (count, scale) in changed.items():
        if old and scale < 1:
            site.fail(f"versions before 11 shrink axis {axis} in several ways", "export with opset 11 or later")
        source = _source(site, (position, rounding), scale, (axis, value.shape[axis], count))
        value = lowering.take(site, value, axis - 1, count, source)
    return value


def _interpolated(
    lowering: Lowering,
    site: Site,
    value: Value,
    mode: str,
    position: str,
    scales: dict[int, tuple[int, Fraction]],
) -> Value:
    """Mode linear (bilinear in old opsets), or cubic."""
    kernels = {"linear": linear, "bilinear": linear, "cubic": cubic(Fraction(site.number("cubic_coeff_a", -0.75)))}
    if mode not in kernels:
        site.fail(f"mode {mode} is not supported", f"use nearest, linear or cubic, {CUT}")
    shrinks = any(scale < 1 for _, scale in scales.values())
    if (site.integer("antialias", 0) and shrinks) or (mode == "cubic" and site.integer("exclude_outside", 0)):
        site.fail("antialias and exclude_outside are not supported", f"export without them, {CUT}")
    axes = {}
    for axis, (count, scale) in scales.items():
        size = value.shape[axis]
        if position == "align_corners":
            at = partial(mul, Fraction(size - 1, max(count - 1, 1)))
        else:
            at = partial(_at, POSITIONS[_position(site, position, scale, (size, count))], scale)
        axes[axis] = Resampled(size, count, at, kernels[mode])
    return resample(lowering, site, value, axes)


def _at(position: Callable[[int, Fraction], Fraction], scale: Fraction, place: int) -> Fraction:
    return position(place, scale)


def _meant(scale: Fraction, size: int, count: int) -> Fraction:
    """The scale that was meant. Scales are float32: 4 / 3 is not among them."""
    near = scale.limit_denominator(max(size, count))
    return near if abs(near - scale) * size < CLOSE else scale


def _is_exact(scale: Fraction) -> bool:
    """Whether float32 holds the scale with so few bits that positions at a tie are exactly there."""
    return scale.denominator.bit_count() == 1 and scale.denominator * scale.numerator < MOST_EXACT


def _scales(lowering: Lowering, site: Site, value: Value, old: bool) -> list[tuple[int, Fraction]]:
    """The size of the result and the scale along each axis."""
    rank = len(value.shape)
    axes = site.axes(site.integers("axes") or range(rank), rank)
    sizes = None if old else lowering.integers(site, 3)
    given: list[tuple[int, Fraction]]
    if sizes:
        policy = site.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            site.fail(f"keep_aspect_ratio_policy {policy} is not supported", "give the sizes that it makes")
        given = [(size, Fraction(size, value.shape[axis])) for axis, size in zip(axes, sizes, strict=False)]
        count = len(sizes)
    else:
        factors = [np.float32(factor) for factor in _factors(lowering, site, old)]
        # A product of float32, as the runtime has it: 6 places by 7 / 6 are 7.
        lengths = [math.floor(np.float32(value.shape[axis]) * f) for axis, f in zip(axes, factors, strict=False)]
        given = [
            (length, _meant(Fraction(float(f)), value.shape[axis], length))
            for axis, length, f in zip(axes, lengths, factors, strict=False)
        ]
        count = len(factors)
    if count != len(axes) or any(size < 1 for size, _ in given):
        site.fail("its scales or sizes do not fit its input", "repair the model")
    found = [(size, Fraction(1)) for size in value.shape]
    for axis, pair in zip(axes, given, strict=True):
        found[axis] = pair
    return found


def _factors(lowering: Lowering, site: Site, old: bool) -> list[float]:
    """The scales, which some versions have as an attribute."""
    if site.node.op_type == "Upsample" and site.opset < 9:
        factors = [float(factor) for factor in site.attributes.get("scales", [])]
    else:
        factors = [float(factor) for factor in lowering.required(site, 1 if old else 2).flat]
    if not all(math.isfinite(factor) and factor > 0 for factor in factors):
        site.fail(f"its scales are {factors}", "make them positive numbers")
    return factors


def _source(site: Site, modes: tuple[str, str], scale: Fraction, sizes: tuple[int, int, int]) -> Callable[[int], int]:
    """The place of an axis that is nearest to a place in the result, whatever rounding does to positions.

    `modes`: of coordinates and of rounding. `sizes`: the axis, its places before and after.
    """
    (position, rounding), (axis, size, count) = modes, sizes
    if rounding not in ROUNDINGS:
        site.fail(f"rounding {rounding} is not supported", f"use {', '.join(ROUNDINGS)}")
    at, rounded = POSITIONS[_position(site, position, scale, (size, count))], ROUNDINGS[rounding]
    off = Fraction(0) if _is_exact(scale) else Fraction(CLOSE)

    def near(position: Fraction) -> int:
        return min(max(rounded(position), 0), size - 1)

    def source(place: int) -> int:
        exact = at(place, scale)
        # Zero is a quotient of zero, or of an odd scale.
        if exact and near(exact - off) != near(exact + off):
            problem = f"with its scale {float(scale):g} along axis {axis}, rounding decides what place {place} reads"
            site.fail(problem, "resize by a factor that float32 holds, such as a whole one, or in mode linear")
        return near(exact)

    return source


def _position(site: Site, position: str, scale: Fraction, sizes: tuple[int, int]) -> str:
    """The mode of coordinates among `POSITIONS`. `sizes`: before and after."""
    if position == "pytorch_half_pixel":
        position = "half_pixel" if sizes[1] > 1 else "asymmetric"
    if position == "half_pixel_symmetric" and (scale * sizes[0]).denominator == 1:
        position = "half_pixel"
    if position not in POSITIONS:
        site.fail(f"coordinates {position} are not supported", f"use {', '.join(POSITIONS)}")
    return position
