"""Every supported operator, imported and compared with onnxruntime."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto

import pronghorn
from helpers import check, floats, model, node
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import ImportedModel, import_onnx
from pronghorn.onnx.registry import OPERATORS

AXES = np.array([2, 3], np.int64)


def kinds(imported: ImportedModel) -> list[str]:
    return [entry["op"]["kind"] for entry in json.loads(imported.graph_json)["nodes"]]


@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("shape", [(1, 4, 9), (1, 4, 8, 11)])
@pytest.mark.parametrize(("groups", "dilation"), [(1, 1), (2, 2), (4, 1)])
def test_conv(auto_pad: str, shape: tuple[int, ...], groups: int, dilation: int) -> None:
    axes = len(shape) - 2
    weights = {"w": floats(8, 4 // groups, *[3] * axes), "b": floats(8)}
    attributes = {"strides": [2] * axes, "dilations": [dilation] * axes, "group": groups, "auto_pad": auto_pad}
    if auto_pad == "NOTSET":
        attributes["pads"] = [*range(1, axes + 1), *[2] * axes]
    if "SAME" in auto_pad and dilation > 1:
        # onnxruntime has no dilation with SAME padding; the standard says what the shape is.
        imported = import_onnx(model([node("Conv", "x w b", "y", **attributes)], shape, weights))
        assert imported.output_shape == (8, *[-(-size // 2) for size in shape[2:]])
        return
    check(model([node("Conv", "x w b", "y", **attributes)], shape, weights))


@pytest.mark.parametrize(("dilation", "pads"), [(300, [0, 0]), (257, [300, 11]), (512, [1024, 1024]), (600, [600, 0])])
@pytest.mark.parametrize("groups", [1, 2])
def test_windows_over_distant_places_of_a_series(dilation: int, pads: list[int], groups: int) -> None:
    """They are windows over interleaved series, which are the columns of an image."""
    weights = {"w": floats(6, 4 // groups, 3), "b": floats(6)}
    conv = node("Conv", "x w b", "y", dilations=[dilation], pads=pads, group=groups)
    imported = check(model([conv], ("N", 4, 1500), weights))
    (window,) = [entry["op"]["window"] for entry in json.loads(imported.graph_json)["nodes"] if "window" in entry["op"]]
    assert window["kernel"] == [3, 1]
    assert window["dilation"] == [1, 1]


def test_conv_without_bias_has_explicit_kernel_shape() -> None:
    weights = {"w": floats(2, 1, 2, 3)}
    imported = check(model([node("Conv", "x w", "y", kernel_shape=[2, 3])], ("N", 1, 5, 5), weights))
    assert imported.input_shape == (1, 5, 5)
    assert imported.output_shape == (2, 4, 3)
    with pytest.raises(UnsupportedModelError, match="kernel_shape"):
        import_onnx(model([node("Conv", "x w", "y", kernel_shape=[3, 3])], (1, 1, 5, 5), weights))


def test_means_of_one_window_that_leaves_places_out() -> None:
    """Sums of many bits are made in stages, over the places of the window alone."""
    random = np.random.default_rng(3)
    weights = {
        "w": random.standard_normal((4, 4, 1, 1)).astype(np.float32),
        "v": random.standard_normal((4, 1, 3, 3)).astype(np.float32),
    }
    nodes = [
        node("Conv", "x w", "a"),
        node("Conv", "x v", "b", group=4, pads=[1, 1, 1, 1]),
        node("Add", "a b", "s"),
        node("AveragePool", "s", "y", kernel_shape=[3, 3], strides=[3, 3]),
    ]
    samples = random.standard_normal((20, 4, 5, 5)).astype(np.float32)
    proto = model(nodes, ("N", 4, 5, 5), weights)
    assert check(proto, inputs=samples).output_shape == (4, 1, 1)
    many = pronghorn.load(proto, samples=samples, weight_bits=13, input_bits=13, error=1.0)
    expected = many.plan().expected_error
    assert expected is not None
    assert expected.error < 0.01


@settings(max_examples=60)
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    groups=st.sampled_from([1, 2]),
)
def test_random_convolutions(size, kernel, stride, dilation, pads, groups) -> None:  # noqa: ANN001
    room = [size[i] + pads[i] + pads[i + 2] - dilation[i] * (kernel[i] - 1) for i in range(2)]
    assume(min(room) >= 1)
    attributes = {"strides": stride, "dilations": dilation, "pads": pads, "group": groups}
    weights = {"w": floats(4, 2 // groups, *kernel), "b": floats(4)}
    check(model([node("Conv", "x w b", "y", **attributes)], (1, 2, *size), weights))


@settings(max_examples=150)
@given(
    kind=st.sampled_from(["MaxPool", "AveragePool"]),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    data=st.data(),
    ceil=st.booleans(),
    include=st.booleans(),
)
def test_random_poolings(kind, size, kernel, stride, data, ceil, include) -> None:  # noqa: ANN001
    pads = [data.draw(st.integers(0, kernel[i % 2] - 1)) for i in range(4)]
    assume(all(size[i] + pads[i] + pads[i + 2] >= kernel[i] for i in range(2)))
    attributes = {"kernel_shape": kernel, "strides": stride, "pads": pads, "ceil_mode": int(ceil)}
    if kind == "AveragePool":
        attributes["count_include_pad"] = int(include)
    check(model([node(kind, "x", "y", **attributes)], (1, 2, *size), opset=22))


@pytest.mark.parametrize("auto_pad", ["VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("size", [(8,), (7, 9)])
def test_pool_auto_pad(kind: str, auto_pad: str, size: tuple[int, ...]) -> None:
    axes = len(size)
    attributes = {"kernel_shape": [3] * axes, "strides": [2] * axes, "auto_pad": auto_pad}
    check(model([node(kind, "x", "y", **attributes)], (1, 2, *size)))


def test_dilated_poolings() -> None:
    attributes = {"kernel_shape": [2, 2], "dilations": [2, 3]}
    check(model([node("MaxPool", "x", "y", **attributes)], (1, 2, 8, 9)))
    check(model([node("AveragePool", "x", "y", **attributes)], (1, 2, 8, 9), opset=19))


@pytest.mark.parametrize("size", [(5,), (4, 6)])
@pytest.mark.parametrize("kind", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pool(kind: str, size: tuple[int, ...]) -> None:
    check(model([node(kind, "x", "y")], ("N", 3, *size)))


@pytest.mark.parametrize("axes", [[2, 3], [-1, -2], [1, 2], [3], [1], [1, 2, 3]])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("opset", [11, 17, 18])
def test_reduce_mean(axes: list[int], keep: int, opset: int) -> None:
    if opset < 18:
        check(model([node("ReduceMean", "x", "y", axes=axes, keepdims=keep)], (1, 3, 4, 5), opset=opset))
    else:
        constants = {"axes": np.array(axes, np.int64)}
        check(model([node("ReduceMean", "x axes", "y", keepdims=keep)], (1, 3, 4, 5), constants, opset=opset))


@pytest.mark.parametrize("axes", [[2, 3], [1], [-1]])
@pytest.mark.parametrize("keep", [0, 1])
def test_reduce_sum(axes: list[int], keep: int) -> None:
    check(model([node("ReduceSum", "x", "y", axes=axes, keepdims=keep)], (1, 3, 4, 5), opset=11))
    check(model([node("ReduceSum", "x a", "y", keepdims=keep)], (1, 3, 4, 5), {"a": np.array(axes)}, opset=13))


@pytest.mark.parametrize("c_shape", [(), (1,), (6,), (1, 6), None])
@pytest.mark.parametrize("trans", [0, 1])
def test_gemm(c_shape: tuple[int, ...] | None, trans: int) -> None:
    constants = {"b": floats(6, 5) if trans else floats(5, 6)}
    if c_shape is not None:
        constants["c"] = floats(*c_shape)
    inputs = "x b c" if c_shape is not None else "x b"
    check(model([node("Gemm", inputs, "y", alpha=0.5, beta=2.0, transB=trans)], ("N", 5), constants))


@pytest.mark.parametrize("shape", [(1, 5), (1, 4, 5), (1, 2, 3, 5), (1, 1, 5)])
def test_matmul_over_the_last_dimension(shape: tuple[int, ...]) -> None:
    check(model([node("MatMul", "x w", "y")], shape, {"w": floats(5, 6)}))


def test_matmul_from_the_left_and_with_leading_ones() -> None:
    check(model([node("MatMul", "w x", "y")], (1, 4, 5), {"w": floats(3, 4)}))
    check(model([node("MatMul", "x w", "y")], (1, 4, 5), {"w": floats(1, 5, 3)}))


@pytest.mark.parametrize(
    ("inputs", "shape", "matrices"),
    [
        ("x w", (1, 3, 4, 5), (3, 5, 2)),
        ("w x", ("N", 3, 4, 5), (3, 6, 4)),
        ("w x", ("N", 3, 4, 5), (1, 3, 6, 4)),
        ("w x", ("N", 2, 3, 4, 5), (3, 6, 4)),
        ("x w", ("N", 2, 3, 4, 5), (2, 1, 5, 6)),
        ("w x", ("N", 2, 4, 5), (6, 4)),
    ],
)
def test_a_matrix_for_each_part(inputs: str, shape: tuple[Any, ...], matrices: tuple[int, ...]) -> None:
    """As those of capsules and of learned queries of attention, a head each."""
    rng = np.random.default_rng(5)
    check(model([node("MatMul", inputs, "y")], shape, {"w": rng.standard_normal(matrices).astype(np.float32)}))


@pytest.mark.parametrize("matrices", [(7, 5, 2), (2, 5, 2), (3, 4, 2)])
def test_matrices_that_do_not_fit_are_refused(matrices: tuple[int, ...]) -> None:
    shape = (1, 4, 5) if matrices[0] == 7 else (1, 3, 4, 5)
    with pytest.raises(UnsupportedModelError, match="is not supported"):
        import_onnx(model([node("MatMul", "x w", "y")], shape, {"w": np.ones(matrices, np.float32)}))


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 4), (1, 3, 4, 4)])
@pytest.mark.parametrize("opset", [9, 14, 17])
def test_batch_normalization(shape: tuple[int, ...], opset: int) -> None:
    constants = {"s": floats(3), "b": floats(3), "m": floats(3), "v": np.abs(floats(3)) + 0.1}
    imported = check(model([node("BatchNormalization", "x s b m v", "y", epsilon=1e-3)], shape, constants, opset=opset))
    assert "affine" in kinds(imported)


ELEMENTWISE = {
    "relu": node("Relu", "x", "y"),
    "leaky": node("LeakyRelu", "x", "y", alpha=0.2),
    "leaky_default": node("LeakyRelu", "x", "y"),
    "leaky_negative": node("LeakyRelu", "x", "y", alpha=-0.5),
    "abs": node("Abs", "x", "y"),
    "hard_sigmoid": node("HardSigmoid", "x", "y"),
    "hard_sigmoid_keras": node("HardSigmoid", "x", "y", alpha=1 / 6, beta=0.4),
    "neg": node("Neg", "x", "y"),
    "square": node("Mul", "x x", "y"),
    "double": node("Add", "x x", "y"),
    "zero": node("Sub", "x x", "y"),
    "sum": node("Sum", "x x x", "y"),
    "identity": node("Identity", "x", "y"),
    "sigmoid": node("Sigmoid", "x", "y"),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("shape", [("N", 7), (1, 2, 3, 4)])
def test_elementwise(name: str, shape: tuple[int, ...]) -> None:
    # A model of Identity alone is no model: a ReLU follows.
    after = [node("Identity" if name == "sigmoid" else "Relu", "y", "z")]
    check(model([ELEMENTWISE[name], *after], shape, outputs=["z"]))


def test_prelu() -> None:
    for slope in (np.float32([0.25]), np.full((3, 1, 1), 0.1, np.float32)):
        imported = check(model([node("PRelu", "x s", "y")], (1, 3, 4, 4), {"s": slope}))
        assert kinds(imported) == ["input", "leaky_relu"]


@pytest.mark.parametrize("shape", [(3, 1, 1), (1, 3, 1, 1), (4,), (3, 5, 4)])
def test_prelu_with_many_slopes(shape: tuple[int, ...]) -> None:
    imported = check(model([node("PRelu", "x s", "y")], (1, 3, 5, 4), {"s": floats(*shape)}))
    assert "leaky_relu" not in kinds(imported)


@pytest.mark.parametrize(
    ("low", "high", "kind"), [(0.0, 6.0, "clip"), (-1.0, 1.0, "clip"), (0.0, None, "relu"), (None, 0.5, "clip")]
)
def test_clip(low: float | None, high: float | None, kind: str) -> None:
    bounds = {"min": low, "max": high}
    given_bounds = {name: value for name, value in bounds.items() if value is not None}
    imported = check(model([node("Clip", "x", "y", **given_bounds)], (1, 3, 4), opset=7))
    assert kinds(imported) == ["input", kind]
    names = " ".join(name if value is not None else "-" for name, value in bounds.items())
    constants = {name: np.float32(value) for name, value in given_bounds.items()}
    imported = check(model([node("Clip", f"x {names}", "y")], (1, 3, 4), constants, opset=13))
    assert kinds(imported) == ["input", kind]


def test_min_and_max_with_constants_are_clips() -> None:
    nodes = [node("Max", "x a", "h"), node("Min", "h b", "y")]
    check(model(nodes, (1, 5), {"a": np.float32(-0.5), "b": np.float32([0.5])}))


@pytest.mark.parametrize("kind", ["Max", "Min", "Pow", "Mul"])
@pytest.mark.parametrize("axis", [1, 2])
def test_single_constants_of_more_dimensions_move_the_axes_behind(kind: str, axis: int) -> None:
    constants = {"c": np.full((1, 1, 1), 2, np.float32), "a": np.array([axis])}
    check(model([node(kind, "x c", "z"), node("ReduceSum", "z a", "y", keepdims=0)], (1, 3), constants))


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 1), (1, 3, 1, 1), (4, 5), (3, 4, 5), (1, 3, 4, 5), (5,)])
def test_arithmetic_with_constants(kind: str, shape: tuple[int, ...]) -> None:
    constants = {"c": np.abs(floats(*shape)) + np.float32(0.5)}
    imported = check(model([node(kind, "x c", "y")], (1, 3, 4, 5), constants))
    assert kinds(imported) == ["input", "affine"]
    if kind != "Div":
        check(model([node(kind, "c x", "y")], (1, 3, 4, 5), constants))


def test_constants_may_add_dimensions_of_one() -> None:
    check(model([node("Add", "x c", "y")], (1, 5), {"c": floats(1, 1, 5)}))


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul"])
def test_arithmetic_of_values(kind: str) -> None:
    nodes = [node("Relu", "x", "a"), node("LeakyRelu", "x", "b"), node(kind, "a b", "y")]
    check(model(nodes, (1, 3, 4)))


def test_pow() -> None:
    powers = {2: ["square"], 3: ["square", "multiply"], 8: ["square"] * 3, 5: ["square", "square", "multiply"]}
    for power, expected in powers.items():
        imported = check(model([node("Pow", "x c", "y")], (1, 4), {"c": np.float32(power)}))
        assert kinds(imported) == ["input", *expected]
    for power in (np.float32(0), np.float32(17), np.float32(-200.5), np.array([1, 2], np.float32)):
        with pytest.raises(UnsupportedModelError, match="only exponents to 16"):
            import_onnx(model([node("Pow", "x c", "y")], (1, 2), {"c": power}))


@pytest.mark.parametrize("target", [[1, -1], [0, -1], [-1, 60], [1, 5, 12], [0, 0, 20], [1, 3, 4, 5]])
def test_reshape(target: list[int]) -> None:
    nodes = [node("Relu", "x", "h"), node("Reshape", "h s", "y")]
    check(model(nodes, ("N", 3, 4, 5), {"s": np.array(target, np.int64)}))


@pytest.mark.parametrize("axis", [1, 0, -3])
def test_flatten(axis: int) -> None:
    check(model([node("Relu", "x", "h"), node("Flatten", "h", "y", axis=axis)], (1, 3, 4, 5)))


@pytest.mark.parametrize("opset", [11, 13])
def test_squeeze_and_unsqueeze(opset: int) -> None:
    axes = {"two": np.array([2], np.int64), "last": np.array([-1], np.int64)}
    if opset < 13:
        nodes = [node("Unsqueeze", "x", "h", axes=[2]), node("Relu", "h", "r"), node("Squeeze", "r", "y", axes=[2])]
        check(model(nodes, (1, 3, 4), opset=opset))
    else:
        nodes = [node("Unsqueeze", "x two", "h"), node("Relu", "h", "r"), node("Squeeze", "r two", "y")]
        check(model(nodes, (1, 3, 4), axes, opset=opset))
        check(model([node("Unsqueeze", "x last", "h"), node("Relu", "h", "y")], (1, 3, 4), axes, opset=opset))


def test_squeeze_without_axes_keeps_the_batch() -> None:
    imported = check(model([node("GlobalAveragePool", "x", "h"), node("Squeeze", "h", "y")], ("N", 3, 4, 5)))
    assert imported.output_shape == (3,)


def test_computed_shapes() -> None:
    """What PyTorch exports for `x.view(x.size(0), -1)`."""
    nodes = [
        node("Relu", "x", "r"),
        node("Shape", "r", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axis", "u"),
        node("Concat", "u minus", "t", axis=0),
        node("Reshape", "r t", "y"),
    ]
    constants = {"zero": np.array(0, np.int64), "axis": np.array([0]), "minus": np.array([-1])}
    imported = check(model(nodes, ("N", 3, 4), constants))
    assert imported.output_shape == (12,)


def test_channels_last_examples_of_pytorch() -> None:
    """Its exporter's mean over an image of fixed batch 1, whose strides as_strided restores."""
    nodes = [
        node("ReduceMean", "x", "m", axes=[2, 3]),
        node("Reshape", "m all", "f"),
        node("Gather", "f strided", "g"),
        node("Reshape", "g flat", "h"),
        node("Gemm", "h w", "y"),
    ]
    constants = {
        "all": np.array([-1]),
        "strided": np.arange(6).reshape(1, 6, 1, 1),
        "flat": np.array([1, 6]),
        "w": floats(6, 3),
    }
    imported = check(model(nodes, (1, 6, 4, 5), constants))
    assert "dense" in kinds(imported)
    with pytest.raises(UnsupportedModelError, match="along the first dimension, the batch"):
        import_onnx(model(nodes, ("N", 6, 4, 5), constants))


