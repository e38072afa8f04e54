"""Normalisations by computed deviations and norms, and the nodes that exporters write for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto

import pronghorn
from helpers import check, floats, model, node, run_native, run_onnx
from pronghorn import UnsupportedModelError
from pronghorn.errors import PlanError
from pronghorn.onnx import ImportedModel, import_onnx


def operators(imported: ImportedModel) -> list[dict[str, Any]]:
    return [entry["op"] for entry in json.loads(imported.graph_json)["nodes"]]


def roots(imported: ImportedModel) -> list[dict[str, Any]]:
    return [op["function"] for op in operators(imported) if op["kind"] == "function"]


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((1, 7), -1),
        ((1, 8), 1),
        (("N", 5), -1),
        (("N", 4, 6), -1),
        ((1, 3, 5, 9), 3),
        (("N", 3, 5, 2), 2),
        ((1, 3, 5, 2), 1),
        ((1, 4, 1), -1),
    ],
)
@pytest.mark.parametrize("constants", ["", "s", "s b"])
def test_layer_normalization(shape: tuple[Any, ...], axis: int, constants: str) -> None:
    given = {name: floats(*shape[axis % len(shape) :]) for name in constants.split()}
    # The scale is not optional in ONNX.
    inputs = f"x {constants}" if constants else "x one"
    given |= {} if constants else {"one": np.ones(shape[axis % len(shape) :], np.float32)}
    imported = check(model([node("LayerNormalization", inputs, "y", axis=axis)], shape, given))
    assert len(roots(imported)) == 1


def test_epsilons_are_the_models() -> None:
    """Of six elements, which zeros fill up to eight, the mean square is 6 / 8 of the true one."""
    given = {"s": floats(6)}
    imported = check(model([node("LayerNormalization", "x s", "y", epsilon=0.5)], (1, 6), given))
    assert roots(imported) == [{"name": "inverse_root", "epsilon": 0.375, "scale": 0.8660253882408142}]
    imported = import_onnx(model([node("LayerNormalization", "x s", "y")], (1, 6), given))
    assert roots(imported)[0]["epsilon"] == pytest.approx(0.75e-5)


def test_values_that_do_not_differ_become_zero() -> None:
    given = {"s": np.ones(6, np.float32)}
    flat = np.full((2, 6), 3.0, np.float32)
    check(model([node("LayerNormalization", "x s", "y")], ("N", 6), given), inputs=flat)


def pattern(axes: list[int], opset: int, form: str = "pow") -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """The nodes of a layer normalisation of `v`, which make `n`."""
    constants = {"two": number(2), "eps": number(1e-3), "half": number(0.5)}
    given: dict[str, Any] = {"axes": axes} if opset < 18 else {}
    extra = "" if opset < 18 else " axes"
    if extra:
        constants["axes"] = np.array(axes, np.int64)
    square = {"mul": node("Mul", "d d", "q")}.get(form, node("Pow", "d two", "q"))
    # Some compute the difference twice.
    twice = [node("Sub", "v m", "d2")] if form == "twice" else []
    root = {"power": node("Pow", "a half", "r")}.get(form, node("Sqrt", "a", "r"))
    nodes = [
        node("ReduceMean", "v" + extra, "m", **given),
        node("Sub", "v m", "d"),
        *twice,
        square,
        node("ReduceMean", "q" + extra, "u", **given),
        node("Add", "eps u" if form == "mul" else "u eps", "a"),
        root,
        node("Div", "d2 r" if twice else "d r", "n"),
    ]
    used = {name for each in nodes for name in each.input}
    return nodes, {name: value for name, value in constants.items() if name in used}


@pytest.mark.parametrize("form", ["pow", "mul", "twice", "power"])
@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize(("shape", "axes"), [((1, 7), [-1]), (("N", 5, 3, 4), [1]), (("N", 3, 4, 5), [3])])
def test_the_pattern(shape: tuple[Any, ...], axes: list[int], opset: int, form: str) -> None:
    nodes, constants = pattern(axes, opset, form)
    ends = [node("Neg", "x", "v"), *nodes, node("Mul", "n s", "p"), node("Add", "p b", "y")]
    ones = [1] * (len(shape) - 2) if axes == [1] else []
    constants |= {name: floats(int(shape[axes[0]]), *ones) for name in "sb"}
    imported = check(model(ends, shape, constants, opset=opset))
    assert [function["name"] for function in roots(imported)] == ["inverse_root"]


def factored(form: str) -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """A layer normalisation of `x` along axis 2 as TensorFlow writes it, `x * f + (b - m * f)`; the last node makes
    `y`."""
    mean = {"pool": "GlobalAveragePool"}.get(form, "ReduceMean")
    given: dict[str, Any] = {} if form == "pool" else {"axes": [2]}
    ends = {
        "sub": [node("Mul", "m f", "k"), node("Sub", "b k", "e"), node("Add", "e z", "y")],
        "bare": [node("Neg", "m", "g"), node("Mul", "g f", "k"), node("Add", "z k", "y")],
        "centred": [node("Mul", "d f", "y")],
        "one": [node("Neg", "m", "g"), node("Mul", "f g", "k"), node("Add", "z k", "y")],
    }
    usual = [node("Neg", "m", "g"), node("Mul", "g f", "k"), node("Add", "k b", "e"), node("Add", "z e", "y")]
    factor = [node("Div", "one r", "f")] if form == "one" else [node("Reciprocal", "r", "i"), node("Mul", "i s", "f")]
    nodes = [
        node(mean, "x", "m", **given),
        node("Sub", "x m", "d"),
        node("Mul", "d d", "q"),
        node(mean, "q", "u", **given),
        node("Add", "u eps", "a"),
        node("Sqrt", "a", "r"),
        *factor,
        node("Mul", "x f", "z"),
        *ends.get(form, usual),
    ]
    return nodes, {"eps": number(1e-3), "one": number(1), "s": 1 + floats(1, 1, 6) / 4, "b": floats(1, 1, 6)}


@pytest.mark.parametrize("form", ["usual", "pool", "sub", "bare", "centred", "one"])
def test_the_pattern_of_tensorflow(form: str) -> None:
    nodes, constants = factored(form)
    used = {name for each in nodes for name in each.input}
    imported = check(model(nodes, ("N", 4, 6), {name: a for name, a in constants.items() if name in used}, opset=13))
    assert [function["name"] for function in roots(imported)] == ["inverse_root"]


def fast_variance(restored: str, count: float) -> tuple[list[NodeProto], dict[str, Any]]:
    """A normalisation as JAX writes it: `E[x^2] - E[x]^2`, sums over a number, and dimensions that come back later."""

    def restore(source: str, result: str) -> list[NodeProto]:
        if restored == "Unsqueeze":
            return [node("Unsqueeze", f"{source} two", result)]
        return [node("Reshape", f"{source} column", f"{result}_c"), node("Expand", f"{result}_c column", result)]

    nodes = [
        node("ReduceSum", "x two", "t", keepdims=0),
        node("Mul", "x x", "q"),
        node("ReduceSum", "q two", "v", keepdims=0),
        node("Mul", "v share", "e"),
        node("Mul", "t share", "m"),
        node("Mul", "m m", "s"),
        node("Sub", "e s", "d"),
        node("Max", "zero d", "n"),
        *restore("n", "w"),
        node("Add", "w eps", "a"),
        node("Sqrt", "a", "r"),
        node("Reciprocal", "r", "i"),
        node("Mul", "i g", "f"),
        *restore("m", "k"),
        node("Sub", "x k", "c"),
        node("Mul", "c f", "o"),
        node("Add", "o b", "y"),
    ]
    constants: dict[str, Any] = {"two": np.array([2]), "share": number(1 / count), "zero": number(0)}
    column = {"column": np.array([1, 4, 1])} if restored == "Expand" else {}
    return nodes, constants | column | {"eps": number(1e-4), "g": 1 + floats(1, 1, 6) / 4, "b": floats(1, 1, 6)}


@pytest.mark.parametrize("restored", ["Expand", "Unsqueeze"])
def test_the_pattern_of_jax(restored: str) -> None:
    nodes, constants = fast_variance(restored, 6)
    imported = check(model(nodes, (1, 4, 6), constants, opset=15))
    assert [function["name"] for function in roots(imported)] == ["inverse_root"]
    # A difference of two means of squares has no digits in fixed point. One of squares of differences has them.
    assert all(entry["op"]["kind"] != "clip" for entry in json.loads(imported.graph_json)["nodes"])


def test_sums_over_another_number_are_no_means() -> None:
    nodes, constants = fast_variance("Unsqueeze", 5)
    with pytest.raises(UnsupportedModelError, match="divides sums of 6 places by 5"):
        import_onnx(model(nodes, (1, 4, 6), constants, opset=15))


@pytest.mark.parametrize(
    "other",
    [
        node("Neg", "u", "g"),
        node("Neg", "d", "g"),
        node("Mul", "g i", "k"),
        node("Mul", "d f", "z"),
        node("ReduceMean", "q", "u", axes=[1]),
        node("Add", "k x", "e"),
    ],
    ids=str,
)
def test_other_sums_are_no_normalisations(other: NodeProto) -> None:
    """Their roots and quotients have tables of their own."""
    nodes, constants = factored("usual")
    changed = [other if each.output == other.output else each for each in nodes]
    assert_divides(model(changed, ("N", 4, 6), constants, opset=13))


def assert_divides(proto: onnx.ModelProto) -> None:
    """That a model is imported with its own quotients, and not as a normalisation alone."""
    imported = import_onnx(proto)
    assert {function["name"] for function in roots(imported)} & {"reciprocal", "sqrt"}
    # Of some the roots are of negative numbers.
    inputs = np.abs(floats(4, *imported.input_shape))
    wanted = run_onnx(proto, inputs).reshape(len(inputs), -1)
    known = np.isfinite(wanted)
    found = run_native(imported, inputs).reshape(wanted.shape)
    np.testing.assert_allclose(found[known], wanted[known], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "other",
    [
        node("Pow", "d three", "q"),
        node("Pow", "h two", "q"),
        node("Add", "u h", "a"),
    ],
    ids=str,
)
def test_other_quotients_are_no_normalisations(other: NodeProto) -> None:
    nodes, constants = pattern([3], 13)
    nodes = [other if each.output[0] == other.output[0] else each for each in nodes]
    constants["three"] = number(4)
    nodes = [node("Neg", "x", "v"), node("Relu", "x", "h"), *nodes, node("Neg", "n", "y")]
    assert_divides(model(nodes, (1, 3, 4, 4), constants, opset=13))


@pytest.mark.parametrize("axes", [[1, 2, 3], [2, 3], [1, 3], [1]])
def test_mean_variance_normalization(axes: list[int]) -> None:
    made = node("MeanVarianceNormalization", "x", "y", axes=axes)
    check(model([made], ("N", 3, 4, 5), opset=13))


@pytest.mark.parametrize("shape", [(1, 3, 4, 5), ("N", 4, 7), ("N", 2, 3, 2, 2)])
def test_instance_normalization(shape: tuple[Any, ...]) -> None:
    given = {name: 1 + floats(shape[1]) / 4 for name in "sb"}
    imported = check(model([node("InstanceNormalization", "x s b", "y", epsilon=1e-3)], shape, given, opset=13))
    assert len(roots(imported)) == 1


@pytest.mark.parametrize(("shape", "groups"), [((1, 6, 4, 5), 3), (("N", 6, 3), 1), (("N", 4, 2, 2), 4)])
def test_group_normalization(shape: tuple[Any, ...], groups: int) -> None:
    given = {name: 1 + floats(shape[1]) / 4 for name in "sb"}
    check(model([node("GroupNormalization", "x s b", "y", num_groups=groups)], shape, given, opset=21))


@pytest.mark.parametrize("opset", [18, 20])
def test_group_normalization_of_a_factor_for_each_group(opset: int, tmp_path: Path) -> None:
    """Its form before opset 21, which onnx's checker calls deprecated and runtimes run."""
    given = {name: 1 + floats(3) / 4 for name in "sb"}
    proto = model([node("GroupNormalization", "x s b", "y", num_groups=3)], ("N", 6, 4, 5), given, opset=opset)
    assert {each.domain for each in check(proto).reference.graph.node} == {""}
    onnx.save(proto, tmp_path / "model.onnx")
    assert import_onnx(tmp_path / "model.onnx").output_shape == (6, 4, 5)
    given["s"] = floats(6)
    proto = model([node("GroupNormalization", "x s b", "y", num_groups=3)], ("N", 6, 4, 5), given, opset=opset)
    with pytest.raises(UnsupportedModelError, match="does not fit 3 groups"):
        import_onnx(proto)


