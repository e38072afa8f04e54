"""Several nodes: admission places clients, tickets serve once, and a node that dies costs nothing."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pronghorn
from helpers import floats, model, node
from pronghorn import _native, _placement, _processes
from pronghorn._admission import Desk, admission_key
from pronghorn._placement import MOST_PROMISED, Nodes
from pronghorn._rates import Amounts, Rates, network
from pronghorn.errors import InputError, RunError
from pronghorn_bench.service import Server, free_port

TRUST = "client-aided"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    nodes = [node("Gemm", "x w", "g"), node("Relu", "g", "r"), node("Gemm", "r v", "y")]
    onnx.save(model(nodes, ("N", 6), {"w": floats(6, 5), "v": floats(5, 3)}), tmp_path / "model.onnx")
    return tmp_path


def inputs(count: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(0, 1, (count, 6)).astype(np.float32)


# Tickets.


def test_a_node_serves_who_has_a_ticket(folder: Path) -> None:
    key, other = admission_key(folder / "key"), _native.new_admission_key()
    public = (folder / "key.pub").read_text().strip()
    assert admission_key(folder / "key") == key
    lines: list[pronghorn.LogLine] = []
    net = pronghorn.load(folder / "model.onnx", input_range=(0, 1))
    with pronghorn.serve(net, "127.0.0.1:0", TRUST, tickets=(public, "one:7700"), log=lines.append) as server:

        def refused(ticket: bytes | None) -> tuple[str, bool]:
            with pytest.raises(RunError) as caught:
                pronghorn.connect(server.address, TRUST, ticket=ticket)
            return caught.value.code, caught.value.retryable

        run = server.metrics()["run"]
        assert refused(None) == ("unauthorised", False)
        assert refused(_native.issue_ticket(other, "one:7700", run, None, 60.0)) == ("unauthorised", False)
        assert refused(_native.issue_ticket(key, "two:7700", run, None, 60.0)) == ("unauthorised", False)
        ticket = _native.issue_ticket(key, "one:7700", run, "alice", 60.0)
        with pronghorn.connect(server.address, TRUST, ticket=ticket) as client:
            assert client.predict(inputs(3)).shape == (3, 3)
        assert refused(ticket) == ("busy", True)
        short = _native.issue_ticket(key, "one:7700", run, None, 0.001)
        time.sleep(0.01)
        assert refused(short) == ("busy", True)
    assert any("is alice" in line for line in lines)
    # A ticket of before a restart is none, used or not.
    ticket = _native.issue_ticket(key, "one:7700", run, None, 60.0)
    with pronghorn.serve(net, "127.0.0.1:0", TRUST, tickets=(public, "one:7700")) as server:
        assert server.metrics()["run"] != run
        assert refused(ticket) == ("busy", True)
    # Whoever asks for none does not read them.
    with (
        pronghorn.serve(net, "127.0.0.1:0", TRUST) as server,
        pytest.raises(RunError),
    ):
        pronghorn.connect(server.address, TRUST, ticket=ticket)


def test_keys_that_make_no_sense(folder: Path) -> None:
    (folder / "bad").write_bytes(b"no key")
    (folder / "bad").chmod(0o600)
    with pytest.raises(InputError, match="no Ed25519 key"):
        admission_key(folder / "bad")
    admission_key(folder / "key")
    (folder / "key").chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        admission_key(folder / "key")
    net = pronghorn.load(folder / "model.onnx", input_range=(0, 1))
    with pytest.raises((InputError, RunError), match="64 hexadecimal digits"):
        pronghorn.serve(net, "127.0.0.1:0", TRUST, tickets=("f", "one"))


# Placement.


class Watched:
    """Nodes whose metrics a test writes."""

    def __init__(self, names: str) -> None:
        self.metrics: dict[str, dict[str, Any]] = {name: self.empty() for name in names}
        self._stack = ExitStack()
        monitors = {
            name: self._stack.enter_context(pronghorn.Monitor("127.0.0.1:0", lambda name=name: self.metrics[name]))
            for name in names
        }
        self.nodes = Nodes([pronghorn.Node(name, monitor.address) for name, monitor in monitors.items()])
        self.nodes.look()

    @staticmethod
    def empty() -> dict[str, Any]:
        with pronghorn.serve(pronghorn.load(model([node("Relu", "x", "y")], ("N", 6), {})), "127.0.0.1:0") as server:
            return {**server.metrics(), "ready": True, "run": "7f" * 16}

    def did(self, name: str, images: int, seconds: float) -> None:
        found = self.metrics[name]["models"][0]
        found["model"], found["images"], found["predicted_seconds"] = "m", images, seconds

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def test_work_goes_where_least_of_it_waits() -> None:
    with Watched("ab") as watched:
        nodes = watched.nodes
        first = nodes.place("bob", "m", 100)
        second = nodes.place("bob", "m", 10)
        assert first is not None
        assert second is not None
        assert first.address != second.address
        # 10 images wait there and 100 here, until these are done.
        for _ in range(5):
            assert nodes.place("bob", "m", 10) == second
        watched.did(first.address, 100, 10.0)
        nodes.look()
        assert nodes.place("bob", "m", 10) == first
        # By now an image is known to take a tenth of a second: ten are more than the sixty guesses there.
        assert nodes.place("bob", "m", 1000) == second
        assert nodes.place("bob", "m", 10) == first
        # A client says that a node does not answer: it is sent elsewhere, and others are not.
        assert nodes.place("bob", "m", 1, failed=first.address) == second
        assert nodes.at(first.address) == first
        assert nodes.place("bob", "m", 1) == first
        watched.metrics[first.address]["ready"] = watched.metrics[second.address]["ready"] = False
        nodes.look()
        assert nodes.place("bob", "m", 1) is None


def test_what_a_client_promises_has_a_bound() -> None:
    with Watched("ab") as watched:
        nodes = watched.nodes
        first = nodes.place("eve", "m", 1 << 40)
        second = nodes.place("bob", "m", 100)
        assert first is not None
        assert second is not None
        assert first.address != second.address
        for _ in range(10):
            nodes.place("eve", "m", 1 << 40)
        assert sum(state.waiting for state in nodes.states()) < MOST_PROMISED + 2
        # Others' work counts as before.
        nodes.place("ann", "m", 100)
        assert sum(state.waiting for state in nodes.states()) == pytest.approx(MOST_PROMISED + 2, rel=0.01)
    amounts = Amounts(10.0, 5.0, places=2)
    assert [amounts.take("a", wanted, 0.0) for wanted in (4.0, 8.0, 1.0)] == [4.0, 6.0, 0.0]
    assert amounts.take("a", 8.0, 5.0) == 5.0
    assert amounts.take("b", 1.0, 5.0) == 1.0
    # Nobody new, until the others were silent for long.
    assert amounts.take("c", 1.0, 6.0) == 0.0
    assert amounts.take("c", 1.0, 60.0) == 1.0


def test_nodes_without_tickets_and_old_news_count_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Watched("a") as watched:
        assert watched.nodes.at("a") is not None
        watched.metrics["a"]["run"] = None
        watched.nodes.look()
        assert watched.nodes.at("a") is None
        watched.metrics["a"]["run"] = "7f" * 16
        watched.nodes.look()
        assert watched.nodes.at("a") == ("a", "7f" * 16)
        # Nobody has looked for long.
        monkeypatch.setattr(_placement, "STALE", -1.0)
        assert watched.nodes.at("a") is None
        assert watched.nodes.place("bob", None, 1) is None


def test_a_look_that_fails_is_not_the_last(folder: Path) -> None:
    key = admission_key(folder / "key")
    looks, lines = [], []

    def fleet(waiting: float) -> list[pronghorn.Node]:
        looks.append(waiting)
        if len(looks) > 1:
            raise RuntimeError("can't start new thread")
        return []

    with pronghorn.Admission("127.0.0.1:0", fleet, key, log=lines.append):
        for _ in range(1000):
            if len(looks) >= 3:
                break
            time.sleep(0.01)
    assert len(looks) >= 3
    assert any("cannot look at the nodes" in line for line in lines)


def test_a_token_goes_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to where an answer points, and not to a proxy."""
    seen: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.path)
            if self.path == "/v1/sessions":
                self.send_response(302)
                self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/other")
                self.end_headers()
            else:
                self.send_response(500)
                self.end_headers()

        do_GET = do_POST

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(RunError, match="302"):
            pronghorn.ask_admission(url, token="bob.0123456789abcdefghijkl")
        assert seen == ["/v1/sessions"]
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(RunError, match="cannot reach"):
            pronghorn.ask_admission(f"http://127.0.0.1:{free_port()}", token="bob.0123456789abcdefghijkl")
        assert seen == ["/v1/sessions"]
        server.shutdown()


