"""Models whose batch is not the first dimension, as recurrent networks and transformers of PyTorch have it by default.

Their inputs and outputs get the batch first, and transpositions bring it to where the model has it. The ONNX model is
changed, so that the import and the float runtime see the same.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence

from onnx import GraphProto, ModelProto, NodeProto, TensorShapeProto, ValueInfoProto, helper

from pronghorn.onnx.input_shape import ShapeOption, rename
from pronghorn.onnx.reading import free_in, inputs_of

Dimensions = Sequence[TensorShapeProto.Dimension]

OF_BATCH = {"batch", "batchsize"}
"""Words in the names that exporters and users give to a batch whose size is open."""


MOST_INPUTS = 64
"""Of models with more the batch stays where it is: each that moves has its readers looked for in the whole model."""


def put_batch_first(
    proto: ModelProto, shape: ShapeOption = None, of_samples: ShapeOption = None, *, of_one: bool = False
) -> bool:
    """Gives inputs and outputs whose batch is another dimension a batch in the first.

    The batch is the dimension that is called so, or the only one of open size behind one of fixed size above 1, or
    the one that has its name in another input. A shape that the user says decides where it fits one reading alone.

    Args:
        proto: the model, which is changed.
        shape: what the user says of the inputs' sizes, the batch first.
        of_samples: the same of samples.
        of_one: whether the second dimension is the batch where all sizes are fixed, it is 1 and the first is not, and
            an open one is it whatever the user says. So the second is in any case where the shape that the user or
            samples say fits no other.

    Returns: whether the batch of an input was another dimension.
    """
    graph = proto.graph
    inputs = {entry.name: _dimensions(entry) for entry in inputs_of(graph)}
    if len(inputs) > MOST_INPUTS:
        return False
    given = {name: (_of(name, shape), _of(name, of_samples)) for name in inputs}
    places = {name: _place(dims, given[name], of_one) for name, dims in inputs.items()}
    symbols = {dims[places[name]].dim_param for name, dims in inputs.items() if dims} - {""}
    is_moved = any(places.values())
    for name, dims in inputs.items():
        places[name] = places[name] or _named(dims, symbols, is_moved)
    # Where other sizes are open, too, only a name tells which is the batch.
    is_alone = all(_open(dims) in ([], [places[name]]) for name, dims in inputs.items())
    for entry in graph.input:
        if places.get(entry.name):
            _move_input(graph, entry, places[entry.name])
    behind = next((place for place in places.values() if place), 0)
    for entry in graph.output:
        dims = _dimensions(entry)
        # Where no input's batch is behind, an open dimension of a result may be anything but for its name.
        place = _place(dims, (None, None), True) if is_alone and is_moved else 0
        place = place or _named(dims, symbols, is_alone=False)
        if behind and not place and not symbols.intersection(dim.dim_param for dim in dims[:1]):
            # Exporters give the sizes of results names of their own.
            place = behind if behind in _open(dims) and 0 in _open(dims) else 0
        _move_output(graph, entry.name, place)
    return is_moved


def fixes_several(entry: ValueInfoProto) -> bool:
    """Whether the first dimension of an input is fixed at more than 1."""
    return any(dim.dim_value > 1 for dim in _dimensions(entry)[:1])


def _place(dims: Dimensions, given: tuple[Sequence[int] | None, Sequence[int] | None], of_one: bool) -> int:
    """The dimension that is the batch, as far as these dimensions tell, and what the user and samples say."""
    found, (said, of_samples) = _open(dims), given
    called = [axis for axis in found if not OF_BATCH.isdisjoint(re.split("[^a-z]+", dims[axis].dim_param.lower()))]
    if len(called) == 1:
        fits = _fits(_moved(dims, called[0]), said) or not _fits(dims, said)
        return called[0] if fits else 0
    if not dims or 0 in found or dims[0].dim_value < 2:
        return 0
    if len(found) == 1:
        # Where the batch is open no other size is, so that nobody need say it.
        is_first = said is not None and _fits(dims, said) and not of_one
        return found[0] if not is_first and _fits(_moved(dims, found[0]), said or of_samples) else 0
    if found or len(dims) < 2 or dims[1].dim_value != 1:
        return 0
    known = said or of_samples
    is_said = known is not None and _fits(_moved(dims, 1), known) and not _fits(dims, known)
    return int(of_one or is_said)


def _named(dims: Dimensions, symbols: set[str], is_alone: bool) -> int:
    """The dimension that has the name of a batch; where the batch was moved, the only one of open size."""
    found = _open(dims)
    called = [axis for axis in found if dims[axis].dim_param in symbols]
    if len(called) == 1:
        return called[0]
    return found[0] if is_alone and len(found) == 1 else 0


def _fits(dims: Dimensions, sizes: Sequence[int] | None) -> bool:
    """Whether sizes, the batch first, are those of dimensions."""
    if sizes is None:
        return True
    pairs = zip(dims[1:], sizes[1:], strict=False)
    return len(sizes) == len(dims) and all(dim.dim_value in (0, size) for dim, size in pairs)


def _of(name: str, shape: ShapeOption) -> Sequence[int] | None:
    """The sizes of an input; None where none are given, or something else, which is refused later."""
    sizes = shape.get(name) if isinstance(shape, Mapping) else shape
    try:
        return None if sizes is None else [operator.index(size) for size in sizes]
    except TypeError:
        return None


def _dimensions(entry: ValueInfoProto) -> Dimensions:
    """The dimensions of a tensor; none where they are not known or it is no tensor."""
    return entry.type.tensor_type.shape.dim if entry.type.WhichOneof("value") == "tensor_type" else []


def _open(dims: Dimensions) -> list[int]:
    return [axis for axis, dim in enumerate(dims) if dim.dim_value < 1]


def _moved(dims: Dimensions, place: int) -> list[TensorShapeProto.Dimension]:
    """The dimensions with the batch first."""
    return [dims[place], *dims[:place], *dims[place + 1 :]]


def _move_input(graph: GraphProto, entry: ValueInfoProto, place: int) -> None:
    """Gives an input the batch first, and nodes what it was."""
    behind = free_in(graph, f"{entry.name}/batch behind")
    lookups = _lookups(graph, entry.name)
    rename(graph, entry.name, behind)
    shape = entry.type.tensor_type.shape
    moved = TensorShapeProto(dim=_moved(shape.dim, place))
    shape.CopyFrom(moved)
    order = [*range(1, place + 1), 0, *range(place + 1, len(moved.dim))]
    for node, rank in lookups:
        # A place in a table is private where it is known to be one: the words are, and what was found of them moves.
        found, made = node.output[0], free_in(graph, f"{node.output[0]}/batch first")
        node.input[1], node.output[0] = entry.name, made
        ends = range(len(order), len(order) + rank - 1)
        graph.node.insert(list(graph.node).index(node) + 1, _transpose(made, found, [*order, *ends]))
    graph.node.insert(0, _transpose(entry.name, behind, order))


def _lookups(graph: GraphProto, name: str) -> list[tuple[NodeProto, int]]:
    """The nodes that look an input's values up in the first dimension of a stored table, and the ranks of these."""
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    found = [node for node in graph.node if node.op_type == "Gather" and node.input[1] == name != node.input[0]]
    axes = [next((each.i for each in node.attribute if each.name == "axis"), 0) for node in found]
    pairs = zip(found, axes, strict=True)
    return [(node, ranks[node.input[0]]) for node, axis in pairs if axis == 0 and node.input[0] in ranks]


def _move_output(graph: GraphProto, name: str, place: int) -> None:
    """Gives an output the batch first, where a node makes it and its batch is behind."""
    maker = next((node for node in graph.node if name in node.output), None)
    entry = next(entry for entry in graph.output if entry.name == name)
    if not place or maker is None:
        return
    behind = free_in(graph, f"{name}/batch behind")
    rename(graph, name, behind)
    maker.output[:] = [behind if output == name else output for output in maker.output]
    count = len(_dimensions(entry))
    graph.node.append(_transpose(behind, name, [place, *range(place), *range(place + 1, count)]))


def _transpose(source: str, target: str, order: Sequence[int]) -> NodeProto:
    return helper.make_node("Transpose", [source], [target], name=f"{target}/transposed", perm=order)