def test_group_normalization_as_older_exporters_write_it() -> None:
    given = {"to": np.array([0, 3, -1]), "one": np.ones(3, np.float32), "zero": np.zeros(3, np.float32)}
    given |= {"back": np.array([0, 6, 4, 5]), "s": 1 + floats(6, 1, 1) / 4, "b": floats(6, 1, 1)}
    nodes = [
        node("Reshape", "x to", "r"),
        node("InstanceNormalization", "r one zero", "i"),
        node("Reshape", "i back", "n"),
        node("Mul", "n s", "m"),
        node("Add", "m b", "y"),
    ]
    check(model(nodes, ("N", 6, 4, 5), given, opset=13))


@pytest.mark.parametrize(("shape", "axis"), [((1, 7), -1), (("N", 3, 4), -1), (("N", 3, 4, 2), 2)])
def test_rms_normalization(shape: tuple[Any, ...], axis: int) -> None:
    given = {"s": 1 + floats(*shape[axis % len(shape) :]) / 4}
    check(model([node("RMSNormalization", "x s", "y", axis=axis)], shape, given, opset=23))


@pytest.mark.parametrize("form", ["div", "mul", "one"])
def test_the_pattern_of_mean_squares(form: str) -> None:
    ends = {
        "div": [node("Div", "x r", "n")],
        "mul": [node("Reciprocal", "r", "i"), node("Mul", "x i", "n")],
        "one": [node("Div", "one r", "i"), node("Mul", "i x", "n")],
    }
    nodes = [
        node("Pow", "x two", "q"),
        node("ReduceMean", "q", "u", axes=[-1]),
        node("Add", "u eps", "a"),
        node("Sqrt", "a", "r"),
        *ends[form],
        node("Mul", "s n", "y"),
    ]
    constants = {"two": number(2), "eps": number(1e-3), "one": number(1), "s": 1 + floats(6) / 4}
    used = {name for each in nodes for name in each.input}
    given = {name: value for name, value in constants.items() if name in used}
    assert len(roots(check(model(nodes, ("N", 4, 6), given, opset=13)))) == 1


