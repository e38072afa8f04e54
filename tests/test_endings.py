"""Ends of models that exporters write as several nodes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

import pronghorn
from helpers import check, floats, model, node, run_native, run_onnx
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import import_onnx

LAYER = node("MatMul", "x w", "s")


def ml(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> NodeProto:
    """A node of scikit-learn's operators."""
    return helper.make_node(kind, inputs, outputs, name=f"node_{outputs[-1]}", domain="ai.onnx.ml", **attributes)


def table(nodes: list[NodeProto], **constants: np.ndarray) -> onnx.ModelProto:
    """A model of rows of 4 features."""
    proto = model(nodes, ("N", 4), {"w": floats(4, 3), "column": np.array([-1, 1]), **constants})
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return proto


KEPT = [node("ReduceLogSumExp", "s", "l", axes=[1]), node("Sub", "s l", "y")]
COLUMN = [
    node("ReduceLogSumExp", "s", "l", axes=[-1], keepdims=0),
    node("Reshape", "l column", "c"),
    node("Sub", "s c", "y"),
]


@pytest.mark.parametrize("nodes", [KEPT, COLUMN], ids=["kept", "column"])
def test_a_difference_to_logsumexp_is_a_log_softmax(nodes: list[NodeProto]) -> None:
    proto = table([LAYER, *nodes])
    imported = check(proto)
    assert imported.finish == ["log_softmax_along"]
    # The exponential makes probabilities of it, as in naive Bayes of scikit-learn.
    renamed = [*nodes[:-1], node("Sub", " ".join(nodes[-1].input), "p"), node("Exp", "p", "y")]
    imported = check(table([LAYER, *renamed]))
    assert imported.finish == ["softmax"]


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("axis", [1, 2])
def test_logsumexp_over_one_axis_of_a_map(opset: int, axis: int) -> None:
    axes, constants = ({}, {"a": np.array([axis])}) if opset >= 18 else ({"axes": [axis]}, {})
    nodes = [node("ReduceLogSumExp", "x a" if opset >= 18 else "x", "l", **axes), node("Sub", "x l", "p")]
    proto = model([*nodes, node("Exp", "p", "y")], ("N", 3, 4), constants, opset=opset)
    assert check(proto).finish == ["softmax_along"]


def test_other_uses_of_logsumexp_are_no_ends() -> None:
    for nodes in (
        [node("ReduceLogSumExp", "s", "y", axes=[1])],
        [node("ReduceLogSumExp", "s", "l", axes=[1]), node("Sub", "l s", "y")],
    ):
        assert check(table([LAYER, *nodes])).finish == []
    within = [node("ReduceLogSumExp", "s", "l", axes=[1]), node("Sub", "s l", "p"), node("Abs", "p", "y")]
    assert check(table([LAYER, *within])).finish == []
    # A column against a value of three dimensions.
    proto = model(
        [node("ReduceLogSumExp", "x", "l", axes=[1], keepdims=0), *COLUMN[1:]], (1, 3, 3), {"column": np.array([-1, 1])}
    )
    proto.graph.node[-1].input[0] = "x"
    with pytest.raises(UnsupportedModelError, match="subtracts a column"):
        import_onnx(proto)


def test_logarithms_of_shares_are_kept_from_zero() -> None:
    """The share next to nothing has a logarithm, as `log(softmax(x) + c)` and by a Clip."""
    bounds = {"tiny": np.float32(1e-8), "high": np.float32(0.5)}
    random = np.random.default_rng(2)
    inputs = (30 * random.standard_normal((20, 4))).astype(np.float32)
    for kept, has_shares in (
        (node("Add", "p tiny", "q"), True),
        (node("Add", "tiny p", "q"), True),
        (node("Clip", "p tiny", "q"), True),
        (node("Clip", "p tiny high", "q"), True),
        (node("Clip", "p tiny -", "q"), True),
        (node("Clip", "p - high", "q"), False),
    ):
        used = {name: bounds[name] for name in kept.input if name in bounds}
        proto = table([LAYER, node("Softmax", "s", "p", axis=1), kept, node("Log", "q", "y")], **used)
        imported = check(proto, inputs=inputs if has_shares else floats(3, 4))
        assert ("log" in imported.finish) is not has_shares


@pytest.mark.parametrize("last", [node("Div", "one t", "y"), node("Reciprocal", "t", "y")])
def test_calibrated_probabilities_are_sigmoids(last: NodeProto) -> None:
    proto = table([LAYER, node("Exp", "s", "e"), node("Add", "one e", "t"), last], one=np.float32(1))
    assert check(proto).finish == ["sigmoid"]
    proto = table([LAYER, node("Exp", "s", "e"), node("Add", "two e", "t"), last], one=np.float32(1), two=np.float32(2))
    assert check(proto).finish == ["probabilities"]


