"""Model owner, cloud and client, through the Python API and the command line."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import pronghorn
from helpers import model, node, pipeline
from pronghorn import _multikey_plan, multikey
from pronghorn._multikey_check import Check
from pronghorn.cli import app
from pronghorn.errors import InputError, PlanError, RunError

IMAGES = np.random.default_rng(3).uniform(0.0, 1.0, (24, 6)).astype(np.float32)


def network() -> onnx.ModelProto:
    """A dense layer of six inputs, its square, and a dense layer to three classes."""
    random = np.random.default_rng(5)
    constants = {
        "a": random.uniform(-0.5, 0.5, (6, 4)).astype(np.float32),
        "b": random.uniform(-0.5, 0.5, 4).astype(np.float32),
        "c": random.uniform(-1.0, 1.0, (4, 3)).astype(np.float32),
        "d": random.uniform(-0.5, 0.5, 3).astype(np.float32),
    }
    nodes = [
        node("Gemm", "x a b", "h"),
        node("Mul", "h h", "s"),
        node("Gemm", "s c d", "y"),
    ]
    return model(nodes, ["N", 6], constants)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The model's file, and images with the float model's classes."""
    folder = tmp_path_factory.mktemp("multikey")
    path, data = folder / "network.onnx", folder / "images.npz"
    onnx.save(network(), str(path))
    loaded = pronghorn.load(path, samples=IMAGES)
    np.savez(data, x=IMAGES, y=loaded.classes(loaded.run_float(IMAGES)))
    return path, data


class Attending:
    """A cloud, and an owner that attends on a thread."""

    def __init__(self, network: Path | pronghorn.Model, folder: Path) -> None:
        self.keys = folder / "owner"
        self.loaded = pronghorn.load(network, samples=IMAGES) if isinstance(network, Path) else network
        self.owner: multikey.Attending = multikey.ModelOwner(self.loaded, self.keys, error=2.0**-8, results=64)
        self.failure: list[RunError] = []
        self.ready = threading.Event()

    def attend(self, address: str) -> None:
        def told(line: pronghorn.LogLine) -> None:
            if line.event == "attending":
                self.ready.set()

        try:
            self.owner.attend(address, log=told)
        except RunError as error:
            self.failure.append(error)
            self.ready.set()


@contextmanager
def attended(
    network: Path | pronghorn.Model, folder: Path, limits: dict[str, int | None] | None = None
) -> Iterator[tuple[multikey.Cloud, Attending]]:
    party = Attending(network, folder)
    with multikey.Cloud("127.0.0.1:0", folder / "cloud", limits=limits) as cloud:
        thread = threading.Thread(target=party.attend, args=(cloud.address,))
        thread.start()
        try:
            assert party.ready.wait(120)
            assert not party.failure
            yield cloud, party
        finally:
            party.owner.stop()
            thread.join()


def test_a_client_learns_results(files: tuple[Path, Path], tmp_path: Path) -> None:
    with attended(files[0], tmp_path) as (cloud, party):
        name = party.owner.name
        with multikey.Client(cloud.address, name, tmp_path / "client") as client:
            assert client.input_shape == (6,)
            assert client.output_shape == (3,)
            with pytest.raises(RunError, match="not admitted") as refused:
                client.join()
            assert refused.value.code == "not-admitted"
            assert not refused.value.retryable
            party.owner.admit(client.name)
            with pytest.raises(InputError, match="the model owner's own name"):
                party.owner.admit(name)
        with multikey.Client(cloud.address, name, tmp_path / "client") as client:
            sent = client.join()
            assert sent is not None
            assert sent <= client.terms.key_bytes
            wanted = party.loaded.run_float(IMAGES[:4])
            found = client.predict(IMAGES[:4])
            assert np.abs(found - wanted).max() <= client.terms.error
            assert client.terms == party.owner.terms
            classes = client.classify(IMAGES[:4]).classes
            assert classes is not None
            assert (classes == wanted.argmax(axis=1)).all()
            with pytest.raises(InputError, match="inputs must be from 0 to"):
                client.predict(np.full((1, 6), 9.0, np.float32))
        with multikey.Client(cloud.address, name, tmp_path / "client") as client:
            assert client.join() is None
        assert party.owner.stop() is None