def test_what_is_subtracted_from_a_mean_square_may_be_another_mean() -> None:
    nodes = [
        node("ReduceMean", "x", "m", axes=[1]),
        node("Sub", "x m", "d"),
        node("Mul", "d d", "q"),
        node("ReduceMean", "q", "u", axes=[2]),
        node("Sqrt", "u", "r"),
        node("Div", "d r", "y"),
    ]
    check(model(nodes, ("N", 4, 6), opset=13))


@pytest.mark.parametrize("axis", [1, -1])
def test_lp_normalization(axis: int) -> None:
    check(model([node("LpNormalization", "x", "y", axis=axis)], ("N", 3, 4)))


def test_rows_of_unit_length() -> None:
    proto = model([node("Normalizer", "x", "y", norm="L2", domain="ai.onnx.ml")], ("N", 5))
    proto.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 1))
    check(proto, inputs=np.concatenate([floats(3, 5), np.zeros((1, 5), np.float32)]))


@pytest.mark.parametrize("form", ["torch", "roots", "bare", "square", "plus"])
def test_the_pattern_of_norms(form: str) -> None:
    norm = [node("ReduceL2", "x", "l", axes=[1])]
    root = [node("Mul", "x x", "q"), node("ReduceSum", "q ax", "t"), node("Sqrt", "t", "l")]
    nodes = {
        "torch": [*norm, node("Clip", "l eps", "c"), node("Shape", "x", "z"), node("Expand", "c z", "e")],
        "roots": [*root, node("Max", "l eps", "e")],
        "square": [node("ReduceSumSquare", "x", "t", axes=[1]), node("Sqrt", "t", "e")],
        "bare": [node("ReduceL2", "x", "e", axes=[1])],
        "plus": [*root, node("Add", "l eps", "e")],
    }[form]
    constants = {"eps": number(1e-12), "ax": np.array([1])}
    used = {name for each in nodes for name in each.input}
    given = {name: value for name, value in constants.items() if name in used}
    check(model([*nodes, node("Div", "x e", "y")], ("N", 4, 6), given, opset=13))


