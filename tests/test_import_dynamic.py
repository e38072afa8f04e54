"""Models that quantise values as they run, by onnxruntime's `quantize_dynamic`: they are read as float models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

import pronghorn
from helpers import floats, model, node, run_native, run_onnx
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import import_onnx

quantization = pytest.importorskip("onnxruntime.quantization")

NETWORKS: dict[str, tuple[list[NodeProto], tuple[Any, ...], dict[str, np.ndarray]]] = {
    "dense": (
        [node("MatMul", "x w", "p"), node("Add", "p b", "a"), node("Relu", "a", "r"), node("MatMul", "r v", "y")],
        ("N", 12),
        {"w": floats(12, 16), "b": floats(16), "v": floats(16, 5)},
    ),
    "gemm": ([node("Gemm", "x w b", "y", transB=1)], ("N", 12), {"w": floats(7, 12), "b": floats(7)}),
    "conv": (
        [
            node("Conv", "x w b", "c", pads=[1, 1, 1, 1]),
            node("Relu", "c", "r"),
            node("Conv", "r v", "d", strides=[2, 2], group=2),
            node("Flatten", "d", "y"),
        ],
        ("N", 3, 8, 8),
        {"w": floats(4, 3, 3, 3), "b": floats(4), "v": floats(6, 2, 3, 3)},
    ),
    "lstm": (
        [
            node("Transpose", "x", "t", perm=[1, 0, 2]),
            node("LSTM", "t w r b", "h", hidden_size=5, direction="bidirectional"),
            node("Transpose", "h", "o", perm=[2, 0, 1, 3]),
            node("Flatten", "o", "y"),
        ],
        (1, 4, 6),
        {"w": floats(2, 20, 6) / 2, "r": floats(2, 20, 5) / 2, "b": floats(2, 40) / 4},
    ),
}


def quantised(proto: onnx.ModelProto, folder: Path, **options: Any) -> onnx.ModelProto:
    source, target = folder / "float.onnx", folder / "dynamic.onnx"
    onnx.save(proto, source)
    quantization.quantize_dynamic(source, target, **options)
    return onnx.load(target)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("weights", ["QInt8", "QUInt8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_models_are_float_models(name: str, weights: str, per_channel: bool, tmp_path: Path) -> None:
    nodes, shape, constants = NETWORKS[name]
    proto = model(nodes, shape, constants, opset=17)
    dynamic = quantised(
        proto,
        tmp_path,
        weight_type=getattr(quantization.QuantType, weights),
        per_channel=per_channel,
        op_types_to_quantize=["MatMul", "Conv", "LSTM"],
    )
    assert any("Dynamic" in each.op_type for each in dynamic.graph.node)
    imported = import_onnx(dynamic)
    assert imported.is_quantised
    inputs = floats(6, *imported.input_shape)
    wanted = np.concatenate([run_onnx(proto, image[None]).reshape(1, -1) for image in inputs])
    found = run_native(imported, inputs).reshape(wanted.shape)
    # What is left is the rounding of the weights.
    assert np.abs(found - wanted).max() < 0.03 * np.abs(wanted).max()
    # Each image by itself: a scale is one for all of a batch.
    runs = np.asarray(pronghorn.load(dynamic).run_float(inputs))
    np.testing.assert_allclose(runs.reshape(wanted.shape), wanted, atol=0.05 * np.abs(wanted).max())


def test_zero_points_of_weights_count() -> None:
    """Integers minus their zero points, and the scale of each column, are the weights."""
    integers = np.random.default_rng(3).integers(0, 256, (4, 3)).astype(np.uint8)
    zeros, scales = np.array([10, 128, 255], np.uint8), np.array([0.5, 0.25, 0.125], np.float32)
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z p", "i"),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("Mul", "s t", "u"),
        node("Mul", "f u", "y"),
    ]
    imported = import_onnx(model(nodes, ("N", 4), {"w": integers, "p": zeros, "t": scales}, opset=13))
    inputs = floats(5, 4)
    wanted = inputs @ ((integers.astype(np.float64) - zeros) * scales)
    np.testing.assert_allclose(run_native(imported, inputs), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "fused",
    [
        [node("DynamicQuantizeMatMul", "x w t p b", "y", domain="com.microsoft")],
        [
            node("DynamicQuantizeLinear", "x", "q s z"),
            node("MatMulIntegerToFloat", "q w s t z p b", "y", domain="com.microsoft"),
        ],
    ],
)
def test_fused_products(fused: list[NodeProto]) -> None:
    """What onnxruntime writes of an optimised model."""
    integers = np.random.default_rng(4).integers(-128, 128, (4, 3)).astype(np.int8)
    given = {"w": integers, "p": np.int8(5), "t": np.float32(0.02), "b": floats(3)}
    proto = model(fused, ("N", 4), given, opset=13)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    imported = import_onnx(proto)
    inputs = floats(5, 4)
    wanted = inputs @ ((integers.astype(np.float64) - 5) * 0.02) + given["b"]
    np.testing.assert_allclose(run_native(imported, inputs), wanted, rtol=1e-4, atol=1e-4)


def test_a_bias_may_be_rounded_to_integers_of_the_values_scale() -> None:
    """As older tools wrote it, before the values' scale is known."""
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("Mul", "s t", "u"),
        node("Div", "b u", "d"),
        node("Floor", "d", "e"),
        node("Cast", "e", "k", to=TensorProto.INT32),
        node("ConvInteger", "q w z p", "i", pads=[1, 1, 1, 1]),
        node("Reshape", "k shape", "r"),
        node("Add", "i r", "a"),
        node("Cast", "a", "f", to=TensorProto.FLOAT),
        node("Mul", "f u", "y"),
    ]
    integers = np.random.default_rng(5).integers(0, 256, (2, 3, 3, 3)).astype(np.uint8)
    bias = floats(2)
    constants = {"w": integers, "p": np.uint8(100), "t": np.float32(0.01), "b": bias, "shape": np.array([1, 2, 1, 1])}
    inputs = floats(4, 3, 5, 5)
    found = run_native(import_onnx(model(nodes, ("N", 3, 5, 5), constants, opset=13)), inputs)
    weights = ((integers.astype(np.float32) - 100) * np.float32(0.01)).astype(np.float32)
    plain = model([node("Conv", "x w b", "y", pads=[1, 1, 1, 1])], ("N", 3, 5, 5), {"w": weights, "b": bias}, opset=13)
    np.testing.assert_allclose(found, run_onnx(plain, inputs).reshape(found.shape), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        # The zero point of values that come as integers is no zero here.
        ([node("MatMulInteger", "x w p", "y")], "MatMulInteger"),
        ([node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q x z p", "y")], "MatMulInteger"),
    ],
)
def test_other_integers_are_refused(nodes: list[NodeProto], says: str) -> None:
    constants = {"w": np.ones((4, 4), np.int8), "p": np.uint8(3)}
    used = {name for each in nodes for name in each.input}
    proto = model(nodes, (1, 4, 4), {name: each for name, each in constants.items() if name in used}, opset=13)
    with pytest.raises(UnsupportedModelError, match=says):
        import_onnx(proto)


def test_a_secure_run_equals_the_oracle(tmp_path: Path) -> None:
    nodes, shape, constants = NETWORKS["conv"]
    dynamic = quantised(model(nodes, shape, constants, opset=17), tmp_path, op_types_to_quantize=["Conv"])
    loaded = pronghorn.load(dynamic, samples=floats(32, 3, 8, 8))
    report = loaded.verify(floats(34, 3, 8, 8)[32:])
    assert report.disagreements == 0
    assert report.relative_error < 0.1
