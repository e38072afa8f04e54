"""Constants beside values: concatenated, broadcast, chosen. Compared with onnxruntime, and in secret."""

from __future__ import annotations

import itertools
import json

import numpy as np
import onnx
import pytest

import pronghorn
from helpers import check, floats, model, node
from pronghorn.onnx import ImportedModel

IMAGE = ("N", 3, 4, 5)


def kinds(imported: ImportedModel) -> list[str]:
    return [entry["op"]["kind"] for entry in json.loads(imported.graph_json)["nodes"]]


@pytest.mark.parametrize(
    "inputs", [i for n in (2, 3, 4) for i in itertools.product("xrcd", repeat=n) if {*i} & {*"xr"}]
)
def test_concatenations(inputs: tuple[str, ...]) -> None:
    constants = {name: floats(1, 3, size, 5) for name, size in (("c", 1), ("d", 2)) if name in inputs}
    nodes = [node("Relu", "x", "r"), node("Concat", " ".join(inputs), "y", axis=2)]
    check(model(nodes, IMAGE, constants))


@pytest.mark.parametrize("axis", [1, 2, 3, -1])
def test_axes_of_concatenations(axis: int) -> None:
    shape = [1, 3, 4, 5]
    shape[axis] = 2
    check(model([node("Concat", "c x c", "y", axis=axis)], IMAGE, {"c": floats(*shape)}))


def test_zeros_are_no_layer() -> None:
    imported = check(model([node("Concat", "x c", "y", axis=1)], IMAGE, {"c": np.zeros((1, 2, 4, 5), np.float32)}))
    assert kinds(imported) == ["input", "pad"]


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (3, 4, 1), (4, 1), (1, 1, 1, 2)])
def test_values_are_broadcast_to_constants(kind: str, shape: tuple[int, ...]) -> None:
    constants = {"c": np.abs(floats(*shape)) + np.float32(0.5)}
    check(model([node(kind, "x c", "y")], ("N", 3, 1, 1), constants))
    if kind != "Div":
        check(model([node(kind, "c x", "y")], ("N", 3, 1, 1), constants))


@pytest.mark.parametrize("shape", [(3, 4, 5), (5,), (1, 3, 1, 1), (4, 1), (1, 1, 1, 1)])
@pytest.mark.parametrize("inputs", ["x c", "c x", "x r", "p x", "x p"])
def test_fixed_choices(shape: tuple[int, ...], inputs: str) -> None:
    constants = {"b": floats(*shape) > 0, "c": floats(4, 5)}
    nodes = [node("Relu", "x", "r"), node("GlobalAveragePool", "x", "p"), node("Where", f"b {inputs}", "y")]
    check(model(nodes, IMAGE, constants if "c" in inputs else {"b": constants["b"]}))


