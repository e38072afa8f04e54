"""Sequences of tensors, such as PyTorch's exporter writes for `hstack`, as the tensors themselves."""

from __future__ import annotations

import copy

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from pronghorn.onnx.registry import AXES_GIVEN, name_of
from pronghorn.onnx.unrolling import State, unsqueezed

KINDS = ("SequenceConstruct", "SplitToSequence", "SequenceAt", "SequenceLength", "ConcatFromSequence")
"""Operators on sequences."""

MOST_READ = 1 << 16
"""Most tensors that new nodes read."""


def without_sequences(proto: ModelProto, opset: int) -> None:
    """Replaces sequences whose tensors are known. Others are left, for lowering to refuse."""
    graph = proto.graph
    if not any(name_of(node) in KINDS for node in graph.node):
        return
    state, tensors, nodes = State.of(graph, opset), dict[str, list[str]](), list[NodeProto]()
    total = 0
    for node in graph.node:
        is_left = name_of(node) not in KINDS or total > MOST_READ
        made = None if is_left else _replaced(node, tensors, state)
        total += sum(len(each.input) for each in made or ())
        made = [node] if made is None else made
        nodes += made
        for each in made:
            state.learn(each)
    copies = [copy.deepcopy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in state.made.items())


def _replaced(node: NodeProto, tensors: dict[str, list[str]], state: State) -> list[NodeProto] | None:
    """The nodes in the place of one; None where they are not known. `tensors`: those of each sequence, by name."""
    given = {each.name: each.i for each in node.attribute}
    title, result, axis = node.name or node.output[0], node.output[0], given.get("axis", 0)
    if node.op_type == "SequenceConstruct":
        tensors[result] = list(node.input)
        return []
    if node.op_type == "SplitToSequence":
        sizes = state.known.get(node.input[1]) if len(node.input) > 1 else None
        if sizes is None or sizes.ndim != 1 or sizes.dtype.kind not in "iu" or state.opset < AXES_GIVEN:
            return None
        tensors[result] = [state.name(f"{result}/{place}") for place in range(sizes.size)]
        return [helper.make_node("Split", node.input, tensors[result], name=title, axis=axis)]
    found = tensors.get(node.input[0])
    if found is None:
        return None
    if node.op_type == "SequenceAt":
        place = state.known.get(node.input[1])
        is_whole = place is not None and place.size == 1 and place.dtype.kind in "iu"
        if place is None or not is_whole or not -len(found) <= place.item() < len(found):
            return None
        return [helper.make_node("Identity", [found[int(place.item())]], [result], name=title)]
    if node.op_type == "SequenceLength":
        count = numpy_helper.from_array(np.array(len(found), np.int64))
        return [helper.make_node("Constant", [], [result], name=title, value=count)]
    if not given.get("new_axis", 0):
        return [helper.make_node("Concat", found, [result], name=title, axis=axis)]
    raised = [state.name(f"{result}/{place}") for place in range(len(found))]
    nodes = [unsqueezed(name, new, axis, state) for name, new in zip(found, raised, strict=True)]
    return [*nodes, helper.make_node("Concat", raised, [result], name=title, axis=axis)]
