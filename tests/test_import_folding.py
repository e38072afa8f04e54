"""Models without constants to fold: imported without onnxslim, to the same graph."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest

from conftest import EXAMPLE
from helpers import floats, model, node
from pronghorn.onnx import import_onnx, importer
from pronghorn.onnx.reading import Source


def residual() -> onnx.ModelProto:
    nodes = [
        node("Constant", "", "one", value_float=1.0),
        node("Identity", "w", "v"),
        node("Add", "x v", "a"),
        node("Relu", "a", "b"),
        node("Add", "a b", "c"),
        node("Mul", "c one", "y"),
    ]
    return model(nodes, (1, 4), {"w": floats(4), "unread": floats(4)})


def two_classes(one: onnx.NodeProto) -> onnx.ModelProto:
    """The probabilities of both classes, from that of one."""
    nodes = [one, node("Sigmoid", "x", "p"), node("Sub", "one p", "q"), node("Concat", "q p", "y", axis=1)]
    return model(nodes, (1, 1), {"w": np.ones(1, np.float32)})


def gelu() -> onnx.ModelProto:
    """A GELU whose constants are lists of one."""
    nodes = [
        *(node("Constant", "", name, value_floats=[x]) for name, x in [("r", 2**0.5), ("one", 1.0), ("half", 0.5)]),
        node("Div", "x r", "a"),
        node("Erf", "a", "b"),
        node("Add", "b one", "c"),
        node("Mul", "x c", "d"),
        node("Mul", "d half", "y"),
    ]
    return model(nodes, (1, 4))


def layer_norm() -> onnx.ModelProto:
    """A LayerNormalization over rows, whose exponent and small number are Constants."""
    nodes = [
        node("Constant", "", "two", value_floats=[2.0]),
        node("Constant", "", "small", value_float=1e-5),
        node("ReduceMean", "x", "m", axes=[-1]),
        node("Sub", "x m", "a"),
        node("Pow", "a two", "b"),
        node("ReduceMean", "b", "c", axes=[-1]),
        node("Add", "c small", "d"),
        node("Sqrt", "d", "e"),
        node("Div", "a e", "f"),
        node("Mul", "f w", "y"),
    ]
    return model(nodes, (1, 3, 4), {"w": floats(4)})


SOURCES: dict[str, Source] = {
    "c": EXAMPLE / "cryptonets_relu.onnx",
    "d": EXAMPLE / "gazelle_mnist_d.onnx",
    "residual": residual(),
    "one_float": two_classes(node("Constant", "", "one", value_float=1.0)),
    "one_tensor": two_classes(node("Constant", "", "one", value=onnx.numpy_helper.from_array(np.float32(1)))),
    "one_identity": two_classes(node("Identity", "w", "one")),
    "gelu": gelu(),
    "layer_norm": layer_norm(),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_a_folded_model_is_imported_without_onnxslim_to_the_same_graph(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(importer, "_is_folded", lambda proto: False)
        slimmed = import_onnx(source)
    monkeypatch.setitem(sys.modules, "onnxslim", None)
    found = import_onnx(source)
    assert found.graph_json == slimmed.graph_json
    assert found.reference == slimmed.reference
    assert found.tensors.keys() == slimmed.tensors.keys()
    assert all(np.array_equal(found.tensors[name], slimmed.tensors[name]) for name in found.tensors)


def test_computed_constants_and_shapes_are_folded() -> None:
    relu, weights = node("Relu", "x", "a"), {"w": floats(4)}
    assert importer._is_folded(model([relu, node("Add", "a w", "y")], (1, 4), weights))
    assert importer._is_folded(model([relu, node("Add", "a x", "y")], (1, 4)))
    for kind, wanted in [("Identity", True), ("Abs", False)]:
        nodes = [node(kind, "w", "v"), node("Add", "x v", "y")]
        assert importer._is_folded(model(nodes, (1, 4), weights)) == wanted
    assert not importer._is_folded(model([node("Shape", "x", "y")], (1, 4)))


def test_the_callers_model_stays_as_it_is() -> None:
    given = residual()
    before = given.SerializeToString()
    import_onnx(given)
    assert given.SerializeToString() == before


def test_many_elements_along_an_axis() -> None:
    """The onnx package evaluates this for axes of fewer than 64 places alone."""
    places = np.arange(70)[::-1].reshape(1, 70).copy()
    nodes = [node("GatherElements", "w i", "c", axis=1), node("Add", "x c", "y")]
    weights = floats(1, 70)
    imported = import_onnx(model(nodes, (1, 70), {"w": weights, "i": places}))
    (added,) = imported.tensors.values()
    np.testing.assert_array_equal(np.ravel(added), np.ravel(weights)[::-1])
