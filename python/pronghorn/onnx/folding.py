"""Nodes whose inputs are all constants: evaluated while importing."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping

import numpy as np
import onnx
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator

from pronghorn.onnx.advice import CONTROL_FLOW, REPAIR
from pronghorn.onnx.lowering import MAX_ELEMENTS, Array, Lowering
from pronghorn.onnx.reading import first_line, graphs_of
from pronghorn.onnx.registry import name_of
from pronghorn.onnx.site import Site

NAMING = ("Constant", "Identity")
"""Operators that give constants another name."""

RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


QUANTISED = 21
"""The version of QuantizeLinear and DequantizeLinear, which holds for the older ones: the onnx package lacks those."""

OF_TABLES = 3
"""The version of operators of tables, as scikit-learn's exporter writes them."""


def is_constant(constants: Container[str], node: NodeProto) -> bool:
    """Whether all inputs of a standard node, or of a LabelEncoder, are among `constants`, and its outputs then are
    constants too."""
    known = all(name in constants for name in node.input if name)
    return known and name_of(node) in (node.op_type, "ai.onnx.ml.LabelEncoder") and node.op_type not in RANDOM


def has_graphs(node: NodeProto) -> bool:
    """Whether a node has graphs within it, as `If` and `Loop` do."""
    return bool(graphs_of(node))


def fold(lowering: Lowering, site: Site) -> None:
    """Evaluates a node all of whose inputs are constants.

    Raises:
        UnsupportedModelError: control flow, a result that is too large, or constants that do not
            fit.
    """
    node = site.node
    if has_graphs(node):
        site.fail("control flow is not supported", CONTROL_FLOW)
    feeds = {name: lowering.constants[name] for name in node.input if name}
    if _size(node, list(feeds.values())) > MAX_ELEMENTS:
        site.fail("the constant it makes is too large", f"at most {MAX_ELEMENTS} elements are supported")
    try:
        results = _evaluate(node, feeds, lowering.opset)
    except Exception as error:
        site.fail(f"its constants do not fit it: {first_line(error)}", REPAIR)
    lowering.constants.update(zip((name for name in node.output if name), results, strict=True))


def name_constants(nodes: Iterable[NodeProto], constants: dict[str, Array], opset: int) -> list[NodeProto]:
    """The nodes but those that give constants another name, whose values join `constants`. One whose value cannot be
    read stays.
    """
    left = []
    for node in nodes:
        found = small_results(node, constants, opset, MAX_ELEMENTS) if name_of(node) in NAMING else {}
        constants.update(found)
        if not found:
            left.append(node)
    return left


def small_results(node: NodeProto, constants: Mapping[str, Array], opset: int, most: int) -> dict[str, Array]:
    """The outputs of a node whose inputs are all among `constants`, where they can be computed and have at most `most`
    elements each; else none.
    """
    if has_graphs(node) or not is_constant(constants, node):
        return {}
    feeds = {name: constants[name] for name in node.input if name}
    if _size(node, list(feeds.values())) > most:
        return {}
    try:
        results = _evaluate(node, feeds, opset)
    except Exception:
        return {}  # Lowering finds what is wrong, and names it.
    found = dict(zip((name for name in node.output if name), results, strict=False))
    return found if all(array.size <= most for array in found.values()) else {}


def _evaluate(node: NodeProto, feeds: dict[str, Array], opset: int) -> list[Array]:
    """A node's outputs by the onnx package, whose GatherElements takes no axis of 64 places or more."""
    if node.op_type == "GatherElements":
        data, indices = (feeds[name] for name in node.input)
        axis = next((field.i for field in node.attribute if field.name == "axis"), 0)
        return [_gathered(data, indices, axis)]
    if node.op_type == "CumSum":
        # The package takes an axis without dimensions alone.
        feeds = {name: feeds[name].reshape(()) if name == node.input[1] else feeds[name] for name in feeds}
    inputs = [helper.make_value_info(name, onnx.TypeProto()) for name in feeds]
    outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name]
    graph = helper.make_graph([node], "fold", inputs, outputs)
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        opset = max(opset, QUANTISED)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", OF_TABLES)]
    model = helper.make_model(graph, opset_imports=opsets)
    with np.errstate(all="ignore"):
        return [np.asarray(result) for result in ReferenceEvaluator(model).run(None, feeds)]


def _gathered(data: Array, indices: Array, axis: int) -> Array:
    """The places of `data` along an axis that `indices` name, one for each place of these."""
    axis %= data.ndim
    read = tuple(slice(None) if at == axis else slice(size) for at, size in enumerate(indices.shape))
    return np.take_along_axis(data[read], indices, axis)


def _size(node: NodeProto, feeds: list[Array]) -> int:
    """How many elements the operators make that make large constants of small ones; 0 for
    others."""
    try:
        match node.op_type, feeds:
            case "ConstantOfShape", [shape]:
                return math.prod(int(size) for size in shape.flat)
            case "Expand", [data, shape]:
                return int(data.size) * math.prod(int(size) for size in shape.flat)
            case "Tile", [data, *repeats]:
                return int(data.size) * math.prod(int(size) for array in repeats for size in array.flat)
            case "Range", [start, limit, delta]:
                return int(abs((float(limit) - float(start)) / float(delta)))
            case "OneHot", [indices, depth, _]:
                return int(indices.size) * int(depth.reshape(()))
            case "Pad", [data, pads, *_]:
                return int(data.size) * math.prod(1 + abs(int(size)) for size in pads.flat)
            case _:
                return 0
    except (ArithmeticError, TypeError, ValueError):
        return MAX_ELEMENTS + 1
