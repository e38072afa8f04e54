"""Models of operators on integers, by onnxruntime's `quantize_static`: they are float models between pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

import pronghorn
from helpers import model, node, run_native, run_onnx
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import import_onnx

quantization = pytest.importorskip("onnxruntime.quantization")

RANDOM = np.random.default_rng(38)


def floats(*shape: int) -> np.ndarray:
    """Numbers of their own: by some, models of integers differ more from their floats."""
    return RANDOM.standard_normal(shape).astype(np.float32)


Network = tuple[list[NodeProto], tuple[Any, ...], dict[str, np.ndarray]]

NETWORKS: dict[str, Network] = {
    "convolutions": (
        [
            node("Conv", "x w b", "c", pads=[1, 1, 1, 1]),
            node("Relu", "c", "r"),
            node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", "p v", "d", group=2, pads=[1, 1, 1, 1]),
            node("Add", "d p", "a"),
            node("LeakyRelu", "a", "l", alpha=0.1),
            node("GlobalAveragePool", "l", "g"),
            node("Flatten", "g", "f"),
            node("Gemm", "f u t", "y", transB=1),
        ],
        ("N", 3, 8, 8),
        {"w": floats(4, 3, 3, 3), "b": floats(4), "v": floats(4, 2, 3, 3), "u": floats(5, 4), "t": floats(5)},
    ),
    "pieces": (
        [
            node("Conv", "x w", "c"),
            node("Sigmoid", "c", "s"),
            node("Mul", "c s", "m"),
            node("Split", "m", "h k", axis=1),
            node("Transpose", "k", "t", perm=[0, 1, 3, 2]),
            node("Concat", "t h", "o", axis=1),
            node("Pad", "o pads", "e"),
            node("AveragePool", "e", "a", kernel_shape=[2, 2], strides=[2, 2]),
            node("Reshape", "a shape", "f"),
            node("MatMul", "f u", "y"),
        ],
        ("N", 3, 6, 6),
        {
            "w": floats(4, 3, 1, 1),
            "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
            "shape": np.array([-1, 64], np.int64),
            "u": floats(64, 5),
        },
    ),
    "products": (
        [
            node("MatMul", "x w", "p"),
            node("Transpose", "p", "t", perm=[0, 2, 1]),
            node("MatMul", "p t", "s"),
            node("Softmax", "s", "a", axis=-1),
            node("MatMul", "a p", "m"),
            node("ReduceMean", "m", "r", axes=[1], keepdims=0),
            node("Gemm", "r u", "y", alpha=0.5),
        ],
        ("N", 4, 6),
        {"w": floats(6, 6), "u": floats(6, 3)},
    ),
}


def quantised(network: Network, folder: Path, outputs: tuple[str, ...] = ("y",), **options: Any) -> onnx.ModelProto:
    """A network whose ranges are those of some inputs."""
    nodes, shape, constants = network
    inputs = iter(samples(shape)[:40])

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, np.ndarray] | None:
            found = next(inputs, None)
            return None if found is None else {"x": found[None]}

    source, target = folder / "float.onnx", folder / "integers.onnx"
    onnx.save(model(nodes, shape, constants, opset=17, outputs=outputs), source)
    quantization.quantize_static(source, target, Reader(), **options)
    return onnx.load(target)


def samples(shape: tuple[Any, ...]) -> np.ndarray:
    return np.random.default_rng(4).standard_normal((80, *shape[1:])).astype(np.float32)


def spread(values: np.ndarray) -> float:
    return float(np.std(values - values.mean(axis=0)))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_operators_on_integers(name: str, kind: str, per_channel: bool, tmp_path: Path) -> None:
    """What is read is nearer to the float model than the integers are, and near to these."""
    nodes, shape, constants = NETWORKS[name]
    proto = quantised(
        NETWORKS[name],
        tmp_path,
        quant_format=quantization.QuantFormat.QOperator,
        activation_type=getattr(quantization.QuantType, kind),
        weight_type=quantization.QuantType.QInt8,
        per_channel=per_channel,
    )
    assert any(each.op_type.startswith("QLinear") for each in proto.graph.node)
    inputs = samples(shape)[40:]
    expected = run_onnx(proto, inputs).reshape(len(inputs), -1)
    wanted = run_onnx(model(nodes, shape, constants, opset=17), inputs).reshape(len(inputs), -1)
    found = run_native(import_onnx(proto), inputs).reshape(len(inputs), -1)
    assert spread(found - expected) < 0.2 * spread(expected)
    assert spread(found - wanted) < spread(expected - wanted)


def test_a_model_of_integers_runs(tmp_path: Path) -> None:
    """In secure runs results are the oracle's."""
    _, shape, _ = network = NETWORKS["convolutions"]
    proto = quantised(network, tmp_path, quant_format=quantization.QuantFormat.QOperator)
    secure = pronghorn.load(proto, samples=samples(shape)[:40])
    assert secure.plan().expected_error.error < 0.03
    assert secure.verify(samples(shape)[40:43]).disagreements == 0