@pytest.mark.parametrize("ranges", [(1, 1, 1, 1), (0.01, 1, 300, 2000)])
def test_naive_bayes(ranges: tuple[float, ...]) -> None:
    """As skl2onnx writes GaussianNB, but for the label."""
    unit = np.array(ranges, np.float32)
    nodes = [
        node("Reshape", "x planes", "r"),
        node("Sub", "r theta", "d"),
        node("Pow", "d two", "q"),
        node("Div", "q sigma", "v"),
        node("ReduceSum", "v last", "t", keepdims=0),
        node("Mul", "t half", "h"),
        node("Sub", "prior h", "s"),
        node("ReduceLogSumExp", "s", "l", axes=[1], keepdims=0),
        node("Reshape", "l column", "c"),
        node("Sub", "s c", "p"),
        node("Exp", "p", "y"),
    ]
    constants = {"planes": np.array([-1, 1, 4]), "last": np.array([2]), "prior": floats(1, 3)}
    constants |= {"two": np.float32(2), "half": np.float32(0.5)}
    constants |= {"theta": floats(1, 3, 4) * unit, "sigma": (1 + np.abs(floats(1, 3, 4))) * unit**2}
    proto = table(nodes, **constants)
    assert check(proto, inputs=floats(5, 4) * unit).finish == ["softmax"]
    network, rows = pronghorn.load(proto, samples=floats(100, 4) * unit), floats(50, 4) * unit
    report = network.verify(rows, trust="two-party", secure=False)
    assert report.outputs == "classes"
    assert report.argmax_agreement is not None
    assert report.argmax_agreement > 0.9


@pytest.mark.parametrize("power", [node("Mul", "d d", "q"), node("Pow", "d two", "q"), node("Pow", "d four", "q")])
@pytest.mark.parametrize(("kind", "read"), [("Div", "q c"), ("Mul", "c q"), ("Mul", "q c")])
def test_scales_go_before_even_powers(power: NodeProto, kind: str, read: str) -> None:
    numbers = {"two": np.float32(2), "four": np.float32(4), "t": floats(4)}
    factors = np.abs(floats(4)) + 0.1
    others = [np.float32(3), floats(4), np.array([1, 0, 2, 3], np.float32)]
    for factor in [factors, factors.reshape(1, 4), *others[: 3 if kind == "Mul" else 2]]:
        check(table([node("Sub", "x t", "d"), power, node(kind, read, "y")], c=factor, **numbers))
    both = [node("Sub", "x t", "d"), power, node(kind, read, "v"), node("Add", "v q", "y")]
    check(table(both, c=factors, **numbers))


def test_scales_go_before_powers_where_something_takes_them_up() -> None:
    """Elsewhere they would be layers of their own."""

    def layers(*nodes: NodeProto, **constants: np.ndarray) -> int:
        graph = json.loads(check(table([*nodes], **constants)).graph_json)
        return sum(each["op"]["kind"] == "affine" for each in graph["nodes"])

    numbers = {"c": np.abs(floats(4)) + 0.1, "t": floats(4), "m": floats(4, 4)}
    assert layers(node("Mul", "x x", "q"), node("Mul", "q c", "y"), c=numbers["c"]) == 1
    before = [node("Sub", "x t", "d"), node("Mul", "d d", "q")]
    # The summand and the factor become one map before the square.
    moved = check(table([*before, node("Mul", "q c", "y")], c=numbers["c"], t=numbers["t"]))
    assert [each["op"]["kind"] for each in json.loads(moved.graph_json)["nodes"]][-1] == "square"
    # One square, whose many scales are behind it.
    wide = {"c": np.abs(floats(3, 1, 4)) + 0.1, "t": floats(4), "s": np.array([-1, 1, 1, 4])}
    rows = [node("Reshape", "x s", "r"), node("Sub", "r t", "d"), node("Mul", "d d", "q"), node("Mul", "q c", "y")]
    kinds = [each["op"]["kind"] for each in json.loads(check(table(rows, **wide)).graph_json)["nodes"]]
    assert kinds[-1] == "affine"


def test_magnitudes_of_scaled_values() -> None:
    nodes = [node("Sub", "x t", "d"), node("Abs", "d", "a"), node("Div", "a c", "y")]
    made = check(table(nodes, c=np.abs(floats(4)) + 0.1, t=floats(4)))
    assert json.loads(made.graph_json)["nodes"][-1]["op"]["kind"] != "affine"


