"""`two-party`, the level where none is named: equal to the oracle on any network, in process and in two processes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import pronghorn
from conftest import SHARED
from helpers import floats, model, node
from pronghorn import _processes
from pronghorn._data import Preprocessing, load_images

DIGITS = Path(__file__).parents[1] / "examples" / "mnist"
DATA = DIGITS / "t10k-images-idx3-ubyte.gz"


def network(kind: str) -> tuple[list, dict[str, np.ndarray]]:
    """Nodes and constants of a network of two layers with something between them."""
    constants = {"w": floats(4, 2, 3, 3) / 4, "v": floats(3, 4, 3, 3) / 4, "b": floats(4), "zero": np.float32(0)}
    first = node("Conv", "x w b", "c", pads=[1, 1, 1, 1])
    last = node("Conv", "d v", "y", strides=[2, 2])
    constants |= {"low": np.float32(-0.7), "high": np.float32(1.1), "slopes": floats(4, 1, 1)}
    between = {
        "relu": [node("Relu", "c", "d")],
        "leaky": [node("LeakyRelu", "c", "d", alpha=0.2)],
        "slopes": [node("PRelu", "c slopes", "d")],
        "magnitude": [node("Abs", "c", "d")],
        "clip": [node("Clip", "c low high", "d")],
        "pool": [
            node("MaxPool", "c", "p", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
            node("Relu", "p", "d"),
        ],
        "relu, pool": [node("Relu", "c", "r"), node("MaxPool", "r", "d", kernel_shape=[2, 2], strides=[1, 1])],
        "average": [node("AveragePool", "c", "p", kernel_shape=[3, 3]), node("Relu", "p", "d")],
        "square": [node("Mul", "c c", "d")],
        "nothing": [node("Identity", "c", "d")],
        "residual": [
            node("Relu", "c", "r"),
            node("Conv", "r u", "e", pads=[1, 1, 1, 1]),
            node("Add", "e r", "s"),
            node("Relu", "s", "d"),
        ],
        "sum of layers": [node("Conv", "x t", "e", pads=[1, 1, 1, 1]), node("Add", "e c", "d")],
        "concatenation": [
            node("Relu", "c", "r"),
            node("Conv", "x t", "e", pads=[1, 1, 1, 1]),
            node("Concat", "e r", "k", axis=1),
            node("Relu", "k", "d"),
        ],
    }[kind]
    constants |= {"u": floats(4, 4, 3, 3) / 4, "t": floats(4, 2, 3, 3) / 4}
    if kind == "concatenation":
        constants["v"] = floats(3, 8, 3, 3) / 4
    used = {name for each in [first, *between, last] for name in each.input}
    return [first, *between, last], {name: value for name, value in constants.items() if name in used}


@pytest.mark.parametrize(
    "kind",
    [
        "relu",
        "leaky",
        "slopes",
        "magnitude",
        "clip",
        "pool",
        "relu, pool",
        "average",
        "square",
        "nothing",
        "residual",
        "sum of layers",
        "concatenation",
    ],
)
@pytest.mark.parametrize("line", ["loopback", "0,10"])
def test_equals_the_oracle(kind: str, line: str) -> None:
    nodes, constants = network(kind)
    loaded = pronghorn.load(model(nodes, (1, 2, 9, 9), constants), samples=floats(40, 2, 9, 9))
    report = loaded.verify(floats(5, 2, 9, 9), network=line)
    assert report.trust == "two-party"
    assert report.disagreements == 0
    # Where bytes are all that counts, activations and changes of precision are lean.
    assert line == "loopback" or "lean" in str(loaded.plan(network=line))


def test_is_the_default() -> None:
    loaded = pronghorn.load(DIGITS / "cryptonets_relu.onnx")
    plan = loaded.plan()
    assert plan.trust == "two-party"
    assert "by garbled circuit" in plan.details()
    assert "opened to the client" in str(plan)


def test_two_processes() -> None:
    path = DIGITS / "cryptonets_relu.onnx"
    with _processes.served(path, "two-party", ["--data", str(DATA)]) as server:
        found = _processes.predict(server.address, "two-party", DATA, ["--limit", "40", "--repeat", "2"])
    assert found["accuracy"] == pytest.approx(1.0, abs=0.03)
    # The second run has no set-up to make.
    first, second = found["runs"]
    assert second["bytes_sent"] < first["bytes_sent"]


@pytest.mark.parametrize(
    ("name", "data", "count"),
    [
        ("pneumonia/cnn_relu.onnx", "pneumonia/test.npz", 8),
        ("mnist/gazelle_mnist_d.onnx", "mnist/t10k-images-idx3-ubyte.gz", 8),
    ],
)
def test_real_models(name: str, data: str, count: int) -> None:
    if not (SHARED / name).is_file():
        pytest.skip("the data is not there")
    images, *_ = load_images(SHARED / data, (1, 28, 28), Preprocessing())
    report = pronghorn.load(SHARED / name, samples=images[:128]).verify(images[:count])
    assert report.disagreements == 0


def test_prepared_predictions_send_little() -> None:
    loaded = pronghorn.load(DIGITS / "cryptonets_relu.onnx")
    images = np.random.default_rng(3).random((4, 1, 28, 28), dtype=np.float32)
    # On loopback activations are circuits, whose tables are prepared.
    with (
        pronghorn.serve(loaded, "127.0.0.1:0", network="loopback") as server,
        pronghorn.connect(server.address) as client,
    ):
        plain = client.predict(images)
        cost = client.last_stats
        assert cost is not None
        prepared = client.prepare(4)
        found = client.predict(images)
        online = client.last_stats
        assert online is not None
        np.testing.assert_array_equal(found, plain)
        assert online.bytes_received + 1_000_000 < cost.bytes_received
        assert prepared.bytes_received > 1_000_000
        with pytest.raises(pronghorn.errors.InputError):
            client.prepare(0)


def test_nothing_to_prepare() -> None:
    loaded = pronghorn.load(DIGITS / "cryptonets_relu.onnx")
    with (
        pronghorn.serve(loaded, "127.0.0.1:0", "client-aided") as server,
        pronghorn.connect(server.address, "client-aided") as client,
        pytest.raises(pronghorn.errors.RunError, match="nothing can be prepared"),
    ):
        client.prepare(3)


def test_prepare_on_the_command_line() -> None:
    path = DIGITS / "cryptonets_relu.onnx"
    options = ["--data", str(DATA), "--network", "loopback"]
    with _processes.served(path, "two-party", options) as server:
        found = _processes.predict(server.address, "two-party", DATA, ["--limit", "3", "--prepare", "1"])
    assert found["prepared"]["bytes_received"] > 500_000
    assert found["prepared_batches"] == 1


def test_a_layer_is_cut_in_three_where_two_sums_do_not_carry_it(tmp_path: Path) -> None:
    """Differences of values that are nearly alike want weights and values of more than 14 bits each."""
    draw = np.random.default_rng(0)
    size, alike = 1024, 2.0**-8.5
    common = draw.standard_normal(size)
    constants = {
        "w": common + alike * draw.standard_normal((8, size)),
        "b": np.full(8, 120.0),
        "v": (np.eye(7, 8) - np.eye(7, 8, 1)) / alike,
    }
    nodes = [node("Gemm", "x w b", "h", transB=1), node("Relu", "h", "r"), node("Gemm", "r v", "y", transB=1)]
    path = tmp_path / "alike.onnx"
    onnx.save(model(nodes, ("N", size), {name: value.astype(np.float32) for name, value in constants.items()}), path)
    samples = draw.standard_normal((80, size)).astype(np.float32)
    loaded = pronghorn.load(path, samples=samples[:64])
    plan = loaded.plan()
    steps = json.loads(plan.to_json())["steps"]
    assert sum(step["inputs"] == [0] and "coefficient_linear" in step["kind"] for step in steps) == 3
    # With two digits it is 0.11, and the network is refused.
    assert plan.expected_error.is_near
    report = loaded.verify(samples[64:])
    assert report.disagreements == 0
    assert report.relative_error < 0.06
