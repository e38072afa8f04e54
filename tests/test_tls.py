"""TLS between two processes: what is let in, what is refused, and what the other side is told."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import onnx
import pytest

import pronghorn
from helpers import floats, model, node
from pronghorn import _native, _processes
from pronghorn.errors import InputError, RunError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, images, and keys: alice has a certificate, bob a token."""
    folder = tmp_path_factory.mktemp("tls")
    nodes = [node("Gemm", "x w", "h", transB=1), node("Relu", "h", "r"), node("Gemm", "r v", "y", transB=1)]
    constants = {"w": floats(5, 6) / 3, "v": floats(3, 5) / 3}
    onnx.save(model(nodes, ("n", 6), constants), folder / "net.onnx")
    np.save(folder / "samples.npy", floats(60, 6))
    np.save(folder / "images.npy", floats(4, 6))
    command(folder, "keys", "keys", "--host", "server.example", "--client", "alice", "--token", "bob")
    return folder


def command(folder: Path, *arguments: str, status: int = 0) -> str:
    """The output of a process of the command line that must end with `status`."""
    found = subprocess.run(
        [*_processes.COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert found.returncode == status, found.stdout + found.stderr
    return found.stdout + found.stderr


@contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    """A server's process."""
    files = ["--data", str(folder / "samples.npy"), "--scale", "1"]
    with _processes.served(folder / "net.onnx", "two-party", [*files, *options]) as server:
        yield server.address


def predict(folder: Path, address: str, *options: str, status: int = 0) -> str:
    """A client's process, whose results are those of the oracle where it has any."""
    out = folder / "out.npy"
    out.unlink(missing_ok=True)
    arguments = ["predict", "images.npy", "--server", address, "--scale", "1", "--out", str(out), *options]
    said = command(folder, *arguments, status=status)
    assert out.exists() == (status == 0)
    if status == 0:
        loaded = pronghorn.load(folder / "net.onnx", samples=np.load(folder / "samples.npy"))
        wanted = loaded.compiled("two-party").run_fixed(np.load(folder / "images.npy"))
        np.testing.assert_array_equal(np.load(out), wanted)
    return said


def test_certificates_tokens_and_fingerprints(folder: Path) -> None:
    with served(folder, "--tls", str(folder / "keys/server")) as address:
        predict(folder, address, "--tls", "keys/clients/alice")
        predict(folder, address, "--tls", "keys/clients/bob")
        for name in ("alice", "bob"):
            predict(folder, address, "--tls", f"keys/clients/{name}", "--tls-name", "server.example")
        ca, token = ["--tls-ca", "keys/ca.pem"], ["--token", "keys/clients/bob/token"]
        predict(folder, address, *ca, *token)
        _, _, port = address.rpartition(":")
        predict(folder, f"localhost:{port}", *ca, *token)
        openssl = ["openssl", "x509", "-in", "keys/server/server.pem", "-noout", "-fingerprint", "-sha256"]
        try:
            printed = subprocess.run(openssl, cwd=folder, capture_output=True, text=True, check=True).stdout
        except FileNotFoundError:
            return
        predict(folder, address, "--tls-fingerprint", printed.strip().rpartition("=")[2], *token)


def test_refusals_say_what_to_do(folder: Path) -> None:
    ca, token = ["--tls-ca", "keys/ca.pem"], ["--token", "keys/clients/bob/token"]
    other = folder / "other"
    pronghorn.make_keys(other, clients=["alice"], tokens=["bob"])
    with served(folder, "--tls", str(folder / "keys/server")) as address:
        for options, said in (
            ([], "this server speaks TLS"),
            (ca, "wants a token or a certificate"),
            ([*ca, "--token", str(other / "clients/bob/token")], "refuses this token"),
            (["--tls", str(other / "clients/alice")], "not of a CA that this client trusts"),
            (["--tls-fingerprint", "00" * 32, *token], "is pinned"),
            ([*ca, *token, "--tls-name", "elsewhere.example"], "not for elsewhere.example, but for server.example"),
        ):
            assert said in predict(folder, address, *options, status=1)
        predict(folder, address, "--tls", "keys/clients/alice")
    certificate = ["--tls-cert", str(folder / "keys/server/server.pem"), "--tls-key"]
    key = [str(folder / "keys/server/server.key")]
    with served(folder, *certificate, *key, "--client-ca", str(folder / "keys/ca.pem")) as address:
        assert "wants a certificate of its clients" in predict(folder, address, *ca, status=1)
        theirs = [f"--tls-{name}={other}/clients/alice/client.{ending}" for name, ending in
                  (("cert", "pem"), ("key", "key"))]  # fmt: skip
        assert "refuses this client's certificate" in predict(folder, address, *ca, *theirs, status=1)
        predict(folder, address, "--tls", "keys/clients/alice")
    with served(folder) as address:
        assert "does not speak TLS" in predict(folder, address, "--tls", "keys/clients/alice", status=1)


def test_an_expired_certificate_is_refused_and_replaced_while_the_server_runs(folder: Path) -> None:
    keys = folder / "short"
    _native.make_keys(keys, [], ["alice"], ["bob"], -1)
    with served(folder, "--tls", str(keys / "server")) as address:
        assert "has expired" in predict(folder, address, "--tls", "short/clients/bob", status=1)
        command(folder, "keys", "short", "--host", "localhost", "--token", "bob")
        predict(folder, address, "--tls", "short/clients/bob")


def test_plain_tcp_beyond_loopback_must_be_asked_for(folder: Path) -> None:
    said = command(folder, "serve", "net.onnx", "--listen", "0.0.0.0:0", status=2)
    assert "--insecure-plain-tcp" in said
    assert "read inputs bit by bit" in said
    loaded = pronghorn.load(folder / "net.onnx", samples=np.load(folder / "samples.npy"))
    with pronghorn.serve(loaded, "0.0.0.0:0", insecure_plain_tcp=True) as server:
        assert server.fingerprint is None
        port = server.address.rpartition(":")[2]
        with pronghorn.connect(f"127.0.0.1:{port}") as client:
            assert client.predict(np.load(folder / "images.npy")).shape == (4, 3)


def test_the_python_api(folder: Path) -> None:
    keys, images = folder / "keys", np.load(folder / "images.npy")
    loaded = pronghorn.load(folder / "net.onnx", samples=np.load(folder / "samples.npy"))
    wanted = loaded.compiled("two-party").run_fixed(images)
    files = pronghorn.ServerTls(keys / "server/server.pem", keys / "server/server.key", tokens=keys / "server/tokens")
    lines: list[str] = []
    with pronghorn.serve(loaded, "127.0.0.1:0", tls=files, max_images_per_client=8, log=lines.append) as server:
        token = (keys / "clients/bob/token").read_text()
        pinned = pronghorn.ClientTls(fingerprint=server.fingerprint)
        for tls, given in ((pinned, token), (keys / "clients/bob", None)):
            with pronghorn.connect(server.address, tls=tls, token=given) as client:
                np.testing.assert_array_equal(client.predict(images), wanted)
        with pytest.raises(RunError, match="wants a token") as caught:
            pronghorn.connect(server.address, tls=pinned)
        assert (caught.value.code, caught.value.retryable) == ("unauthorised", False)
        with pronghorn.connect(server.address, tls=keys / "clients/bob") as client:
            with pytest.raises(RunError, match="has 0 left") as caught:
                client.predict(images)
            assert caught.value.code == "limit"
    assert any("is bob, has 4 images left" in line for line in lines)
    assert any(line.startswith("warning: the count of images ends with this process") for line in lines)
    for wrong, said in (
        (lambda: pronghorn.ClientTls(fingerprint="00"), "64 hexadecimal digits"),
        (lambda: pronghorn.ClientTls(ca="a", fingerprint="00" * 32), "one of the two"),
        (lambda: pronghorn.ClientTls(certificate="a"), "go together"),
        (lambda: pronghorn.make_keys(folder / "no", clients=["../alice"]), "a name has"),
    ):
        with pytest.raises(InputError, match=said):
            wrong()
    with pytest.raises(InputError, match=r"not NAME\.SECRET"):
        pronghorn.connect("127.0.0.1:1", token="bob")
    with pytest.raises(InputError, match=r"has no ca\.pem"):
        pronghorn.connect("127.0.0.1:1", tls=folder)


def test_unusable_files_are_errors_of_usage(folder: Path) -> None:
    keys = folder / "unusable"
    said = command(folder, "keys", "unusable", "--host", "a.example")
    assert "certificate is for a.example, localhost, 127.0.0.1, ::1" in said
    said = command(folder, "keys", "unusable", "--host", "b.example", "--client", "alice")
    assert "certificate is for b.example, a.example, localhost, 127.0.0.1, ::1" in said
    serve = ("serve", "net.onnx", "--listen", "127.0.0.1:0")
    assert "has no server.pem" in command(folder, *serve, "--tls", "unusable", status=2)
    files = ("--tls-cert", "unusable/server/server.pem", "--tls-key")
    said = command(folder, *serve, *files, "unusable/clients/alice/client.key", status=2)
    assert "is the key of another certificate than unusable/server/server.pem" in said
    assert "Mismatch" not in said
    (keys / "server/server.key").chmod(0o644)
    assert "chmod 600" in command(folder, *serve, "--tls", "unusable/server", status=2)
    assert "has no ca.pem" in predict(folder, "127.0.0.1:1", "--tls", "unusable/clients", status=2)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is closed to root")
def test_files_that_may_not_be_looked_at_are_not_called_missing(folder: Path) -> None:
    keys = folder / "closed"
    command(folder, "keys", "closed", "--host", "a.example", "--client", "alice")
    for part in ("server", "clients/alice"):
        (keys / part).chmod(0)
    try:
        said = command(folder, "serve", "net.onnx", "--listen", "127.0.0.1:0", "--tls", "closed/server", status=2)
        assert "ermission denied" in said
        said = predict(folder, "127.0.0.1:1", "--tls", "closed/clients/alice", status=2)
        assert "ermission denied" in said
    finally:
        for part in ("server", "clients/alice"):
            (keys / part).chmod(0o700)


def test_limits_and_stores_that_cannot_be_used_are_errors_of_usage(folder: Path) -> None:
    store = folder / "open-store"
    store.mkdir()
    store.chmod(0o755)
    serve = ("serve", "net.onnx", "--listen", "127.0.0.1:0", "--data", "samples.npy", "--scale", "1")
    assert "chmod 700" in command(folder, *serve, "--store", str(store), status=2)
    said = command(folder, *serve, "--memory", "1K", status=2)
    assert "memory" in said


def test_an_owner_hears_of_an_expired_certificate(folder: Path) -> None:
    _native.make_keys(folder / "gone", [], ["alice"], [], -1)
    loaded = pronghorn.load(folder / "net.onnx", samples=np.load(folder / "samples.npy"))
    lines: list[str] = []
    with pronghorn.serve(loaded, "127.0.0.1:0", tls=folder / "gone/server", log=lines.append):
        pass
    assert any(line.startswith("warning: the server's certificate has expired") for line in lines)


def test_a_port_alone_takes_clients_of_both_families(folder: Path) -> None:
    loaded = pronghorn.load(folder / "net.onnx", samples=np.load(folder / "samples.npy"))
    lines: list[str] = []
    with pronghorn.serve(loaded, ":0", insecure_plain_tcp=True, log=lines.append) as server:
        port = server.address.rpartition(":")[2]
        hosts = ["127.0.0.1", *(["[::1]"] if server.address.startswith("[::]") else [])]
        for host in hosts:
            with pronghorn.connect(f"{host}:{port}") as client:
                assert client.predict(np.load(folder / "images.npy")).shape == (4, 3)
    assert not any("ffff" in line for line in lines)


def test_a_server_without_limits_warns(folder: Path) -> None:
    loaded = pronghorn.load(folder / "net.onnx", samples=np.load(folder / "samples.npy"))
    for trust, warned in (("two-party", True), ("client-aided", False)):
        lines: list[str] = []
        with pronghorn.serve(loaded, "127.0.0.1:0", trust, log=lines.append) as server:
            pronghorn.connect(server.address, trust).close()
        assert any(line.startswith("warning: clients may ask without limit") for line in lines) == warned


def test_what_is_no_tls_is_refused() -> None:
    for given in (True, False, 7, ["keys"]):
        with pytest.raises(InputError, match=r"tls is .*\n.*DIR/clients/NAME .* or a ClientTls"):
            pronghorn.connect("example.org:7700", tls=given)  # type: ignore[arg-type]


def test_images_are_counted_by_name_over_processes(folder: Path) -> None:
    options = ("--tls", str(folder / "keys/server"), "--max-images", "6", "--store", str(folder / "store"))
    with served(folder, *options) as address:
        predict(folder, address, "--tls", "keys/clients/alice")
    with served(folder, *options) as address:
        assert "has 2 left" in predict(folder, address, "--tls", "keys/clients/alice", status=1)
        predict(folder, address, "--tls", "keys/clients/bob")
    assert os.stat(folder / "store").st_mode & 0o777 == 0o700


@pytest.mark.parametrize("cut", [1, 100, 600, 1500, 3000, 20_000])
@pytest.mark.parametrize("way", [0, 1])
def test_a_line_cut_between_processes_is_one_error(folder: Path, way: int, cut: int) -> None:
    with served(folder, "--tls", str(folder / "keys/server")) as address, cutting(address, way, cut) as line:
        said = predict(folder, line, "--tls", "keys/clients/alice", status=1)
        assert "connection" in said
        predict(folder, address, "--tls", "keys/clients/alice")


@contextmanager
def cutting(address: str, way: int, cut: int) -> Iterator[str]:
    """A line to `address` that ends after `cut` bytes of one way."""
    host, _, port = address.rpartition(":")
    listener = socket.create_server(("127.0.0.1", 0))

    def carry(source: socket.socket, target: socket.socket, most: int) -> None:
        carried = 0
        try:
            while carried < most and (data := source.recv(min(4096, most - carried))):
                target.sendall(data)
                carried += len(data)
        except OSError:
            pass
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def relay() -> None:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        far = socket.create_connection((host, int(port)))
        ways = [(near, far, cut if way == 0 else 1 << 40), (far, near, cut if way == 1 else 1 << 40)]
        for each in ways:
            threading.Thread(target=carry, args=each, daemon=True).start()

    threading.Thread(target=relay, daemon=True).start()
    try:
        yield "{}:{}".format(*listener.getsockname())
    finally:
        listener.close()


def test_results_are_printed_as_on_plain_tcp(folder: Path) -> None:
    with served(folder) as plain, served(folder, "--tls", str(folder / "keys/server")) as tls:
        runs = [
            json.loads(
                command(folder, "predict", "images.npy", "--server", address, "--scale", "1", "--json", *options)
            )
            for address, options in ((plain, ()), (tls, ("--tls", "keys/clients/alice")))
        ]
    first, second = ({key: value for key, value in run.items() if key in ("predictions", "plan_hash")} for run in runs)
    assert first == second
