"""Clients and servers in rough conditions: errors for programs, forks, rests, full disks."""

from __future__ import annotations

import errno
import os
import pickle
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pronghorn
from helpers import floats, model, node
from pronghorn import _output_file
from pronghorn._output_file import OutputFile
from pronghorn._outputs import Predictions
from pronghorn.cli import app
from pronghorn.errors import InputError, OutputError, RunError, UnsupportedModelError

TRUST = "client-aided"


@pytest.fixture(scope="module")
def little() -> pronghorn.Model:
    nodes = [node("Gemm", "x w", "g"), node("Relu", "g", "r"), node("Gemm", "r v", "y")]
    return pronghorn.load(model(nodes, ("N", 6), {"w": floats(6, 5), "v": floats(5, 3)}), input_range=(-1, 1))


def inputs(count: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1, 1, (count, 6)).astype(np.float32)


def fails(call: Callable[[], Any]) -> RunError:
    with pytest.raises(RunError) as caught:
        call()
    return caught.value


# Inputs as integers.


@pytest.mark.filterwarnings("ignore::pronghorn.InputWarning")
def test_quantised_inputs_are_predicted_as_they_are(little: pronghorn.Model) -> None:
    x = inputs(40)
    x[[3, 31]] *= 50
    with pronghorn.serve(little, "127.0.0.1:0", TRUST) as server, pronghorn.connect(server.address, TRUST) as client:
        with pytest.warns(pronghorn.RangeWarning, match="2 inputs have values beyond"):
            wanted = client.predict(x)
        far, stats = client.last_clamped, client.last_stats
        parts = (x[first : first + 7].astype(np.float64) for first in range(0, 40, 7))
        for quantised in (client.quantise(x), client.quantise(parts), client.quantise(iter([x.tolist()]))):
            assert len(quantised) == 40
            for _ in range(2):
                with pytest.warns(pronghorn.RangeWarning, match="2 inputs have values beyond"):
                    np.testing.assert_array_equal(client.predict(quantised), wanted)
                np.testing.assert_array_equal(client.last_clamped, far)
                assert client.last_stats is not None
                assert stats is not None
                assert client.last_stats.clamped_inputs == stats.clamped_inputs > 0
        with pytest.warns(pronghorn.RangeWarning):
            np.testing.assert_array_equal(client.classify(quantised).outputs, wanted)
        assert far is not None
        assert np.flatnonzero(far).tolist() == [3, 31]
        with pytest.raises(InputError, match="no images"):
            client.quantise(iter([]))
        with pytest.raises(InputError, match="shape"):
            client.quantise(iter([x, x[:, :5]]))
        with pytest.raises(InputError, match="NaN"):
            client.quantise(iter([x, x * np.nan]))


def test_inputs_of_another_plan_are_refused(little: pronghorn.Model) -> None:
    x = inputs(5)
    other = little.changed(input_range=(-2, 2))
    with pronghorn.serve(little, "127.0.0.1:0", TRUST) as server, pronghorn.connect(server.address, TRUST) as client:
        with (
            pronghorn.serve(other, "127.0.0.1:0", TRUST) as second,
            pronghorn.connect(second.address, TRUST) as stranger,
        ):
            quantised = stranger.quantise(x)
        with pytest.raises(InputError, match="another plan"):
            client.predict(quantised)
        client.predict(x)


# Errors for programs.


def test_errors_have_codes(little: pronghorn.Model) -> None:
    x = inputs(2)
    with pronghorn.serve(little, "127.0.0.1:0", TRUST, max_clients=1, max_waiting=0, max_images_per_client=3) as server:
        client = pronghorn.connect(server.address, TRUST)
        found = fails(lambda: pronghorn.connect(server.address, TRUST))
        assert (found.code, found.retryable) == ("busy", True)
        assert "failed" not in str(found)
        client.predict(x)
        found = fails(lambda: client.predict(x))
        assert (found.code, found.retryable) == ("limit", False)
        found = fails(lambda: client.predict(x))
        assert (found.code, found.retryable) == ("over", True)
    found = fails(lambda: pronghorn.connect(server.address, TRUST, timeout=2))
    assert (found.code, found.retryable) == ("unreachable", True)
    with pronghorn.serve(little, "127.0.0.1:0", TRUST) as server:
        found = fails(lambda: pronghorn.connect(server.address, TRUST, plan_hash="00" * 32))
        assert (found.code, found.retryable) == ("wrong-plan", False)
        found = fails(lambda: pronghorn.connect(server.address, "two-party"))
        assert (found.code, found.retryable) == ("wrong-trust", False)
        client = pronghorn.connect(server.address, TRUST)
    found = fails(lambda: client.predict(x))
    assert (found.code, found.retryable) == ("stopping", True)
    client.close()
    assert fails(lambda: client.predict(x)).code == "over"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = "{}:{}".format(*silent.getsockname())
        found = fails(lambda: pronghorn.connect(address, TRUST, timeout=0.3))
        assert (found.code, found.retryable) == ("timeout", True)


