"""The public API: load, plan, verify, serve, connect."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest

import pronghorn
from conftest import EXAMPLE
from helpers import floats, model, node
from pronghorn._model import classes
from pronghorn.errors import InputError, PronghornError, RunError, TrustLevelRequired, UnsupportedModelError

TRUST = "client-aided"
IMAGES = 300


def small() -> pronghorn.Model:
    """Everything the graph has, in little."""
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1]),
        node("LeakyRelu", "c", "l", alpha=0.125),
        node("Concat", "l x", "j", axis=1),
        node("MaxPool", "j", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Mul", "p p", "s"),
        node("Flatten", "s", "f"),
        node("Gemm", "f g h", "y", transB=1),
    ]
    constants = {"w": floats(3, 2, 3, 3) / 4, "b": floats(3) / 4, "g": floats(4, 45) / 8, "h": floats(4)}
    return pronghorn.load(model(nodes, ("N", 2, 6, 6), constants), input_range=(-1, 1))


@pytest.fixture(scope="module")
def little() -> pronghorn.Model:
    return small()


def inputs(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1, 1, (count, *shape)).astype(np.float32)


def test_a_plan_can_be_read_hashed_and_saved(cryptonets: pronghorn.Model, tmp_path: Path) -> None:
    plan = cryptonets.plan(trust=TRUST)
    assert "client-aided" in str(plan)
    assert "EVERY WEIGHT" in str(plan)
    assert plan.input_shape == (1, 28, 28)
    assert plan.output_shape == (10,)
    assert json.loads(plan.to_json())["trust"] == TRUST
    assert len(plan.hash) == 64
    plan.save(tmp_path / "plan")
    assert (tmp_path / "plan").stat().st_size > 100
    assert plan.hash == cryptonets.plan(trust=TRUST).hash
    # The plan holds no weights, but other ranges make another plan.
    other = pronghorn.load(EXAMPLE / "cryptonets_relu.onnx", input_range=(-8, 8))
    assert other.plan(trust=TRUST).hash != plan.hash


@pytest.mark.parametrize("trust", [None, "two-party", "encrypted", "multi-key", "nonsense"])
def test_trust_must_be_asked_for(cryptonets: pronghorn.Model, trust: str | None) -> None:
    calls = [
        lambda: cryptonets.plan(trust),
        lambda: cryptonets.verify(np.zeros((1, 1, 28, 28)), trust=trust),
        lambda: pronghorn.serve(cryptonets, "127.0.0.1:0", trust),
        lambda: pronghorn.connect("127.0.0.1:1", trust),
    ]
    for call in calls:
        with pytest.raises(TrustLevelRequired) as caught:
            call()
        for level in ("two-party", "encrypted", "client-aided", "multi-key"):
            assert level in str(caught.value)
        assert str(caught.value).count("not in this version") >= 3


def test_other_objectives_are_refused(cryptonets: pronghorn.Model) -> None:
    with pytest.raises(InputError, match="throughput"):
        cryptonets.plan(TRUST, "latency")


def test_verify_on_all_test_images(cryptonets: pronghorn.Model, mnist: tuple[np.ndarray, np.ndarray]) -> None:
    """The secure run equals the oracle; accuracy within 0.1 points of the float model's 98.77 %."""
    steps: list[tuple[int, int]] = []
    report = cryptonets.verify(*mnist, trust=TRUST, progress=lambda done, total: steps.append((done, total)))
    assert report.ok
    assert report.disagreements == 0
    assert report.images == 10_000
    assert report.float_by == "onnxruntime"
    assert report.accuracy_float == pytest.approx(0.9877)
    assert report.accuracy_secure == report.accuracy_fixed
    assert report.accuracy_secure == pytest.approx(0.9877, abs=0.001)
    assert report.argmax_agreement > 0.99
    assert steps[-1] == (10_000, 10_000)
    assert "98.77 %" in str(report)
    assert json.loads(report.to_json())["stats"]["images"] == 10_000


