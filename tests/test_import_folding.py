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


@pytest.mark.parametrize(
    "source",
    [EXAMPLE / "cryptonets_relu.onnx", EXAMPLE / "gazelle_mnist_d.onnx", residual()],
    ids=["c", "d", "residual"],
)
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