def test_a_client_has_so_many_images(files: tuple[Path, Path], tmp_path: Path) -> None:
    with attended(files[0], tmp_path, {"max-images": 2}) as (cloud, party):
        with multikey.Client(cloud.address, party.owner.name, tmp_path / "client") as client:
            party.owner.admit(client.name)
            client.join()
            client.predict(IMAGES[:2])
            with pytest.raises(RunError, match="has 0 left") as refused:
                client.predict(IMAGES[:1])
        assert (refused.value.code, refused.value.retryable) == ("limit", False)


def test_arguments_are_checked(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="64 hexadecimal digits"):
        multikey.admit(tmp_path, "alice")
    with pytest.raises(InputError, match="owner is 'x'"):
        multikey.Client("127.0.0.1:1", "x", tmp_path)
    with pytest.raises(InputError, match="beyond loopback"):
        multikey.Cloud("0.0.0.0:0", tmp_path / "cloud")
    with pytest.raises(InputError, match='no limit "max-guests"'):
        multikey.Cloud("127.0.0.1:0", tmp_path / "cloud", limits={"max-guests": 1})
    with pytest.raises(InputError, match="max-images"):
        multikey.Cloud("127.0.0.1:0", tmp_path / "cloud", limits={"max-images": 0})
    relu = tmp_path / "relu.onnx"
    onnx.save(model([node("Relu", "x", "y")], ["N", 6]), str(relu))
    with pytest.raises(PlanError, match="no polynomial"):
        multikey.ModelOwner(pronghorn.load(relu, samples=IMAGES), tmp_path / "owner")
    loaded = pronghorn.load(files[0], samples=IMAGES)
    multikey.ModelOwner(loaded, tmp_path / "keys", error=2.0**-8, results=4)
    # Ended with its object.
    other = model([node("Gemm", "x a b", "h"), node("Mul", "h h", "y")], ["N", 6], {
        "a": np.eye(6, dtype=np.float32), "b": np.zeros(6, np.float32)})  # fmt: skip
    onnx.save(other, str(relu))
    with pytest.raises(PlanError, match="another network"):
        multikey.ModelOwner(pronghorn.load(relu, samples=IMAGES), tmp_path / "keys")
    with pytest.warns(pronghorn.PrecisionWarning, match="are for outputs within 0.00"):
        multikey.ModelOwner(loaded, tmp_path / "keys", error=2.0**-20)
    # The same layers with another end are another network.
    ended = network()
    ended.graph.node[-1].output[0] = "z"
    ended.graph.node.append(node("Softmax", "z", "y"))
    onnx.save(ended, str(relu))
    with pytest.raises(PlanError, match="another network"):
        multikey.ModelOwner(pronghorn.load(relu, samples=IMAGES), tmp_path / "keys")


def test_four_processes(files: tuple[Path, Path]) -> None:
    path, data = files
    arguments = ["multikey", "check", str(path), "--data", str(data), "--limit", "3"]
    options = ["--error", "0.004", "--results", "8", "--json"]
    done = CliRunner().invoke(app, [*arguments, *options])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["ok"]
    assert found["images"] == found["labels_equal"] == 3
    assert found["accuracy"] == 1.0
    assert found["largest_difference"] <= found["stated_error"] <= 0.004
    assert found["key_bytes"] > 0
    assert set(found["peak_memory"]) == {"cloud", "owner", "client"}


