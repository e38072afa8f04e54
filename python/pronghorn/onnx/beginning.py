"""Networks that begin at a value within a model, and the front: what clients compute before it.

A front runs in the clear on a client's own data. So it may hold anything that a runtime computes, and takes no
precision from the network: spectrograms and their logarithms, powers of features, look-ups. What it holds is no secret.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, ValueInfoProto, helper, numpy_helper

from pronghorn import _runtime
from pronghorn.errors import InputError, UnsupportedModelError
from pronghorn.onnx.input_shape import ShapeOption, add_features, apply_shapes, refuse_large, refuse_sizes
from pronghorn.onnx.pruning import needed_nodes, refuse_unmade, remove_weights, replace_all
from pronghorn.onnx.reading import first_line, free_in, graphs_of, inputs_of, names_read

Begin = str | Sequence[str] | None
"""The value at which a network begins, or several."""

BATCHES = (1, 2)
"""Images that a front is tried on together."""


def begin_at(proto: ModelProto, opset: int, begin: Begin, shape: ShapeOption) -> ModelProto | None:
    """Makes inputs of values within a model.

    Args:
        proto: the model, which is changed.
        opset: its version of the operator set.
        begin: the values.
        shape: what the user says of the shapes of its inputs.

    Returns: the front, which makes these values of the model's inputs; None where there are none.

    Raises:
        InputError: a value is named twice, or shapes do not fit.
        UnsupportedModelError: no node makes a value, the front cannot be run, or the first dimension of a value is not
            the batch.
    """
    if begin is not None and not isinstance(begin, str | list | tuple):
        raise InputError(f"begin is {begin!r:.100}: give the name of a value, or a list of names")
    names = [begin] if isinstance(begin, str) else list(begin or ())
    if not names:
        return None
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"begin is {begin!r:.100}: names are texts")
    if len(set(names)) < len(names):
        raise InputError(f"begin is {names}: name each value once")
    front = _front(proto, names)
    add_features(front, opset)
    apply_shapes(front, _of(front, shape))
    refuse_sizes(front)
    refuse_large(front)
    entries = [_entry(name, *values) for name, values in zip(names, _values(front), strict=True)]
    graph = proto.graph
    for node in graph.node:
        node.output[:] = [free_in(graph, f"{name}/front") if name in names else name for name in node.output]
    _take_sizes(graph, front, names[0])
    graph.input.extend(entries)
    del front.graph.output[:]
    front.graph.output.extend(entries)
    return front


def _take_sizes(graph: GraphProto, front: ModelProto, begun: str) -> None:
    """Takes the sizes of the front's inputs, which a network may read, from the value at which it begins: so that it
    need not have these inputs for them."""
    ranks = {entry.name: len(entry.type.tensor_type.shape.dim) for entry in graph.input}
    known = {entry.name: [dim.dim_value for dim in entry.type.tensor_type.shape.dim[1:]] for entry in front.graph.input}
    # An input of a number a row has a second dimension in the front alone.
    sizes = {name: rest for name, rest in known.items() if ranks.get(name) == 1 + len(rest)}
    nodes = list[NodeProto]()
    for node in graph.node:
        if node.op_type != "Shape" or node.input[0] not in sizes:
            nodes.append(node)
            continue
        made, title = node.output[0], free_in(graph, f"{node.output[0]}/front")
        of_begun, first, whole = (f"{title}/{part}" for part in ("all", "batch", "sizes"))
        rest = np.array(sizes[node.input[0]], np.int64)
        given = {f"{title}/0": np.array([0]), f"{title}/rest": rest}
        attributes = {each.name: each.i for each in node.attribute}
        count = 1 + len(rest)
        start, end, _ = slice(attributes.get("start", 0), attributes.get("end")).indices(count)
        given |= {f"{title}/places": np.arange(start, max(start, end), dtype=np.int64)}
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in given.items())
        nodes += [
            helper.make_node("Shape", [begun], [of_begun], name=of_begun),
            helper.make_node("Gather", [of_begun, f"{title}/0"], [first], name=first, axis=0),
            helper.make_node("Concat", [first, f"{title}/rest"], [whole], name=whole, axis=0),
            helper.make_node("Gather", [whole, f"{title}/places"], [made], name=made, axis=0),
        ]
    replace_all(graph.node, nodes)


def refuse_unread(proto: ModelProto, front: ModelProto | None) -> None:
    """Refuses values at which a network begins and that its output does not need.

    Raises:
        UnsupportedModelError: there is one.
    """
    read = {entry.name for entry in proto.graph.input}
    for entry in front.graph.output if front is not None else ():
        if entry.name not in read:
            raise UnsupportedModelError(
                f"the output does not depend on {entry.name!r}", "leave it out of --begin (begin=)"
            )


def _front(proto: ModelProto, names: Sequence[str]) -> ModelProto:
    """The part of a model that makes values, and nothing else of it: clients get it."""
    for name in names:
        refuse_unmade(proto.graph, name)
    nodes = needed_nodes(proto.graph.node, names)
    needed = set(names).union(*map(names_read, nodes))
    front = ModelProto(ir_version=proto.ir_version)
    front.opset_import.extend(proto.opset_import)
    graph = front.graph
    graph.name = "front"
    graph.node.extend(_bare(node, needed) for node in nodes)
    graph.initializer.extend(_plain(tensor) for tensor in proto.graph.initializer if tensor.name in needed)
    graph.input.extend(entry for entry in inputs_of(proto.graph) if entry.name in needed)
    for entry in graph.input:
        entry.doc_string = ""
        del entry.metadata_props[:]
    graph.output.extend(ValueInfoProto(name=name) for name in names)
    if not graph.input:
        raise UnsupportedModelError(f"the value {names[0]!r} does not depend on the input", "begin at another")
    return front


def _bare(node: NodeProto, needed: Container[str]) -> NodeProto:
    """A node without what exporters say of it."""
    if graphs_of(node) and not all(name in needed for name in node.output if name):
        raise UnsupportedModelError(
            f"node {node.name or node.output[0]!r} ({node.op_type}) has graphs that make more than the front needs",
            "begin at a value before it, or behind all that it makes",
        )
    bare = NodeProto(op_type=node.op_type, domain=node.domain, name=node.name, input=node.input, output=node.output)
    for attribute in node.attribute:
        kept = bare.attribute.add()
        kept.CopyFrom(attribute)
        kept.doc_string = ""
        for tensor in (*((kept.t,) if kept.HasField("t") else ()), *kept.tensors):
            _strip(tensor)
        for graph in (*((kept.g,) if kept.HasField("g") else ()), *kept.graphs):
            _trim(graph)
    return bare


def _trim(graph: GraphProto) -> None:
    """Takes from a graph within a node what its outputs do not need, and what exporters say of it."""
    names = [entry.name for entry in graph.output]
    nodes = needed_nodes(graph.node, names)
    needed = set(names).union(*map(names_read, nodes))
    bare = [_bare(node, {*needed, *node.output}) for node in nodes]
    replace_all(graph.node, bare)
    remove_weights(graph, needed)
    for tensor in graph.initializer:
        _strip(tensor)
    replace_all(graph.value_info, [])
    replace_all(graph.quantization_annotation, [])
    replace_all(graph.metadata_props, [])
    graph.doc_string = ""


def _plain(tensor: TensorProto) -> TensorProto:
    """A copy of a tensor without what exporters say of it."""
    copied = copy.deepcopy(tensor)
    _strip(copied)
    return copied


def _strip(tensor: TensorProto) -> None:
    tensor.doc_string = ""
    del tensor.metadata_props[:]


def _of(proto: ModelProto, shape: ShapeOption) -> ShapeOption:
    """The shapes of a model's inputs, of all that a user says."""
    if not isinstance(shape, Mapping):
        return shape
    names = {entry.name for entry in proto.graph.input}
    return {name: sizes for name, sizes in shape.items() if name in names}