@pytest.mark.parametrize(
    ("there", "back"), [([1, 0, 2, 3], [1, 0, 2, 3]), ([1, 2, 0, 3], [2, 3, 0, 1]), ([3, 2, 1, 0], [3, 1, 0, 2])]
)
def test_a_fixed_batch_of_one_may_move(there: list[int], back: list[int]) -> None:
    nodes = [node("Transpose", "x", "t", perm=there), node("Transpose", "t", "u", perm=back), node("Relu", "u", "y")]
    check(model(nodes, (1, 3, 4, 5)))


def test_a_fixed_batch_of_one_may_go() -> None:
    axes = {"first": np.array([0])}
    nodes = [node("Squeeze", "x", "s"), node("Transpose", "s", "t"), node("Unsqueeze", "t first", "u")]
    check(model([*nodes, node("Relu", "u", "y")], (1, 3, 1, 4), axes))
    # An index takes it away, too.
    nodes = [node("Gather", "x only", "s"), node("Unsqueeze", "s first", "u"), node("Relu", "u", "y")]
    check(model(nodes, (1, 3, 4), {"only": np.array(0), **axes}))
    # The result may be without it.
    imported = check(model([node("Relu", "x", "h"), node("Squeeze", "h first", "y")], (1, 3, 4), axes))
    assert imported.output_shape == (3, 4)
    imported = check(model([node("Sigmoid", "x", "h"), node("Squeeze", "h", "y")], (1, 1)))
    assert imported.output_shape == ()