def test_names_of_values_that_are_made_are_free() -> None:
    nodes = [
        node("Sub", "x t", "d"),
        node("Mul", "d d", "q"),
        node("Div", "q c", "y0"),
        node("Add", "y0 y0/factor", "y1"),
        node("Neg", "x", "y0/scaled"),
        node("Add", "y1 y0/scaled", "y"),
    ]
    check(table(nodes, **{"c": np.abs(floats(4)) + 0.1, "t": floats(4), "y0/factor": floats(4)}))


@pytest.mark.parametrize("kind", ["Mul", "Div"])
def test_a_factor_of_an_exponential_moves_into_it(kind: str) -> None:
    for factor in (np.float32(2.5), np.abs(floats(3)) + 0.1):
        proto = table([LAYER, node("Exp", "s", "e"), node(kind, "e f", "y")], f=factor)
        assert check(proto).finish == ["exp"]
    check(table([LAYER, node("Exp", "s", "e"), node("Mul", "f e", "y")], f=np.float32(0.5)))
    for factor, finish in ((np.float32(0), ["probabilities"]), (np.float32(-2), [])):
        assert check(table([LAYER, node("Exp", "s", "e"), node("Mul", "e f", "y")], f=factor)).finish == finish


ONES = {"one": np.float32(1), "minus": np.float32(-1)}


def test_an_exponential_less_one_is_an_end() -> None:
    """As regressions of `log(1 + y)` have it."""
    for last in (node("Sub", "e one", "y"), node("Add", "e minus", "y"), node("Add", "minus e", "y")):
        assert check(table([LAYER, node("Exp", "s", "e"), last], **ONES)).finish == ["exp_m1"]
    for last in (node("Sub", "one e", "y"), node("Add", "e one", "y")):
        assert check(table([LAYER, node("Exp", "s", "e"), last], **ONES)).finish == []


@pytest.mark.parametrize("minus", ["Sub", "Add"])
def test_a_factor_of_an_exponential_less_one_moves_into_it(minus: str) -> None:
    one = "one" if minus == "Sub" else "minus"
    for scaled in (node("Mul", "f e", "m"), node("Mul", "e f", "m"), node("Div", "e f", "m")):
        for factor in (np.float32(2.5), np.abs(floats(3)) + 0.1):
            proto = table([LAYER, node("Exp", "s", "e"), scaled, node(minus, f"m {one}", "y")], f=factor, **ONES)
            assert check(proto).finish == ["exp_m1"]
    nodes = [LAYER, node("Exp", "s", "e"), node("Mul", "e f", "m"), node("Sub", "m one", "y")]
    assert check(table(nodes, f=np.float32(-1), **ONES)).finish == []


@pytest.mark.parametrize("base", [np.float32(10), np.float32([2, 3, 0.5])])
def test_constants_with_computed_exponents_are_exponentials(base: np.ndarray) -> None:
    """As regressions of a logarithm to base 10 end."""
    power = [LAYER, node("Pow", "b s", "p")]
    assert check(table([*power, node("Identity", "p", "y")], b=base)).finish == ["exp"]
    assert check(table([*power, node("Mul", "p f", "y")], b=base, f=np.float32(3))).finish == ["exp"]
    assert check(table([*power, node("Sub", "p one", "y")], b=base, **ONES)).finish == ["exp_m1"]
    with pytest.raises(UnsupportedModelError, match=r"raises a constant, b, to a computed power[\s\S]*only positive"):
        import_onnx(table([LAYER, node("Pow", "b s", "y")], b=-base))
    assert check(table([*power, node("Relu", "p", "y")], b=base)).finish == []
    # A power of an integer is an integer.
    with pytest.raises(UnsupportedModelError, match="raises a constant"):
        import_onnx(table([LAYER, node("Pow", "b s", "p"), node("Cast", "p", "y", to=1)], b=np.int32(2)))


def test_a_sigmoid_of_exponentials() -> None:
    """`1 / (1 + exp(-x))`, as SGDClassifier of scikit-learn and TensorFlow's exporter write it."""
    nodes = [LAYER, node("Mul", "s minus", "n"), node("Exp", "n", "e"), node("Add", "e one", "a")]
    for last in (node("Reciprocal", "a", "y"), node("Div", "one a", "y")):
        assert check(table([*nodes, last], **ONES)).finish == ["sigmoid"]


@pytest.mark.parametrize("kind", ["Sigmoid", "Relu"])
def test_shares_of_one_class_against_the_rest(kind: str) -> None:
    """As skl2onnx writes SGDClassifier(loss="log_loss"). Of zeros, as other losses have them, shares are equal."""
    nodes = [
        LAYER,
        node(kind, "s", "p"),
        node("ReduceSum", "p last", "t"),
        node("Cast", "t", "b", to=9),
        node("Not", "b", "n"),
        node("Cast", "n", "z", to=1),
        node("Add", "p z", "q"),
        node("Mul", "z count", "m"),
        node("Add", "t m", "u"),
        node("Div", "q u", "y"),
    ]
    proto = table(nodes, last=np.array([1]), count=np.float32(3))
    sigmoid = ["sigmoid"] if kind == "Sigmoid" else []
    assert check(proto).finish == [*sigmoid, "shares_along"]
    assert import_onnx(proto, output="p").finish == sigmoid


