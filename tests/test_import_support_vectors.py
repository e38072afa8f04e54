"""Support vector machines, compared with onnxruntime and with scikit-learn's way to write votes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper, numpy_helper

import pronghorn
from helpers import model, node, run_native, run_onnx
from pronghorn.errors import ModelFileError, UnsupportedModelError
from pronghorn.onnx import ImportedModel, import_onnx

FEATURES = 4

KERNELS = {
    "LINEAR": [0.0, 0.0, 0.0],
    "RBF": [0.2, 0.0, 0.0],
    "POLY": [0.3, 0.5, 3.0],
    "SIGMOID": [0.2, -0.1, 0.0],
}


def proto(nodes: list[onnx.NodeProto], output: str, constants: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    made = model(nodes, ("N", FEATURES), constants, outputs=(output,))
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return made


def machine(kind: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    given = {name: value for name, value in attributes.items() if value != []}
    return helper.make_node(kind, ["x"], outputs.split(), name="svm", domain="ai.onnx.ml", **given)


def regressor(kernel: str, **others: Any) -> onnx.ModelProto:
    draw = np.random.default_rng(2)
    given = {
        "kernel_type": kernel,
        "kernel_params": KERNELS[kernel],
        "support_vectors": (1.5 + draw.standard_normal((7, FEATURES))).ravel().tolist(),
        "coefficients": draw.standard_normal(7).tolist(),
        "rho": [0.3],
        "n_supports": 7,
    }
    return proto([machine("SVMRegressor", "y", **{**given, **others})], "y")


def classifier(kernel: str, classes: int, **others: Any) -> dict[str, Any]:
    """The attributes of a classifier."""
    draw = np.random.default_rng(classes)
    each = [3, 5, 2, 4][:classes]
    pairs = classes * (classes - 1) // 2
    return {
        "kernel_type": kernel,
        "kernel_params": KERNELS[kernel],
        "support_vectors": draw.standard_normal((sum(each), FEATURES)).ravel().tolist(),
        "vectors_per_class": each,
        "coefficients": draw.standard_normal((classes - 1) * sum(each)).tolist(),
        "rho": draw.standard_normal(pairs).tolist(),
        "classlabels_ints": list(range(classes)),
        **others,
    }


def rows(count: int = 200) -> np.ndarray:
    return np.random.default_rng(8).standard_normal((count, FEATURES)).astype(np.float32)


def near(imported: ImportedModel, wanted: np.ndarray, inputs: np.ndarray, error: float = 1e-4) -> None:
    found = run_native(imported, inputs).reshape(len(inputs), -1)
    np.testing.assert_allclose(found, wanted.reshape(len(inputs), -1), rtol=error, atol=error)


def secure(made: onnx.ModelProto) -> None:
    """Runs under both levels, and is as precise as the plan says."""
    inputs = rows()
    loaded = pronghorn.load(made, samples=inputs[:150])
    for trust in ("two-party", "client-aided"):
        report = loaded.verify(inputs[150:], trust=trust)
        assert report.disagreements == 0
        assert report.expected_error is not None
        assert report.relative_error < 2.5 * report.expected_error + 0.01


@pytest.mark.parametrize("kernel", KERNELS)
def test_regressions(kernel: str) -> None:
    made = regressor(kernel)
    near(import_onnx(made), run_onnx(made, rows()), rows())
    secure(made)


def test_coefficients_alone_are_those_of_features() -> None:
    made = regressor("LINEAR", support_vectors=[], coefficients=[0.5, -1.0, 0.25, 2.0], n_supports=0)
    near(import_onnx(made), run_onnx(made, rows()), rows())


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_larger_score_of_two_is_that_of_the_class(kernel: str) -> None:
    """The signs of onnxruntime's two columns are those of the other class."""
    made = proto([machine("SVMClassifier", "label y", **classifier(kernel, 2))], "y")
    labelled = proto([machine("SVMClassifier", "label y", **classifier(kernel, 2))], "label")
    labelled.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    labels = run_onnx(labelled, rows()).ravel()
    imported = import_onnx(made)
    near(imported, -run_onnx(made, rows()), rows())
    assert (run_native(imported, rows()).reshape(-1, 2).argmax(axis=1) == labels).all()
    assert 0 < labels.mean() < 1
    secure(made)
    loaded = pronghorn.load(made, samples=rows())
    assert (loaded.run_float(rows()).argmax(axis=1) == labels).all()


def test_probabilities_of_two_classes() -> None:
    given = classifier("RBF", 2, prob_a=[-1.7], prob_b=[0.4])
    made = proto([machine("SVMClassifier", "label y", **given)], "y")
    imported = import_onnx(made)
    assert imported.finish == ["softmax"]
    # onnxruntime iterates until less than 0.0025 is left.
    near(imported, run_onnx(made, rows()), rows(), 5e-3)
    secure(made)


