"""Several nodes behind one address: an HTTP service places clients, and signs a ticket that serves once at one node.

No ciphertext passes it. A node that takes tickets is an ordinary server, which clients reach directly.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import random
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from pronghorn import _native
from pronghorn._model import native_errors
from pronghorn.errors import InputError, RunError

PATH = "/v1/sessions"
MOST_BYTES = 1 << 16
"""Of a request."""
MOST_IMAGES = 1 << 40
MOST_PROMISED = 3600.0
"""Seconds of work that a ticket may promise a node, whatever its client announces."""
PATIENCE = 5.0
"""Seconds that a connection may be silent."""
LOOK = 1.0
"""Seconds between two looks at a node, and at most for one."""
FIRST_GUESS = 0.01
"""Seconds of an image of a model of which none was predicted yet."""
FORGET = 120.0
"""Seconds after which half of the work that was promised to a node and did not come is forgotten."""


class Node(NamedTuple):
    """A server that takes tickets."""

    address: str
    """Host and port for clients; the node's name."""
    metrics: str
    """Host and port of its metrics."""


@dataclass
class _State:
    """What is known of a node."""

    node: Node
    is_ready: bool = False
    promised: float = 0.0
    """Seconds of work by tickets, of which the node has not done so much since."""
    done: float | None = None
    """Seconds of work that it has done in all."""
    clients: float = 0.0
    """Clients that have a place or wait for one."""
    looked: float = field(default_factory=time.monotonic)


class Nodes:
    """Where work goes: to the node with the least predicted work that waits."""

    def __init__(self, nodes: Sequence[Node] | Callable[[], Sequence[Node]]) -> None:
        """Nothing is known of them yet. A function says which there are, at each look."""
        self._list = nodes if callable(nodes) else lambda: nodes
        self._states: list[_State] = []
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = {}

    def place(self, model: str | None, images: int, failed: str | None = None) -> Node | None:
        """A node for so many images; None where none is ready. `failed` did not answer a client."""
        with self._lock:
            for state in self._states:
                if state.node.address == failed:
                    state.is_ready = False
            ready = [state for state in self._states if state.is_ready]
            if not ready:
                return None
            chosen = min(ready, key=lambda state: (state.promised, state.clients, random.random()))
            known = self._seconds.get((model or "").partition("@")[0])
            least = min(self._seconds.values(), default=FIRST_GUESS)
            seconds = images * (least if known is None else known)
            chosen.promised += min(seconds, MOST_PROMISED)
            return chosen.node

    def look(self) -> None:
        """Asks all nodes how they are."""
        known = {state.node: state for state in self._states}
        states = [known.get(node) or _State(node) for node in self._list()]
        with self._lock:
            self._states = states
        threads = [threading.Thread(target=self._look_at, args=(state,)) for state in self._states]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _look_at(self, state: _State) -> None:
        try:
            with urllib.request.urlopen(f"http://{state.node.metrics}/metrics", timeout=LOOK) as answer:
                samples = _samples(answer.read().decode())
        except (OSError, ValueError):
            samples = []
        with self._lock:
            self._learn(state, samples)

    def _learn(self, state: _State, samples: list[tuple[str, str, float]]) -> None:
        def total(name: str, label: str = "") -> float:
            return sum(value for found, labels, value in samples if found == name and label in labels)

        now = time.monotonic()
        state.promised *= 0.5 ** ((now - state.looked) / FORGET)
        state.looked = now
        state.is_ready = total("ready") == 1
        state.clients = total("places_used") + total("queue")
        if not samples:
            return
        done = total("predicted_seconds_total")
        # A node that has begun anew has lost what was promised to it.
        since = math.inf if state.done is None or done < state.done else done - state.done
        state.promised = max(0.0, state.promised - since)
        state.done = done
        for found, labels, images in samples:
            if found == "images_total" and images > 0:
                name = labels.partition('model="')[2].partition('"')[0]
                self._seconds[name] = total("predicted_seconds_total", f'model="{name}"') / total(
                    "images_total", f'model="{name}"'
                )


def _samples(text: str) -> list[tuple[str, str, float]]:
    """Name, labels and value of each sample in Prometheus' text format."""
    found = []
    for line in text.splitlines():
        if line.startswith("pronghorn_"):
            name, _, value = line.rpartition(" ")
            bare, _, labels = name.partition("{")
            found.append((bare.removeprefix("pronghorn_"), labels, float(value)))
    return found


def admission_key(path: str | os.PathLike[str]) -> bytes:
    """The key of an admission service, which is made where it is missing; its public half is in `PATH.pub`.

    Raises:
        InputError: it is no such key, others may read it, or it cannot be written.
    """
    path = Path(path)
    try:
        if not path.exists():
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(made, "wb") as file:
                file.write(_native.new_admission_key())
        if path.stat().st_mode & 0o077:
            raise InputError(f"others may read {path}, which issues tickets: chmod 600 {path}")
        key = path.read_bytes()
        with native_errors(RunError):
            public = _native.admission_public(key)
        path.with_name(f"{path.name}.pub").write_text(f"{public}\n")
    except OSError as error:
        raise InputError(f"{path} cannot be used: {error}") from error
    return key