@pytest.mark.parametrize("form", ["bare", "least square", "most", "quotient"])
def test_the_pattern_of_inverse_norms(form: str) -> None:
    """As TensorFlow's exporter writes `x * rsqrt(...)`."""
    nodes = [node("Mul", "x x", "q"), node("ReduceSum", "q axes", "s", keepdims=1)]
    nodes += [node("Max", "tiny s", "m")] if form == "least square" else []
    nodes += [node("Sqrt", "m" if form == "least square" else "s", "r")]
    nodes += [node("Div", "one r", "i") if form == "quotient" else node("Reciprocal", "r", "i")]
    nodes += [node("Min", "i large", "f")] if form == "most" else []
    nodes += [node("Mul", "f x" if form == "most" else "x i", "y")]
    constants = {"axes": np.array([-1]), "tiny": np.float32(1e-12), "one": np.float32(1), "large": np.float32(1e7)}
    check(model(nodes, ("N", 6), {name: np.asarray(value) for name, value in constants.items()}))


def test_inverse_norms_of_other_bounds_are_no_normalisations() -> None:
    nodes = [node("Mul", "x x", "q"), node("ReduceSum", "q axes", "s", keepdims=1), node("Sqrt", "s", "r")]
    nodes += [node("Reciprocal", "r", "i"), node("Min", "i large", "f"), node("Mul", "x f", "y")]
    assert_divides(model(nodes, ("N", 6), {"axes": np.array([-1]), "large": np.asarray(np.float32(2))}))


