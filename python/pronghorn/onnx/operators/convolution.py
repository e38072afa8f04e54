"""Convolutions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pronghorn.onnx.advice import REPAIR
from pronghorn.onnx.lowering import Array, Lowering, Value
from pronghorn.onnx.operators.images import (
    as_image,
    channels_of_parts,
    like,
    parts_of_channels,
    refuse_dimensions,
    spatial_of,
)
from pronghorn.onnx.operators.volumes import RANK, convolve_volume
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site
from pronghorn.onnx.window import Spatial, Window

FAR = 512
"""Places from the first to the last of a window of a series, from which on it is taken as one over interleaved series:
a polynomial has 2,048 to 8,192 coefficients, and holds little beside such a window."""


@operator("Conv", unbatched=True)
def _conv(lowering: Lowering, site: Site) -> Value:
    value, weight, bias = (lowering.value(site), lowering.required(site, 1), lowering.weights(site, 2))
    is_volume = len(value.shape) == RANK and value.batched
    if not is_volume:
        refuse_dimensions(site, value)
    channels, groups = value.shape[1], site.integer("group", 1)
    if weight.ndim != len(value.shape) or groups < 1 or weight.shape[1] * groups != channels:
        problem = f"weights of shape {list(weight.shape)} in {groups} groups do not fit {channels} channels"
        site.fail(problem, REPAIR)
    if site.integers("kernel_shape") not in (None, list(weight.shape[2:])):
        site.fail("kernel_shape differs from the shape of the weights", REPAIR)
    spatial = spatial_of(site, weight.shape[2:], value.shape[2:])
    bias = None if bias is None else bias.reshape(-1)
    if is_volume:
        return convolve_volume(lowering, site, value, spatial, weight, bias, groups)
    window, rank = spatial.window(), len(value.shape)
    if rank == 3:
        weight = weight[:, :, None, :]
    if value.batched and rank == 3 and _is_far(spatial):
        return _interleaved(lowering, site, value, spatial, weight, bias, groups)
    if value.batched:
        image = as_image(lowering, site, value)
        return like(lowering, site, lowering.convolve(site, image, window, weight, bias, groups), rank)
    parts = value.shape[0]
    if rank == 3:
        # Series, one below the other.
        image = lowering.transpose(site, Value(value.index, (1, *value.shape)), [1, 0, 2])
        rows = replace(window, output=(parts, window.output[1]))
        made = lowering.transpose(site, lowering.convolve(site, image, rows, weight, bias, groups), [1, 0, 2])
        return Value(made.index, made.inner)
    image, _ = channels_of_parts(lowering, site, value)
    weight = lowering.repeated(site, weight, parts)
    bias = None if bias is None else np.tile(bias, parts)
    made = lowering.convolve(site, image, window, weight, bias, groups * parts)
    return parts_of_channels(lowering, site, made, parts)


def _is_far(spatial: Spatial) -> bool:
    """Whether a window over a series steps over many places."""
    (kernel,), (stride,), (dilation,) = spatial.kernel, spatial.stride, spatial.dilation
    return stride == 1 and dilation > 1 and dilation * (kernel - 1) >= FAR


def _interleaved(
    lowering: Lowering,
    site: Site,
    value: Value,
    spatial: Spatial,
    weight: Array,
    bias: Array | None,
    groups: int,
) -> Value:
    """A convolution of a series by a window whose places are `d` apart: over the columns of an image, each of which is
    the series of every `d`-th place."""
    (kernel,), (dilation,), (before,), (count,) = spatial.kernel, spatial.dilation, spatial.before, spatial.output
    channels, length = value.inner
    rows = -(-(before + length + spatial.after[0]) // dilation)
    padded = lowering.zeros_around(site, value, [0, before], [0, rows * dilation - before - length])
    image = lowering.reshape(site, padded, (channels, rows, dilation))
    kept = rows - kernel + 1
    window = Window((kernel, 1), (1, 1), (1, 1), (0, 0, 0, 0), (kept, dilation))
    made = lowering.convolve(site, image, window, weight.reshape(*weight.shape[:2], kernel, 1), bias, groups)
    series = lowering.reshape(site, made, (len(weight), kept * dilation))
    return series if count == kept * dilation else lowering.take(site, series, 1, count, int)
