"""The nodes that exporters write for a normalisation: `(x - mean(x)) / sqrt(variance + eps)` before opset 17,
`x * f + (b - mean(x) * f)` with `f = g / sqrt(variance + eps)` from TensorFlow, the same with the mean square and
without a mean, `x / norm(x)` or `x * (1 / norm(x))`, and `x / sum(|x|)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from pronghorn.onnx.lowering import Array
from pronghorn.onnx.registry import name_of

Axes = tuple[int, ...]

TINY = 1e-6
"""The most that a norm may be bounded by from below, so that nothing is divided by zero."""


def normalisation(
    node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]
) -> list[NodeProto] | None:
    """The `MeanVarianceNormalization` that makes what `node` and those before it make, with the factor and the summand
    that the pattern has within it, or the `LpNormalization`, or the `Normalizer`; None where there is no such node.

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
        """`(x - mean) / sqrt(v + eps)`, or `x / norm(x)`, or `x / sum(|x|)`."""
        value, divisor = node.input
        if self._is_sum_of(value, divisor):
            name = node.name or node.output[0]
            given: dict[str, Any] = {"name": name, "domain": "ai.onnx.ml", "norm": "L1"}
            return [helper.make_node("Normalizer", [value], node.output[:1], **given)]
        found = self._norm_of(value, divisor)
        if found is not None:
            return self._unit(node, value, found)
        variance, epsilon = self._root(divisor)
        return None if variance is None else self._scaled(node, value, Scale(variance, epsilon, None))

    def _unit(self, node: NodeProto, value: str, found: tuple[int, list[int]]) -> list[NodeProto]:
        """The node for a value of length 1 along an axis."""
        axis, expanded = found
        given: dict[str, Any] = {"axis": axis, "p": 2, **({"expanded": expanded} if expanded else {})}
        name = node.name or node.output[0]
        return [helper.make_node("LpNormalization", [value], node.output[:1], name=name, **given)]

    def _multiplied(self, node: NodeProto) -> list[NodeProto] | None:
        """`(x - mean) * f`, or `x * f` with `f = 1 / norm(x)`, which one large number may bound from above."""
        for value, factor in _orders(node):
            inverse, bound = self._bounded(factor, "Min")
            one = self._inverse_of(inverse)
            norm = self._norm_of(value, one) if one is not None and bound >= 1 / TINY else None
            if norm is not None:
                return self._unit(node, value, norm)
            scale = self._scale(factor)
            made = None if scale is None else self._scaled(node, value, scale)
            if made is not None:
                return made
        return None

    def _scaled(self, node: NodeProto, value: str, scale: Scale) -> list[NodeProto] | None:
        """`(x - mean) * f` with the variance of `x`, or `x * f` with its mean square."""
        centred, square = self._centred(value), self._square(scale.variance)
        if centred is not None and centred == self._variance(scale.variance):
            return self._made(node, centred, scale, None)
        if square is not None and square[0] == value:
            return self._made(node, square, scale, None, centred=False)
        return None

    def _factored(self, node: NodeProto) -> list[NodeProto] | None:
        """`x * f + (b - mean * f)`."""
        for product, rest in _orders(node):
            scaled = self._maker(product, "Mul")
            for value, factor in _orders(scaled) if scaled is not None else ():
                scale = self._scale(factor)
                found = self._variance(scale.variance) if scale is not None else None
                if scale is None or found is None or found[0] != value:
                    continue
                shifted, summand = self._summand(rest, factor, found)
                if shifted:
                    return self._made(node, found, scale, summand)
        return None

    def _made(
        self, node: NodeProto, found: tuple[str, Axes], scale: Scale, summand: str | None, centred: bool = True
    ) -> list[NodeProto] | None:
        """The nodes in place of a pattern that normalises a value over these axes."""
        value, axes = found
        output, name = node.output[0], node.name or node.output[0]
        steps = [("Mul", scale.factor), ("Add", summand)]
        left = [(kind, constant) for kind, constant in steps if constant is not None]
        names = [f"{output}/normalised/{place}" for place in range(len(left))] + [output]
        kind = "MeanVarianceNormalization"
        # GlobalAveragePool does not say how many axes there are.
        over: dict[str, Any] = {"axes": list(axes)} if axes else {"spatial": 1}
        given = {**over, "epsilon": scale.epsilon, "centred": int(centred)}
        made = [helper.make_node(kind, [value], names[:1], name=name, **given)]
        for place, (kind, constant) in enumerate(left):
            made.append(helper.make_node(kind, [names[place], constant], [names[place + 1]], name=names[place + 1]))
        return made

    def _scale(self, name: str) -> Scale | None:
        """`f = 1 / sqrt(v + eps)`, or a constant times that."""
        inverse = self._inverse_of(name)
        if inverse is not None:
            variance, epsilon = self._root(inverse)
            return None if variance is None else Scale(variance, epsilon, None)
        product = self._maker(name, "Mul")
        for factor, constant in _orders(product) if product is not None else ():
            scale = self._scale(factor) if constant in self.constants else None
            if scale is not None and scale.factor is None:
                return Scale(scale.variance, scale.epsilon, constant)
        return None

    def _inverse_of(self, name: str) -> str | None:
        """`y` of `1 / y`."""
        node = self._maker(name, "Reciprocal", "Div")
        if node is None or (name_of(node) == "Div" and self._number(node.input[0]) != 1):
            return None
        return str(node.input[-1])

    def _bounded(self, name: str, kind: str) -> tuple[str, float]:
        """`y` and the number of `min(y, number)` or `max(y, number)`; a value itself, and infinity or minus infinity,
        where it is none."""
        node = self._maker(name, kind)
        for value, other in _orders(node) if node is not None and len(node.input) == 2 else ():
            number = self._number(other)
            if number is not None:
                return value, number
        return name, math.inf if kind == "Min" else -math.inf

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
        axes = self._axes(node)
        return None if axes is None else (node.input[0], axes)

    def _axes(self, node: NodeProto) -> Axes | None:
        """The axes of a reduction that keeps its dimensions."""
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        axes = self.constants.get(node.input[1]) if len(node.input) > 1 else np.array(given.get("axes", []))
        if axes is None or axes.size == 0 or not given.get("keepdims", 1):
            return None
        return tuple(int(axis) for axis in axes.flat)

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
        square = self._square(name)
        centred = self._centred(square[0]) if square is not None else None
        return centred if square is not None and centred is not None and centred[1] == square[1] else None

    def _square(self, name: str) -> tuple[str, Axes] | None:
        """`x` and the axes of `mean(x^2)`."""
        mean = self._mean(name)
        value = self._squared(mean[0]) if mean is not None else None
        return None if mean is None or value is None else (value, mean[1])

    def _squared(self, name: str) -> str | None:
        """`x` of `x^2`."""
        square = self._maker(name, "Pow", "Mul")
        if square is None:
            return None
        first, second = square.input
        is_square = self._number(second) == 2 if name_of(square) == "Pow" else first == second
        return first if is_square else None

    def _is_sum_of(self, value: str, name: str) -> bool:
        """Whether a value is the sum of another's magnitudes over its columns. Probabilities are their magnitudes."""
        total = self._maker(name, "ReduceSum", "ReduceL1")
        axes = self._axes(total) if total is not None else None
        if total is None or axes not in ((1,), (-1,)):
            return False
        summed = total.input[0]
        magnitude = self._maker(summed, "Abs")
        if magnitude is not None:
            return bool(magnitude.input[0] == value)
        positive = name_of(total) == "ReduceL1" or self._maker(value, "Sigmoid", "Softmax") is not None
        return bool(summed == value) and positive

    def _norm_of(self, value: str, name: str) -> tuple[int, list[int]] | None:
        """The axis of `sqrt(sum(x^2))` for the value `x`, and the sizes that it is expanded to, if the model says them.
        One tiny number may bound it from below."""
        expanded: list[int] = []
        expand = self._maker(name, "Expand")
        if expand is not None:
            name, shape = expand.input
            sizes, maker = self.constants.get(shape), self._maker(shape, "Shape")
            if sizes is None and (maker is None or maker.input[0] != value or maker.attribute):
                return None
            expanded = [] if sizes is None else [int(size) for size in sizes.flat]
        bounded = self._maker(name, "Clip", "Max", "Add")
        if bounded is not None:
            bound = self._number(bounded.input[1]) if len(bounded.input) > 1 else None
            if bound is None or not 0 <= bound <= TINY or any(bounded.input[2:]):
                return None
            name = bounded.input[0]
        root = self._maker(name, "Sqrt")
        squares, least = self._bounded(root.input[0], "Max") if root is not None else ("", 0.0)
        total = self._maker(squares, "ReduceSum", "ReduceSumSquare") if least <= TINY**2 else None
        norm = self._maker(name, "ReduceL2") or total
        if norm is None:
            return None
        squared = self._squared(norm.input[0]) if name_of(norm) == "ReduceSum" else norm.input[0]
        axes = self._axes(norm)
        return (axes[0], expanded) if squared == value and axes is not None and len(axes) == 1 else None


def _orders(node: NodeProto) -> list[tuple[str, str]]:
    """The inputs of a node of two, in both orders."""
    first, second = node.input
    return [(first, second), (second, first)]
