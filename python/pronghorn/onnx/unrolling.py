"""Loops of a constant number of turns, as the nodes of each turn: recurrent layers that an exporter wrote as Loop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper, numpy_helper

from pronghorn.onnx.folding import has_graphs, small_results
from pronghorn.onnx.lowering import Array
from pronghorn.onnx.reading import initializers
from pronghorn.onnx.registry import AXES_GIVEN, name_of

MOST_TURNS = 1024
"""As many as steps of a recurrent layer."""

MOST_NODES = 1 << 17
"""Most nodes of all turns of a model."""

SMALL = 64
"""Constants of at most so many elements are known here: numbers of turns, conditions and places."""


def unroll(proto: ModelProto, opset: int) -> bool:
    """Replaces each Loop whose number of turns follows from constants. Others are left, for lowering to refuse.

    Returns: whether one was replaced.
    """
    graph = proto.graph
    if not has_loops(proto):
        return False
    state, nodes = State.of(graph, opset), list[NodeProto]()
    replaced = False
    for node in graph.node:
        state.learn(node)
        turns = _turns(node, state) if name_of(node) == "Loop" else None
        nodes.extend([node] if turns is None else turns)
        replaced = replaced or turns is not None
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in state.made.items())
    return replaced


def has_loops(proto: ModelProto) -> bool:
    """Whether there is a Loop."""
    return any(name_of(node) == "Loop" for node in proto.graph.node)


@dataclass
class State:
    """The names and small constants of a graph while its loops are replaced."""

    opset: int
    taken: set[str]
    known: dict[str, Array]
    """Small constants, by name."""
    made: dict[str, Array] = field(default_factory=dict)
    """New constants."""
    nodes: int = 0
    """New nodes."""

    @classmethod
    def of(cls, graph: GraphProto, opset: int) -> State:
        """That of a graph as it is."""
        taken = {entry.name for entry in (*graph.input, *graph.initializer)}
        taken.update(name for node in graph.node for name in _made_by(node))
        return cls(opset, taken, initializers(t for t in graph.initializer if math.prod(t.dims) <= SMALL))

    def learn(self, node: NodeProto) -> dict[str, Array]:
        """The results of a node of small constants, which are known from now on; none where it is another node."""
        found = small_results(node, self.known, self.opset, SMALL)
        self.known.update(found)
        return found

    def name(self, wanted: str) -> str:
        """A name that nothing has."""
        while wanted in self.taken:
            wanted += "'"
        self.taken.add(wanted)
        return wanted

    def constant(self, wanted: str, array: Array) -> str:
        """A new constant; its name."""
        name = self.name(wanted)
        self.made[name] = array
        if array.size <= SMALL:
            self.known[name] = array
        return name

    def copied(self, body: GraphProto, title: str, names: dict[str, str]) -> list[NodeProto]:
        """The nodes of a graph within another that are not constants.

        Args:
            body: that graph.
            title: what the names of its nodes and values begin with.
            names: those of the values that it is given; its own come to it.
        """
        nodes = []
        for node in body.node:
            copied = NodeProto()
            copied.CopyFrom(node)
            copied.name = f"{title}/{node.name or next(iter(node.output), '')}"
            _rename(copied, names)
            copied.output[:] = [name and self.name(f"{title}/{name}") for name in node.output]
            names.update((old, new) for old, new in zip(node.output, copied.output, strict=True) if old)
            found = self.learn(copied)
            self.made.update(found)
            if not found:
                nodes.append(copied)
        return nodes


def _made_by(node: NodeProto) -> set[str]:
    """The names of what a node makes, and of all in the graphs within it."""
    found = set(node.output)
    for graph in (attribute.g for attribute in node.attribute if attribute.type == AttributeProto.GRAPH):
        found.update(entry.name for entry in (*graph.input, *graph.initializer))
        found.update(name for each in graph.node for name in _made_by(each))
    return found


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Gives what a node reads other names, in graphs within it, too."""
    node.input[:] = [names.get(name, name) for name in node.input]
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            own = {output for each in attribute.g.node for output in each.output}
            own.update(entry.name for entry in (*attribute.g.input, *attribute.g.initializer))
            outer = {name: new for name, new in names.items() if name not in own}
            for each in attribute.g.node:
                _rename(each, outer)
            for entry in attribute.g.output:
                entry.name = outer.get(entry.name, entry.name)


def _turns(loop: NodeProto, state: State) -> list[NodeProto] | None:
    """The nodes of all turns, and those that make the loop's outputs; None where the turns are not known."""
    body = next((a.g for a in loop.attribute if a.name == "body" and a.type == AttributeProto.GRAPH), None)
    count, go = (_number(loop, place, state) for place in range(2))
    if body is None or count is None or go is None or any(has_graphs(node) for node in body.node):
        return None
    values, scans = list(loop.input[2:]), list[list[str]]()
    if len(body.input) != 2 + len(values) or len(body.output) != 1 + len(loop.output):
        return None
    title, nodes, turn = loop.name or loop.output[0], list[NodeProto](), 0
    outer = {n: state.constant(f"{title}/{n}", a) for n, a in initializers(body.initializer).items()}
    while go and turn < count:
        state.nodes += len(body.node)
        if turn == MOST_TURNS or state.nodes > MOST_NODES:
            return None
        names = dict(outer)
        numbers = [state.constant(f"{title}/{turn}/{i}", np.array(v)) for i, v in enumerate((np.int64(turn), True))]
        names.update(zip((entry.name for entry in body.input), [*numbers, *values], strict=True))
        nodes.extend(state.copied(body, f"{title}/{turn}", names))
        ends = [names.get(entry.name, entry.name) for entry in body.output]
        if ends[0] not in state.known:
            return None
        go, values = bool(state.known[ends[0]].item()), ends[1 : 1 + len(values)]
        scans.append(ends[1 + len(values) :])
        turn += 1
    if turn == 0 and len(loop.output) > len(values):
        return None
    return [*nodes, *_ends(loop, values, scans, state)]


def _number(loop: NodeProto, place: int, state: State) -> int | None:
    """The number of turns or the first condition: without limit and true where absent, None where unknown."""
    name = loop.input[place] if place < len(loop.input) else ""
    if not name:
        return (MOST_TURNS + 1, 1)[place]
    array = state.known.get(name)
    return None if array is None or array.size != 1 else int(array.item())


def _ends(loop: NodeProto, values: list[str], scans: list[list[str]], state: State) -> list[NodeProto]:
    """The nodes that make a loop's outputs: last values, and rows of what each turn gave."""
    last = zip(values, loop.output[: len(values)], strict=True)
    nodes = [helper.make_node("Identity", [value], [output], name=output) for value, output in last if output]
    for output, rows in zip(loop.output[len(values) :], zip(*scans, strict=True), strict=True):
        if output:
            raised = [state.name(f"{row}/row") for row in rows]
            nodes.extend(unsqueezed(row, name, 0, state) for row, name in zip(rows, raised, strict=True))
            nodes.append(helper.make_node("Concat", raised, [output], name=output, axis=0))
    return nodes


def unsqueezed(value: str, output: str, axis: int, state: State) -> NodeProto:
    """A node that gives a value a new axis."""
    if state.opset < AXES_GIVEN:
        return helper.make_node("Unsqueeze", [value], [output], name=output, axes=[axis])
    axes = state.constant(f"{output}/axes", np.array([axis], np.int64))
    return helper.make_node("Unsqueeze", [value, axes], [output], name=output)
