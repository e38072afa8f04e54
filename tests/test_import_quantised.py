"""Models with pairs of QuantizeLinear and DequantizeLinear, compared with onnxruntime."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from helpers import check, floats, model, node, run_native, run_onnx
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import ImportedModel, import_onnx


def kinds(imported: ImportedModel) -> list[str]:
    return [entry["op"]["kind"] for entry in json.loads(imported.graph_json)["nodes"]]


def pair(source: str, result: str, scale: str, zero: str) -> list[onnx.NodeProto]:
    """A value rounded to integers and back."""
    inner = f"{result}_q"
    quantise = node("QuantizeLinear", f"{source} {scale} {zero}", inner)
    return [quantise, node("DequantizeLinear", f"{inner} {scale} {zero}", result)]


@pytest.mark.parametrize("opset", [10, 13, 19, 21])
def test_dequantised_weights_are_floats(opset: int) -> None:
    """Weights with a scale for each channel, and a bias in 32 bits."""
    per_channel = opset >= 13
    channels: dict[str, Any] = {"axis": 0} if per_channel else {}
    nodes = [
        node("DequantizeLinear", "w ws wz", "wf", **channels),
        node("DequantizeLinear", "b bs", "bf", **channels),
        node("Conv", "x wf bf", "y"),
    ]
    size = (4,) if per_channel else ()
    constants = {
        "w": np.random.default_rng(1).integers(-128, 128, (4, 2, 3, 3), np.int8),
        "ws": np.abs(floats(*size)) / 100,
        "wz": np.full(size, 3, np.int8),
        "b": np.array([-5000, 0, 70000, 9], np.int32),
        "bs": np.abs(floats(*size)) / 10000,
    }
    imported = check(model(nodes, ("N", 2, 5, 5), constants, opset=opset))
    assert kinds(imported) == ["input", "conv"]


def test_rounded_weights_of_training_are_constants() -> None:
    # Not a MatMul: onnxruntime makes that one of integers.
    nodes = [*pair("w", "f", "s", "z"), node("Add", "x f", "y")]
    assert kinds(check(model(nodes, (1, 5), {"w": floats(5), "s": np.float32(0.02), "z": np.int8(0)}))) == [
        "input",
        "affine",
    ]


@pytest.mark.parametrize(("zero", "clamped"), [(np.uint8(0), True), (np.int8(-128), True), (np.uint8(128), False)])
def test_pairs_on_values(zero: np.generic, clamped: bool) -> None:
    """A pair is the identity, or the ReLU or Clip that the quantiser left to it."""
    nodes = [
        *pair("x", "a", "xs", "xz"),
        node("MatMul", "a w", "b"),
        *pair("b", "c", "s", "z"),
        node("Relu", "c", "d"),
        *pair("d", "y", "s", "z"),
    ]
    scale = np.float32(0.002 if clamped else 0.1)
    constants = {"w": floats(5, 3), "xs": np.float32(1 / 255), "xz": np.uint8(0), "s": scale, "z": np.asarray(zero)}
    proto = model(nodes, (1, 5), constants, opset=13)
    imported = import_onnx(proto)
    assert kinds(imported) == ["input", "dense", *["clip"] * clamped, "relu"]
    inputs = np.random.default_rng(2).random((50, 5), np.float32)
    expected, found = run_onnx(proto, inputs)[:, 0], run_native(imported, inputs)
    # Sums of five roundings of the input, and one of the result.
    np.testing.assert_allclose(found, expected, atol=5 * np.abs(constants["w"]).max() / 510 + scale)


@pytest.mark.parametrize("end", ["Softmax", "Sigmoid", "LogSoftmax"])
def test_pairs_behind_the_end_are_the_clients(end: str) -> None:
    """As quantize_static writes them by default: the end is in floats."""
    nodes = [node("MatMul", "x w", "h"), node(end, "h", "e"), *pair("e", "y", "s", "z")]
    constants = {"w": floats(5, 3), "s": np.float32(1 / 255), "z": np.uint8(0)}
    if end == "LogSoftmax":
        constants |= {"s": np.float32(1 / 8), "z": np.uint8(255)}
    proto = model(nodes, (1, 5), constants, opset=13)
    imported = import_onnx(proto)
    assert kinds(imported)[:2] == ["input", "dense"]
    assert len(imported.finish) == 1
    inputs = floats(20, 5)
    np.testing.assert_allclose(run_native(imported, inputs), run_onnx(proto, inputs)[:, 0], atol=constants["s"])


def test_a_pair_behind_a_sigmoid_within_a_network() -> None:
    nodes = [
        node("MatMul", "x w", "h"),
        node("Sigmoid", "h", "e"),
        *pair("e", "q", "s", "z"),
        node("MatMul", "q v", "y"),
    ]
    constants = {"w": floats(5, 3), "v": floats(3, 2), "s": np.float32(1 / 255), "z": np.uint8(0)}
    imported = import_onnx(model(nodes, (1, 5), constants, opset=13))
    assert kinds(imported) == ["input", "dense", "function", "dense"]
    # Smaller integers cut values off, as the file says.
    saturating = import_onnx(model(nodes, (1, 5), constants | {"s": np.float32(0.5 / 255)}, opset=13))
    assert kinds(saturating) == ["input", "dense", "function", "clip", "dense"]
    nodes[1] = node("Softmax", "h", "e")
    assert '"reciprocal"' in import_onnx(model(nodes, (1, 5), constants, opset=13)).graph_json


def test_a_pair_behind_an_exponential_is_refused() -> None:
    """The client would give more than the largest integer."""
    nodes = [node("MatMul", "x w", "h"), node("Exp", "h", "e"), *pair("e", "y", "s", "z")]
    constants = {"w": floats(5, 3), "s": np.float32(1 / 255), "z": np.uint8(0)}
    with pytest.raises(UnsupportedModelError, match="may not reach as far"):
        import_onnx(model(nodes, (1, 5), constants, opset=13))


def test_quantised_inputs_are_scaled() -> None:
    nodes = [node("DequantizeLinear", "x s z", "a"), node("MatMul", "a w", "y")]
    constants = {"s": np.float32(0.1), "z": np.uint8(7), "w": floats(5, 3)}
    proto = model(nodes, (1, 5), constants, dtype=TensorProto.UINT8)
    inputs = np.random.default_rng(3).integers(0, 256, (4, 5), np.uint8)
    check(proto, inputs=inputs)


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([node("QuantizeLinear", "x s z", "y")], "the output 'y' is quantised"),
        ([node("QuantizeLinear", "x s z", "q"), node("Abs", "q", "y")], "'q' is quantised"),
        ([node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q t z", "y")], "differs"),
        ([node("QuantizeLinear", "x many z", "q"), node("DequantizeLinear", "q many z", "y")], "scale"),
    ],
)
def test_what_is_refused(nodes: list[onnx.NodeProto], says: str) -> None:
    constants = {"s": np.float32(0.1), "t": np.float32(0.2), "z": np.uint8(128), "many": np.abs(floats(5))}
    with pytest.raises(UnsupportedModelError, match=says):
        import_onnx(model(nodes, (1, 5), constants, output_dtype=TensorProto.UINT8))
