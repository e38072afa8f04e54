"""Prepared batches that outlive processes: each is used once, or not at all, whoever is killed when."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pronghorn
from helpers import Line, floats, model, node
from pronghorn import _processes
from pronghorn.errors import InputError, PrepareWarning, RunError

BATCH = 4
USED = 16
"""Bytes of a name in the record of used ones."""


class Setting:
    """A model, images, and where both parties keep things."""

    def __init__(self, folder: Path) -> None:
        constants = {"w": floats(4, 2, 3, 3) / 4, "v": floats(3, 100) / 4, "b": floats(4)}
        nodes = [
            node("Conv", "x w b", "c", pads=[0, 0, 0, 0], strides=[2, 2]),
            node("Relu", "c", "r"),
            node("Mul", "r r", "s"),
            node("Flatten", "s", "f"),
            node("Gemm", "f v", "y", transB=1),
        ]
        constants["v"] = floats(3, 4 * 4 * 4) / 8
        self.model, self.samples, self.images = (folder / name for name in ("net.onnx", "samples.npy", "images.npy"))
        onnx.save(model(nodes, ("n", 2, 9, 9), constants), self.model)
        np.save(self.samples, floats(60, 2, 9, 9))
        np.save(self.images, floats(BATCH, 2, 9, 9))
        self.ours, self.theirs = folder / "ours", folder / "theirs"
        self.results = folder / "results.npy"
        self.loaded = pronghorn.load(self.model, samples=np.load(self.samples))
        self.wanted = self.loaded.compiled("two-party").run_fixed(np.load(self.images))

    @contextmanager
    def served(self) -> Iterator[_processes.ServerProcess]:
        options = ["--data", str(self.samples), "--scale", "1", "--store", str(self.theirs)]
        with _processes.served(self.model, "two-party", options) as server:
            yield server

    def predicts(self, address: str, *options: str) -> dict:
        """A client's process; its results are the oracle's."""
        arguments = ["--scale", "1", "--store", str(self.ours), "--out", str(self.results), *options]
        found = _processes.predict(address, "two-party", self.images, arguments)
        np.testing.assert_array_equal(np.load(self.results), self.wanted)
        return found

    def names(self, party: Path) -> list[bytes]:
        """Those that were handed out, in order."""
        records = list(party.glob("*/*/used"))
        record = records[0].read_bytes() if records else b""
        return [record[start : start + USED] for start in range(0, len(record), USED)]

    def ready(self, party: Path) -> set[str]:
        return {file.name for file in party.glob("*/*/*.prepared")}

    def check_once(self) -> None:
        """Nothing was handed out twice, and nothing that was handed out is there any more."""
        for party in (self.ours, self.theirs):
            names = self.names(party)
            assert len(names) == len(set(names))
            assert not {f"{name.hex()}.prepared" for name in names} & self.ready(party)
        # The server hands out what a client has named, which is out of the client's store by then.
        assert set(self.names(self.theirs)) <= set(self.names(self.ours))


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def test_either_party_is_killed_between_making_and_use(setting: Setting) -> None:
    with setting.served() as server:
        first = setting.predicts(server.address, "--prepare", "3")
        assert first["prepared_batches"] == 1
        assert len(setting.ready(setting.ours)) == len(setting.ready(setting.theirs)) == 3
        # A server that is killed has no time to tidy up.
        server.kill()
    with setting.served() as server:
        second = setting.predicts(server.address)
        assert second["prepared_batches"] == 1
        assert second["lost_preparations"] == 0
        assert len(setting.ready(setting.ours)) == len(setting.ready(setting.theirs)) == 2
    setting.check_once()
    with setting.served() as server:
        assert setting.predicts(server.address, "--repeat", "3")["prepared_batches"] == 2
    setting.check_once()
    assert len(setting.names(setting.theirs)) == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_results_are_there_before_the_store_is_refilled(setting: Setting, number: signal.Signals) -> None:
    """A line that holds the connection of the refill."""
    with setting.served() as server:
        line = Line(server.address, 1 << 62, later=1000)
        arguments = ["--scale", "1", "--store", str(setting.ours), "--out", str(setting.results), "--prepare", "3"]
        command = [*_processes.COMMAND, "predict", str(setting.images), "--server", line.address, "--json", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            # Killed after a while: what comes after the refill comes too late.
            said = _processes.said(process, "{", 30)
            assert said is not None
            assert json.loads("{" + said)["images"] == BATCH
            np.testing.assert_array_equal(np.load(setting.results), setting.wanted)
            assert line.held.wait(60)
            assert process.poll() is None
            process.send_signal(number)
            assert process.wait(60) == (130 if number == signal.SIGINT else -number)
        line.go_on.set()
    setting.check_once()


def test_a_preparation_that_fails_costs_no_prediction(setting: Setting) -> None:
    """The server refuses it, which ends the session: the client connects again, and says why nothing is prepared."""
    options = ["--data", str(setting.samples), "--scale", "1", "--prepare-bytes", "1000"]
    with _processes.served(setting.model, "two-party", options) as server:
        command = [*_processes.COMMAND, "predict", str(setting.images), "--server", server.address, "--scale", "1"]
        for more in ([], ["--store", str(setting.ours)]):
            out = ["--out", str(setting.results), "--prepare", "2", *more]
            found = subprocess.run([*command, *out], capture_output=True, text=True, check=False, timeout=60)
            assert found.returncode == 0, found.stderr
            assert found.stderr.count("warning") == 1
            assert "nothing is prepared: " in found.stderr
            assert "1000 are allowed" in found.stderr
            np.testing.assert_array_equal(np.load(setting.results), setting.wanted)
            setting.results.unlink()


CLIENT = """
import sys, time
import numpy, pronghorn
address, store, images = sys.argv[1:]
with pronghorn.connect(address, prepare=3, store=store) as client:
    x = numpy.load(images)
    print("begins", flush=True)
    while True:
        client.predict(x)