def by_hand(nodes: list[NodeProto], **others: Any) -> onnx.ModelProto:
    constants = {"s": np.float32(0.05), "z": np.uint8(100), "t": np.float32(0.1), "w": floats(5, 3)}
    constants |= {"k": np.ones((5, 3), np.uint8), "two": np.ones(2, np.float32)}
    return with_microsoft(model(nodes, (1, 5), constants, opset=13, **others))


def with_microsoft(proto: onnx.ModelProto) -> onnx.ModelProto:
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto


def microsoft(kind: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    made = node(kind, inputs, output, **attributes)
    made.domain = "com.microsoft"
    return made


def test_integers_that_are_moved_between_a_pair() -> None:
    """Before, what stood between a pair was taken for integers, and scaled once more."""
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("Flatten", "q", "f"),
        node("DequantizeLinear", "f s z", "d"),
        node("MatMul", "d w", "y"),
    ]
    inputs, proto = floats(20, 5), by_hand(nodes)
    expected, found = run_onnx(proto, inputs)[:, 0], run_native(import_onnx(proto), inputs)
    np.testing.assert_allclose(found, expected, atol=0.3)
    nodes[2] = node("DequantizeLinear", "f t z", "d")
    with pytest.raises(UnsupportedModelError, match="differs"):
        import_onnx(by_hand(nodes))


def test_a_product_whose_result_stays_in_floats() -> None:
    constants = {
        "s": np.float32(0.05),
        "z": np.uint8(100),
        "w": np.random.default_rng(1).integers(-128, 128, (3, 5), np.int8),
        "ws": np.abs(floats(3)) / 100,
        "wz": np.zeros(3, np.int8),
        "b": np.array([5000, -70, 0], np.int32),
    }
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        microsoft("QGemm", "q s z w ws wz b", "y", transB=1, alpha=0.5),
    ]
    proto = with_microsoft(model(nodes, (1, 5), constants, opset=13))
    inputs = floats(20, 5)
    expected, found = run_onnx(proto, inputs)[:, 0], run_native(import_onnx(proto), inputs)
    np.testing.assert_allclose(found, expected, atol=5 * 0.025 * 128 * constants["ws"].max() / 2)


def test_results_without_a_zero_point_are_of_their_operands_kind() -> None:
    constants = {"s": np.float32(0.05), "z": np.int8(0), "v": np.full((1, 5), 40, np.int8)}
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        microsoft("QLinearAdd", "q s z v s z s", "a"),
        node("DequantizeLinear", "a s", "y"),
    ]
    proto = with_microsoft(model(nodes, (1, 5), constants, opset=13))
    inputs = floats(20, 5) / 2 - 3
    expected, found = run_onnx(proto, inputs)[:, 0], run_native(import_onnx(proto), inputs)
    assert expected.min() < 0
    np.testing.assert_allclose(found, expected, atol=0.1)


WEIGHTS = {
    "w": np.random.default_rng(2).standard_normal((5, 5)).astype(np.float32),
    "p": np.array([0.01, 0.02, 0.05, 0.03, 0.04], np.float32),
    "o": np.zeros(5, np.int8),
    "s": np.float32(0.02),
    "t": np.float32(0.05),
    "z": np.int8(3),
    "pads": np.array([0, 0, 0, 1]),
    "i": np.int8(9),
    "h": np.ones((6, 2), np.float32),
    "g": np.ones((10, 2), np.float32),
}


@pytest.mark.parametrize(
    "nodes",
    [
        # Weights with scales of their own for each row, which a move leaves or moves.
        [
            node("QuantizeLinear", "w p o", "q", axis=0),
            node("Identity", "q", "m"),
            node("DequantizeLinear", "m p o", "d", axis=0),
            node("MatMul", "x d", "y"),
        ],
        [
            node("QuantizeLinear", "w p o", "q", axis=0),
            node("Transpose", "q", "m", perm=[1, 0]),
            node("DequantizeLinear", "m p o", "d", axis=1),
            node("MatMul", "x d", "y"),
        ],
        # Integers of several scales beside each other are taken for those of one.
        [
            node("QuantizeLinear", "w s z", "q"),
            node("QuantizeLinear", "w t z", "r"),
            node("Concat", "q r", "m", axis=1),
            node("DequantizeLinear", "m s z", "d"),
            node("MatMul", "x d", "e"),
            node("MatMul", "e g", "y"),
        ],
        # An integer beside others, as it is and by way of an Identity.
        [
            node("QuantizeLinear", "w s z", "q"),
            node("Identity", "i", "j"),
            node("Pad", "q pads j", "m"),
            node("DequantizeLinear", "m s z", "d"),
            node("MatMul", "x d", "e"),
            node("MatMul", "e h", "y"),
        ],
        [
            node("QuantizeLinear", "w s z", "q"),
            node("Pad", "q pads i", "m"),
            node("DequantizeLinear", "m s z", "d"),
            node("MatMul", "x d", "e"),
            node("MatMul", "e h", "y"),
        ],
    ],
)
def test_what_is_moved_keeps_its_numbers(nodes: list[NodeProto]) -> None:
    proto = model(nodes, (1, 5), WEIGHTS, opset=17)
    inputs = floats(20, 5)
    expected, found = run_onnx(proto, inputs)[:, 0], run_native(import_onnx(proto), inputs)
    # onnxruntime makes some products those of integers.
    np.testing.assert_allclose(found, expected, atol=0.05)


