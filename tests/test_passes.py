"""Passes over encrypted networks, which can be left out from Python and from the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto
from typer.testing import CliRunner

import pronghorn
from conftest import EXAMPLE
from helpers import model, node
from pronghorn import _native, _processes
from pronghorn.cli import app
from pronghorn.errors import InputError

SQUARE = EXAMPLE / "cryptonets_square.onnx"
DATA = str(EXAMPLE / "t10k-images-idx3-ubyte.gz")
TRUST = "encrypted"
RESCALING, RELINEARISATION = "lazy-rescaling", "lazy-relinearisation"


def run(*arguments: str, status: int = 0) -> str:
    """The output of a command that must end with `status`."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == status, f"{result.output}\n{result.exception!r}"
    return result.output


def network() -> ModelProto:
    """Two squares of layers: enough for relinearisation."""
    nodes = [
        node("Gemm", "x u", "f"),
        node("Mul", "f f", "g"),
        node("Gemm", "g v", "h"),
        node("Mul", "h h", "i"),
        node("Gemm", "i w", "y"),
    ]
    random = np.random.default_rng(2)
    shapes = {"u": (6, 5), "v": (5, 5), "w": (5, 3)}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return model(nodes, ("N", 6), weights)


@pytest.fixture(scope="module")
def squares() -> pronghorn.Model:
    """The network, with samples."""
    samples = np.random.default_rng(3).uniform(-1, 1, (200, 6)).astype(np.float32)
    return pronghorn.load(network(), samples=samples)


def switched(text: str) -> dict[str, bool]:
    """Which passes a plan's text says were on."""
    line = next(line for line in text.splitlines() if line.startswith("passes over the network: "))
    states = (entry.split() for entry in line.partition(": ")[2].split(", "))
    return {name: {"on": True, "off": False}[state] for name, state in states}


def key_power(plan: pronghorn.Plan) -> int:
    """The highest power of the secret that the client's keys are for; 1 for none."""
    return int(re.search(r'"key_power":\s*(\d+)', plan.to_json())[1])  # type: ignore[index]


def test_both_are_on_unless_left_out(squares: pronghorn.Model) -> None:
    names = [name for name, _ in _native.passes()]
    assert names == [RESCALING, RELINEARISATION]
    for without in ([], [RESCALING], [RELINEARISATION], names):
        text = str(squares.plan(TRUST, without=without))
        assert switched(text) == {name: name not in without for name in names}


def test_each_changes_what_the_server_does(squares: pronghorn.Model) -> None:
    usual, relinearised = squares.plan(TRUST), squares.plan(TRUST, without=(RELINEARISATION,))
    assert key_power(usual) == 1
    assert key_power(relinearised) == 2
    assert "relinearise, by" in relinearised.details()
    assert "relinearise, by" not in usual.details()
    rescaled = squares.plan(TRUST, without={RESCALING})
    assert rescaled.details().count("rescale by") > usual.details().count("rescale by")
    assert len({plan.hash for plan in (usual, relinearised, rescaled)}) == 3


def test_results_stay(squares: pronghorn.Model) -> None:
    x = np.random.default_rng(4).uniform(-1, 1, (40, 6)).astype(np.float32)
    for without in ([], [RESCALING], [RELINEARISATION], [RELINEARISATION, RESCALING]):
        report = squares.verify(x, trust=TRUST, without=without)
        assert report.disagreements == 0
        assert report.plan_hash == squares.plan(TRUST, without=without).hash
    again = squares.verify(x, trust=TRUST, samples=x, without=[RESCALING])
    assert again.plan_hash == squares.calibrated(x).plan(TRUST, without=[RESCALING]).hash


def test_a_server_without_a_pass(squares: pronghorn.Model) -> None:
    x = np.random.default_rng(5).uniform(-1, 1, (5, 6)).astype(np.float32)
    plan = squares.plan(TRUST, without=[RELINEARISATION])
    with (
        pronghorn.serve(squares, "127.0.0.1:0", TRUST, without=[RELINEARISATION]) as server,
        pronghorn.connect(server.address, TRUST, plan_hash=plan.hash) as client,
    ):
        found = client.predict(x)
    # The largest error is 0.06 of the largest result mostly, and was 0.104 in 1,000 runs.
    np.testing.assert_allclose(found, squares.run_float(x), atol=0.2 * float(np.abs(found).max()))


