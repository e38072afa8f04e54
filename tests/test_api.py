"""The public API: load, plan, verify, serve, connect."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import pronghorn
from conftest import EXAMPLE
from helpers import floats, model, node
from pronghorn import _trust
from pronghorn._inputs import planned_range
from pronghorn._model.verification import disagreements
from pronghorn._outputs import classes_of
from pronghorn.cli.inputs import classes_only
from pronghorn.errors import (
    InputError,
    InputWarning,
    PronghornError,
    RunError,
    TrustLevelRequired,
    UnsupportedModelError,
)

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


MISSING = {"two-party", "encrypted", "client-aided", "multi-key"} - set(_trust.REVEALS)


def test_every_name_of_the_package_is_there() -> None:
    assert [name for name in pronghorn.__all__ if not hasattr(pronghorn, name)] == []
    assert issubclass(pronghorn.ExportError, PronghornError)
    assert pronghorn.OutputError.exit_code == 3


@pytest.mark.parametrize("trust", [*sorted(MISSING), "nonsense", 5])
def test_other_trust_levels_are_refused(cryptonets: pronghorn.Model, trust: Any) -> None:
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
        assert "run `pronghorn multikey`" in str(caught.value) or trust not in MISSING


def test_other_objectives_are_refused(cryptonets: pronghorn.Model) -> None:
    with pytest.raises(InputError, match="throughput"):
        cryptonets.plan(TRUST, "beauty")


def test_engines(cryptonets: pronghorn.Model, mnist: tuple[np.ndarray, np.ndarray]) -> None:
    """Each engine gives the oracle's outputs, and each objective has a plan."""
    images, labels = mnist
    for engine in ("coefficient", "slot", "batch"):
        plan = cryptonets.plan("two-party", engine=engine)
        assert f"{engine} engine" in str(plan)
        report = cryptonets.verify(images[:3], labels[:3], trust="two-party", engine=engine)
        assert report.disagreements == 0
        assert report.plan_hash == plan.hash
    for objective in ("latency", "traffic"):
        assert "coefficient engine" in str(cryptonets.plan("two-party", objective))
    assert "engine" in str(cryptonets.plan("two-party", "throughput"))
    with pytest.raises(InputError, match="coefficient, slot, batch"):
        cryptonets.plan("two-party", engine="steam")
    with pytest.raises(InputError, match="two-party only"):
        cryptonets.plan(TRUST, engine="slot")
    assert "batch engine" in str(cryptonets.plan("client-aided"))
    assert "coefficient engine" in str(cryptonets.plan("client-aided", "latency"))
    aided = cryptonets.verify(images[:3], labels[:3], trust="client-aided", engine="coefficient")
    assert aided.disagreements == 0
    with pytest.raises(InputError, match="two-party and client-aided only"):
        cryptonets.plan("encrypted", "traffic")


def test_verify_on_all_test_images(cryptonets: pronghorn.Model, mnist: tuple[np.ndarray, np.ndarray]) -> None:
    """The secure run equals the oracle; accuracy within 0.1 points of the float model's 98.77 %."""
    steps: list[tuple[float, int]] = []
    phases: list[str] = []
    report = cryptonets.verify(
        *mnist, trust=TRUST, progress=lambda done, total: steps.append((done, total)), phase=phases.append
    )
    assert phases == ["planning", "float model", "fixed-point model", "secure run"]
    assert report.ok
    assert (report.outputs, report.samples, report.samples_scored) == ("classes", 256, 256)
    assert "scored on the same (256 of 10,000)" in str(report)
    assert report.disagreements == 0
    assert report.images == 10_000
    assert report.float_by == "onnxruntime"
    assert report.accuracy_float == pytest.approx(0.9877)
    assert report.accuracy_secure == report.accuracy_fixed
    assert report.accuracy_secure == pytest.approx(0.9877, abs=0.001)
    assert report.argmax_agreement > 0.99
    assert steps[-1] == (10_000, 10_000)
    assert steps.count((10_000, 10_000)) == 3
    assert len(steps) > 6
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
    for labels in ([1, 2], [0.5], [[1], [1, 2]], "cat"):
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
    x[1, 0, 2, 2] = 5
    report = little.verify(x, trust=TRUST)
    assert report.stats.clamped_inputs == report.clamped_inputs == 1
    assert report.disagreements == 0
    text = "1 input value was outside the planned range and clamped"
    assert text in str(report)
    without = little.verify(x, trust=TRUST, secure=False)
    assert text in str(without)
    assert json.loads(without.to_json())["clamped_inputs"] == 1