def without_front(proto: ModelProto, front: ModelProto | None, shape: ShapeOption) -> ShapeOption:
    """The shapes of the network's inputs, of all that a user says of a model's."""
    if front is None:
        return shape
    return _of(proto, shape) if isinstance(shape, Mapping) else None


def _values(front: ModelProto) -> list[list[npt.NDArray[Any]]]:
    """The front's values for each number of images; for one alone where it takes no more."""
    run, found = _runtime.evaluator(front), list[list[npt.NDArray[Any]]]()
    for count in BATCHES:
        try:
            found.append(run({entry.name: _made_up(entry, count) for entry in front.graph.input}))
        except Exception as error:
            if count == 1:
                problem = f"what is before the network's beginning cannot be run: {first_line(error)}"
                raise UnsupportedModelError(problem, "begin at another value (--begin NAME, begin=NAME)") from error
    return [list(values) for values in zip(*found, strict=True)]


def _made_up(entry: ValueInfoProto, count: int) -> npt.NDArray[Any]:
    """Some numbers between 0 and 1, or zeros of a type of whole numbers."""
    tensor = entry.type.tensor_type
    sizes = [dim.dim_value for dim in tensor.shape.dim]
    made = np.random.default_rng(0).random((count, *sizes[1:]))
    return made.astype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))


def _entry(name: str, one: npt.NDArray[Any], *several: npt.NDArray[Any]) -> ValueInfoProto:
    """The input that a value becomes."""
    fits = one.shape[:1] == (1,) and all(each.shape == (len(each), *one.shape[1:]) for each in several)
    fits = fits and all(len(each) == count for each, count in zip(several, BATCHES[1:], strict=False))
    if not fits or math.prod(one.shape) == 0 or one.dtype.kind not in "fiu":
        shapes = ", ".join(str(list(each.shape)) for each in (one, *several))
        problem = f"the value {name!r} has shape {shapes} and type {one.dtype}: the first dimension is not the batch"
        if one.dtype.kind not in "fiu":
            problem = f"the value {name!r} has type {one.dtype}: these are no numbers"
        raise UnsupportedModelError(problem, "begin at another value (--begin NAME, begin=NAME)")
    entry = helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), [*one.shape])
    if several:
        entry.type.tensor_type.shape.dim[0].CopyFrom(TensorShapeProto.Dimension(dim_param="N"))
    return entry
