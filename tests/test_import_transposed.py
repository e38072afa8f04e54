"""Transposed convolutions, compared with onnxruntime, and in secret."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pronghorn
from helpers import check, floats, model, node
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import ImportedModel, import_onnx


def convolutions(imported: ImportedModel) -> list[tuple[int, ...]]:
    """The shapes of all convolutions' weights."""
    ops = [entry["op"] for entry in json.loads(imported.graph_json)["nodes"]]
    return [imported.tensors[op["weight"]].shape for op in ops if op["kind"] == "conv"]


@pytest.mark.parametrize(
    ("kernel", "stride", "pads", "shape"),
    [
        (4, 2, 1, (12, 2, 2, 2)),
        (3, 2, 1, (12, 2, 2, 2)),
        (2, 2, 0, (12, 2, 1, 1)),
        (3, 1, 1, (3, 2, 3, 3)),
        (2, 3, 0, (27, 2, 1, 1)),
    ],
)
def test_no_product_with_an_inserted_zero(kernel: int, stride: int, pads: int, shape: tuple[int, ...]) -> None:
    attributes = {"strides": [stride] * 2, "pads": [pads] * 4}
    weights = {"w": floats(2, 3, kernel, kernel), "b": floats(3)}
    imported = check(model([node("ConvTranspose", "x w b", "y", **attributes)], ("N", 2, 5, 6), weights))
    assert convolutions(imported) == [shape]


def test_one_place_becomes_a_product_with_a_matrix() -> None:
    """The first layer of a generator of images."""
    imported = check(model([node("ConvTranspose", "x w", "y")], ("N", 7, 1, 1), {"w": floats(7, 3, 4, 4)}))
    assert convolutions(imported) == [(48, 7, 1, 1)]
    assert imported.output_shape == (3, 4, 4)


@settings(max_examples=150)
@given(
    axes=st.sampled_from([1, 2]),
    groups=st.sampled_from([1, 2]),
    bias=st.booleans(),
    data=st.data(),
)
def test_random_transposed_convolutions(axes, groups, bias, data) -> None:  # noqa: ANN001
    def draw(least: int, most: int) -> list[int]:
        return data.draw(st.lists(st.integers(least, most), min_size=axes, max_size=axes))

    size, kernel, strides, dilations = draw(1, 5), draw(1, 4), draw(1, 4), draw(1, 3)
    pads, extra = [*draw(0, 3), *draw(0, 3)], [data.draw(st.integers(0, stride - 1)) for stride in strides]
    spans = [dilations[i] * (kernel[i] - 1) + 1 for i in range(axes)]
    results = [strides[i] * (size[i] - 1) + extra[i] + spans[i] - pads[i] - pads[i + axes] for i in range(axes)]
    assume(min(results) >= 1)
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": extra, "group": groups}
    weights = {"w": floats(4, 3, *kernel)} | ({"b": floats(3 * groups)} if bias else {})
    inputs = "x w b" if bias else "x w"
    # Padding may cut away all that the input reaches: then the result is no function of it.
    proto = model([node("ConvTranspose", inputs, "y", **attributes)], (1, 4, *size), weights)
    try:
        check(proto)
    except UnsupportedModelError as error:
        assert "every dimension must be at least 1" in str(error)  # noqa: PT017


@pytest.mark.parametrize("auto_pad", ["VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kernel", [3, 4, 5])
def test_auto_pad(auto_pad: str, kernel: int) -> None:
    attributes = {"strides": [2, 3], "auto_pad": auto_pad}
    check(model([node("ConvTranspose", "x w", "y", **attributes)], (1, 2, 4, 5), {"w": floats(2, 3, kernel, kernel)}))


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER"])
@pytest.mark.parametrize("size", [[8, 14], [9, 15]])
def test_output_shape(auto_pad: str, size: list[int]) -> None:
    attributes = {"strides": [2, 3], "auto_pad": auto_pad, "output_shape": size}
    imported = check(model([node("ConvTranspose", "x w", "y", **attributes)], (1, 2, 4, 5), {"w": floats(2, 3, 4, 4)}))
    assert imported.output_shape == (3, *size)


def test_huge_attributes_are_refused() -> None:
    for attributes in ({"strides": [1 << 24, 1]}, {"dilations": [1 << 24, 1]}, {"strides": [1 << 14, 1 << 14]}):
        with pytest.raises(UnsupportedModelError):
            import_onnx(
                model([node("ConvTranspose", "x w", "y", **attributes)], (1, 2, 2, 2), {"w": floats(2, 1, 2, 2)})
            )


def test_batch_normalization_becomes_part_of_it() -> None:
    constants = {"w": floats(2, 3, 4, 4), "b": floats(6)}
    constants |= {name: np.abs(floats(6)) + np.float32(0.1) for name in ("scale", "mean", "variance")}
    nodes = [
        node("ConvTranspose", "x w b", "c", strides=[2, 2], pads=[1, 1, 1, 1], group=2),
        node("BatchNormalization", "c scale b mean variance", "n"),
        node("Relu", "n", "y"),
    ]
    imported = check(model(nodes, ("N", 2, 4, 5), constants))
    assert '"affine"' not in imported.graph_json
    # Not where another node reads the convolution, nor with a bias that is missing.
    check(model([*nodes[:2], node("Add", "n c", "y")], ("N", 2, 4, 5), constants))
    nodes[0] = node("ConvTranspose", "x w", "c", strides=[2, 2], group=2)
    assert '"affine"' not in check(model(nodes, ("N", 2, 4, 5), constants)).graph_json


def test_the_file_keeps_its_weights_beside_those_made_of_them() -> None:
    """A value may have the name of the module whose weights it is made with."""
    constants = {"up.weight": floats(2, 2, 2, 2), "up.bias": floats(2)}
    constants |= {name: np.abs(floats(2)) + np.float32(0.1) for name in ("scale", "shift", "mean", "variance")}
    nodes = [
        node("ConvTranspose", "x up.weight up.bias", "c", strides=[2, 2]),
        node("BatchNormalization", "c scale shift mean variance", "up"),
        node("ConvTranspose", "up up.weight up.bias", "y", strides=[2, 2]),
    ]
    check(model(nodes, ("N", 2, 3, 4), constants))


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
@pytest.mark.parametrize("kernel", [3, 4])
def test_a_decoder_equals_the_oracle(kernel: int, trust: str) -> None:
    constants = {
        "w": floats(4, 2, 3, 3) / 4,
        "t": floats(4, 3, kernel, kernel) / 4,
        "b": floats(3),
        "v": floats(2, 3, 3, 3) / 4,
    }
    nodes = [
        node("Conv", "x w", "c", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("ConvTranspose", "r t b", "u", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[kernel % 2] * 2),
        node("Relu", "u", "s"),
        node("Conv", "s v", "y"),
    ]
    images = floats(24, 2, 8, 8)
    network = pronghorn.load(model(nodes, ("N", 2, 8, 8), constants), samples=images)
    report = network.verify(images[:3], trust=trust)
    assert report.disagreements == 0
    assert report.expected_error < 0.1
