"""A graph's constants, and new ones for nodes that take the place of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

from pronghorn.onnx.reading import free_name, names_read

Array = npt.NDArray[np.generic]


class Constants:
    """The numbers that a graph's nodes read, and names that none of its values has."""

    def __init__(self, graph: GraphProto) -> None:
        """Of a graph, whose nodes `replace_nodes` replaces in place."""
        self._graph = graph
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        constants = (node for node in graph.node if node.op_type == "Constant")
        values = ((node.output[0], value.t) for node in constants for value in node.attribute if value.name == "value")
        self._tensors.update(values)
        for node in graph.node:
            if node.op_type == "Identity" and node.input[0] in self._tensors:
                self._tensors[node.output[0]] = self._tensors[node.input[0]]
        inputs = (entry.name for entry in graph.input)
        self._taken = {name for node in graph.node for name in (*node.input, *node.output)}.union(self._tensors, inputs)
        self._added: list[TensorProto] = []

    def at(self, node: NodeProto, place: int) -> Array | None:
        """An input's numbers; None where it is left out, or no constant."""
        return self.named(node.input[place]) if place < len(node.input) else None

    def named(self, name: str) -> Array | None:
        """A constant's numbers; None where the name is empty, or no constant's."""
        tensor = self._tensors.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def add(self, node: NodeProto, part: str, numbers: npt.ArrayLike, kind: npt.DTypeLike = np.float32) -> str:
        """Adds an initializer; its name."""
        name = self.name(node, part)
        self._added.append(numpy_helper.from_array(np.asarray(numbers, kind), name))
        return name

    def name(self, node: NodeProto, part: str) -> str:
        """A name for a part of a node that no other value has."""
        name = free_name(f"{node.output[0]}/{part}", self._taken)
        self._taken.add(name)
        return name

    def replace_nodes(self, made_of: Callable[[NodeProto], Iterable[NodeProto]]) -> None:
        """Puts what `made_of` gives in the place of each node, in their order; drops weights that none reads now."""
        graph = self._graph
        nodes = [made for node in graph.node for made in made_of(node)]
        del graph.node[:]
        graph.node.extend(nodes)
        read = {entry.name for entry in graph.output}.union(*map(names_read, nodes))
        kept = [tensor for tensor in graph.initializer if tensor.name in read] + self._added
        del graph.initializer[:]
        graph.initializer.extend(kept)
