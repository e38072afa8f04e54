"""Where refusals say to end a network whose last operators are the client's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

from helpers import check, floats, model, node
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import import_onnx
from pronghorn.onnx.cutting import BEFORE_SENDING, REPLACE

CONSTANTS = {name: floats(4, 4) for name in "uvw"} | {"one": np.float32(1), "half": np.float32(0.5)}


def network(*nodes: NodeProto, inputs: Sequence[str] = ("x",)) -> onnx.ModelProto:
    """A network of rows of 4 features."""
    return model(nodes, ("N", 4), CONSTANTS, inputs=inputs)


def advice(proto: onnx.ModelProto, **options: Any) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        import_onnx(proto, **options)
    return caught.value.advice


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (node("Sub", "e half", "y"), "subtract 0.5 from it"),
        (node("Sub", "one e", "y"), "subtract it from 1"),
        (node("Add", "half e", "y"), "add 0.5 to it"),
        (node("Div", "one e", "y"), "compute the rest of it"),
        (node("Add", "e e", "y"), "compute the rest of it"),
    ],
)
def test_what_is_left_of_a_class_is_said(last: NodeProto, says: str) -> None:
    found = advice(network(node("MatMul", "x w", "s"), node("ArgMax", "s", "e", axis=1), last))
    assert found.startswith(f"end the model there (--output e, output='e'), and {says}"), found


def test_several_steps_are_said_in_order() -> None:
    scores, index = node("MatMul", "x w", "s"), node("ArgMax", "s", "e", axis=1)
    nodes = [scores, index, node("Sub", "e half", "d"), node("Mul", "d half", "y")]
    assert "subtract 0.5 from it, multiply it by 0.5 yourself" in advice(network(*nodes))


def test_a_network_goes_on_with_quotients_and_shares() -> None:
    """`x / (std + eps)`, and two layers."""
    nodes = [
        node("ReduceMean", "x", "m", axes=[1]),
        node("Sub", "x m", "c"),
        node("Mul", "c c", "q"),
        node("ReduceMean", "q", "d", axes=[1]),
        node("Sqrt", "d", "r"),
        node("Add", "r one", "t"),
        node("Div", "c t", "n"),
        node("MatMul", "n w", "h"),
        node("MatMul", "h u", "y"),
    ]
    check(network(*nodes))
    check(network(node("MatMul", "x w", "h"), node("Softmax", "h", "s"), node("MatMul", "s u", "y")))
    check(network(node("MatMul", "x w", "s"), node("Exp", "s", "e"), node("Mul", "e x", "y")))


def test_a_step_before_the_layers_is_taken_before_sending() -> None:
    nodes = [node("ArgMax", "x", "a", axis=1, keepdims=1), node("Cast", "a", "f", to=1), node("Add", "f x", "c")]
    assert advice(network(*nodes, node("MatMul", "c w", "h"), node("MatMul", "h u", "y"))) == BEFORE_SENDING


def test_a_step_before_most_layers_is_no_end() -> None:
    largest = [node("ArgMax", "h", "a", axis=1, keepdims=1), node("Cast", "a", "f", to=1), node("Add", "f h", "s")]
    nodes = [
        node("MatMul", "x w", "h"),
        *largest,
        node("MatMul", "s u", "t"),
        node("MatMul", "t v", "y"),
    ]
    assert advice(network(*nodes)) == REPLACE
    # Behind most of them it is one.
    nodes = [
        node("MatMul", "x w", "t"),
        node("MatMul", "t u", "h"),
        *largest,
        node("MatMul", "s v", "y"),
    ]
    assert "--output" in advice(network(*nodes))


COSINE = [
    node("MatMul", "x w", "a"),
    node("MatMul", "z w", "b"),
    node("Mul", "a b", "p"),
    node("ReduceSumSquare", "a", "c", axes=[1]),
    node("ReduceSumSquare", "b", "d", axes=[1]),
    node("Mul", "c d", "q"),
    node("Sqrt", "q", "r"),
    node("Max", "r one", "m"),
    node("Div", "p m", "y"),
]


def test_an_end_that_needs_other_values_names_all_of_them() -> None:
    """The values are those before what the client computes, which are part of a row."""
    index = [node("MatMul", "x w", "a"), node("MatMul", "x u", "b"), node("ArgMax", "a", "c", axis=1)]
    says = "(--output b --output a, output=['b', 'a'])"
    assert says in advice(network(*index, node("Add", "c b", "y")))
    # Of a row of both, too.
    assert "(--output a --output b, output=['a', 'b'])" in advice(
        network(*index, node("Add", "c b", "y")), output=["c", "b"]
    )


def test_a_cosine_is_an_end() -> None:
    proto = network(*COSINE, inputs=("x", "z"))
    assert '"reciprocal"' in import_onnx(proto).graph_json
    imported = import_onnx(proto, output=["p", "q"])
    assert imported.outputs == {"p": (4,), "q": (1,)}
    assert import_onnx(proto, output=["r", "p"]).outputs == {"r": (1,), "p": (4,)}


def test_values_that_are_the_input_are_with_the_client() -> None:
    nodes = [node("MatMul", "x w", "s"), node("ArgMax", "s", "e", axis=1), node("Add", "e x", "y")]
    assert advice(network(*nodes)).startswith("end the model there (--output e, output='e')")


def test_probabilities_of_several_classifiers() -> None:
    nodes = []
    for name in "ab":
        given = {"coefficients": floats(12).tolist(), "intercepts": floats(3).tolist(), "classlabels_ints": [0, 1, 2]}
        given |= {"domain": "ai.onnx.ml", "post_transform": "SOFTMAX"}
        nodes.append(helper.make_node("LinearClassifier", ["x"], [f"l{name}", name], name=f"node_{name}", **given))
    proto = network(*nodes, node("Add", "a b", "y"))
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    check(proto)
    assert import_onnx(proto, output=["a", "b"]).outputs == {"a": (3,), "b": (3,)}
    for name in "ab":
        one = onnx.ModelProto()
        one.CopyFrom(proto)
        one.graph.output[0].name = name
        check(one)
