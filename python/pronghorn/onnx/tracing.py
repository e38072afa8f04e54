"""Values of a model that depend on one value of its inputs alone, and what they are for each.

A model encodes categories by nodes that move, shift and compare single values. The onnx package evaluates these nodes,
so that they are what they are in the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from pronghorn.onnx.folding import small_results
from pronghorn.onnx.lowering import MAX_ELEMENTS, Array
from pronghorn.onnx.reading import graphs_of, initializers, names_read
from pronghorn.onnx.registry import OF_SHAPES

Shape = tuple[int, ...]

MOVES = {
    "ArrayFeatureExtractor": 1,
    "Cast": 1,
    "Concat": 0,
    "Flatten": 1,
    "Gather": 1,
    "Identity": 1,
    "Reshape": 1,
    "Slice": 1,
    "Split": 1,
    "Squeeze": 1,
    "Transpose": 1,
    "Unsqueeze": 1,
}
"""Operators that leave values as they are, by how many of their first inputs are values; 0: all."""

ENCODERS = ("LabelEncoder", "OneHot", "OneHotEncoder")
"""Operators that list the categories of the values that they read."""

PER_CATEGORY = ("OneHot", "OneHotEncoder")
"""Those that make a value for each category."""


@dataclass
class Trace:
    """The nodes from a model's inputs to the last values that depend on one value of these alone."""

    nodes: list[NodeProto] = field(default_factory=list)
    """In their order, those among them that compute shapes."""
    values: set[str] = field(default_factory=set)
    """The values that they make of the inputs."""
    lookups: list[NodeProto] = field(default_factory=list)
    """Nodes that look up rows of constant tables by such values."""
    encoders: list[NodeProto] = field(default_factory=list)


def trace(graph: GraphProto, constants: Mapping[str, Array]) -> Trace:
    """Follows the inputs of a graph."""
    found = Trace(values={entry.name for entry in graph.input})
    shapes = set[str]()
    for node in graph.node:
        kind, read = node.op_type, [name for name in node.input if name]
        beside = [name for name in read if name not in found.values]
        if graphs_of(node) or not all(name in constants or name in shapes for name in beside):
            continue
        reads_values = len(beside) < len(read)
        if kind in OF_SHAPES or (not reads_values and not shapes.isdisjoint(read)):
            shapes.update(node.output)
            found.nodes.append(node)
        elif kind == "Gather" and node.input[0] in constants and node.input[1] in found.values and axis_of(node, 0) == 0:
            found.lookups.append(node)
        elif reads_values and _keeps_apart(node, found.values, constants):
            found.values.update(node.output)
            found.nodes.append(node)
            found.encoders += [node] if kind in ENCODERS or _is_one_hot(node, constants) else []
    return found


def _keeps_apart(node: NodeProto, values: set[str], constants: Mapping[str, Array]) -> bool:
    """Whether each value that a node makes depends on one of those that it reads."""
    kind, are_values = node.op_type, [name in values for name in node.input]
    if kind in MOVES:
        first = MOVES[kind] or len(are_values)
        return all(are_values[:first]) and not any(are_values[first:])
    if sum(are_values) != 1:
        return False
    if kind in ("Add", "Sub"):
        # Whole numbers are shifted, as one table of several columns needs it; others belong to layers.
        number = constants.get(node.input[are_values.index(False)])
        return number is not None and number.dtype.kind in "iu" and (kind == "Add" or are_values[0])
    if kind == "OneHot":
        return are_values[0] and axis_of(node, -1) == -1
    return kind in ENCODERS or kind == "Equal"


def _is_one_hot(node: NodeProto, constants: Mapping[str, Array]) -> bool:
    """Whether a node compares values with several whole numbers each, as PyTorch's newer exporter writes one_hot."""
    numbers = [constants[name] for name in node.input if name in constants]
    return node.op_type == "Equal" and len(numbers) == 1 and numbers[0].dtype.kind in "iu" and numbers[0].size > 1


def axis_of(node: NodeProto, default: int) -> int:
    """The attribute `axis`."""
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == "axis"), default)


def constants_of(proto: ModelProto, opset: int) -> dict[str, Array]:
    """The constants of a model by their names: weights, and small results of nodes that read these alone."""
    constants = initializers(proto.graph.initializer)
    for node in proto.graph.node:
        if not graphs_of(node):
            constants.update(small_results(node, constants, opset, MAX_ELEMENTS))
    return constants