def test_what_is_not_chosen_may_be_infinite() -> None:
    chosen = np.array([True, False, True])
    constants = {"b": chosen, "c": np.where(chosen, np.inf, 2).astype(np.float32)}
    check(model([node("Where", "b x c", "y")], ("N", 3), constants))


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
@pytest.mark.parametrize("kind", ["token", "coordinates", "stretched", "chosen", "masked"])
def test_networks_equal_the_oracle(kind: str, trust: str) -> None:
    first = [node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r")]
    between, channels = {
        "token": ([node("Concat", "k r", "d", axis=2)], 4),
        "coordinates": ([node("Concat", "r e", "d", axis=1)], 6),
        "stretched": ([node("GlobalAveragePool", "r", "m"), node("Add", "m p", "d")], 4),
        "chosen": ([node("LeakyRelu", "c", "l"), node("Where", "t r l", "d")], 4),
        "masked": ([node("Where", "t r n", "d")], 4),
    }[kind]
    constants = {
        "w": floats(4, 2, 3, 3) / 4,
        "b": floats(4),
        "k": floats(1, 4, 1, 6),
        "e": floats(1, 2, 6, 6),
        "p": floats(1, 4, 6, 6),
        "t": floats(6, 6) > 0,
        "n": np.float32(-1),
        "v": floats(3, channels, 3, 3) / 4,
    }
    nodes = [*first, *between, node("Conv", "d v", "y")]
    used = {name for each in nodes for name in each.input}
    constants = {name: array for name, array in constants.items() if name in used}
    images = floats(24, 2, 6, 6)
    network = pronghorn.load(model(nodes, ("N", 2, 6, 6), constants), samples=images)
    report = network.verify(images[:3], trust=trust)
    assert report.disagreements == 0
    assert report.expected_error < 0.1


@pytest.mark.parametrize("size", [6, 7])
def test_pads_in_torchs_order(size: int) -> None:
    """Half of what is missing before and the rest after, last dimension first: torch turns the order round."""
    nodes = [
        node("Transpose", "x", "t", perm=[0, 3, 1, 2]),
        node("Shape", "t", "shape"),
        node("Gather", "shape two", "size", axis=0),
        node("Add", "size one", "more"),
        node("Div", "more two", "out"),
        node("Mul", "out two", "span"),
        node("Add", "span one", "end"),
        node("Sub", "end size", "missing"),
        node("Div", "missing two", "before"),
        node("Sub", "missing before", "after"),
        node("Unsqueeze", "before zero", "b"),
        node("Unsqueeze", "after zero", "a"),
        node("Concat", "b a b a none", "all", axis=0),
        node("Reshape", "all pairs", "rows"),
        node("Slice", "rows last first zero back", "turned"),
        node("Transpose", "turned", "columns", perm=[1, 0]),
        node("Reshape", "columns flat", "pads"),
        node("Pad", "t pads", "y"),
    ]
    constants = {"one": np.array(1), "two": np.array(2), "zero": np.array([0]), "none": np.zeros(4, np.int64)}
    constants |= {"pairs": np.array([-1, 2]), "flat": np.array([-1]), "back": np.array([-1])}
    constants |= {"last": np.array([-1]), "first": np.array([-(2**63) + 1])}
    padded = 2 * ((size + 1) // 2) + 1
    assert check(model(nodes, ("N", size, size, 2), constants)).output_shape == (2, padded, padded)


@pytest.mark.parametrize("shape", [("N", 3, 4, 5), ("N", 1, 4, 5), ("N", 6)])
def test_trained_signs_are_no_part_of_a_plan(shape: tuple[object, ...]) -> None:
    """A factor of -1 that the network's form gives is each party's own work. Trained ones that happen to be -1 stay a
    layer, as a plan would tell them."""
    channels = shape[1]
    sizes = (channels, *(1 for _ in shape[2:]))
    samples = floats(20, *shape[1:])

    def steps(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> str:
        behind = [node("Relu", "x", "r"), *nodes, node("Relu", "a", "y")]
        return str(pronghorn.load(model(behind, shape, constants), samples=samples).plan("two-party"))

    own = {"one": np.ones(1, np.float32)}
    assert "engine" not in steps([node("Sub", "one r", "a")], own)
    assert "engine" not in steps([node("Neg", "r", "n"), node("Add", "n one", "a")], own)
    trained = {"w": np.full(sizes, -1, np.float32), "b": floats(*sizes)}
    layer = [node("Mul", "r w", "m"), node("Add", "m b", "a")]
    assert "engine" in steps(layer, trained)
    parts = {"w": np.full(sizes, -0.5, np.float32), "v": np.full(sizes, 2, np.float32), "b": floats(*sizes)}
    assert "engine" in steps([node("Mul", "r w", "l"), node("Mul", "l v", "m"), layer[1]], parts)


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_the_sign_of_one_number_changes(trust: str) -> None:
    """A value of an image that has no dimension left."""
    nodes = [
        node("ReduceMax", "x", "r", axes=[1], keepdims=0),
        node("Neg", "r", "n"),
        node("Abs", "n", "a"),
        node("Sub", "one a", "y"),
    ]
    samples = floats(20, 4)
    loaded = pronghorn.load(model(nodes, ("N", 4), {"one": np.float32(1)}, opset=13), samples=samples)
    report = loaded.verify(samples[:2], trust=trust)
    assert report.disagreements == 0
    assert loaded.plan(trust).expected_error.error < 0.1
