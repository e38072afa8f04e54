"""Shares of a Softmax within a network: factors of scores, products of shares, and what these leave precise."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto

import pronghorn
from helpers import check, model, node
from pronghorn import PlanError
from pronghorn.onnx import ImportedModel, import_onnx

PLACES, WIDTH, QUERIES = 6, 4, 5
SHAPE = ("N", PLACES, WIDTH)
DRAW = np.random.default_rng(11)
Q, K, V = (DRAW.standard_normal((WIDTH, WIDTH)).astype(np.float32) for _ in range(3))
ONE = np.ones((PLACES, PLACES), np.float32)
HALF, BIAS = np.float32(0.5), DRAW.standard_normal((PLACES, PLACES)).astype(np.float32)


def ops(imported: ImportedModel, kind: str) -> list[dict[str, Any]]:
    """The nodes of one kind that the result needs."""
    nodes = json.loads(imported.graph_json)["nodes"]
    needed, waiting = set(), [len(nodes) - 1]
    while waiting:
        index = waiting.pop()
        if index not in needed:
            needed.add(index)
            waiting += nodes[index]["inputs"]
    return [nodes[index] for index in sorted(needed) if nodes[index]["op"]["kind"] == kind]


def rates(imported: ImportedModel) -> list[float]:
    functions = [each["op"]["function"] for each in ops(imported, "function")]
    return [function["rate"] for function in functions if function["name"] == "decay"]


def attention(scores: list[NodeProto], last: list[NodeProto] | None = None) -> list[NodeProto]:
    """`s` of `c`, the product of queries and keys, and what follows shares `p` and values `v`."""
    return [
        node("MatMul", "x wq", "q"),
        node("MatMul", "x wk", "k"),
        node("MatMul", "x wv", "v"),
        node("Transpose", "k", "t", perm=[0, 2, 1]),
        node("MatMul", "q t", "c"),
        *scores,
        node("Softmax", "s", "p", axis=-1),
        *(last or [node("MatMul", "p v", "y")]),
    ]


def imported(nodes: list[NodeProto], **constants: np.ndarray) -> ImportedModel:
    constants = {"wq": Q, "wk": K, "wv": V, "half": HALF, "bias": BIAS} | constants
    used = {name for each in nodes for name in each.input}
    return check(model(nodes, SHAPE, {name: array for name, array in constants.items() if name in used}))


FACTORS = {
    "behind the product": ([node("Mul", "c half", "s")], 0.5),
    "none": ([node("Add", "c bias", "s")], 1.0),
    "before a bias": ([node("Mul", "c half", "h"), node("Add", "h bias", "s")], 0.5),
    "behind a bias": ([node("Add", "c bias", "h"), node("Mul", "h half", "s")], 0.5),
    "twice": ([node("Mul", "c half", "h"), node("Add", "h bias", "b"), node("Mul", "b half", "s")], 0.25),
    "moved": (
        [node("Mul", "c half", "h"), node("Transpose", "h", "r", perm=[0, 2, 1]), node("Identity", "r", "s")],
        0.5,
    ),
    "negative": ([node("Mul", "c less", "s")], 1.0),
    "of each row": ([node("Mul", "c rows", "s")], 1.0),
    "large and small": ([node("Mul", "c large", "h"), node("Mul", "h small", "s")], 2.0),
}


@pytest.mark.parametrize("name", FACTORS)
def test_exponentials_take_factors_of_scores(name: str) -> None:
    nodes, rate = FACTORS[name]
    constants = {"less": np.float32(-0.5), "rows": np.linspace(0.1, 1, PLACES, dtype=np.float32).reshape(PLACES, 1)}
    constants |= {"large": np.float32(100), "small": np.float32(0.02)}
    found = imported(attention(nodes), **constants)
    assert rates(found) == pytest.approx([rate])


def test_factors_of_queries_and_keys() -> None:
    before = attention([node("Identity", "c", "s")])
    before[4:5] = [node("Mul", "q half", "q2"), node("Mul", "t half", "t2"), node("MatMul", "q2 t2", "c")]
    assert rates(imported(before)) == pytest.approx([0.25])


def test_factors_are_looked_for_once() -> None:
    """Products of products have one factor each: none of them is made again for each way to it."""
    products = [node("MatMul", f"c{i} c{i}", f"c{i + 1}") for i in range(40)]
    nodes = [node("Mul", "x half", "c0"), *products[:4], node("Softmax", "c4", "y", axis=-1)]
    found = check(model([*nodes, node("Add", "y x", "z")], ("N", 4, 4), {"half": HALF}, outputs=("z",)))
    assert len(ops(found, "mat_mul")) == 4
    long = [node("Identity", "x", "c0"), *products, node("Softmax", "c40", "y", axis=-1)]
    small = model([*long, node("Add", "y x", "z")], ("N", 4, 4), outputs=("z",))
    assert len(ops(import_onnx(small), "mat_mul")) == 40


def test_long_chains_of_moves() -> None:
    moves = [node("Transpose", f"m{i}", f"m{i + 1}", perm=[0, 2, 1]) for i in range(1500)]
    scores = [node("Mul", "c half", "m0"), *moves, node("Identity", "m1500", "s")]
    assert rates(imported(attention(scores))) == [0.5]


def test_summands_stay_finite() -> None:
    """A bias over a factor next to nothing would be infinite."""
    scores = [node("Mul", "c tiny", "h"), node("Mul", "h tiny", "i"), node("Add", "i bias", "s")]
    assert rates(imported(attention(scores), tiny=np.float32(1e-30))) == [1.0]


def test_products_are_divided_where_they_are_smaller() -> None:
    found = imported(attention([node("Identity", "c", "s")]))
    assert [each["shape"] for each in ops(found, "multiply")] == [[1, PLACES, WIDTH]]
    # By values of more numbers than there are places, shares are the smaller ones.
    wide = DRAW.standard_normal((WIDTH, 9)).astype(np.float32)
    found = imported(attention([node("Identity", "c", "s")]), wv=wide)
    assert [each["shape"][-2:] for each in ops(found, "multiply")] == [[PLACES, PLACES]]


OTHER_USES = {
    "on the right": [node("Transpose", "p", "r", perm=[0, 2, 1]), node("MatMul", "v2 r", "y")],
    "over the other axis": [node("Transpose", "p", "r", perm=[0, 2, 1]), node("MatMul", "r v", "y")],
    "a part of them": [
        node("Slice", "p zero four two", "r"),
        node("Slice", "v zero four one", "w"),
        node("MatMul", "r w", "y"),
    ],
    "a sum of them": [node("Add", "p bias", "r"), node("MatMul", "r v", "y")],
    "also themselves": [node("MatMul", "p v", "w"), node("MatMul", "p w", "u"), node("Concat", "u p", "y", axis=2)],
    "by a constant": [node("MatMul", "p bias", "y")],
    "themselves": [node("MatMul", "p p", "y")],
}


@pytest.mark.parametrize("use", OTHER_USES)
def test_other_uses_of_shares(use: str) -> None:
    """Read as the file says, whatever is divided where."""
    nodes = attention([node("Mul", "c half", "s")], OTHER_USES[use])
    nodes.insert(3, node("Transpose", "v", "v2", perm=[0, 2, 1]))
    whole = {"zero": np.array([0]), "four": np.array([4]), "two": np.array([2]), "one": np.array([1])}
    imported(nodes, **whole)


@pytest.mark.parametrize("gain", [0.0, 1e-6, 1e-3, 1.0])
def test_scores_next_to_equal(gain: float) -> None:
    """What is taken away from all scores is far larger than these."""
    constants = {"wq": Q, "wk": K, "wv": V, "gain": np.float32(gain)}
    samples = np.random.default_rng(0).standard_normal((96, PLACES, WIDTH)).astype(np.float32)
    proto = model(attention([node("Mul", "c gain", "s")]), SHAPE, constants)
    found = pronghorn.load(proto, samples=samples[:64]).verify(samples[64:], trust="two-party", secure=False)
    assert found.relative_error < 0.04


@pytest.mark.parametrize("bits", [10, 12])
def test_scores_that_are_inputs_are_precise(bits: int) -> None:
    """No layer asks for their precision."""
    nodes = [node("Mul", "x two", "s"), node("Softmax", "s", "p", axis=-1), node("MatMul", "p w", "y")]
    constants = {"two": np.float32(2), "w": DRAW.standard_normal((8, 3)).astype(np.float32)}
    samples = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    options: dict[str, Any] = {"weight_bits": bits, "input_bits": bits, "error": 2.0}
    found = pronghorn.load(model(nodes, ("N", 8), constants), samples=samples, **options).plan("two-party")
    assert found.expected_error.error < {10: 0.012, 12: 0.004}[bits]


def linear_attention(epsilon: float, rows: int = 10, width: int = 8) -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """As EfficientViT has it: ReLUs in the place of a Softmax, and a column of ones for the divisor."""
    draw = np.random.default_rng(2)
    # Of three numbers, all are below zero in an eighth of the rows: 0 / (0 + epsilon).
    sizes = {"wq": 3, "wk": 3, "wv": width, "w": width}
    constants = {name: draw.standard_normal((width, size)).astype(np.float32) for name, size in sizes.items()}
    constants |= {"ones": np.array([0, 0, 0, 0, 0, 1]), "one": np.float32(1), "eps": np.float32(epsilon)}
    constants |= {"from": np.array([0]), "to": np.array([width]), "end": np.array([width + 1]), "last": np.array([2])}
    nodes = [
        node("MatMul", "x wq", "q0"),
        node("Relu", "q0", "q"),
        node("MatMul", "x wk", "k0"),
        node("Relu", "k0", "k1"),
        node("Transpose", "k1", "k", perm=[0, 2, 1]),
        node("MatMul", "x wv", "v0"),
        node("Pad", "v0 ones one", "v"),
        node("MatMul", "k v", "kv"),
        node("MatMul", "q kv", "o"),
        node("Slice", "o from to last", "numerator"),
        node("Slice", "o to end last", "sum"),
        node("Add", "sum eps", "divisor"),
        node("Div", "numerator divisor", "d"),
        node("MatMul", "d w", "e"),
        node("ReduceMean", "e", "y", axes=[1], keepdims=0),
    ]
    return nodes, constants


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_divisors_near_zero_with_their_numerators(trust: str) -> None:
    """Their reciprocals are far larger than all others, and count for nothing: they were refused with an error of 1."""
    nodes, constants = linear_attention(1e-5)
    samples = np.random.default_rng(0).standard_normal((96, 10, 8)).astype(np.float32)
    loaded = pronghorn.load(model(nodes, ("N", 10, 8), constants), samples=samples[:64])
    expected = loaded.plan(trust).expected_error
    assert expected.error < 1.5 * expected.aim
    assert loaded.verify(samples[64:66], trust=trust).disagreements == 0
    assert loaded.verify(samples[64:], trust=trust, secure=False).relative_error < 3 * expected.aim


def test_refusals_name_where_digits_are_lost() -> None:
    """A value far from all others takes the range of its neighbours."""
    nodes = [
        node("MatMul", "x wq", "a"),
        node("Relu", "a", "r"),
        node("Mul", "r large", "l"),
        node("Sub", "l far", "f"),
    ]
    nodes += [node("Relu", "f", "g"), node("MatMul", "g wk", "y")]
    constants = {"wq": Q, "wk": K, "large": np.array([1e9, 1, 1, 1], np.float32)}
    constants["far"] = np.array([1e12, 0, 0, 0], np.float32)
    samples = np.random.default_rng(0).standard_normal((64, WIDTH)).astype(np.float32)
    loaded = pronghorn.load(model(nodes, ("N", WIDTH), constants), samples=samples)
    with pytest.raises(
        PlanError, match=r"Errors become large at node node_\w+ \(\w+, shape \[4\]\): its values err by \d"
    ):
        loaded.plan("two-party")
