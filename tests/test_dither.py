"""Dithered rounding: the oracle with a run's own addends, results that differ from run to run, bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pronghorn
from conftest import SHARED
from helpers import floats, model, node
from pronghorn import _processes
from pronghorn._data import Preprocessing, load_images
from pronghorn.errors import InputError, RoundingWarning
from test_two_party import network

DIGITS = Path(__file__).parents[1] / "examples" / "mnist"
DATA = DIGITS / "t10k-images-idx3-ubyte.gz"
DITHERED: dict[str, Any] = {"rounding": "dithered", "objective": "traffic", "assume": "aes"}
"""A dither is worth it in small networks, too, where bytes are all that counts and set-ups are alike."""


def small(kind: str) -> pronghorn.Model:
    nodes, constants = network(kind)
    precision = {"weight_bits": 8, "input_bits": 8, "error": 2.0}
    return pronghorn.load(model(nodes, (1, 2, 9, 9), constants), samples=floats(40, 2, 9, 9), **precision)


@pytest.mark.parametrize("kind", ["relu", "pool", "relu, pool", "clip", "residual", "sum of layers"])
@pytest.mark.parametrize("engine", [None, "batch", "slot"])
def test_runs_equal_the_oracle_with_their_addends(kind: str, engine: str | None) -> None:
    loaded = small(kind)
    report = loaded.verify(floats(5, 2, 9, 9), **DITHERED, engine=engine)
    assert report.disagreements == 0
    plan = loaded.plan(**DITHERED, engine=engine)
    assert report.plan_hash == plan.hash
    # Between engines that convert shares it is worth less. A pool in parts costs less than one of dithered values.
    assert plan.compiled.is_dithered or engine == "slot" or (kind, engine) == ("pool", None)
    assert ("rounding by a dither" in str(plan)) == plan.compiled.is_dithered
    assert report.relative_error < 3 * report.expected_error


@pytest.mark.parametrize("kind", ["leaky", "square", "average"])
def test_what_shares_do_not_hide_is_rounded_to_the_nearest(kind: str) -> None:
    """A slope, a square, and a sum over a window."""
    loaded = small(kind)
    assert loaded.verify(floats(5, 2, 9, 9), **DITHERED).disagreements == 0
    assert not loaded.compiled(**DITHERED).is_dithered


def test_parts_of_one_value_may_be_rounded_in_two_ways() -> None:
    loaded = small("concatenation")
    assert loaded.verify(floats(5, 2, 9, 9), **DITHERED).disagreements == 0


@pytest.mark.parametrize("channels", [4, 6])
@pytest.mark.parametrize("scale", [0.02, 1, 4, 16])
@pytest.mark.parametrize("bits", [8, 10, 12])
def test_layers_come_before_the_bits_that_others_drop(channels: int, scale: float, bits: int) -> None:
    """Two layers, then the second one's ReLU, then the first one's; some shares are made exact in between."""
    sides = {"pads": [1, 1, 1, 1]}
    nodes = [node("Conv", "x a", "A", **sides), node("Conv", "x b", "B", **sides)]
    nodes += [node("Relu", "B", "rB"), node("Relu", "A", "rA")]
    nodes += [node("Add", "rA rB", "t") if channels == 4 else node("Concat", "rA rB", "t", axis=1)]
    nodes += [node("Conv", "x c", "C", **sides), node("Add", "C t", "s"), node("LeakyRelu", "s", "l", alpha=0.1)]
    nodes += [node("Conv", "l v", "y", strides=[2, 2])]
    every = 4 if channels == 4 else 10
    shapes = {"a": (4, 2), "b": (channels, 2), "c": (every, 2), "v": (3, every)}
    constants = {name: floats(*shape, 3, 3) * (scale if name == "c" else 0.25) for name, shape in shapes.items()}
    options = {"weight_bits": bits, "input_bits": bits, "error": 2.0}
    loaded = pronghorn.load(model(nodes, (1, 2, 9, 9), constants), samples=floats(20, 2, 9, 9), **options)
    assert loaded.verify(floats(2, 2, 9, 9), **DITHERED, engine="coefficient").disagreements == 0


def test_a_dither_that_nothing_takes_is_said() -> None:
    """Bits before the opening are dropped to the nearest, and of a square."""
    samples = floats(20, 2, 9, 9)
    layer = model([node("Conv", "x w", "c"), node("Relu", "c", "y")], (1, 2, 9, 9), {"w": floats(4, 2, 3, 3)})
    for loaded in (pronghorn.load(layer, samples=samples), small("square")):
        with pytest.warns(RoundingWarning, match="no value is rounded by a dither"):
            compiled = loaded.compiled(**DITHERED)
        assert not compiled.is_dithered


def test_results_differ_from_run_to_run_and_are_right_on_average() -> None:
    loaded = small("relu")
    x = floats(1, 2, 9, 9)
    with (
        pronghorn.serve(loaded, "127.0.0.1:0", **DITHERED) as server,
        pronghorn.connect(server.address) as client,
    ):
        # The same image, with addends of its own each time.
        found = client.predict(np.repeat(x, 48, axis=0))
        again = client.predict(np.repeat(x, 48, axis=0))
    assert np.unique(found.reshape(48, -1), axis=0).shape[0] > 1
    assert not np.array_equal(found, again)
    spread = found.std(axis=0)
    assert 0 < spread.mean() < 2 * loaded.verify(floats(20, 2, 9, 9), **DITHERED, secure=False).rmse
    # 96 runs leave a tenth of the spread; the weights' own rounding is the rest.
    wanted = loaded.run_float(x)[0]
    both = np.concatenate([found, again]).mean(axis=0)
    assert np.abs(both - wanted).mean() < np.abs(found - wanted).mean()


def test_other_levels_have_no_dither() -> None:
    for trust in ("client-aided", "encrypted"):
        with pytest.raises(InputError, match="rounded by a dither at trust level two-party only"):
            pronghorn.load(DIGITS / "cryptonets_square.onnx").plan(trust, rounding="dithered")
    with pytest.raises(InputError, match="rounding is 'up'"):
        pronghorn.load(DIGITS / "cryptonets_square.onnx").plan(rounding="up")


def test_without_a_secure_run_the_oracle_has_addends_too() -> None:
    loaded = small("residual")
    x = floats(20, 2, 9, 9)
    first, again = (loaded.verify(x, **DITHERED, secure=False) for _ in range(2))
    assert first.rmse == again.rmse
    nearest = loaded.verify(x, secure=False)
    assert first.rmse != nearest.rmse
    assert first.relative_error < 3 * first.expected_error


def test_classes_alone() -> None:
    images, labels, *_ = load_images(DATA, (1, 28, 28), Preprocessing())
    assert labels is not None
    loaded = pronghorn.load(DIGITS / "cryptonets_relu.onnx", samples=images[:128], opening="class")
    report = loaded.verify(images[200:240], labels[200:240], rounding="dithered")
    assert report.disagreements == 0
    assert report.accuracy_secure is not None
    assert report.accuracy_secure > 0.95


def test_prepared_and_stored(tmp_path: Path) -> None:
    options = ["--data", str(DATA), "--rounding", "dithered", "--store", str(tmp_path / "server")]
    with _processes.served(DIGITS / "cryptonets_relu.onnx", "two-party", options) as server:
        found = _processes.predict(server.address, "two-party", DATA, ["--limit", "20", "--prepare", "1"])
    assert found["prepared_batches"] == 1
    assert found["accuracy"] >= 0.95


def test_comparisons_take_fewer_bytes() -> None:
    path = SHARED / "cifar10" / "resnet20.onnx"
    if not path.is_file():
        pytest.skip("the data is not there")
    look = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    images, *_ = load_images(SHARED / "cifar10" / "test100.npz", (3, 32, 32), look)
    loaded = pronghorn.load(path, samples=images[:32])
    sizes = []
    for rounding in ("nearest", "dithered"):
        plan = loaded.plan(rounding=rounding)
        _, up, down = plan.compiled.predicted(1)
        sizes.append(up + down)
    assert sizes[1] < 0.8 * sizes[0]