def test_verify_without_onnxruntime(little: pronghorn.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    x = inputs(9, 2, 6, 6)
    with_it = little.verify(x, trust=TRUST)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    without = little.verify(x, trust=TRUST)
    assert (with_it.float_by, without.float_by) == ("onnxruntime", "pronghorn")
    assert with_it.max_abs_difference == pytest.approx(without.max_abs_difference, abs=1e-4)
    assert with_it.accuracy_secure is None
    assert without.disagreements == 0


def test_inputs_are_checked(little: pronghorn.Model) -> None:
    wrong = [np.zeros((3, 2, 6)), np.zeros((2, 6, 6)), np.zeros((0, 2, 6, 6)), np.full((1, 2, 6, 6), np.nan), ["a"]]
    for x in wrong:
        with pytest.raises(InputError):
            little.run_float(x)
    for labels in ([1, 2], [0.5]):
        with pytest.raises(InputError, match="labels"):
            little.verify(np.zeros((1, 2, 6, 6)), labels, trust=TRUST)
    with pytest.raises(InputError, match="samples"):
        pronghorn.load(EXAMPLE / "cryptonets_relu.onnx", samples=np.zeros((2, 28, 28)))
    for bounds in ((1, 0), (0, float("inf"))):
        with pytest.raises(InputError, match="range"):
            pronghorn.load(EXAMPLE / "cryptonets_relu.onnx", input_range=bounds)


def test_models_that_the_core_refuses() -> None:
    # A pooling window within the padding only.
    nodes = [node("MaxPool", "x", "y", kernel_shape=[2, 2], pads=[2, 2, 2, 2])]
    with pytest.raises(UnsupportedModelError, match="padding"):
        pronghorn.load(model(nodes, (1, 2, 4, 4)))


def test_values_out_of_range_are_clamped_and_counted(little: pronghorn.Model) -> None:
    x = inputs(3, 2, 6, 6)
    x[1, 0, 2, 2] = 50
    report = little.verify(x, trust=TRUST)
    assert report.stats.clamped_inputs == 1
    assert report.disagreements == 0
    assert "clamped" in str(report)


def test_serve_and_predict_in_one_process(cryptonets: pronghorn.Model, mnist: tuple[np.ndarray, np.ndarray]) -> None:
    images = mnist[0][:IMAGES]
    compiled = cryptonets.compiled(TRUST)
    steps: list[tuple[int, int]] = []
    lines: list[str] = []
    with (
        pronghorn.serve(cryptonets, "127.0.0.1:0", TRUST, log=lines.append) as server,
        pronghorn.connect(server.address, TRUST, plan_hash=compiled.plan_hash) as client,
    ):
        assert client.plan_hash == compiled.plan_hash
        assert client.input_shape == (1, 28, 28)
        assert client.output_shape == (10,)
        assert "EVERY WEIGHT" in client.plan_text()
        assert json.loads(client.plan_json())["trust"] == TRUST
        for count in (IMAGES, 1):
            outputs = client.predict(images[:count], progress=lambda done, total: steps.append((done, total)))
            np.testing.assert_array_equal(outputs, compiled.run_fixed(images[:count]))
            assert client.last_stats is not None
            assert client.last_stats.images == count
            assert client.last_stats.bytes_sent > count
            assert client.last_stats.images_per_second > 0
        with pytest.raises(InputError, match="images, 1, 28, 28"):
            client.predict(np.zeros((2, 28, 28)))
    assert steps
    assert lines
    with pytest.raises(RunError, match="closed"):
        client.predict(images)


def test_every_kind_of_step_over_tcp(little: pronghorn.Model) -> None:
    x = inputs(5, 2, 6, 6)
    with pronghorn.serve(little, "127.0.0.1:0", TRUST) as server, pronghorn.connect(server.address, TRUST) as client:
        np.testing.assert_array_equal(client.predict(x), little.compiled(TRUST).run_fixed(x))


def test_several_clients_at_once(little: pronghorn.Model) -> None:
    x = inputs(6, 2, 6, 6)
    expected = little.compiled(TRUST).run_fixed(x)
    found: list[np.ndarray] = []

    def ask(address: str) -> None:
        with pronghorn.connect(address, TRUST) as client:
            found.append(client.predict(x))

    with pronghorn.serve(little, "127.0.0.1:0", TRUST) as server:
        threads = [threading.Thread(target=ask, args=(server.address,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 4
    for outputs in found:
        np.testing.assert_array_equal(outputs, expected)


def test_the_server_limits_images(little: pronghorn.Model) -> None:
    x = inputs(6, 2, 6, 6)
    with (
        pronghorn.serve(little, "127.0.0.1:0", TRUST, max_images_per_client=8) as server,
        pronghorn.connect(server.address, TRUST) as client,
    ):
        client.predict(x)
        with pytest.raises(RunError, match="images"):
            client.predict(x)


def test_another_plan_is_refused(little: pronghorn.Model) -> None:
    with pronghorn.serve(little, "127.0.0.1:0", TRUST) as server:
        with pytest.raises(RunError, match="plan"):
            pronghorn.connect(server.address, TRUST, plan_hash="00" * 32)
        with pytest.raises(RunError, match="64 hexadecimal"):
            pronghorn.connect(server.address, TRUST, plan_hash="xyz")
        # The next client is served.
        with pronghorn.connect(server.address, TRUST) as client:
            assert client.output_shape == (4,)


def test_addresses_that_do_not_work(little: pronghorn.Model) -> None:
    with pronghorn.serve(little, "127.0.0.1:0", TRUST) as server:
        address = server.address
        with pytest.raises(RunError):
            pronghorn.serve(little, address, TRUST)
    with pytest.raises(RunError):
        pronghorn.connect(address, TRUST, timeout=2)
    for wrong in ("nowhere", "127.0.0.1:99999"):
        with pytest.raises(PronghornError):
            pronghorn.serve(little, wrong, TRUST)


def test_finishing_on_the_client() -> None:
    nodes = [node("Gemm", "x w", "g"), node("Softmax", "g", "s", axis=1), node("ArgMax", "s", "y", axis=1)]
    loaded = pronghorn.load(model(nodes, ("N", 6), {"w": floats(6, 4)}, output_dtype=7), input_range=(-1, 1))
    report = loaded.verify(inputs(50, 6), trust=TRUST)
    assert report.disagreements == 0
    assert report.argmax_agreement > 0.9
    loaded = pronghorn.load(model(nodes, ("N", 6), {"w": floats(6, 4)}, output_dtype=7), output="s")
    assert loaded.verify(np.abs(inputs(5, 6)), trust=TRUST).max_abs_difference < 0.05


def test_classes() -> None:
    assert classes(np.float32([[1, 3, 2], [9, 0, 0]])).tolist() == [1, 0]
    assert classes(np.float32([[-1], [0.2]])).tolist() == [0, 1]
    assert classes(np.float32([[0.2], [0.7]]), is_probability=True).tolist() == [0, 1]
    assert classes(np.float32([[7], [3]]), is_class=True).tolist() == [7, 3]
