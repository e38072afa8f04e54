"""Images and volumes resized by interpolation: convolutions of each channel by itself with public kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from pronghorn.onnx.lowering import Floats, Lowering, Value
from pronghorn.onnx.operators.images import as_image, interleave, like
from pronghorn.onnx.operators.volumes import RANK
from pronghorn.onnx.site import Site
from pronghorn.onnx.window import Spatial

Kernel = Callable[[Fraction], list[tuple[int, Fraction]]]
"""Places of the input and their weights, of a position."""

LARGEST_KERNEL = 25
"""Most places of the input in one window: beyond, height and width are resized one after the other."""

MOST_PHASES = 256
"""Most phases of both axes in one convolution: beyond, height and width are resized one after the other."""

LARGEST_FACTOR = 1 << 12
"""Most phases of an axis."""


def linear(position: Fraction) -> list[tuple[int, Fraction]]:
    """Linear interpolation between two places."""
    first = math.floor(position)
    part = position - first
    return [(first, 1 - part), (first + 1, part)] if part else [(first, Fraction(1))]


def cubic(slope: Fraction) -> Kernel:
    """Cubic convolution with `slope` (Keys, Cubic convolution interpolation, 1981, equation 4)."""

    def weight(distance: Fraction) -> Fraction:
        d, a = abs(distance), slope
        return (a + 2) * d**3 - (a + 3) * d**2 + 1 if d <= 1 else a * (d**3 - 5 * d**2 + 8 * d - 4)

    def places(position: Fraction) -> list[tuple[int, Fraction]]:
        first = math.floor(position) - 1
        found = [(first + k, weight(position - first - k)) for k in range(4)]
        return [(place, factor) for place, factor in found if factor]

    return places


@dataclass(frozen=True)
class Resampled:
    """An axis of `size` places to be resized: the places of the result, their positions in it, and the kernel there.

    The positions are evenly spaced. With a distance of `step / phases` between them, place `phases * u + r` of the
    result reads the places of place `r`, moved by `step * u`: a convolution of stride `step` makes each phase `r`.
    """

    size: int
    result: int
    position: Callable[[int], Fraction]
    kernel: Kernel

    @cached_property
    def phases(self) -> int:
        """Places of the result that have kernels of their own."""
        return min(self._distance.denominator, self.result)

    @property
    def step(self) -> int:
        """Places of the input from one kernel of a phase to the next; 1 where each phase has one place."""
        return self._distance.numerator if self.phases == self._distance.denominator else 1

    @property
    def _distance(self) -> Fraction:
        return self.position(1) - self.position(0)

    @property
    def count(self) -> int:
        """Places of each phase."""
        return -(-self.result // self.phases)

    @cached_property
    def taps(self) -> list[list[tuple[int, Fraction]]]:
        """For each phase places of the input and their weights; places beyond the border stand for those at it."""
        found = [self.kernel(self.position(phase)) for phase in range(self.phases)]
        if self.count > 1:
            return found
        return [[(min(max(place, 0), self.size - 1), weight) for place, weight in phase] for phase in found]

    @property
    def first(self) -> int:
        """The first place of the first kernels."""
        return min(place for phase in self.taps for place, _ in phase)

    @property
    def width(self) -> int:
        """The kernels' size."""
        return 1 + max(place for phase in self.taps for place, _ in phase) - self.first

    @property
    def extent(self) -> int:
        """Places of the input that all kernels take together."""
        return (self.count - 1) * self.step + self.width

    @property
    def matrix(self) -> Floats:
        """The kernels, `(phases, width)`."""
        made = np.zeros((self.phases, self.width))
        for phase, taps in enumerate(self.taps):
            for place, weight in taps:
                made[phase, place - self.first] += float(weight)
        return made.astype(np.float32)


def resample(lowering: Lowering, site: Site, value: Value, given: Mapping[int, Resampled]) -> Value:
    """Resizes the axes (batch counted) of an image, which must be spatial."""
    axes = dict(given)
    wrong = [axis for axis in axes if axis < 2]
    if wrong:
        site.fail(f"it interpolates along axis {wrong[0]}", "interpolate along the axes behind the channels")
    if any(axis.phases > LARGEST_FACTOR for axis in axes.values()):
        site.fail("its scale is too large", f"resize by at most {LARGEST_FACTOR}")
    for axis in [axis for axis, resampled in axes.items() if resampled.size == 1]:
        # One place has no second one to interpolate with.
        value = lowering.take(site, value, axis - 1, axes.pop(axis).result, lambda _: 0)
    if len(value.shape) == RANK and value.batched:
        return _of_volume(lowering, site, value, axes)
    image, rank = as_image(lowering, site, value), len(value.shape)
    height, width = (axes.get(axis) for axis in (2 if rank == 4 else 0, rank - 1))
    return like(lowering, site, _of_image(lowering, site, image, height, width), rank)


def _of_volume(lowering: Lowering, site: Site, value: Value, axes: Mapping[int, Resampled]) -> Value:
    """Resizes the depth, as the height of an image of columns, and then each slice."""
    depth, height, width = (axes.get(axis) for axis in (2, 3, 4))
    channels, _, *size = value.inner
    columns = lowering.reshape(site, value, (channels, value.inner[1], math.prod(size)))
    columns = _of_image(lowering, site, columns, depth, None)
    slices = lowering.reshape(site, columns, (channels * columns.inner[1], *size))
    made = _of_image(lowering, site, slices, height, width)
    return lowering.reshape(site, made, (channels, columns.inner[1], *made.inner[1:]))


def _of_image(lowering: Lowering, site: Site, image: Value, height: Resampled | None, width: Resampled | None) -> Value:
    """Resizes an image, where anything is to be resized."""
    if height is None and width is None:
        return image
    small = height is None or width is None
    if height is not None and width is not None:
        small = height.width * width.width <= LARGEST_KERNEL and height.phases * width.phases <= MOST_PHASES
    for pair in [(height, width)] if small else [(None, width), (height, None)]:
        image = _convolved(lowering, site, image, *pair)
    return image


def _convolved(lowering: Lowering, site: Site, image: Value, *given: Resampled | None) -> Value:
    """Resizes height and width by one convolution, where they are given."""
    axes = [axis or _kept(size) for axis, size in zip(given, image.inner[1:], strict=True)]
    for number, axis in enumerate(axes, start=1):
        image = lowering.take(site, image, number, axis.extent, _clamped(axis))
    channels = image.inner[0]
    window = Spatial.resolve(
        kernel=[axis.width for axis in axes], size=image.inner[1:], stride=[axis.step for axis in axes]
    ).window()
    down, right = (axis.matrix for axis in axes)
    kernels = (down[:, None, :, None] * right[None, :, None, :]).reshape(-1, 1, down.shape[1], right.shape[1])
    made = lowering.convolve(site, image, window, np.tile(kernels, (channels, 1, 1, 1)), None, channels)
    return interleave(lowering, site, made, [axis.phases for axis in axes], [range(axis.result) for axis in axes])


def _kept(size: int) -> Resampled:
    """An axis that stays as it is."""
    return Resampled(size, size, Fraction, linear)


def _clamped(axis: Resampled) -> Callable[[int], int]:
    return lambda place: min(max(place + axis.first, 0), axis.size - 1)
