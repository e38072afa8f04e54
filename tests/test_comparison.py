"""The imported network is compared with the file before the first plan: a fault of the import is not silent."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

import pronghorn
from helpers import floats, model, node
from pronghorn import PrecisionWarning, UnsupportedModelError, multikey
from pronghorn._model import comparison
from pronghorn._model.comparison import compare
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


@pytest.mark.parametrize("opening", ["values", "class"])
def test_classes_of_another_network_are_refused(opening: str) -> None:
    def scores(last: str) -> ModelProto:
        end = [] if opening == "class" else [node("ArgMax", "s", "y", axis=1)]
        nodes = [node("Gemm", "x w", "h"), node(last, "h", "s" if end else "y"), *end]
        kind = TensorProto.INT64 if end else TensorProto.FLOAT
        return model(nodes, ("N", 6), {"w": WEIGHTS["w"]}, output_dtype=kind)

    read = pronghorn.load(scores("Identity"), samples=SAMPLES, opening=opening)
    read.plan()
    file = pronghorn.load(scores("Neg"))._imported.reference
    wrong = Model(dataclasses.replace(read._imported, reference=file), read._native, read._options)
    with pytest.raises(UnsupportedModelError, match="other classes than onnxruntime's"):
        wrong.calibrated(SAMPLES).plan()


def test_results_of_another_size_are_refused() -> None:
    file = model([node("Gemm", "x w b", "h"), node("Concat", "h h", "y", axis=1)], ("N", 6), WEIGHTS)
    with pytest.raises(UnsupportedModelError, match="3 values for an input, and onnxruntime's 6"):
        mixed_up(network(), file).plan()


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


def cancelling(offset: float, last: str = "Identity") -> tuple[ModelProto, np.ndarray]:
    """A network of large inputs, whose products cancel but for their small differences, and samples of it."""
    random = np.random.default_rng(3)
    weight = random.standard_normal((64, 3)).astype(np.float32)
    bias = (-np.full(64, offset) @ weight).astype(np.float32)
    samples = (offset + random.standard_normal((64, 64))).astype(np.float32)
    nodes = [node("Gemm", "x w b", "h"), node(last, "h", "y")]
    return model(nodes, ("N", 64), {"w": weight, "b": bias}), samples


def test_rounding_where_large_numbers_cancel_is_no_fault() -> None:
    proto, samples = cancelling(1e6)
    loaded = pronghorn.load(proto, samples=samples)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(loaded._imported, loaded._native, samples, 1)


def test_rounding_excuses_no_other_network() -> None:
    """Where half of the results' spread is rounding, too."""
    proto, samples = cancelling(1e7)
    wrong = mixed_up(proto, cancelling(1e7, "Neg")[0], samples)
    with pytest.raises(UnsupportedModelError, match="differs from onnxruntime"):
        wrong.plan()


@pytest.mark.parametrize(("part", "error"), [(0.0, UnsupportedModelError), (0.8, PrecisionWarning)])
def test_one_wrong_value_of_many_is_named(part: float, error: type[Exception]) -> None:
    """Their mean hides it."""
    random = np.random.default_rng(4)
    weight, samples = random.standard_normal((6, 1000)).astype(np.float32), random.standard_normal((40, 6))
    other = weight.copy()
    other[:, 417] *= part
    protos = [model([node("MatMul", "x w", "y")], ("N", 6), {"w": each}) for each in (weight, other)]
    wrong = mixed_up(*protos, samples)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrecisionWarning)
        with pytest.raises(error, match="of the spread of value 417 of the output"):
            wrong.plan(trust="client-aided")


def test_samples_without_results_are_told() -> None:
    constants = {"w": np.eye(3, dtype=np.float32)}
    proto = model([node("MatMul", "x w", "h"), node("Sqrt", "h", "y")], ("N", 3), constants)
    loaded = pronghorn.load(proto)
    samples = np.random.default_rng(5).random((20, 3)).astype(np.float32)
    with pytest.warns(PrecisionWarning, match=r"on 16 samples the model's file gives no finite number, .*was not"):
        compare(loaded._imported, loaded._native, -1 - samples, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(loaded._imported, loaded._native, samples, 1)
        # Made-up inputs are nobody's fault.
        compare(loaded._imported, loaded._native, None, 1)


def test_the_number_of_images_follows_from_the_model() -> None:
    """And from no clock, by which warnings would depend on the machine."""
    weights = {"k": np.ones((4, 3, 3, 3), np.float32), "w": np.ones((4 * 6 * 6, 10), np.float32)}
    nodes = [node("Conv", "x k", "c"), node("Flatten", "c", "f"), node("MatMul", "f w", "y")]
    imported = pronghorn.load(model(nodes, ("N", 3, 8, 8), weights))._imported
    work = 4 * 6 * 6 * 27 + 4 * 6 * 6 * 10
    assert work <= imported.multiply_adds < 1.1 * work
    images = np.arange(100, dtype=np.float32)[:, None]
    assert [len(comparison._chosen(images, work)) for work in (1, 1 << 30, 1 << 40)] == [16, 8, 2]


def test_keys_of_several_parties_are_for_the_file_alone() -> None:
    wrong = mixed_up(network("Neg"), network("Identity"))
    with pytest.raises(UnsupportedModelError, match="differs from onnxruntime"):
        multikey.MultiKeyPlan(wrong)


def test_without_a_runtime_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise ImportError("No module named 'onnxruntime'")

    monkeypatch.setattr("pronghorn._model.comparison.session", absent)
    mixed_up(network(), network("Neg")).plan()