class Evaluator:
    """Evaluates traced values for rows of the model's inputs."""

    def __init__(self, proto: ModelProto, opset: int, constants: Mapping[str, Array], traced: Trace) -> None:
        """Prepares it; the sizes of all inputs but for the batch are fixed."""
        self._proto, self._opset, self._constants, self._traced = proto, opset, constants, traced
        self._entries = {entry.name: entry for entry in proto.graph.input}
        self.shapes = {name: _inner(entry.type.tensor_type) for name, entry in self._entries.items()}
        """Of one image, by input."""
        ends = np.cumsum([0, *map(math.prod, self.shapes.values())]).tolist()
        self.starts = dict(zip(self.shapes, ends, strict=False))
        """The place of each input in the row of all."""
        self.count: int = ends[-1]
        """Values of that row."""
        fixed = [entry.type.tensor_type.shape.dim[0].dim_value for entry in proto.graph.input]
        self._images = 1 if max(fixed) >= 1 else 2
        self._runs: dict[tuple[str, bool], ReferenceEvaluator] = {}

    def places(self, name: str) -> Array:
        """For each value of a traced tensor of one image the place in the row of the value that it depends on.

        Raises:
            ValueError: the values of an image are not apart from those of others.
        """
        rows = np.arange(self._images * self.count).reshape(self._images, -1)
        found = self._run(name, rows, is_bare=True)
        images = [found[at : at + 1] - at * self.count for at in range(self._images)]
        if len(found) != self._images or any(not np.array_equal(images[0], each) for each in images):
            raise ValueError(f"{name} has the batch elsewhere")
        if not 0 <= images[0].min(initial=0) <= images[0].max(initial=0) < self.count:
            raise ValueError(f"{name} mixes images")
        return images[0][0]

    def values(self, name: str, rows: Array) -> Array:
        """The values of a traced tensor for rows `(images, values)`."""
        if self._images > 1:
            return self._run(name, rows, is_bare=False)
        return np.concatenate([self._run(name, rows[at : at + 1], is_bare=False) for at in range(len(rows))])

    def _run(self, name: str, rows: Array, is_bare: bool) -> Array:
        nodes = self._behind(name)
        read = set().union({name}, *map(names_read, nodes))
        feeds = {source: self._part(source, rows, is_bare) for source in self.shapes if source in read}
        if name in feeds:
            return feeds[name]
        key = (name, is_bare)
        if key not in self._runs:
            self._runs[key] = self._evaluator(name, nodes, list(feeds), is_bare)
        with np.errstate(all="ignore"):
            return np.asarray(self._runs[key].run(None, feeds)[0])

    def _part(self, source: str, rows: Array, is_bare: bool) -> Array:
        """An input's part of rows."""
        tensor = self._entries[source].type.tensor_type
        start = self.starts[source]
        part = rows[:, start : start + math.prod(self.shapes[source])]
        shape = self.shapes[source] if len(tensor.shape.dim) > 1 else ()
        return part.reshape(len(rows), *shape).astype(np.int64 if is_bare else type_of(tensor))

    def _behind(self, name: str) -> list[NodeProto]:
        """The traced nodes that a value depends on."""
        needed, kept = {name}, []
        for node in reversed(self._traced.nodes):
            if not needed.isdisjoint(node.output):
                kept.append(node)
                needed |= names_read(node)
        return kept[::-1]

    def _evaluator(self, name: str, nodes: list[NodeProto], sources: list[str], is_bare: bool) -> ReferenceEvaluator:
        stored = {each: self._constants[each] for node in nodes for each in node.input if each in self._constants}
        if is_bare:
            nodes = [made for node in nodes for made in self._bare(node, stored)]
        anything = helper.make_tensor_type_proto(TensorProto.UNDEFINED, None)
        inputs, outputs = ([helper.make_value_info(each, anything) for each in names] for names in (sources, [name]))
        tensors = [numpy_helper.from_array(array, each) for each, array in stored.items()]
        graph = helper.make_graph(nodes, "traced", inputs, outputs, tensors)
        return ReferenceEvaluator(helper.make_model(graph, opset_imports=self._proto.opset_import))

    def _bare(self, node: NodeProto, stored: dict[str, Array]) -> list[NodeProto]:
        """The nodes that move a node's values and do nothing else with them; constants join `stored`."""
        kind, result = node.op_type, node.output[0]
        source = next((name for name in node.input if name in self._traced.values), None)
        if source is None or kind in OF_SHAPES or (kind in MOVES and kind != "Cast"):
            return [node]
        if kind in PER_CATEGORY:
            size = len(listed(node, self._constants))
            stored[f"{result}/zeros"] = np.zeros(size, np.int64)
            stored[f"{result}/last"] = np.array([-1], np.int64)
            column = f"{result}/column"
            last = {"axes": [-1]} if self._opset < 13 else {}
            inputs = [source] if last else [source, f"{result}/last"]
            return [
                helper.make_node("Unsqueeze", inputs, [column], **last),
                helper.make_node("Add", [column, f"{result}/zeros"], [result]),
            ]
        beside = next((name for name in node.input if name in self._constants), None)
        if beside is None or kind == "LabelEncoder":
            return [helper.make_node("Identity", [source], [result])]
        stored[f"{result}/zeros"] = np.zeros(self._constants[beside].shape, np.int64)
        return [helper.make_node("Add", [source, f"{result}/zeros"], [result])]


def _inner(tensor: TensorProto) -> Shape:
    """The shape of one image; an input of one number for each is a row of one."""
    return tuple(dim.dim_value for dim in list(tensor.shape.dim)[1:]) or (1,)


def type_of(tensor: TensorProto) -> np.dtype[Any]:
    """The type of an input's values."""
    kind = tensor.elem_type
    return np.dtype(object) if kind == TensorProto.STRING else helper.tensor_dtype_to_np_dtype(kind)


def listed(node: NodeProto, constants: Mapping[str, Array]) -> list[str | int]:
    """The categories that an encoder lists."""
    if node.op_type == "OneHot":
        return list(range(int(constants[node.input[1]].reshape(-1)[0])))
    if node.op_type == "Equal":
        return next(constants[name] for name in node.input if name in constants).ravel().tolist()
    for attribute in node.attribute:
        if attribute.name in ("cats_strings", "keys_strings"):
            return [text.decode() for text in attribute.strings]
        if attribute.name in ("cats_int64s", "keys_int64s"):
            return [int(number) for number in attribute.ints]
        if attribute.name == "keys_floats" and all(number % 1 == 0 for number in attribute.floats):
            return [int(number) for number in attribute.floats]
        if attribute.name == "keys_tensor":
            keys = numpy_helper.to_array(attribute.t).ravel().tolist()
            return [key.decode() if isinstance(key, bytes) else key if isinstance(key, str) else int(key) for key in keys]
    raise ValueError(f"{node.op_type} lists no categories that are whole numbers or texts")
