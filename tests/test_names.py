"""Names of the model's file: they stay with its owner."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import pronghorn
from helpers import model, node
from pronghorn.errors import InputError

TELLING = "patient_hiv_head"
"""In the names of the file, the graph, its nodes, values and weights."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of two layers around a square."""
    random = np.random.default_rng(1)
    x, a, b, y, w, v = (f"{TELLING}/{name}" for name in "xabywv")
    weights = {w: random.normal(size=(6, 5)).astype(np.float32), v: random.normal(size=(5, 3)).astype(np.float32)}
    nodes = [node("MatMul", f"{x} {w}", a), node("Mul", f"{a} {a}", b), node("MatMul", f"{b} {v}", y)]
    proto = model(nodes, ("N", 6), weights, inputs=(x,), outputs=(y,))
    proto.graph.name = TELLING
    found = tmp_path / f"{TELLING}.onnx"
    found.write_bytes(proto.SerializeToString())
    return found


def load(path: Path, **options: str) -> pronghorn.Model:
    return pronghorn.load(path, samples=np.random.default_rng(2).normal(size=(60, 6)).astype(np.float32), **options)


@contextmanager
def tapped(address: str) -> Iterator[tuple[str, bytearray]]:
    """A line to `address`, and all bytes that come back on it."""
    host, _, port = address.rpartition(":")
    heard = bytearray()

    def carry(source: socket.socket, sink: socket.socket, copy: bytearray | None) -> None:
        while part := source.recv(1 << 16):
            if copy is not None:
                copy += part
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection((host, int(port))) as far:

        def accept() -> None:
            near, _ = listener.accept()
            with near:
                up = threading.Thread(target=carry, args=(near, far, None))
                up.start()
                carry(far, near, heard)
                up.join()

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", heard
        thread.join()


@pytest.mark.parametrize(
    ("trust", "engine"),
    [
        ("two-party", "coefficient"),
        ("two-party", "slot"),
        ("two-party", "batch"),
        ("client-aided", "coefficient"),
        ("client-aided", "batch"),
        ("encrypted", None),
    ],
)
def test_no_byte_of_a_session_has_a_name(path: Path, trust: str, engine: str | None) -> None:
    loaded = load(path)
    with (
        pronghorn.serve(loaded, "127.0.0.1:0", trust, engine=engine) as server,
        tapped(server.address) as (line, heard),
        pronghorn.connect(line, trust) as client,
    ):
        client.predict(np.zeros((1, 6), np.float32))
        assert json.loads(client.plan_json())["model"] == "model"
        seen = client.plan_json() + client.plan_text(details=True)
        assert client.plan_hash == server.plan_hash == loaded.plan(trust, engine=engine).hash
    assert b"model" in heard
    assert TELLING.encode() not in heard
    assert TELLING not in seen


def test_the_owner_sees_names_and_gives_one(path: Path, tmp_path: Path) -> None:
    plan, named = load(path).plan(), load(path, name="triage").plan()
    assert TELLING in str(plan)
    assert TELLING in plan.to_html()
    shown = json.loads(plan.to_json())
    assert shown["model"] == "model"
    assert shown["names"]["model"] == TELLING
    assert all("name" not in step for step in shown["steps"])
    assert json.loads(named.to_json())["model"] == "triage"
    assert named.hash != plan.hash
    plan.save(tmp_path / "plan")
    assert TELLING.encode() not in (tmp_path / "plan").read_bytes()
    report = load(path).verify(np.zeros((2, 6), np.float32))
    assert report.ok
    for wrong in ("", "a\nb", "x" * 257, 7):
        with pytest.raises(InputError, match="name is"):
            load(path, name=wrong)
