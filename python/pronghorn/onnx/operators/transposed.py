"""Transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pronghorn.onnx.advice import REPAIR
from pronghorn.onnx.lowering import MAX_ELEMENTS, Floats, Lowering, Value
from pronghorn.onnx.operators.images import as_image, interleave, like
from pronghorn.onnx.operators.volumes import RANK, convolve_volume
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site
from pronghorn.onnx.window import LARGEST, Spatial

MOST_PHASES = 1 << 16
"""Most taps and phases of an axis."""


@operator("ConvTranspose")
def _conv_transpose(lowering: Lowering, site: Site) -> Value:
    """As a convolution that makes each phase of the result in channels of its own (Shi et al., Is the deconvolution
    layer the same as a convolutional layer?, arXiv:1609.07009), which are interleaved: no product with an inserted
    zero."""
    value, weight, bias = (lowering.value(site), lowering.required(site, 1), lowering.weights(site, 2))
    is_volume = len(value.shape) == RANK and value.batched
    image, groups = value if is_volume else as_image(lowering, site, value), site.integer("group", 1)
    if weight.ndim != len(value.shape) or groups < 1 or weight.shape[0] != image.inner[0] or weight.shape[0] % groups:
        problem = f"weights of shape {list(weight.shape)} in {groups} groups do not fit {image.inner[0]} channels"
        site.fail(problem, REPAIR)
    if site.integers("kernel_shape") not in (None, list(weight.shape[2:])):
        site.fail("kernel_shape differs from the shape of the weights", REPAIR)
    axes = _axes(site, value.shape[2:], weight.shape[2:])
    if weight.ndim == 3:
        weight, axes = weight[:, :, None, :], [_Axis(1, 1, 1, 1, 0, 1), *axes]
    phases = [axis.stride for axis in axes]
    kernels = _phases(site, weight, groups, axes)
    bias = None if bias is None else np.repeat(bias.reshape(-1), math.prod(phases))
    image = _padded(lowering, site, image, axes)
    spatial = Spatial.resolve(kernel=kernels.shape[2:], size=image.inner[1:])
    if is_volume:
        made = convolve_volume(lowering, site, image, spatial, kernels, bias, groups)
    else:
        made = lowering.convolve(site, image, spatial.window(), kernels, bias, groups)
    result = interleave(lowering, site, made, phases, [axis.places for axis in axes])
    return result if is_volume else like(lowering, site, result, len(value.shape))


@dataclass(frozen=True)
class _Axis:
    """An axis of a transposed convolution: place `stride * i + dilation * k - before` of the result gets place `i` of
    the input times tap `k`.

    Place `p` of the result is at position `p + skip` of the interleaved phases. `skip` is chosen so that the kernel
    of the phases is small.
    """

    size: int
    taps: int
    stride: int
    dilation: int
    before: int
    result: int

    @property
    def skip(self) -> int:
        """Positions before the first of the result."""

        def span(skip: int) -> int:
            offsets = [offset for offset, _ in self._offsets(skip)]
            return max(offsets) - min(offsets)

        return min(range(self.stride), key=span)

    def _offsets(self, skip: int) -> list[tuple[int, int]]:
        """For each tap the places from the input's to that of the phase, and the phase."""
        return [divmod(k * self.dilation - self.before + skip, self.stride) for k in range(self.taps)]

    @property
    def taps_of_phases(self) -> list[tuple[int, int]]:
        """For each tap its place in the kernel of the phases, and its phase."""
        offsets = self._offsets(self.skip)
        last = max(offset for offset, _ in offsets)
        return [(last - offset, phase) for offset, phase in offsets]

    @property
    def kernel(self) -> int:
        """Size of the phases' kernel."""
        return 1 + max(place for place, _ in self.taps_of_phases)

    @property
    def count(self) -> int:
        """Places of each phase."""
        return -(-(self.skip + self.result) // self.stride)

    @property
    def pads(self) -> tuple[int, int]:
        """Zeros before and after the input; below 0 where places of it are in no window."""
        first = max(offset for offset, _ in self._offsets(self.skip))
        return first, self.count + self.kernel - 1 - first - self.size

    @property
    def places(self) -> range:
        """The result's among the interleaved positions."""
        return range(self.skip, self.skip + self.result)


def _axes(site: Site, size: Sequence[int], kernel: Sequence[int]) -> list[_Axis]:
    """The axes of a node, with the defaults, `auto_pad` and `output_shape` of ONNX."""
    count = len(size)
    strides, dilations = (_numbers(site, name, [1] * count, least=1) for name in ("strides", "dilations"))
    extra = _numbers(site, "output_padding", [0] * count, least=0)
    pads = _numbers(site, "pads", [0] * (2 * count), least=0)
    mode, wanted = site.text("auto_pad", "NOTSET"), site.integers("output_shape")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        site.fail(f"auto_pad {mode} does not exist", "repair the model")
    if mode == "VALID":
        pads = [0] * (2 * count)
    if wanted is None and mode.startswith("SAME"):
        wanted = [s * stride for s, stride in zip(size, strides, strict=True)]
    found = []
    for axis in range(count):
        full = strides[axis] * (size[axis] - 1) + extra[axis] + dilations[axis] * (kernel[axis] - 1) + 1
        before, result = pads[axis], full - pads[axis] - pads[axis + count]
        if wanted is not None:
            result = wanted[-count:][axis] if len(wanted) >= count else 0
            total = full - result
            if total < 0:
                problem = f"its result of size {result} is larger than the {full} places that its windows reach"
                site.fail(problem, "say it with output_padding, in place of output_shape or auto_pad")
            before = total // 2 if mode == "SAME_UPPER" else total - total // 2
        if not 1 <= result <= LARGEST or kernel[axis] < 1:
            site.fail(f"its result would have size {result} along an axis", "correct its attributes")
        # The stride of one place does nothing: each tap then is a phase, and no tap meets a zero.
        stride = strides[axis] if size[axis] > 1 else dilations[axis] * (kernel[axis] - 1) + 1
        if stride * kernel[axis] > MOST_PHASES:
            site.fail(f"stride {strides[axis]} and dilation {dilations[axis]} are too large", "make them smaller")
        found.append(_Axis(size[axis], kernel[axis], stride, dilations[axis], before, result))
    return found


def _numbers(site: Site, name: str, default: list[int], least: int) -> list[int]:
    given = site.integers(name)
    numbers = default if given is None else given
    if len(numbers) != len(default) or not all(least <= number <= LARGEST for number in numbers):
        site.fail(f"{name} {numbers} must be {len(default)} numbers from {least} to {LARGEST}", "repair the model")
    return numbers


def _padded(lowering: Lowering, site: Site, image: Value, axes: Sequence[_Axis]) -> Value:
    """With the zeros that the windows need, and without the places that are in none."""
    for number, axis in enumerate(axes, start=1):
        first, last = (max(-pad, 0) for pad in axis.pads)
        image = lowering.take(site, image, number, axis.size - first - last, range(first, axis.size).__getitem__)
    return lowering.zeros_around(site, image, *zip((0, 0), *(map(_positive, axis.pads) for axis in axes), strict=True))


def _positive(pad: int) -> int:
    return max(pad, 0)


def _phases(site: Site, weight: Floats, groups: int, axes: Sequence[_Axis]) -> Floats:
    """Kernels `(M * phases, C / groups, *size)` of the phases, from `weight (C, M / groups, *taps)`."""
    inputs, outputs = weight.shape[0] // groups, weight.shape[1]
    # From (groups, C / groups, M / groups, *taps) to (groups, M / groups, C / groups, *taps).
    taps = weight.reshape(groups, inputs, outputs, *weight.shape[2:]).swapaxes(1, 2)
    size = [axis.kernel for axis in axes]
    shape = (groups, outputs, *(axis.stride for axis in axes), inputs, *size)
    if math.prod(shape) > MAX_ELEMENTS:
        site.fail(f"its kernels would have {math.prod(shape)} elements", f"at most {MAX_ELEMENTS} are supported")
    made = np.zeros(shape, np.float32)
    for tap in np.ndindex(*weight.shape[2:]):
        places, phases = zip(*(axis.taps_of_phases[at] for axis, at in zip(axes, tap, strict=True)), strict=True)
        made[:, :, *phases, :, *places] = taps[..., *tap]
    return made.reshape(-1, inputs, *size)
