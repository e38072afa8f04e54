"""Inputs that are no data of clients but the same for all of them, such as a rate of samples or a first state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from pronghorn.errors import InputError
from pronghorn.onnx.lowering import MAX_ELEMENTS
from pronghorn.onnx.reading import inputs_of

Fixed = Mapping[str, Any] | None
"""Values by the names of inputs: numbers or arrays."""


def fix_inputs(proto: ModelProto, fixed: Fixed) -> None:
    """Makes constants of inputs.

    A number fills an input whose sizes are known. Where a model takes a batch there, it takes one image at a time with
    an array for one.

    Raises:
        InputError: there is no such input, or a value does not fit.
    """
    if fixed is not None and not isinstance(fixed, Mapping):
        raise InputError(f"fixed is {fixed!r:.100}: give values by the names of inputs, such as {{'sr': 16000}}")
    graph = proto.graph
    entries = {entry.name: entry for entry in inputs_of(graph)}
    for name, value in (fixed or {}).items():
        if name not in entries:
            raise InputError(f"there is no input {name!r} to fix: the model's are {', '.join(entries) or 'none'}")
        array = _array(entries[name], value)
        if array.dtype.kind == "O":
            texts: list[Any] = [str(each).encode() for each in array.flat]
            made = helper.make_tensor(name, TensorProto.STRING, array.shape, texts)
        else:
            made = numpy_helper.from_array(array, name)
        graph.initializer.append(made)
        graph.input.remove(entries[name])


def _array(entry: ValueInfoProto, value: Any) -> npt.NDArray[Any]:
    """The value in the input's type and shape."""
    tensor, name = entry.type.tensor_type, entry.name
    try:
        given = np.asarray(value)
        kind = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if given.dtype.kind not in ("USO" if tensor.elem_type == TensorProto.STRING else "biuf"):
            raise InputError(f"input {name!r} cannot be fixed: it takes no values of type {given.dtype}")
        array = given.astype(kind)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise InputError(f"input {name!r} cannot be fixed: {error}") from None
    if given.dtype.kind in "biuf" and kind.kind in "biu" and not np.array_equal(given, array):
        raise InputError(f"input {name!r} is of type {kind}, and takes no {given.ravel()[:3].tolist()}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"the value of input {name!r} is not finite")
    if not tensor.HasField("shape"):
        return array
    sizes = [dim.dim_value for dim in tensor.shape.dim]
    if array.ndim == 0 and min(sizes, default=1) > 0:
        if math.prod(sizes) > MAX_ELEMENTS:
            raise InputError(f"input {name!r} has {math.prod(sizes)} elements: at most {MAX_ELEMENTS} are supported")
        return np.full(sizes, array)
    if array.ndim != len(sizes) or any(size not in (0, given) for size, given in zip(sizes, array.shape, strict=True)):
        shown = ", ".join(str(dim.dim_value) if dim.dim_value else dim.dim_param or "?" for dim in tensor.shape.dim)
        raise InputError(f"a value of shape {list(array.shape)} does not fit input {name!r}, of shape ({shown})")
    return array