def votes(classes: int) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """What scikit-learn's exporter writes behind the scores of pairs of classes: votes, and their confidence."""
    nodes = [
        helper.make_node("Less", ["s", "zero"], ["negative"]),
        helper.make_node("Neg", ["s"], ["opposite"]),
        helper.make_node("Cast", ["negative"], ["of_other"], to=onnx.TensorProto.FLOAT),
    ]
    constants = {"zero": np.float32(0), "one": np.float32(1), "three": np.float32(3)}
    voted: list[list[str]] = [[] for _ in range(classes)]
    sure: list[list[str]] = [[] for _ in range(classes)]
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    for at, (i, j) in enumerate(pairs):
        constants[f"p{at}"] = np.array(at)
        for source, to in (("opposite", "c"), ("of_other", "v")):
            names = [source, f"p{at}"]
            nodes.append(helper.make_node("ArrayFeatureExtractor", names, [f"{to}{at}"], domain="ai.onnx.ml"))
            nodes.append(helper.make_node("Neg", [f"{to}{at}"], [f"n{to}{at}"]))
        nodes.append(helper.make_node("Add", [f"nv{at}", "one"], [f"nv1{at}"]))
        sure[i].append(f"nc{at}")
        sure[j].append(f"c{at}")
        voted[i].append(f"nv1{at}")
        voted[j].append(f"v{at}")
    for at in range(classes):
        nodes += [helper.make_node("Sum", voted[at], [f"vote{at}"]), helper.make_node("Sum", sure[at], [f"sure{at}"])]
    nodes += [
        helper.make_node("Concat", [f"vote{at}" for at in range(classes)], ["votes"], axis=1),
        helper.make_node("Concat", [f"sure{at}" for at in range(classes)], ["sum"], axis=1),
        helper.make_node("Abs", ["sum"], ["size"]),
        helper.make_node("Add", ["size", "one"], ["more"]),
        helper.make_node("Mul", ["more", "three"], ["most"]),
        helper.make_node("Div", ["sum", "most"], ["share"]),
        helper.make_node("Add", ["votes", "share"], ["y"]),
    ]
    return nodes, constants


@pytest.mark.parametrize("classes", [3, 4])
def test_votes_of_several_classes(classes: int) -> None:
    nodes, constants = votes(classes)
    made = proto([machine("SVMClassifier", "label s", **classifier("RBF", classes)), *nodes], "y", constants)
    imported = import_onnx(made)
    inputs = rows()
    near(imported, run_onnx(made, inputs), inputs, 1e-3)
    # A product with a matrix for all votes, and one for their confidence.
    graph = imported.graph_json
    assert graph.count('"kind": "take"') <= 2
    loaded = pronghorn.load(made, samples=inputs[:150])
    report = loaded.verify(inputs[150:])
    assert report.disagreements == 0
    assert report.argmax_agreement is not None
    assert report.argmax_agreement >= 0.96


WRONG = {
    "few coefficients": ({"coefficients": [0.5]}, "coefficients do not fit"),
    "few numbers": ({"support_vectors": [0.5]}, "numbers do not fit"),
    "no rho": ({"rho": []}, "rho"),
    "kernel": ({"kernel_type": "COSINE"}, "its kernel COSINE is unknown"),
    "parameters": ({"kernel_params": [0.5]}, "has 1 parameters"),
    "negative": ({"kernel_params": [-0.5, 0.0, 0.0]}, "positive"),
    "transform": ({"post_transform": "LOGISTIC"}, "post_transform LOGISTIC is not supported"),
}


@pytest.mark.parametrize("name", WRONG)
def test_damaged_machines_are_refused(name: str) -> None:
    others, says = WRONG[name]
    with pytest.raises(UnsupportedModelError, match=says):
        import_onnx(regressor("RBF", **others))
    given = classifier("RBF", 2, **others)
    with pytest.raises(UnsupportedModelError, match=says):
        import_onnx(proto([machine("SVMClassifier", "label y", **given)], "y"))


