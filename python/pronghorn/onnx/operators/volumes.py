"""Convolutions and poolings of volumes, `(C, D, H, W)`, by those of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pronghorn.onnx.lowering import Floats, Lowering, Value
from pronghorn.onnx.operators.images import pooled
from pronghorn.onnx.site import Site
from pronghorn.onnx.window import Spatial

RANK = 5
"""Dimensions of a volume in ONNX, the batch among them."""


def convolve_volume(
    lowering: Lowering, site: Site, value: Value, spatial: Spatial, weight: Floats, bias: Floats | None, groups: int
) -> Value:
    """A convolution of slices, one below the other, with zeros around each: those that the taps of a place along the
    depth read are its channels. As many multiply-adds as by the definition, but for the rows of zeros.

    Args:
        weight: `(O, C / groups, D, H, W)`.
    """
    (taps, *kernel), (stride, down, across), (dilation, *dilations) = spatial.kernel, spatial.stride, spatial.dilation
    (depth, height, _), width = spatial.output, value.inner[3]
    needed = spatial.before[1] + value.inner[2] + spatial.after[1]
    # Windows of each slice begin at its first row.
    rows = -(-needed // down) * down
    after = [0, spatial.after[0], rows - needed + spatial.after[1], 0]
    padded = lowering.zeros_around(site, value, [0, *spatial.before[:2], 0], after)
    slices = lowering.take(site, padded, 1, taps * depth, lambda at: at // depth * dilation + at % depth * stride)
    image = lowering.reshape(site, slices, (value.inner[0] * taps, depth * rows, width))
    window = Spatial.resolve(
        kernel=kernel,
        size=(depth * rows, width),
        stride=(down, across),
        dilation=dilations,
        pads=(0, spatial.before[2], 0, spatial.after[2]),
    ).window()
    flat = weight.reshape(len(weight), -1, *kernel)
    made = lowering.convolve(site, image, window, flat, bias, groups)
    step = rows // down
    kept = lowering.take(site, made, 1, depth * height, lambda at: at // height * step + at % height)
    return lowering.reshape(site, kept, (len(weight), *spatial.output))


def pool_volume(lowering: Lowering, site: Site, value: Value, spatial: Spatial, **op: Any) -> Value:
    """A pooling of each slice, and then of the places along the depth: a maximum of maxima, or a mean of means. Each
    mean is over the values of its window alone, padding left out."""
    channels, depth, *size = value.inner
    slices = lowering.reshape(site, value, (channels * depth, *size))
    made = pooled(lowering, site, slices, _axes(spatial, lambda numbers, _: numbers[1:]), **op)
    _, height, width = made.inner
    columns = lowering.reshape(site, made, (channels, depth, height * width))
    along = replace(_axes(spatial, lambda numbers, one: (numbers[0], one)), output=(spatial.output[0], height * width))
    return lowering.reshape(site, pooled(lowering, site, columns, along, **op), (channels, *spatial.output))


def _axes(spatial: Spatial, chosen: Callable[[tuple[int, ...], int], tuple[int, ...]]) -> Spatial:
    """The window over some axes. `chosen` takes the numbers of all, and what an axis has that nothing is done with."""
    neutral = {"kernel": 1, "stride": 1, "dilation": 1, "before": 0, "after": 0, "extra": 0, "output": 1}
    return Spatial(**{name: chosen(getattr(spatial, name), one) for name, one in neutral.items()})
