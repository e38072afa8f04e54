"""The measurement of this machine: made, kept, and used for predicted seconds alone."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import pronghorn
from conftest import EXAMPLE
from pronghorn import _machine
from pronghorn._machine import Machine, Speed
from pronghorn.cli import app

MODEL = EXAMPLE / "cryptonets_relu.onnx"
IMAGES = np.full((4, 1, 28, 28), 0.5, np.float32)
SLOW = {"products": 2.0, "encryption": 3.0, "garbling": 4.0, "transfers": 5.0}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(_machine.FOLDER, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_measurement_is_kept_and_replaced() -> None:
    assert _machine.kept() is None
    made = _machine.calibrate(lambda: SLOW)
    assert _machine.kept() == made
    assert made.speed == Speed(**SLOW)
    _machine.calibrate(lambda: {**SLOW, "garbling": 1.5})
    again = _machine.kept()
    assert again is not None
    assert again.speed.garbling == 1.5
    assert [path.name for path in made.machine.path.parent.iterdir()] == [made.machine.path.name]


@pytest.mark.parametrize("changed", [{"cpu": "another"}, {"cores": 3000}, {"simd": "none"}, {"version": "0.0.1"}])
def test_it_holds_for_one_machine(changed: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    _machine.calibrate(lambda: SLOW)
    other = dataclasses.replace(Machine.here(), **changed)
    monkeypatch.setattr(Machine, "here", lambda: other)
    assert _machine.kept() is None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"machine": 3}', "speed:0", "speed:nan", "speed:absent", "\0"]
)
def test_a_damaged_file_is_no_measurement(content: str) -> None:
    made = _machine.calibrate(lambda: SLOW)
    fields = json.loads(made.machine.path.read_text())
    if content.startswith("speed:"):
        what = content.removeprefix("speed:")
        fields["speed"] = {} if what == "absent" else {**SLOW, "products": float(what)}
        content = json.dumps(fields)
    made.machine.path.write_text(content)
    assert _machine.kept() is None


def test_a_measurement_that_no_machine_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no machine"):
        _machine.calibrate(lambda: {**SLOW, "products": 0.0})
    assert _machine.kept() is None


def test_folders_follow_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(_machine.FOLDER)
    monkeypatch.setattr(_machine.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _machine.cache_folder() == tmp_path / "pronghorn"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert _machine.cache_folder() == Path.home() / ".cache" / "pronghorn"
    monkeypatch.setattr(_machine.sys, "platform", "darwin")
    assert _machine.cache_folder() == Path.home() / "Library" / "Caches" / "pronghorn"
    monkeypatch.setattr(_machine.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert _machine.cache_folder() == tmp_path / "pronghorn" / "cache"


def test_seconds_are_scaled_and_plans_stay() -> None:
    def planned() -> tuple[pronghorn._model.Plan, dict]:
        plan = pronghorn.load(MODEL, samples=IMAGES).plan()
        return plan, json.loads(plan.to_json())

    plain, nominal = planned()
    assert nominal["speed"] is None
    assert _machine.NOMINAL in str(plain)
    _machine.calibrate(lambda: dict.fromkeys(SLOW, 10.0))
    plan, found = planned()
    assert plan.hash == plain.hash
    assert found["speed"]["speed"]["garbling"] == 10.0
    before, after = (fields["cost"]["one_image"] for fields in (nominal, found))
    # Waits for messages are not scaled.
    assert 5 * before["seconds"] < after["seconds"] < 10 * before["seconds"]
    assert before["bytes_up"] == after["bytes_up"]
    assert "this machine" in str(plan)
    assert "this machine" in plan.prediction


def test_the_command_measures_and_keeps(folder: Path) -> None:
    result = CliRunner().invoke(app, ["calibrate"])
    assert result.exit_code == 0, result.output
    assert "garbling" in result.output
    assert len(list(folder.iterdir())) == 1
    found = json.loads(CliRunner().invoke(app, ["calibrate", "--json"]).output)
    assert found["machine"]["cores"] >= 1
    assert set(found["speed"]) == set(SLOW)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(_machine.FOLDER, str(tmp_path / "file" / "below"))
    result = CliRunner().invoke(app, ["calibrate"])
    assert result.exit_code == 2
    assert "PRONGHORN_CACHE" in result.output
    assert _machine.kept() is None


def test_verify_says_predicted_and_measured_seconds() -> None:
    report = pronghorn.load(MODEL, samples=IMAGES).verify(IMAGES)
    assert report.predicted_seconds is not None
    assert report.predicted_seconds > 0
    assert "predicted: " in str(report)
    alone = pronghorn.load(MODEL, samples=IMAGES).verify(IMAGES, secure=False)
    assert alone.predicted_seconds is None
