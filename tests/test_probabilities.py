"""Results that are probabilities, though the model ends in no Sigmoid."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import pronghorn
from helpers import model, node
from pronghorn._outputs import Predictions, kind_of
from pronghorn.errors import InputError
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
    "clipped": [node("Clip", "s1 tiny almost", "y")],
    "averaged": [node("Concat", "s1 s2", "c", axis=1), node("MatMul", "c parts", "y")],
    "shifted": [node("Concat", "s1 s2", "c", axis=1), node("Gemm", "c less more", "y")],
    "power": [node("Pow", "s1 two", "y")],
    "root": [node("Mul", "s1 s2", "m"), node("Sqrt", "m", "r"), node("Mul", "r one", "y")],
    "written out": [
        node("Neg", "h1", "n"),
        node("Exp", "n", "e"),
        node("Add", "e one", "d"),
        node("Div", "one d", "q"),
        node("Mul", "q s2", "y"),
    ],
    "of two": [node("Tanh", "h1", "t"), node("Add", "t one", "d"), node("Mul", "d half", "y")],
    "cut": [node("Mul", "h1 part", "m"), node("Add", "m half", "a"), node("Clip", "a none one", "y")],
    "cut by two": [node("Add", "h1 half", "a"), node("Max", "a none", "m"), node("Min", "one m", "y")],
    "cut by a unit": [node("Relu", "h1", "r"), node("Min", "r two", "m"), node("Mul", "m half", "y")],
    "of positive": [
        node("Softplus", "h1", "p"),
        node("Neg", "p", "n"),
        node("Exp", "n", "e"),
        node("Sub", "one e", "y"),
    ],
}
OTHERS = {
    "sum": [node("Add", "s1 s2", "y")],
    "scaled": [node("Mul", "s1 two", "y")],
    "shifted": [node("Sub", "s1 half", "y")],
    "scores": [node("Concat", "s1 h2", "y", axis=1)],
    "difference": [node("Sub", "s1 s2", "y")],
    "clipped below": [node("Mul", "s1 two", "d"), node("Clip", "d tiny", "y")],
    "clipped above": [node("Clip", "s1 two", "y")],
    "overflow": [node("Mul", "s1 large", "d"), node("Pow", "d sixteen", "y")],
    "infinite": [node("Exp", "h1", "e"), node("Concat", "e e", "c", axis=1), node("MatMul", "c signs", "y")],
    "weighted": [node("Concat", "s1 s2", "c", axis=1), node("MatMul", "c signs", "y")],
    "quotient": [node("Div", "s1 s2", "y")],
    "cut above": [node("Min", "h1 one", "y")],
    "cut below": [node("Relu", "h1", "r"), node("Max", "r half", "y")],
    "greater": [node("Min", "h1 h2", "m"), node("Max", "m none", "y")],
}


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def ending(end: list[onnx.NodeProto]) -> Any:
    constants = {"w1": floats(5, 2), "b1": floats(2), "w2": floats(5, 2), "b2": floats(2)}
    constants |= {
        "parts": np.array([[0.2, 0.3], [0.3, 0.1], [0.25, 0.2], [0.25, 0.1]], np.float32),
        "less": np.array([[0.5], [-0.25], [0.1], [0.1]], np.float32),
        "more": np.array([0.25], np.float32),
        "signs": np.array([[0.9], [-0.1], [0.0], [0.0]], np.float32),
    }
    numbers = {
        "large": 1e30,
        "none": 0.0,
        "tiny": 1e-7,
        "almost": 1 - 1e-7,
        "half": 0.5,
        "part": 0.3,
        "rest": 0.7,
        "one": 1.0,
        "two": 2.0,
        "sixteen": 16.0,
    }
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
def test_other_results_are_scores(name: str, recwarn: pytest.WarningsRecorder) -> None:
    assert import_onnx(ending(OTHERS[name])).finish == []
    assert not recwarn


@pytest.mark.parametrize("name", ["mean", "clipped", "cut", "cut by two"])
def test_the_class_of_a_probability(name: str) -> None:
    """It is known to the client alone, by a half."""
    one = [node("Gemm", "x w1 b1", "h1"), node("Gemm", "x w2 b2", "h2"), *HEADS[2:]]
    numbers = {"half": 0.5, "tiny": 1e-7, "almost": 1 - 1e-7, "none": 0.0, "one": 1.0, "part": 0.3}
    rng = np.random.default_rng(2)
    weights = {each: rng.standard_normal((5, 1)).astype(np.float32) for each in ("w1", "w2")}
    weights |= {"b1": np.array([1.5], np.float32), "b2": np.array([1.5], np.float32)}
    constants = weights | {key: np.array(number, np.float32) for key, number in numbers.items()}
    proto, inputs = model([*one, *ENDS[name]], ("N", 5), constants), rng.standard_normal((300, 5)).astype(np.float32)
    wanted = (pronghorn.load(proto).run_float(inputs).ravel() > 0.5).astype(int)
    loaded = pronghorn.load(proto, samples=inputs[:200], opening="class")
    found = loaded.verify(inputs, wanted, secure=False)
    assert 0.05 < 1 - wanted.mean() < 0.95
    assert found.accuracy_fixed is not None
    assert found.accuracy_fixed > 0.97


def test_classes_of_probabilities() -> None:
    """One number is a class from a half on. What outputs are follows from the shape as without it."""
    found = Predictions.of(np.array([[0.4], [0.6]], np.float32), ["probabilities"], "classes")
    assert found.classes is not None
    assert found.classes.tolist() == [0, 1]
    for shape in ((1,), (3,), (2, 4)):
        assert kind_of(["probabilities"], shape) == kind_of([], shape)


@pytest.mark.parametrize(("kind", "count"), [("classes", 1), ("labels", 1), ("labels", 2)])
def test_logarithms_of_probabilities_are_no_classes(kind: str, count: int) -> None:
    with pytest.raises(InputError, match=r"ends in log, whose results are neither .*\(outputs\s+values\)"):
        kind_of(["sigmoid", "log"], (count,), kind)
    assert kind_of(["sigmoid", "log"], (count,)) == "values"


def test_classes_by_logarithms() -> None:
    found = Predictions.of(np.log(np.array([[0.3, 0.6]], np.float32)), ["sigmoid", "log"], "classes")
    assert found.probabilities is not None
    np.testing.assert_allclose(found.probabilities, [[1 / 3, 2 / 3]], rtol=1e-5)
