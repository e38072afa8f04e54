"""Whether a model keeps the images of a batch apart, found by running it.

Transformers bring the batch behind the sequence, merge it with their heads, and bring it back. For one image such a
model runs as it is. But if it mixed images its results would depend on the batch. So it is run on some images
together, and one by one: by onnxruntime where that is installed, and else by ONNX's own evaluator, which is slow. The
values before the client's operators are compared, too, as an ArgMax hides most differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, ValueInfoProto, helper

from pronghorn import _runtime
from pronghorn.onnx.cutting import ENDS, MOVING

Values = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Images = npt.NDArray[Any]
Run = Callable[[Images], Sequence[npt.NDArray[Any]]]

IMAGES = 8

SCALES = (0.3, 1.0, 4.0)
"""Of random numbers around zero."""

RANGES = ((0.0, 1.0), (0.0, 255.0), (-100.0, 100.0))
"""Of other numbers: roots and logarithms are of positive ones, and large ones are beyond thresholds."""

WHOLE = ((0, 2), (0, 16), (0, 256), (0, 1000), (0, 30_000), (-128, 128))
"""Ranges of whole numbers, where the input's type has them. Those beyond a table of words tell nothing."""

NEAR, ROUNDING = 1e-3, 3e-6
"""Differences up to such parts of an element's spread over the images, and of its size, are rounding: products of other
sizes add up in another order."""

OF_NEARBY, MOST_OF_NEARBY = 8.0, 0.5
"""So are those up to so many times what the last bit of the inputs changes, but for that part of the spread at most:
scores of an attention to large inputs round far."""

COARSE = 0.05
"""The part of the spread that a quantised model's differences may be, of all elements together: each may be a step."""


@dataclass(frozen=True)
class Pair:
    """A value of some images, `(images, elements)`, of all together and of each alone."""

    together: Values
    alone: Values
    are_classes: bool
    is_first: bool
    """Whether the batch is its first dimension."""

    @property
    def known(self) -> Flags:
        """The elements that are numbers for all images alone."""
        return np.asarray(np.isfinite(self.alone).all(axis=0))

    @property
    def differs(self) -> Flags:
        """The elements that are not alike for all images, which would tell nothing of any."""
        alone = np.where(self.known, self.alone, 0)
        return np.asarray(alone.std(axis=0) > ROUNDING * np.abs(alone).max(axis=0))

    def is_alike(self, nearby: Callable[[], Values | None]) -> bool:
        """Whether both are alike but for rounding; `nearby`: the value alone for inputs whose last bits are others,
        None where the model cannot be run on them, so that they excuse nothing."""
        known = self.known
        alone = self.alone[:, known]
        spread, off = alone.std(axis=0), np.abs(self.together[:, known] - alone).max(axis=0)
        allowed = NEAR * spread + ROUNDING * np.abs(alone).max(axis=0)
        if (off <= allowed).all():
            return True
        beside = nearby()
        if beside is None:
            return False
        moved = np.abs(beside[:, known] - alone).max(axis=0)
        return bool((off <= allowed + np.minimum(OF_NEARBY * moved, MOST_OF_NEARBY * spread)).all())

    def is_alike_in_all(self) -> bool:
        """Whether all elements together are alike."""
        known = self.known
        off = self.together[:, known] - self.alone[:, known]
        return bool(np.square(off).sum() <= COARSE**2 * len(off) * self.alone[:, known].var(axis=0).sum())


def keeps_apart(model: ModelProto, outputs: Mapping[str, tuple[int, ...]], encoded: Images | None = None) -> bool:
    """Whether a model, with the batch of its one input free again, gives each image its own results.

    False where it cannot be run, and where no images tell: each element is to be a number for some, and each output is
    to differ between images.

    Args:
        model: as cut and with fixed sizes. Its batch is 1.
        outputs: the shapes of the outputs, which are a row where there are several.
        encoded: rows of indicators, where the input has some: what is counted or looked up takes no others.
    """
    known, differs = list[Flags](), list[Flags]()
    try:
        batches = Batches(model)
        rows = None if encoded is None else np.split(encoded, range(IMAGES, len(encoded), IMAGES))
        for images in batches.made_up() if rows is None else rows:
            alone = batches.alone(images)
            if alone is None:
                continue
            pairs = batches.pairs(images, alone)
            if not (pairs[0].is_first and batches.are_alike(pairs, images)):
                return False
            # A class may be that of all images: the value before the client's operators tells more.
            known.append(pairs[-1].known)
            differs.append(pairs[-1].differs)
    except Exception:
        return False
    return bool(known) and bool(np.any(known, axis=0).all()) and _is_in_each(np.any(differs, axis=0), outputs)


def takes_one_alone(model: ModelProto, encoded: Images | None = None) -> bool:
    """Whether a model, with the batch of its one input free again, runs on one image and on no batches of several.

    Args:
        model: as of `keeps_apart`.
        encoded: likewise.
    """
    try:
        batches = Batches(model)
        made = [encoded[:IMAGES]] if encoded is not None else batches.made_up()
        known = [images for images in made if batches.alone(images) is not None]
        # Sizes of several images may fit by chance, as four do beside four columns.
        return bool(known) and not any(batches.runs(known[0][:count]) for count in range(2, IMAGES + 1))
    except Exception:
        return False


