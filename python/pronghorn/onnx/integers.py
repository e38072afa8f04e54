"""Models whose operators take and give integers with scales, as onnxruntime's format `QOperator` writes them.

An operator on integers is the one on floats between pairs of DequantizeLinear and QuantizeLinear. So it is written
here, and the fixed point takes the place of all pairs. Operators that only move integers, such as MaxPool, move the
floats that these stand for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, helper

from pronghorn.onnx.constants import Array, Constants
from pronghorn.onnx.reading import names_read
from pronghorn.onnx.registry import name_of

PAIRS = ("QuantizeLinear", "com.microsoft.QuantizeLinear")
"""Operators that make integers of floats."""

BACK = ("DequantizeLinear", "com.microsoft.DequantizeLinear")
"""Operators that make floats of integers."""

MOVES = (
    "Concat",
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "MaxPool",
    "Pad",
    "Reshape",
    "Resize",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
)
"""Operators whose results have the scale of their first input."""

OF_ROWS = 13
"""The version of the operators since which Softmax is along one axis, not over all from it on."""

AXES_AS_INPUT = 18
"""The version of the operators since which the axes of ReduceMean are an input."""


class Scale(NamedTuple):
    """The names of the scale and the zero point of integers; the zero point may be left out."""

    scale: str
    zero: str


@dataclass(frozen=True)
class Form:
    """The places of an operator's inputs."""

    operator: str
    """The same on floats."""
    operands: tuple[int, ...]
    """Where each operand is; its scale and its zero point follow it."""
    result: int
    """The place of the result's scale; its zero point follows it."""
    axis: int = 0
    """Along which axis the weights have scales."""
    bias: int | None = None
    """The place of a bias, whose scale is the product of those of both operands."""


FORMS = {
    "QLinearConv": Form("Conv", (0, 3), 6, bias=8),
    "QLinearMatMul": Form("MatMul", (0, 3), 6, axis=-1),
    "com.microsoft.QGemm": Form("Gemm", (0, 3), 7, axis=-1, bias=6),
    "com.microsoft.QLinearAdd": Form("Add", (0, 3), 6),
    "com.microsoft.QLinearMul": Form("Mul", (0, 3), 6),
    "com.microsoft.QLinearAveragePool": Form("AveragePool", (0,), 3),
    "com.microsoft.QLinearGlobalAveragePool": Form("GlobalAveragePool", (0,), 3),
    "com.microsoft.QLinearLeakyRelu": Form("LeakyRelu", (0,), 3),
    "com.microsoft.QLinearReduceMean": Form("ReduceMean", (0,), 3),
    "com.microsoft.QLinearSigmoid": Form("Sigmoid", (0,), 3),
    "com.microsoft.QLinearSoftmax": Form("Softmax", (0,), 3),
}
"""Operators on integers."""

CONCAT = "com.microsoft.QLinearConcat"
"""The scale and zero point of its result come first, then operands with theirs."""


def has_integers(graph: GraphProto) -> bool:
    """Whether a model has operators on integers with scales."""
    return any(name_of(node) in (*FORMS, CONCAT, *PAIRS) for node in graph.node)


def with_pairs(proto: ModelProto, opset: int) -> None:
    """Makes operators on floats, between pairs, of those on integers, in place.

    Operators whose scales are no constants, or several for values that are computed, stay, and are refused later.
    """
    graph = proto.graph
    if has_integers(graph):
        integers = _Integers(Constants(graph), opset, {entry.name for entry in graph.output})
        integers.constants.replace_nodes(integers.made_of)


