"""Results that are probabilities, though the model ends in no Sigmoid."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import pronghorn
from helpers import model, node
from pronghorn._outputs import Predictions, kind_of
from pronghorn.onnx import import_onnx

RANDOM = np.random.default_rng(8)
HEADS = [
    node("Gemm", "x w1 b1", "h1"),
    node("Gemm", "x w2 b2", "h2"),
    node("Sigmoid", "h1", "s1"),
    node("Sigmoid", "h2", "s2"),
]
ENDS = {
    "heads": [node("Concat", "s1 s2", "y", axis=1)],
    "mean": [node("Add", "s1 s2", "s"), node("Mul", "s half", "y")],
    "weighted": [node("Mul", "s1 part", "m1"), node("Mul", "s2 rest", "m2"), node("Add", "m1 m2", "y")],
    "quotient": [node("Sum", "s1 s2", "s"), node("Div", "s two", "y")],
    "complement": [node("Mul", "s1 s2", "m"), node("Sub", "one m", "y")],
    "hard": [node("HardSigmoid", "h1", "y")],
    "best": [node("Max", "s1 s2", "y")],
}
OTHERS = {
    "sum": [node("Add", "s1 s2", "y")],
    "scaled": [node("Mul", "s1 two", "y")],
    "shifted": [node("Sub", "s1 half", "y")],
    "scores": [node("Concat", "s1 h2", "y", axis=1)],
    "difference": [node("Sub", "s1 s2", "y")],
}


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def ending(end: list[onnx.NodeProto]) -> Any:
    constants = {"w1": floats(5, 2), "b1": floats(2), "w2": floats(5, 2), "b2": floats(2)}
    numbers = {"half": 0.5, "part": 0.3, "rest": 0.7, "one": 1.0, "two": 2.0}
    return model(
        [*HEADS, *end], ("N", 5), constants | {name: np.array(each, np.float32) for name, each in numbers.items()}
    )


@pytest.mark.parametrize("name", ENDS)
def test_results_from_0_to_1_are_read_as_they_are(name: str) -> None:
    samples = floats(40, 5)
    loaded = pronghorn.load(ending(ENDS[name]), samples=samples)
    assert loaded.finish == ["probabilities"]
    wanted = loaded.run_float(samples)
    with (
        pronghorn.serve(loaded, listen="127.0.0.1:0", trust="client-aided") as server,
        pronghorn.connect(server.address, "client-aided") as client,
    ):
        found = client.classify(samples, outputs="labels")
    assert found.probabilities is not None
    np.testing.assert_allclose(found.probabilities, wanted.reshape(len(samples), -1), atol=0.12)


@pytest.mark.parametrize("name", OTHERS)
def test_other_results_are_scores(name: str) -> None:
    assert import_onnx(ending(OTHERS[name])).finish == []


def test_classes_of_probabilities() -> None:
    """One number is a class from a half on. What outputs are follows from the shape as without it."""
    found = Predictions.of(np.array([[0.4], [0.6]], np.float32), ["probabilities"], "classes")
    assert found.classes is not None
    assert found.classes.tolist() == [0, 1]
    for shape in ((1,), (3,), (2, 4)):
        assert kind_of(["probabilities"], shape) == kind_of([], shape)
