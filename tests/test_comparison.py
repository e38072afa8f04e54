"""The imported network is compared with the file before the first plan: a fault of the import is not silent."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
from onnx import ModelProto

import pronghorn
from helpers import floats, model, node
from pronghorn import PrecisionWarning, UnsupportedModelError, multikey
from pronghorn._model.model import Model

SAMPLES = floats(40, 6)
WEIGHTS = {"w": floats(6, 3), "b": floats(3), "many": np.float32(1e-6)}


def network(last: str = "Relu") -> ModelProto:
    return model([node("Gemm", "x w b", "h"), node(last, "h", "y")], ("N", 6), {k: WEIGHTS[k] for k in "wb"})


def mixed_up(imported: ModelProto, file: ModelProto, samples: np.ndarray | None = SAMPLES) -> Model:
    """A model as if one file had been read as another."""
    read, loaded = pronghorn.load(imported, samples=samples), pronghorn.load(file)
    wrong = dataclasses.replace(read._imported, reference=loaded._imported.reference)
    return Model(wrong, read._native, read._options)


@pytest.mark.parametrize("samples", [SAMPLES, None])
def test_another_network_is_refused(samples: np.ndarray | None) -> None:
    wrong = mixed_up(network(), network("Neg"), samples)
    for _ in range(2):
        with pytest.raises(UnsupportedModelError, match=r"differs from onnxruntime's by \d[\s\S]*report it"):
            wrong.plan()
    with pytest.raises(UnsupportedModelError, match="differs from onnxruntime"):
        wrong.verify(SAMPLES[:2])


def test_other_weights_are_told() -> None:
    file = network("Identity")
    other = model([node("Gemm", "x w b", "y")], ("N", 6), {"w": WEIGHTS["w"] + 0.1 * floats(6, 3), "b": WEIGHTS["b"]})
    wrong = mixed_up(other, file)
    with pytest.warns(PrecisionWarning, match="differs from onnxruntime"):
        wrong.plan()
    # Once is enough, and other samples may show more.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrong.plan(trust="client-aided")
    with pytest.warns(PrecisionWarning, match="differs from onnxruntime"):
        wrong.calibrated(2 * SAMPLES).plan()


def test_a_small_output_beside_a_large_one_counts() -> None:
    def both(last: str) -> ModelProto:
        nodes = [node("Gemm", "x w", "h"), node("Mul", "h many", "s"), node("Gemm", "x w b", "y"), node(last, "s", "z")]
        return model(nodes, ("N", 6), WEIGHTS, outputs=["y", "z"])

    read = pronghorn.load(both("Relu"), samples=SAMPLES, output=["y", "z"])
    loaded = pronghorn.load(both("Neg"), output=["y", "z"])
    wrong = dataclasses.replace(read._imported, reference=loaded._imported.reference)
    with pytest.raises(UnsupportedModelError, match="differs from onnxruntime"):
        Model(wrong, read._native, read._options).plan()


def test_keys_of_several_parties_are_for_the_file_alone() -> None:
    wrong = mixed_up(network("Neg"), network("Identity"))
    with pytest.raises(UnsupportedModelError, match="differs from onnxruntime"):
        multikey.MultiKeyPlan(wrong)


def test_without_a_runtime_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise ImportError("No module named 'onnxruntime'")

    monkeypatch.setattr("pronghorn._model.comparison.session", absent)
    mixed_up(network(), network("Neg")).plan()