@pytest.mark.parametrize("kind", ["Div", "LpNormalization"])
def test_shares_of_small_probabilities(kind: str) -> None:
    """Rows that all classes reject have sigmoids that fixed point has as 0: the client divides."""
    divide = [node("ReduceSum", "p last", "t"), node("Div", "p t", "y")]
    nodes = [
        LAYER,
        node("Sub", "s far", "r"),
        node("Sigmoid", "r", "p"),
        *(divide if kind == "Div" else [node("LpNormalization", "p", "y", axis=1, p=1)]),
    ]
    proto, random = table(nodes, last=np.array([1]), far=np.float32(7)), np.random.default_rng(17)
    inputs = random.standard_normal((100, 4)).astype(np.float32)
    report = pronghorn.load(proto, samples=inputs[:60]).verify(inputs[60:])
    assert report.disagreements == 0
    assert report.relative_error < 0.05


def test_shares_within_a_network_are_its_own() -> None:
    """Layers behind them read what the network divides."""
    nodes = [
        LAYER,
        node("Sigmoid", "s", "p"),
        node("ReduceSum", "p last", "t"),
        node("Div", "p t", "q"),
        node("MatMul", "q v", "y"),
    ]
    assert check(table(nodes, last=np.array([1]), v=floats(3, 2))).finish == []
    # Values that may be negative are no parts of their sum.
    signed = [LAYER, node("ReduceSum", "s last", "t"), node("Div", "s t", "y")]
    assert import_onnx(table(signed, last=np.array([1]))).finish == []
    inverse = [LAYER, node("Reciprocal", "s", "p"), node("ReduceSum", "p last", "t"), node("Div", "p t", "y")]
    assert import_onnx(table(inverse, last=np.array([1]))).finish == []


def test_many_copies_of_sigmoids_take_little() -> None:
    """Each copy is looked at once."""
    nodes, last = [LAYER, node("Sigmoid", "s", "p0")], 40
    for at in range(last):
        nodes += [
            node("Concat", f"p{at} p{at}", f"c{at}", axis=1),
            node("Slice", f"c{at} none three one", f"p{at + 1}"),
        ]
    nodes += [node("ReduceSum", f"p{last} one", "t"), node("Div", f"p{last} t", "y")]
    proto = table(nodes, none=np.array([0]), three=np.array([3]), one=np.array([1]))
    assert import_onnx(proto).finish == ["sigmoid", "shares_along"]


def test_shares_of_boosted_classifiers_are_a_softmax() -> None:
    """As skl2onnx writes AdaBoostClassifier."""
    nodes = [
        LAYER,
        node("Exp", "s", "e"),
        node("ReduceSum", "e last", "t"),
        node("Reshape", "t column", "r"),
        node("Cast", "r", "i", to=6),
        node("Equal", "i none", "z"),
        node("Cast", "z", "f", to=1),
        node("Add", "r f", "n"),
        node("Div", "e n", "y"),
    ]
    assert import_onnx(table(nodes, last=np.array([1]), none=np.int32(0))).finish == ["softmax"]


def one_against_the_rest(outputs: str = "y") -> onnx.ModelProto:
    """As skl2onnx writes OneVsRestClassifier(LogisticRegression())."""
    nodes = []
    for name in "abc":
        row, bias = floats(4), float(floats(1)[0])
        given = {"coefficients": [*-row, *row], "intercepts": [-bias, bias], "classlabels_ints": [0, 1]}
        nodes.append(ml("LinearClassifier", ["x"], [f"label_{name}", f"p{name}"], post_transform="LOGISTIC", **given))
        nodes.append(node("Slice", f"p{name} one two one", name))
    nodes += [node("Concat", "a b c", "p", axis=1), node("LpNormalization", "p", "y", axis=1, p=1)]
    proto = table(nodes, one=np.array([1]), two=np.array([2]))
    proto.graph.output[0].name = outputs
    return proto


def test_classifiers_of_one_class_against_the_rest() -> None:
    assert check(one_against_the_rest()).finish == ["sigmoid", "shares_along"]
    proto = one_against_the_rest("p")
    imported, inputs = import_onnx(proto), floats(5, 4)
    assert imported.finish == ["sigmoid"]
    found, wanted = run_native(imported, inputs), run_onnx(proto, inputs)
    np.testing.assert_allclose(found.reshape(5, 3), wanted.reshape(5, 3), rtol=1e-4, atol=1e-5)