def test_other_machines_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="the sign of its sum"):
        import_onnx(regressor("RBF", one_class=1))
    with pytest.raises(UnsupportedModelError, match="a whole degree"):
        import_onnx(regressor("POLY", kernel_params=[0.1, 0.0, 2.5]))
    pairs = proto([machine("SVMClassifier", "label y", **classifier("RBF", 3))], "y")
    with pytest.raises(UnsupportedModelError, match="decision_function_shape='ovr'"):
        import_onnx(pairs)
    given = classifier("RBF", 3, prob_a=[-1.0] * 3, prob_b=[0.0] * 3)
    with pytest.raises(UnsupportedModelError, match="SVC\\(\\) in place of"):
        import_onnx(proto([machine("SVMClassifier", "label y", **given)], "y"))
    for each in ([], [3], [3, -5]):
        given = classifier("RBF", 2, vectors_per_class=each)
        with pytest.raises(UnsupportedModelError, match="numbers of support vectors do not fit"):
            import_onnx(proto([machine("SVMClassifier", "label y", **given)], "y"))


def test_labels_alone_are_refused() -> None:
    labelled = proto([machine("SVMClassifier", "y", **classifier("RBF", 2))], "y")
    with pytest.raises(ModelFileError, match="output size 1"):
        import_onnx(labelled)


def test_one_against_the_rest_is_refused() -> None:
    """skl2onnx takes the second column, which is the score of the rest."""
    nodes = [
        machine("SVMClassifier", "label s", **classifier("RBF", 2)),
        helper.make_node("Cast", ["s"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Slice", ["f", "one", "two", "one"], ["c"]),
        helper.make_node("Sub", ["unit", "c"], ["r"]),
        helper.make_node("Concat", ["r", "c"], ["y"], axis=1),
    ]
    constants = {"one": np.array([1]), "two": np.array([2]), "unit": np.float32([1])}
    with pytest.raises(UnsupportedModelError, match="one against the rest"):
        import_onnx(proto(nodes, "y", constants))


def test_scores_of_several_outputs_have_the_same_signs() -> None:
    nodes = [
        machine("SVMClassifier", "label y", **classifier("RBF", 2)),
        helper.make_node("Relu", ["x"], ["r"]),
    ]
    made = proto(nodes, "y")
    made.graph.output.append(helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, None))
    alone = run_native(import_onnx(made, output="y"), rows(4)).reshape(4, 2)
    both = run_native(import_onnx(made, output=["y", "r"]), rows(4))
    np.testing.assert_allclose(both[:, :2], alone, rtol=1e-5, atol=1e-6)


def test_vectors_far_from_zero() -> None:
    """What is taken off features and vectors is the same float."""
    far = 1e5
    vectors = far + np.random.default_rng(3).standard_normal(7 * FEATURES)
    made = regressor("RBF", support_vectors=vectors.tolist())
    inputs = (rows() + far).astype(np.float32)
    near(import_onnx(made), run_onnx(made, inputs), inputs, 1e-4)


@pytest.mark.parametrize("is_turned", [False, True])
def test_outliers_are_near_no_vector(is_turned: bool) -> None:
    """Squares are clamped where features are: else a feature far out would count as near."""
    draw = np.random.default_rng(5)
    vectors = draw.standard_normal((40, FEATURES))
    given = {"kernel_params": [0.25, 0.0, 0.0], "rho": [-2.0], "n_supports": 40, "coefficients": [1.0] * 40}
    made = regressor("RBF", support_vectors=vectors.ravel().tolist(), **given)
    if is_turned:
        # As a PCA before it does.
        made.graph.node[0].input[0] = "t"
        made.graph.node.insert(0, helper.make_node("MatMul", ["x", "turned"], ["t"]))
        turned = np.linalg.qr(draw.standard_normal((FEATURES, FEATURES)))[0].astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(turned, "turned"))
    samples = draw.standard_normal((200, FEATURES)).astype(np.float32)
    loaded = pronghorn.load(made, samples=samples)
    outliers = np.concatenate([reach * np.eye(FEATURES) for reach in (-50, -12, -8, -6, 5, 7, 10, 16, 40)])
    for trust in ("two-party", "client-aided"):
        _, found = loaded.plan(trust=trust).compiled.run_oracle(outliers.astype(np.float32), None)
        assert np.asarray(found).max() < -1.5, trust


def test_sums_of_columns_of_two_rows_stay_apart() -> None:
    """A Concat of sums of columns is a product where they are of one row, and else stays what it is."""
    choose = [
        helper.make_node("ArrayFeatureExtractor", [row, f"p{at}"], [f"{row}{at}"], domain="ai.onnx.ml")
        for row in ("x", "r")
        for at in range(2)
    ]
    ends = {
        "one row": [helper.make_node("Sub", ["x0", "x1"], ["a"]), helper.make_node("Sum", ["x1", "x0", "x1"], ["b"])],
        "two rows": [helper.make_node("Sub", ["x0", "r1"], ["a"]), helper.make_node("Sum", ["x1", "x0"], ["b"])],
        "constants": [helper.make_node("Add", ["x0", "c"], ["a"]), helper.make_node("Sub", ["c", "x1"], ["b"])],
    }
    for last in ends.values():
        nodes = [helper.make_node("Relu", ["x"], ["r"]), *choose, *last]
        nodes.append(helper.make_node("Concat", ["a", "b"], ["y"], axis=1))
        constants = {"p0": np.array([0]), "p1": np.array([3]), "c": np.float32([0.5])}
        made = proto(nodes, "y", constants)
        near(import_onnx(made), run_onnx(made, rows()), rows())


