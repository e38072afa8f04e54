"""Models that quantise values as they run, made by `onnxruntime.quantization.quantize_dynamic`: as float models.

`DynamicQuantizeLinear` takes a scale from the values at hand, of all images of a batch. Pronghorn's own fixed point
takes its place. So the values stay, times `FINE`, as integers of the scale `1 / FINE` with the zero point 0. Operators
on integers become those on floats, with the weights minus their zero points. The nodes behind multiply by the scales.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from pronghorn.onnx.constants import Array, Constants
from pronghorn.onnx.registry import name_of

FINE = 1024.0
"""Some models round a bias to integers of the values' scale, before they add it."""


def is_dynamic(graph: GraphProto) -> bool:
    """Whether a model quantises values as it runs, by scales of the batch at hand."""
    return any(name_of(node) in WAYS for node in graph.node)


def without_dynamic(proto: ModelProto) -> bool:
    """Makes float operators of those on integers, in place; whether there were any.

    Operators whose weights are no constants stay, and are refused later.
    """
    graph = proto.graph
    if not is_dynamic(graph):
        return False
    floats = _Floats(graph)
    floats.replace_nodes(floats.made_of)
    return True


class _Floats(Constants):
    """Float operators in the place of a graph's operators on integers."""

    def __init__(self, graph: GraphProto) -> None:
        super().__init__(graph)
        self._zeros = {"", *(node.output[2] for node in graph.node if name_of(node) == "DynamicQuantizeLinear")}

    def made_of(self, node: NodeProto) -> list[NodeProto]:
        """The nodes that take a node's place."""
        way = WAYS.get(name_of(node))
        return (way(self, node) if way else None) or [node]

    def is_dynamic(self, node: NodeProto, place: int) -> bool:
        """Whether the zero point at a place is that of values quantised as the model runs, or left out: zero here."""
        return place >= len(node.input) or node.input[place] in self._zeros


def _values(floats: _Floats, node: NodeProto) -> list[NodeProto]:
    """The values times `FINE`, their scale and their zero point."""
    value, *numbers = node.output
    factor = floats.add(node, "fine", FINE)
    made = [helper.make_node("Mul", [node.input[0], factor], [value], name=node.name)]
    zero = helper.make_tensor("zero", TensorProto.UINT8, [], [0])
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [1 / FINE])
    named = zip(numbers, (scale, zero), strict=False)
    return made + [helper.make_node("Constant", [], [name], value=tensor) for name, tensor in named if name]


def _convolution(floats: _Floats, node: NodeProto) -> list[NodeProto] | None:
    """Weights have a zero point, or one for each output channel."""
    weights = floats.at(node, 1)
    if weights is None or not floats.is_dynamic(node, 2):
        return None
    zero = _zero(floats, node, 3)
    centred = weights.astype(np.float32) - zero.reshape(-1, *(1,) * (weights.ndim - 1))
    made = helper.make_node("Conv", [node.input[0], floats.add(node, "weights", centred)], node.output, name=node.name)
    made.attribute.extend(node.attribute)
    return [made]


def _product(floats: _Floats, node: NodeProto) -> list[NodeProto] | None:
    """Of values and weights, or of two values, whose zero points are then zero. Weights have a zero point, or one for
    each column."""
    weights = floats.at(node, 1)
    if not floats.is_dynamic(node, 2) or (weights is None and not floats.is_dynamic(node, 3)):
        return None
    if weights is None:
        return [helper.make_node("MatMul", node.input[:2], node.output, name=node.name)]
    name = floats.add(node, "weights", weights.astype(np.float32) - _zero(floats, node, 3))
    return [helper.make_node("MatMul", [node.input[0], name], node.output, name=node.name)]


def _scaled_product(floats: _Floats, node: NodeProto) -> list[NodeProto] | None:
    """A product of integers, times scales, and a bias: `A, B`, their scales, their zero points, the bias."""
    weights, scale = floats.at(node, 1), floats.at(node, 3)
    if weights is None or scale is None or not floats.is_dynamic(node, 4):
        return None
    centred = (weights.astype(np.float32) - _zero(floats, node, 5)) * scale.astype(np.float32)
    scaled = floats.name(node, "scaled")
    made = [helper.make_node("Mul", [node.input[0], node.input[2]], [scaled], name=f"{node.name}/scaled")]
    return made + _with_bias(floats, node, scaled, centred, 6)


def _values_product(floats: _Floats, node: NodeProto) -> list[NodeProto] | None:
    """A product of floats, which are quantised, with weights: `A, B, scale of B, zero point of B, bias`."""
    weights, scale = floats.at(node, 1), floats.at(node, 2)
    if weights is None or scale is None:
        return None
    centred = (weights.astype(np.float32) - _zero(floats, node, 3)) * scale.astype(np.float32)
    return _with_bias(floats, node, node.input[0], centred, 4)


def _with_bias(floats: _Floats, node: NodeProto, value: str, weights: Array, place: int) -> list[NodeProto]:
    """A value times weights, plus the node's bias where there is one at that place."""
    has_bias = len(node.input) > place and node.input[place]
    product = floats.name(node, "product") if has_bias else node.output[0]
    made = [helper.make_node("MatMul", [value, floats.add(node, "weights", weights)], [product], name=node.name)]
    if has_bias:
        made.append(helper.make_node("Add", [product, node.input[place]], node.output, name=f"{node.name}/bias"))
    return made


def _lstm(floats: _Floats, node: NodeProto) -> list[NodeProto] | None:
    """An LSTM whose weights are `(directions, inputs, 4 hidden)`; scales and zero points follow its eight inputs, one
    for each direction or also for each column."""
    weights = []
    for place, numbers in ((1, 8), (2, 10)):
        quantised, scale = floats.at(node, place), floats.at(node, numbers)
        if quantised is None or scale is None or quantised.ndim != 3:
            return None
        sizes = (len(quantised), 1, -1)
        zero = np.broadcast_to(_zero(floats, node, numbers + 1).ravel(), scale.size)
        centred = (quantised.astype(np.float32) - zero.reshape(sizes)) * scale.astype(np.float32).reshape(sizes)
        weights.append(floats.add(node, f"weights {place}", centred.transpose(0, 2, 1)))
    inputs = [node.input[0], *weights, *node.input[3:8]]
    made = helper.make_node("LSTM", inputs, node.output, name=node.name)
    made.attribute.extend(node.attribute)
    return [made]


def _zero(floats: _Floats, node: NodeProto, place: int) -> npt.NDArray[np.float32]:
    """The zero points of weights, 0 where there are none."""
    zero = floats.at(node, place)
    return np.zeros((), np.float32) if zero is None else zero.astype(np.float32)


WAYS: dict[str, Callable[[_Floats, NodeProto], list[NodeProto] | None]] = {
    "DynamicQuantizeLinear": _values,
    "ConvInteger": _convolution,
    "MatMulInteger": _product,
    "com.microsoft.MatMulIntegerToFloat": _scaled_product,
    "com.microsoft.DynamicQuantizeMatMul": _values_product,
    "com.microsoft.DynamicQuantizeLSTM": _lstm,
}
"""How each operator on integers becomes float operators; None where its weights or zero points are none of these."""
