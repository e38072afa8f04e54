"""If, in whose place stand the nodes of its branches.

Where its condition follows from shapes, it is one of them. PyTorch's exporter of scripts writes `squeeze`, `tile` and
`local_response_norm` so. The condition must be the same for one image and for several.

Where its condition depends on the data, both are computed, and a Where chooses: which of them runs tells something.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper, numpy_helper

from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx.folding import small_results
from pronghorn.onnx.lowering import Array
from pronghorn.onnx.merging import of_shape
from pronghorn.onnx.pruning import replace_all
from pronghorn.onnx.reading import free_in, initializers, names_read
from pronghorn.onnx.registry import OF_SHAPES, name_of
from pronghorn.onnx.unrolling import SMALL, State

BATCHES = (1, 2, 3, 64, 1021)
"""Numbers of images for which a condition must be the same, where the model leaves them free."""

MOST_BATCHES = 2
"""Of these, those for which the shapes of branches are compared."""

MOST_ROUNDS = 64
"""Most rounds: what one chooses tells shapes of which others follow."""


def choose_branches(proto: ModelProto, opset: int) -> None:
    """Replaces each If whose condition is known from the inputs' shapes, or depends on the data. Others are left, for
    lowering to refuse."""
    graph = proto.graph
    for _ in range(MOST_ROUNDS):
        if not any(name_of(node) == "If" for node in graph.node):
            return
        batches = [1] if all(_batch(entry) >= 1 for entry in graph.input) else BATCHES
        known = [_known(proto, batch, opset) for batch in batches]
        chosen = {at: [branch] for at, node in enumerate(graph.node) if (branch := _chosen(node, known)) is not None}
        chosen = chosen or _of_data(graph)
        if not chosen:
            return
        state, nodes, ends = State.of(graph, opset), list[NodeProto](), list[NodeProto]()
        for at, node in enumerate(graph.node):
            inlined, last = _inlined(node, chosen[at], state) if at in chosen else ([node], [])
            nodes.extend([*inlined, *last])
            ends.extend(last)
        replace_all(graph.node, nodes)
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in state.made.items())
        if any(end.op_type == "Where" for end in ends):
            _fit_choices(proto, batches, ends, opset)


def _fit_choices(proto: ModelProto, batches: Sequence[int], ends: Sequence[NodeProto], opset: int) -> None:
    """Refuses branches whose results have other shapes, or shapes that are not known: a Where would repeat values."""
    ranks = dict[str, int]()
    for batch in batches[:MOST_BATCHES]:
        known = _known(proto, batch, opset)
        shapes = _shapes(proto, batch, known)
        for end in (end for end in ends if end.op_type == "Where"):
            first, second = (shapes.get(name, known[name].shape if name in known else None) for name in end.input[1:])
            if first is None or first != second:
                raise UnsupportedModelError(
                    f"the branches for {end.output[0]!r} (If) have the shapes {_shown(first)} and {_shown(second)}",
                    "give both branches results of one shape, or export without data-dependent control flow",
                )
            ranks[end.output[0]] = len(first)
    _raise_conditions(proto.graph, ranks)


def _raise_conditions(graph: GraphProto, ranks: Mapping[str, int]) -> None:
    """Gives conditions, which have one element, as many dimensions as the results have that they choose."""
    nodes = list[NodeProto]()
    for node in graph.node:
        if node.output[0] in ranks:
            raised = free_in(graph, f"{node.output[0]}/condition")
            sizes = np.ones(ranks[node.output[0]], np.int64)
            graph.initializer.append(numpy_helper.from_array(sizes, f"{raised}/shape"))
            nodes.append(helper.make_node("Reshape", [node.input[0], f"{raised}/shape"], [raised], name=raised))
            node.input[0] = raised
        nodes.append(node)
    replace_all(graph.node, nodes)


def _shown(shape: tuple[int, ...] | None) -> str:
    return "unknown" if shape is None else str(list(shape))


def _batch(entry: onnx.ValueInfoProto) -> int:
    """The first dimension of an input; 0 where it is free."""
    dims = entry.type.tensor_type.shape.dim
    return dims[0].dim_value if len(dims) > 0 else 1


def _known(proto: ModelProto, batch: int, opset: int) -> dict[str, Array]:
    """The small constants of a model, and those that follow from shapes for so many images."""
    known = initializers(t for t in proto.graph.initializer if math.prod(t.dims) <= SMALL)
    for _ in range(MOST_ROUNDS):
        before, shapes = len(known), _shapes(proto, batch, known)
        for node in proto.graph.node:
            shape = shapes.get(node.input[0]) if name_of(node) in OF_SHAPES else None
            if shape is not None:
                known[node.output[0]] = of_shape(node, shape)
            elif name_of(node) not in OF_SHAPES and not known.keys() >= set(node.output):
                known.update(small_results(node, known, opset, SMALL))
        if len(known) == before:
            break
    return known


def _shapes(proto: ModelProto, batch: int, known: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """The shapes of values for so many images, where the onnx package infers them; large constants are left out."""
    light = ModelProto(ir_version=proto.ir_version)
    light.opset_import.extend(proto.opset_import)
    light.functions.extend(proto.functions)
    graph = light.graph
    graph.name = "shapes"
    # The inference of other domains' operators may end the process.
    graph.node.extend(node for node in proto.graph.node if _is_plain(node) and not known.keys() >= set(node.output))
    graph.input.extend(proto.graph.input)
    for entry in graph.input:
        dims = entry.type.tensor_type.shape.dim
        if len(dims) > 0 and dims[0].dim_value < 1:
            dims[0].dim_value = batch
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in known.items())
    for tensor in proto.graph.initializer:
        if tensor.name not in known:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    graph.output.extend(proto.graph.output)
    for entry in graph.output:
        entry.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=True)
    except Exception:
        return {}
    found = dict[str, tuple[int, ...]]()
    for entry in (*inferred.graph.input, *inferred.graph.value_info):
        tensor_type = entry.type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor_type.shape.dim]
        if tensor_type.HasField("shape") and -1 not in dims:
            found[entry.name] = tuple(dims)
    return found


def _is_plain(node: NodeProto) -> bool:
    """Whether a node, and those within it, are of the standard domain."""
    graphs = [each.g for each in node.attribute if each.type == AttributeProto.GRAPH]
    return node.domain in ("", "ai.onnx") and all(_is_plain(each) for graph in graphs for each in graph.node)


def _chosen(node: NodeProto, known: Sequence[Mapping[str, Array]]) -> GraphProto | None:
    """The branch that is taken, whatever the number of images; None where that is not known."""
    if name_of(node) != "If":
        return None
    conditions = [each[node.input[0]] for each in known if node.input[0] in each]
    truths = {bool(each.reshape(())) for each in conditions if each.size == 1 and each.dtype == np.bool_}
    if len(truths) == 2:
        name = node.name or node.output[0]
        raise UnsupportedModelError(
            f"node {name!r} (If) takes its branch by the number of images",
            "keep the first dimension where dimensions of size 1 go (squeeze(1)), or export with a batch of 1",
        )
    if len(conditions) < len(known) or len(truths) != 1:
        return None
    return _branch(node, "then_branch" if truths.pop() else "else_branch")


def _of_data(graph: GraphProto) -> dict[int, list[GraphProto]]:
    """Both branches, that of the true condition first, of each If whose condition depends on the data, by its place."""
    found, data = dict[int, list[GraphProto]](), {entry.name for entry in graph.input}
    for at, node in enumerate(graph.node):
        if name_of(node) == "If" and node.input[0] in data:
            branches = [_branch(node, name) for name in ("then_branch", "else_branch")]
            if None not in branches:
                found[at] = [branch for branch in branches if branch is not None]
        if name_of(node) not in OF_SHAPES and not data.isdisjoint(names_read(node)):
            data.update(node.output)
    return found


def _branch(node: NodeProto, name: str) -> GraphProto | None:
    """A branch of an If; None where it makes no such outputs."""
    graphs = [each.g for each in node.attribute if each.name == name and each.type == AttributeProto.GRAPH]
    return graphs[0] if graphs and len(graphs[0].output) == len(node.output) else None


def _inlined(node: NodeProto, branches: Sequence[GraphProto], state: State) -> tuple[list[NodeProto], list[NodeProto]]:
    """The nodes of branches, and those that make the If's outputs of theirs."""
    title, nodes, ends = node.name or node.output[0], list[NodeProto](), list[list[str]]()
    for branch in branches:
        names = {name: state.constant(f"{title}/{name}", a) for name, a in initializers(branch.initializer).items()}
        nodes += state.copied(branch, title, names)
        ends.append([names.get(entry.name, entry.name) for entry in branch.output])
    operator, first = ("Identity", []) if len(branches) == 1 else ("Where", [node.input[0]])
    made = zip(node.output, *ends, strict=True)
    return nodes, [helper.make_node(operator, [*first, *read], [name], name=name) for name, *read in made if name]
