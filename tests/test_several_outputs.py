"""Models of several outputs, whose names and shapes clients get."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import pronghorn
from helpers import floats, model, node
from pronghorn._outputs import reader
from pronghorn.cli import app
from pronghorn.errors import InputError


def heads() -> onnx.ModelProto:
    """A row to a map of two by two and a score."""
    nodes = [
        node("MatMul", "x g", "h"),
        node("Relu", "h", "r"),
        node("MatMul", "r v", "flat"),
        node("Reshape", "flat shape", "map"),
        node("MatMul", "r w", "score"),
    ]
    constants = {"g": floats(3, 6), "v": floats(6, 4), "w": floats(6, 1), "shape": np.array([-1, 2, 2], np.int64)}
    return model(nodes, ("N", 3), constants, outputs=["map", "score"])


@pytest.mark.parametrize("trust", ["two-party", "client-aided", "encrypted"])
def test_clients_take_outputs_apart(trust: str) -> None:
    # Weights that ciphertexts carry.
    random = np.random.default_rng(0)
    g, h, v, rows = (random.standard_normal(shape).astype(np.float32) for shape in [(3, 6), (6, 2), (6, 1), (40, 3)])
    polynomial = model(
        [node("MatMul", "x g", "m"), node("Mul", "m m", "s"), node("MatMul", "s h", "a"), node("MatMul", "s v", "b")],
        ("N", 3),
        {"g": g, "h": h, "v": v},
        outputs=["a", "b"],
    )
    proto, names = (polynomial, ["a", "b"]) if trust == "encrypted" else (heads(), ["map", "score"])
    loaded = pronghorn.load(proto, output=names, samples=rows)
    wanted = loaded.split(loaded.run_float(rows[:2]))
    with (
        pronghorn.serve(loaded, listen="127.0.0.1:0", trust=trust) as server,
        pronghorn.connect(server.address, trust) as client,
    ):
        assert client.outputs == loaded.outputs
        found = client.classify(rows[:2])
        assert (found.kind, found.classes) == ("values", None)
        with pytest.raises(InputError, match=r"several outputs.*--output NAME"):
            client.classify(rows[:2], outputs="classes")
    assert list(found.split()) == names
    for name, part in found.split().items():
        assert part.shape == wanted[name].shape
        np.testing.assert_allclose(part, wanted[name], rtol=0.1, atol=0.2)
    assert set(found.arrays()) >= {"outputs", *(f"outputs.{name}" for name in names)}


@pytest.mark.parametrize(
    ("names", "keys"),
    [(["a", "b c"], ["a", "b c"]), (["../a", "C:\\b"], ["___a", "C__b"]), (["a/b", "a_b"], ["0", "1"])],
)
def test_names_make_no_paths_and_no_two_arrays_alike(names: list[str], keys: list[str]) -> None:
    shapes: dict[str, tuple[int, ...]] = {names[0]: (2,), names[1]: ()}
    found = reader([], "values", shapes=shapes)(floats(4, 3))
    assert list(found.arrays()) == ["outputs", *(f"outputs.{key}" for key in keys)]
    assert found.split()[names[1]].shape == (4,)


def test_one_output_needs_no_name() -> None:
    loaded = pronghorn.load(heads(), output="score", samples=floats(20, 3))
    assert json.loads(loaded.plan().to_json())["outputs"] == []


def test_names_of_outputs_are_part_of_the_plan() -> None:
    plan = pronghorn.load(heads(), output=["map", "score"], samples=floats(20, 3)).plan()
    assert json.loads(plan.to_json())["outputs"] == [{"name": "map", "shape": [2, 2]}, {"name": "score", "shape": [1]}]
    assert "outputs: map [2, 2], score [1]" in str(plan)


def test_the_command_line_prints_each_output(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", floats(5, 3))
    loaded = pronghorn.load(heads(), output=["map", "score"], samples=floats(20, 3))
    with pronghorn.serve(loaded, listen="127.0.0.1:0", trust="two-party") as server:
        ask = ["predict", str(tmp_path / "x.npy"), "--server", server.address, "--trust", "two-party"]

        def run(*more: str) -> str:
            found = CliRunner().invoke(app, [*ask, *more])
            assert found.exit_code == 0, found.output
            return found.stdout

        first = run().splitlines()[0]
        record = json.loads(run("--json", "--out", str(tmp_path / "all.npz")))
        for suffix in ("csv", "npz"):
            run("--batch", "--piece", "2", "--out", str(tmp_path / f"o.{suffix}"))
    assert re.fullmatch(r".*: map (\S+, ){3}\S+; score \S+( \(.*\))?", first)
    values = record["results"][0]["values"]
    assert record["outputs"] == "values"
    assert np.shape(values["map"]) == (2, 2)
    with (tmp_path / "o.csv").open() as file:
        table = list(csv.DictReader(file))
    titles = [*(f"output map {at}" for at in range(4)), "output score"]
    assert [title for title in table[0] if title.startswith("output")] == titles
    np.testing.assert_allclose([float(table[0][title]) for title in titles[:4]], np.ravel(values["map"]), atol=0.2)
    for name in ("o.npz", "all.npz"):
        with np.load(tmp_path / name) as arrays:
            assert arrays["outputs.map"].shape == (5, 2, 2)
            assert arrays["outputs.score"].shape == (5, 1)


def test_scores_of_values_have_their_names() -> None:
    loaded, rows = pronghorn.load(heads(), output=["map", "score"], samples=floats(40, 3)), floats(20, 3)
    report = loaded.verify(rows, loaded.run_float(rows), secure=False)
    assert report.regression is not None
    names = [f"map[{index}]" for index in range(4)] + ["score"]
    assert list(report.regression.names) == json.loads(report.to_json())["regression"]["names"] == names
    found = re.findall(r"^ +(\S+): RMSE .* \(float model: RMSE", str(report), re.MULTILINE)
    assert found == names


def scaled_heads(count: int) -> onnx.ModelProto:
    """A row to outputs of which each is ten times the one before."""
    names = [f"o{at}" for at in range(count)]
    nodes = [node("MatMul", f"x w{at}", name) for at, name in enumerate(names)]
    constants = {f"w{at}": floats(3, 2) * np.float32(10.0**at) for at in range(count)}
    return model(nodes, ("N", 3), constants, outputs=names)


@pytest.mark.filterwarnings("ignore::pronghorn.errors.PrecisionWarning")
@pytest.mark.parametrize("count", [3, 12])
def test_differences_of_each_output(count: int) -> None:
    """Larger outputs hide those of smaller ones in the error of all."""
    names = [f"o{at}" for at in range(count)]
    loaded, rows = pronghorn.load(scaled_heads(count), output=names, samples=floats(40, 3)), floats(20, 3)
    report = loaded.verify(rows, secure=False)
    assert [each.name for each in report.differences] == names
    assert json.loads(report.to_json())["differences"][0] == vars(report.differences[0])
    # Errors of all outputs in the unit of each make up the one of all.
    squares = np.mean([each.rmse**2 for each in report.differences])
    np.testing.assert_allclose(report.rmse, np.sqrt(squares), rtol=1e-4)
    lines = [line for line in str(report).splitlines() if "of its own spread" in line]
    worst = max(report.differences, key=lambda each: each.relative_error)
    if count == 3:
        assert [line.split(":")[0].strip() for line in lines] == names
    else:
        assert lines == [f"    the worst of 12 outputs is {worst}; --json has all"]


def test_one_output_has_no_lines_of_its_own() -> None:
    loaded = pronghorn.load(heads(), output="map", samples=floats(40, 3))
    report = loaded.verify(floats(20, 3), secure=False)
    assert report.differences == ()
    assert "own spread" not in str(report)


def test_classes_of_several_outputs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(heads().SerializeToString())
    np.save(tmp_path / "x.npy", floats(20, 3))
    ask = ["verify", str(tmp_path / "m.onnx"), "--data", str(tmp_path / "x.npy"), "--no-secure"]
    ask += ["--output", "map", "--output", "score"]
    refused = CliRunner().invoke(app, [*ask, "--outputs", "classes"])
    assert refused.exit_code == 2
    assert "the model gives several outputs" in refused.stderr
    assert CliRunner().invoke(app, ask).exit_code == 0
