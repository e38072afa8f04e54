"""Interpolation of images, compared with onnxruntime, and in secret."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pronghorn
from helpers import check, floats, model, node
from pronghorn.onnx import ImportedModel

COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


def resized(sizes: list[int], opset: int = 18, **attributes: object) -> ImportedModel:
    """Of an image of 5 x 4 places."""
    nodes = [node("Relu", "x", "r"), node("Resize", "r - - z", "y", **attributes)]
    imported = check(model(nodes, ("N", 2, 5, 4), {"z": np.array([1, 2, *sizes])}, opset=opset))
    assert imported.output_shape == (2, *sizes)
    return imported


def convolutions(imported: ImportedModel) -> list[tuple[int, ...]]:
    ops = [entry["op"] for entry in json.loads(imported.graph_json)["nodes"]]
    return [imported.tensors[op["weight"]].shape for op in ops if op["kind"] == "conv"]


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize(
    "sizes", [[10, 8], [15, 4], [5, 12], [7, 6], [9, 7], [13, 11], [3, 2], [1, 8], [2, 1], [20, 3], [40, 64]]
)
def test_sizes(coordinates: str, mode: str, sizes: list[int]) -> None:
    resized(sizes, mode=mode, coordinate_transformation_mode=coordinates)


def test_a_whole_factor_is_one_small_convolution() -> None:
    assert convolutions(resized([10, 8], mode="linear")) == [(2 * 4, 1, 3, 3)]
    assert convolutions(resized([15, 12], mode="linear", coordinate_transformation_mode="asymmetric")) == [
        (18, 1, 2, 2)
    ]
    assert convolutions(resized([10, 4], mode="linear")) == [(4, 1, 3, 1)]
    # Many phases are made one axis after the other.
    shapes = convolutions(resized([40, 33], mode="linear", coordinate_transformation_mode="align_corners"))
    assert shapes == [(2 * 32, 1, 1, 4), (2 * 39, 1, 5, 1)]


@pytest.mark.parametrize("coordinates", [*COORDINATES, "half_pixel_symmetric"])
@pytest.mark.parametrize("scales", [[2, 2], [1.5, 3], [0.5, 0.25], [4 / 3, 5 / 3], [1.3, 1.6], [1, 2.7]])
def test_scales(coordinates: str, scales: list[float]) -> None:
    # onnxruntime knows half_pixel_symmetric where it is half_pixel.
    whole = all((np.float32(s) * size).is_integer() for s, size in zip(scales, (6, 4), strict=True))
    attributes = {"mode": "linear", "coordinate_transformation_mode": coordinates}
    if coordinates == "half_pixel_symmetric" and not whole:
        pytest.skip("not a whole size")
    opset = 19 if coordinates == "half_pixel_symmetric" else 13
    nodes = [node("Relu", "x", "r"), node("Resize", "r - s", "y", **attributes)]
    check(model(nodes, ("N", 3, 6, 4), {"s": np.float32([1, 1, *scales])}, opset=opset))


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_one_dimension(coordinates: str) -> None:
    nodes = [node("Resize", "x - - z", "y", mode="linear", coordinate_transformation_mode=coordinates)]
    for size in (1, 3, 7, 12, 18):
        check(model(nodes, ("N", 3, 6), {"z": np.array([1, 3, size])}))


@pytest.mark.parametrize("opset", [9, 10])
def test_old_versions(opset: int) -> None:
    kind = "Upsample" if opset == 9 else "Resize"
    check(model([node(kind, "x s", "y", mode="linear")], (1, 2, 3, 4), {"s": np.float32([1, 1, 2, 3])}, opset=opset))


def test_cubic_coefficients() -> None:
    for slope in (-0.5, -0.75):
        resized([10, 9], mode="cubic", cubic_coeff_a=slope)


@given(
    size=st.integers(1, 9),
    result=st.integers(1, 30),
    coordinates=st.sampled_from(COORDINATES),
    mode=st.sampled_from(["linear", "cubic"]),
)
def test_random_sizes(size, result, coordinates, mode) -> None:  # noqa: ANN001
    nodes = [node("Resize", "x - - z", "y", mode=mode, coordinate_transformation_mode=coordinates)]
    check(model(nodes, ("N", 2, 3, size), {"z": np.array([1, 2, 3, result])}))


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners"])
def test_a_network_equals_the_oracle(coordinates: str, trust: str) -> None:
    """What a segmentation network does: from a small map back to the image's size."""
    nodes = [
        node("Conv", "x w", "c", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("Resize", "r - s", "u", mode="linear", coordinate_transformation_mode=coordinates),
        node("Relu", "u", "q"),
        node("Conv", "q v", "y"),
    ]
    constants = {"w": floats(4, 2, 3, 3) / 4, "v": floats(2, 4, 3, 3) / 4, "s": np.float32([1, 1, 2, 2])}
    images = floats(24, 2, 8, 8)
    network = pronghorn.load(model(nodes, ("N", 2, 8, 8), constants), samples=images)
    report = network.verify(images[:3], trust=trust)
    assert report.disagreements == 0
    assert math.isfinite(report.expected_error)
    assert report.expected_error < 0.1


@pytest.mark.parametrize(("mode", "size", "scale"), [("linear", 2, 0.75), ("linear", 4, 0.4), ("nearest", 3, 0.5)])
def test_one_place_that_is_left(mode: str, size: int, scale: float) -> None:
    """It has the first place's value, whatever the part is that is cut off."""
    options = {"mode": mode, "coordinate_transformation_mode": "pytorch_half_pixel"}
    constants = {"s": np.array([1, 1, 1, scale], np.float32)}
    check(model([node("Resize", "x - s", "y", **options)], ("N", 2, 3, size), constants))
