"""Models of scikit-learn, as skl2onnx exports them, compared with onnxruntime."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import pronghorn
from helpers import check, floats, model, node, run_native, run_onnx
from pronghorn.errors import InputError, ModelFileError, UnsupportedModelError
from pronghorn.onnx import ImportedModel, import_onnx

FEATURES = 4


def ml(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    made = node(kind, inputs, outputs, **attributes)
    made.domain = "ai.onnx.ml"
    return made


def table(nodes: Sequence[onnx.NodeProto], outputs: str = "y", **constants: np.ndarray) -> onnx.ModelProto:
    """A model of rows of features."""
    proto = model(nodes, ("N", FEATURES), constants, outputs=outputs.split())
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return proto


def kinds(imported: ImportedModel) -> list[str]:
    return [entry["op"]["kind"] for entry in json.loads(imported.graph_json)["nodes"]]


def classifier(rows: int, classes: int, transform: str, **attributes: Any) -> onnx.NodeProto:
    attributes.setdefault("coefficients", floats(rows * FEATURES).tolist())
    attributes.setdefault("intercepts", floats(rows).tolist())
    labels = list(range(classes))
    return ml("LinearClassifier", "x", "label p", classlabels_ints=labels, post_transform=transform, **attributes)


@pytest.mark.parametrize("size", [1, FEATURES])
def test_scalers_are_affine(size: int) -> None:
    scaler = ml("Scaler", "x", "y", offset=floats(size).tolist(), scale=floats(size).tolist())
    assert kinds(check(table([scaler]))) == ["input", "affine", "affine"]
    with pytest.raises(UnsupportedModelError, match="does not fit"):
        import_onnx(table([ml("Scaler", "x", "y", offset=[0.5] * 3, scale=[2.0] * size)]))


def test_feature_vectorizers_join_columns() -> None:
    nodes = [
        ml("FeatureVectorizer", "a b", "f", inputdimensions=[1, 2]),
        ml("Scaler", "f", "y", offset=[0.5, 1.0, 2.0], scale=[2.0, 3.0, 1.0]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ("N", size)) for name, size in {"a": 1, "b": 2}.items()
    ]
    proto = table(nodes)
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    row = floats(5, 3)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    wanted = session.run(None, {"a": row[:, :1], "b": row[:, 1:]})[0]
    np.testing.assert_allclose(run_native(import_onnx(proto), row), wanted, rtol=1e-5, atol=1e-6)


def test_imputers_have_nothing_to_fill_in() -> None:
    imputer = ml("Imputer", "x", "f", imputed_value_floats=[0.5], replaced_value_float=float("nan"))
    scaler = ml("Scaler", "f", "y", offset=[0.5], scale=[2.0])
    loaded = pronghorn.load(table([imputer, scaler]), samples=floats(40, FEATURES))
    assert kinds(check(table([imputer, scaler]))) == ["input", "affine", "affine"]
    row = floats(3, FEATURES)
    row[1, 2] = np.nan
    with pytest.raises(InputError, match=r"the first is nan at inputs\[1, 2\]: fill in missing values"):
        loaded.verify(row)
    for replaced in ({"replaced_value_float": -999.0}, {"replaced_value_int64": 0}):
        other = ml("Imputer", "x", "y", imputed_value_floats=[0.5], **replaced)
        with pytest.raises(UnsupportedModelError, match="a comparison that jumps"):
            import_onnx(table([other]))


@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressions(targets: int) -> None:
    coefficients, intercepts = floats(targets * FEATURES).tolist(), floats(targets).tolist()
    one = ml("LinearRegressor", "x", "y", coefficients=coefficients, intercepts=intercepts, targets=targets)
    assert check(table([one])).output_shape == (targets,)
    with pytest.raises(UnsupportedModelError, match="do not fit 5 rows"):
        import_onnx(table([ml("LinearRegressor", "x", "y", coefficients=coefficients, targets=5)]))


@pytest.mark.parametrize(("rows", "classes"), [(3, 3), (2, 2), (1, 2)])
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_linear_classifiers(rows: int, classes: int, transform: str) -> None:
    proto = table([classifier(rows, classes, transform)], "p")
    if (rows, transform) == (1, "SOFTMAX"):
        with pytest.raises(UnsupportedModelError, match="SOFTMAX with 2 classes"):
            import_onnx(proto)
        return
    finish = {"NONE": [], "SOFTMAX": ["softmax"], "LOGISTIC": ["softmax" if rows == 1 else "sigmoid"]}[transform]
    assert kinds(check(proto)) == ["input", "dense", *finish]


def test_two_rows_of_opposite_signs_are_one_probability() -> None:
    """What skl2onnx makes of a binary logistic regression."""
    row = floats(FEATURES)
    opposite = {"coefficients": [*-row, *row], "intercepts": [-0.5, 0.5]}
    assert kinds(check(table([classifier(2, 2, "LOGISTIC", **opposite)], "p"))) == ["input", "dense", "softmax"]


def shares(matrix: np.ndarray, bias: np.ndarray, magnitude: str, total: str) -> onnx.ModelProto:
    """Sigmoids of linear scores, each divided by the sum `n` of all."""
    summed = "a" if magnitude else "s"
    nodes = [
        node("MatMul", "x w", "m"),
        node("Add", "m b", "z"),
        node("Sigmoid", "z", "s"),
        *([node(magnitude, "s", "a")] if magnitude else []),
        node(total, f"{summed} axis", "n") if total == "ReduceSum" else node(total, summed, "n", axes=[1]),
        node("Div", "s n", "y"),
    ]
    return table(nodes, w=matrix, b=bias, axis=np.array([1]))


OPPOSITE = floats(FEATURES, 1) * np.float32([1, -1])


@pytest.mark.parametrize(
    ("magnitude", "total"), [("Abs", "ReduceSum"), ("", "ReduceSum"), ("", "ReduceL1"), ("Abs", "ReduceL1")]
)
def test_two_sigmoids_of_opposite_scores_are_their_shares(magnitude: str, total: str) -> None:
    """What skl2onnx makes of a binary logistic regression of doubles: the sum is 1."""
    proto = shares(OPPOSITE, np.float32([[-0.25, 0.25]]), magnitude, total)
    assert kinds(check(proto)) == ["input", "dense", "affine", "affine", "softmax"]


@pytest.mark.parametrize(
    ("matrix", "bias"),
    [
        (OPPOSITE, np.float32([[0.25, 0.25]])),
        (OPPOSITE * np.float32([1, 2]), np.float32([[-0.25, 0.25]])),
        (floats(FEATURES, 3), floats(1, 3)),
    ],
)
def test_other_shares_of_sigmoids_are_divided_by_the_client(matrix: np.ndarray, bias: np.ndarray) -> None:
    assert check(shares(matrix, bias, "Abs", "ReduceSum")).finish == ["sigmoid", "shares_along"]


def test_shares_of_probabilities_over_another_axis_are_refused() -> None:
    nodes = [
        node("Reshape", "x square", "r"),
        node("Softmax", "r", "s", axis=2),
        node("ReduceSum", "s axis", "n"),
        node("Div", "s n", "y"),
    ]
    with pytest.raises(UnsupportedModelError, match=r"its norm \(L1\)"):
        import_onnx(table(nodes, square=np.array([0, 2, 2]), axis=np.array([1])))


def exported(probabilities: str = "z") -> onnx.ModelProto:
    """What skl2onnx makes of a logistic regression of three classes: labels, and a dictionary a row."""
    nodes = [
        classifier(3, 3, "SOFTMAX", multi_class=1),
        node("Cast", "label", "l", to=TensorProto.INT64),
        ml("Normalizer", "p", "n", norm="L1"),
        ml("ZipMap", "n", "z", classlabels_int64s=[0, 1, 2]),
    ]
    proto = table(nodes, f"l {probabilities}")
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    if probabilities == "z":
        entry = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
        proto.graph.output[1].type.CopyFrom(helper.make_sequence_type_proto(entry))
    return proto


def test_of_labels_and_probabilities_the_probabilities_are_taken() -> None:
    proto = exported()
    imported = import_onnx(proto)
    assert (imported.output_name, imported.output_shape) == ("n", (3,))
    assert kinds(imported) == ["input", "dense", "softmax"]
    rows = floats(5, FEATURES)
    alone = onnx.ModelProto.FromString(imported.reference_bytes())
    found = pronghorn.load(proto).run_float(rows)
    np.testing.assert_allclose(found, run_onnx(alone, rows)[:, 0], atol=1e-6)
    assert import_onnx(proto, output="z").output_name == "n"
    assert import_onnx(exported("n")).output_name == "n"
    with pytest.raises(UnsupportedModelError, match=r"its output 'label' is not supported[\s\S]*reads it"):
        import_onnx(proto, output="l")
    # Two outputs of numbers still need a choice.
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    with pytest.raises(UnsupportedModelError, match="2 outputs: l, z"):
        import_onnx(proto)


def perceptron(last: list[onnx.NodeProto], scores: int, **constants: np.ndarray) -> onnx.ModelProto:
    """A scaler, a hidden layer, and `last` of the scores h."""
    nodes = [
        ml("Scaler", "x", "s", offset=floats(FEATURES).tolist(), scale=[0.5] * FEATURES),
        node("MatMul", "s w1", "a"),
        node("Add", "a b1", "b"),
        node("Relu", "b", "c"),
        node("MatMul", "c w2", "d"),
        node("Add", "d b2", "h"),
        *last,
    ]
    weights = {"w1": floats(FEATURES, 6), "b1": floats(1, 6), "w2": floats(6, scores), "b2": floats(1, scores)}
    return table(nodes, **weights, **constants)


def test_binary_perceptrons_have_one_layer_less() -> None:
    last = [node("Sigmoid", "h", "p"), node("Sub", "one p", "q"), node("Concat", "q p", "y", axis=1)]
    imported = check(perceptron(last, 1, one=np.float32([1])))
    expected = ["input", "affine", "affine", "dense", "affine", "relu", "dense", "affine", "dense", "softmax"]
    assert kinds(imported) == expected
    # The last layer reads the ReLU: the passes drop the two before it.
    assert json.loads(imported.graph_json)["nodes"][8]["inputs"] == [5]
    # Two minus a probability is none: the Sigmoid is a function within the network.
    assert "function" in kinds(import_onnx(perceptron(last, 1, one=np.float32([2]))))


@pytest.mark.parametrize(("shape", "axis"), [((3,), 1), ((3,), -1), ((1,), -1), ((2, 1), 2), ((2, 3), 1)])
def test_no_and_yes_of_several_scores(shape: tuple[int, ...], axis: int) -> None:
    """Of labels, and of places, there are two probabilities each."""
    last = [node("Sigmoid", "h", "p"), node("Sub", "one p", "q"), node("Concat", "q p", "y", axis=axis)]
    constants = {"w": floats(4, shape[-1]), "one": np.float32([1])}
    imported = check(model([node("MatMul", "x w", "h"), *last], ("N", *shape[:-1], 4), constants))
    assert imported.finish == ["softmax" if shape == (1,) else "sigmoid"]


def test_no_and_yes_of_images_are_refused() -> None:
    last = [node("Sigmoid", "x", "p"), node("Sub", "one p", "q"), node("Concat", "q p", "y", axis=0)]
    check(model(last, (1, 2, 4), {"one": np.float32([1])}))
    with pytest.raises(UnsupportedModelError, match="the batch"):
        import_onnx(model(last, ("N", 1), {"one": np.float32([1])}))


def test_labels_that_are_numbers_of_classes() -> None:
    last = [
        node("Softmax", "h", "p"),
        node("ArgMax", "p", "k", axis=1),
        ml("ArrayFeatureExtractor", "classes k", "f"),
        node("Reshape", "f shape", "l"),
        node("Cast", "l", "y", to=TensorProto.FLOAT),
    ]
    shape = np.array([-1])
    imported = check(perceptron(last, 3, classes=np.arange(3), shape=shape))
    assert kinds(imported)[-2:] == ["arg_max", "reshape"]
    with pytest.raises(UnsupportedModelError, match="column k is class k"):
        import_onnx(perceptron(last, 3, classes=np.array([3, 5, 7]), shape=shape))


def test_columns_are_chosen() -> None:
    """What skl2onnx makes of a binary ridge classifier."""
    nodes = [classifier(2, 2, "NONE"), ml("ArrayFeatureExtractor", "p k", "y")]
    imported = check(table(nodes, k=np.array([1])))
    assert kinds(imported) == ["input", "dense", "take"]
    with pytest.raises(UnsupportedModelError, match="does not exist among 2"):
        import_onnx(table(nodes, k=np.array([2])))
    nodes = [classifier(3, 3, "SOFTMAX"), ml("ArrayFeatureExtractor", "p k", "f"), node("Neg", "f", "y")]
    check(table(nodes, k=np.array([1])))


def test_normalizers_divide_by_sums_of_magnitudes() -> None:
    check(table([ml("Normalizer", "x", "y", norm="L1")]))
    check(table([classifier(3, 3, "LOGISTIC"), ml("Normalizer", "p", "y", norm="L1")]))
    # Of probabilities within a network the sum is 1.
    nodes = [classifier(3, 3, "SOFTMAX"), ml("Normalizer", "p", "n", norm="L1"), node("Neg", "n", "y")]
    without = [classifier(3, 3, "SOFTMAX"), node("Neg", "p", "y")]
    assert kinds(check(table(nodes))) == kinds(check(table(without)))
    with pytest.raises(UnsupportedModelError, match=r"norm \(MAX\)[\s\S]*normalise before sending"):
        import_onnx(table([ml("Normalizer", "x", "y", norm="MAX")]))


def without_standard_operators(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """A model that imports the operator set of tables alone."""
    proto = table(nodes)
    del proto.opset_import[0]
    return proto


def test_models_of_tables_need_no_standard_operator_set(tmp_path: Path) -> None:
    regression = ml("LinearRegressor", "x", "y", coefficients=floats(FEATURES).tolist(), intercepts=[0.5])
    proto = without_standard_operators([regression])
    assert kinds(check(proto)) == ["input", "dense"]
    onnx.save(proto, tmp_path / "model.onnx")
    assert import_onnx(tmp_path / "model.onnx").output_shape == (1,)
    # The rows of several outputs take standard operators.
    two = [regression, ml("LinearRegressor", "x", "z", coefficients=floats(FEATURES).tolist())]
    assert import_onnx(without_standard_operators(two), output=["y", "z"]).output_shape == (2,)
    with pytest.raises(UnsupportedModelError, match="numbers rho"):
        import_onnx(without_standard_operators([ml("SVMRegressor", "x", "y", kernel_type="RBF")]))
    with pytest.raises(ModelFileError, match="no graph or no operator set"):
        import_onnx(onnx.ModelProto(ir_version=8, graph=proto.graph))


def test_numbers_must_be_finite() -> None:
    with pytest.raises(UnsupportedModelError, match="finite"):
        import_onnx(table([ml("Scaler", "x", "y", offset=[float("nan")], scale=[1.0])]))


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("batch", ["N", 1])
def test_inputs_of_a_number_a_row(opset: int, batch: str | int) -> None:
    """As exporters write `forward(price, age)` on tensors of one dimension."""
    axes = {"axes": [1]} if opset < 13 else {}
    read = "" if axes else " last"
    nodes = [
        node("Unsqueeze", f"x{read}", "p", **axes),
        node("Unsqueeze", f"z{read}", "q", **axes),
        node("Concat", "p q", "c", axis=1),
        node("Gemm", "c w", "g"),
        node("Relu", "g", "r"),
        node("Mul", "x z", "m"),
        node("ReduceSum", f"r{read}", "t", keepdims=0, **axes),
        node("Add", "t m", "y"),
    ]
    constants = {"w": floats(2, 5)} | ({} if axes else {"last": np.array([1])})
    proto = model(nodes, (batch,), constants, opset=opset)
    proto.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [batch]))
    imported = import_onnx(proto)
    assert (imported.inputs, imported.output_shape) == ({"x": (1,), "z": (1,)}, ())
    rows = floats(6, 2)
    wanted = rows[:, 0] * rows[:, 1] + np.maximum(rows @ constants["w"], 0).sum(axis=1)
    np.testing.assert_allclose(run_native(imported, rows).ravel(), wanted, rtol=1e-4, atol=1e-5)
    network, named = pronghorn.load(proto, samples=floats(40, 2)), {"x": rows[:, 0], "z": rows[:, 1:]}
    np.testing.assert_allclose(network.run_float(named).ravel(), wanted, rtol=1e-4, atol=1e-5)
    assert network.verify(named, outputs="values").disagreements == 0


def test_a_list_of_numbers_is_an_input_of_one() -> None:
    proto = model([node("Mul", "x x", "s"), node("Add", "s x", "y")], ("N",), {})
    network = pronghorn.load(proto, samples=floats(30))
    numbers = floats(4)
    np.testing.assert_allclose(network.run_float(numbers).ravel(), numbers**2 + numbers, rtol=1e-5)
    with pytest.raises(UnsupportedModelError, match="a batch dimension and at least one more"):
        import_onnx(model([node("Add", "x x", "y")], (3,), {}))
