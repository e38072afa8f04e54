"""Sequences of tensors, such as PyTorch's exporter writes for `hstack`, as the tensors themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from pronghorn.onnx.folding import small_results
from pronghorn.onnx.lowering import Array
from pronghorn.onnx.reading import free_in, initializers
from pronghorn.onnx.registry import name_of
from pronghorn.onnx.unrolling import SMALL

KINDS = ("SequenceConstruct", "SplitToSequence", "SequenceAt", "SequenceLength", "ConcatFromSequence")
"""Operators on sequences."""

MOST_READ = 1 << 16
"""Most tensors that new nodes read."""

AXES_GIVEN = 13
"""The opset since which axes are an input."""


def without_sequences(proto: ModelProto, opset: int) -> None:
    """Replaces sequences whose tensors are known. Others are left, for lowering to refuse."""
    graph = proto.graph
    if not any(name_of(node) in KINDS for node in graph.node):
        return
    known = initializers(t for t in graph.initializer if math.prod(t.dims) <= SMALL)
    tensors, nodes = dict[str, list[str]](), list[NodeProto]()
    total = 0
    for node in graph.node:
        is_left = name_of(node) not in KINDS or total > MOST_READ
        made = None if is_left else _replaced(node, tensors, known, proto, opset)
        total += sum(len(each.input) for each in made or ())
        nodes += [node] if made is None else made
        for each in [node] if made is None else made:
            known.update(small_results(each, known, opset, SMALL))
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _replaced(
    node: NodeProto, tensors: dict[str, list[str]], known: dict[str, Array], proto: ModelProto, opset: int
) -> list[NodeProto] | None:
    """The nodes in the place of one; None where they are not known. `tensors`: those of each sequence, by name."""
    given: Mapping[str, int] = {each.name: each.i for each in node.attribute}
    title, result = node.name or node.output[0], node.output[0]
    if node.op_type == "SequenceConstruct":
        tensors[result] = list(node.input)
        return []
    if node.op_type == "SplitToSequence":
        sizes = known.get(node.input[1]) if len(node.input) > 1 else None
        if sizes is None or sizes.ndim != 1 or sizes.dtype.kind not in "iu" or opset < AXES_GIVEN:
            return None
        tensors[result] = [free_in(proto.graph, f"{result}/{place}") for place in range(sizes.size)]
        parts = helper.make_node("Split", node.input, tensors[result], name=title, axis=given.get("axis", 0))
        return [parts]
    found = tensors.get(node.input[0])
    if found is None:
        return None
    if node.op_type == "SequenceAt":
        place = known.get(node.input[1])
        is_whole = place is not None and place.size == 1 and place.dtype.kind in "iu"
        if place is None or not is_whole or not -len(found) <= place.item() < len(found):
            return None
        return [helper.make_node("Identity", [found[int(place.item())]], [result], name=title)]
    if node.op_type == "SequenceLength":
        count = numpy_helper.from_array(np.array(len(found), np.int64))
        return [helper.make_node("Constant", [], [result], name=title, value=count)]
    axis = given.get("axis", 0)
    if not given.get("new_axis", 0):
        return [helper.make_node("Concat", found, [result], name=title, axis=axis)]
    raised = [free_in(proto.graph, f"{result}/{place}") for place in range(len(found))]
    axes = free_in(proto.graph, f"{result}/axes")
    if opset < AXES_GIVEN:
        return None
    proto.graph.initializer.append(numpy_helper.from_array(np.array([axis]), axes))
    nodes = [
        helper.make_node("Unsqueeze", [name, axes], [new], name=new) for name, new in zip(found, raised, strict=True)
    ]
    return [*nodes, helper.make_node("Concat", raised, [result], name=title, axis=axis)]
