"""Fronts: what clients compute of their data before the network, in the clear."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ValueInfoProto, helper

from pronghorn import _runtime
from pronghorn._arrays import Inputs, as_array, refuse_names
from pronghorn.errors import InputError, OutputError
from pronghorn.onnx.input_shape import refuse_large, refuse_sizes
from pronghorn.onnx.pruning import replace_all
from pronghorn.onnx.reading import Source, first_line, inputs_of, read

Shape = tuple[int, ...]
Array = npt.NDArray[Any]


class Front:
    """The part of a model before its network. Clients run it on their own data and send what it makes.

    It is an ONNX model and no secret. It runs by onnxruntime where that is installed, and else by the onnx package.
    Whoever runs a front of another's trusts its maker as the maker of any ONNX file that a runtime reads.
    """

    def __init__(self, model: Source) -> None:
        """Reads a front.

        Args:
            model: a path, the bytes of a file, or a loaded model: such as `Model.front.save` wrote, or any ONNX model.

        Raises:
            ModelFileError: the file is missing, damaged, or not ONNX.
            UnsupportedModelError: sizes of its inputs are open, or inputs are no numbers.
        """
        self._proto = read(model)[0]
        graph = self._proto.graph
        replace_all(graph.input, inputs_of(graph))
        refuse_sizes(self._proto)
        refuse_large(self._proto)
        self._run = _runtime.evaluator(self._proto)

    @property
    def inputs(self) -> dict[str, Shape]:
        """The shapes of its inputs, batch not counted."""
        return {entry.name: _shape(entry) for entry in self._proto.graph.input}

    @property
    def outputs(self) -> list[str]:
        """The names of the values that it makes: inputs of the network."""
        return [entry.name for entry in self._proto.graph.output]

    def __call__(self, inputs: Inputs) -> Array | dict[str, Array]:
        """The values of images, `(images, ...)`, in the front's own types; of several, by their names.

        Each image runs by itself.

        Args:
            inputs: `(images, *shape)` of the input, or such an array for the name of each input.

        Raises:
            InputError: they do not fit, the front cannot be run on them, or makes no finite numbers of them.
        """
        given = self._given(inputs)
        counts = {len(part) for part in given.values()}
        if len(counts) != 1 or counts == {0}:
            raise InputError(f"a front takes as many images of each input, at least one: not {sorted(counts)}")
        made = [self._alone({name: part[at : at + 1] for name, part in given.items()}) for at in range(counts.pop())]
        found = dict[str, Array]()
        for name, each in zip(self.outputs, zip(*made, strict=True), strict=True):
            if len({part.shape for part in each}) != 1:
                raise InputError(f"the front makes values {name!r} of other sizes for other inputs")
            found[name] = np.stack(each)
        return next(iter(found.values())) if len(found) == 1 else found

    def _given(self, inputs: Inputs) -> dict[str, Array]:
        """The inputs by name, in the types of the file."""
        shapes = self.inputs
        parts = inputs if isinstance(inputs, Mapping) else dict.fromkeys(shapes, inputs) if len(shapes) == 1 else {}
        refuse_names("inputs of the front", list(parts), shapes)
        found = dict[str, Array]()
        for entry in self._proto.graph.input:
            kind = helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type)
            part = as_array(parts[entry.name], f"input {entry.name!r}")
            typed = part.astype(kind)
            if part.shape[1:] != shapes[entry.name]:
                wanted = ", ".join(map(str, ("images", *shapes[entry.name])))
                raise InputError(f"input {entry.name!r} has shape {list(part.shape)}; the front takes ({wanted})")
            if kind.kind in "iu" and not np.array_equal(typed, part):
                raise InputError(f"input {entry.name!r} is of type {kind}, which does not hold all of its values")
            found[entry.name] = typed
        return found

    def __bytes__(self) -> bytes:
        """The front as an ONNX model."""
        return bytes(self._proto.SerializeToString())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the front as an ONNX file, for clients.

        Raises:
            OutputError: it cannot be written.
        """
        try:
            Path(path).write_bytes(bytes(self))
        except OSError as error:
            raise OutputError(f"the front cannot be written: {error}") from error

    def _alone(self, given: Mapping[str, Array]) -> list[Array]:
        """The values of one image."""
        try:
            found = self._run(given)
        except Exception as error:
            raise InputError(f"the front cannot be run on these inputs: {first_line(error)}") from error
        for name, value in zip(self.outputs, found, strict=True):
            if value.dtype.kind not in "biuf" or value.shape[:1] != (1,):
                made = f"{name!r} of type {value.dtype} and shape {list(value.shape)}"
                raise InputError(f"the front makes {made}, and not numbers with the batch, one image, first")
            if not np.isfinite(value).all():
                raise InputError(f"the front makes infinite values or NaN of these inputs: {name!r}")
        return [value[0] for value in found]


def _shape(entry: ValueInfoProto) -> Shape:
    return tuple(dim.dim_value for dim in entry.type.tensor_type.shape.dim[1:])