class _Integers:
    """Operators on floats in the place of a graph's operators on integers."""

    def __init__(self, constants: Constants, opset: int, outputs: set[str]) -> None:
        self.constants = constants
        self._opset = opset
        self._outputs = outputs
        self._scales: dict[str, Scale] = {}
        """Of integers that the network makes, where all of a value have one."""
        self._floats: dict[str, str] = {}
        """Integers as floats, by their names."""
        self._unmade: set[str] = set()
        """Integers that were moved as floats, and are not rounded to integers again."""

    def made_of(self, node: NodeProto) -> list[NodeProto]:
        """The nodes that take a node's place."""
        name, source = name_of(node), next(iter(node.input), "")
        form = _of_concat(node) if name == CONCAT else FORMS.get(name)
        made = None if form is None else self._on_floats(node, form)
        if made is None and name in MOVES and source in self._scales:
            made = self._moved(node, self._scales[source])
        if made is None and name in BACK and source in self._unmade and self._is_scale(source, _scale(node, 1)):
            made = [helper.make_node("Identity", [self._floats[source]], node.output, name=node.name)]
        if made is None:
            if name in PAIRS and _has(node, 1) and self._is_one(_scale(node, 1)):
                self._scales[node.output[0]] = _scale(node, 1)
            made = [*self._integers(sorted(names_read(node) & self._unmade)), node]
        return made

    def _integers(self, names: Iterable[str]) -> list[NodeProto]:
        """Nodes that make integers of floats that were moved."""
        made = [self._rounded(self._floats[name], name, self._scales[name]) for name in names]
        self._unmade.difference_update(node.output[0] for node in made)
        return made

    def _is_one(self, scale: Scale) -> bool:
        """Whether it is a constant scale and zero point for all integers of a value."""
        numbers = [self.constants.named(name) for name in scale if name]
        return all(number is not None and number.size == 1 for number in numbers)

    def _is_scale(self, name: str, scale: Scale) -> bool:
        """Whether integers have this scale and zero point."""
        pairs = zip(self._scales.get(name, ("", "")), scale, strict=True)
        return all(one == other or self._is_same(one, other) for one, other in pairs)

    def _is_same(self, one: str, other: str) -> bool:
        """Whether two names are of one number; a zero point that is left out is zero."""
        first, second = (self.constants.named(name) if name else np.zeros(1) for name in (one, other))
        return first is not None and second is not None and first.size == second.size == 1 and first == second

    def _on_floats(self, node: NodeProto, form: Form) -> list[NodeProto] | None:
        """An operator on integers as one on floats between pairs; None where it cannot be."""
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if attributes.pop("channels_last", 0) or not all(_has(node, place + 1) for place in form.operands):
            return None
        if form.operator == "Softmax":
            attributes.setdefault("axis", -1)
            if (attributes.pop("opset", self._opset) < OF_ROWS) != (self._opset < OF_ROWS):
                return None
        made, inputs = list[NodeProto](), list[str]()
        axis = 0 if form.operator == "Gemm" and attributes.get("transB") else form.axis
        for place in form.operands:
            inputs.append(self._float(node, place, _scale(node, place + 1), axis, made))
        if form.bias is not None and _has(node, form.bias):
            inputs.append(self._bias(node, form, attributes.get("alpha", 1.0)))
        if form.operator == "ReduceMean" and "axes" in attributes and self._opset >= AXES_AS_INPUT:
            inputs.append(self.constants.add(node, "axes", attributes.pop("axes"), np.int64))
        result, scale = node.output[0], self._result(node, form)
        if scale is None or not all(inputs):
            return None
        value = self.constants.name(node, "float") if scale.scale else result
        made.append(helper.make_node(form.operator, inputs, [value], name=node.name, **attributes))
        if scale.scale:
            made.append(self._rounded(value, result, scale))
        return made

    def _result(self, node: NodeProto, form: Form) -> Scale | None:
        """The scale of an operator's result, empty for floats; None where it is no constant. A zero point that is left
        out is that of the first operand's kind of integers."""
        scale = _scale(node, form.result) if _has(node, form.result) else Scale("", "")
        if not self._is_one(scale):
            return None
        if not scale.scale or scale.zero:
            return scale
        first = form.operands[0]
        zero = self.constants.at(node, first + 2)
        if zero is None:
            zero = self.constants.named(self._scales.get(node.input[first], scale).zero)
        return None if zero is None else Scale(scale.scale, self.constants.add(node, "zero", 0, zero.dtype))

    def _moved(self, node: NodeProto, scale: Scale) -> list[NodeProto] | None:
        """An operator that only moves integers of a scale, on floats; None where others come beside them."""
        moved, made = NodeProto(), list[NodeProto]()
        moved.CopyFrom(node)
        places = range(len(node.input)) if node.op_type == "Concat" else range(1)
        own = (name in self._scales or self.constants.named(name) is None for name in node.input[: len(places)])
        apart = (other and not self._is_scale(node.input[place], scale) for place, other in enumerate(own))
        if any(apart) or (node.op_type == "Pad" and not self._pad_by_zero(node, scale, moved)):
            return None
        for place in places:
            moved.input[place] = self._float(node, place, scale, 0, made)
        made.append(moved)
        # A MaxPool's second result are places.
        for place, name in enumerate(node.output[:1] if node.op_type == "MaxPool" else node.output):
            moved.output[place] = self._floats[name] = self.constants.name(node, f"float {place}")
            self._scales[name] = scale
            self._unmade.add(name)
        return made + self._integers(name for name in node.output if name in self._outputs & self._unmade)

    def _pad_by_zero(self, node: NodeProto, scale: Scale, moved: NodeProto) -> bool:
        """Gives a Pad the float of the integer that it puts beside others, zero where none is given; whether that is a
        constant."""
        given = self.constants.at(node, 2) if _has(node, 2) else np.zeros(())
        numbers = None if given is None else self._numbers(given, scale, 0)
        if numbers is None:
            return False
        names = [*moved.input[:2], self.constants.add(node, "value", numbers), *moved.input[3:]]
        del moved.input[:]
        moved.input.extend(names)
        return True

    def _float(self, node: NodeProto, place: int, scale: Scale, axis: int, made: list[NodeProto]) -> str:
        """The name of an operand's floats: weights are constants, others come behind a DequantizeLinear. Empty where
        its scale fits neither."""
        name = node.input[place]
        weights = self.constants.named(name)
        numbers = None if weights is None else self._numbers(weights, scale, axis)
        if numbers is not None:
            return self.constants.add(node, f"weights {place}", numbers)
        if not self._is_one(scale):
            return ""
        if name not in self._floats or not self._is_scale(name, scale):
            result = self.constants.name(node, f"input {place}")
            inputs = [name, *filter(None, scale)]
            made += self._integers({name} & self._unmade)
            made.append(helper.make_node("DequantizeLinear", inputs, [result], name=result))
            if name not in self._scales:
                return result
            self._floats[name] = result
        return self._floats[name]

    def _numbers(self, integers: Array, scale: Scale, axis: int) -> npt.NDArray[np.float32] | None:
        """Integers as floats, with a scale for all or for each place along an axis; None where it is neither."""
        factor, zero = self.constants.named(scale.scale), self.constants.named(scale.zero)
        if factor is None or (scale.zero and zero is None):
            return None
        zero = np.zeros(()) if zero is None else zero
        places = integers.shape[axis] if integers.ndim else 1
        if any(numbers.size not in (1, places) for numbers in (factor, zero)):
            return None
        shape = [1] * integers.ndim
        if integers.ndim:
            shape[axis] = -1
        centred = integers.astype(np.float64) - zero.astype(np.float64).reshape(shape)
        return (centred * factor.astype(np.float64).reshape(shape)).astype(np.float32)

    def _bias(self, node: NodeProto, form: Form, alpha: float) -> str:
        """The name of a bias in floats, whose integers have the scale of products; empty where it is no constant."""
        first, second = (self.constants.at(node, place + 1) for place in form.operands)
        integers = self.constants.at(node, form.bias or 0)
        if integers is None or first is None or second is None:
            return ""
        factor = alpha * first.astype(np.float64).ravel() * second.astype(np.float64).ravel()
        fits = integers.shape[-1:] == factor.shape or factor.size == 1
        return self.constants.add(node, "bias", integers.astype(np.float64) * factor) if fits else ""

    def _rounded(self, value: str, name: str, scale: Scale) -> NodeProto:
        """A value's integers under their name."""
        self._scales[name] = scale
        inputs = [value, *filter(None, scale)]
        return helper.make_node("QuantizeLinear", inputs, [name], name=f"{name}/rounded")


def _has(node: NodeProto, place: int) -> bool:
    return place < len(node.input) and bool(node.input[place])


def _scale(node: NodeProto, place: int) -> Scale:
    """The scale at a place, and the zero point behind it; empty names of what is left out."""
    scale, zero = (node.input[at] if _has(node, at) else "" for at in (place, place + 1))
    return Scale(scale, zero)


def _of_concat(node: NodeProto) -> Form:
    """The form of a Concat of so many operands."""
    return Form("Concat", tuple(range(2, len(node.input), 3)), 0)