def test_channel_shuffle() -> None:
    nodes = [
        node("Reshape", "x a", "h"),
        node("Transpose", "h", "t", perm=[0, 2, 1, 3, 4]),
        node("Reshape", "t b", "y"),
    ]
    constants = {"a": np.array([-1, 2, 3, 4, 5]), "b": np.array([-1, 6, 4, 5])}
    check(model(nodes, ("N", 6, 4, 5), constants))


def test_nhwc_export() -> None:
    nodes = [
        node("Transpose", "x", "t", perm=[0, 3, 1, 2]),
        node("Conv", "t w b", "c", pads=[1, 1, 1, 1]),
        node("Transpose", "c", "u", perm=[0, 2, 3, 1]),
        node("Relu", "u", "r"),
        node("ReduceMean", "r", "y", axes=[1, 2], keepdims=0),
    ]
    imported = check(model(nodes, ("N", 6, 7, 3), {"w": floats(4, 3, 3, 3), "b": floats(4)}))
    assert imported.input_shape == (6, 7, 3)


@pytest.mark.parametrize("pads", [[0, 0, 1, 2, 0, 0, 3, 0], [0, 1, 0, 0, 0, 0, 0, 2]])
def test_pad(pads: list[int]) -> None:
    check(model([node("Pad", "x", "h", pads=pads), node("Relu", "h", "y")], (1, 2, 3, 4), opset=10))
    constants = {"p": np.array(pads), "v": np.float32(0)}
    check(model([node("Pad", "x p v", "h"), node("Relu", "h", "y")], (1, 2, 3, 4), constants))


