"""Real models: imported, and where small run securely; each test skips where the data is not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import pronghorn
from conftest import SHARED
from helpers import run_native
from pronghorn._data import Preprocessing, load_images
from pronghorn.onnx import import_onnx

MODELS = sorted(path.relative_to(SHARED).as_posix() for path in SHARED.glob("*/*.onnx")) or ["none"]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_imports(name: str, shared: Path) -> None:
    imported = import_onnx(shared / name)
    inputs = np.random.default_rng(0).random((1, *imported.input_shape), dtype=np.float32)
    session = onnxruntime.InferenceSession(imported.reference_bytes())
    expected = np.asarray(session.run(None, {imported.input_name: inputs})[0])
    found = run_native(imported, inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("name", "data", "accuracy"),
    [
        ("pneumonia/cnn_relu.onnx", "pneumonia/test.npz", 0.862),
        ("pneumonia/cnn_square.onnx", "pneumonia/test.npz", 0.848),
        ("mnist/gazelle_mnist_d.onnx", "mnist/t10k-images-idx3-ubyte.gz", None),
        ("mnist/cryptonets_square.onnx", "mnist/t10k-images-idx3-ubyte.gz", None),
    ],
)
def test_other_models_need_no_code_of_their_own(name: str, data: str, accuracy: float | None, shared: Path) -> None:
    images, labels, *_ = load_images(shared / data, (1, 28, 28), Preprocessing())
    assert labels is not None
    images, labels = images[:1000], labels[:1000]
    model = pronghorn.load(shared / name, samples=images[:256])
    report = model.verify(images, labels, trust="client-aided")
    assert report.disagreements == 0
    assert report.accuracy_secure == pytest.approx(report.accuracy_float, abs=0.01)
    if accuracy is not None:
        assert report.accuracy_float == pytest.approx(accuracy, abs=0.002)