def test_images_unlike_the_samples_are_remarked(little: pronghorn.Model) -> None:
    x = inputs(6, 2, 6, 6)
    alike = little.verify(x, samples=x, trust=TRUST, secure=False)
    assert alike.remark is None
    assert json.loads(alike.to_json())["remark"] is None
    with pytest.warns(InputWarning, match="reach"):
        unlike = little.verify(100 * x, samples=x, trust=TRUST, secure=False)
    assert unlike.remark is not None
    assert "look unlike the samples" in unlike.remark
    assert "overfitted, give held-out ones" in unlike.remark
    assert unlike.remark in str(unlike)
    assert json.loads(unlike.to_json())["remark"] == unlike.remark


def test_classes_that_are_counted_from_one_are_told() -> None:
    proto = model([node("MatMul", "x w", "h"), node("Softmax", "h", "y")], ("N", 5), {"w": floats(5, 4)})
    loaded, x = pronghorn.load(proto, samples=floats(64, 5)), floats(8, 5)
    with pytest.warns(InputWarning, match="labels are from 1 to 4, and the 4 classes are counted from 0"):
        loaded.verify(x, [1, 2, 3, 4, 1, 2, 3, 4], secure=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        loaded.verify(x, [1, 2, 3, 3, 1, 2, 3, 3], secure=False)
    # The command line of clients knows as many classes as the plan has outputs.
    with pytest.warns(InputWarning, match="counted from 0"):
        classes_only(np.array([2, 1]), "classes", None, classes_of(["sigmoid"], [1]))
    assert classes_of(["softmax"], [4]) == 4
    assert classes_of(["class"], []) == 0


def test_serve_and_predict_in_one_process(cryptonets: pronghorn.Model, mnist: tuple[np.ndarray, np.ndarray]) -> None:
    images = mnist[0][:IMAGES]
    compiled = cryptonets.compiled(TRUST)
    steps: list[tuple[float, int]] = []
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
    assert {(0, IMAGES), (IMAGES, IMAGES), (0, 1), (1, 1)} <= set(steps)
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
    lines: list[str] = []
    with (
        pronghorn.serve(little, "127.0.0.1:0", TRUST, max_images_per_client=8, log=lines.append) as server,
        pronghorn.connect(server.address, TRUST) as client,
    ):
        client.predict(x)
        with pytest.raises(RunError, match="2 left: ask the server's owner"):
            client.predict(x)
        with pytest.raises(RunError, match="connect again"):
            client.predict(x)
    assert "has 8 images left" in lines[0]
    assert "wants more images than it is granted" in lines[-1]


def test_another_plan_is_refused(little: pronghorn.Model) -> None:
    with pronghorn.serve(little, "127.0.0.1:0", TRUST) as server:
        with pytest.raises(RunError, match="plan"):
            pronghorn.connect(server.address, TRUST, plan_hash="00" * 32)
        plan_hash = little.plan(TRUST).hash
        for wrong in ("xyz", plan_hash[:16], plan_hash[:-1], plan_hash + "0", "g" * 64):
            with pytest.raises(InputError, match="all 64 hexadecimal"):
                pronghorn.connect(server.address, TRUST, plan_hash=wrong)
        pronghorn.connect(server.address, TRUST, plan_hash=plan_hash.upper()).close()
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
    weights = np.random.default_rng(5).uniform(-1, 1, (6, 4)).astype(np.float32)
    nodes = [node("Gemm", "x w", "g"), node("Softmax", "g", "s", axis=1), node("ArgMax", "s", "y", axis=1)]
    loaded = pronghorn.load(model(nodes, ("N", 6), {"w": weights}, output_dtype=7), input_range=(-1, 1))
    report = loaded.verify(inputs(50, 6), trust=TRUST)
    assert report.disagreements == 0
    assert report.argmax_agreement > 0.9
    loaded = pronghorn.load(model(nodes, ("N", 6), {"w": weights}, output_dtype=7), output="s")
    report = loaded.verify(np.abs(inputs(5, 6)), trust=TRUST)
    assert report.max_abs_difference < 0.05
    assert 0 < report.relative_error < 0.05


class Stop(Exception):
    pass


@pytest.mark.parametrize("after", [0, 1, 9999])
def test_an_exception_in_the_progress_callback_cancels(
    cryptonets: pronghorn.Model, mnist: tuple[np.ndarray, np.ndarray], after: int
) -> None:
    """Before the run, within it, and at its end: it comes out, the session is over, and the server serves on."""
    images, _ = mnist
    lines: list[str] = []

    def stop(done: float, total: int) -> None:
        assert total == len(images)
        if done >= after:
            raise Stop

    with pronghorn.serve(cryptonets, "127.0.0.1:0", TRUST, log=lines.append) as server:
        with pronghorn.connect(server.address, TRUST) as client:
            with pytest.raises(Stop):
                client.predict(images, progress=stop)
            if after:
                with pytest.raises(RunError, match="connect again"):
                    client.predict(images[:1])
        with pronghorn.connect(server.address, TRUST) as client:
            assert client.predict(images[:1]).shape == (1, 10)
    assert not any("closed" in line or "reset" in line for line in lines), lines
    with pytest.raises(Stop):
        cryptonets.verify(images, trust=TRUST, progress=stop)


def test_an_interrupt_ends_a_prediction(cryptonets: pronghorn.Model, mnist: tuple[np.ndarray, np.ndarray]) -> None:
    images = np.tile(mnist[0], (3, 1, 1, 1))
    seen: list[float] = []

    def interrupt(done: float, total: int) -> None:
        seen.append(done)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with (
        pronghorn.serve(cryptonets, "127.0.0.1:0", TRUST) as server,
        pronghorn.connect(server.address, TRUST) as client,
    ):
        with pytest.raises(KeyboardInterrupt):
            client.predict(images, progress=interrupt)
        assert seen[-1] < len(images)


@pytest.mark.parametrize("where", ["float model", "fixed-point model", "secure run"])
def test_an_interrupt_ends_verify(
    cryptonets: pronghorn.Model, mnist: tuple[np.ndarray, np.ndarray], where: str
) -> None:
    phases: list[str] = []

    def interrupt(done: float, total: int) -> None:
        if phases[-1] == where:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        cryptonets.verify(mnist[0], trust=TRUST, progress=interrupt, phase=phases.append)
    assert phases[-1] == where


def test_classify(cryptonets: pronghorn.Model, mnist: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = mnist[0][:50], mnist[1][:50]
    with (
        pronghorn.serve(cryptonets, "127.0.0.1:0", TRUST) as server,
        pronghorn.connect(server.address, TRUST) as client,
    ):
        outputs = client.predict(images)
        found = client.classify(images)
        values = client.classify(images, outputs="values")
        with pytest.raises(InputError, match="classes, labels, values"):
            client.classify(images, outputs="digits")
    np.testing.assert_array_equal(found.outputs, outputs)
    assert found.classes is not None
    assert found.probabilities is not None
    assert np.mean(found.classes == labels) > 0.9
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, rtol=1e-5)
    order, shares = found.top(3)
    assert order.shape == shares.shape == (50, 3)
    np.testing.assert_array_equal(order[:, 0], found.classes)
    assert len(found) == 50
    assert values.classes is None
    np.testing.assert_array_equal(cryptonets.classes(outputs), found.classes)
    with pytest.raises(InputError, match="shape"):
        cryptonets.classes(outputs[:, :3])


def test_verify_of_a_regression() -> None:
    loaded = pronghorn.load(model([node("Gemm", "x w", "y")], ("N", 6), {"w": floats(6, 1)}), input_range=(-1, 1))
    x = inputs(20, 6)
    report = loaded.verify(x, trust=TRUST)
    assert (report.outputs, report.argmax_agreement, report.accuracy_secure) == ("values", None, None)
    assert "alike" not in str(report)
    assert "made-up inputs" in str(report)
    with pytest.raises(InputError, match="not classes"):
        loaded.classes(loaded.run_float(x))
    scored = loaded.verify(x, np.arange(20), trust=TRUST)
    assert scored.outputs == "values"
    assert scored.regression is not None
    with pytest.raises(InputError, match="1 numbers for each of 20 images"):
        loaded.verify(x, np.arange(19), trust=TRUST)
    # Zeros and ones make one number a yes or no, and the user's word makes it anything.
    assert loaded.verify(x, np.arange(20) % 2, trust=TRUST).outputs == "classes"
    assert loaded.verify(x, np.arange(20), trust=TRUST, outputs="classes").accuracy_secure is not None


def test_approximate_ciphertexts_are_compared_within_their_tolerance() -> None:
    nodes = [node("Gemm", "x w", "g"), node("Mul", "g g", "s"), node("Gemm", "s v", "y")]
    loaded = pronghorn.load(model(nodes, ("N", 6), {"w": floats(6, 4), "v": floats(4, 3)}), input_range=(-1, 1))
    report = loaded.verify(inputs(30, 6), trust="encrypted")
    assert report.disagreements == 0
    assert report.tolerance > 0
    assert f"beyond the {report.tolerance:.4g} that the plan allows: 0" in str(report)
    assert loaded.verify(inputs(30, 6), trust=TRUST).tolerance == 0
    assert disagreements(np.int32([5, -5, 7]), np.int32([3, -3, -7]), 2) == 1
    assert disagreements(np.int32([-(2**31)]), np.int32([2**31 - 1]), 5) == 1


def test_verify_of_labels() -> None:
    nodes = [node("Gemm", "x w", "g"), node("Sigmoid", "g", "y")]
    loaded = pronghorn.load(model(nodes, ("N", 6), {"w": floats(6, 5)}), input_range=(-1, 1))
    images = inputs(40, 6)
    report = loaded.verify(images, trust=TRUST)
    assert report.outputs == "labels"
    # A share of all labels, and not of images that have all of them alike: a mask has thousands.
    fixed = loaded.compiled(TRUST).run_oracle(images, None)[1]
    assert report.argmax_agreement == np.mean((fixed > 0.5) == (loaded.run_float(images) > 0.5)) > 0.9
    assert f"give the same label: {100 * report.argmax_agreement:.2f} % of labels" in str(report)


def test_samples_of_their_own(cryptonets: pronghorn.Model, mnist: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = mnist
    bare = pronghorn.load(EXAMPLE / "cryptonets_relu.onnx")
    report = bare.verify(images[:100], labels[:100], trust=TRUST, samples=images[5000:5256])
    assert (report.samples, report.samples_scored) == (256, 0)
    assert "calibrated on 256 other images" in str(report)
    assert report.plan_hash == bare.calibrated(images[5000:5256]).plan(TRUST).hash
    same = bare.verify(images[:100], labels[:100], trust=TRUST, samples=images[:100])
    assert same.samples_scored == 100
    assert "calibrated on 100 images, and scored on the same (all)" in str(same)


def test_inputs_of_another_scale_are_warned_of(
    cryptonets: pronghorn.Model, mnist: tuple[np.ndarray, np.ndarray]
) -> None:
    """Bytes, or bytes divided twice, where the samples reach from 0 to 1; and samples that look like bytes."""
    images = mnist[0][:20]
    pixels = np.round(images * 255)
    with (
        pronghorn.serve(cryptonets, "127.0.0.1:0", TRUST) as server,
        pronghorn.connect(server.address, TRUST) as client,
    ):
        assert client.input_range == (0, 1)
        for wrong in (pixels, pixels.astype(np.uint8), pixels.astype(np.uint16) * 257, pixels.astype(np.int64)):
            with pytest.warns(InputWarning, match="plan is for 0 to 1") as caught:
                client.predict(wrong)
            # The warning points to the user's line.
            assert caught[0].filename == __file__
        with pytest.warns(InputWarning, match="reach only from 0 to 0.003"):
            client.classify(images / 255)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            client.predict(images)
            client.predict(np.zeros((1, 1, 28, 28), np.uint8))
            outlier = images.copy()
            outlier[3, 0, 5, 5] = 77
            client.predict(outlier)
    with pytest.warns(InputWarning, match="plan is for 0 to 1") as caught:
        cryptonets.verify(pixels, trust=TRUST)
    assert caught[0].filename == __file__
    with pytest.warns(InputWarning, match="whole numbers up to 255") as caught:
        pronghorn.load(EXAMPLE / "cryptonets_relu.onnx", samples=pixels)
    assert caught[0].filename == __file__
    nodes = [node("Cast", "x", "f", to=1), node("Gemm", "f w", "y")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        takes_bytes = model(nodes, ("N", 6), {"w": floats(6, 4)}, dtype=TensorProto.UINT8)
        loaded = pronghorn.load(takes_bytes, samples=np.arange(18, dtype=np.uint8).reshape(3, 6))
        assert loaded.takes_integers
        assert planned_range(pronghorn.load(takes_bytes).plan(TRUST).to_json())[1] >= 255
    fractions = np.full((3, 6), 0.5, np.float32)
    for call in (
        lambda: pronghorn.load(takes_bytes, samples=fractions),
        lambda: loaded.run_float(fractions),
        lambda: loaded.verify(fractions, trust=TRUST),
    ):
        with pytest.warns(InputWarning, match=r"takes integers, but 18 of 18 values are none \(0.5\)") as caught:
            call()
        assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda m: pronghorn.load(None), "model is None"),
        (lambda m: pronghorn.load(5), "model is 5"),
        (lambda m: pronghorn.load(EXAMPLE / "cryptonets_relu.onnx", weight_bits="8"), "weight_bits is '8'"),
        (lambda m: pronghorn.load(EXAMPLE / "cryptonets_relu.onnx", weight_bits=1), "weight_bits is 1"),
        (lambda m: pronghorn.load(EXAMPLE / "cryptonets_relu.onnx", input_bits=2.5), "input_bits is 2.5"),
        (lambda m: pronghorn.load(EXAMPLE / "cryptonets_relu.onnx", input_range=3), "input_range is 3"),
        (lambda m: pronghorn.load(EXAMPLE / "cryptonets_relu.onnx", output=3), "output is 3"),
        (lambda m: pronghorn.load(EXAMPLE / "cryptonets_relu.onnx", shape=3), "shape"),
        (lambda m: pronghorn.load(EXAMPLE / "cryptonets_relu.onnx", shape=("a", "b")), "shape"),
        (lambda m: pronghorn.load(EXAMPLE / "cryptonets_relu.onnx", samples=[[1], [1, 2]]), "samples"),
        (lambda m: m.plan(TRUST, memory=-1), "memory is -1"),
        (lambda m: m.plan(TRUST, memory=1 << 70), "memory"),
        (lambda m: m.plan(TRUST, memory="4G"), "memory is '4G'"),
        (lambda m: m.verify(inputs(1, 2, 6, 6), trust=TRUST, threads=-1), "threads is -1"),
        (lambda m: m.verify(inputs(1, 2, 6, 6), trust=TRUST, threads=0), "threads is 0"),
        (lambda m: m.verify(inputs(1, 2, 6, 6), trust=TRUST, threads=True), "threads is True"),
        (lambda m: m.verify(inputs(1, 2, 6, 6), trust=TRUST, progress=5), "progress is 5"),
        (lambda m: m.verify(None, trust=TRUST), "inputs"),
        (lambda m: pronghorn.serve(None, trust=TRUST), "model is None"),
        (lambda m: pronghorn.serve(m, None, TRUST), "listen is None"),
        (lambda m: pronghorn.serve(m, trust=TRUST, threads=-1), "threads is -1"),
        (lambda m: pronghorn.serve(m, trust=TRUST, memory=-1), "memory is -1"),
        (lambda m: pronghorn.serve(m, trust=TRUST, max_clients=-1), "max_clients is -1"),
        (lambda m: pronghorn.serve(m, trust=TRUST, max_images_per_client=0), "max_images_per_client is 0"),
        (lambda m: pronghorn.serve(m, trust=TRUST, idle_timeout=-1), "idle_timeout is -1"),
        (lambda m: pronghorn.serve(m, trust=TRUST, log=1), "log is 1"),
        (lambda m: pronghorn.connect(None, TRUST), "address is None"),
        (lambda m: pronghorn.connect(7700, TRUST), "address is 7700"),
        (lambda m: pronghorn.connect("127.0.0.1:1", TRUST, threads=-1), "threads is -1"),
        (lambda m: pronghorn.connect("127.0.0.1:1", TRUST, timeout=None), "timeout is None"),
        (lambda m: pronghorn.connect("127.0.0.1:1", TRUST, timeout=float("nan")), "timeout is nan"),
        (lambda m: pronghorn.connect("127.0.0.1:1", TRUST, timeout=0), "timeout is 0"),
        (lambda m: pronghorn.connect("127.0.0.1:1", TRUST, plan_hash=5), "plan_hash is 5"),
    ],
)
def test_arguments_that_make_no_sense_are_named(
    little: pronghorn.Model, call: Callable[[pronghorn.Model], object], names: str
) -> None:
    with pytest.raises(InputError, match=names):
        call(little)


