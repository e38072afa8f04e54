"""Ends of models that the client computes: over one axis, and functions of each value."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from onnx import NodeProto, TensorProto, helper
from typer.testing import CliRunner

import pronghorn
from helpers import check, floats, model, node, run_onnx
from pronghorn.cli import app

IMAGE = ("N", 3, 4, 5)

ALONG = [
    ("Softmax", {"axis": 1}),
    ("Softmax", {"axis": -1}),
    ("LogSoftmax", {"axis": 2}),
    ("ArgMax", {"axis": 1, "keepdims": 0}),
    ("ArgMax", {"axis": 1, "keepdims": 1}),
    ("ArgMax", {"axis": -1, "keepdims": 0}),
]


@pytest.mark.parametrize(("kind", "attributes"), ALONG)
def test_operations_over_an_axis(kind: str, attributes: dict[str, int]) -> None:
    integers = kind == "ArgMax"
    proto = model([node(kind, "x", "y", **attributes)], IMAGE, output_dtype=TensorProto.INT64 if integers else 1)
    imported = check(proto)
    shape = {1: (4, 5), -1: (3, 4)}[attributes["axis"]] if integers and not attributes["keepdims"] else None
    shape = shape or ((1, 4, 5) if integers else (3, 4, 5))
    assert imported.output_shape == shape
    # The plan's shape is the model's.
    loaded = pronghorn.load(proto, samples=normal(4, 20, 3, 4, 5))
    assert tuple(loaded.compiled("client-aided").output_shape) == shape
    assert loaded.verify(normal(5, 6, 3, 4, 5), trust="client-aided", secure=False).relative_error < 0.5


@pytest.mark.parametrize("base", [10.0, 0.5, [2.0, 3.0, 4.0]])
def test_powers_of_a_constant(base: float | list[float]) -> None:
    """Regressions of logarithms to another base end so."""
    nodes = [node("MatMul", "x w", "h"), node("Pow", "base h", "y")]
    constants = {"w": floats(6, 3) / 4, "base": np.array(base, np.float32)}
    assert check(model(nodes, ("N", 6), constants)).finish == ["exp"]
    assert check(model([*nodes, node("Relu", "y", "z")], ("N", 6), constants, outputs=["z"])).finish == []
    with pytest.raises(pronghorn.UnsupportedModelError, match="only positive"):
        check(model(nodes, ("N", 6), constants | {"base": np.array(-2.0, np.float32)}))


MOVED: dict[str, tuple[list[NodeProto], tuple[int, ...]]] = {
    "unsqueezed": ([node("ArgMax", "x", "a", axis=1, keepdims=0), node("Unsqueeze", "a one", "y")], (1, 4, 5)),
    "flat classes": ([node("ArgMax", "x", "a", axis=1), node("Flatten", "a", "y")], (20,)),
    "rows": ([node("LogSoftmax", "x", "s", axis=1), node("Reshape", "s rows", "y")], (3, 20)),
    "channels last": (
        [
            node("Transpose", "x", "t", perm=[0, 2, 3, 1]),
            node("Softmax", "t", "s", axis=3),
            node("Transpose", "s", "y", perm=[0, 3, 1, 2]),
        ],
        (3, 4, 5),
    ),
    "classes in columns": (
        [node("ArgMax", "x", "a", axis=1, keepdims=0), node("Transpose", "a", "y", perm=[0, 2, 1])],
        (5, 4),
    ),
    "exponentials": ([node("Exp", "x", "e"), node("Transpose", "e", "y", perm=[0, 2, 3, 1])], (4, 5, 3)),
}


@pytest.mark.parametrize("name", MOVED)
def test_results_over_an_axis_are_moved_as_the_model_says(name: str) -> None:
    nodes, shape = MOVED[name]
    constants = {"one": np.array([1]), "rows": np.array([0, 3, 20])}
    integers = TensorProto.INT64 if nodes[0].op_type == "ArgMax" else TensorProto.FLOAT
    proto = model(nodes, IMAGE, constants, output_dtype=integers)
    assert check(proto).output_shape == shape
    loaded = pronghorn.load(proto, samples=normal(4, 20, 3, 4, 5))
    assert tuple(loaded.compiled("two-party").output_shape) == shape


def test_a_result_without_its_axis_is_refused() -> None:
    nodes = [node("Softmax", "x", "s", axis=1), node("Flatten", "s", "y")]
    with pytest.raises(pronghorn.UnsupportedModelError, match=r"its axis is none[\s\S]*--output s"):
        check(model(nodes, IMAGE))
    with pytest.raises(pronghorn.UnsupportedModelError, match="over the batch"):
        check(model([node("Softmax", "x", "y", axis=0)], IMAGE))


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_a_class_of_classes_is_that_of_the_model(trust: str) -> None:
    """The largest of all values is not in the row whose class is the largest."""
    nodes = [
        node("MatMul", "x w", "m"),
        node("Reshape", "m rows", "r"),
        node("ArgMax", "r", "a", axis=2, keepdims=0),
        node("Cast", "a", "c", to=TensorProto.FLOAT),
        node("ArgMax", "c", "y", axis=1),
    ]
    constants = {"w": normal(6, 4, 6), "rows": np.array([0, 2, 3])}
    proto = model(nodes, ("N", 4), constants, output_dtype=TensorProto.INT64)
    report = pronghorn.load(proto, samples=normal(7, 60, 4)).verify(normal(8, 100, 4), trust=trust)
    assert report.disagreements == 0
    assert report.argmax_agreement is not None
    assert report.argmax_agreement > 0.95


@pytest.mark.parametrize(
    ("ends", "kind"),
    [
        (["Softmax", "Log"], "classes"),
        (["LogSoftmax", "Exp"], "classes"),
        (["LogSoftmax"], "classes"),
        (["Sigmoid", "Log"], "values"),
        (["Exp"], "values"),
    ],
)
def test_chains_of_ends_have_probabilities_or_none(ends: list[str], kind: str) -> None:
    names = ["m", *(f"e{at}" for at in range(len(ends) - 1)), "y"]
    nodes = [node("MatMul", "x w", "m")]
    nodes += [node(end, before, after) for end, before, after in zip(ends, names, names[1:], strict=False)]
    loaded = pronghorn.load(model(nodes, ("N", 4), {"w": normal(1, 4, 3)}), samples=normal(2, 60, 4))
    with (
        pronghorn.serve(loaded, "127.0.0.1:0", "client-aided") as server,
        pronghorn.connect(server.address, "client-aided") as client,
    ):
        found = client.classify(normal(3, 20, 4))
    assert found.kind == kind
    if kind == "classes":
        assert found.probabilities is not None
        np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, atol=1e-4)
        assert (found.probabilities >= 0).all()


def test_logarithms_of_nothing_are_left_out_of_the_comparison() -> None:
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("Log", "r", "y")]
    loaded = pronghorn.load(model(nodes, ("N", 4), {"w": normal(1, 4, 3)}), samples=normal(2, 60, 4) + 1)
    with pytest.warns(pronghorn.InputWarning, match="left out of the comparison"):
        report = loaded.verify(normal(3, 20, 4), trust="client-aided", outputs="values", secure=False)
    assert np.isfinite(report.relative_error)


def test_label_maps_are_compared_place_by_place() -> None:
    nodes = [node("Conv", "x w", "c"), node("ArgMax", "c", "y", axis=1, keepdims=0)]
    proto = model(nodes, ("N", 2, 6, 5), {"w": normal(1, 3, 2, 1, 1)}, output_dtype=TensorProto.INT64)
    images = normal(2, 30, 2, 6, 5)
    loaded = pronghorn.load(proto, samples=normal(3, 60, 2, 6, 5))
    truth = run_onnx(proto, images).reshape(30, 6, 5)
    report = loaded.verify(images, truth, trust="two-party", secure=False)
    assert report.argmax_agreement is not None
    assert report.accuracy_float == 1.0
    assert report.accuracy_fixed == report.argmax_agreement > 0.95
    assert "the same class at each place" in str(report)
    assert "R2" not in str(report)
    with pytest.raises(pronghorn.InputError, match="a class for each place"):
        loaded.verify(images, truth, outputs="classes")


def test_a_softmax_of_old_over_a_map_is_refused() -> None:
    with pytest.raises(pronghorn.UnsupportedModelError, match=r"no axis[\s\S]*opset 13"):
        check(model([node("Softmax", "x", "y", axis=2)], ("N", 3, 2, 5), opset=11))
    check(model([node("Softmax", "x", "y", axis=2)], ("N", 3, 1, 5), opset=11))
    check(model([node("Softmax", "x", "y", axis=1)], ("N", 6), opset=11))


VALUES: dict[str, list[NodeProto]] = {
    "exp": [node("Exp", "m", "y")],
    "log": [node("Mul", "m m", "s"), node("Add", "s one", "a"), node("Log", "a", "y")],
    "sqrt": [node("Mul", "m m", "s"), node("Sqrt", "s", "y")],
    "power": [node("Mul", "m m", "s"), node("Pow", "s half", "y")],
    "norm": [node("ReduceL2", "m", "y", axes=[1])],
    "squares": [node("ReduceSumSquare", "m", "y", axes=[1], keepdims=0)],
    "log softmax": [node("LogSoftmax", "m", "y", axis=1)],
}


def normal(seed: int, *shape: int) -> npt.NDArray[np.float32]:
    """Numbers that are the same whatever tests ran before."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def ended(name: str) -> pronghorn.Model:
    """A layer, and such an end."""
    constants = {"w": normal(1, 4, 3) / 2, "one": np.float32(1), "half": np.float32(0.5)}
    proto = model([node("MatMul", "x w", "m"), *VALUES[name]], ("N", 4), constants)
    return pronghorn.load(proto, samples=normal(2, 200, 4))


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_the_client_ends_a_model(name: str, trust: str) -> None:
    loaded = ended(name)
    report = loaded.verify(normal(3, 100, 4), trust=trust, outputs="values")
    assert report.disagreements == 0
    assert report.relative_error < 2.5 * report.expected_error
    assert report.expected_error < 0.04
    # Errors are those of what users get where that is a function of each value.
    assert report.is_finished == (name == "log softmax")
    if name == "squares":  # It ends in no such operator.
        return
    assert "the values that it is taken from" in str(loaded.plan(trust))


