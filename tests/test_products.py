"""Products, maxima and minima of values: imported, and run at both levels of fixed point."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import numpy_helper

import pronghorn
from helpers import check, floats, model, node
from pronghorn import UnsupportedModelError
from pronghorn.onnx import ImportedModel, import_onnx

IMAGE = ("N", 3, 4, 5)
GATE = node("GlobalAveragePool", "x", "g")
ROWS = node("AveragePool", "x", "g", kernel_shape=[1, 5])


def kinds(imported: ImportedModel) -> list[str]:
    return [entry["op"]["kind"] for entry in json.loads(imported.graph_json)["nodes"]]


@pytest.mark.parametrize("makers", [[GATE], [ROWS]])
@pytest.mark.parametrize("inputs", ["x g", "g x"])
def test_products_are_broadcast(makers: list, inputs: str) -> None:
    imported = check(model([*makers, node("Mul", inputs, "y")], IMAGE))
    assert kinds(imported)[-1] == "multiply"
    assert imported.output_shape == (3, 4, 5)


def test_both_factors_are_broadcast() -> None:
    nodes = [GATE, node("MaxPool", "x", "p", kernel_shape=[4, 1]), node("Mul", "g p", "y")]
    assert check(model(nodes, IMAGE)).output_shape == (3, 1, 5)


def test_fewer_dimensions_take_a_fixed_batch() -> None:
    nodes = [node("Flatten", "x", "f"), node("Slice", "f a b c", "s"), node("Mul", "x s", "y")]
    constants = {"a": np.array([0]), "b": np.array([5]), "c": np.array([1])}
    check(model(nodes, (1, 3, 4, 5), constants))
    with pytest.raises(UnsupportedModelError, match="not broadcast") as error:
        import_onnx(model(nodes, IMAGE, constants))
    assert "same number of dimensions" in str(error.value)


@pytest.mark.parametrize("kind", ["Add", "Sub", "Max", "Min"])
@pytest.mark.parametrize("makers", [[GATE], [ROWS], [node("Neg", "x", "g")]])
def test_other_operators_of_values(kind: str, makers: list) -> None:
    check(model([*makers, node(kind, "x g", "y")], IMAGE))
    check(model([*makers, node(kind, "g x", "y")], IMAGE))


@pytest.mark.parametrize("kind", ["Max", "Min"])
def test_maxima_and_minima(kind: str) -> None:
    check(model([node(kind, "x", "y")], IMAGE))
    check(model([node(kind, "x x", "y")], IMAGE))
    check(model([GATE, node("Neg", "x", "n"), node(kind, "x g n", "y")], IMAGE))
    imported = check(model([node(kind, "x c", "y")], IMAGE, {"c": floats(3, 1, 1)}))
    assert kinds(imported) == ["input", "affine", "relu", "affine"]
    constants = {"c": floats(4, 5), "d": np.float32(0.25)}
    check(model([node("Neg", "x", "n"), node(kind, "c x d n", "y")], IMAGE, constants))


@pytest.mark.parametrize("kind", ["Mul", "Add", "Max"])
def test_shapes_that_do_not_fit_are_refused(kind: str) -> None:
    nodes = [node("MaxPool", "x", "p", kernel_shape=[2, 2]), node(kind, "x p", "y")]
    with pytest.raises(UnsupportedModelError, match="not broadcast") as error:
        import_onnx(model(nodes, IMAGE))
    assert (error.value.node, error.value.operator) == ("node_y", kind)


def gated(kind: str) -> tuple[list, dict[str, np.ndarray]]:
    """A network with a squeeze-and-excitation block, as exporters write it, or with another product."""
    constants = {
        "w": floats(6, 3, 3, 3) / 4,
        "b": floats(6),
        "v": floats(4, 6, 3, 3) / 4,
        "s": floats(3, 6, 1, 1),
        "sb": floats(3) + 1,
        "e": floats(6, 3, 1, 1),
        "eb": floats(6),
    }
    excited = [
        node("Conv", "m s sb", "q"),
        node("Relu", "q", "qr"),
        node("Conv", "qr e eb", "z"),
        node("HardSigmoid", "z", "g", alpha=1 / 6, beta=0.5),
    ]
    between = {
        "pool": [node("GlobalAveragePool", "r", "m"), *excited, node("Mul", "r g", "d")],
        "mean": [node("ReduceMean", "r", "m", axes=[2, 3], keepdims=1), *excited, node("Mul", "g r", "d")],
        "equal": [node("Conv", "x t", "l", pads=[1, 1, 1, 1]), node("Relu", "l", "g"), node("Mul", "r g", "d")],
        "layers": [node("Conv", "x t", "l", pads=[1, 1, 1, 1]), node("Mul", "c l", "d")],
        "maximum": [node("Conv", "x t", "l", pads=[1, 1, 1, 1]), node("Max", "c l", "d")],
        "minimum": [node("GlobalAveragePool", "r", "m"), node("Min", "r m", "d")],
        "cube": [node("Pow", "c three", "d")],
    }[kind]
    constants |= {"t": floats(6, 3, 3, 3) / 4, "three": np.float32(3)}
    first = [node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r")]
    nodes = [*first, *between, node("Conv", "d v", "y", strides=[2, 2])]
    used = {name for each in nodes for name in each.input}
    return nodes, {name: value for name, value in constants.items() if name in used}


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
@pytest.mark.parametrize("kind", ["pool", "mean", "equal", "layers", "maximum", "minimum", "cube"])
def test_networks_equal_the_oracle(kind: str, trust: str) -> None:
    nodes, constants = gated(kind)
    images = floats(24, 3, 8, 8)
    network = pronghorn.load(model(nodes, ("N", 3, 8, 8), constants), samples=images)
    report = network.verify(images[:3], trust=trust)
    assert report.disagreements == 0
    assert report.expected_error < 0.15


@pytest.mark.parametrize("trust", ["two-party", "client-aided", "encrypted"])
def test_polynomial_features_are_one_product(trust: str) -> None:
    """As scikit-learn exports them: a product for each pair of columns, and a column of ones."""
    columns, random = 5, np.random.default_rng(7)
    pairs = [(a, b) for a in range(columns) for b in range(a, columns)]
    names, nodes, constants = [], [], dict[str, np.ndarray]()
    for at, chosen in enumerate([*((a,) for a in range(columns)), *pairs]):
        constants[f"k{at}"] = np.array(chosen)
        nodes.append(node("Gather", f"x k{at}", f"c{at}", axis=1))
        nodes.append(node("ReduceProd", f"c{at}", f"p{at}", axes=[1]))
        names.append(f"p{at}")
    nodes += [
        node("Shape", "p0", "shape"),
        node("ConstantOfShape", "shape", "ones", value=numpy_helper.from_array(np.ones(1, np.float32))),
        node("Concat", f"ones {' '.join(names)}", "all", axis=1),
        node("Gemm", "all w", "y"),
    ]
    proto = model(
        nodes, ("N", columns), constants | {"w": random.standard_normal((1 + len(names), 2)).astype(np.float32) / 8}
    )
    check(proto)
    samples = random.standard_normal((64, columns)).astype(np.float32)
    network = pronghorn.load(proto, samples=samples)
    report = network.verify(samples[:4], trust=trust)
    assert report.disagreements == 0
    assert report.expected_error < 0.06
    steps = json.loads(network.plan(trust=trust).to_json())["steps"]
    assert len(steps) < 12
