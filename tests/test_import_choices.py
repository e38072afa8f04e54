"""Choices by a comparison, without a jump and with one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import pronghorn
from helpers import check, model, node
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import import_onnx

SHAPE = ("N", 6)

CONSTANTS = {
    "zero": np.float32(0),
    "half": np.float32(0.5),
    "one": np.float32(1),
    "minus": np.float32(-1),
    "three": np.array([3], np.float32),
    "slope": np.float32(0.1),
}

HUBER = [
    node("Abs", "x", "a"),
    node("Less", "a one", "c"),
    node("Mul", "x half", "h"),
    node("Mul", "h x", "q"),
    node("Sub", "a half", "l"),
    node("Where", "c q l", "y"),
]

ACTIVATIONS: dict[str, list[NodeProto]] = {
    "relu": [node("Less", "x zero", "c"), node("Where", "c zero x", "y")],
    "leaky_relu": [node("Greater", "x zero", "c"), node("Mul", "x slope", "m"), node("Where", "c x m", "y")],
    "elu": [
        node("GreaterOrEqual", "x zero", "c"),
        node("Exp", "x", "e"),
        node("Sub", "e one", "d"),
        node("Mul", "d half", "m"),
        node("Where", "c x m", "y"),
    ],
}

CHOICES: dict[str, list[NodeProto]] = {
    "huber": HUBER,
    "a constant first": [
        node("Less", "one x", "c"),
        node("Mul", "x x", "s"),
        node("Where", "c s x", "y"),
    ],
    "a sign and a logarithm": [
        node("Sign", "x", "s"),
        node("Abs", "x", "a"),
        node("Add", "a one", "b"),
        node("Log", "b", "l"),
        node("Mul", "s l", "y"),
    ],
    "a sign and a root of the other side": [
        node("Abs", "x", "a"),
        node("Add", "a one", "b"),
        node("Sqrt", "b", "r"),
        node("Sub", "r one", "l"),
        node("Sign", "x", "s"),
        node("Mul", "l s", "y"),
    ],
    "as exporters write LpPool": [
        node("Sign", "x", "s"),
        node("Abs", "x", "a"),
        node("Relu", "a", "r"),
        node("Mul", "s r", "y"),
    ],
    "clipped": [
        node("Greater", "x one", "c"),
        node("Where", "c one x", "m"),
        node("Less", "m minus", "d"),
        node("Where", "d minus m", "y"),
    ],
    "between": [
        node("LessOrEqual", "x one", "c"),
        node("GreaterOrEqual", "x minus", "d"),
        node("And", "c d", "e"),
        node("Not", "e", "f"),
        node("Mul", "x x", "s"),
        node("Where", "f one s", "y"),
    ],
    "one in another": [
        node("Greater", "x one", "c"),
        node("Greater", "x zero", "d"),
        node("Where", "d x zero", "r"),
        node("Sub", "x one", "l"),
        node("Mul", "l slope", "m"),
        node("Add", "m one", "n"),
        node("Where", "c n r", "y"),
    ],
    "the larger of two": [node("Mul", "x slope", "m"), node("Greater", "x m", "c"), node("Where", "c x m", "y")],
    "the smaller of two": [node("Sub", "one x", "m"), node("GreaterOrEqual", "x m", "c"), node("Where", "c m x", "y")],
}


def chosen(nodes: list[NodeProto]) -> pronghorn.onnx.ImportedModel:
    used = {name for each in nodes for name in each.input}
    proto = model(nodes, SHAPE, {name: value for name, value in CONSTANTS.items() if name in used})
    inputs = np.linspace(-4, 4, 96, dtype=np.float32).reshape(-1, 6)
    return check(proto, inputs=np.concatenate([inputs, np.float32([[0, 1, -1, 3, 0.5, 100]])]))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    nodes = json.loads(chosen(ACTIVATIONS[name]).graph_json)["nodes"]
    assert len(nodes) == 2
    op = nodes[1]["op"]
    assert op.get("function", {}).get("name", op["kind"]) == name


@pytest.mark.parametrize("name", CHOICES)
def test_choices_without_a_jump(name: str) -> None:
    chosen(CHOICES[name])


def test_errors_are_those_of_the_plan() -> None:
    random = np.random.default_rng(6)
    matrix = random.standard_normal((6, 4)).astype(np.float32)
    nodes = [node("MatMul", "i w", "x"), *HUBER]
    constants = {"w": matrix, **{name: CONSTANTS[name] for name in ("half", "one")}}
    proto = model(nodes, ("N", 6), constants, inputs=("i",))
    loaded = pronghorn.load(proto, samples=random.standard_normal((100, 6)).astype(np.float32))
    held_out = random.standard_normal((200, 6)).astype(np.float32)
    assert loaded.verify(held_out[:4]).disagreements == 0
    report = loaded.verify(held_out, secure=False)
    assert report.expected_error is not None
    assert report.relative_error < 2 * report.expected_error


JUMPS = {
    "a threshold": [node("Greater", "x half", "c"), node("Where", "c x zero", "y")],
    "Hardshrink": [node("Abs", "x", "a"), node("LessOrEqual", "a half", "c"), node("Where", "c zero x", "y")],
    "next to zero": [node("Greater", "x slope", "c"), node("Where", "c x zero", "y")],
    "a row of thresholds": [node("Greater", "x row", "c"), node("Where", "c x zero", "y")],
    "another function": [node("Softplus", "x", "s"), node("Greater", "s one", "c"), node("Where", "c x one", "y")],
    "one point": [node("Abs", "x", "a"), node("LessOrEqual", "a zero", "c"), node("Where", "c one x", "y")],
    "and": [
        node("GreaterOrEqual", "x minus", "c"),
        node("LessOrEqual", "x half", "d"),
        node("And", "c d", "e"),
        node("Where", "e one x", "y"),
    ],
    "or": [
        node("Less", "x minus", "c"),
        node("Greater", "x half", "d"),
        node("Or", "c d", "e"),
        node("Not", "e", "f"),
        node("Where", "f x minus", "y"),
    ],
    "a truth": [node("Greater", "x half", "c"), node("Cast", "c", "y", to=TensorProto.FLOAT)],
    "constants": [node("Less", "half x", "c"), node("Where", "c one minus", "y")],
    "known": [node("Less", "x zero", "c"), node("And", "c keep", "d"), node("Where", "d x one", "y")],
    "known or": [node("Less", "x zero", "c"), node("Or", "keep c", "d"), node("Where", "d x one", "y")],
    "two values": [
        node("MatMul", "x w", "u"),
        node("Less", "x u", "c"),
        node("Mul", "u u", "s"),
        node("Where", "c s x", "y"),
    ],
    "a constant first": [node("Mul", "x x", "s"), node("LessOrEqual", "s half", "c"), node("Where", "c row s", "y")],
    "Sign": [node("Sign", "x", "y")],
    "ThresholdedRelu": [node("ThresholdedRelu", "x", "y", alpha=0.25)],
    "Shrink": [node("Shrink", "x", "y", lambd=0.5, bias=0.0)],
    "Shrink with a bias": [node("Shrink", "x", "y", lambd=0.25, bias=0.5)],
    "a cast truth": [
        node("LessOrEqual", "x half", "c"),
        node("GreaterOrEqual", "x minus", "d"),
        node("And", "c d", "e"),
        node("Cast", "e", "f", to=TensorProto.BOOL),
        node("Where", "f zero x", "y"),
    ],
    "Equal": [node("Equal", "x half", "c"), node("Where", "c x zero", "y")],
    "not equal to zero": [
        node("Relu", "x", "r"),
        node("Equal", "r zero", "c"),
        node("Not", "c", "d"),
        node("Where", "d x one", "y"),
    ],
    "equal truths": [
        node("Greater", "x half", "c"),
        node("Less", "x minus", "d"),
        node("Equal", "c d", "e"),
        node("Where", "e x zero", "y"),
    ],
    "xor": [
        node("Greater", "x minus", "c"),
        node("Greater", "x half", "d"),
        node("Xor", "c d", "e"),
        node("Where", "e x zero", "y"),
    ],
    "a whole truth": [
        node("Greater", "x half", "c"),
        node("Cast", "c", "d", to=TensorProto.INT64),
        node("Cast", "d", "e", to=TensorProto.INT32),
        node("Cast", "e", "y", to=TensorProto.FLOAT),
    ],
    "counts": [
        node("Greater", "x half", "c"),
        node("Cast", "c", "d", to=TensorProto.INT64),
        node("ReduceSum", "d axis", "n", keepdims=1),
        node("GreaterOrEqual", "n two", "e"),
        node("Equal", "n one_count", "f"),
        node("Or", "e f", "g"),
        node("Where", "g x zero", "y"),
    ],
    "Binarizer": [node("Binarizer", "x", "y", domain="ai.onnx.ml", threshold=0.25)],
}


def jumping(name: str) -> ModelProto:
    constants = CONSTANTS | {
        "row": np.linspace(-1, 1, 6, dtype=np.float32),
        "slope": np.float32(0.01),
        "axis": np.array([1]),
        "two": np.int64(2),
        "one_count": np.int64(1),
        "keep": np.array([True, False, True, True, False, False]),
        "w": np.random.default_rng(9).standard_normal((6, 6)).astype(np.float32),
    }
    used = {each for one in JUMPS[name] for each in one.input}
    proto = model(JUMPS[name], SHAPE, {each: value for each, value in constants.items() if each in used})
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return proto


@pytest.mark.parametrize("name", JUMPS)
def test_choices_with_a_jump(name: str) -> None:
    """Also at the threshold, where all values are known exactly, and under both levels that have comparisons."""
    proto, random = jumping(name), np.random.default_rng(4)
    inputs = random.choice(np.arange(-8, 9) / 8, (300, *SHAPE[1:])).astype(np.float32)
    imported = check(proto, inputs=inputs)
    kinds = [each["op"]["kind"] for each in json.loads(imported.graph_json)["nodes"]]
    assert "step" in kinds
    loaded = pronghorn.load(proto, samples=inputs[:200])
    for trust, most in (("two-party", 0.03), ("client-aided", 0.06)):
        report = loaded.verify(inputs[200:], trust=trust)
        assert report.disagreements == 0
        assert report.relative_error < most, trust


LARGEST = {
    "Hardmax": [node("Hardmax", "x", "y", axis=1)],
    "compared": [
        node("ArgMax", "x", "a", axis=1, keepdims=1),
        node("Equal", "a places", "e"),
        node("Where", "e x zero", "y"),
    ],
    "the last axis": [
        node("ArgMax", "x", "a", axis=-1, keepdims=0),
        node("Unsqueeze", "a end", "u"),
        node("Equal", "u places", "e"),
        node("Where", "e x zero", "y"),
    ],
    "one hot": [
        node("ArgMax", "x", "a", axis=1, keepdims=0),
        node("OneHot", "a six ends", "h"),
        node("MatMul", "h w", "y"),
    ],
    "of a Softmax": [node("Softmax", "x", "s", axis=1), node("Hardmax", "s", "h", axis=1), node("MatMul", "h w", "y")],
    "of truths": [
        node("Greater", "x zero", "c"),
        node("Cast", "c", "d", to=TensorProto.FLOAT),
        node("ArgMax", "d", "a", axis=1, keepdims=1),
        node("Equal", "a places", "e"),
        node("Cast", "e", "y", to=TensorProto.FLOAT),
    ],
}


@pytest.mark.parametrize("name", LARGEST)
def test_places_of_the_largest(name: str) -> None:
    """The first of equal ones, too, and securely."""
    random = np.random.default_rng(8)
    constants = {
        "places": np.arange(6),
        "zero": np.float32(0),
        "six": np.int64(6),
        "end": np.array([-1]),
        "ends": np.array([0, 1], np.float32),
        "w": random.standard_normal((6, 2)).astype(np.float32),
    }
    used = {each for one in LARGEST[name] for each in one.input}
    proto = model(LARGEST[name], SHAPE, {each: value for each, value in constants.items() if each in used})
    inputs = random.choice(np.arange(-8, 9) / 8, (300, *SHAPE[1:])).astype(np.float32)
    check(proto, inputs=inputs)
    report = pronghorn.load(proto, samples=inputs[:200]).verify(inputs[200:])
    assert report.disagreements == 0
    assert report.relative_error < 0.03


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([node("Hardmax", "x", "y", axis=0)], "batch"),
        ([node("ArgMax", "x", "a", axis=1, keepdims=1), node("Equal", "a others", "y")], "after ArgMax"),
        ([node("MatMul", "x wide", "m"), node("Hardmax", "m", "y", axis=1)], "the largest of 100"),
    ],
)
def test_other_places_are_refused(nodes: list[NodeProto], says: str) -> None:
    known = {"others": np.array([0, 1, 2, 3, 5, 4]), "wide": np.ones((6, 100), np.float32)}
    used = {each for one in nodes for each in one.input}
    with pytest.raises(UnsupportedModelError, match=says):
        import_onnx(model(nodes, SHAPE, {name: each for name, each in known.items() if name in used}))


def test_counts_are_not_cut_off() -> None:
    nodes = [
        node("Greater", "x half", "c"),
        node("Cast", "c", "d", to=TensorProto.INT64),
        node("Div", "d two", "e"),
        node("Cast", "e", "y", to=TensorProto.FLOAT),
    ]
    with pytest.raises(UnsupportedModelError, match="cuts off"):
        import_onnx(model(nodes, SHAPE, {"half": CONSTANTS["half"], "two": np.int64(2)}))
    # Values that are no truths are cut off by a Cast.
    cut = [node("Cast", "x", "c", to=TensorProto.INT64), node("Cast", "c", "y", to=TensorProto.FLOAT)]
    with pytest.raises(UnsupportedModelError, match="a cast of a value to INT64"):
        import_onnx(model(cut, SHAPE, {}))


def test_other_truths_are_refused() -> None:
    # Of a constant that gives values more dimensions.
    deep = [node("Greater", "x deep", "c"), node("Where", "c x zero", "y")]
    with pytest.raises(UnsupportedModelError, match="batch is not first"):
        import_onnx(model(deep, SHAPE, {"deep": np.zeros((1, 1, 1), np.float32), "zero": CONSTANTS["zero"]}))
    infinite = [node("Greater", "x zero", "c"), node("Where", "c x far", "y")]
    with pytest.raises(UnsupportedModelError, match="as large as inf"):
        import_onnx(model(infinite, SHAPE, {"far": np.float32(-np.inf), "zero": CONSTANTS["zero"]}))


def test_comparisons_are_no_polynomials() -> None:
    with pytest.raises(pronghorn.PronghornError, match=r"node_c|Step"):
        pronghorn.load(jumping("a threshold"), input_range=(-1, 1)).plan(trust="encrypted")


@pytest.mark.parametrize("chosen", ["e zero q", "e one q"])
def test_quotients_guarded_from_zero_are_refused(chosen: str) -> None:
    """TensorFlow's `div_no_nan` jumps at a divisor of zero, unless what is divided is zero there, too."""
    nodes = [
        node("ReduceMax", "x", "d", axes=[1], keepdims=1),
        node("Equal", "d zero", "e"),
        node("Div", "x d", "q"),
        node("Where", chosen, "y"),
    ]
    used = {name for each in nodes for name in each.input}
    with pytest.raises(UnsupportedModelError, match="whether a quotient is taken"):
        import_onnx(model(nodes, SHAPE, {name: each for name, each in CONSTANTS.items() if name in used}, opset=13))