def test_pad_of_some_axes() -> None:
    constants = {"p": np.array([1, 2, 3, 4]), "a": np.array([2, -1])}
    check(model([node("Pad", "x p - a", "h"), node("Relu", "h", "y")], (1, 2, 3, 4), constants, opset=18))


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_concat(axis: int) -> None:
    nodes = [node("Relu", "x", "a"), node("Neg", "x", "b"), node("Concat", "a b x", "y", axis=axis)]
    check(model(nodes, (1, 2, 3, 4)))


@pytest.mark.parametrize(("opset", "axis"), [(11, 1), (11, None), (13, 1), (13, -1), (13, None)])
def test_softmax(opset: int, axis: int | None) -> None:
    attributes = {} if axis is None else {"axis": axis}
    check(model([node("Relu", "x", "h"), node("Softmax", "h", "y", **attributes)], ("N", 5), opset=opset))


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("before", ["Softmax", "LogSoftmax", "Relu"])
def test_arg_max(keep: int, before: str) -> None:
    nodes = [node(before, "x", "h"), node("ArgMax", "h", "y", axis=1, keepdims=keep)]
    proto = model(nodes, ("N", 5), output_dtype=TensorProto.INT64)
    imported = check(proto)
    assert imported.output_shape == ((1,) if keep else ())
    nodes = [node("Softmax", "x", "h", axis=1), node("ArgMax", "h", "a", axis=1), node("Cast", "a", "y", to=6)]
    check(model(nodes, ("N", 5, 1, 1), output_dtype=TensorProto.INT32))