@pytest.mark.parametrize("seed", [62, 67])
def test_integers_that_do_not_fit_have_another_plan(seed: int) -> None:
    """Sums of cubes, of which the first precisions leave more than 32 bits."""
    draw, each = np.random.default_rng(seed), 3
    nodes, constants = votes(3)
    given = {
        "kernel_type": "POLY",
        "kernel_params": [0.07, 0.0, 3.0],
        "support_vectors": (0.2 + 7 * draw.random((3 * each, FEATURES))).ravel().tolist(),
        "vectors_per_class": [each] * 3,
        "coefficients": draw.standard_normal(6 * each).tolist(),
        "rho": [1.0] * 3,
        "classlabels_ints": [0, 1, 2],
    }
    made = proto([machine("SVMClassifier", "label s", **given), *nodes], "y", constants)
    samples = (0.2 + 7 * draw.random((90, FEATURES))).astype(np.float32)
    assert pronghorn.load(made, samples=samples, error=0.5).plan(trust="client-aided").expected_error.error < 2.5


def scan_of_distances(rows: np.ndarray) -> NodeProto:
    """As scikit-learn's exporter writes distances to stored rows: a Scan over these, with the features as state."""
    row, rest = (helper.make_tensor_type_proto(1, [rows.shape[1]]), helper.make_tensor_type_proto(1, [None]))
    features = helper.make_tensor_type_proto(1, [None, rows.shape[1]])
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["given"], ["kept"]),
            helper.make_node("Sub", ["given", "row"], ["difference"]),
            helper.make_node("ReduceSumSquare", ["difference"], ["distance"], axes=[1], keepdims=0),
        ],
        "body",
        [helper.make_value_info("given", features), helper.make_value_info("row", row)],
        [helper.make_value_info("kept", features), helper.make_value_info("distance", rest)],
    )
    return helper.make_node("Scan", ["x", "rows"], ["last", "by_row"], name="scan", num_scan_inputs=1, body=body)


@pytest.mark.parametrize("root", [False, True])
def test_distances_to_stored_rows(root: bool) -> None:
    """A Gaussian process: kernels of the distances, and their weighted sum. At a stored row a root is next to zero."""
    random = np.random.default_rng(12)
    rows = random.standard_normal((20, 5)).astype(np.float32)
    nodes = [
        scan_of_distances(rows),
        node("Transpose", "by_row", "d", perm=[1, 0]),
        node("Sqrt", "d", "r") if root else node("Mul", "d half", "r"),
        node("Neg", "r", "n"),
        node("Exp", "n", "e"),
        node("MatMul", "e w", "y"),
    ]
    constants = {"rows": rows, "w": random.standard_normal((20, 2)).astype(np.float32)}
    constants |= {} if root else {"half": np.float32(0.5)}
    proto = model(nodes, ("N", 5), constants, opset=12)
    inputs = np.concatenate([rows, random.standard_normal((80, 5)).astype(np.float32)])
    expected = run_onnx(proto, inputs)
    found = run_native(import_onnx(proto), inputs)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=2e-3, atol=2e-3)
    report = pronghorn.load(proto, samples=inputs[20:80]).verify(inputs[80:])
    assert report.disagreements == 0
    assert report.relative_error < 0.05


@pytest.mark.parametrize("change", ["products", "backwards", "moving", "another axis"])
def test_other_scans_are_refused(change: str) -> None:
    rows = np.ones((3, 5), np.float32)
    scan = scan_of_distances(rows)
    (body,) = (each.g for each in scan.attribute if each.name == "body")
    match change:
        case "products":
            body.node[1].op_type = "Mul"
        case "backwards":
            scan.attribute.append(helper.make_attribute("scan_input_directions", [1]))
        case "moving":
            body.node[0].op_type = "Neg"
        case _:
            next(each for each in body.node[2].attribute if each.name == "axes").ints[:] = [0]
    nodes = [scan, node("Transpose", "by_row", "y", perm=[1, 0])]
    with pytest.raises(UnsupportedModelError, match="takes steps over the data"):
        import_onnx(model(nodes, ("N", 5), {"rows": rows}, opset=12))
