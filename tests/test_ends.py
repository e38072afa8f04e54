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
    assert imported.output_shape == (shape or ((1, 4, 5) if integers else (3, 4, 5)))


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


def test_a_segmentation_is_served(tmp_path: Path) -> None:
    """A class for each pixel: a map, which is no class of the image."""
    nodes = [node("Conv", "x w", "c"), node("ArgMax", "c", "y", axis=1, keepdims=0)]
    proto = model(nodes, ("N", 2, 6, 5), {"w": floats(3, 2, 1, 1)}, output_dtype=TensorProto.INT64)
    images = floats(4, 2, 6, 5)
    loaded = pronghorn.load(proto, samples=floats(60, 2, 6, 5))
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


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF"])
def test_support_vectors_of_a_linear_kernel_are_a_linear_map(kernel: str) -> None:
    vectors, coefficients = floats(5, 4), floats(5)
    regressor = helper.make_node(
        "SVMRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        kernel_type=kernel,
        kernel_params=[0.1, 0.0, 3.0],
        support_vectors=vectors.ravel().tolist(),
        coefficients=coefficients.tolist(),
        rho=[0.25],
        n_supports=5,
    )
    proto = model([regressor], ("N", 4))
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    if kernel == "LINEAR":
        check(proto)
        return
    with pytest.raises(pronghorn.UnsupportedModelError, match="linear kernel"):
        check(proto)
