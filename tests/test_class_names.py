"""The names that a model has for its classes."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from typer.testing import CliRunner

import pronghorn
from helpers import WEIGHTS, pipeline
from pronghorn._inputs import as_indices
from pronghorn._tables import read_table
from pronghorn.cli import app
from pronghorn.cli.inputs import labels_of
from pronghorn.errors import InputError, InputWarning
from pronghorn.onnx.class_names import class_names

RANDOM = np.random.default_rng(17)


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("names", [["no", "yes"], ["high", "low", "mid"], [1, 2], [10, 20, 30]])
def test_names_are_read(names: list[Any], table: bool) -> None:
    proto = pipeline(names, table=table)
    assert class_names(proto.graph) == tuple(map(str, names))
    assert pronghorn.load(proto, output="z").class_names == tuple(map(str, names))
    # Of other values than classes they say nothing.
    assert pronghorn.load(proto, output="s").class_names == tuple(map(str, names))


def test_indices_are_no_names() -> None:
    assert pronghorn.load(pipeline([0, 1, 2]), output="z").class_names == ()


def test_names_of_other_outputs_are_left_out() -> None:
    proto = pipeline(["a", "b", "c"])
    del proto.graph.node[1:], proto.graph.output[0]
    proto.graph.node[0].output[0] = "z"
    proto.graph.node.append(
        helper.make_node("ZipMap", ["z"], ["q"], domain="ai.onnx.ml", classlabels_strings=["a", "b"])
    )
    assert pronghorn.load(proto, output="z").class_names == ()


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_clients_get_names(trust: str) -> None:
    samples = RANDOM.standard_normal((60, 3)).astype(np.float32)
    loaded = pronghorn.load(pipeline(["high", "low", "mid"]), output="z", samples=samples)
    plan = loaded.plan(trust)
    assert "classes: high, low, mid" in str(plan)
    assert json.loads(plan.to_json())["class_names"] == ["high", "low", "mid"]
    inputs = 3 * np.eye(3, dtype=np.float32)
    with (
        pronghorn.serve(loaded, listen="127.0.0.1:0", trust=trust) as server,
        pronghorn.connect(server.address, trust) as client,
    ):
        assert client.class_names == ("high", "low", "mid")
        found = client.classify(inputs)
        assert found.classes is not None
        assert found.named() == ["high", "low", "mid"] == [found.class_names[index] for index in found.classes]
    # Labels may be the names.
    report = loaded.verify(inputs, ["high", "low", "low"], trust=trust, secure=False)
    assert report.accuracy_float == pytest.approx(2 / 3)


def test_names_are_part_of_the_plan() -> None:
    samples = RANDOM.standard_normal((60, 3)).astype(np.float32)
    hashes = {
        pronghorn.load(pipeline(names), output="z", samples=samples).plan().hash for names in (["a", "b"], ["a", "c"])
    }
    assert len(hashes) == 2


@pytest.mark.parametrize("names", [[1, 2], ["no", "yes"]])
def test_the_command_line_scores_names(tmp_path: Path, names: list[Any]) -> None:
    (tmp_path / "m.onnx").write_bytes(pipeline(names).SerializeToString())
    table = RANDOM.standard_normal((80, 3)).astype(np.float32)
    classes = (table @ WEIGHTS[:, :2]).argmax(axis=1)
    lines = [
        ",".join([*(f"{value:.6g}" for value in row), str(names[c])]) for row, c in zip(table, classes, strict=True)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,label", *lines]))
    ask = [
        "verify",
        str(tmp_path / "m.onnx"),
        "--output",
        "z",
        "--data",
        str(tmp_path / "t.csv"),
        "--no-secure",
        "--json",
    ]
    found = CliRunner().invoke(app, ask)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["accuracy_float"] == 1.0


@pytest.mark.parametrize(
    ("names", "labels", "indices"),
    [
        (("01", "02", "10"), ["01", "02", "01"], [0, 1, 0]),
        (("false", "mixed", "true"), ["true", "false"], [2, 0]),
        (("1", "2"), ["1.0", "2.0"], [0, 1]),
        ((), ["true", "false"], [1, 0]),
        ((), ["1.0", "0"], [1, 0]),
    ],
)
def test_labels_are_texts_first(tmp_path: Path, names: tuple[str, ...], labels: list[str], indices: list[int]) -> None:
    (tmp_path / "t.csv").write_text("\n".join(["a,label", *(f"0.5,{label}" for label in labels)]))
    found = labels_of(None, read_table(tmp_path / "t.csv")[1], len(labels), len(labels), names)
    assert found is not None
    assert found.tolist() == indices


def test_labels_that_may_be_both_are_said() -> None:
    with pytest.warns(InputWarning, match="taken for the model's names of its classes, not for their indices"):
        assert as_indices([1, 2, 1], ("1", "2", "3")).tolist() == [0, 1, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert as_indices([1, 3, 1], ("1", "2", "3")).tolist() == [0, 2, 0]
        assert as_indices(np.array([1.0, 2.0]), ("1", "2")).tolist() == [0, 1]
        assert as_indices([0.5, 2.0], ("1", "2")).tolist() == [0.5, 2.0]
        assert as_indices([1e300, 2.0], ("1", "2")).tolist() == [1e300, 2.0]
    # As pandas has them.
    assert as_indices(np.array(["b", "a"], object), ("a", "b")).tolist() == [1, 0]
    assert as_indices(np.array(["a", None], object), ("a", "b")).tolist() == ["a", "None"]


def test_a_file_of_labels_may_be_names(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("kind\n01\n02\n")
    found = labels_of(tmp_path / "l.csv", None, 2, 2, ("01", "02"))
    assert found is not None
    assert found.tolist() == [0, 1]


def test_hostile_names_are_none() -> None:
    def names(*attributes: onnx.AttributeProto, inputs: list[str] | None = None) -> tuple[str, ...]:
        zip_map = helper.make_node("ZipMap", ["p"], ["z"], domain="ai.onnx.ml")
        zip_map.attribute.extend(attributes)
        extractor = helper.make_node("ArrayFeatureExtractor", inputs or [], ["l"], domain="ai.onnx.ml")
        broken = onnx.TensorProto(name="t", data_type=99, dims=[3], raw_data=b"1")
        return class_names(helper.make_graph([zip_map, extractor], "g", [], [], [broken]))

    assert names(helper.make_attribute("classlabels_strings", "abc")) == ()
    assert names(helper.make_attribute("classlabels_ints", 1.5)) == ()
    assert names(onnx.AttributeProto(name="classlabels_ints")) == ()
    assert names(inputs=["t", "i"]) == ()
    assert names(helper.make_attribute("classlabels_strings", ["a", "a"])) == ()
    assert names(helper.make_attribute("classlabels_strings", ["a" * 70_000, "b"])) == ()
    assert names(helper.make_attribute("classlabels_strings", ["a", "b"])) == ("a", "b")


def test_labels_that_fit_nothing_are_said() -> None:
    texts = np.array(["no", "maybe"])
    with pytest.raises(
        InputError, match=r"column 'y': labels such as 'no' are no numbers, and the model's classes are a, b"
    ):
        labels_of(None, texts, 2, 2, ("a", "b"), "y")
    assert labels_of(None, texts, 2, 2, ("a", "b")) is None
    found = labels_of(None, np.array([2, 1, 2]), 2, 3, ("1", "2"))
    assert found is not None
    assert found.tolist() == [1, 0]
    # Indices stay indices.
    kept = labels_of(None, np.array([0, 1]), 2, 2, ("1", "2"))
    assert kept is not None
    assert kept.tolist() == [0, 1]