# The service.


def post(address: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"http://{address}/v1/sessions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_requests_to_the_service(folder: Path) -> None:
    key = admission_key(folder / "key")
    (folder / "tokens").write_text("# Bob's\nbob.0123456789abcdefghijkl\n")
    (folder / "tokens").chmod(0o600)
    lines: list[str] = []
    with (
        pronghorn.Monitor("127.0.0.1:0", Watched.empty) as monitor,
        pronghorn.Admission(
            "127.0.0.1:0", [pronghorn.Node("one:1", monitor.address)], key, tokens=folder / "tokens", log=lines.append
        ) as service,
    ):
        bearer = {"Authorization": "Bearer bob.0123456789abcdefghijkl"}
        assert post(service.address, b"{}")[0] == 401
        assert post(service.address, b"{}", Authorization="Bearer bob.0123456789abcdefghijkm")[0] == 401
        for body in (b"", b"[", b"[]", b'{"images": 0}', b'{"images": true}', b'{"model": 1}', b"[" * 60_000):
            assert post(service.address, body, **bearer)[0] == 400, body[:20]
        assert post(service.address, b"x" * (1 << 17), **bearer)[0] == 413
        status, found = post(service.address, b'{"model": "m", "images": 5}', **bearer)
        assert (status, found["address"], found["seconds"]) == (200, "one:1", 60.0)
        url = f"http://{service.address}"
        with pytest.raises(RunError, match="show a token") as caught:
            pronghorn.ask_admission(url)
        assert (caught.value.code, caught.value.retryable) == ("unauthorised", False)
        admitted = pronghorn.ask_admission(url, token="bob.0123456789abcdefghijkl")
        assert b"bob" in admitted.ticket
        # A token that leaves the file, and a file that others may read, let nobody in.
        (folder / "tokens").write_text("eve.0123456789abcdefghijkl\n")
        assert post(service.address, b"{}", **bearer)[0] == 401
        assert any("refused" in line for line in lines)
        (folder / "tokens").write_text("bob.0123456789abcdefghijkl\n# again\n")
        (folder / "tokens").chmod(0o644)
        assert post(service.address, b"{}", **bearer)[0] == 401
        (folder / "tokens").chmod(0o600)
        (folder / "tokens").write_text("bob.0123456789abcdefghijkl\n")
        with pytest.raises(RunError) as caught:
            pronghorn.ask_admission(url, token="bob.0123456789abcdefghijkl", failed="one:1")
        assert (caught.value.code, caught.value.retryable) == ("busy", True)
    with pytest.raises(RunError) as caught:
        pronghorn.ask_admission(url)
    assert (caught.value.code, caught.value.retryable) == ("unreachable", True)
    for url in ("ftp://a", "a:1", "http://example.com:1"):
        with pytest.raises(InputError):
            pronghorn.ask_admission(url)
    with pytest.raises(InputError, match="--tls"):
        pronghorn.Admission("0.0.0.0:0", [], key)


def test_requests_have_a_rate() -> None:
    rates = Rates(3, places=2)
    assert [rates.take("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert rates.take("b", 0.0)
    # A third of a minute later one is let through again.
    assert [rates.take("a", 20.0) for _ in range(2)] == [True, False]
    # Nobody new, until somebody was silent for a minute.
    assert not rates.take("c", 59.0)
    assert rates.take("c", 61.0)
    assert network("::ffff:10.0.0.1") == network("10.0.0.1") == "10.0.0.1"
    assert network("2001:db8::1%eth0") == network("2001:db8::ffff:2") != network("2001:db8:0:1::1")


def test_a_desk_counts_and_limits(folder: Path) -> None:
    key = admission_key(folder / "key")
    (folder / "tokens").write_text("bob.0123456789abcdefghijkl\neve.0123456789abcdefghijkl\n")
    (folder / "tokens").chmod(0o600)
    bob, eve = (f"Bearer {name}.0123456789abcdefghijkl" for name in ("bob", "eve"))
    with pronghorn.Monitor("127.0.0.1:0", Watched.empty) as monitor:
        nodes = [pronghorn.Node("one:1", monitor.address)]
        desk = Desk(nodes, key, tokens=folder / "tokens", tickets_per_client=2, requests_per_address=6)
        assert desk.answer(b"{}", bob, "10.0.0.1")[0] == 503
        desk.look()
        assert desk.answer(b'{"images": 500}', bob, "10.0.0.1")[0] == 200
        status, answer = desk.answer(b"{}", bob, "10.0.0.2")
        assert (status, answer["code"], answer["retryable"]) == (429, "busy", True)
        # Others are served, until the address has asked too often. What is refused counts.
        assert desk.answer(b"{}", eve, "10.0.0.1")[0] == 200
        assert [desk.answer(b"{}", "Bearer guess", "10.0.0.1")[0] for _ in range(4)] == [401, 401, 401, 429]
        assert desk.answer(b"{}", eve, "10.0.0.3")[0] == 200
        found = desk.metrics()
    assert (found["ready"], found["issued"]) == (True, 3)
    assert found["refused"] == [("busy", 1), ("rate", 2), ("unauthorised", 3)]
    assert found["nodes"][0].waiting == pytest.approx(502 * 0.01, rel=0.01)


def test_another_ticket_for_a_node(folder: Path) -> None:
    key = admission_key(folder / "key")
    with ExitStack() as stack:
        monitors = [stack.enter_context(pronghorn.Monitor("127.0.0.1:0", Watched.empty)) for _ in range(2)]
        desk = Desk([pronghorn.Node(name, each.address) for name, each in zip("ab", monitors, strict=True)], key)
        desk.look()
        # Where work waits already, and where there is no such node.
        assert desk.answer(b'{"images": 1000000}', None, "10.0.0.1")[1]["address"] in ("a", "b")
        for name in "ab":
            answer = desk.answer(json.dumps({"node": name}).encode(), None, "10.0.0.1")[1]
            assert answer["address"] == name
        assert desk.answer(b'{"node": "c"}', None, "10.0.0.1")[0] == 503
        assert desk.answer(b'{"node": 1}', None, "10.0.0.1")[0] == 400


def test_a_service_is_watched(folder: Path) -> None:
    key = admission_key(folder / "key")
    with (
        pronghorn.Monitor("127.0.0.1:0", Watched.empty) as monitor,
        pronghorn.Admission("127.0.0.1:0", [pronghorn.Node("one:1", monitor.address)], key) as service,
        service.monitor("127.0.0.1:0") as watched,
    ):
        assert post(service.address, b'{"images": 300}')[0] == 200
        assert post(service.address, b"[")[0] == 400
        with urllib.request.urlopen(f"http://{watched.address}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        for line in (
            "pronghorn_admission_ready 1",
            "pronghorn_admission_tickets_total 1",
            'pronghorn_admission_refusals_total{reason="protocol"} 1',
            "pronghorn_admission_nodes 1",
            'pronghorn_admission_node_ready{node="one:1"} 1',
            'pronghorn_admission_node_clients{node="one:1"} 0',
        ):
            assert line in lines
        assert any(line.startswith('pronghorn_admission_waiting_seconds{node="one:1"} ') for line in lines)
        with urllib.request.urlopen(f"http://{watched.address}/readyz", timeout=10) as answer:
            assert answer.status == 200


def test_connections_to_the_service_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent connections are as many as there are places, and end in time, whatever they trickle."""
    monkeypatch.setattr("pronghorn._admission.MOST_CONNECTIONS", 2)
    monkeypatch.setattr("pronghorn._admission.LONGEST", 1.0)
    with pronghorn.Admission("127.0.0.1:0", [], admission_key(folder / "key")) as service:
        host, _, port = service.address.rpartition(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(2)]
        for line in silent:
            line.sendall(b"POST /v1/sess")
        more = socket.create_connection((host, int(port)), timeout=10)
        assert more.recv(1) == b""
        # Each is cut, though none was silent for long.
        for line in silent:
            line.settimeout(10)
            assert line.recv(1) == b""
        # Their places are free a moment later.
        deadline = time.monotonic() + 10
        while True:
            try:
                assert post(service.address, b"{}")[0] == 503
                break
            except (urllib.error.URLError, ConnectionError):
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_an_address_has_few_of_the_connections(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pronghorn._admission.MOST_CONNECTIONS_PER_ADDRESS", 2)
    with pronghorn.Admission("127.0.0.1:0", [], admission_key(folder / "key")) as service, ExitStack() as stack:
        host, _, port = service.address.rpartition(":")

        def asks(address: str) -> socket.socket:
            line = socket.create_connection((host, int(port)), timeout=10, source_address=(address, 0))
            return stack.enter_context(line)

        for _ in range(2):
            asks("127.0.0.1").sendall(b"GET /heal")
        assert asks("127.0.0.1").recv(1) == b""
        other = asks("127.0.0.2")
        other.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert other.recv(12) == b"HTTP/1.0 200"


def test_a_newcomer_gets_a_place_of_who_holds_most(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pronghorn._admission.MOST_CONNECTIONS", 3)
    with pronghorn.Admission("127.0.0.1:0", [], admission_key(folder / "key")) as service, ExitStack() as stack:
        host, _, port = service.address.rpartition(":")

        def asks(address: str) -> socket.socket:
            line = socket.create_connection((host, int(port)), timeout=10, source_address=(address, 0))
            stack.enter_context(line).sendall(b"GET /heal")
            return line

        held = [asks("127.0.0.1") for _ in range(3)]
        other = asks("127.0.0.2")
        other.sendall(b"thz HTTP/1.0\r\n\r\n")
        assert other.recv(12) == b"HTTP/1.0 200"
        # The oldest is cut, and no other.
        assert held[0].recv(1) == b""
        held[1].sendall(b"thz HTTP/1.0\r\n\r\n")
        assert held[1].recv(12) == b"HTTP/1.0 200"


def test_a_certificate_changes(folder: Path) -> None:
    """A new certificate serves on, and one that cannot be used leaves that of before in place."""
    for name in "ab":
        pronghorn.make_keys(folder / name, hosts=["127.0.0.1"])
    used = folder / "a" / "server"
    pair = [(folder / name / "server" / "server.pem").read_text() for name in "ab"]
    new_key = (folder / "b" / "server" / "server.key").read_bytes()
    lines: list[str] = []
    with pronghorn.Admission("127.0.0.1:0", [], admission_key(folder / "key"), tls=used, log=lines.append) as service:
        host, _, port = service.address.rpartition(":")

        def shown() -> str:
            return ssl.get_server_certificate((host, int(port)), timeout=10)

        def told(words: str) -> None:
            deadline = time.monotonic() + 30
            while not any(words in line for line in lines):
                assert time.monotonic() < deadline
                time.sleep(0.05)

        first = shown()
        assert first.split() == pair[0][: len(first)].split()
        # The certificate of another key.
        (used / "server.pem").write_text(pair[1])
        told("is refused")
        assert shown() == first
        (used / "server.key").write_bytes(new_key)
        told("read the certificate again")
        assert shown().split() == pair[1][: len(shown())].split()


def test_tokens_are_those_of_a_node(folder: Path) -> None:
    key, tokens = admission_key(folder / "key"), folder / "tokens"
    secret = "0123456789abcdefghijkl"
    tokens.touch(0o600)
    for wrong in (secret, f"bob.{secret[1:]}", f"b b.{secret}", f".{secret}", f"bob.{secret}\xe9", "bob." + "x" * 512):
        tokens.write_text(f"# one\n{wrong}\n")
        with pytest.raises(InputError, match="line 2 holds no token"):
            Desk([], key, tokens=tokens)
    tokens.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="holds no token"):
        Desk([], key, tokens=tokens)
    tokens.write_text(f"bob.{secret}\n")
    desk = Desk([], key, tokens=tokens)
    # A file that is no text any more lets nobody in, and is no failure of the service.
    tokens.write_bytes(b"\xff\xfe")
    assert desk.answer(b"{}", f"Bearer bob.{secret}", "10.0.0.1")[0] == 401
    # A group may read, as for a node.
    tokens.write_text(f"bob.{secret}\n")
    tokens.chmod(0o640)
    assert desk.answer(b"{}", f"Bearer bob.{secret}", "10.0.0.1")[0] == 503


@pytest.fixture
def cluster(folder: Path) -> Iterator[tuple[list[Server], pronghorn.Admission]]:
    """Three nodes and their admission service."""
    key = admission_key(folder / "key")
    with ExitStack() as stack:
        servers, nodes = [], []
        for _ in range(3):
            metrics = f"127.0.0.1:{free_port()}"
            options = [str(folder / "model.onnx"), "--trust", TRUST, "--input-range", "0,1", "--metrics", metrics]
            options += ["--keep-alive", "2"]
            servers.append(Server([*options, "--tickets", str(folder / "key.pub")], names_itself=True))
            stack.callback(servers[-1].stop)
            nodes.append(pronghorn.Node(servers[-1].address, metrics))
        time.sleep(0.01)
        yield servers, stack.enter_context(pronghorn.Admission("127.0.0.1:0", nodes, key))


def test_a_node_is_killed_in_the_middle(folder: Path, cluster: tuple[list[Server], pronghorn.Admission]) -> None:
    """Clients are spread over nodes. The batch of a node that dies goes on at another, and nothing is lost."""
    servers, service = cluster
    np.save(folder / "x.npy", inputs(3000))
    wanted = pronghorn.load(folder / "model.onnx", input_range=(0, 1)).compiled(TRUST).run_fixed(inputs(3000))
    ask = [*_processes.COMMAND, "predict", str(folder / "x.npy"), "--scale", "1", "--trust", TRUST, "--batch"]
    ask += ["--admission", f"http://{service.address}", "--piece", "10"]
    clients = [subprocess.Popen([*ask, "--out", str(folder / f"{index}.npy")]) for index in range(3)]

    def served(server: Server) -> bool:
        return " connected" in server.log()

    deadline = time.monotonic() + 60
    while not all(map(served, servers)):
        assert time.monotonic() < deadline, [server.log() for server in servers]
        assert all(client.poll() is None for client in clients)
        time.sleep(0.02)
    while len(list((folder / "0.npy.parts").glob("*.npy"))) < 20:
        threading.Event().wait(0.005)
    servers[0].kill()
    assert [client.wait(120) for client in clients] == [0, 0, 0]
    for index in range(3):
        np.testing.assert_array_equal(np.load(folder / f"{index}.npy"), wanted)
    # One client had to move.
    assert sum(server.log().count(" connected") for server in servers) >= 4


def test_tickets_for_connections_in_the_background(
    folder: Path, cluster: tuple[list[Server], pronghorn.Admission]
) -> None:
    """A function gives a ticket for each connection: for those after a rest, and for those that prepare."""
    _, service = cluster
    url = f"http://{service.address}"
    admitted = pronghorn.ask_admission(url)
    asked = []

    def ticket() -> bytes:
        asked.append(pronghorn.ask_admission(url, node=admitted.address))
        return asked[-1].ticket

    with pronghorn.connect(admitted.address, TRUST, ticket=ticket) as client:
        first = client.predict(inputs(2))
        # The server is to end the connection, which the client makes again.
        time.sleep(2.5)
        np.testing.assert_array_equal(client.predict(inputs(2)), first)
    assert [each.address for each in asked] == [admitted.address] * 2

    def refuses() -> bytes:
        raise RunError("no more", code="busy", retryable=True)

    with pytest.raises(RunError, match="no more") as caught:
        pronghorn.connect(admitted.address, TRUST, ticket=refuses)
    assert (caught.value.code, caught.value.retryable) == ("busy", True)


def test_preparing_with_tickets(folder: Path) -> None:
    """`--prepare` has a second connection, with a ticket of its own."""
    key = admission_key(folder / "key")
    metrics = f"127.0.0.1:{free_port()}"
    options = [str(folder / "model.onnx"), "--input-range", "0,1", "--metrics", metrics]
    server = Server([*options, "--tickets", str(folder / "key.pub")], names_itself=True)
    np.save(folder / "x.npy", inputs(2))
    try:
        time.sleep(0.01)
        with pronghorn.Admission("127.0.0.1:0", [pronghorn.Node(server.address, metrics)], key) as service:
            ask = [*_processes.COMMAND, "predict", str(folder / "x.npy"), "--scale", "1", "--prepare", "2"]
            ask += ["--store", str(folder / "store"), "--admission", f"http://{service.address}"]
            found = subprocess.run(ask, capture_output=True, text=True, timeout=120)
        assert found.returncode == 0, found.stderr
        assert "prepared batches used: 1" in found.stderr, found.stderr
        assert "no batches are kept" not in found.stderr, found.stderr
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        # Two for later runs; the first run's was used.
        assert any(line.startswith("pronghorn_stock_batches{") and line.endswith(" 2") for line in text.splitlines())
    finally:
        server.stop()