"""


def started(setting: Setting, address: str) -> subprocess.Popen[str]:
    """A client that predicts and prepares without end."""
    arguments = [address, str(setting.ours), str(setting.images)]
    process = subprocess.Popen([sys.executable, "-c", CLIENT, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process


@pytest.mark.parametrize("delay", [0.1, 0.4, 0.7])
def test_a_client_is_killed_at_work(setting: Setting, delay: float) -> None:
    with setting.served() as server:
        process = started(setting, server.address)
        time.sleep(delay)
        process.kill()
        process.wait()
        setting.check_once()
        # What is left serves others, or does not.
        for _ in range(2):
            setting.predicts(server.address)
        setting.check_once()


@pytest.mark.parametrize("delay", [0.1, 0.5])
def test_a_server_is_killed_at_work(setting: Setting, delay: float) -> None:
    with setting.served() as server:
        process = started(setting, server.address)
        time.sleep(delay)
        server.kill()
        assert process.wait(60) == 1
    setting.check_once()
    with setting.served() as server:
        for _ in range(2):
            setting.predicts(server.address)
    setting.check_once()


def test_two_servers_share_a_store(setting: Setting) -> None:
    with setting.served() as one, setting.served() as other:
        assert setting.predicts(one.address, "--prepare", "2")["prepared_batches"] == 1
        assert setting.predicts(other.address)["prepared_batches"] == 1
        assert setting.predicts(one.address, "--repeat", "2")["prepared_batches"] == 1
    setting.check_once()


def test_batches_are_kept_prepared(setting: Setting) -> None:
    images = np.load(setting.images)
    with pronghorn.serve(setting.loaded, "127.0.0.1:0", prepare=2) as server:
        with pronghorn.connect(server.address, prepare=5) as client:
            assert not client.is_prepared(BATCH)
            for expected in (0, 1, 1):
                np.testing.assert_array_equal(client.predict(images), setting.wanted)
                assert client.last_stats is not None
                assert client.last_stats.prepared_batches == expected
                assert client.wait_prepared()
                assert client.is_prepared(BATCH)
            # As many as the server keeps.
            assert client.is_prepared(BATCH)
            client.keep_prepared(0)
        with pronghorn.connect(server.address) as client:
            with pytest.raises(RunError, match="the server keeps 2"):
                client.prepare(3 * json.loads(client.plan_json())["max_batch"])
            for wrong in (-1, 1.5, "2"):
                with pytest.raises(InputError):
                    client.keep_prepared(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"assume": "aes"}, {"engine": "slot"}])
def test_keeping_prepared_takes_nothing_from_the_connection(options: dict[str, Any]) -> None:
    # Large enough for OTs that a connection keeps.
    nodes = [node("Conv", "x w", "c", strides=[2, 2]), node("Relu", "c", "r"), node("Flatten", "r", "f")]
    constants = {"w": floats(5, 1, 5, 5) / 4, "v": floats(3, 5 * 12 * 12) / 20}
    network = model([*nodes, node("Gemm", "f v", "y", transB=1)], ("n", 1, 28, 28), constants)
    samples = floats(60, 1, 28, 28)
    images, loaded = samples[:BATCH], pronghorn.load(network, samples=samples)
    wanted = loaded.compiled("two-party", **options).run_fixed(images)
    with (
        pronghorn.serve(loaded, "127.0.0.1:0", **options) as server,
        pronghorn.connect(server.address) as client,
    ):
        for count in (BATCH, 1, BATCH):
            np.testing.assert_array_equal(client.predict(images[:count]), wanted[:count])
            client.keep_prepared(1, 2)
            client.wait_prepared()
        client.keep_prepared(1)
        client.keep_prepared(0)
        np.testing.assert_array_equal(client.predict(images), wanted)


def test_what_goes_wrong_in_the_background_is_told(setting: Setting) -> None:
    images = np.load(setting.images)
    server = pronghorn.serve(setting.loaded, "127.0.0.1:0", max_clients=1, max_waiting=0)
    with server, pronghorn.connect(server.address) as client:
        client.keep_prepared(1, BATCH)
        with pytest.raises(RunError, match="busy"):
            client.wait_prepared()

        def predict() -> None:
            np.testing.assert_array_equal(client.predict(images), setting.wanted)
            time.sleep(0.05)

        with pytest.warns(PrepareWarning, match="busy"):
            # Each prediction has it try again, and tells what came of it by the next.
            _ = [predict() for _ in range(50)]
        client.keep_prepared(0)


def test_arguments_are_checked(setting: Setting, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="store"):
        pronghorn.serve(setting.loaded, "127.0.0.1:0", store=setting.model)
    with pytest.raises(InputError, match="prepare"):
        pronghorn.serve(setting.loaded, "127.0.0.1:0", prepare=-1)
    with pytest.raises(InputError, match="store"):
        pronghorn.connect("127.0.0.1:1", store=3)  # type: ignore[arg-type]
    with pronghorn.serve(setting.loaded, "127.0.0.1:0", prepare=0, store=tmp_path / "made") as server:
        assert (tmp_path / "made" / "server").is_dir()
        with pronghorn.connect(server.address) as client, pytest.raises(RunError, match="the server keeps 0"):
            client.keep_prepared(1)