def test_norms_that_are_expanded_beyond_the_value_are_refused() -> None:
    nodes = [node("ReduceL2", "x", "l", axes=[2]), node("Expand", "l to", "e"), node("Div", "x e", "y")]
    check(model(nodes, ("N", 3, 5), {"to": np.array([1, 3, 5])}))
    with pytest.raises(UnsupportedModelError, match="beyond its input's shape"):
        import_onnx(model(nodes, ("N", 1, 5), {"to": np.array([1, 3, 5])}))


def test_a_pooled_mean_square_is_over_all_places() -> None:
    nodes = [
        node("Mul", "x x", "q"),
        node("GlobalAveragePool", "q", "u"),
        node("Add", "u eps", "a"),
        node("Sqrt", "a", "r"),
        node("Reciprocal", "r", "i"),
        node("Mul", "i g", "f"),
        node("Mul", "x f", "y"),
    ]
    check(model(nodes, ("N", 3, 4, 5), {"eps": number(1e-3), "g": 1 + floats(3, 1, 1) / 4}))


@pytest.mark.parametrize(
    "other", [node("ReduceL2", "h", "l", axes=[1]), node("ReduceL2", "x", "l", axes=[1, 2])], ids=str
)
@pytest.mark.parametrize("bound", [1e-12, 0.1])
def test_other_norms_are_no_normalisations(other: NodeProto, bound: float) -> None:
    nodes = [
        node("Relu", "x", "h"),
        other,
        node("Clip", "l eps", "c"),
        node("Div", "x c", "d"),
        node("Add", "d h", "y"),
    ]
    assert_divides(model(nodes, ("N", 4, 6), {"eps": number(bound)}, opset=13))


@pytest.mark.parametrize(
    ("made", "constants", "says"),
    [
        (node("InstanceNormalization", "x s s", "y"), {"s": floats(4)}, "does not fit 3 channels"),
        (node("InstanceNormalization", "x h h", "y"), {}, "not a constant"),
        (node("LpNormalization", "x", "y", p=3), {}, "order 3"),
        (node("LpNormalization", "x", "y", axis=0), {}, "the batch"),
        (node("LayerNormalization", "x s", "y", axis=0), {"s": floats(1, 3, 4, 5)}, "the batch"),
        (node("LayerNormalization", "x s", "y", axis=4), {"s": floats(5)}, "axis 4 does not exist"),
        (node("LayerNormalization", "x s", "y"), {"s": floats(4)}, r"does not fit the normalised shape \[5\]"),
        (node("LayerNormalization", "x s b", "y"), {"s": floats(5), "b": floats(4, 5)}, "its constant of shape"),
        (node("LayerNormalization", "x s", "y", epsilon=-1.0), {"s": floats(5)}, "its epsilon is -1"),
        (node("LayerNormalization", "x h", "y"), {}, "not a constant"),
        (node("MeanVarianceNormalization", "x", "y"), {}, "the batch"),
        (node("MeanVarianceNormalization", "x", "y", axes=[1, 1]), {}, "repeat"),
    ],
)
def test_what_is_refused(made: NodeProto, constants: dict[str, np.ndarray], says: str) -> None:
    with pytest.raises(UnsupportedModelError, match=says) as error:
        import_onnx(model([node("Relu", "x", "h"), made], (1, 3, 4, 5), constants))
    assert (error.value.node, error.value.operator) == ("node_y", made.op_type)


