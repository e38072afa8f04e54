"""Classes alone: `opening`, in the API and on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import pronghorn
from helpers import model, node
from pronghorn import _processes
from pronghorn.errors import InputError, PlanError
from test_cli import run

LEARNS = "client learns the class of its input alone, shapes and ranges of the layers"
LOGITS = [node("Gemm", "x w", "y")]
CLASS = [node("Gemm", "x w", "g"), node("Softmax", "g", "s", axis=1), node("ArgMax", "s", "y", axis=1)]
YES = [node("Gemm", "x w", "g"), node("Sigmoid", "g", "y")]


def inputs(count: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1, 1, (count, 6)).astype(np.float32)


def weights(classes: int) -> dict[str, np.ndarray]:
    return {"w": np.random.default_rng(5).uniform(-1, 1, (6, classes)).astype(np.float32)}


def load(nodes: list, classes: int = 4, opening: str | None = None) -> pronghorn.Model:
    dtype = TensorProto.INT64 if nodes[-1].op_type == "ArgMax" else TensorProto.FLOAT
    proto = model(nodes, ("N", 6), weights(classes), output_dtype=dtype)
    return pronghorn.load(proto, samples=inputs(200), opening=opening)


def finish(loaded: pronghorn.Model, trust: str | None = None) -> list[str]:
    found: list[str] = json.loads(loaded.plan(trust).to_json())["finish"]
    return found


def test_a_client_has_classes_and_no_values() -> None:
    plain, loaded = load(LOGITS), load(LOGITS, opening="class")
    assert (plain.output_shape, loaded.output_shape) == ((4,), (1,))
    images = inputs(60)
    classes = np.argmax(plain.run_float(images), axis=1)
    assert np.array_equal(loaded.run_float(images)[:, 0], classes)
    plan = loaded.plan()
    assert LEARNS in str(plan)
    assert "argmax of 4" in str(plan)
    assert json.loads(plan.to_json())["learns"]["client"] in LEARNS
    with pronghorn.serve(loaded, "127.0.0.1:0") as server, pronghorn.connect(server.address) as client:
        found = client.classify(images)
        assert client.output_shape == (1,)
    assert found.outputs.shape == (60, 1)
    assert found.probabilities is None
    assert np.array_equal(found.classes, loaded.classes(found.outputs))
    assert np.mean(found.classes == classes) > 0.9
    report = loaded.verify(images, classes)
    assert report.ok
    assert report.are_indices
    assert report.accuracy_float == 1.0
    assert report.argmax_agreement == report.accuracy_secure == np.mean(found.classes == classes)
    assert "values behind the classes" in str(report)
    assert "differences" not in str(report)


def test_shares_of_sigmoids_have_a_class() -> None:
    """One class against the rest: labels no longer, as the client divides by their sum."""
    nodes = [*YES[:1], node("Sigmoid", "g", "p"), node("LpNormalization", "p", "y", axis=1, p=1)]
    plain, loaded = load(nodes), load(nodes, opening="class")
    assert finish(plain) == ["sigmoid", {"along": {"of": "shares", "count": 4, "inner": 1}}]
    assert plain.kind() == "classes"
    images = inputs(60)
    classes = np.argmax(plain.run_float(images), axis=1)
    assert np.array_equal(loaded.run_float(images)[:, 0], classes)
    assert np.mean(loaded.plan().compiled.run_oracle(images, None)[1].ravel() == classes) > 0.9
    assert loaded.verify(images[:8]).disagreements == 0


def test_models_that_end_in_argmax_open_no_values() -> None:
    loaded = load(CLASS)
    assert finish(loaded) == ["class"]
    assert LEARNS in str(loaded.plan())
    assert finish(load(CLASS, opening="class")) == ["class"]
    values = load(CLASS, opening="values")
    assert finish(values) == finish(loaded, "client-aided") == ["softmax", "arg_max"]
    for each in (loaded, values):
        report = each.verify(inputs(50))
        assert report.ok
        assert report.argmax_agreement > 0.9
    assert "client learns its output and the values that it is taken from" in str(values.plan())


@pytest.mark.parametrize("nodes", [YES, LOGITS])
def test_one_output_is_yes_or_no(nodes: list) -> None:
    loaded = load(nodes, 1, "class")
    images = inputs(80)
    logits = load(LOGITS, 1).run_float(images)
    assert np.array_equal(loaded.run_float(images), logits > 0)
    report = loaded.verify(images, np.int64(logits[:, 0] > 0))
    assert report.ok
    assert report.accuracy_secure > 0.9
    assert set(np.unique(loaded.run_float(images))) == {0, 1}


def test_what_has_no_class_is_refused() -> None:
    with pytest.raises(InputError, match="3 labels that each hold or not"):
        load(YES, 3, "class")
    square = [node("Gemm", "x w", "g"), node("Reshape", "g s", "y")]
    proto = model(square, ("N", 6), {**weights(4), "s": np.int64([0, 2, 2])})
    with pytest.raises(InputError, match="one of a row of values"):
        pronghorn.load(proto, opening="class")
    proto = model([*LOGITS, node("Relu", "y", "z")], ("N", 6), weights(3), outputs=("y", "z"))
    with pytest.raises(InputError, match="has 2 outputs, and a class is one of the values of one"):
        pronghorn.load(proto, output=["y", "z"], opening="class")
    with pytest.raises(InputError, match="opening"):
        load(LOGITS, opening="label")
    with pytest.raises(PlanError, match="no class is computed at trust level encrypted"):
        load(LOGITS, opening="class").plan("encrypted")


def test_a_client_that_learns_all_values_takes_the_class_itself() -> None:
    loaded = load(LOGITS, opening="class")
    plan = loaded.plan("client-aided")
    assert "its output and the values that it is taken from AND EVERY WEIGHT" in str(plan)
    assert finish(loaded, "client-aided") == ["arg_max"]
    assert loaded.verify(inputs(20), trust="client-aided").ok


def test_commands(tmp_path: Path) -> None:
    path, images = tmp_path / "m.onnx", tmp_path / "x.npz"
    path.write_bytes(model(LOGITS, ("N", 6), weights(3)).SerializeToString())
    np.savez(images, images=inputs(5), labels=np.int64([0, 1, 2, 0, 1]))
    (tmp_path / "names").write_text("cat\ndog\nbird")
    options = ("--data", str(images), "--opening", "class")
    assert LEARNS in run("plan", str(path), *options)
    assert "oracle: 0\n" in run("verify", str(path), *options)
    assert "opening" in run("plan", str(path), "--opening", "label", status=2)
    with _processes.served(path, "two-party", options) as server:
        ask = ("predict", str(images), "--server", server.address, "--names", str(tmp_path / "names"))
        text = run(*ask)
        assert all(re.search(rf"x\.npz\[{index}\]: (cat|dog|bird)\n", text) for index in range(5))
        assert "accuracy" in text
        assert " %)" not in text
        found = json.loads(run(*ask, "--json"))
        assert set(found["results"][0]) == {"input", "class", "name", "clamped"}
        assert "leave --top out" in run(*ask, "--top", "2", status=2)
        assert "leave --outputs out" in run(*ask, "--outputs", "values", status=2)
        assert "cat" in run(*ask, "--limit", "5", "--outputs", "classes")
        assert len(found["classes"]) == 5