def test_plan_and_verify(files: tuple[Path, Path]) -> None:
    path, data = map(str, files)
    plan = CliRunner().invoke(app, ["plan", path, "--trust", "multi-key", "--data", data, "--error", "0.004"])
    assert plan.exit_code == 0, plan.output
    assert "128 bits of security" in plan.stdout
    assert "3 levels" in plan.stdout
    arguments = ["--trust", "multi-key", "--data", data, "--error", "0.004", "--json"]
    summary = json.loads(CliRunner().invoke(app, ["plan", path, *arguments]).stdout)
    assert summary["trust"] == "multi-key"
    assert summary["error"] <= 0.004
    done = CliRunner().invoke(app, ["verify", path, *arguments, "--limit", "4"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["ok"]
    assert report["images"] == 4
    assert 0 < report["largest_error"] <= report["stated_error"] == summary["error"]
    assert report["agreement"] == report["accuracy"] == report["float_accuracy"] == 1.0


def test_what_cannot_run_between_three_is_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    def refused(nodes: list[onnx.NodeProto], *options: str, constants: dict[str, np.ndarray] | None = None) -> str:
        path = tmp_path / "model.onnx"
        onnx.save(model(nodes, ["N", 6], constants), str(path))
        done = CliRunner().invoke(app, ["plan", str(path), "--trust", "multi-key", *options])
        assert done.exit_code == 2
        return " ".join(done.stderr.split())

    dense = {"a": np.eye(6, dtype=np.float32), "b": np.zeros(6, np.float32)}
    text = refused([node("Gemm", "x a b", "h"), node("Relu", "h", "y")], constants=dense)
    assert "node_y" in text
    assert "multi-key compute additions and multiplications only" in text
    names = ["x", *(f"s{i}" for i in range(24)), "y"]
    squares = [node("Mul", f"{old} {old}", new) for old, new in itertools.pairwise(names)]
    assert "depends on no weights" in refused(squares)
    layer = node("Gemm", "x a b", "h")
    behind = [layer, node("Mul", "h h", "s0"), *squares[1:]]
    assert "products in a row" in refused(behind, constants=dense)
    assert "--engine has no meaning" in refused(squares[:1], "--engine", "slot")
    text = CliRunner().invoke(app, ["predict", "x.png", "--server", "h:1", "--trust", "multi-key"]).stderr
    assert "pronghorn multikey" in " ".join(text.split())


def test_clients_get_names_of_classes(tmp_path: Path) -> None:
    samples = np.random.default_rng(9).uniform(0.0, 1.0, (40, 3)).astype(np.float32)
    loaded = pronghorn.load(pipeline(["high", "low", "mid"]), output="z", samples=samples)
    with (
        attended(loaded, tmp_path) as (cloud, party),
        multikey.Client(cloud.address, party.owner.name, tmp_path / "client") as client,
    ):
        assert client.class_names == ("high", "low", "mid")
        party.owner.admit(client.name)
        client.join()
        assert client.classify(np.eye(3, dtype=np.float32)).named() == ["high", "low", "mid"]


def test_long_work_goes_on_where_it_ended(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "found.csv"

    def run(cloud: multikey.Cloud, party: Attending, *options: str) -> Any:
        arguments = ["multikey", "client", str(files[1]), "--cloud", cloud.address, "--owner", party.owner.name]
        arguments += ["--keys", str(tmp_path / "client"), "--limit", "4", "--batch", "--out", str(out), *options]
        return CliRunner().invoke(app, arguments)

    predict, asked = multikey.Client.predict, itertools.count(1)

    def failing(self: multikey.Client, *given: Any, **named: Any) -> Any:
        if next(asked) == 4:
            raise RunError("its disk is full", code="internal")
        return predict(self, *given, **named)

    monkeypatch.setattr(multikey.Client, "predict", failing)
    with attended(files[0], tmp_path) as (cloud, party):
        with multikey.Client(cloud.address, party.owner.name, tmp_path / "client") as client:
            party.owner.admit(client.name)
        done = run(cloud, party)
        assert done.exit_code == 1, done.output
        assert not out.exists()
        assert len(list((tmp_path / "found.csv.parts").glob("0*.npy"))) == 3
        left = party.owner.results_left
        done = run(cloud, party, "--resume")
        assert done.exit_code == 0, done.output
        assert "4 images, all in" in done.stdout
        assert "accuracy: 100.00 %" in done.stdout
        assert party.owner.results_left == left - 1
    assert len(out.read_text().splitlines()) == 5
    assert not (tmp_path / "found.csv.parts").exists()


def test_plans_are_for_so_many_results(files: tuple[Path, Path]) -> None:
    path, data = (str(file) for file in files)
    flags = ["--trust", "multi-key", "--data", data, "--results", "2"]
    plan = CliRunner().invoke(app, ["plan", path, *flags])
    assert "over 2 results of a key" in plan.stdout, plan.output
    many = CliRunner().invoke(app, ["verify", path, *flags, "--limit", "3"])
    assert "more than the 2 results of a key" in " ".join(many.stderr.split())
    for command in (["plan", path, "--data", data], ["verify", path, "--data", data]):
        other = CliRunner().invoke(app, [*command, "--trust", "two-party", "--results", "2"])
        assert other.exit_code == 2
        assert "--results counts decryptions of a key" in " ".join(other.stderr.split())


def test_images_out_of_range_are_named_before_one_is_sent(files: tuple[Path, Path], tmp_path: Path) -> None:
    wrong = IMAGES[:3].copy()
    wrong[2, 4] = 1.5
    with (
        attended(files[0], tmp_path) as (cloud, party),
        multikey.Client(cloud.address, party.owner.name, tmp_path / "client") as client,
    ):
        party.owner.admit(client.name)
        assert client.terms.input_range[0] == 0
        left = party.owner.results_left
        with pytest.raises(InputError, match=r"image 2 \(counted from 0\) has 1.5 at x\[4\]; inputs must be from 0 to"):
            client.predict(wrong)
        assert party.owner.results_left == left
    with pytest.raises(InputError, match="image 2"):
        _multikey_plan.MultiKeyPlan(pronghorn.load(files[0], samples=IMAGES)).verify(wrong)


def scaled(factor: float) -> pronghorn.Model:
    """A regression whose outputs are that small."""
    weights = np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2) * np.float32(factor)
    return pronghorn.load(model([node("MatMul", "x w", "y")], ["N", 6], {"w": weights}), samples=IMAGES)


def test_errors_follow_small_outputs() -> None:
    loaded = scaled(1e-6)
    report = _multikey_plan.MultiKeyPlan(loaded).verify(IMAGES[:4], kind="values")
    assert report.ok
    assert report.stated_error < loaded.run_float(IMAGES).std() / 60
    # Large ones keep the default.
    assert 2.0**-13 < _multikey_plan.MultiKeyPlan(scaled(1.0)).summary()["error"] <= 2.0**-10
    with pytest.warns(pronghorn.PrecisionWarning, match=r"little meaning; take a smaller error \(--error"):
        _multikey_plan.MultiKeyPlan(loaded, error=1e-3)


def test_values_are_checked_by_their_error(files: tuple[Path, Path]) -> None:
    path, data = files
    arguments = ["multikey", "check", str(path), "--data", str(data), "--limit", "2", "--outputs", "values"]
    done = CliRunner().invoke(app, [*arguments, "--error", "0.004", "--results", "8"])
    assert done.exit_code == 0, done.output
    assert "labels" not in done.stdout
    assert "is stated for any input\n" in done.stdout
    found = Check(2, None, None, 0.02, 0.004, False, 1.0, 1.0, 1.0, 1.0, 1, {"cloud": 1})
    assert not found.ok
    assert "THIS IS A BUG" in str(found)


def test_copies_and_shortcuts_are_the_float_models() -> None:
    """A tile, and a layer that is added to its input."""
    random = np.random.default_rng(8)
    constants = {"twice": np.array([1, 2]), "w": random.uniform(-0.5, 0.5, (12, 6)).astype(np.float32)}
    nodes = [node("Tile", "x twice", "t"), node("MatMul", "t w", "h"), node("Add", "h x", "y")]
    loaded = pronghorn.load(model(nodes, ["N", 6], constants), samples=IMAGES)
    assert _multikey_plan.MultiKeyPlan(loaded).verify(IMAGES[:3]).float_difference < 0.001


def test_weights_of_raw_features_are_exact() -> None:
    """Of a price and of a ratio they differ by eight powers of ten."""
    random = np.random.default_rng(6)
    spreads = np.array([1e5, 1e-3, 1.0, 10.0], np.float32)
    weights = (random.standard_normal((4, 2)) / spreads[:, None]).astype(np.float32)
    rows = (spreads * random.standard_normal((40, 4))).astype(np.float32)
    loaded = pronghorn.load(model([node("MatMul", "x w", "y")], ["N", 4], {"w": weights}), samples=rows)
    plan = _multikey_plan.MultiKeyPlan(loaded)
    assert np.abs(plan._native.run_oracle(rows).reshape(40, 2) - rows.astype(np.float64) @ weights).max() < 1e-9