def test_errors_can_be_pickled() -> None:
    error = RunError("no place", code="busy", retryable=True)
    found = pickle.loads(pickle.dumps(error))
    assert (str(found), found.code, found.retryable) == ("no place", "busy", True)
    unsupported = UnsupportedModelError(
        "Foo is not supported", "use Bar", node="n", operator="Foo", opset=17, shapes=[[1, 2], None]
    )
    found = pickle.loads(pickle.dumps(unsupported))
    assert str(found) == str(unsupported)
    assert vars(found) == vars(unsupported)


# Forks.


def in_child(act: Callable[[], None]) -> int:
    """The exit status of a forked child that does this; it is killed where it takes 30 seconds."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(30)
            act()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_children_of_a_fork_are_refused(little: pronghorn.Model) -> None:
    x = inputs(2)
    with (
        pronghorn.serve(little, "127.0.0.1:0", TRUST) as server,
        pronghorn.connect(server.address, TRUST) as client,
    ):
        expected = client.predict(x)

        def refused() -> None:
            address = server.address
            for call in (
                lambda: client.predict(x),
                lambda: client.prepare(1),
                lambda: pronghorn.connect(address, TRUST).predict(x),
                lambda: little.verify(x, trust=TRUST),
                server.start,
                server.stop,
            ):
                found = fails(call)
                assert (found.code, found.retryable) == ("forked", False)
                assert "spawn" in str(found)
            # Leaves the parent's connection alone.
            client.close()

        assert in_child(refused) == 0
        np.testing.assert_array_equal(client.predict(x), expected)


# Rests.


def test_a_client_comes_back_after_a_rest(little: pronghorn.Model) -> None:
    x, lines = inputs(2), list[str]()
    with (
        pronghorn.serve(little, "127.0.0.1:0", TRUST, keep_alive=0.2, log=lines.append) as server,
        pronghorn.connect(server.address, TRUST) as client,
    ):
        expected = client.predict(x)
        for rest in (0.3, 1.0):
            time.sleep(rest)
            np.testing.assert_array_equal(client.predict(x), expected)
    assert sum(" connected" in line for line in lines) == 3


# Damage.


@contextmanager
def damaged(address: str, place: int) -> Iterator[str]:
    """The address of a line to a server which changes a bit of what comes from it, `place` bytes on."""
    host, _, port = address.rpartition(":")

    def carry(source: socket.socket, target: socket.socket, change: bool) -> None:
        passed = 0
        while data := source.recv(1 << 16):
            bytes_ = bytearray(data)
            if change and passed <= place < passed + len(data):
                bytes_[place - passed] ^= 1
            passed += len(data)
            target.sendall(bytes_)
        target.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            near, far = listener.accept()[0], socket.create_connection((host, int(port)))
            for pair in ((near, far, False), (far, near, True)):
                threading.Thread(target=carry, args=pair, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield "{}:{}".format(*listener.getsockname())


def test_damage_is_an_error_to_try_again(little: pronghorn.Model) -> None:
    x = inputs(2)
    with pronghorn.serve(little, "127.0.0.1:0", TRUST) as server:
        # In the name of the server's store, which nobody else looks at: the end of the hello.
        with damaged(server.address, 5 + 10 + 1 + 32 + 8) as address:
            found = fails(lambda: pronghorn.connect(address, TRUST, timeout=5).predict(x))
        assert (found.code, found.retryable) == ("damaged", True)


# Results on a full disk.


def found(images: int) -> Predictions:
    return Predictions.of(np.ones((images, 3), np.float32), [], "values")


@contextmanager
def full(size: int) -> Iterator[None]:
    """No file may grow beyond this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_room_is_taken_before_the_work(tmp_path: Path) -> None:
    output = OutputFile(tmp_path / "out.npy")
    with full(10_000), pytest.raises(InputError, match="cannot hold the results, which take 6,"):
        output.reserve(100_000, (3,))
    output._discard()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_files_are_written_whole(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    for images in (5, 2):
        output = OutputFile(path)
        output.reserve(images, (3,))
        assert output.write(found(images)) is None
        loaded = np.load(path)
        outputs = loaded if suffix == ".npy" else loaded["outputs"]
        assert outputs.shape == (images, 3)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_results_are_kept_where_they_cannot_be_written(
    tmp_path: Path, little: pronghorn.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: OutputFile, _: Predictions) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(_output_file.OutputFile, "_write", refuse)
    monkeypatch.setattr(_output_file.tempfile, "tempdir", str(tmp_path))
    np.save(tmp_path / "x.npy", inputs(30))
    with pronghorn.serve(little, "127.0.0.1:0", TRUST) as server:
        ask = ["predict", str(tmp_path / "x.npy"), "--server", server.address, "--trust", TRUST]
        result = CliRunner().invoke(app, [*ask, "--out", str(tmp_path / "out.npy"), "--outputs", "classes"])
    assert result.exit_code == OutputError.exit_code == 3
    # All of them, and elsewhere.
    assert len(re.findall(r"\d\.\d\d %", result.output)) >= 30
    kept = list(tmp_path.glob("pronghorn-*.npy"))
    assert len(kept) == 1
    assert np.load(kept[0]).shape == (30, 3)
