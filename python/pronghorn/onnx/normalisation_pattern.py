"""The nodes that exporters write for a layer normalisation: `(x - mean(x)) / sqrt(variance + eps)` before opset 17,
and `x * f + (b - mean(x) * f)` with `f = g / sqrt(variance + eps)` from TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, helper

from pronghorn.onnx.lowering import Array
from pronghorn.onnx.registry import name_of

Axes = tuple[int, ...]


def normalisation(
    node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]
) -> list[NodeProto] | None:
    """The `MeanVarianceNormalization` that makes what `node` and those before it make, with the factor and the summand
    that the pattern has within it; None where there is no such node.

    Args:
        node: the last node of the pattern: a Div, a Mul or an Add.
        makers: the node that makes each value.
        constants: the model's weights, and its Constant nodes.
    """
    return Pattern(makers, constants).of(node)


@dataclass(frozen=True)
class Scale:
    """`factor / sqrt(variance + epsilon)`."""

    variance: str
    epsilon: float
    factor: str | None
    """A constant's name; 1 where there is none."""


@dataclass(frozen=True)
class Pattern:
    """The makers of values, and constants."""

    makers: Mapping[str, NodeProto]
    constants: Mapping[str, Array]

    def of(self, node: NodeProto) -> list[NodeProto] | None:
        """As `normalisation`."""
        match name_of(node):
            case "Div":
                return self._divided(node)
            case "Mul":
                return self._multiplied(node)
            case "Add":
                return self._factored(node)
            case _:
                return None

    def _divided(self, node: NodeProto) -> list[NodeProto] | None:
        """`(x - mean) / sqrt(v + eps)`."""
        variance, epsilon = self._root(node.input[1])
        scale = None if variance is None else Scale(variance, epsilon, None)
        return self._made(node, self._centred(node.input[0]), scale, None)

    def _multiplied(self, node: NodeProto) -> list[NodeProto] | None:
        """`(x - mean) * f`."""
        for centred, factor in _orders(node):
            made = self._made(node, self._centred(centred), self._scale(factor), None)
            if made is not None:
                return made
        return None

    def _factored(self, node: NodeProto) -> list[NodeProto] | None:
        """`x * f + (b - mean * f)`."""
        for product, rest in _orders(node):
            scaled = self._maker(product, "Mul")
            for value, factor in _orders(scaled) if scaled is not None else ():
                scale = self._scale(factor)
                found = self._variance(scale.variance) if scale is not None else None
                if found is None or found[0] != value:
                    continue
                shifted, summand = self._summand(rest, factor, found)
                if shifted:
                    return self._made(node, found, scale, summand)
        return None

    def _made(
        self, node: NodeProto, centred: tuple[str, Axes] | None, scale: Scale | None, summand: str | None
    ) -> list[NodeProto] | None:
        """The nodes in place of a pattern whose variance is that of what is centred."""
        if centred is None or scale is None or self._variance(scale.variance) != centred:
            return None
        value, axes = centred
        constants = [self.constants[name] for name in (scale.factor, summand) if name is not None]
        if not axes:  # of GlobalAveragePool, which does not say how many there are
            axes = tuple(range(2, max((array.ndim for array in constants), default=0)))
        if not axes:
            return None
        output, name = node.output[0], node.name or node.output[0]
        steps = [("Mul", scale.factor), ("Add", summand)]
        left = [(kind, constant) for kind, constant in steps if constant is not None]
        names = [f"{output}/normalised/{place}" for place in range(len(left))] + [output]
        kind = "MeanVarianceNormalization"
        made = [helper.make_node(kind, [value], names[:1], name=name, axes=list(axes), epsilon=scale.epsilon)]
        for place, (kind, constant) in enumerate(left):
            made.append(helper.make_node(kind, [names[place], constant], [names[place + 1]], name=names[place + 1]))
        return made

    def _scale(self, name: str) -> Scale | None:
        """`f = 1 / sqrt(v + eps)`, or a constant times that."""
        inverse = self._maker(name, "Reciprocal", "Div")
        if inverse is not None:
            if name_of(inverse) == "Div" and self._number(inverse.input[0]) != 1:
                return None
            variance, epsilon = self._root(inverse.input[-1])
            return None if variance is None else Scale(variance, epsilon, None)
        product = self._maker(name, "Mul")
        for factor, constant in _orders(product) if product is not None else ():
            scale = self._scale(factor) if constant in self.constants else None
            if scale is not None and scale.factor is None:
                return Scale(scale.variance, scale.epsilon, constant)
        return None

    def _summand(self, name: str, factor: str, found: tuple[str, Axes]) -> tuple[bool, str | None]:
        """Whether a value is `b - mean * f`, and the constant `b`, if it has one."""
        if self._is_shift(name, factor, found, negative=True):
            return True, None
        node = self._maker(name, "Add", "Sub")
        if node is None:
            return False, None
        if name_of(node) == "Sub":
            constant, shift = node.input
            return constant in self.constants and self._is_shift(shift, factor, found, negative=False), constant
        for constant, shift in _orders(node):
            if constant in self.constants and self._is_shift(shift, factor, found, negative=True):
                return True, constant
        return False, None

    def _is_shift(self, name: str, factor: str, found: tuple[str, Axes], negative: bool) -> bool:
        """Whether a value is `mean * f`, or `-mean * f`."""
        node = self._maker(name, "Mul")
        for mean, other in _orders(node) if node is not None else ():
            if other != factor:
                continue
            negated = self._maker(mean, "Neg")
            if (negated is not None) == negative and self._mean(negated.input[0] if negated else mean) == found:
                return True
        return False

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
        """`x` and the axes of a mean that keeps its dimensions: none for those of GlobalAveragePool."""
        node = self._maker(name, "ReduceMean", "GlobalAveragePool")
        if node is None:
            return None
        if name_of(node) == "GlobalAveragePool":
            return node.input[0], ()
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


def _orders(node: NodeProto) -> list[tuple[str, str]]:
    """The inputs of a node of two, in both orders."""
    first, second = node.input
    return [(first, second), (second, first)]
