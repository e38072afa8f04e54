"""Values of a model that depend on one value of its inputs alone, and what they are for each.

A model encodes categories by nodes that move, shift and compare single values. The onnx package evaluates these nodes,
so that they are what they are in the file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from pronghorn.onnx.folding import small_results
from pronghorn.onnx.lowering import Array
from pronghorn.onnx.reading import graphs_of, initializers, names_read
from pronghorn.onnx.registry import OF_SHAPES

Shape = tuple[int, ...]

MOVES = {
    "ArrayFeatureExtractor": 1,
    "Cast": 1,
    "Concat": 0,
    "Expand": 1,
    "Flatten": 1,
    "Gather": 1,
    "GatherND": 1,
    "Identity": 1,
    "Reshape": 1,
    "Slice": 1,
    "Split": 1,
    "Squeeze": 1,
    "Tile": 1,
    "Transpose": 1,
    "Unsqueeze": 1,
}
"""Operators that leave values as they are, by how many of their first inputs are values; 0: all."""

POINTWISE = (
    "Add",
    "And",
    "Clip",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Not",
    "Or",
    "Sub",
    "Where",
)
"""Operators that are followed on categories, and on whole numbers, truths and texts, which may be some. Those on other
numbers are layers' work."""

SUMS = ("ReduceMax", "ReduceSum")
"""Operators that are followed on categories, where all that they sum depends on one."""

COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")

MOST_CONSTANT = 1 << 24
"""Elements of a constant that follows from others."""

ENCODERS = ("LabelEncoder", "OneHot", "OneHotEncoder")
"""Operators that list the categories of the values that they read."""

PER_CATEGORY = ("OneHot", "OneHotEncoder")
"""Those that make a value for each category."""


class Kind(Enum):
    """The kind of traced values."""

    OF_CATEGORIES = auto()
    """Each depends on a category."""
    WHOLE = auto()
    """Whole numbers, truths or texts, which may be categories."""
    WHOLE_FLOATS = auto()
    """Whole numbers as floats. They are followed where they are compared."""
    NUMBERS = auto()


@dataclass
class Trace:
    """The nodes from a model's inputs to the last values that depend on one value of these alone."""

    nodes: list[NodeProto] = field(default_factory=list)
    """In their order, those among them that compute shapes."""
    values: dict[str, Kind] = field(default_factory=dict)
    """The values that they make of the inputs."""
    lookups: list[NodeProto] = field(default_factory=list)
    """Nodes that look up rows of constant tables by such values."""
    encoders: list[NodeProto] = field(default_factory=list)


def trace(
    graph: GraphProto,
    constants: Mapping[str, Array],
    known: Mapping[str, Kind] = MappingProxyType({}),
    ends: Container[str] = (),
) -> Trace:
    """Follows the inputs of a graph.

    Args:
        graph: the graph.
        constants: its constants by name.
        known: the kinds of inputs that are known better than by their types.
        ends: results that are not followed.
    """
    kinds = {entry.name: _kind_of(entry.type.tensor_type.elem_type) for entry in graph.input}
    found = Trace(values=kinds | dict(known))
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
        elif (
            kind == "Gather" and node.input[0] in constants and node.input[1] in found.values and axis_of(node, 0) == 0
        ):
            found.lookups.append(node)
        elif reads_values and node.output[0] not in ends and _keeps_apart(node, found.values, constants):
            found.values.update(dict.fromkeys(node.output, _made_kind(node, found.values, constants)))
            found.nodes.append(node)
            found.encoders += [node] if kind in ENCODERS or _compares(node, found.values, constants) else []
    return found


