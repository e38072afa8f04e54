"""Networks that begin at a value within a model, and the front: what clients compute before it.

A front runs in the clear on a client's own data. So it may hold anything that a runtime computes, and takes no
precision from the network: spectrograms and their logarithms, powers of features, look-ups. What it holds is no secret.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorShapeProto, ValueInfoProto, helper
from onnx.reference import ReferenceEvaluator

from pronghorn import _runtime
from pronghorn.errors import InputError, UnsupportedModelError
from pronghorn.onnx.input_shape import ShapeOption, add_features, apply_shapes, refuse_large, refuse_sizes
from pronghorn.onnx.pruning import needed_nodes, refuse_unmade, remove_weights, replace_all
from pronghorn.onnx.reading import first_line, free_in, names_read

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
    names = [begin] if isinstance(begin, str) else list(begin or ())
    if not names:
        return None
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
    graph.input.extend(entries)
    del front.graph.output[:]
    front.graph.output.extend(entries)
    return front


def _front(proto: ModelProto, names: Sequence[str]) -> ModelProto:
    """The part of a model that makes values."""
    for name in names:
        refuse_unmade(proto.graph, name)
    nodes = needed_nodes(proto.graph.node, names)
    needed = set[str]().union(*map(names_read, nodes))
    front = copy.deepcopy(proto)
    graph = front.graph
    remove_weights(graph, needed)
    stored = {tensor.name for tensor in graph.initializer}
    replace_all(graph.node, nodes)
    replace_all(graph.input, [entry for entry in graph.input if entry.name in needed and entry.name not in stored])
    replace_all(graph.output, [ValueInfoProto(name=name) for name in names])
    replace_all(graph.value_info, [])
    if not graph.input:
        raise UnsupportedModelError(f"the value {names[0]!r} does not depend on the input", "begin at another")
    return front


def _of(front: ModelProto, shape: ShapeOption) -> ShapeOption:
    """The shapes of the front's inputs, of all that a user says."""
    if not isinstance(shape, Mapping):
        return shape
    names = {entry.name for entry in front.graph.input}
    return {name: sizes for name, sizes in shape.items() if name in names}


def without_front(proto: ModelProto, front: ModelProto | None, shape: ShapeOption) -> ShapeOption:
    """The shapes of the network's inputs, of all that a user says of a model's."""
    if front is None:
        return shape
    names = {entry.name for entry in proto.graph.input}
    return {name: sizes for name, sizes in shape.items() if name in names} if isinstance(shape, Mapping) else None


def _values(front: ModelProto) -> list[list[npt.NDArray[Any]]]:
    """The front's values for each number of images; for one alone where it takes no more."""
    run, found = runner(front), list[list[npt.NDArray[Any]]]()
    for count in BATCHES:
        try:
            found.append(run({entry.name: _made_up(entry, count) for entry in front.graph.input}))
        except Exception as error:
            if count == 1:
                problem = f"what is before the network's beginning cannot be run: {first_line(error)}"
                raise UnsupportedModelError(problem, "begin at another value (--begin NAME, begin=NAME)") from error
    return [list(values) for values in zip(*found, strict=True)]


def runner(front: ModelProto) -> Any:
    """What computes a front's outputs of its inputs by name: onnxruntime, or the onnx package."""
    try:
        run = _runtime.session(front.SerializeToString()).run
    except Exception:
        run = np.errstate(all="ignore")(ReferenceEvaluator(front).run)
    return lambda inputs: [np.asarray(each) for each in run(None, inputs)]


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