def test_dropout() -> None:
    check(model([node("Dropout", "x", "h"), node("Relu", "h", "y")], (1, 5), opset=10))
    constants = {"r": np.float32(0.5), "t": np.array(False)}
    check(model([node("Dropout", "x r t", "h"), node("Relu", "h", "y")], (1, 5), constants, opset=13))
    constants["t"] = np.array(True)
    with pytest.raises(UnsupportedModelError, match="training"):
        import_onnx(model([node("Dropout", "x r t", "h"), node("Relu", "h", "y")], (1, 5), constants, opset=13))


def test_half_and_double_weights_become_float32() -> None:
    for dtype, kind in ((np.float16, TensorProto.FLOAT16), (np.float64, TensorProto.DOUBLE)):
        nodes = [node("Cast", "x", "h", to=kind), node("Gemm", "h w", "g"), node("Cast", "g", "y", to=1)]
        imported = import_onnx(model(nodes, (1, 5), {"w": floats(5, 3).astype(dtype)}))
        assert all(tensor.dtype == np.float32 for tensor in imported.tensors.values())
        assert kinds(imported) == ["input", "dense"]


def test_integer_input_with_a_cast() -> None:
    imported = import_onnx(
        model([node("Cast", "x", "h", to=1), node("Relu", "h", "y")], (1, 5), dtype=TensorProto.UINT8)
    )
    assert kinds(imported) == ["input", "relu"]


def test_constants_by_nodes_are_folded() -> None:
    from onnx import numpy_helper

    nodes = [
        node("Constant", "", "c", value=numpy_helper.from_array(floats(3, 5))),
        node("Transpose", "c", "t"),
        node("Mul", "t two", "w"),
        node("MatMul", "x w", "y"),
    ]
    imported = check(model(nodes, (1, 5), {"two": np.float32(2)}))
    assert kinds(imported) == ["input", "dense"]


@pytest.mark.parametrize("opset", range(7, onnx.defs.onnx_opset_version() + 1))
def test_every_opset(opset: int) -> None:
    """A network of the common operators imports from opset 7 to the newest that onnx knows."""
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c s b m v", "n"),
        node("Relu", "n", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", "p", "a", kernel_shape=[2, 2]),
        node("Flatten", "a", "f"),
        node("Gemm", "f g h", "l", transB=1),
        node("Softmax", "l", "y", axis=1),
    ]
    constants = {"w": floats(4, 1, 3, 3), "g": floats(3, 36), "h": floats(3)}
    constants |= {name: np.abs(floats(4)) + np.float32(0.1) for name in "sbmv"}
    proto = model(nodes, ("N", 1, 8, 8), constants, opset=opset)
    imported = import_onnx(proto)
    assert imported.opset == opset
    # onnxruntime may be behind onnx.
    newest = min(opset, 23)
    check(proto, run=model(nodes, ("N", 1, 8, 8), constants, opset=newest))


