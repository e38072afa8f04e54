"""Values whose batch is merged with another dimension, as `x.reshape(-1, F)` makes of `(N, T, F)`.

While importing, such a value has shape `(T, F)`: of `N` images it has `(N * T, F)`. A reshape may hide that it mixes
images: `(N * T, F)` and `(T, N, F)` are alike for one image. So shapes are computed for several images too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import GraphProto, NodeProto, helper

from pronghorn.onnx.folding import small_results
from pronghorn.onnx.lowering import APART, SEVERAL, Array, Lowering, Value
from pronghorn.onnx.reading import initializers
from pronghorn.onnx.registry import OF_SHAPES, name_of
from pronghorn.onnx.site import Shape, Site

SMALL = 1 << 14
"""Most elements of a constant that shapes and indices are computed from."""

Target = Callable[[list[int], Shape], Shape]
"""The shape that a reshape with a target makes of a value's."""


@dataclass(frozen=True)
class Targets:
    """The constants of a model that follow from shapes, for several images."""

    makers: Mapping[str, NodeProto]
    """The node that makes each value, in the order of the nodes."""
    places: Mapping[str, int]
    """The place of each value in that order."""
    stored: Mapping[str, Array]
    kept: dict[str, Array] = field(default_factory=dict)
    """Those that were found."""

    @classmethod
    def of(cls, graph: GraphProto) -> Targets:
        """Those of a graph whose constants are not folded yet."""
        makers = {name: node for node in graph.node for name in node.output if name}
        places = {name: place for place, name in enumerate(makers)}
        return cls(makers, places, initializers(t for t in graph.initializer if math.prod(t.dims) <= SMALL))

    def find(self, lowering: Lowering, name: str) -> Array | None:
        """A constant for several images; None where it cannot be computed."""
        found = {**self.stored, **self.kept}
        for each in self._before(name):
            if each not in found:
                made = self._results(lowering, self.makers[each], found)
                found.update(made)
                self.kept.update(made)
        return found.get(name)

    def _before(self, name: str) -> list[str]:
        """The values that one is computed from, and itself, in their order; those left out before the shape of one."""
        waiting, seen = [name], set[str]()
        while waiting:
            each = waiting.pop()
            if each in seen or each in self.stored or each in self.kept or each not in self.makers:
                continue
            seen.add(each)
            if name_of(self.makers[each]) not in OF_SHAPES:
                waiting.extend(self.makers[each].input)
        return sorted(seen, key=self.places.__getitem__)

    def _results(self, lowering: Lowering, node: NodeProto, found: Mapping[str, Array]) -> Mapping[str, Array]:
        """What a node makes of constants for several images; nothing where that is not known."""
        if name_of(node) not in OF_SHAPES:
            return small_results(node, found, lowering.opset, SMALL)
        value, shape = lowering.values.get(node.input[0]), lowering.shape_of(node.input[0])
        if shape is None:
            return {}
        return {node.output[0]: of_shape(node, shape if value is None else value.of_several)}


def of_several_images(lowering: Lowering, site: Site, value: Value, shape: Shape, target: Target) -> Shape | None:
    """The shape of a reshape's result for several images; None where the model runs for one image only.

    Args:
        lowering: the graph.
        site: the Reshape.
        value: its input.
        shape: the shape of its result for one image.
        target: the shape for several images, by its input and the shape of the value.

    Raises:
        UnsupportedModelError: it mixes images.
    """
    if lowering.one_image or not (value.shape and shape):
        return None
    constant = lowering.targets.find(lowering, site.input(1)) if lowering.targets is not None else None
    if constant is None:
        if value.batched and value.hidden is None and shape[:1] == (1,):
            return None
        site.fail("it merges the batch with another dimension, to a shape that is not known", APART)
    several = target([int(size) for size in constant.flat], value.of_several)
    if math.prod(several) != math.prod(value.of_several):
        return None
    lowering.keeps_apart(site, shape, several)
    return several


def gathered_of_several(lowering: Lowering, site: Site, value: Value, indices: Array) -> Shape | None:
    """The shape of a Gather along a merged batch, for several images; None where its indices are not known for these,
    or are no image's own.

    Args:
        lowering: the graph.
        site: the Gather.
        value: its input, whose batch is merged with another dimension.
        indices: those for one image.
    """
    if lowering.one_image or value.batched or value.hidden is not None or lowering.targets is None:
        return None
    found = lowering.targets.find(lowering, site.input(1))
    if found is None or (indices < 0).any():
        return None
    # Those of an image are as far from the first one's as its places.
    own = indices.ravel() + value.shape[0] * np.arange(SEVERAL)[:, None]
    return (*found.shape, *value.shape[1:]) if np.array_equal(found.ravel(), own.ravel()) else None


def of_shape(node: NodeProto, shape: Shape) -> Array:
    """What a Shape or a Size gives of a value of a shape."""
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    part = shape[slice(attributes.get("start", 0), attributes.get("end"))]
    return np.array(part if node.op_type == "Shape" else math.prod(shape), np.int64)