def test_the_deviation_alone_is_refused() -> None:
    nodes = [node("LayerNormalization", "x s", "n mean deviation"), node("Mul", "n deviation", "y")]
    with pytest.raises(UnsupportedModelError, match="'deviation' is not supported"):
        import_onnx(model(nodes, (1, 5), {"s": floats(5)}))


def test_open_sizes_are_refused() -> None:
    proto = model([node("LayerNormalization", "x s", "y")], ("N", "T", 5), {"s": floats(5)})
    with pytest.raises(UnsupportedModelError, match="T"):
        import_onnx(proto)


WEIGHTS = {
    "w": floats(12, 3, 4, 4) / 4,
    "b": floats(12),
    "s": 1 + floats(12) / 4,
    "t": floats(12) / 4,
    "mw": floats(12, 20) / 4,
    "mb": floats(20),
    "c": floats(20, 12, 1, 1) / 4,
    "f": floats(20, 5) / 4,
}


def network(kind: str) -> onnx.ModelProto:
    """An image network with a normalisation, as ConvNeXt has it."""
    first = node("Conv", "x w b", "z", strides=[2, 2])
    ends = [node("GlobalAveragePool", "e", "p"), node("Flatten", "p", "fl"), node("Gemm", "fl f", "y")]
    last = [node("Transpose", "z", "l", perm=[0, 2, 3, 1])]
    layer = node("LayerNormalization", "l s t", "n")
    inner = {
        # Between transpositions.
        "image": [*last, layer, node("Transpose", "n", "i", perm=[0, 3, 1, 2]), node("Conv", "i c mb", "k")],
        # With channels last on to the next layer, and a bias and an activation there.
        "last": [*last, layer, node("MatMul", "n mw", "o"), node("Add", "mb o", "g")],
        "first": [
            node("Identity", "z", "v"),
            *pattern([1], 13)[0],
            node("Mul", "n s3", "a3"),
            node("Add", "a3 t3", "i"),
            node("Conv", "i c mb", "k"),
        ],
    }[kind]
    relu = (
        [node("Relu", "g", "gr"), node("Transpose", "gr", "e", perm=[0, 3, 1, 2])]
        if kind == "last"
        else [node("Relu", "k", "e")]
    )
    nodes = [first, *inner, *relu, *ends]
    constants = WEIGHTS | pattern([1], 13)[1] | {name + "3": WEIGHTS[name].reshape(12, 1, 1) for name in "st"}
    used = {name for each in nodes for name in each.input}
    kept = {name: value for name, value in constants.items() if name in used}
    return model(nodes, ("N", 3, 12, 12), kept, opset=13 if kind == "first" else 17)


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
@pytest.mark.parametrize("kind", ["image", "last", "first"])
def test_networks_equal_the_oracle(kind: str, trust: str) -> None:
    images = floats(32, 3, 12, 12)
    loaded = pronghorn.load(network(kind), samples=images)
    report = loaded.verify(images[:3], trust=trust)
    assert report.disagreements == 0
    assert report.expected_error < (0.03 if trust == "two-party" else 0.075)
    # Its factor, its summand, the bias and the signs are in other layers.
    text = str(loaded.plan(trust))
    layers = [line for line in text.splitlines() if " engine, " in line]
    assert len(layers) == 3, text


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_flat_values_equal_the_oracle(trust: str) -> None:
    constants = {"w": floats(9, 11) / 3, "s": 1 + floats(11) / 4, "b": floats(11), "v": floats(11, 4) / 3}
    nodes = [node("Gemm", "x w", "h"), node("LayerNormalization", "h s b", "n"), node("Relu", "n", "r")]
    rows = floats(256, 9)
    loaded = pronghorn.load(model([*nodes, node("Gemm", "r v", "y")], ("N", 9), constants), samples=rows)
    report = loaded.verify(rows[:5], trust=trust)
    assert report.disagreements == 0
    assert report.expected_error < 0.06


def test_encrypted_refuses_it_by_name() -> None:
    with pytest.raises(PlanError, match="InverseRoot"):
        pronghorn.load(network("image"), samples=floats(8, 3, 12, 12)).plan("encrypted")


