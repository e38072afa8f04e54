"""Lean runs that last: memory over many predictions, many clients, clients and servers that are killed.

`PRONGHORN_LONG=1000 pytest tests/test_long_runs.py` makes them longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest

import pronghorn
from helpers import floats, model, node
from pronghorn import _processes
from pronghorn.errors import PronghornError

PREDICTIONS = int(os.environ.get("PRONGHORN_LONG", "300"))
NETWORK = "0,10"
"""No round trips and little bandwidth: activations are lean."""

MEBI = 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with a leaky ReLU, a pool and a ReLU, and images."""
    folder = tmp_path_factory.mktemp("long")
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
        node("LeakyRelu", "c", "l", alpha=0.1),
        node("MaxPool", "l", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "p", "f"),
        node("Gemm", "f v", "g", transB=1),
        node("Relu", "g", "r"),
        node("Gemm", "r u", "y", transB=1),
    ]
    constants = {"w": floats(4, 1, 3, 3), "v": floats(20, 100) / 10, "u": floats(3, 20) / 4}
    onnx.save(model(nodes, ("n", 1, 10, 10), constants), folder / "net.onnx")
    np.save(folder / "samples.npy", floats(64, 1, 10, 10))
    np.save(folder / "images.npy", floats(20, 1, 10, 10))
    return folder


@contextmanager
def served(folder: Path, *options: str) -> Iterator[_processes.ServerProcess]:
    """A server's process."""
    files = ["--data", str(folder / "samples.npy"), "--scale", "1", "--network", NETWORK]
    with _processes.served(folder / "net.onnx", "two-party", [*files, *options]) as server:
        yield server


def expected(folder: Path) -> np.ndarray:
    """The oracle's outputs."""
    loaded = pronghorn.load(folder / "net.onnx", samples=np.load(folder / "samples.npy"))
    assert "lean" in str(loaded.plan("two-party", network=NETWORK))
    return loaded.compiled("two-party", network=NETWORK).run_fixed(np.load(folder / "images.npy"))


def resident(process: int) -> int:
    """Bytes of memory that a process holds."""
    status = Path(f"/proc/{process}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_stays_over_many_predictions(folder: Path) -> None:
    images, outputs = np.load(folder / "images.npy"), expected(folder)
    with served(folder) as server, pronghorn.connect(server.address) as client:
        pids = server.pid, os.getpid()
        held = []
        for index in range(PREDICTIONS):
            at = index % len(images)
            np.testing.assert_array_equal(client.predict(images[at : at + 1]), outputs[at : at + 1])
            held.append([resident(pid) for pid in pids])
    # Allocators give pages back and take them again: one reading swings by 8 MiB.
    third = max(PREDICTIONS // 3, 1)
    grown = np.median(held[-third:], axis=0) - np.median(held[:third], axis=0)
    # A share, a label or an OT kept of each prediction would be 13 MB and more.
    assert max(grown) < 8 * MEBI, grown


def test_many_clients_get_their_own_results(folder: Path) -> None:
    images, outputs = np.load(folder / "images.npy"), expected(folder)
    clients = 50

    def run(number: int) -> None:
        at = number % len(images)
        with pronghorn.connect(address) as client:
            np.testing.assert_array_equal(client.predict(images[at : at + 1]), outputs[at : at + 1])

    with served(folder, "--max-clients", str(clients)) as server, ThreadPoolExecutor(10) as pool:
        address = server.address
        list(pool.map(run, range(clients)))


def test_the_server_outlives_killed_clients(folder: Path) -> None:
    images, outputs = np.load(folder / "images.npy"), expected(folder)
    with served(folder) as server:
        for milliseconds in (100, 400, 800):
            arguments = ["predict", str(folder / "images.npy"), "--server", server.address, "--scale", "1"]
            killed = subprocess.Popen(
                [*_processes.COMMAND, *arguments, "--repeat", "1000"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            with pytest.raises(subprocess.TimeoutExpired):
                killed.wait(1 + milliseconds / 1000)
            killed.kill()
            killed.wait()
            with pronghorn.connect(server.address) as client:
                np.testing.assert_array_equal(client.predict(images), outputs)


def test_a_killed_server_is_one_error(folder: Path) -> None:
    images = np.load(folder / "images.npy")
    with served(folder) as server, pronghorn.connect(server.address) as client:
        client.predict(images[:1])
        server.kill()
        with pytest.raises(PronghornError):
            client.predict(images[:1])
