"""The nodes that exporters write for a layer normalisation before opset 17: `(x - mean(x)) / sqrt(variance + eps)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, helper

from pronghorn.onnx.lowering import Array
from pronghorn.onnx.registry import name_of

Axes = tuple[int, ...]


def normalisation(node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]) -> NodeProto | None:
    """The `MeanVarianceNormalization` that makes what `node` and those before it make; None where there is no such
    node. The factor and the summand of a layer normalisation stay behind it.

    Args:
        node: a Div, the last node of the pattern.
        makers: the node that makes each value.
        constants: the model's weights, and its Constant nodes.
    """
    return Pattern(makers, constants).of(node)


@dataclass(frozen=True)
class Pattern:
    """The makers of values, and constants."""

    makers: Mapping[str, NodeProto]
    constants: Mapping[str, Array]

    def of(self, node: NodeProto) -> NodeProto | None:
        """As `normalisation`."""
        centred = self._centred(node.input[0]) if name_of(node) == "Div" else None
        if centred is None:
            return None
        variance, epsilon = self._root(node.input[1])
        if variance is None or self._variance(variance) != centred:
            return None
        value, axes = centred
        return helper.make_node(
            "MeanVarianceNormalization",
            [value],
            node.output,
            name=node.name or node.output[0],
            axes=list(axes),
            epsilon=epsilon,
        )

    def _maker(self, name: str, *kinds: str) -> NodeProto | None:
        """The node that makes a value, if it is of one of the kinds."""
        node = self.makers.get(name)
        return node if node is not None and name_of(node) in kinds else None

    def _number(self, name: str) -> float | None:
        constant = self.constants.get(name)
        return float(constant.reshape(())) if constant is not None and constant.size == 1 else None

    def _centred(self, name: str) -> tuple[str, Axes] | None:
        """`x` and the axes of `x - mean(x)`."""
        node = self._maker(name, "Sub")
        found = self._mean(node.input[1]) if node is not None else None
        return found if node is not None and found is not None and found[0] == node.input[0] else None

    def _mean(self, name: str) -> tuple[str, Axes] | None:
        """`x` and the axes of a mean that keeps its dimensions."""
        node = self._maker(name, "ReduceMean")
        if node is None:
            return None
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        axes = self.constants.get(node.input[1]) if len(node.input) > 1 else np.array(given.get("axes", []))
        if axes is None or axes.size == 0 or not given.get("keepdims", 1):
            return None
        return node.input[0], tuple(int(axis) for axis in axes.flat)

    def _root(self, name: str) -> tuple[str | None, float]:
        """`v` and `eps` of `sqrt(v + eps)`."""
        node = self._maker(name, "Sqrt", "Pow")
        if node is None or (name_of(node) == "Pow" and self._number(node.input[1]) != 0.5):
            return None, 0.0
        added = self._maker(node.input[0], "Add")
        if added is None:
            return node.input[0], 0.0
        for variance, other in (added.input, reversed(added.input)):
            epsilon = self._number(other)
            if epsilon is not None:
                return variance, epsilon
        return None, 0.0

    def _variance(self, name: str) -> tuple[str, Axes] | None:
        """`x` and the axes of `mean((x - mean(x))^2)`, both means over the same axes."""
        mean = self._mean(name)
        square = self._maker(mean[0], "Pow", "Mul") if mean is not None else None
        if mean is None or square is None:
            return None
        first, second = square.input
        if not (self._number(second) == 2 if name_of(square) == "Pow" else first == second):
            return None
        centred = self._centred(first)
        return centred if centred is not None and centred[1] == mean[1] else None