def mixes(model: ModelProto, images: Images) -> bool:
    """Whether a model gives some images other results together than alone; False where it cannot be run.

    Args:
        model: as of `keeps_apart`.
        images: real ones, as many as run together.
    """
    try:
        batches = Batches(model)
        typed = images.astype(batches.kind, copy=False)
        alone = batches.alone(typed)
        return alone is not None and not batches.are_alike(batches.pairs(typed, alone), typed)
    except Exception:
        return False


def nearby(images: Images) -> Images:
    """The images with other last bits; whole numbers as they are."""
    if images.dtype.kind != "f":
        return images
    up = np.random.default_rng(0).random(images.shape) < 0.5
    # In the images' type: the last bit of another one is lost in it.
    return np.asarray(np.nextafter(images, np.where(up, np.inf, -np.inf).astype(images.dtype)))


def _is_in_each(found: Flags, outputs: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether something is found in each output."""
    if len(outputs) == 1:
        return bool(found.any())
    ends = np.cumsum([math.prod(shape) for shape in outputs.values()])
    return all(part.any() for part in np.split(found, ends[:-1]))


class Batches:
    """A model that runs on images together and alone. It gives its result, and the value before the client's operators
    where it has some."""

    def __init__(self, model: ModelProto) -> None:
        """`model`: as of `keeps_apart`."""
        proto = ModelProto()
        proto.CopyFrom(model)
        source = proto.graph.input[0]
        first, *sizes = source.type.tensor_type.shape.dim
        first.Clear()
        first.dim_param = "N"
        # Without a type the value has that which it is of.
        proto.graph.output.extend(ValueInfoProto(name=name) for name in _before_ends(proto))
        self.kind = helper.tensor_dtype_to_np_dtype(source.type.tensor_type.elem_type)
        self._shape = (IMAGES, *(size.dim_value for size in sizes))
        self._is_quantised = any(node.op_type == "QuantizeLinear" for node in proto.graph.node)
        self._run = _runner(proto, self._is_quantised)

    def made_up(self) -> Iterator[Images]:
        """Batches of made-up images."""
        random = np.random.default_rng(0)
        if self.kind.kind in "iu":
            type_of = np.iinfo(self.kind)
            ranges = [(low, high) for low, high in WHOLE if type_of.min <= low and high - 1 <= type_of.max]
            made = [random.integers(low, high, self._shape).astype(np.float64) for low, high in ranges]
        else:
            made = [scale * random.standard_normal(self._shape) for scale in SCALES]
            made += [random.uniform(low, high, self._shape) for low, high in RANGES]
        return (images.astype(self.kind) for images in made)

    def alone(self, images: Images) -> Sequence[npt.NDArray[Any]] | None:
        """Each value of the images, one by one: `(images, 1, ...)`; None where some cannot be run, as words beyond a
        table."""
        try:
            results = [self._run(images[at : at + 1]) for at in range(len(images))]
        except Exception:
            return None
        return [np.stack(each) for each in zip(*results, strict=True)]

    def runs(self, images: Images) -> bool:
        """Whether the images run together."""
        try:
            self._run(images)
        except Exception:
            return False
        return True

    def pairs(self, images: Images, alone: Sequence[npt.NDArray[Any]]) -> list[Pair]:
        """Each value of the images together, beside that of each alone.

        Raises:
            Exception: they do not run together, or the results are not those of so many images.
        """
        return [_pair(*each) for each in zip(self._run(images), alone, strict=True)]

    def are_alike(self, pairs: Sequence[Pair], images: Images) -> bool:
        """Whether the values of the images together are those of each alone, but for rounding."""
        # Which class is largest may change by rounding alone. The value before tells more, where there is one.
        compared = [place for place, pair in enumerate(pairs) if not pair.are_classes or len(pairs) == 1]
        if self._is_quantised:
            return all(pairs[place].is_alike_in_all() for place in compared)
        return all(pairs[place].is_alike(partial(self._nearby, images, place)) for place in compared)

    def _nearby(self, images: Images, place: int) -> Values | None:
        """A value of each image alone where the last bits of the images are others; None where some cannot be run."""
        alone = self.alone(nearby(images))
        return None if alone is None else alone[place].reshape(len(images), -1).astype(np.float64)


def _before_ends(proto: ModelProto) -> list[str]:
    """The value before operators which the client computes, where there are some."""
    makers = {name: node for node in proto.graph.node for name in node.output}
    output = name = found = proto.graph.output[0].name
    while (node := makers.get(name)) is not None and node.op_type in (*ENDS, *MOVING, "Cast", "Sigmoid"):
        name = node.input[0]
        # Moves alone are no ends.
        found = found if node.op_type in MOVING else name
    return [found] if found in makers and found != output else []


def _pair(together: npt.NDArray[Any], alone: npt.NDArray[Any]) -> Pair:
    """A value of images together, and `(images, 1, ...)` of them alone."""
    count, *shape = alone.shape
    axes = [axis for axis, (several, one) in enumerate(zip(together.shape, shape, strict=True)) if several != one]
    (axis,) = axes
    parts = np.stack(np.split(together, count, axis=axis)).reshape(alone.shape)
    first, second = (each.reshape(count, -1).astype(np.float64) for each in (parts, alone))
    return Pair(first, second, are_classes=alone.dtype.kind in "iu", is_first=axis == 0 and shape[0] == 1)


def _runner(proto: ModelProto, as_written: bool) -> Run:
    name, run = proto.graph.input[0].name, _runtime.evaluator(proto, as_written)
    return lambda images: run({name: images})
