"""Fronts: what clients compute of their data before the network, in the clear."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ValueInfoProto, helper

from pronghorn._arrays import Inputs, as_inputs
from pronghorn.errors import InputError, OutputError
from pronghorn.onnx.beginning import runner
from pronghorn.onnx.input_shape import refuse_large, refuse_sizes
from pronghorn.onnx.reading import Source, first_line, read

Shape = tuple[int, ...]
Floats = npt.NDArray[np.float32]


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
        refuse_sizes(self._proto)
        refuse_large(self._proto)
        self._run = runner(self._proto)

    @property
    def inputs(self) -> dict[str, Shape]:
        """The shapes of its inputs, batch not counted."""
        return {entry.name: _shape(entry) for entry in self._proto.graph.input}

    @property
    def input_shape(self) -> Shape:
        """The shape of its input; of several, of the row of all."""
        shapes = list(self.inputs.values())
        return shapes[0] if len(shapes) == 1 else (sum(map(_size, shapes)),)

    @property
    def outputs(self) -> list[str]:
        """The names of the values that it makes: inputs of the network."""
        return [entry.name for entry in self._proto.graph.output]

    def __call__(self, inputs: Inputs) -> Floats | dict[str, Floats]:
        """The values of images, `(images, ...)`; of several, by their names.

        Each image runs by itself.

        Args:
            inputs: `(images, *input_shape)`, or such an array for the name of each input.

        Raises:
            InputError: they do not fit, or the front cannot be run on them.
        """
        rows = as_inputs(inputs, self.input_shape, parts=self.inputs)
        made = [self._alone(row) for row in rows]
        found = {name: np.stack(each) for name, each in zip(self.outputs, zip(*made, strict=True), strict=True)}
        return next(iter(found.values())) if len(found) == 1 else found

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

    def _alone(self, row: Floats) -> list[Floats]:
        """The values of one image."""
        flat, start, given = row.ravel(), 0, dict[str, npt.NDArray[Any]]()
        for entry in self._proto.graph.input:
            shape = _shape(entry)
            part = flat[start : start + _size(shape)].reshape(1, *shape)
            given[entry.name] = part.astype(helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type))
            start += _size(shape)
        try:
            return [np.asarray(each, np.float32)[0] for each in self._run(given)]
        except Exception as error:
            raise InputError(f"the front cannot be run on these inputs: {first_line(error)}") from error


def _shape(entry: ValueInfoProto) -> Shape:
    return tuple(dim.dim_value for dim in entry.type.tensor_type.shape.dim[1:])


def _size(shape: Shape) -> int:
    return int(np.prod(shape, dtype=np.int64))
