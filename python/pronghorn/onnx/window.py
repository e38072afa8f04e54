"""Windows of convolutions and poolings: ONNX attributes to explicit padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

LARGEST = 1 << 24
"""Largest size of one dimension, as in `geometry.rs`."""


@dataclass(frozen=True)
class Window:
    """A window over `(H, W)`, as `geometry.rs` has it."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    """Top, left, bottom, right."""
    output: tuple[int, int]
    """Height and width of the result; not part of the JSON."""

    def json(self) -> dict[str, Any]:
        """The fields of `Window` in the graph's JSON."""
        fields = ("kernel", "stride", "dilation", "padding")
        return {name: list(getattr(self, name)) for name in fields}


@dataclass(frozen=True)
class Spatial:
    """A window with one number an axis, for 1 or 2 axes."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    extra: tuple[int, ...]
    """Padding beyond `after` that ceil_mode needs for its last window."""
    output: tuple[int, ...]

    @classmethod
    def resolve(
        cls,
        *,
        kernel: Sequence[int],
        size: Sequence[int],
        stride: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        auto_pad: str = "NOTSET",
        ceil: bool = False,
    ) -> Spatial:
        """Applies the defaults, `auto_pad` and `ceil_mode` of ONNX over an input of `size`.

        Raises:
            ValueError: sizes that do not go together.
        """
        axes = len(size)
        strides = _numbers("strides", stride, axes, least=1)
        dilations = _numbers("dilations", dilation, axes, least=1)
        kernels = _numbers("kernel_shape", kernel, axes, least=1)
        given = _numbers("pads", pads if pads is not None else [0] * (2 * axes), 2 * axes, least=0)
        found = [
            _axis(size[i], kernels[i], strides[i], dilations[i], (given[i], given[i + axes]), auto_pad, ceil)
            for i in range(axes)
        ]
        before, after, extra, output = zip(*found, strict=True)
        return cls(kernels, strides, dilations, before, after, extra, output)

    def without_padding(self) -> Spatial:
        """The same windows over an input that has its padding already."""
        zeros = (0,) * len(self.kernel)
        return replace(self, before=zeros, after=zeros)

    def window(self, extra: bool = False) -> Window:
        """As a window over `(H, W)`, a single axis being the width; `extra` includes ceil_mode's
        padding."""
        added = self.extra if extra else (0,) * len(self.extra)
        after = [a + e for a, e in zip(self.after, added, strict=True)]

        def pair(numbers: Sequence[int], neutral: int) -> tuple[int, int]:
            return (neutral, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])

        padding = (*pair(self.before, 0), *pair(after, 0))
        return Window(pair(self.kernel, 1), pair(self.stride, 1), pair(self.dilation, 1), padding, pair(self.output, 1))


def _numbers(name: str, given: Sequence[int] | None, count: int, least: int) -> tuple[int, ...]:
    numbers = [1] * count if given is None else list(given)
    if len(numbers) != count or not all(least <= number <= LARGEST for number in numbers):
        raise ValueError(f"{name} {numbers} must be {count} numbers from {least} to {LARGEST}")
    return tuple(numbers)


def _axis(
    size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int], auto_pad: str, ceil: bool
) -> tuple[int, int, int, int]:
    """Padding before and after, extra padding of ceil_mode, and the output's size."""
    span = dilation * (kernel - 1) + 1
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output = -(-size // stride)
        total = max((output - 1) * stride + span - size, 0)
        small, large = total // 2, total - total // 2
        before, after = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        return before, after, 0, output
    if auto_pad not in ("", "NOTSET", "VALID"):
        raise ValueError(f"auto_pad {auto_pad!r} does not exist")
    before, after = (0, 0) if auto_pad == "VALID" else pads
    room = size + before + after - span
    if room < 0:
        raise ValueError(f"its kernel spans {span}, more than the {size + before + after} of the padded input")
    output = room // stride + 1
    extra = 0
    # One more window if it starts within the input or the padding before it.
    if ceil and room % stride and output * stride < size + before:
        extra = output * stride - room
        output += 1
    return before, after, extra, output
