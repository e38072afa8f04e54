"""The expected error of plans: said, warned of, refused; and networks whose rows of weights differ."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

import helpers
import pronghorn
from helpers import floats, model, node
from pronghorn import PlanError, PrecisionWarning


def bytes_of(nodes: list[onnx.NodeProto], shape: tuple, constants: dict) -> bytes:
    return model(nodes, ("n", *shape), constants).SerializeToString()


def regression(mean: float, spread: float) -> bytes:
    """Two layers whose outputs are `mean` and about `spread` around it."""
    constants = {
        "w": floats(16, 6),
        "b": floats(16),
        "v": spread * floats(1, 16) / 4,
        "c": np.array([mean], np.float32),
    }
    nodes = [
        node("Gemm", "x w b", "h", transB=1),
        node("Relu", "h", "r"),
        node("Gemm", "r v c", "y", transB=1),
    ]
    return bytes_of(nodes, (6,), constants)


def uneven() -> bytes:
    """A depthwise layer whose channels have weights of very different sizes, as Keras trains them."""
    sizes = np.float32(2.0) ** -(np.arange(8) % 4).reshape(8, 1, 1, 1)
    constants = {
        "w": floats(8, 2, 3, 3) / 2,
        "d": floats(8, 1, 3, 3) * sizes,
        "p": floats(4, 8, 1, 1) / sizes.reshape(1, 8, 1, 1),
        "v": floats(3, 4 * 25) / 8,
    }
    nodes = [
        node("Conv", "x w", "a", pads=[0, 0, 0, 0]),
        node("Clip", "a lo hi", "b"),
        node("Conv", "b d", "c", pads=[1, 1, 1, 1], group=8),
        node("Relu", "c", "e"),
        node("Conv", "e p", "f"),
        node("Relu", "f", "g"),
        node("Flatten", "g", "h"),
        node("Gemm", "h v", "y", transB=1),
    ]
    constants |= {"lo": np.array(0, np.float32), "hi": np.array(6, np.float32)}
    return bytes_of(nodes, (2, 7, 7), constants)


@pytest.mark.parametrize("seed", range(10))
def test_a_large_mean_hides_no_error(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "RANDOM", np.random.default_rng(seed))
    samples = floats(60, 6)
    loaded = pronghorn.load(regression(3000.0, 1.0), samples=samples)
    expected = loaded.plan().expected_error
    assert expected.about_mean
    assert expected.error <= 1.5 * expected.aim
    found, wanted = loaded.compiled("two-party").run_fixed(samples), loaded.run_float(samples)
    assert np.sqrt(np.mean((found - wanted) ** 2)) < 0.05 * wanted.std()
    assert str(expected) in str(loaded.plan())


def test_what_is_far_off_is_warned_of_and_refused() -> None:
    net, samples = regression(0.0, 1.0), floats(60, 6)
    loaded = pronghorn.load(net, samples=samples, weight_bits=3, input_bits=5)
    with pytest.raises(PlanError, match=r"was aimed at.*--error") as caught:
        loaded.plan()
    # The error says what to ask for.
    asked = float(str(caught.value).split("--error ")[1].split(" ")[0]) + 0.01
    accepted = pronghorn.load(net, samples=samples, weight_bits=3, input_bits=5, error=asked)
    assert accepted.plan().expected_error.error <= asked
    with pytest.warns(PrecisionWarning, match="was aimed at"):
        pronghorn.load(net, samples=samples, weight_bits=3, input_bits=5, error=asked / 2).plan()


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_rows_of_weights_have_scales_of_their_own(trust: str) -> None:
    samples = floats(40, 2, 7, 7)
    loaded = pronghorn.load(uneven(), samples=samples)
    steps = json.loads(loaded.plan(trust).to_json())["steps"]
    assert "requantise_channels" in json.dumps(steps)
    report = loaded.verify(samples[:6], trust=trust)
    assert report.disagreements == 0
    assert report.relative_error < 0.1
    assert loaded.plan(trust).expected_error.error <= 1.5 * loaded.plan(trust).expected_error.aim


def test_the_oracle_alone_is_scored() -> None:
    samples = floats(40, 6)
    loaded = pronghorn.load(regression(5.0, 1.0), samples=samples)
    alone, whole = (loaded.verify(samples[:20], outputs="values", secure=secure) for secure in (False, True))
    assert alone.stats is None
    assert whole.stats is not None
    assert (alone.relative_error, alone.rmse) == (whole.relative_error, whole.rmse)
    assert "no secure run" in str(alone)
    assert "R2" in str(alone)
    assert json.loads(alone.to_json())["stats"] is None


def test_classes_that_change_are_told_or_refused() -> None:
    """Scores of a wide spread over samples, of which each row's first two are near: the error is small, and means
    little."""
    random = np.random.default_rng(21)

    def scores(apart: float) -> bytes:
        common = random.standard_normal((8, 1)) * np.ones((1, 4))
        weights = (common + apart * random.standard_normal((8, 4))).astype(np.float32)
        nodes = [node("Gemm", "x w", "s"), node("ArgMax", "s", "y", axis=1)]
        proto = model(nodes, ("N", 8), {"w": weights}, output_dtype=onnx.TensorProto.INT64)
        return bytes(proto.SerializeToString())

    samples = random.standard_normal((128, 8)).astype(np.float32)
    with pytest.raises(PlanError, match=r"the class is the float model's on \d+ of 64 samples alone"):
        pronghorn.load(scores(1e-3), samples=samples).plan("client-aided")
    # A coarser aim accepts it.
    with pytest.warns(PrecisionWarning):
        pronghorn.load(scores(1e-3), samples=samples, error=0.2).plan("client-aided")
    plan = pronghorn.load(scores(1.0), samples=samples).plan("client-aided")
    assert plan.expected_error.alike is not None
    assert plan.expected_error.alike > 0.95


def test_equal_bits_where_the_search_misses_the_aim() -> None:
    """Means and deviations of channels over steps: finer layers do not help, and equal bits do."""
    random = np.random.default_rng(5)
    constants = {
        "w": random.normal(scale=0.5, size=(8, 2, 7)).astype(np.float32),
        "u": random.normal(scale=0.3, size=(8, 8, 5)).astype(np.float32),
        "v": random.normal(size=(16, 3)).astype(np.float32),
        "eps": np.float32(1e-4),
    }
    nodes = [
        node("Conv", "x w", "c", strides=[2]),
        node("Relu", "c", "r"),
        node("Conv", "r u", "d"),
        node("Relu", "d", "z"),
        node("ReduceMean", "z", "m", axes=[2], keepdims=1),
        node("Sub", "z m", "o"),
        node("Mul", "o o", "q"),
        node("ReduceMean", "q", "v2", axes=[2], keepdims=1),
        node("Add", "v2 eps", "e"),
        node("Sqrt", "e", "s"),
        node("Concat", "m s", "both", axis=1),
        node("Flatten", "both", "f"),
        node("Gemm", "f v", "y"),
    ]
    signals = random.normal(size=(300, 2, 120)).astype(np.float32) * random.uniform(0.3, 1, (300, 1, 1))
    samples, others = np.split(signals.astype(np.float32), [150])
    report = pronghorn.load(model(nodes, ("N", 2, 120), constants), samples=samples).verify(others, secure=False)
    assert report.expected_error is not None
    assert report.expected_error <= 0.03
    assert report.relative_error < 0.05