def test_two_values_meet_again() -> None:
    """A residual block, and an inception block."""
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("Add", "r x", "s"),
        node("Concat", "s c r", "j", axis=1),
        node("GlobalAveragePool", "j", "y"),
    ]
    check(model(nodes, ("N", 2, 5, 5), {"w": floats(2, 2, 3, 3)}))


def test_weights_are_named_apart() -> None:
    nodes = [node("Gemm", "x w", "a"), node("Gemm", "a w", "y")]
    proto = model(nodes, (1, 4), {"w": floats(4, 4)})
    unnamed = onnx.ModelProto.FromString(proto.SerializeToString())
    for entry in unnamed.graph.node:
        entry.name = "same"
    imported = check(unnamed, run=proto)
    assert len(imported.tensors) == 2


def test_functions_are_inlined() -> None:
    from onnx import helper

    body = [node("Mul", "a a", "b")]
    function = helper.make_function("local", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    proto = model([helper.make_node("Twice", ["x"], ["y"], domain="local")], (1, 4))
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("local", 1))
    assert kinds(check(proto)) == ["input", "square"]


def test_combinations_of_window_attributes_in_one_dimension() -> None:
    for stride, dilation, pads in itertools.product([1, 2], [1, 2], [[0, 0], [2, 1]]):
        attributes = {"strides": [stride], "dilations": [dilation], "pads": pads}
        check(model([node("Conv", "x w", "y", **attributes)], (1, 2, 8), {"w": floats(3, 2, 2)}))


def test_the_guide_lists_every_operator() -> None:
    guide = (Path(__file__).parents[1] / "docs" / "guide.md").read_text().partition("## What it runs")[2]
    missing = [name for name in OPERATORS if not re.search(rf"\b{name.rpartition('.')[2]}\b", guide)]
    assert not missing


@pytest.mark.parametrize("batch", [1, "N"])
def test_a_dense_layer_over_the_rows_of_all_images(batch: Any) -> None:
    """As Keras's Dense on a sequence: the rows of all images become one matrix, and sequences again."""
    nodes = [
        node("Reshape", "x rows", "r"),
        node("MatMul", "r w", "m"),
        node("Shape", "x", "shape"),
        node("Gather", "shape places", "free"),
        node("Concat", "free last", "wanted", axis=0),
        node("Reshape", "m wanted", "s"),
        node("Add", "s b", "y"),
    ]
    sizes = {"rows": np.array([-1, 5]), "places": np.array([0, 1]), "last": np.array([3])}
    check(model(nodes, (batch, 4, 5), {**sizes, "w": floats(5, 3), "b": floats(3)}))


def test_rows_of_all_images_are_not_mixed() -> None:
    sizes = {"rows": np.array([-1, 5]), "w": floats(2, 8)}
    mixing = [
        [node("ReduceMean", "r", "y", axes=[0])],
        [node("Transpose", "r", "y", perm=[1, 0])],
        [node("Softmax", "r", "y", axis=0)],
    ]
    for ends in mixing:
        with pytest.raises(UnsupportedModelError):
            import_onnx(model([node("Reshape", "x rows", "r"), *ends], ("N", 8, 5), sizes))


