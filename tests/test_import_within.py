"""Softmax, divisions and functions without limits within a network, which the client computes at its end alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto

import pronghorn
from helpers import check, model, node, run_native, run_onnx
from pronghorn import PlanError, UnsupportedModelError
from pronghorn.onnx import ImportedModel, import_onnx

SEED = 5


class Numbers:
    """Random numbers of one test alone: bounds of errors are to hold in any order of tests."""

    random = np.random.default_rng(SEED)


@pytest.fixture(autouse=True)
def own_numbers() -> None:
    """Each test begins with the same numbers."""
    Numbers.random = np.random.default_rng(SEED)


def floats(*shape: int) -> np.ndarray:
    """Random float32 numbers around zero."""
    return Numbers.random.standard_normal(shape).astype(np.float32)


ROWS = ("N", 6)
STEPS = ("N", 5, 4)


def kinds(imported: ImportedModel) -> list[str]:
    nodes = json.loads(imported.graph_json)["nodes"]
    return [entry["op"].get("function", entry["op"]).get("name", entry["op"]["kind"]) for entry in nodes]


ATTENTION = [
    node("MatMul", "x score", "s"),
    node("Softmax", "s", "a", axis=1),
    node("Mul", "x a", "weighted"),
    node("ReduceSum", "weighted one", "pooled", keepdims=0),
    node("MatMul", "pooled last", "y"),
]
GATES = [
    node("Gemm", "x u", "s"),
    node("Softmax", "s", "g", axis=-1),
    node("Gemm", "x v", "experts"),
    node("Mul", "g experts", "mixed"),
    node("Gemm", "mixed w", "y"),
]
TWO_GATES = [
    node("Gemm", "x two", "s"),
    node("Softmax", "s", "g", axis=1),
    node("Gemm", "x v2", "experts"),
    node("Mul", "g experts", "mixed"),
    node("Gemm", "mixed w2", "y"),
]
CONSTANTS = {
    "score": floats(4, 1),
    "one": np.array([1]),
    "last": floats(4, 2),
    "u": floats(6, 3),
    "v": floats(6, 3),
    "w": floats(3, 2),
    "two": floats(6, 2),
    "v2": floats(6, 2),
    "w2": floats(2, 2),
    "half": np.float32(0.5),
    "gentle": floats(6, 3) / 4,
}
NETWORKS: dict[str, tuple[list[NodeProto], tuple[str | int, ...]]] = {
    "attention": (ATTENTION, STEPS),
    "gates": (GATES, ROWS),
    "two gates": (TWO_GATES, ROWS),
    "log softmax": (
        [node("Gemm", "x u", "s"), node("LogSoftmax", "s", "l", axis=1), node("Gemm", "l w", "y")],
        ROWS,
    ),
    "log sum exp": (
        [node("Gemm", "x u", "s"), node("ReduceLogSumExp", "s", "l", axes=[1], keepdims=1), node("Mul", "l s", "y")],
        ROWS,
    ),
    "quotient": (
        [
            node("Gemm", "x u", "s"),
            node("Softplus", "x", "p"),
            node("ReduceMean", "p", "m", axes=[1]),
            node("Div", "s m", "y"),
        ],
        ROWS,
    ),
    "inverse": (
        [
            node("Softplus", "x", "p"),
            node("Add", "p half", "q"),
            node("Reciprocal", "q", "r"),
            node("Gemm", "r u", "y"),
        ],
        ROWS,
    ),
    "share": (
        [node("Softplus", "x", "p"), node("Add", "p half", "q"), node("Div", "half q", "r"), node("Gemm", "r u", "y")],
        ROWS,
    ),
    "logarithm": (
        [node("Softplus", "x", "p"), node("Add", "p half", "q"), node("Log", "q", "r"), node("Gemm", "r u", "y")],
        ROWS,
    ),
    "root": (
        [node("Softplus", "x", "p"), node("Add", "p half", "q"), node("Sqrt", "q", "r"), node("Gemm", "r u", "y")],
        ROWS,
    ),
    "power": (
        [node("Softplus", "x", "p"), node("Add", "p half", "q"), node("Pow", "q half", "r"), node("Gemm", "r u", "y")],
        ROWS,
    ),
    **{
        name: ([node("Gemm", "x gentle", "s"), node(kind, "s", "r"), node("Gemm", "r w", "y")], ROWS)
        for name, kind in (("exp", "Exp"), ("sin", "Sin"), ("cos", "Cos"), ("atan", "Atan"), ("erf", "Erf"))
    },
    "less one": (
        [node("Gemm", "x gentle", "s"), node("Exp", "s", "e"), node("Sub", "e unit", "r"), node("Gemm", "r w", "y")],
        ROWS,
    ),
}


SHARES = [node("Gemm", "x u", "s"), node("Softmax", "s", "p", axis=1)]
POSITIVE = [node("Gemm", "x gentle", "s"), node("Softplus", "s", "p"), node("Add", "p half", "q")]
POWERS = [node("Gemm", "x gentle", "s"), node("Exp", "s", "e")]
GOING_ON: dict[str, list[NodeProto]] = {
    "a share": [*SHARES, node("Slice", "p unit two unit", "y")],
    "percentages": [*SHARES, node("Mul", "p hundred", "y")],
    "bounded shares": [*SHARES, node("Clip", "p low high", "y")],
    "logarithms of shares": [*SHARES, node("Add", "p tiny", "q"), node("Log", "q", "y")],
    "logarithms of bounded shares": [*SHARES, node("Clip", "p low high", "q"), node("Log", "q", "y")],
    "the largest share": [*SHARES, node("ReduceMax", "p", "y", axes=[1])],
    "an expected value": [*SHARES, node("Mul", "p values", "q"), node("ReduceSum", "q one", "y", keepdims=0)],
    "two models": [
        *SHARES,
        node("Gemm", "x v", "t"),
        node("Softmax", "t", "q", axis=1),
        node("Add", "p q", "r"),
        node("Mul", "r half", "y"),
    ],
    "shares beside a number": [*SHARES, node("Gemm", "x gentle", "r"), node("Concat", "p r", "y", axis=1)],
    "powers and one": [*POWERS, node("Add", "e half", "y")],
    "powers less one, at least zero": [*POWERS, node("Sub", "e half", "d"), node("Relu", "d", "y")],
    "decibels": [*POSITIVE, node("Log", "q", "l"), node("Mul", "l hundred", "m"), node("Add", "m half", "y")],
    "scaled roots": [*POSITIVE, node("Sqrt", "q", "r"), node("Mul", "r hundred", "y")],
    "a mean of logarithms": [
        *POSITIVE,
        node("Log", "q", "l"),
        node("ReduceMean", "l", "m", axes=[1]),
        node("Exp", "m", "y"),
    ],
    "means and deviations": [
        *POSITIVE,
        node("ReduceMean", "q", "m", axes=[1]),
        node("Sub", "q m", "d"),
        node("ReduceSumSquare", "d", "r", axes=[1]),
        node("Sqrt", "r", "t"),
        node("Concat", "m t", "y", axis=1),
    ],
}
"""What networks do with an operator that the client computes at an end."""

OF_GOING_ON = {
    "unit": np.array([1]),
    "two": np.array([2]),
    "hundred": np.float32(100),
    "low": np.float32(0.01),
    "high": np.float32(0.99),
    "tiny": np.float32(1e-8),
    "values": np.float32([[18, 40, 65]]),
}


def load(nodes: list[NodeProto], shape: tuple[str | int, ...], constants: dict[str, np.ndarray]) -> pronghorn.Model:
    used = {each for one in nodes for each in one.input}
    proto = model(nodes, shape, {key: value for key, value in constants.items() if key in used})
    check(proto)
    return pronghorn.load(proto, samples=floats(64, *shape[1:]))


def network(name: str) -> pronghorn.Model:
    return load(*NETWORKS[name], CONSTANTS | {"unit": np.float32(1)})


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_equal_the_oracle(name: str, trust: str) -> None:
    loaded = network(name)
    held_out = floats(64, *loaded.input_shape)
    report = loaded.verify(held_out[:2], trust=trust)
    assert report.disagreements == 0
    scored = loaded.verify(held_out, trust=trust, secure=False)
    aim = loaded.plan(trust).expected_error.aim
    assert scored.expected_error < 1.5 * aim
    assert scored.relative_error < 3 * aim


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
@pytest.mark.parametrize("name", GOING_ON)
def test_networks_go_on_behind_ends(name: str, trust: str) -> None:
    loaded = load(GOING_ON[name], ROWS, CONSTANTS | OF_GOING_ON)
    held_out = floats(200, *loaded.input_shape)
    assert loaded.verify(held_out[:2], trust=trust).disagreements == 0
    scored = loaded.verify(held_out, trust=trust, secure=False)
    assert scored.relative_error < 2 * scored.expected_error
    assert scored.expected_error < 1.5 * loaded.plan(trust).expected_error.aim


@pytest.mark.parametrize(
    "column", [node("Gather", "p second", "c", axis=1), node("Slice", "p second third second", "c")]
)
def test_one_share_of_two_is_a_sigmoid_of_the_client(column: NodeProto) -> None:
    """As classifiers end that give the probability of the second class."""
    nodes = [node("Gemm", "x two", "s"), node("Softmax", "s", "p", axis=1), column]
    constants = {"two": floats(6, 2), "second": np.array([1]), "third": np.array([2]), "hundred": np.float32(100)}
    used = {key: value for key, value in constants.items() if key in {"two", *column.input}}
    assert check(model(nodes, ROWS, used, outputs=["c"])).finish == ["sigmoid"]
    # Where the network goes on, it is a function.
    used["hundred"] = constants["hundred"]
    imported = check(model([*nodes, node("Mul", "c hundred", "y")], ROWS, used))
    assert imported.finish == []
    assert kinds(imported)[-2:] == ["sigmoid", "affine"]


def test_two_shares_are_sigmoids() -> None:
    nodes, shape = NETWORKS["two gates"]
    used = {each for one in nodes for each in one.input}
    imported = import_onnx(model(nodes, shape, {key: value for key, value in CONSTANTS.items() if key in used}))
    assert "sigmoid" in kinds(imported)
    assert not {"decay", "max_pool"} & set(kinds(imported))


def test_ends_stay_the_clients() -> None:
    for kind in ("Softmax", "LogSoftmax", "Exp"):
        nodes = [node("Gemm", "x u", "s"), node(kind, "s", "y")]
        assert len(check(model(nodes, ROWS, {"u": floats(6, 3)})).finish) == 1


LEGAL = np.array([True, True, False, True, False, True])
ACTIONS = {
    "added": ([node("Add", "s mask", "m")], {"mask": np.where(LEGAL, 0, -1e9).astype(np.float32)}),
    "infinite": ([node("Add", "mask s", "m")], {"mask": np.where(LEGAL, 0, -np.inf).astype(np.float32)}),
    "chosen": ([node("Where", "legal s low", "m")], {"legal": LEGAL, "low": np.float32(-1e9)}),
}


def with_actions(form: str, end: str) -> ModelProto:
    masking, constants = ACTIONS[form]
    nodes = [node("Gemm", "x actions", "s"), *masking, node(end, "m", "y", axis=1)]
    constants = {**constants, "actions": floats(6, 6) * 2}
    return model(nodes, ROWS, constants, output_dtype=TensorProto.INT64 if end == "ArgMax" else TensorProto.FLOAT)


@pytest.mark.parametrize("end", ["Softmax", "ArgMax"])
@pytest.mark.parametrize("form", ACTIONS)
def test_masked_classes_at_the_end(form: str, end: str) -> None:
    """They take no precision from the others."""
    proto = with_actions(form, end)
    imported = check(proto, inputs=floats(100, 6))
    assert len(imported.finish) == 1
    loaded, held_out = pronghorn.load(proto, samples=floats(64, 6)), floats(64, 6)
    report = loaded.verify(held_out, secure=False)
    assert report.expected_error < 0.03
    if end == "Softmax":
        assert report.relative_error < 0.03
    secure = loaded.verify(held_out[:2])
    assert secure.disagreements == 0


BIASES = {
    "distinct": np.array([0, -1500, 900, 3000, -2500, 1200], np.float32),
    "all large": np.array([-5200, -12000, -4000, -9000, -7000, -6500], np.float32),
    "one far": np.array([0, 0, -12000, 0, 0, 0], np.float32),
    "one very far": np.array([-1, -1, -2.5e6, -1, -1, -1], np.float32),
    "millions": np.array([-1.4e6, -1.8e6, -1.6e6, -1.5e6, -2.9e6, -1.7e6], np.float32),
}
"""Of scores that are as large: nearest centroids and naive Bayes end so."""


@pytest.mark.parametrize("end", ["Softmax", "ArgMax"])
@pytest.mark.parametrize("bias", BIASES)
def test_large_biases_are_no_masks(bias: str, end: str) -> None:
    added = BIASES[bias]
    # A score of each class comes near the others.
    size = np.ptp(added) / 4
    nodes = [node("MatMul", "x u", "h"), node("Add", "h b", "s"), node(end, "s", "y", axis=1)]
    kind = TensorProto.INT64 if end == "ArgMax" else TensorProto.FLOAT
    proto = model(nodes, ROWS, {"u": floats(6, 6) * size, "b": added}, output_dtype=kind)
    inputs = floats(200, 6)
    wanted, found = run_onnx(proto, inputs), run_native(import_onnx(proto), inputs)
    assert len(np.unique(wanted if end == "ArgMax" else wanted.reshape(200, -1).argmax(1))) > 2
    assert np.mean(np.abs(wanted.ravel() - found.ravel()) > 0.01) <= 0.01


def test_a_bias_of_one_class_is_no_mask() -> None:
    """Logistic regression on raw features, whose other class has a score of 0."""
    nodes = [
        node("MatMul", "x u", "h"),
        node("Add", "h b", "s"),
        node("Mul", "s zero", "z"),
        node("Concat", "z s", "both", axis=1),
        node("ArgMax", "both", "y", axis=1),
    ]
    constants = {"u": floats(6, 1) * 1500, "b": np.array([-1200], np.float32), "zero": np.float32(0)}
    proto = model(nodes, ROWS, constants, output_dtype=TensorProto.INT64)
    inputs = floats(200, 6)
    wanted = run_onnx(proto, inputs)
    assert 0.1 < wanted.mean() < 0.9
    assert np.array_equal(wanted.ravel(), run_native(import_onnx(proto), inputs).ravel())


HEADS = {
    "one far class": [[0, 3, -1500], [1, 2, -1]],
    "heads of two": [[0, -1407], [0.3, -0.2], [1, 0]],
    "far and small": [[0, 0.5, -15000], [-0.5, 0, 0.2]],
}


@pytest.mark.parametrize("end", ["Softmax", "ArgMax", "within"])
@pytest.mark.parametrize("heads", HEADS)
def test_biases_of_several_heads_are_no_masks(heads: str, end: str) -> None:
    """Raw features have scores as large, which come near the others in a few rows."""
    bias = np.array(HEADS[heads], np.float32)
    far = np.argwhere(bias < -1000)[0]
    weights = np.zeros((6, *bias.shape), np.float32)
    weights[0, *far] = -bias[tuple(far)] / 40
    nodes = [node("MatMul", "x u", "h"), node("Reshape", "h shape", "r"), node("Add", "r b", "s")]
    nodes += [node("ArgMax" if end == "ArgMax" else "Softmax", "s", "y" if end != "within" else "p", axis=-1)]
    constants = {"u": weights.reshape(6, -1), "b": bias, "shape": np.array([-1, *bias.shape])}
    if end == "within":
        nodes += [node("Flatten", "p", "f"), node("MatMul", "f v", "y")]
        constants["v"] = np.arange(bias.size, dtype=np.float32)[:, None]
    kind = TensorProto.INT64 if end == "ArgMax" else TensorProto.FLOAT
    proto = model(nodes, ("N", 6), constants, output_dtype=kind)
    inputs = np.zeros((20, 6), np.float32)
    # The far class wins in half of the rows.
    inputs[:, 0] = np.linspace(30, 50, 20)
    wanted, found = run_onnx(proto, inputs), run_native(import_onnx(proto), inputs)
    np.testing.assert_allclose(found.ravel(), wanted.ravel(), atol=1e-3)


def test_two_softmaxes_one_after_the_other() -> None:
    nodes = [node("Gemm", "x v", "h"), node("Softmax", "h", "s"), node("Softmax", "s", "t"), node("Gemm", "t w", "y")]
    check(model(nodes, ROWS, {"v": floats(6, 2), "w": floats(2, 3)}))


def test_logarithms_of_masked_classes_are_refused() -> None:
    for form in ACTIONS:
        with pytest.raises(UnsupportedModelError, match=r"its input has a mask[\s\S]*end in a Softmax"):
            import_onnx(with_actions(form, "LogSoftmax"))


def test_softmaxes_in_other_words() -> None:
    """They are the client's at the end, and never powers that grow."""
    power, total = node("Exp", "s", "e"), node("ReduceSum", "e one", "t", keepdims=1)
    written = [power, total, node("Div", "e t", "g")]
    largest = [node("ReduceMax", "s0", "l", axes=[1]), node("Sub", "s0 l", "s"), *written]
    logarithm = [node("LogSoftmax", "s", "l", axis=1), node("Exp", "l", "g")]
    # JAX restores the dimensions of sums.
    jax = [
        node("ReduceMax", "s0", "l0", axes=[1], keepdims=0),
        node("Max", "nothing l0", "l1"),
        node("Unsqueeze", "l1 one", "l"),
        node("Sub", "s0 l", "s"),
        power,
        node("ReduceSum", "e one", "t0", keepdims=0),
        node("Unsqueeze", "t0 one", "t"),
        node("Div", "e t", "g"),
    ]
    for words, scores in ((written, "s"), (largest, "s0"), (logarithm, "s"), (jax, "s0")):
        before = [node("Gemm", "x u", scores), *words]
        within = [*before, node("Gemm", "g w", "y")]
        constants = {name: CONSTANTS[name] for name in ("u", "w")}
        if words is not logarithm:
            constants["one"] = np.array([1])
        if words is jax:
            constants["nothing"] = np.float32(-np.inf)
        imported = check(model(within, ROWS, constants))
        assert "decay" in kinds(imported)
        assert "exp" not in kinds(imported)
        del constants["w"]
        at_the_end = [*before, node("Identity", "g", "y")]
        assert len(check(model(at_the_end, ROWS, constants)).finish) == 1
    # Sums without their axis are no such thing.
    nodes = [node("Gemm", "x gentle", "s"), power, node("ReduceMax", "e", "t", axes=[1]), node("Div", "e t", "y")]
    assert "exp" in kinds(check(model(nodes, ROWS, {"gentle": CONSTANTS["gentle"]})))


