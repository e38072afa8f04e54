"""Models of several outputs, whose names and shapes clients get."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner

import pronghorn
from helpers import floats, model, node, run_native
from pronghorn._outputs import reader
from pronghorn.cli import app
from pronghorn.errors import InputError, UnsupportedModelError
from pronghorn.onnx import import_onnx


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
    random = np.random.default_rng(1)
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


STEPS = [node("Relu", "r", "a"), node("MatMul", "r w", "b")]
MAXIMA = [node("ReduceMax", "r", "a", axes=[1], keepdims=0), node("ReduceMin", "r", "b", axes=[1], keepdims=0)]
RNN = [node("RNN", "t k l", "a b", hidden_size=4)]
PLACES: dict[str, tuple[Any, list[onnx.NodeProto]]] = {
    "merged": ("N", [node("Reshape", "x rows", "r"), *STEPS]),
    "merged, one number each": ("N", [node("Reshape", "x rows", "r"), *MAXIMA]),
    "merged beside first": ("N", [node("Reshape", "x rows", "a"), node("ReduceMax", "x", "b", axes=[2], keepdims=0)]),
    "dropped": (1, [node("Squeeze", "x zero", "r"), *STEPS]),
    "dropped, one number each": (1, [node("Squeeze", "x zero", "r"), *MAXIMA]),
    "dropped beside first": (1, [node("Squeeze", "x zero", "a"), node("Relu", "x", "b")]),
    "behind another": (1, [node("Transpose", "x", "a", perm=[1, 0, 2]), node("Relu", "a", "b")]),
    "behind directions, batch of 1": (1, [node("Transpose", "x", "t", perm=[1, 0, 2]), *RNN]),
    "behind directions": ("N", [node("Transpose", "x", "t", perm=[1, 0, 2]), *RNN]),
}


@pytest.mark.parametrize("name", PLACES)
def test_values_of_an_image_stay_together(name: str) -> None:
    """Wherever the batch of an output is: one image's values of one output stand before those of the next."""
    batch, nodes = PLACES[name]
    directions = {"k": floats(1, 4, 4) / 4, "l": floats(1, 4, 4) / 4}
    constants = {"rows": np.array([-1, 4]), "zero": np.array([0]), "w": floats(4, 5), **directions}
    read = {each for one in nodes for each in one.input}
    proto = model(nodes, (batch, 3, 4), {k: v for k, v in constants.items() if k in read}, outputs=["a", "b"])
    loaded, rows = pronghorn.load(proto, output=["a", "b"]), floats(5, 3, 4)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    wanted = [dict(zip("ab", session.run(["a", "b"], {"x": rows[at : at + 1]}), strict=True)) for at in range(5)]
    native = run_native(import_onnx(proto, output=["a", "b"]), rows)
    for found in map(loaded.split, (loaded.run_float(rows), native)):
        for output, part in found.items():
            each = np.stack([one[output].reshape(part.shape[1:]) for one in wanted])
            np.testing.assert_allclose(part, each, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layers", [1, 2])
def test_last_states_beside_a_series(layers: int) -> None:
    """The series has its batch first, and the states of several layers have theirs behind the layers."""
    nodes = [
        node("Transpose", "x", "t", perm=[1, 0, 2]),
        node("RNN", "t k l", "s h", hidden_size=4),
        node("Transpose", "s", "u", perm=[2, 0, 1, 3]),
        node("Squeeze", "u one", "o"),
        node("Concat", " ".join(["h"] * layers), "states", axis=0),
    ]
    constants = {"k": floats(1, 4, 4) / 4, "l": floats(1, 4, 4) / 4, "one": np.array([2])}
    proto = model(nodes, ("N", 3, 4), constants, outputs=["o", "states"])
    rows = floats(4, 3, 4)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    series, states = session.run(["o", "states"], {"x": rows})
    loaded = pronghorn.load(proto, output=["o", "states"])
    found = loaded.split(loaded.run_float(rows))
    np.testing.assert_allclose(found["o"].reshape(series.shape), series, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["states"].reshape(4, layers, 4), states.swapaxes(0, 1), rtol=1e-4, atol=1e-5)
    alone = pronghorn.load(proto, output="states").run_float(rows)
    np.testing.assert_allclose(alone.reshape(4, layers, 4), states.swapaxes(0, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("constant", ["Identity", "Shape"])
def test_constants_among_outputs_are_refused(constant: str) -> None:
    nodes = [node("Relu", "x", "a"), node(constant, "c" if constant == "Identity" else "x", "b")]
    constants = {"c": floats(1, 3)} if constant == "Identity" else {}
    proto = model(nodes, ("N", 4), constants, outputs=["a", "b"])
    with pytest.raises(UnsupportedModelError, match="the output 'b' does not depend on the input"):
        pronghorn.load(proto, output=["a", "b"])


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


@pytest.mark.parametrize("trust", ["client-aided", "two-party"])
@pytest.mark.parametrize("last", ["Softmax", "Sigmoid"])
def test_probabilities_beside_a_value_in_large_units(last: str, trust: str) -> None:
    """They have no layer that takes a factor up, so that the value comes down to them."""
    rng = np.random.default_rng(5)

    def numbers(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    constants = {"w1": numbers(6, 16), "w2": numbers(16, 3) / 10, "w3": 200 * numbers(16, 1)}
    nodes = [
        *(node("MatMul", "x w1", "h"), node("Relu", "h", "r"), node("MatMul", "r w2", "c")),
        *(node(last, "c", "shares"), node("MatMul", "r w3", "value")),
    ]
    proto = model(nodes, ("N", 6), constants, outputs=["shares", "value"])
    samples, others = numbers(200, 6), numbers(100, 6)
    loaded = pronghorn.load(proto, samples=samples, output=["shares", "value"])
    report = loaded.verify(others, trust=trust, secure=False)
    errors = {each.name: each.relative_error for each in report.differences}
    assert max(errors.values()) < 0.1, errors