def test_models_that_take_one_image_alone() -> None:
    """They leave the batch open, and fail on several images."""
    constants = {"rows": np.array([-1, 5]), "w": floats(2, 8), "s": np.array([2, 20])}
    product = [node("Reshape", "x rows", "r"), node("MatMul", "w r", "y")]
    for nodes in (product, [node("Reshape", "x s", "y")]):
        assert not check(model(nodes, ("N", 8, 5), constants)).free_batch


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("attributes", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
def test_cumulative_sums(axis: int, attributes: dict[str, int]) -> None:
    check(model([node("CumSum", "x a", "y", **attributes)], ("N", 5), {"a": np.array(axis)}))
    check(model([node("CumSum", "x a", "y", **attributes)], ("N", 5, 3), {"a": np.array([axis])}))
    check(model([node("CumSum", "x a", "y", **attributes)], (1, 2, 4, 3), {"a": np.array(2)}))
    with pytest.raises(UnsupportedModelError, match="batch"):
        import_onnx(model([node("CumSum", "x a", "y", **attributes)], ("N", 5), {"a": np.array(0)}))


def test_quotients_of_whole_numbers_are_refused() -> None:
    """The file cuts them off."""
    nodes = [node("Div", "x two", "h"), node("Cast", "h", "f", to=TensorProto.FLOAT), node("MatMul", "f w", "y")]
    constants = {"two": np.array(2), "w": floats(5, 2)}
    with pytest.raises(UnsupportedModelError, match="divides whole numbers"):
        import_onnx(model(nodes, ("N", 5), constants, dtype=TensorProto.INT64))
    nodes = [node("Cast", "x", "f", to=TensorProto.FLOAT), node("Div", "f half", "h"), node("MatMul", "h w", "y")]
    assert import_onnx(model(nodes, ("N", 5), constants | {"half": np.float32(2)}, dtype=TensorProto.INT64))


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceL2", "Pow"])
def test_means_and_roots_of_whole_numbers_are_refused(kind: str) -> None:
    """The file cuts them off, too."""
    constants = {"half": np.float32(0.5), "w": np.ones((5 if kind == "Pow" else 1, 2), np.float32)}

    def of(source: str) -> onnx.NodeProto:
        return node(kind, f"{source} half", "h") if kind == "Pow" else node(kind, source, "h", axes=[1], keepdims=1)

    after = [of("x"), node("Cast", "h", "f", to=TensorProto.FLOAT), node("MatMul", "f w", "y")]
    with pytest.raises(UnsupportedModelError, match="of whole numbers, which the file cuts off"):
        import_onnx(model(after, ("N", 5), constants, dtype=TensorProto.INT32))
    before = [node("Cast", "x", "f", to=TensorProto.FLOAT), of("f"), node("MatMul", "h w", "y")]
    assert import_onnx(model(before, ("N", 5), constants, dtype=TensorProto.INT32))


def test_whole_numbers_that_stay_whole() -> None:
    """Squares, sums, and means of one number."""
    nodes = [node("Unsqueeze", "x axis", "u"), node("ReduceMean", "u", "m", axes=[2], keepdims=0)]
    nodes += [node("Pow", "m two", "s"), node("Cast", "s", "f", to=TensorProto.FLOAT), node("MatMul", "f w", "y")]
    constants = {"axis": np.array([2]), "two": np.float32(2), "w": np.ones((5, 2), np.float32)}
    assert import_onnx(model(nodes, ("N", 5), constants, dtype=TensorProto.INT32))


def test_an_end_before_a_sigmoid_within_a_network_is_named() -> None:
    nodes = [node("ArgMax", "x", "s", axis=1), node("Sigmoid", "s", "g"), node("Relu", "g", "y")]
    with pytest.raises(UnsupportedModelError, match="after ArgMax, which is supported only at the end"):
        import_onnx(model(nodes, ("N", 5)))


OWN = np.random.default_rng(12)


def around(*shape: int) -> np.ndarray:
    """Random numbers of these tests alone."""
    return OWN.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", ["ReduceL1", "ReduceLogSum"])
@pytest.mark.parametrize("keep", [0, 1])
def test_sums_of_magnitudes_and_logarithms_of_sums(kind: str, keep: int) -> None:
    nodes = [node("Softplus", "x", "p")] if kind == "ReduceLogSum" else [node("Identity", "x", "p")]
    nodes = [*nodes, node(kind, "p", "s", axes=[2], keepdims=keep)]
    imported = check(model(nodes, ("N", 3, 4), outputs=["s"]), inputs=around(5, 3, 4))
    assert imported.finish == (["log"] if kind == "ReduceLogSum" else [])
    going_on = check(model([*nodes, node("Neg", "s", "y")], ("N", 3, 4)), inputs=around(5, 3, 4))
    assert going_on.finish == []


@pytest.mark.parametrize("exponent", [-1.0, -2.0, 1.5, -0.5, 0.3, 2.2])
@pytest.mark.parametrize("last", [True, False])
def test_powers_of_positive_values(exponent: float, last: bool) -> None:
    # Errors of these numbers alone are asserted.
    random = np.random.default_rng(4)
    nodes = [
        node("MatMul", "x w", "h"),
        node("Softplus", "h", "p"),
        node("Add", "p half", "q"),
        node("Pow", "q e", "r"),
        *([] if last else [node("Mul", "r half", "y")]),
    ]
    constants = {
        "w": random.standard_normal((6, 4)).astype(np.float32) / 3,
        "half": np.float32(0.5),
        "e": np.float32(exponent),
    }
    inputs = random.standard_normal((300, 6)).astype(np.float32)
    proto = model(nodes, ("N", 6), constants, outputs=["r" if last else "y"])
    imported = check(proto, inputs=inputs[:20])
    assert imported.finish == (["exp"] if last and exponent not in (-1, -2) else [])
    loaded = pronghorn.load(proto, samples=inputs[:100])
    report = loaded.verify(inputs[100:], secure=False)
    assert report.expected_error is not None
    assert report.relative_error < 2 * report.expected_error


def test_pads_of_a_number() -> None:
    constants = {"pads": np.array([0, 0, 1, 2, 0, 0, -1, 3]), "v": np.float32(1.5), "w": around(2, 2, 3, 3)}
    nodes = [node("Pad", "x pads v", "p"), node("Conv", "p w", "y")]
    check(model(nodes, ("N", 2, 5, 5), constants), inputs=around(4, 2, 5, 5))
    with pytest.raises(UnsupportedModelError, match="pad with a number"):
        import_onnx(model(nodes, ("N", 2, 5, 5), constants | {"v": np.float32(-np.inf)}))


@pytest.mark.parametrize("attributes", [{}, {"upper": 0}])
@pytest.mark.parametrize("diagonal", [None, -1, 2])
def test_triangles(attributes: dict[str, int], diagonal: int | None) -> None:
    constants = {} if diagonal is None else {"k": np.array(diagonal)}
    names = "x" if diagonal is None else "x k"
    check(model([node("Trilu", names, "y", **attributes)], ("N", 2, 4, 5), constants), inputs=around(3, 2, 4, 5))


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_elements_along_an_axis(axis: int) -> None:
    indices = np.array([[[0, 2, -1, 1], [1, 1, 0, 2]]])
    proto = model([node("GatherElements", "x i", "y", axis=axis)], (1, 3, 4), {"i": indices})
    check(proto, inputs=around(4, 3, 4))
    with pytest.raises(UnsupportedModelError, match="of one image"):
        import_onnx(model([node("GatherElements", "x i", "y", axis=axis)], ("N", 3, 4), {"i": indices}))
    with pytest.raises(UnsupportedModelError, match="the batch"):
        import_onnx(model([node("GatherElements", "x i", "y", axis=0)], (1, 3, 4), {"i": indices * 0}))


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("before", ["Identity", "Sigmoid", "Softmax"])
def test_the_least_value(keep: int, before: str) -> None:
    nodes = [node(before, "x", "s"), node("ArgMin", "s", "y", axis=1, keepdims=keep)]
    proto = model(nodes, ("N", 5), output_dtype=TensorProto.INT64)
    assert check(proto, inputs=around(40, 5)).finish == ["arg_max"]


@pytest.mark.parametrize(
    ("equation", "shape", "constant"),
    [
        ("bij,jk->bik", ("N", 3, 4), (4, 5)),
        ("bij,kj->bik", ("N", 3, 4), (5, 4)),
        ("bif,io->bof", ("N", 3, 4), (3, 5)),
        ("bi,ijk->bkj", ("N", 3), (3, 2, 4)),
        ("btc,hdc->bthd", ("N", 3, 4), (2, 5, 4)),
        ("bthd,hdc->btc", ("N", 3, 2, 4), (2, 4, 5)),
        ("b c h w, c -> b h w", ("N", 3, 2, 4), (3,)),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_einsum_of_a_constant(equation: str, shape: tuple[Any, ...], constant: tuple[int, ...], turned: bool) -> None:
    terms, arrow, result = equation.partition("->")
    names = "c x" if turned else "x c"
    equation = ",".join(reversed(terms.split(","))) + arrow + result if turned else equation
    proto = model([node("Einsum", names, "y", equation=equation)], shape, {"c": around(*constant)})
    check(proto, inputs=around(4, *shape[1:]))


@pytest.mark.parametrize(
    ("equation", "shape"),
    [
        ("bhid,bhjd->bhij", ("N", 2, 3, 4)),
        ("bghij,bghjd->bghid", ("N", 2, 2, 3, 3)),
        ("bij,bjk->bki", ("N", 3, 3)),
        ("b i h d, b j h d -> b h i j", ("N", 3, 2, 4)),
        ("bi,bj->bij", ("N", 3)),
        ("...id,...jd->...ij", ("N", 2, 3, 4)),
        ("...d,...d->...", ("N", 3, 4)),
        ("bij,bij->bi", ("N", 3, 2)),
    ],
)
def test_einsum_of_two_computed_matrices(equation: str, shape: tuple[Any, ...]) -> None:
    nodes = [node("Mul", "x c", "z"), node("Add", "x c", "w"), node("Einsum", "z w", "y", equation=equation)]
    check(model(nodes, shape, {"c": around(*shape[1:])}), inputs=around(4, *shape[1:]))


@pytest.mark.parametrize("shapes", [((4, 3, 5), (1, 5, 2)), ((1, 3, 5), (4, 5, 2)), ((2, 1, 3, 5), (1, 4, 5, 2))])
def test_a_product_of_computed_matrices_broadcasts_parts(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """As in attention of several queries and one key."""
    nodes, constants = [], {}
    for name, shape in zip("ab", shapes, strict=True):
        nodes += [node("MatMul", f"x w{name}", f"{name}0"), node("Reshape", f"{name}0 s{name}", name)]
        constants |= {f"w{name}": around(6, int(np.prod(shape))), f"s{name}": np.array([-1, *shape])}
    proto = model([*nodes, node("MatMul", "a b", "y")], ("N", 6), constants)
    check(proto, inputs=around(4, 6))


@pytest.mark.parametrize("equation", ["ij,kj->ik", "bij,bjk->bi", "bii,bij->bj", "bij,cjk->bik"])
def test_other_equations_of_two_computed_values_are_refused(equation: str) -> None:
    shape = ("N", 3) if equation.startswith("ij") else ("N", 3, 3)
    nodes = [node("Mul", "x x", "z"), node("Einsum", "x z", "y", equation=equation)]
    with pytest.raises(UnsupportedModelError, match="no product of two matrices"):
        import_onnx(model(nodes, shape, {}))


@pytest.mark.parametrize(
    "equation", ["bij,ij->bij", "bij,jk->kbi", "bij,bk->ik", "bij,jk->bi", "bii,ij->bj", "...j,jk->k"]
)
def test_other_equations_are_refused(equation: str) -> None:
    with pytest.raises(UnsupportedModelError, match=r"equation|batch"):
        import_onnx(model([node("Einsum", "x c", "y", equation=equation)], ("N", 3, 3), {"c": around(3, 3)}))


@pytest.mark.parametrize("shape", [(1, 3), (1, 1), (3,)])
def test_a_computed_addend_of_a_gemm(shape: tuple[int, ...]) -> None:
    """As distances of K-means have it."""
    nodes = [
        node("ReduceSumSquare", "x", "q", axes=[1], keepdims=1),
        node("Mul", "q c", "c0"),
        node("Gemm", "x w c0", "y", alpha=-2.0, beta=0.5, transB=1),
    ]
    check(model(nodes, ("N", 5), {"w": floats(3, 5), "c": floats(*shape)}))