def _keeps_apart(node: NodeProto, values: Mapping[str, Kind], constants: Mapping[str, Array]) -> bool:
    """Whether each value that a node makes may depend on one value of the inputs; `Evaluator.places` sees whether it
    does."""
    kind, are_values = node.op_type, [name in values for name in node.input]
    kinds = {values[name] for name in node.input if name in values}
    if kind == "Concat" and kinds >= {Kind.OF_CATEGORIES, Kind.NUMBERS}:
        # Behind it numbers would be in a table, too.
        return False
    if kind in MOVES:
        first = MOVES[kind] or len(are_values)
        return all(are_values[:first]) and not any(are_values[first:])
    if kind == "OneHot":
        return are_values == [True, False, False] and axis_of(node, -1) == -1
    if kind in SUMS:
        axes = axes_of(node, constants)
        return kinds == {Kind.OF_CATEGORIES} and are_values[0] and len(axes) > 0 and 0 not in axes
    others = {Kind.NUMBERS} if kind in COMPARISONS else {Kind.NUMBERS, Kind.WHOLE_FLOATS}
    return kind in ENCODERS or (kind in POINTWISE and kinds.isdisjoint(others))


def _kind_of(elem_type: int) -> Kind:
    is_float = elem_type != TensorProto.STRING and helper.tensor_dtype_to_np_dtype(elem_type).kind == "f"
    return Kind.NUMBERS if is_float else Kind.WHOLE


def _made_kind(node: NodeProto, values: Mapping[str, Kind], constants: Mapping[str, Array]) -> Kind:
    """The kind of a node's values."""
    kinds = {values[name] for name in node.input if name in values}
    if kinds == {Kind.OF_CATEGORIES}:
        return Kind.OF_CATEGORIES
    if node.op_type in COMPARISONS:
        return Kind.WHOLE
    if node.op_type == "Cast":
        made = _kind_of(next(attribute.i for attribute in node.attribute if attribute.name == "to"))
        return Kind.WHOLE_FLOATS if made is Kind.NUMBERS and Kind.NUMBERS not in kinds else made
    beside = [constants[name].dtype.kind for name in node.input if name in constants]
    makes_floats = node.op_type in PER_CATEGORY or any(each.name == "values_floats" for each in node.attribute)
    if Kind.NUMBERS in kinds or makes_floats or (node.op_type in POINTWISE and "f" in beside):
        return Kind.NUMBERS
    return Kind.WHOLE_FLOATS if Kind.WHOLE_FLOATS in kinds else Kind.WHOLE


def _compares(node: NodeProto, values: Mapping[str, Kind], constants: Mapping[str, Array]) -> bool:
    """Whether a node's result is one for few whole numbers or texts, and another for all others: it compares with them,
    or makes a truth of each."""
    if any(values.get(name, Kind.WHOLE) is not Kind.WHOLE for name in node.input):
        return False
    if node.op_type == "Cast":
        return any(attribute.name == "to" and attribute.i == TensorProto.BOOL for attribute in node.attribute)
    known = [constants[name] for name in node.input if name in constants]
    return node.op_type == "Equal" and len(known) == 1 and known[0].dtype.kind in "iuOSU"


def axis_of(node: NodeProto, default: int) -> int:
    """The attribute `axis`."""
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == "axis"), default)


def axes_of(node: NodeProto, constants: Mapping[str, Array]) -> list[int]:
    """The axes of a reduction, which are an attribute or a constant; none for all of them."""
    if len(node.input) > 1 and node.input[1]:
        return [int(axis) for axis in constants[node.input[1]].ravel()] if node.input[1] in constants else []
    return next((list(each.ints) for each in node.attribute if each.name == "axes"), [])