@pytest.mark.parametrize(
    ("without", "trust", "words"),
    [
        (["lazy"], TRUST, "there is no pass 'lazy'.*lazy-rescaling, lazy-relinearisation"),
        ([5], TRUST, "there is no pass 5"),
        (RESCALING, TRUST, "give a list of passes"),
        (7, TRUST, "give a list of passes"),
        ([RESCALING], "client-aided", "at trust level encrypted only, not at client-aided"),
    ],
)
def test_what_cannot_be_left_out(squares: pronghorn.Model, without: Any, trust: str, words: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: squares.plan(trust, without=without),
        lambda: squares.verify(np.zeros((1, 6)), trust=trust, without=without),
        lambda: pronghorn.serve(squares, "127.0.0.1:0", trust, without=without),
    ]
    for call in calls:
        with pytest.raises(InputError, match=words):
            call()


def test_a_plan_without_passes_to_leave_out_does_not_speak_of_them(squares: pronghorn.Model) -> None:
    assert "passes" not in str(squares.plan("client-aided"))


# The command line.


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same network as a file, and inputs."""
    folder = tmp_path_factory.mktemp("squares")
    path, data = folder / "m.onnx", folder / "x.npy"
    path.write_bytes(network().SerializeToString())
    np.save(data, np.random.default_rng(3).uniform(-1, 1, (200, 6)).astype(np.float32))
    return str(path), str(data)


def test_plan_and_verify_leave_out_passes(files: tuple[str, str]) -> None:
    path, data = files
    plan = ("plan", path, "--trust", TRUST, "--data", data, "--verbose")
    texts = {
        without: run(*plan, *(part for name in without for part in ("--without", name)))
        for without in ((), (RESCALING,), (RELINEARISATION,), (RESCALING, RELINEARISATION))
    }
    for without, text in texts.items():
        assert switched(text) == {name: name not in without for name in (RESCALING, RELINEARISATION)}
    assert texts[()].count("rescale by") < texts[(RESCALING,)].count("rescale by")
    assert "relinearise, by" in texts[(RELINEARISATION,)]
    verify = ("verify", path, "--trust", TRUST, "--data", data, "--json")
    text = run(*verify, "--without", RELINEARISATION)
    # Squares of squares have rare results, which a warning may say before.
    report = json.loads(text[text.index("{") :])
    assert report["disagreements"] == 0
    assert report["plan_hash"] in texts[(RELINEARISATION,)]


def test_serve_without_passes(files: tuple[str, str]) -> None:
    path, data = files
    options = ["--data", data, "--without", RESCALING, "--without", RELINEARISATION]
    with _processes.served(Path(path), TRUST, options) as server:
        found = _processes.predict(server.address, TRUST, Path(data), [])
    assert found["plan_hash"] in run("plan", path, "--trust", TRUST, *options)


def test_cryptonets_has_plans_without_passes() -> None:
    for without in (RESCALING, RELINEARISATION):
        text = run("plan", str(SQUARE), "--trust", TRUST, "--data", DATA, "--without", without)
        assert f"{without} off" in text


def test_the_command_line_refuses_what_there_is_not() -> None:
    for command in (("plan",), ("verify", "--data", DATA), ("serve", "--listen", "127.0.0.1:0")):
        first = (command[0], str(SQUARE), *command[1:], "--input-range", "0,1")
        text = run(*first, "--trust", TRUST, "--without", "lazyness", status=2)
        assert "there is no pass 'lazyness'" in text
        text = run(*first, "--trust", "client-aided", "--without", RESCALING, status=2)
        assert "leave --without" in text


@pytest.mark.parametrize("command", ["plan", "verify", "serve"])
def test_help_names_the_passes(command: str) -> None:
    # Lines may end anywhere, at hyphens too.
    text = "".join(run(command, "--help").split())
    assert "--without" in text
    for name, what in _native.passes():
        assert "".join(f"{name} ({what})".split()) in text
