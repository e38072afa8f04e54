"""Models of several inputs or outputs, as models of one row of numbers each.

The row has the values of each, flattened, one after the other. The ONNX model is changed, so that the import and the
float runtime see the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from pronghorn.onnx.reading import free_in

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """The row of several outputs."""

    name: str
    parts: Mapping[str, str]
    """The output of each part of the row: its values, flattened."""
    sizes: Mapping[str, str]
    """The constant with the shape of each output's part."""

    def size(self, graph: GraphProto, shapes: Mapping[str, Shape]) -> None:
        """Gives each part its size, which is known once the shapes of the outputs for one image are.

        An output's batch may be another dimension than the first, or merged with it. The values of an image are a row
        of its part all the same.
        """
        counts = {self.sizes[output]: math.prod(shape) for output, shape in shapes.items()}
        for tensor in graph.initializer:
            if tensor.name in counts:
                tensor.CopyFrom(_numbers(tensor.name, [-1, counts[tensor.name]]))


def join_outputs(graph: GraphProto, names: Sequence[str]) -> Row:
    """Appends nodes that make one row of the values `names`, for one image until the row is given its sizes."""
    joined = free_in(graph, ",".join(names))
    parts = {free_in(graph, f"{name}/flat"): name for name in names}
    sizes = {name: _constant(graph, f"{part}/shape", [1, -1]) for part, name in parts.items()}
    nodes = [helper.make_node("Reshape", [name, sizes[name]], [part], name=part) for part, name in parts.items()]
    graph.node.extend([*nodes, helper.make_node("Concat", list(parts), [joined], name=joined, axis=1)])
    return Row(joined, parts, sizes)


def join_inputs(proto: ModelProto, opset: int) -> dict[str, Shape]:
    """Gives a model of several inputs, whose sizes are fixed but for the batch, one row in their place.

    Returns: the shape of each input without the batch, in the order of the row.
    """
    graph = proto.graph
    entries = list(graph.input)
    shapes = {entry.name: tuple(dim.dim_value for dim in _dims(entry)[1:]) for entry in entries}
    joined, nodes, start = free_in(graph, ",".join(shapes)), list[NodeProto](), 0
    for name, shape in shapes.items():
        end = start + math.prod(shape)
        part = free_in(graph, f"{name}/part")
        nodes.append(_slice(graph, joined, part, start, end, opset))
        sizes = _constant(graph, f"{name}/shape", [0, *shape])
        nodes.append(helper.make_node("Reshape", [part, sizes], [name], name=f"{name}/reshape"))
        start = end
    fixed = all(_dims(entry)[0].dim_value == 1 for entry in entries)
    row = helper.make_tensor_value_info(joined, TensorProto.FLOAT, [1 if fixed else "N", start])
    del graph.input[:]
    graph.input.append(row)
    before = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *before])
    return shapes


def _dims(entry: ValueInfoProto) -> list[TensorProto]:
    return list(entry.type.tensor_type.shape.dim)


def _slice(graph: GraphProto, source: str, part: str, start: int, end: int, opset: int) -> NodeProto:
    """Columns `start` to `end - 1` of a row."""
    if opset < 10:
        return helper.make_node("Slice", [source], [part], name=part, starts=[start], ends=[end], axes=[1])
    bounds = {"start": [start], "end": [end], "axis": [1]}
    names = [_constant(graph, f"{part}/{role}", numbers) for role, numbers in bounds.items()]
    return helper.make_node("Slice", [source, *names], [part], name=part)


def _constant(graph: GraphProto, name: str, numbers: Sequence[int]) -> str:
    name = free_in(graph, name)
    graph.initializer.append(_numbers(name, numbers))
    return name


def _numbers(name: str, numbers: Sequence[int]) -> TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)