def test_failures_of_the_network_say_what_to_do(little: pronghorn.Model) -> None:
    x = inputs(1, 2, 6, 6)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "{}:{}".format(*silent.getsockname())
        with pytest.raises(RunError, match=r"(?s)too slow.*what to do.*--timeout"):
            pronghorn.connect(address, TRUST, timeout=0.3)
    with pytest.raises(RunError, match="is `pronghorn serve`"):
        pronghorn.connect(address, TRUST, timeout=2)
    with pronghorn.serve(little, "127.0.0.1:0", TRUST, idle_timeout=1) as server:
        # It connects again by itself.
        client = pronghorn.connect(server.address, TRUST)
        time.sleep(2)
        assert len(client.predict(x)) == 1
    with pronghorn.serve(little, "127.0.0.1:0", TRUST) as server:
        client = pronghorn.connect(server.address, TRUST)
    with pytest.raises(RunError, match=r"(?s)what to do.*connect again"):
        client.predict(x)


@pytest.mark.parametrize("first", ["Div", "Mul", "Sub"])
def test_models_that_scale_bytes_get_them(first: str) -> None:
    """No warning says to divide what the model divides."""
    before = {
        "Div": [node("Div", "x many", "s")],
        "Mul": [node("Reshape", "x shape", "r"), node("Mul", "r few", "s")],
        "Sub": [node("Sub", "x middle", "c"), node("Div", "c many", "s")],
    }[first]
    nodes = [*before, node("Gemm", "s w", "y")]
    constants = {"many": np.float32(255), "few": np.float32(1 / 255), "middle": np.float32(127), "w": floats(64, 4)}
    used = {name for each in nodes for name in each.input}
    kept = {name: array for name, array in (constants | {"shape": np.array([0, -1])}).items() if name in used}
    pixels = np.random.default_rng(4).integers(0, 256, (20, 64)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pronghorn.load(model(nodes, ("N", 64), kept), samples=pixels)
    with pytest.warns(InputWarning, match="whole numbers up to 255"):
        pronghorn.load(model([node("Gemm", "x w", "y")], ("N", 64), {"w": constants["w"]}), samples=pixels)
