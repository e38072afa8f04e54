"""Small ONNX models, and comparing what is imported with onnxruntime."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from pronghorn import _native
from pronghorn.onnx import ImportedModel, import_onnx

RANDOM = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    """Random float32 numbers around zero."""
    return RANDOM.standard_normal(shape).astype(np.float32)


class Frame:
    """A data frame as far as it is asked."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._values = columns
        self.columns = list(columns)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.array(list(self._values.values()), np.float64).T


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node named after its first output; names are split at spaces, `-` is an absent input."""
    names = ["" if name == "-" else name for name in inputs.split()]
    outs = outputs.split()
    return helper.make_node(kind, names, outs, name=f"node_{outs[0]}", **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[Any],
    constants: dict[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    outputs: Sequence[str] = ("y",),
    dtype: int = TensorProto.FLOAT,
    output_dtype: int = TensorProto.FLOAT,
    inputs: Sequence[str] = ("x",),
) -> onnx.ModelProto:
    """A model of input x and output y."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, dtype, list(shape)) for name in inputs],
        [helper.make_tensor_value_info(name, output_dtype, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    # Before IR version 4, weights had to be inputs too.
    ir_version = max(4, helper.find_min_ir_version_for([helper.make_opsetid("", opset)]))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def mixed(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, tuple[Any, ...]]],
    constants: dict[str, Any] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model with inputs of several types, by name."""
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        stored,
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 2)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run_onnx(proto: onnx.ModelProto, inputs: np.ndarray) -> np.ndarray:
    """The first output by onnxruntime, one image at a time."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    name = session.get_inputs()[0].name
    return np.stack([np.asarray(session.run(None, {name: one[None]})[0]) for one in inputs])


def run_native(imported: ImportedModel, inputs: np.ndarray) -> np.ndarray:
    """The imported graph by Pronghorn's float evaluator."""
    native = _native.Model(imported.graph_json, imported.tensors)
    return native.run_float(np.ascontiguousarray(inputs, np.float32))


def check(
    proto: onnx.ModelProto, *, inputs: np.ndarray | None = None, run: onnx.ModelProto | None = None, **options: Any
) -> ImportedModel:
    """Imports, and compares both evaluators on random images; `run`: what onnxruntime runs instead."""
    imported = import_onnx(proto, **options)
    if inputs is None:
        inputs = floats(3, *imported.input_shape)
    expected = run_onnx(run or proto, inputs)
    found = run_native(imported, inputs)
    # The core gives a class as one number, whatever its shape.
    assert found.shape[1:] in (imported.output_shape, (1,))
    np.testing.assert_allclose(found.ravel(), expected.ravel(), rtol=2e-4, atol=2e-5)
    return imported


class Line:
    """A line to a server, on which what the server says beyond `place` bytes waits for `go_on`."""

    def __init__(self, address: str, place: int, header: bytes = b"", later: int | None = None) -> None:
        """`header`: what it says first; `later`: as `place`, of a second connection."""
        host, _, port = address.rpartition(":")
        self.held, self.go_on = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._places, self._header = [place] if later is None else [place, later], header
        threading.Thread(target=self._accept, args=(host, int(port)), daemon=True).start()

    def _accept(self, host: str, port: int) -> None:
        for place in self._places:
            near, far = self._listener.accept()[0], socket.create_connection((host, port))
            far.sendall(self._header)
            for carried in ((near, far, 1 << 62), (far, near, place)):
                threading.Thread(target=self._carry, args=carried, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, place: int) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                place -= len(data)
                if place < 0:
                    self.held.set()
                    self.go_on.wait(60)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


WEIGHTS = np.array([[2, 0, -1], [-1, 2, 0], [0, -1, 2]], np.float32)


def pipeline(names: list[Any], *, table: bool = False) -> onnx.ModelProto:
    """A classifier as skl2onnx writes it; `table`: as it writes multilayer perceptrons."""
    kind = "classlabels_strings" if isinstance(names[0], str) else "classlabels_int64s"
    attribute = {} if table else {kind: names}
    nodes = [node("MatMul", "x w", "s"), node("Softmax", "s", "p", axis=1), node("ArgMax", "p", "i", axis=1)]
    nodes += [
        helper.make_node("ArrayFeatureExtractor", ["classes", "i"], ["label"], domain="ai.onnx.ml"),
        helper.make_node("ZipMap", ["p"], ["z"], domain="ai.onnx.ml", **attribute),
    ]
    stored = np.array([name.encode() for name in names], object) if isinstance(names[0], str) else np.array(names)
    labels = helper.make_tensor(
        "classes", TensorProto.STRING if isinstance(names[0], str) else TensorProto.INT64, [len(names)], stored
    )
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, ["N"]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", len(names)]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        outputs,
        [onnx.numpy_helper.from_array(WEIGHTS[:, : len(names)], "w"), labels],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)])
