"""Models that are one chain of layers: imported without onnxslim, to the same graph."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import EXAMPLE
from helpers import floats, model, node
from pronghorn.onnx import import_onnx, importer


@pytest.mark.parametrize("path", [EXAMPLE / "cryptonets_relu.onnx", EXAMPLE / "gazelle_mnist_d.onnx"], ids=str)
def test_a_chain_is_imported_without_onnxslim_to_the_same_graph(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(importer, "_is_chain", lambda proto: False)
        slimmed = import_onnx(path)
    monkeypatch.setitem(sys.modules, "onnxslim", None)
    found = import_onnx(path)
    assert found.graph_json == slimmed.graph_json
    assert found.tensors.keys() == slimmed.tensors.keys()
    assert all(np.array_equal(found.tensors[name], slimmed.tensors[name]) for name in found.tensors)


def test_branches_shapes_and_constants_are_no_chain() -> None:
    relu, weights = node("Relu", "x", "a"), {"w": floats(4)}
    assert importer._is_chain(model([relu, node("Add", "a w", "y")], (1, 4), weights))
    assert not importer._is_chain(model([relu, node("Add", "a x", "y")], (1, 4)))
    assert not importer._is_chain(model([relu, node("Add", "a a", "y")], (1, 4)))
    folded = [node("Abs", "w", "v"), node("Add", "x v", "y")]
    assert not importer._is_chain(model(folded, (1, 4), weights))
    assert not importer._is_chain(model([node("Shape", "x", "y")], (1, 4)))
