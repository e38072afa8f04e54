"""The warning of images that cost many bytes."""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np
import pytest
from typer.testing import CliRunner

import pronghorn
from conftest import EXAMPLE
from pronghorn import TrafficWarning
from pronghorn._model import traffic
from pronghorn.cli import app

MODEL = EXAMPLE / "cryptonets_relu.onnx"
IMAGES = np.full((8, 1, 28, 28), 0.5, np.float32)


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings come above 1 kB."""
    monkeypatch.setattr(traffic, "MOST_BYTES", 1000)


@pytest.mark.usefixtures("few_bytes")
def test_each_call_that_plans_warns() -> None:
    with pytest.warns(TrafficWarning, match=r"(?s)an image costs .* GB.*--trust client-aided.*--error") as found:
        pronghorn.load(MODEL, samples=IMAGES, error=0.02).plan()
    assert found[0].filename == __file__
    with pytest.warns(TrafficWarning) as found:
        pronghorn.load(MODEL, samples=IMAGES).verify(IMAGES, secure=False)
    assert found[0].filename == __file__
    with (
        pytest.warns(TrafficWarning),
        pronghorn.serve(pronghorn.load(MODEL, samples=IMAGES), "127.0.0.1:0") as server,
    ):
        assert server.address


@pytest.mark.usefixtures("few_bytes")
def test_advice_fits_the_trust_level() -> None:
    with pytest.warns(TrafficWarning, match="smaller input") as found:
        pronghorn.load(MODEL, samples=IMAGES).plan("client-aided")
    assert "--trust" not in str(found[0].message)


@pytest.mark.usefixtures("few_bytes")
def test_the_command_line_warns_once() -> None:
    result = CliRunner().invoke(app, ["plan", str(MODEL)])
    assert result.exit_code == 0
    assert result.output.replace("\n", " ").count("an image costs") == 1


def test_cheap_images_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrafficWarning)
        # A batch costs 355 MB and more, and an image of a full one a few kB.
        pronghorn.load(EXAMPLE / "cryptonets_square.onnx", samples=IMAGES).plan("encrypted")


def test_bytes_are_those_of_an_image_of_a_full_batch() -> None:
    class Compiled:
        trust = "two-party"
        fidelity: ClassVar = {"aim": 0.02}

        def summary_json(self) -> str:
            return '{"cost": {"full_batch": {"images": 4, "bytes_up": 2e9, "bytes_down": 6e9}}}'

    found = traffic.Traffic.of(Compiled())  # type: ignore[arg-type]
    assert (found.up, found.down) == (5e8, 1.5e9)
    assert "an image costs 2 GB: 0.5 GB up and 1.5 GB down" in str(found.warning())