def test_floats_are_those_of_the_file(tmp_path: Path) -> None:
    """`run_float` and `verify` run what was given, and not what it is read as. A Clip that the quantiser left to
    integers then shows."""
    nodes = [
        node("Conv", "x w", "c"),
        node("Clip", "c low high", "l"),
        node("Flatten", "l", "f"),
        node("Gemm", "f u", "y"),
    ]
    constants = {"w": 3 * floats(4, 3, 1, 1), "low": np.float32(-1), "high": np.float32(1), "u": floats(64, 3)}
    network = (nodes, ("N", 3, 4, 4), constants)
    proto = quantised(network, tmp_path, quant_format=quantization.QuantFormat.QOperator)
    for each in proto.graph.node:
        each.name = ""
    secure = pronghorn.load(proto, samples=samples(network[1])[:40])
    with pytest.warns(pronghorn.PrecisionWarning, match="integers cut values off"):
        secure.plan()
    inputs = samples(network[1])[40:]
    np.testing.assert_allclose(secure.run_float(inputs), run_onnx(proto, inputs).reshape(40, -1), atol=0.2)


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([microsoft("QLinearAveragePool", "x s z s z", "y", kernel_shape=[1], channels_last=1)], "QLinearAveragePool"),
        ([microsoft("QLinearSoftmax", "x s z s z", "y", opset=12)], "QLinearSoftmax"),
        # Scales that fit nothing.
        ([node("QLinearMatMul", "x s z k two z s z", "y")], "QLinearMatMul"),
        ([microsoft("QGemm", "x s z k s z two s z", "y")], "does not fit"),
        ([microsoft("QuantizeLinear", "x", "y")], "absent"),
        # Integers of two scales.
        (
            [
                node("QuantizeLinear", "x s z", "q"),
                node("QuantizeLinear", "x t z", "r"),
                node("Concat", "q r", "c", axis=1),
                node("DequantizeLinear", "c s z", "y"),
            ],
            "'q' is quantised",
        ),
        ([node("QuantizeLinear", "x s z", "q"), node("Flatten", "q", "y")], "'y' is quantised"),
    ],
)
def test_what_is_refused(nodes: list[NodeProto], says: str) -> None:
    with pytest.raises(UnsupportedModelError, match=says):
        import_onnx(by_hand(nodes, dtype=TensorProto.UINT8, output_dtype=TensorProto.UINT8))


def test_words_of_sixteen_bits() -> None:
    """onnxruntime writes these in a domain of its own."""
    nodes = [
        microsoft("QuantizeLinear", "x s z", "q"),
        microsoft("DequantizeLinear", "q s z", "d"),
        node("MatMul", "d w", "y"),
    ]
    constants = {"s": np.float32(0.001), "z": np.uint16(30000), "w": floats(5, 3)}
    proto = with_microsoft(model(nodes, (1, 5), constants, opset=13))
    kinds = [entry["op"]["kind"] for entry in json.loads(import_onnx(proto).graph_json)["nodes"]]
    assert kinds == ["input", "dense"]


def test_several_outputs_of_a_quantised_model(tmp_path: Path) -> None:
    """Each image has a row of its own in what the file gives."""
    nodes = [
        node("Gemm", "x w", "h"),
        node("Relu", "h", "r"),
        node("Gemm", "r v", "y"),
        node("Gemm", "r u", "o"),
    ]
    constants = {"w": floats(6, 8), "v": floats(8, 3), "u": floats(8, 2)}
    network = (nodes, ("N", 6), constants)
    for kind in (quantization.QuantFormat.QOperator, quantization.QuantFormat.QDQ):
        proto = quantised(network, tmp_path, quant_format=kind, outputs=("y", "o"))
        secure = pronghorn.load(proto, samples=samples(network[1])[:40], output=["y", "o"])
        inputs = samples(network[1])[40:]
        alone = np.concatenate([secure.run_float(inputs[at : at + 1]) for at in range(len(inputs))])
        np.testing.assert_allclose(secure.run_float(inputs), alone, atol=1e-5)
        # Those of other images would be 1.4 of the spread apart.
        assert secure.verify(inputs, secure=False).relative_error < 0.5


@pytest.mark.parametrize("attributes", [{"alpha": "one"}, {"op_type": "Conv"}, {"inputs": [1]}, {"transB": "x"}])
def test_hostile_attributes_are_refused(attributes: dict[str, Any]) -> None:
    made = microsoft("QGemm", "x s z k s z - s z", "y")
    made.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    with pytest.raises(pronghorn.PronghornError):
        import_onnx(by_hand([made], dtype=TensorProto.UINT8, output_dtype=TensorProto.UINT8))
