"""Results beyond those of the samples: the client is warned."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pronghorn
from helpers import floats, model, node
from pronghorn.cli import app

LEVELS = ("two-party", "client-aided")


def summed() -> np.ndarray:
    """Weights that add all inputs up, once and twice."""
    return np.array([[1.0, 2.0]] * 6, np.float32)


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    """Rows with one number that is not zero: sums are no larger than the inputs."""
    return np.concatenate([np.eye(6), -np.eye(6), np.eye(6) / 2]).astype(np.float32)


@pytest.fixture(scope="module")
def sums(samples: np.ndarray) -> pronghorn.Model:
    return pronghorn.load(model([node("Gemm", "x w", "y")], ("N", 6), {"w": summed()}), samples=samples)


def inputs() -> np.ndarray:
    """Two rows like the samples, and two whose numbers are those of samples and whose sums are not."""
    return np.array([np.eye(6)[2], [0.0] * 6, [1.0] * 6, [-1.0] * 6], np.float32)


@pytest.mark.parametrize("trust", LEVELS)
def test_clients_are_warned(sums: pronghorn.Model, trust: str) -> None:
    with pronghorn.serve(sums, "127.0.0.1:0", trust) as server, pronghorn.connect(server.address, trust) as client:
        with pytest.warns(pronghorn.RangeWarning, match="2 results are beyond those of the samples"):
            found = client.classify(inputs(), outputs="values")
        assert found.beyond_samples is not None
        assert client.last_stats is not None
        assert found.beyond_samples.tolist() == [False, False, True, True]
        assert client.last_stats.beyond_samples == 2
        np.testing.assert_allclose(found.outputs, inputs() @ summed(), atol=0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pronghorn.RangeWarning)
            client.predict(inputs()[:2])
        assert client.last_beyond_samples is not None
        assert not client.last_beyond_samples.any()


def test_plans_without_values_or_samples_say_nothing(samples: np.ndarray) -> None:
    nodes = [node("Gemm", "x w", "g"), node("ArgMax", "g", "y", axis=1)]
    classes = pronghorn.load(model(nodes, ("N", 6), {"w": floats(6, 3)}, output_dtype=7), samples=samples)
    bare = pronghorn.load(model([node("Gemm", "x w", "y")], ("N", 6), {"w": summed()}), input_range=(-1, 1))
    for each in (classes, bare):
        assert json.loads(each.compiled("two-party").plan_json())["sampled"] is None
        assert each.verify(inputs(), secure=False).beyond_samples is None


def test_verify_counts(sums: pronghorn.Model) -> None:
    report = sums.verify(inputs(), secure=False)
    assert report.beyond_samples == 2
    assert "results beyond those of the samples: 2 of 4: likely wrong" in str(report)
    assert sums.verify(inputs()[:2], secure=False).beyond_samples == 0


def test_files_say_which(sums: pronghorn.Model, tmp_path: Path) -> None:
    data = tmp_path / "inputs.npy"
    np.save(data, inputs())
    wanted = [False, False, True, True]
    with pronghorn.serve(sums, "127.0.0.1:0", "client-aided") as server:
        asked = ["predict", str(data), "--server", server.address, "--trust", "client-aided", "--outputs", "values"]
        out = tmp_path / "out.npz"
        found = CliRunner().invoke(app, [*asked, "--json", "--out", str(out)])
        printed = json.loads(found.stdout)
        assert printed["beyond_samples"] == 2
        assert [each["beyond_samples"] for each in printed["results"]] == wanted
        with np.load(out) as archive:
            assert archive["beyond_samples"].tolist() == wanted
        lines = CliRunner().invoke(app, asked).stdout.splitlines()
        assert [line.endswith("(beyond the samples: likely wrong)") for line in lines[:4]] == wanted
        table = tmp_path / "out.csv"
        found = CliRunner().invoke(app, [*asked, "--json", "--batch", "--piece", "3", "--out", str(table)])
        assert json.loads(found.stdout)["beyond_samples"] == 2, found.output
        header, *rows = [line.split(",") for line in table.read_text().splitlines()]
        assert [row[header.index("beyond_samples")] for row in rows] == [str(each) for each in wanted]


def test_inputs_beyond_the_range_are_marked(sums: pronghorn.Model, tmp_path: Path) -> None:
    """Their values are clamped, so that the result looks like any other."""
    table = np.tile(np.eye(6, dtype=np.float32), (2, 1))
    table[7] = [0, 0, 0, 2, -1, 0]
    wanted = [index == 7 for index in range(12)]
    data, out = tmp_path / "inputs.npy", tmp_path / "out.npz"
    np.save(data, table)
    with pronghorn.serve(sums, "127.0.0.1:0", "client-aided") as server:
        with (
            pronghorn.connect(server.address, "client-aided") as client,
            pytest.warns(pronghorn.RangeWarning, match=r"1 input has values beyond .* \(x\[7\]\)"),
        ):
            found = client.classify(table, outputs="values")
        assert found.clamped is not None
        assert found.clamped.tolist() == wanted
        asked = ["predict", str(data), "--server", server.address, "--trust", "client-aided", "--outputs", "values"]
        said = CliRunner().invoke(app, [*asked, "--json", "--out", str(out)])
        assert [each["clamped"] for each in json.loads(said.stdout)["results"]] == wanted
        with np.load(out) as archive:
            assert archive["clamped"].tolist() == wanted
        printed = CliRunner().invoke(app, asked)
        lines = printed.stdout.splitlines()
        # One warning, which says which input it is.
        assert printed.stderr.count("clamped") == 1
        assert "1 input has values beyond the range" in printed.stderr
        assert [line.endswith("(input beyond the plan's range: may be wrong)") for line in lines[:12]] == wanted
        for name in ("out.csv", "pieces.npz"):
            pieces = [*asked, "--json", "--batch", "--piece", "5", "--out", str(tmp_path / name)]
            said = CliRunner().invoke(app, pieces)
            assert "1 input has values beyond the range" in said.stderr
            assert json.loads(said.stdout)["clamped"] == 1, said.output
        header, *rows = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()]
        assert [row[header.index("clamped")] for row in rows] == [str(each) for each in wanted]
        with np.load(tmp_path / "pieces.npz") as archive:
            assert archive["clamped"].tolist() == wanted


def test_a_far_input_among_others_is_no_wrong_scale(sums: pronghorn.Model, tmp_path: Path) -> None:
    """It is marked, alone or in pieces; where half are far, the scale is."""
    table = np.tile(np.eye(6, dtype=np.float32), (2, 1))
    table[7, 2] = 900
    np.save(tmp_path / "one.npy", table)
    np.save(tmp_path / "all.npy", 900 * table)
    with pronghorn.serve(sums, "127.0.0.1:0", "client-aided") as server:

        def run(name: str, *more: str) -> Any:
            ask = ["predict", str(tmp_path / name), "--server", server.address, "--trust", "client-aided", "--json"]
            return CliRunner().invoke(app, [*ask, "--outputs", "values", *more])

        found = run("one.npy")
        assert [each["clamped"] for each in json.loads(found.stdout)["results"]] == [at == 7 for at in range(12)]
        assert json.loads(run("one.npy", "--batch", "--out", str(tmp_path / "o.csv")).stdout)["clamped"] == 1
        for refused in (run("all.npy"), run("all.npy", "--batch", "--out", str(tmp_path / "p.csv"))):
            assert refused.exit_code == 2
            assert "--scale" in refused.stderr


def test_values_that_are_clamped_by_little_are_counted(sums: pronghorn.Model, tmp_path: Path) -> None:
    data = tmp_path / "inputs.npy"
    table = np.tile(np.eye(6, dtype=np.float32), (2, 1))
    with pronghorn.serve(sums, "127.0.0.1:0", "client-aided") as server:
        with pronghorn.connect(server.address, "client-aided") as client:
            high = client.input_range[1]
        for count, text in ((1, "1 input value was outside the range"), (2, "2 input values were outside the range")):
            table[:count, 0] = 1.03 * high
            np.save(data, table)
            asked = ["predict", str(data), "--server", server.address, "--trust", "client-aided", "--outputs", "values"]
            found = CliRunner().invoke(app, asked)
            assert text in " ".join(found.stderr.split())


@pytest.fixture(scope="module")
def normalised() -> tuple[pronghorn.Model, np.ndarray]:
    """A network that takes each image by its own deviation, and 48 images of usual contrast."""
    rng = np.random.default_rng(17)
    images = (0.5 + rng.uniform(0.2, 0.3, (48, 1, 1, 1)) * rng.standard_normal((48, 1, 6, 6))).astype(np.float32)
    nodes = [
        node("ReduceMean", "x", "m", axes=[1, 2, 3]),
        node("Sub", "x m", "d"),
        node("Mul", "d d", "s"),
        node("ReduceMean", "s", "v", axes=[1, 2, 3]),
        node("Sqrt", "v", "r"),
        node("Div", "d r", "n"),
        node("Flatten", "n", "f"),
        node("Gemm", "f w", "y"),
    ]
    proto = model(nodes, ("N", 1, 6, 6), {"w": rng.standard_normal((36, 4)).astype(np.float32)})
    return pronghorn.load(proto, samples=images), images


@pytest.mark.parametrize("trust", LEVELS)
def test_images_of_another_contrast_are_told(normalised: tuple[pronghorn.Model, np.ndarray], trust: str) -> None:
    network, images = normalised
    assert network.verify(images[:8], trust=trust, secure=False).beyond_samples == 0
    faint = np.concatenate([images[:2], 0.02 * images[2:5]])
    assert network.verify(faint, trust=trust, secure=False).beyond_samples == 3
    with pronghorn.serve(network, "127.0.0.1:0", trust) as server, pronghorn.connect(server.address, trust) as client:
        with pytest.warns(pronghorn.RangeWarning, match="3 results are beyond"):
            found = client.classify(faint, outputs="values")
        assert found.beyond_samples is not None
        assert found.beyond_samples.tolist() == [False, False, True, True, True]


def test_images_of_some_less_contrast_are_right(normalised: tuple[pronghorn.Model, np.ndarray]) -> None:
    """The table of deviations goes on below the samples; means are those of samples."""
    network, images = normalised
    report = network.verify(0.5 + np.float32(0.4) * (images - 0.5), secure=False)
    assert report.relative_error < 4 * report.expected_error, report.relative_error


def test_rows_and_plain_networks_have_no_deviations(sums: pronghorn.Model) -> None:
    assert json.loads(sums.compiled("two-party").plan_json())["deviations"] is None


def test_results_of_ciphertexts_beyond_the_samples_are_marked() -> None:
    """A feature that no sample has: alone, it is no damage, and among others it is told."""
    rng = np.random.default_rng(5)
    samples = rng.uniform(-1, 1, (60, 4)).astype(np.float32)
    samples[:, 3] = samples[:, 2]
    weights = np.array([[1.0], [2.0], [20.0], [-20.0]], np.float32)
    loaded = pronghorn.load(model([node("Gemm", "x w", "y")], ("N", 4), {"w": weights}), samples=samples)
    far = samples[:1] * np.array([[1, 1, 1, -1]], np.float32)
    with (
        pronghorn.serve(loaded, "127.0.0.1:0", "encrypted") as server,
        pronghorn.connect(server.address, "encrypted") as client,
    ):
        for others in (0, 1, 40):
            with pytest.warns(pronghorn.RangeWarning, match="1 result is beyond those of the samples"):
                found = client.classify(np.concatenate([samples[:others], far]), outputs="values")
            assert found.beyond_samples is not None
            assert found.beyond_samples.tolist() == [*[False] * others, True]
            errors = found.outputs[:others] - samples[:others] @ weights
            # Noise has a tail: a mean of squares has none to speak of.
            assert np.linalg.norm(errors) < 0.025 * np.sqrt(max(others, 16))


def test_results_without_a_logarithm_are_marked() -> None:
    """No sample has a distance that rounds to nothing."""
    rng = np.random.default_rng(6)
    samples = rng.uniform(0.5, 1, (64, 3)).astype(np.float32)
    nodes = [node("Gemm", "x w", "g"), node("Relu", "g", "r"), node("Log", "r", "y")]
    loaded = pronghorn.load(model(nodes, ("N", 3), {"w": np.ones((3, 1), np.float32)}), samples=samples)
    none = np.full((1, 3), 1e-6, np.float32)
    with (
        pronghorn.serve(loaded, "127.0.0.1:0", "client-aided") as server,
        pronghorn.connect(server.address, "client-aided") as client,
        pytest.warns(pronghorn.RangeWarning, match="1 result is beyond"),
    ):
        found = client.classify(np.concatenate([samples[:9], none]), outputs="values")
    assert found.beyond_samples is not None
    assert found.beyond_samples.tolist() == [*[False] * 9, True]
