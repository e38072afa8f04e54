"""Convolutions and poolings of volumes, and normalisations by the channels around, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import pronghorn
from helpers import check, model, node
from pronghorn import UnsupportedModelError
from pronghorn.onnx import import_onnx

RANDOM = np.random.default_rng(41)
"""Of this file alone: other tests keep their numbers."""

SHAPE = ("N", 4, 7, 6, 9)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def compare(
    nodes: list[onnx.NodeProto], shape: tuple[Any, ...], constants: dict[str, np.ndarray] | None = None
) -> None:
    check(model(nodes, shape, constants), inputs=floats(3, *shape[1:]))


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ((3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
        ((3, 3, 3), {}),
        ((2, 3, 1), {"strides": [2, 3, 1]}),
        ((3, 2, 2), {"strides": [1, 2, 2], "dilations": [2, 1, 3], "pads": [0, 1, 2, 1, 0, 1]}),
        ((1, 1, 1), {}),
        ((7, 6, 9), {}),
        ((3, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2, 2]}),
        ((2, 2, 3), {"auto_pad": "SAME_LOWER"}),
    ],
)
@pytest.mark.parametrize("group", [1, 2, 4])
def test_convolutions(kernel: tuple[int, ...], options: dict[str, Any], group: int) -> None:
    constants = {"w": floats(8, 4 // group, *kernel), "b": floats(8)}
    compare([node("Conv", "x w b", "y", group=group, **options)], SHAPE, constants)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]},
        {"kernel_shape": [3, 2, 3], "strides": [1, 2, 1], "pads": [1, 0, 1, 1, 1, 1]},
        {"kernel_shape": [2, 3, 2], "strides": [3, 2, 2], "ceil_mode": 1},
        {"kernel_shape": [1, 2, 2]},
        {"kernel_shape": [5, 1, 1]},
    ],
)
def test_pools(options: dict[str, Any]) -> None:
    compare([node("MaxPool", "x", "y", **options)], SHAPE)
    for include in (0, 1):
        compare([node("AveragePool", "x", "y", count_include_pad=include, **options)], SHAPE)


def test_pools_with_dilations() -> None:
    compare([node("MaxPool", "x", "y", kernel_shape=[2, 2, 2], dilations=[3, 2, 1])], SHAPE)


def test_a_classifier_of_volumes() -> None:
    """Also as a secure run."""
    nodes = [
        node("Conv", "x w", "c", pads=[1] * 6),
        node("Relu", "c", "r"),
        node("MaxPool", "r", "m", kernel_shape=[2, 2, 2], strides=[2, 2, 2]),
        node("GlobalAveragePool", "m", "g"),
        node("Flatten", "g", "f"),
        node("Gemm", "f v", "y"),
    ]
    samples = floats(40, 1, 6, 6, 6)
    proto = model(nodes, ("N", 1, 6, 6, 6), {"w": floats(4, 1, 3, 3, 3), "v": floats(4, 3)})
    found = pronghorn.load(proto, samples=samples).verify(floats(4, 1, 6, 6, 6), trust="client-aided", outputs="values")
    assert found.disagreements == 0


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ((2, 2, 2), {"strides": [2, 2, 2]}),
        ((3, 3, 3), {"strides": [2, 2, 2], "pads": [1] * 6, "output_padding": [1, 1, 1]}),
        ((3, 2, 1), {"strides": [1, 2, 3], "pads": [2, 0, 0, 1, 1, 0]}),
        ((2, 3, 2), {"strides": [2, 1, 1], "dilations": [1, 2, 3]}),
        ((4, 4, 4), {"strides": [2, 2, 2], "auto_pad": "SAME_UPPER"}),
        ((1, 1, 1), {}),
    ],
)
@pytest.mark.parametrize("group", [1, 2])
def test_transposed_convolutions(kernel: tuple[int, ...], options: dict[str, Any], group: int) -> None:
    constants = {"w": floats(4, 6 // group, *kernel), "b": floats(6)}
    compare([node("ConvTranspose", "x w b", "y", group=group, **options)], ("N", 4, 3, 4, 2), constants)


@pytest.mark.parametrize("position", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("scales", [(2, 2, 2), (3, 1, 1), (1, 2, 1.5), (0.5, 0.5, 2), (2, 1, 4)])
def test_interpolation(position: str, scales: tuple[float, ...]) -> None:
    constants = {"s": np.array([1, 1, *scales], np.float32)}
    options = {"mode": "linear", "coordinate_transformation_mode": position}
    compare([node("Resize", "x - s", "y", **options)], ("N", 2, 4, 6, 2), constants)


def test_a_volume_of_one_slice() -> None:
    constants = {"s": np.array([1, 1, 3, 2, 2], np.float32), "w": floats(2, 3, 2, 2, 2)}
    compare([node("Resize", "x - s", "y", mode="linear")], ("N", 2, 1, 3, 4), constants)
    compare([node("ConvTranspose", "x w", "y", strides=[2, 2, 2])], ("N", 2, 1, 3, 1), constants)


def test_a_segmentation_of_volumes() -> None:
    """Also as a secure run: down, up, and beside what was there before."""
    nodes = [
        node("Conv", "x w", "c", pads=[1] * 6),
        node("Relu", "c", "r"),
        node("MaxPool", "r", "m", kernel_shape=[2, 2, 2], strides=[2, 2, 2]),
        node("ConvTranspose", "m u", "t", strides=[2, 2, 2]),
        node("Resize", "m - s", "i", mode="linear"),
        node("Concat", "t i r", "j", axis=1),
        node("Conv", "j v", "y"),
    ]
    weights = {"w": floats(3, 1, 3, 3, 3), "u": floats(3, 2, 2, 2, 2), "v": floats(2, 8, 1, 1, 1)}
    proto = model(nodes, ("N", 1, 4, 4, 6), weights | {"s": np.array([1, 1, 2, 2, 2], np.float32)})
    network, images = pronghorn.load(proto, samples=floats(40, 1, 4, 4, 6)), floats(3, 1, 4, 4, 6)
    found = network.verify(images, outputs="values")
    assert found.disagreements == 0


def test_four_dimensions_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="3 by Conv, ConvTranspose, MaxPool, AveragePool and Resize"):
        import_onnx(model([node("Conv", "x w", "y")], (*SHAPE, 3), {"w": floats(4, 4, 1, 1, 1, 1)}))


@pytest.mark.parametrize("options", [{"size": 5}, {"size": 3, "alpha": 0.5, "beta": 0.5, "bias": 2.0}, {"size": 1}])
def test_local_response_normalisations(options: dict[str, Any]) -> None:
    compare([node("LRN", "x", "y", **options)], ("N", 6, 4, 5))


@pytest.mark.parametrize("squares", [node("Mul", "h h", "s"), node("Pow", "h two", "s")])
def test_what_torch_writes_for_them(squares: onnx.NodeProto) -> None:
    nodes = [
        node("Relu", "x", "h"),
        squares,
        node("Reshape", "s cube", "r"),
        node("Pad", "r pads", "q"),
        node("AveragePool", "q", "p", kernel_shape=[3, 1, 1]),
        node("Squeeze", "p one", "o"),
        node("Mul", "o alpha", "m"),
        node("Add", "m k", "a"),
        node("Pow", "a beta", "d"),
        node("Div", "h d", "y"),
    ]
    numbers = {"two": 2.0, "alpha": 1e-1, "k": 1.0, "beta": 0.75}
    shapes = {"cube": [0, 1, 2, 6, 6], "pads": [0, 0, 1, 0, 0, 0, 0, 1, 0, 0], "one": [1]}
    constants: dict[str, Any] = {name: np.float32(number) for name, number in numbers.items()}
    constants |= {name: np.array(shape) for name, shape in shapes.items()}
    compare(nodes, ("N", 2, 6, 6), constants)