def constants_of(proto: ModelProto, opset: int) -> dict[str, Array]:
    """The constants of a model by their names: weights, and small results of nodes that read these alone."""
    constants = initializers(proto.graph.initializer)
    for node in proto.graph.node:
        if not graphs_of(node):
            constants.update(small_results(node, constants, opset, MOST_CONSTANT))
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
        self._runs: dict[tuple[str, str | None], ReferenceEvaluator] = {}

    def rows(self) -> list[tuple[str, range]]:
        """The places of each input in the row of all."""
        return [
            (name, range(self.starts[name], self.starts[name] + math.prod(self.shapes[name]))) for name in self.shapes
        ]

    def places(self, name: str) -> Array:
        """For each value of a traced tensor of one image the place in the row of the value that it depends on.

        Raises:
            ValueError: the values of an image are not apart from those of others.
        """
        rows = np.arange(self._images * self.count).reshape(self._images, -1)
        # The places of several values that a node reads are the same where the most and the least of them are.
        found = self._run(name, rows, "Max")
        if not np.array_equal(found, self._run(name, rows, "Min")):
            raise ValueError(f"{name} mixes values")
        images = [found[at : at + 1] - at * self.count for at in range(self._images)]
        if len(found) != self._images or any(not np.array_equal(images[0], each) for each in images):
            raise ValueError(f"{name} has the batch elsewhere")
        if not 0 <= images[0].min(initial=0) <= images[0].max(initial=0) < self.count:
            raise ValueError(f"{name} mixes images")
        return np.asarray(images[0][0])

    def values(self, name: str, rows: Array) -> Array:
        """The values of a traced tensor for rows `(images, values)`."""
        if self._images > 1:
            return self._run(name, rows, None)
        return np.concatenate([self._run(name, rows[at : at + 1], None) for at in range(len(rows))])

    def widest(self, name: str) -> int:
        """Bytes of the whole numbers of the inputs that a value depends on."""
        read = {name}.union(*map(names_read, self.behind(name)))
        types = [type_of(self._entries[source].type.tensor_type) for source in self.shapes if source in read]
        return max((kind.itemsize for kind in types if kind.kind in "iu"), default=8)

    def behind(self, name: str) -> list[NodeProto]:
        """The traced nodes that a value depends on, in their order."""
        needed, kept = {name}, []
        for node in reversed(self._traced.nodes):
            if not needed.isdisjoint(node.output):
                kept.append(node)
                needed |= names_read(node)
        return kept[::-1]

    def _run(self, name: str, rows: Array, bare: str | None) -> Array:
        """`bare`: the operator in whose place nodes move values and do nothing else with them; None: as they are."""
        nodes = self.behind(name)
        read = set().union({name}, *map(names_read, nodes))
        feeds = {source: self._part(source, rows, bare is not None) for source in self.shapes if source in read}
        if name in feeds:
            return feeds[name]
        key = (name, bare)
        if key not in self._runs:
            self._runs[key] = self._evaluator(name, nodes, list(feeds), bare)
        with np.errstate(all="ignore"):
            (found,) = self._runs[key].run(None, feeds)
        return np.asarray(found)

    def _part(self, source: str, rows: Array, is_bare: bool) -> Array:
        """An input's part of rows."""
        tensor = self._entries[source].type.tensor_type
        start = self.starts[source]
        part = rows[:, start : start + math.prod(self.shapes[source])]
        shape = self.shapes[source] if len(tensor.shape.dim) > 1 else ()
        return part.reshape(len(rows), *shape).astype(np.int64 if is_bare else type_of(tensor))

    def _evaluator(self, name: str, nodes: list[NodeProto], sources: list[str], bare: str | None) -> ReferenceEvaluator:
        stored = {each: self._constants[each] for node in nodes for each in node.input if each in self._constants}
        if bare is not None:
            nodes = [made for node in nodes for made in self._bare(node, stored, bare)]
        nodes = [_with_plain_depth(node, stored) for node in nodes]
        anything = helper.make_tensor_type_proto(TensorProto.UNDEFINED, None)
        inputs, outputs = ([helper.make_value_info(each, anything) for each in names] for names in (sources, [name]))
        tensors = [numpy_helper.from_array(array, each) for each, array in stored.items()]
        graph = helper.make_graph(nodes, "traced", inputs, outputs, tensors)
        return ReferenceEvaluator(helper.make_model(graph, opset_imports=self._proto.opset_import))

    def _bare(self, node: NodeProto, stored: dict[str, Array], operator: str) -> list[NodeProto]:
        """The nodes that move a node's values and do nothing else with them; constants join `stored`."""
        kind, result = node.op_type, node.output[0]
        sources = [name for name in node.input if name in self._traced.values]
        if not sources or kind in OF_SHAPES or (kind in MOVES and kind != "Cast"):
            return [node]
        source = sources[0]
        if kind in PER_CATEGORY:
            size = len(listed(node, self._constants))
            stored[f"{result}/zeros"] = np.zeros(size, np.int64)
            stored[f"{result}/last"] = np.array([-1], np.int64)
            column = f"{result}/column"
            unsqueeze = helper.make_node("Unsqueeze", [source, f"{result}/last"], [column])
            if self._opset < 13:
                unsqueeze = helper.make_node("Unsqueeze", [source], [column], axes=[-1])
            return [
                unsqueeze,
                helper.make_node("Add", [column, f"{result}/zeros"], [result]),
            ]
        if kind in SUMS:
            return [self._extreme(node, stored, operator)]
        if kind not in POINTWISE:
            return [helper.make_node("Identity", [source], [result])]
        zeros = np.broadcast_shapes(*(self._constants[name].shape for name in node.input if name in self._constants))
        stored[f"{result}/zeros"] = np.zeros(zeros, np.int64)
        return [
            helper.make_node(operator, sources, [f"{result}/place"]),
            helper.make_node("Add", [f"{result}/place", f"{result}/zeros"], [result]),
        ]

    def _extreme(self, node: NodeProto, stored: dict[str, Array], operator: str) -> NodeProto:
        """The place of the values that a node sums: the most or the least of them, which are one where there is one."""
        source, result, axes = node.input[0], node.output[0], axes_of(node, self._constants)
        keepdims = next((each.i for each in node.attribute if each.name == "keepdims"), 1)
        if self._opset < 18:
            return helper.make_node(f"Reduce{operator}", [source], [result], axes=axes, keepdims=keepdims)
        stored[f"{result}/axes"] = np.array(axes, np.int64)
        return helper.make_node(f"Reduce{operator}", [source, f"{result}/axes"], [result], keepdims=keepdims)


