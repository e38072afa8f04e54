"""The nodes that exporters write for a normalisation: `(x - mean(x)) / sqrt(variance + eps)` before opset 17,
`x * f + (b - mean(x) * f)` with `f = g / sqrt(variance + eps)` from TensorFlow, the same with the mean square and
without a mean, `x / norm(x)` or `x * (1 / norm(x))`, and `x / sum(|x|)`. Means may be sums over a number, and JAX takes
`max(0, mean(x^2) - mean(x)^2)` for the variance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from onnx import NodeProto, helper

from pronghorn.onnx.endings import maker_of, without_dimensions
from pronghorn.onnx.lowering import Array
from pronghorn.onnx.registry import name_of

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


class Mean(NamedTuple):
    """A mean of a value."""

    value: str
    axes: tuple[int, ...]
    """None of them for those of GlobalAveragePool, which does not say how many there are."""
    places: float | None
    """The number that a sum is divided by; None where the operator knows it."""


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
        if square is not None and square.value == value:
            return self._made(node, square, scale, None, centred=False)
        return None

    def _factored(self, node: NodeProto) -> list[NodeProto] | None:
        """`x * f + (b - mean * f)`."""
        for product, rest in _orders(node):
            scaled = self._maker(product, "Mul")
            for value, factor in _orders(scaled) if scaled is not None else ():
                scale = self._scale(factor)
                found = self._variance(scale.variance) if scale is not None else None
                if scale is None or found is None or found.value != value:
                    continue
                shifted, summand = self._summand(rest, factor, found)
                if shifted:
                    return self._made(node, found, scale, summand)
        return None

    def _made(
        self, node: NodeProto, found: Mean, scale: Scale, summand: str | None, centred: bool = True
    ) -> list[NodeProto] | None:
        """The nodes in place of a pattern that normalises a value over these axes."""
        value, axes, places = found
        output, name = node.output[0], node.name or node.output[0]
        steps = [("Mul", scale.factor), ("Add", summand)]
        left = [(kind, constant) for kind, constant in steps if constant is not None]
        names = [f"{output}/normalised/{place}" for place in range(len(left))] + [output]
        kind = "MeanVarianceNormalization"
        over: dict[str, Any] = {"axes": list(axes)} if axes else {"spatial": 1}
        over |= {} if places is None else {"places": places}
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

    def _summand(self, name: str, factor: str, found: Mean) -> tuple[bool, str | None]:
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

    def _is_shift(self, name: str, factor: str, found: Mean, negative: bool) -> bool:
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
        return maker_of(self.makers, name, *kinds)

    def _number(self, name: str) -> float | None:
        constant = self.constants.get(name)
        return float(constant.reshape(())) if constant is not None and constant.size == 1 else None

    def _centred(self, name: str) -> Mean | None:
        """The mean of `x - mean(x)`."""
        node = self._maker(name, "Sub")
        found = self._mean(node.input[1]) if node is not None else None
        return found if node is not None and found is not None and found.value == node.input[0] else None

    def _mean(self, name: str) -> Mean | None:
        """The mean that a value is, with its dimensions or behind operators that restore them."""
        bare = without_dimensions(self.makers, name)
        node = self._maker(bare, "ReduceMean", "GlobalAveragePool", "Mul", "Div")
        if node is None:
            return None
        if name_of(node) == "GlobalAveragePool":
            return Mean(node.input[0], (), None)
        if name_of(node) == "ReduceMean":
            axes = self._axes(node, any_dimensions=bare != name)
            return None if axes is None else Mean(node.input[0], axes, None)
        for total, other in _orders(node) if name_of(node) == "Mul" else [tuple(node.input)]:
            summed, number = self._maker(total, "ReduceSum"), self._number(other)
            # Within a variance sums have lost their dimensions, which are restored behind it.
            axes = self._axes(summed, any_dimensions=True) if summed is not None else None
            if summed is not None and axes is not None and number is not None and number > 0:
                return Mean(summed.input[0], axes, round(number if name_of(node) == "Div" else 1 / number, 3))
        return None

    def _axes(self, node: NodeProto, any_dimensions: bool = False) -> tuple[int, ...] | None:
        """The axes of a reduction that keeps its dimensions, or any."""
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        axes = self.constants.get(node.input[1]) if len(node.input) > 1 else np.array(given.get("axes", []))
        if axes is None or axes.size == 0 or not (any_dimensions or given.get("keepdims", 1)):
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

    def _variance(self, name: str) -> Mean | None:
        """The mean of `mean((x - mean(x))^2)`, both means over the same axes, or of `mean(x^2) - mean(x)^2`."""
        square = self._square(name)
        centred = self._centred(square.value) if square is not None else None
        if square is not None and centred is not None:
            return centred if centred[1:] == square[1:] else None
        bare, least = self._bounded(without_dimensions(self.makers, name), "Max")
        difference = self._maker(bare, "Sub")
        if difference is None or least not in (0.0, -math.inf):
            return None
        square, squared = self._square(difference.input[0]), self._squared(difference.input[1])
        mean = self._mean(squared) if squared is not None else None
        return mean if mean is not None and mean == square else None

    def _square(self, name: str) -> Mean | None:
        """The value and the axes of `mean(x^2)`."""
        mean = self._mean(name)
        value = self._squared(mean.value) if mean is not None else None
        return None if mean is None or value is None else mean._replace(value=value)

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
