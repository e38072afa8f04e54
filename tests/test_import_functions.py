"""Smooth functions, as ONNX operators and as exporters write them in several nodes."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto

import pronghorn
from helpers import check, floats, model, node
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import ImportedModel, import_onnx

OPERATORS = {
    "HardSwish": (node("HardSwish", "x", "y"), {"name": "hard_swish"}, 17),
    "Mish": (node("Mish", "x", "y"), {"name": "mish"}, 18),
    "Softplus": (node("Softplus", "x", "y"), {"name": "softplus"}, 17),
    "Softsign": (node("Softsign", "x", "y"), {"name": "softsign"}, 17),
    "Tanh": (node("Tanh", "x", "y"), {"name": "tanh"}, 17),
    "Gelu": (node("Gelu", "x", "y"), {"name": "gelu"}, 20),
    "Gelu by tanh": (node("Gelu", "x", "y", approximate="tanh"), {"name": "gelu_tanh"}, 20),
    "Elu": (node("Elu", "x", "y", alpha=0.5), {"name": "elu", "scale": 0.5, "width": 1.0}, 17),
    "Celu": (node("Celu", "x", "y", alpha=2.0), {"name": "elu", "scale": 2.0, "width": 2.0}, 17),
}


def functions(imported: ImportedModel) -> list[dict[str, Any]]:
    nodes = json.loads(imported.graph_json)["nodes"]
    return [entry["op"]["function"] for entry in nodes if entry["op"]["kind"] == "function"]


def kinds(imported: ImportedModel) -> list[str]:
    return [entry["op"]["kind"] for entry in json.loads(imported.graph_json)["nodes"]]


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    made, function, opset = OPERATORS[name]
    imported = check(model([made, node("Neg", "y", "z")], (1, 3, 4, 4), opset=opset, outputs=["z"]))
    assert functions(imported) == [function]


def test_selu_has_its_slope_before_it() -> None:
    imported = check(model([node("Selu", "x", "y")], ("N", 7)))
    assert kinds(imported) == ["input", "affine", "function"]
    (function,) = functions(imported)
    assert function["width"] == pytest.approx(1.0507)
    assert function["scale"] == pytest.approx(1.7581, rel=1e-4)


def scalar(value: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(value, np.float32)


# PyTorch, and its older exporters; Keras; a square by Mul.
PATTERNS: dict[str, tuple[list[NodeProto], dict[str, float], dict[str, float | str]]] = {
    "silu": (
        [node("Sigmoid", "v", "s"), node("Mul", "v s", "y")],
        {},
        {"name": "swish", "beta": 1.0},
    ),
    "silu, the other way around": (
        [node("Sigmoid", "v", "s"), node("Mul", "s v", "y")],
        {},
        {"name": "swish", "beta": 1.0},
    ),
    "swish with a steepness": (
        [node("Mul", "v b", "t"), node("Sigmoid", "t", "s"), node("Mul", "v s", "y")],
        {"b": 1.702},
        {"name": "swish", "beta": 1.702},
    ),
    "hard swish by hard sigmoid": (
        [node("HardSigmoid", "v", "s", alpha=1 / 6, beta=0.5), node("Mul", "v s", "y")],
        {},
        {"name": "hard_swish"},
    ),
    "hard swish by clip, divided last": (
        [
            node("Add", "v three", "a"),
            node("Clip", "a zero six", "c"),
            node("Mul", "v c", "m"),
            node("Div", "m six", "y"),
        ],
        {"three": 3, "zero": 0, "six": 6},
        {"name": "hard_swish"},
    ),
    "hard swish by clip, divided first": (
        [
            node("Add", "v three", "a"),
            node("Clip", "a zero six", "c"),
            node("Div", "c six", "d"),
            node("Mul", "d v", "y"),
        ],
        {"three": 3, "zero": 0, "six": 6},
        {"name": "hard_swish"},
    ),
    "hard swish by min, max and a factor": (
        [
            node("Add", "three v", "a"),
            node("Relu", "a", "r"),
            node("Min", "r six", "c"),
            node("Mul", "c sixth", "d"),
            node("Mul", "v d", "y"),
        ],
        {"three": 3, "six": 6, "sixth": 1 / 6},
        {"name": "hard_swish"},
    ),
    "gelu": (
        [
            node("Div", "v root", "d"),
            node("Erf", "d", "e"),
            node("Add", "e one", "a"),
            node("Mul", "v a", "m"),
            node("Mul", "m half", "y"),
        ],
        {"root": math.sqrt(2), "one": 1, "half": 0.5},
        {"name": "gelu"},
    ),
    "gelu, halved first": (
        [
            node("Mul", "v half", "h"),
            node("Mul", "v root", "d"),
            node("Erf", "d", "e"),
            node("Add", "one e", "a"),
            node("Mul", "h a", "y"),
        ],
        {"root": math.sqrt(0.5), "one": 1, "half": 0.5},
        {"name": "gelu"},
    ),
    "gelu by tanh": (
        [
            node("Pow", "v three", "p"),
            node("Mul", "p c", "q"),
            node("Add", "v q", "r"),
            node("Mul", "r k", "s"),
            node("Tanh", "s", "t"),
            node("Add", "t one", "a"),
            node("Mul", "v half", "h"),
            node("Mul", "h a", "y"),
        ],
        {"three": 3, "c": 0.044715, "k": math.sqrt(2 / math.pi), "one": 1, "half": 0.5},
        {"name": "gelu_tanh"},
    ),
    "softplus, a line far above": (
        [node("Softplus", "v", "p"), node("Greater", "v twenty", "g"), node("Where", "g v p", "y")],
        {"twenty": 20},
        {"name": "softplus"},
    ),
    "softsign": (
        [node("Abs", "v", "b"), node("Add", "b one", "a"), node("Div", "v a", "y")],
        {"one": 1},
        {"name": "softsign"},
    ),
    "mish": (
        [node("Softplus", "v", "p"), node("Tanh", "p", "t"), node("Mul", "v t", "y")],
        {},
        {"name": "mish"},
    ),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name: str) -> None:
    nodes, numbers, function = PATTERNS[name]
    constants = {key: scalar(value) for key, value in numbers.items()} | {"w": floats(3, 2, 3, 3)}
    imported = check(model([node("Conv", "x w", "v"), *nodes], (1, 2, 6, 6), constants))
    assert kinds(imported) == ["input", "conv", "function"]
    (found,) = functions(imported)
    assert found.keys() == function.keys()
    assert found["name"] == function["name"]
    assert found.get("beta", 0.0) == pytest.approx(function.get("beta", 0.0), rel=1e-4)


@pytest.mark.parametrize("form", ["one node", "clip", "choices"])
def test_softshrink(form: str) -> None:
    forms = {
        "one node": [node("Shrink", "v", "y", lambd=0.25, bias=0.25)],
        "clip": [node("Clip", "v minus l", "c"), node("Neg", "c", "n"), node("Add", "v n", "y")],
        "choices": [
            node("Greater", "v l", "g"),
            node("Sub", "v l", "a"),
            node("Where", "g a zero", "b"),
            node("Less", "v minus", "s"),
            node("Add", "v l", "d"),
            node("Where", "s d zero", "e"),
            node("Add", "b e", "y"),
        ],
    }
    constants = {name: scalar(value) for name, value in (("l", 0.25), ("minus", -0.25), ("zero", 0))}
    imported = check(model([node("MatMul", "x w", "v"), *forms[form]], ("N", 6), constants | {"w": floats(6, 4)}))
    assert '"clip"' in imported.graph_json
    assert '"step"' in check(model([node("Shrink", "x", "y", lambd=0.25)], ("N", 6))).graph_json


@pytest.mark.parametrize("last", ["thousandths", "nothing", "rectified", "squares", "wide", "uneven"])
def test_what_is_next_to_nothing_is_no_softshrink(last: str) -> None:
    """On the points where functions are compared, all of these but the last are within 1e-4 of a Softshrink."""
    forms = {
        "thousandths": [node("Div", "x many", "s")],
        "nothing": [node("Mul", "x zero", "s")],
        "rectified": [node("Relu", "x", "r"), node("Mul", "r few", "s")],
        "squares": [node("Mul", "x x", "q"), node("Mul", "q few", "s")],
        "wide": [node("Clip", "x minus wide", "c"), node("Neg", "c", "n"), node("Add", "x n", "s")],
        "uneven": [
            node("Mul", "x steep", "t"),
            node("Tanh", "t", "h"),
            node("Mul", "h step", "u"),
            node("Add", "x u", "s"),
        ],
    }
    numbers = {"many": 1e6, "zero": 0, "few": 1e-5, "minus": -25, "wide": 25, "steep": 50, "step": -0.1}
    nodes = [*forms[last], node("MatMul", "s w", "y")]
    used = {name for each in nodes for name in each.input}
    constants = {name: scalar(value) for name, value in numbers.items() if name in used} | {"w": floats(6, 4)}
    imported = check(model(nodes, ("N", 6), constants))
    assert ('"clip"' in imported.graph_json) == (last == "wide")


@pytest.mark.parametrize("last", ["swish", "softsign", "steep", "flat"])
def test_functions_that_end_far_out_are_others(last: str) -> None:
    """Bounds that no input near zero meets, and a Swish for which there is no table."""
    forms = {
        "swish": [node("Clip", "x minus wide", "c"), node("Sigmoid", "x", "g"), node("Mul", "c g", "s")],
        "softsign": [
            node("Clip", "x minus wide", "c"),
            node("Abs", "x", "a"),
            node("Add", "a one", "b"),
            node("Div", "c b", "s"),
        ],
        "steep": [node("Mul", "x ten", "t"), node("Sigmoid", "t", "g"), node("Mul", "x g", "s")],
        "flat": [node("Mul", "x few", "t"), node("Sigmoid", "t", "g"), node("Mul", "x g", "s")],
    }
    numbers = {"minus": -30, "wide": 30, "one": 1, "ten": 10, "few": 0.05}
    nodes = [*forms[last], node("MatMul", "s w", "y")]
    used = {name for each in nodes for name in each.input}
    constants = {name: scalar(value) for name, value in numbers.items() if name in used} | {"w": floats(6, 4)}
    imported = check(model(nodes, ("N", 6), constants))
    assert not {"swish", "softsign"} & {found["name"] for found in functions(imported)}
    assert "multiply" in kinds(imported)


@pytest.mark.parametrize(("bound", "bias"), [(0.24, 0.01), (0.1, 0.2), (0.2, 0.1)])
def test_shrinks_that_jump_are_comparisons(bound: float, bias: float) -> None:
    nodes = [
        node("Greater", "x bound", "g"),
        node("Sub", "x bias", "a"),
        node("Where", "g a zero", "b"),
        node("Less", "x minus", "s"),
        node("Add", "x bias", "d"),
        node("Where", "s d zero", "e"),
        node("Add", "b e", "y"),
    ]
    numbers = {"bound": bound, "minus": -bound, "bias": bias, "zero": 0}
    imported = check(model(nodes, ("N", 6), {name: scalar(value) for name, value in numbers.items()}))
    assert '"step"' in imported.graph_json


def test_sums_that_are_their_value_stay_so() -> None:
    imported = check(model([node("Mul", "x half", "h"), node("Add", "h h", "y")], ("N", 6), {"half": scalar(0.5)}))
    assert '"clip"' not in imported.graph_json


def test_functions_of_functions() -> None:
    nodes = [node("Sigmoid", "x", "s"), node("Mul", "x s", "v")]
    nodes += [node("Sigmoid", "v", "t"), node("Mul", "v t", "y")]
    imported = check(model(nodes, (1, 9)))
    assert kinds(imported) == ["input", "function", "function"]


@pytest.mark.parametrize("slope", [0.2, 0.17])
def test_what_is_no_known_function_stays_a_product(slope: float) -> None:
    nodes = [node("HardSigmoid", "x", "s", alpha=slope, beta=0.5), node("Mul", "x s", "y")]
    assert "multiply" in kinds(check(model(nodes, (1, 9))))
    gate = [node("Relu", "x", "r"), node("Sigmoid", "r", "s"), node("Mul", "x s", "y")]
    assert kinds(check(model(gate, (1, 9)))) == ["input", "relu", "function", "multiply"]


def test_constants_for_each_element_make_no_function() -> None:
    nodes = [node("Mul", "x b", "t"), node("Sigmoid", "t", "s"), node("Mul", "x s", "y")]
    imported = check(model(nodes, (1, 4), {"b": floats(4)}))
    assert kinds(imported) == ["input", "affine", "function", "multiply"]


def test_a_sigmoid_is_the_clients_at_the_end_alone() -> None:
    sigmoid = node("Sigmoid", "x", "y")
    assert kinds(import_onnx(model([sigmoid], (1, 5)))) == ["input", "sigmoid"]
    weights = {"w": floats(5, 3)}
    imported = check(model([sigmoid, node("Gemm", "y w", "z")], (1, 5), weights, outputs=["z"]))
    assert functions(imported) == [{"name": "sigmoid"}]
    # Behind a reshape, and one after the other.
    nodes = [sigmoid, node("Sigmoid", "y", "t"), node("Flatten", "t", "u"), node("Neg", "u", "z")]
    imported = check(model(nodes, (1, 5, 2), outputs=["z"]))
    assert functions(imported) == [{"name": "sigmoid"}] * 2


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (node("Gelu", "x", "y", approximate="erf"), "approximation 'erf'"),
        (node("Swish", "x", "y", alpha=0.0), "its alpha is 0"),
        (node("Celu", "x", "y", alpha=1e6), "from 0.125 to 8"),
    ],
)
def test_parameters_that_no_table_has_are_refused(made: NodeProto, says: str) -> None:
    with pytest.raises(UnsupportedModelError, match=says):
        import_onnx(model([made], (1, 5), opset=24 if made.op_type == "Swish" else 20))


def test_a_shape_after_a_sigmoid_is_the_results() -> None:
    """The client computes the Sigmoid on the shape that the model ends with."""
    nodes = [node("Conv", "x w", "c"), node("Sigmoid", "c", "s"), node("Reshape", "s t", "y")]
    constants = {"w": floats(3, 2, 3, 3) / 4, "t": np.array([0, 4, 4, 3])}
    proto = model(nodes, ("N", 2, 6, 6), constants)
    assert kinds(check(proto)) == ["input", "conv", "reshape", "sigmoid"]
    network, images = pronghorn.load(proto, input_range=(-3, 3)), floats(2, 2, 6, 6)
    assert network.plan().output_shape == network.output_shape == (4, 4, 3)
    report = network.verify(images)
    assert report.ok
    assert report.max_abs_difference < 0.05
    # A Sigmoid and its shape may both be read.
    both = [*nodes[:2], node("Reshape", "s t", "r"), node("Flatten", "s", "f"), node("Flatten", "r", "g")]
    check(model([*both, node("Add", "f g", "y")], ("N", 2, 6, 6), constants))