def _inner(tensor: TypeProto.Tensor) -> Shape:
    """The shape of one image; an input of one number for each is a row of one."""
    return tuple(dim.dim_value for dim in list(tensor.shape.dim)[1:]) or (1,)


def type_of(tensor: TypeProto.Tensor) -> np.dtype[Any]:
    """The type of an input's values."""
    kind = tensor.elem_type
    return np.dtype(object) if kind == TensorProto.STRING else helper.tensor_dtype_to_np_dtype(kind)


def _with_plain_depth(node: NodeProto, stored: dict[str, Array]) -> NodeProto:
    """A OneHot whose number of categories is a plain number, and no list of one, which the onnx package does not take.
    It joins `stored`."""
    if node.op_type != "OneHot" or node.input[1] not in stored:
        return node
    made = copy.deepcopy(node)
    made.input[1] = f"{node.output[0]}/depth"
    stored[made.input[1]] = stored[node.input[1]].reshape(())
    return made


def shifted(name: str, evaluator: Evaluator, row: Array | None = None) -> list[tuple[int, int]]:
    """For each value of a traced tensor the place that it depends on, and what is added to it; of texts 0. `row`: the
    values that it is seen by, zeros by default."""
    row = np.zeros(evaluator.count, object) if row is None else row
    places = evaluator.places(name).ravel().tolist()
    values = evaluator.values(name, row[None])[0].ravel().tolist()
    shifts = [0 if isinstance(value, str) else int(value) - row[at] for at, value in zip(places, values, strict=True)]
    return list(zip(places, shifts, strict=True))


def listed(node: NodeProto, constants: Mapping[str, Array]) -> list[str | int]:
    """The categories that an encoder lists."""
    if node.op_type == "OneHot":
        return list(range(int(constants[node.input[1]].reshape(-1)[0])))
    if node.op_type == "Cast":
        return [0]
    if node.op_type == "Equal":
        return list(dict.fromkeys(next(constants[name] for name in node.input if name in constants).ravel().tolist()))
    for attribute in node.attribute:
        if attribute.name in ("cats_strings", "keys_strings"):
            return [text.decode() for text in attribute.strings]
        if attribute.name in ("cats_int64s", "keys_int64s"):
            return [int(number) for number in attribute.ints]
        if attribute.name == "keys_floats" and all(number % 1 == 0 for number in attribute.floats):
            return [int(number) for number in attribute.floats]
        if attribute.name == "keys_tensor":
            keys = numpy_helper.to_array(attribute.t).ravel().tolist()
            return [
                key.decode() if isinstance(key, bytes) else key if isinstance(key, str) else int(key) for key in keys
            ]
    raise ValueError(f"{node.op_type} lists no categories that are whole numbers or texts")
