"""Values as images, and windows over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import Any

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import Lowering, Value
from pronghorn.onnx.site import Site
from pronghorn.onnx.window import Spatial


def as_image(lowering: Lowering, site: Site, value: Value) -> Value:
    """`(C, L)` as `(C, 1, L)`; `(C, H, W)` as it is."""
    refuse_dimensions(site, value)
    if len(value.shape) == 4:
        return value
    return lowering.reshape(site, value, (value.inner[0], 1, value.inner[1]))


def refuse_dimensions(site: Site, value: Value) -> None:
    """Refuses what is neither a series nor an image."""
    if len(value.shape) not in (3, 4):
        problem = f"its input has {len(value.shape) - 2} spatial dimensions"
        site.fail(
            problem,
            "1 and 2 are supported, (batch, C, L) and (batch, C, H, W), and 3 by Conv, ConvTranspose, MaxPool, "
            f"AveragePool and Resize, {CUT}",
        )


def like(lowering: Lowering, site: Site, image: Value, rank: int) -> Value:
    """Undoes `_image` for a value of ONNX rank `rank`."""
    return image if rank == 4 else lowering.reshape(site, image, (image.inner[0], image.inner[2]))


def channels_of_parts(lowering: Lowering, site: Site, value: Value) -> tuple[Value, int]:
    """A value of several images that are merged into the batch, `(T, C, ...)`, as one image of `T * C` channels, for
    operators that compute each channel by itself; and `T`. A value with its batch first as it is, and 0.
    """
    if value.batched or len(value.shape) < 2:
        return value, 0
    parts, channels, *size = value.shape
    return lowering.reshape(site, value, (parts * channels, *size)), parts


def parts_of_channels(lowering: Lowering, site: Site, value: Value, parts: int) -> Value:
    """Undoes `channels_of_parts`."""
    if parts == 0:
        return value
    channels, *size = value.inner
    inner = (parts, channels // parts, *size)
    return Value(lowering.reshape(site, value, inner).index, inner)


def spatial_of(site: Site, kernel: Sequence[int], size: Sequence[int], ceil: bool = False) -> Spatial:
    """The window of this node over an input of `size`, a number an axis."""
    try:
        return Spatial.resolve(
            kernel=kernel,
            size=size,
            stride=site.integers("strides"),
            dilation=site.integers("dilations"),
            pads=site.integers("pads"),
            auto_pad=site.text("auto_pad", "NOTSET"),
            ceil=ceil,
        )
    except ValueError as error:
        site.fail(str(error), "correct its attributes, or give a larger input shape (--shape)")


def pooled(lowering: Lowering, site: Site, image: Value, spatial: Spatial, **op: Any) -> Value:
    """A pooling of an image, with what ceil_mode adds to its padding."""
    window = spatial.window(extra=True)
    return lowering.emit(site, {**op, "window": window.json()}, [image], (image.inner[0], *window.output))


def interleave(lowering: Lowering, site: Site, image: Value, phases: Sequence[int], places: Sequence[range]) -> Value:
    """An image or volume of `C` channels from one of `C * prod(phases)`, whose channels are its phases.

    Place `p` of an axis is place `p // phases` of phase `p % phases`. `places` are the places to keep. Free on shares.
    """
    across, count = math.prod(phases), len(phases)
    if across > 1:
        channels, *size = image.inner
        split = lowering.reshape(site, image, (channels // across, *phases, *size))
        pairs = [axis for first in range(1, count + 1) for axis in (first + count, first)]
        moved = lowering.transpose(site, split, [0, *pairs])
        image = lowering.reshape(site, moved, (channels // across, *map(mul, size, phases)))
    for axis, kept in enumerate(places, start=1):
        image = lowering.take(site, image, axis, len(kept), kept.__getitem__)
    return image