@pytest.mark.parametrize("kind", ["Tanh", "Softplus", "Gelu", "HardSwish"])
@pytest.mark.parametrize("error", [0.01, 0.004])
def test_smooth_functions_at_the_end_are_as_precise_as_asked_for(kind: str, error: float) -> None:
    proto = model([node("MatMul", "x w", "m"), node(kind, "m", "y")], ("N", 4), {"w": normal(1, 4, 3) / 2}, opset=22)
    loaded = pronghorn.load(proto, samples=normal(2, 200, 4), error=error)
    report = loaded.verify(normal(3, 40, 4), trust="two-party", outputs="values")
    assert report.disagreements == 0
    assert report.expected_error <= 1.2 * error
    assert report.relative_error < 2 * error


def test_a_segmentation_is_served(tmp_path: Path) -> None:
    """A class for each pixel: a map, which is no class of the image."""
    nodes = [node("Conv", "x w", "c"), node("ArgMax", "c", "y", axis=1, keepdims=0)]
    # Of its own: whether two classes are next to equal depends on the numbers, and those of `floats` on tests before.
    random = np.random.default_rng(3)
    weight, images, samples = (
        random.uniform(-1, 1, shape).astype(np.float32) for shape in ((3, 2, 1, 1), (4, 2, 6, 5), (60, 2, 6, 5))
    )
    proto = model(nodes, ("N", 2, 6, 5), {"w": weight}, output_dtype=TensorProto.INT64)
    loaded = pronghorn.load(proto, samples=samples)
    wanted = run_onnx(proto, images).reshape(4, 6, 5)
    for trust in ("two-party", "client-aided"):
        with pronghorn.serve(loaded, "127.0.0.1:0", trust) as server:
            with pronghorn.connect(server.address, trust) as client:
                assert client.output_shape == (6, 5)
                found = client.classify(images)
            assert found.kind == "values"
            assert found.classes is None
            assert np.mean(found.outputs == wanted) > 0.95
            data = tmp_path / "inputs.npy"
            np.save(data, images)
            said = CliRunner().invoke(
                app, ["predict", str(data), "--server", server.address, "--trust", trust, "--json", "--scale", "1"]
            )
            assert json.loads(said.stdout)["outputs"] == "values", said.output
    with pytest.raises(pronghorn.PronghornError, match="a class is one of a row"):
        pronghorn.load(proto, samples=images, opening="class").plan("two-party")


def test_support_vectors_of_a_linear_kernel_are_a_linear_map() -> None:
    vectors, coefficients = floats(5, 4), floats(5)
    regressor = helper.make_node(
        "SVMRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        kernel_type="LINEAR",
        kernel_params=[0.1, 0.0, 3.0],
        support_vectors=vectors.ravel().tolist(),
        coefficients=coefficients.tolist(),
        rho=[0.25],
        n_supports=5,
    )
    proto = model([regressor], ("N", 4))
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    assert '"function"' not in check(proto).graph_json