def test_divisors_are_positive() -> None:
    nodes = [node("Gemm", "x u", "s"), node("Div", "half s", "y")]
    proto = model(nodes, ROWS, {"u": floats(6, 3), "half": np.float32(0.5)})
    loaded = pronghorn.load(proto, samples=floats(64, 6))
    with pytest.raises(PlanError, match=r"node_y divides by values down to -\d[\s\S]*only positive"):
        loaded.plan()


def test_ciphertexts_have_no_such_function() -> None:
    with pytest.raises(PlanError, match="is no polynomial"):
        network("gates").plan("encrypted")
    with pytest.raises(PlanError, match="is no polynomial"):
        load(GOING_ON["percentages"], ROWS, CONSTANTS | OF_GOING_ON).plan("encrypted")


@pytest.mark.parametrize("scale", [10, 100])
@pytest.mark.parametrize("form", ["softmax", "exp of logarithms"])
def test_steep_softmaxes(scale: int, form: str) -> None:
    """Powers far below the largest count for nothing, and take no bits of the others."""
    draw = np.random.default_rng(17)
    last = [node("Softmax", "s", "p", axis=1)]
    if form != "softmax":
        last = [
            node("ReduceLogSumExp", "s", "l", axes=[1]),
            node("Sub", "s l", "d"),
            node("Reshape", "d row", "f"),
            node("Exp", "f", "p"),
        ]
    constants: dict[str, Any] = {"w": (scale * draw.normal(size=(4, 4))).astype(np.float32)}
    constants |= {"v": draw.normal(size=(4, 2)).astype(np.float32)}
    constants |= {} if form == "softmax" else {"row": np.array([0, 4])}
    proto = model([node("Gemm", "x w", "s"), *last, node("Gemm", "p v", "y")], ("N", 4), constants)
    rows = draw.normal(size=(300, 4)).astype(np.float32)
    found = pronghorn.load(proto, samples=rows[:200]).verify(rows[200:], trust="two-party", secure=False)
    assert found.relative_error < 0.06