class Admission:
    """Answers `POST /v1/sessions` with the address of a node and a ticket. A context manager: answers within `with`.

    The body is JSON: `model`, `images` (the work that is to come), and `failed`, a node that did not answer. So is the
    answer: `address`, `ticket` (hexadecimal), `seconds` (its time); or `code`, `retryable` and `message`.
    """

    def __init__(
        self,
        listen: str,
        nodes: Sequence[Node] | Callable[[], Sequence[Node]],
        key: bytes,
        *,
        tokens: Path | None = None,
        tls: str | os.PathLike[str] | None = None,
        insecure_plain_tcp: bool = False,
        seconds: float = 60.0,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Listens on `HOST:PORT`.

        Args:
            listen: host and port.
            nodes: where clients are sent; or a function that says it, at each look.
            key: of `admission_key`.
            tokens: a file of tokens, one a line; clients show one, and tickets have their names.
            tls: `DIR/server` of `pronghorn keys DIR`: answers HTTPS.
            insecure_plain_tcp: HTTP beyond loopback.
            seconds: the time of a ticket.
            log: is told of refusals, and of files that have changed.

        Raises:
            InputError: a file cannot be used, or HTTP beyond loopback.
            RunError: the address cannot be bound.
        """
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        if tls is None and host not in ("127.0.0.1", "::1", "localhost") and not insecure_plain_tcp:
            raise InputError(f"{listen} is beyond this machine: give --tls DIR")
        self._nodes, self._key, self._seconds = Nodes(nodes), key, seconds
        self._tokens = None if tokens is None else _TokenFile(tokens)
        self._log = log
        self._end = threading.Event()
        self._certificate: _Certificate | None = None
        admission = self

        class Handler(BaseHTTPRequestHandler):
            timeout = PATIENCE
            server_version = "pronghorn"
            sys_version = ""

            def do_GET(self) -> None:
                """Whether it is there."""
                self._say(200 if self.path == "/healthz" else 404, {})

            def do_POST(self) -> None:
                """Places a client."""
                if self.path != PATH:
                    return self._say(404, _refusal("protocol", False, f"there is {PATH}"))
                length = self.headers.get("Content-Length", "")
                if not length.isdigit() or int(length) > MOST_BYTES:
                    return self._say(413, _refusal("protocol", False, f"give a body of at most {MOST_BYTES} bytes"))
                status, answer = admission.answer(self.rfile.read(int(length)), self.headers.get("Authorization"))
                if status != 200:
                    admission._log(f"{self.client_address[0]} is refused: {answer['message']}")
                return self._say(status, answer)

            def _say(self, status: int, answer: dict[str, Any]) -> None:
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Nodes write down who comes."""

        class Listener(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        try:
            self._server = Listener((host, int(port)), Handler)
        except OSError as error:
            raise RunError(f"cannot listen on {listen}: {error}", code="address") from error
        self._server.daemon_threads = True
        if tls is not None:
            try:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                self._certificate = _Certificate(context, Path(tls), log)
            except OSError as error:
                self._server.server_close()
                raise InputError(f"{tls} cannot be used: {error}") from error
            # The handshake is its thread's: a silent client keeps nobody waiting.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def address(self) -> str:
        """Host and port."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def answer(self, body: bytes, authorization: str | None) -> tuple[int, dict[str, Any]]:
        """Status and answer to a request."""
        client = None
        if self._tokens is not None:
            client = self._tokens.name_of(authorization)
            if client is None:
                return 401, _refusal("unauthorised", False, "show a token of the service (Authorization: Bearer)")
        try:
            asked = json.loads(body)
            model, images, failed = asked.get("model"), asked.get("images", 1), asked.get("failed")
        except (ValueError, AttributeError, RecursionError):
            return 400, _refusal("protocol", False, "the body is no JSON object")
        if not all(each is None or isinstance(each, str) for each in (model, failed)) or not (
            type(images) is int and 1 <= images <= MOST_IMAGES
        ):
            return 400, _refusal("protocol", False, "model and failed are texts, and images is a number from 1 up")
        node = self._nodes.place(model, images, failed)
        if node is None:
            return 503, _refusal("busy", True, "no node takes clients now: try again later")
        ticket = _native.issue_ticket(self._key, node.address, client, self._seconds)
        return 200, {"address": node.address, "ticket": ticket.hex(), "seconds": self._seconds}

    def _watch(self) -> None:
        while not self._end.wait(LOOK):
            self._nodes.look()
            if self._certificate is not None:
                self._certificate.refresh()

    def __enter__(self) -> Admission:
        """Begins to answer, once it has looked at the nodes."""
        self._nodes.look()
        threading.Thread(target=self._watch, name="pronghorn nodes", daemon=True).start()
        threading.Thread(target=self._server.serve_forever, name="pronghorn admission", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends that."""
        self._end.set()
        self._server.shutdown()
        self._server.server_close()


def _refusal(code: str, retryable: bool, message: str) -> dict[str, Any]:
    return {"code": code, "retryable": retryable, "message": message}


def _stamp(*paths: Path) -> list[tuple[int, int] | None]:
    """What changes when a file does."""
    stamps: list[tuple[int, int] | None] = []
    for path in paths:
        try:
            found = path.stat()
            stamps.append((found.st_mtime_ns, found.st_ino))
        except OSError:
            stamps.append(None)
    return stamps


class _Certificate:
    """A certificate that is read again when its files change. Where they cannot be used, that of before serves on."""

    def __init__(self, context: ssl.SSLContext, directory: Path, log: Callable[[str], None]) -> None:
        self._context, self._log = context, log
        self._files = (directory / "server.pem", directory / "server.key")
        self._stamp = _stamp(*self._files)
        context.load_cert_chain(*self._files)

    def refresh(self) -> None:
        """Looks at the files."""
        stamp = _stamp(*self._files)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._context.load_cert_chain(*self._files)
            self._log("read the certificate again")
        except OSError as error:
            self._log(f"the certificate has changed and is refused, that of before serves on: {error}")


class _TokenFile:
    """Tokens of a file, which is read again when it changes. One that cannot be used lets nobody in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp, self._tokens = _stamp(path), _read_tokens(path)

    def name_of(self, authorization: str | None) -> str | None:
        """The name in the token; None where it is none of them."""
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            try:
                self._tokens = _read_tokens(self._path)
            except InputError:
                self._tokens = _Tokens(())
            self._stamp = stamp
        return self._tokens.name_of(authorization)


class _Tokens(NamedTuple):
    """Tokens that clients show."""

    lines: tuple[bytes, ...]

    def name_of(self, authorization: str | None) -> str | None:
        """The name in the token; None where it is none of them."""
        shown = (authorization or "").removeprefix("Bearer ").strip().encode("utf-8", "replace")
        # All are compared, each in constant time.
        is_known = [hmac.compare_digest(line, shown) for line in self.lines]
        return shown.decode().partition(".")[0] if any(is_known) else None


def _read_tokens(path: Path) -> _Tokens:
    try:
        if path.stat().st_mode & 0o077:
            raise InputError(f"others may read {path}: chmod 600 {path}")
        lines = path.read_text().splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return _Tokens(tuple(line.strip().encode() for line in lines if line.strip() and not line.startswith("#")))


class Admitted(NamedTuple):
    """Where a client may go."""

    address: str
    ticket: bytes


def ask_admission(
    url: str,
    *,
    model: str | None = None,
    images: int = 1,
    failed: str | None = None,
    token: str | None = None,
    authority: Path | None = None,
    timeout: float = 10.0,
) -> Admitted:
    """Asks an admission service for a node and a ticket, for `connect(ticket=)`.

    Args:
        url: of the service, `https://HOST:PORT`.
        model: the model that is to be asked.
        images: the images that are to come, by which nodes are chosen.
        failed: a node that did not answer.
        token: `NAME.SECRET`, where the service asks for one.
        authority: the CA of its certificate (PEM); the system's where not given.
        timeout: seconds.

    Raises:
        InputError: no such URL or file, or a token without TLS beyond loopback.
        RunError: the service refuses, or does not answer.
    """
    scheme, _, rest = url.partition("://")
    host = rest.rpartition(":")[0].strip("[]")
    if scheme not in ("http", "https") or not rest:
        raise InputError(f"{url!r} is no admission service: give https://HOST:PORT")
    if scheme == "http" and host not in ("127.0.0.1", "::1", "localhost"):
        raise InputError(f"{url} is beyond this machine and without TLS: tickets would be open to others; give https")
    body = json.dumps({"model": model, "images": images, "failed": failed}).encode()
    request = urllib.request.Request(f"{url.rstrip('/')}{PATH}", body, {"Content-Type": "application/json"})
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        context = ssl.create_default_context(cafile=authority) if scheme == "https" else None
    except OSError as error:
        raise InputError(f"{authority} cannot be used: {error}") from error
    try:
        with urllib.request.urlopen(request, timeout=timeout, context=context) as answer:
            found = json.loads(answer.read(MOST_BYTES))
        return Admitted(str(found["address"]), bytes.fromhex(found["ticket"]))
    except urllib.error.HTTPError as error:
        raise _refused(url, error) from None
    except OSError as error:
        raise RunError(
            f"cannot reach the admission service {url}: {error}", code="unreachable", retryable=True
        ) from None
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{url} is no admission service", code="protocol") from None


def _refused(url: str, error: urllib.error.HTTPError) -> RunError:
    try:
        said = json.loads(error.read(MOST_BYTES))
        code, retryable, message = str(said["code"]), said["retryable"] is True, str(said["message"])
    except (OSError, ValueError, KeyError, TypeError):
        code, retryable, message = "protocol", False, f"status {error.code}"
    return RunError(f"the admission service {url} refuses: {message}", code=code, retryable=retryable)