def with_class_token(form: str, blocks: int = 2) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Patches with a small token of the class before or behind them, as vision transformers have it."""
    draw = np.random.default_rng(3)
    rows, width = 9, 8
    token = (0.05 * draw.standard_normal((1, 1, width))).astype(np.float32)
    constants = {"size": np.array([0, 1, width]), "token": token, "axis": np.array([1]), "t": token[0]}
    constants |= {"where": 0.02 * draw.standard_normal((1, rows + 1, width)).astype(np.float32)}
    parts = {"before": "k x", "behind": "x k", "of the images": "m x"}[form]
    nodes = [
        node("Expand", "token size2", "k") if form != "of the images" else node("ReduceMean", "x", "m0", axes=[1]),
        node("Mul", "m0 small", "m"),
        node("Concat", parts, "c", axis=1),
        node("Add", "c where", "r0"),
    ]
    nodes = [each for each in nodes if each.op_type != "Mul" or form == "of the images"]
    for block in range(blocks):
        nodes += [
            node("LayerNormalization", f"r{block} g b", f"n{block}"),
            node("MatMul", f"n{block} w{block}", f"f{block}"),
            node("Relu", f"f{block}", f"e{block}"),
            node("Add", f"r{block} e{block}", f"r{block + 1}"),
        ]
        constants[f"w{block}"] = (0.02 * draw.standard_normal((width, width))).astype(np.float32)
    at = rows if form == "behind" else 0
    nodes += [node("LayerNormalization", f"r{blocks} g b", "n"), node("Gather", "n at", "h", axis=1)]
    nodes.append(node("MatMul", "h last", "y"))
    constants |= {"g": np.ones(width, np.float32), "b": np.zeros(width, np.float32), "at": np.array(at)}
    constants |= {"last": draw.standard_normal((width, 3)).astype(np.float32), "small": np.float32(0.02)}
    constants["size2"] = np.array([1, 1, width])
    used = {name for each in nodes for name in each.input}
    return nodes, {name: array for name, array in constants.items() if name in used}


@pytest.mark.parametrize("form", ["before", "behind", "of the images"])
def test_small_rows_beside_large_ones(form: str) -> None:
    """A token of the class is far smaller than the patches: it is normalised by itself, at a scale of its own."""
    nodes, constants = with_class_token(form)
    batch: str | int = "N" if form == "of the images" else 1
    proto = model(nodes, (batch, 9, 8), constants)
    imported = check(proto)
    roots = [each for each in json.loads(imported.graph_json)["nodes"] if each["op"].get("function") is not None]
    assert sorted({each["shape"][-1] for each in roots}) == [1, 9]
    samples = np.random.default_rng(0).standard_normal((96, 9, 8)).astype(np.float32)
    loaded = pronghorn.load(proto, samples=samples[:64])
    assert loaded.plan("two-party").expected_error.error < 0.03
    assert loaded.verify(samples[64:], trust="two-party", secure=False).relative_error < 0.04


def test_a_norm_over_a_large_image() -> None:
    """One group of 64 x 56 x 56 values, as PoolFormer has it: sums that fill 32 bits, a mean that is repeated 200,704
    times, and a factor for the zeros that fill up these. Each was refused, or a layer of the whole value."""
    nodes = [
        node("Conv", "x w", "c", strides=[4, 4]),
        node("Reshape", "c row", "r"),
        node("InstanceNormalization", "r one zero", "n"),
        node("Reshape", "n image", "i"),
        node("AveragePool", "i", "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Sub", "p i", "s"),
        node("Relu", "s", "t"),
        node("MaxPool", "t", "g", kernel_shape=[28, 28], strides=[28, 28]),
        node("Flatten", "g", "y"),
    ]
    random = np.random.default_rng(5)
    constants = {
        "w": random.normal(size=(64, 3, 4, 4)).astype(np.float32),
        "row": np.array([0, 1, -1]),
        "image": np.array([0, 64, 56, 56]),
        "one": np.ones(1, np.float32),
        "zero": np.zeros(1, np.float32),
    }
    # Smooth images, which differ.
    images = np.repeat(np.repeat(random.normal(size=(18, 3, 28, 28)).astype(np.float32), 8, axis=2), 8, axis=3)
    proto = model(nodes, ("N", 3, 224, 224), constants)
    entries = json.loads(import_onnx(proto).graph_json)["nodes"]
    taken = [len(entry["op"]["indices"]) for entry in entries if entry["op"]["kind"] == "take"]
    assert taken == [448, 448]
    plan = pronghorn.load(proto, samples=images).plan()
    assert plan.expected_error.error < 0.05
    assert str(plan).count(" engine, ") == 1
