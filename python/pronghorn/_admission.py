"""Several nodes behind one address: an HTTP service places clients, and signs a ticket that serves once at one node.

No ciphertext passes it. A node that takes tickets is an ordinary server, which clients reach directly.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from pronghorn import _native
from pronghorn._listener import Bounds, Listener
from pronghorn._model import native_errors
from pronghorn._monitor import Monitor, text_of_families
from pronghorn._placement import LOOK, Fleet, Node, Nodes
from pronghorn._rates import Rates, network
from pronghorn.errors import InputError, RunError

PATH = "/v1/sessions"
MOST_BYTES = 1 << 16
"""Of a request."""
MOST_IMAGES = 1 << 40
PATIENCE = 5.0
"""Seconds that a connection may be silent."""
LONGEST = 15.0
"""Seconds of a connection, whatever it sends."""
MOST_CONNECTIONS = 256
"""At once. More are closed without a word."""
MOST_CONNECTIONS_PER_ADDRESS = 32
"""Of these, of one address."""
PER_CLIENT = 600
"""Tickets a minute of one client, by default."""
PER_ADDRESS = 6000
"""Requests a minute of one address, by default."""
LINES = 60
"""Lines a minute about refusals of one address."""
OTHERS = 0o037
"""Bits of a secret's mode that nobody else may have, as for a node: a group may read, as a container's does."""
TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[!-~]{22,}")
"""NAME.SECRET, as nodes take it."""
MOST_TOKEN = 512
"""Characters of a token."""
MOST_FILE = 4 << 20
"""Bytes of a secret's file."""


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
        key, public = read_admission_key(path)
        known = path.with_name(f"{path.name}.pub")
        if not known.exists() or known.read_bytes() != public:
            known.write_bytes(public)
    except OSError as error:
        raise InputError(f"{path} cannot be used: {error}") from error
    return key


def read_admission_key(path: Path) -> tuple[bytes, bytes]:
    """The key of a file that is there, and what belongs into its `.pub`. Nothing is written.

    Raises:
        InputError: it is missing or no such key, or others may read it.
    """
    key = _secret(path)
    with native_errors(RunError):
        return key, f"{_native.admission_public(key)}\n".encode()


def _secret(path: Path) -> bytes:
    try:
        found = path.stat()
        if found.st_mode & OTHERS:
            raise InputError(f"others may read {path}: chmod 600 {path}")
        if found.st_size > MOST_FILE:
            raise InputError(f"{path} is too large to be a key or tokens")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error


class Desk:
    """Answers requests for tickets. What carries them, HTTP or Ray Serve, is outside."""

    def __init__(
        self,
        nodes: Sequence[Node] | Fleet,
        key: bytes,
        *,
        tokens: Path | None = None,
        seconds: float = 60.0,
        tickets_per_client: int = PER_CLIENT,
        requests_per_address: int = PER_ADDRESS,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        """As `Admission`, which documents them.

        Raises:
            InputError: the file of tokens cannot be used.
        """
        self._nodes, self._key, self._seconds = Nodes(nodes), key, seconds
        self._tokens = None if tokens is None else _TokenFile(tokens)
        self._clients, self._addresses = Rates(tickets_per_client), Rates(requests_per_address)
        self._lines = Rates(LINES)
        self._log = log
        self._lock = threading.Lock()
        self._issued = 0
        self._refused: Counter[str] = Counter()

    def look(self) -> None:
        """Asks all nodes how they are."""
        self._nodes.look()

    def answer(self, body: bytes, authorization: str | None, address: str) -> tuple[int, dict[str, Any]]:
        """Status and answer to a request from an address."""
        status, answer = self._answer(body, authorization, network(address))
        with self._lock:
            if status == 200:
                self._issued += 1
            else:
                self._refused["rate" if status == 429 else answer["code"]] += 1
        if status != 200 and self._lines.take(network(address)):
            self._log(f"{address} is refused: {answer['message']}")
        return status, answer

    def _answer(self, body: bytes, authorization: str | None, address: str) -> tuple[int, dict[str, Any]]:
        if not self._addresses.take(address):
            return 429, _refusal("busy", True, "too many requests of this address of late: try again in a minute")
        client = None
        if self._tokens is not None:
            client = self._tokens.name_of(authorization)
            if client is None:
                return 401, _refusal("unauthorised", False, "show a token of the service (Authorization: Bearer)")
        # Names have no colon before a point, and addresses no such beginning.
        whose = f"name:{client}" if client is not None else address
        if not self._clients.take(whose):
            return 429, _refusal("busy", True, "too many tickets for this client of late: try again in a minute")
        try:
            asked = json.loads(body)
            model, images = asked.get("model"), asked.get("images", 1)
            failed, wanted = asked.get("failed"), asked.get("node")
        except (ValueError, AttributeError, RecursionError):
            return 400, _refusal("protocol", False, "the body is no JSON object")
        if not all(each is None or isinstance(each, str) for each in (model, failed, wanted)) or not (
            type(images) is int and 1 <= images <= MOST_IMAGES
        ):
            return 400, _refusal(
                "protocol", False, "model, node and failed are texts, and images is a number from 1 up"
            )
        # A client that has its work at a node promises none again.
        found = self._nodes.place(whose, model, images, failed) if wanted is None else self._nodes.at(wanted)
        if found is None:
            return 503, _refusal("busy", True, "no node takes clients now: try again later")
        ticket = _native.issue_ticket(self._key, found.address, found.run, client, self._seconds)
        return 200, {"address": found.address, "ticket": ticket.hex(), "seconds": self._seconds}

    def metrics(self) -> dict[str, Any]:
        """What it has done, and what it knows of the nodes."""
        nodes = self._nodes.states()
        with self._lock:
            return {
                "ready": any(node.is_ready for node in nodes),
                "issued": self._issued,
                "refused": sorted(self._refused.items()),
                "nodes": nodes,
            }


def text_of(found: dict[str, Any]) -> str:
    """Metrics of a desk in Prometheus' text format."""
    nodes = [({"node": node.address}, node) for node in found["nodes"]]
    return text_of_families(
        [
            ("admission_ready", "gauge", "Whether a node takes clients.", [({}, found["ready"])]),
            ("admission_tickets_total", "counter", "Tickets that were issued.", [({}, found["issued"])]),
            (
                "admission_refusals_total",
                "counter",
                "Requests that were refused, by reason.",
                [({"reason": reason}, count) for reason, count in found["refused"]],
            ),
            ("admission_nodes", "gauge", "Nodes.", [({}, len(nodes))]),
            (
                "admission_node_ready",
                "gauge",
                "Whether a node takes clients.",
                [(label, node.is_ready) for label, node in nodes],
            ),
            (
                "admission_waiting_seconds",
                "gauge",
                "Predicted seconds of one nominal core of work that was promised to a node and is not done.",
                [(label, node.waiting) for label, node in nodes],
            ),
            (
                "admission_node_clients",
                "gauge",
                "Clients that have a place at a node or wait for one.",
                [(label, node.clients) for label, node in nodes],
            ),
        ]
    )


class Admission:
    """Answers `POST /v1/sessions` with the address of a node and a ticket. A context manager: answers within `with`.

    The body is JSON: `model`, `images` (the work that is to come), and `failed`, a node that did not answer; or `node`,
    where the client is already and needs another ticket. So is the answer: `address`, `ticket` (hexadecimal), `seconds`
    (its time); or `code`, `retryable` and `message`.
    """

    def __init__(
        self,
        listen: str,
        nodes: Sequence[Node] | Fleet,
        key: bytes,
        *,
        tokens: Path | None = None,
        tls: str | os.PathLike[str] | None = None,
        insecure_plain_tcp: bool = False,
        seconds: float = 60.0,
        tickets_per_client: int = PER_CLIENT,
        requests_per_address: int = PER_ADDRESS,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Listens on `HOST:PORT`.

        Args:
            listen: host and port.
            nodes: where clients are sent; or a function that says it, at each look, by the predicted seconds of work
                that waits.
            key: of `admission_key`.
            tokens: a file of tokens, one a line; clients show one, and tickets have their names.
            tls: `DIR/server` of `pronghorn keys DIR`: answers HTTPS.
            insecure_plain_tcp: HTTP beyond loopback.
            seconds: the time of a ticket.
            tickets_per_client: most a minute of one client, by its token's name, else its address.
            requests_per_address: most a minute of one address, those that are refused included.
            log: is told of refusals, and of files that have changed.

        Raises:
            InputError: a file cannot be used, or HTTP beyond loopback.
            RunError: the address cannot be bound.
        """
        host = listen.rpartition(":")[0].strip("[]")
        if tls is None and host not in ("127.0.0.1", "::1", "localhost") and not insecure_plain_tcp:
            raise InputError(f"{listen} is beyond this machine: give --tls DIR")
        self._desk = desk = Desk(
            nodes,
            key,
            tokens=tokens,
            seconds=seconds,
            tickets_per_client=tickets_per_client,
            requests_per_address=requests_per_address,
            log=log,
        )
        self._end = threading.Event()
        self._log = log
        self._certificate: _Certificate | None = None

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
                if not (length.isascii() and length.isdigit()) or len(length) > 9 or int(length) > MOST_BYTES:
                    return self._say(413, _refusal("protocol", False, f"give a body of at most {MOST_BYTES} bytes"))
                body = self.rfile.read(int(length))
                return self._say(*desk.answer(body, self.headers.get("Authorization"), str(self.client_address[0])))

            def _say(self, status: int, answer: dict[str, Any]) -> None:
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Nodes write down who comes."""

        if tls is not None:
            try:
                self._certificate = _Certificate(Path(tls), log)
            except OSError as error:
                raise InputError(f"{tls} cannot be used: {error}") from error
        bounds = Bounds(MOST_CONNECTIONS, MOST_CONNECTIONS_PER_ADDRESS, LONGEST)
        try:
            self._server = Listener(listen, Handler, bounds)
        except OSError as error:
            raise RunError(f"cannot listen on {listen}: {error}", code="address") from error
        if self._certificate is not None:
            self._server.wrap = self._certificate.wrap

    @property
    def address(self) -> str:
        """Host and port."""
        return self._server.address

    def monitor(self, listen: str) -> Monitor:
        """What watches it, on an address of its own: ready where a node takes clients.

        Raises:
            RunError: the address cannot be bound.
        """
        return Monitor(listen, self._desk.metrics, text_of)

    def _watch(self) -> None:
        while not self._end.wait(LOOK):
            try:
                self._desk.look()
                if self._certificate is not None:
                    self._certificate.refresh()
            except Exception as error:
                # Nodes of a cluster may be out of reach, or threads used up: the next look may do. Until then nodes
                # count as ready for STALE seconds.
                self._log(f"cannot look at the nodes: {error!r}")

    def __enter__(self) -> Admission:
        """Begins to answer, once it has looked at the nodes."""
        self._desk.look()
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


def _stamp(*paths: Path) -> list[tuple[int, int, int] | None]:
    """What changes when a file does."""
    stamps: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            found = path.stat()
            stamps.append((found.st_mtime_ns, found.st_ino, found.st_size))
        except OSError:
            stamps.append(None)
    return stamps


class _Certificate:
    """A certificate that is read again when its files change. Where they cannot be used, that of before serves on."""

    def __init__(self, directory: Path, log: Callable[[str], None]) -> None:
        self._log = log
        self._files = (directory / "server.pem", directory / "server.key")
        self._stamp = _stamp(*self._files)
        self._context = self._read()

    def wrap(self, connection: socket.socket) -> socket.socket:
        """A connection with the certificate of now, whose handshake is still to come."""
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def refresh(self) -> None:
        """Looks at the files."""
        stamp = _stamp(*self._files)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._context = self._read()
            self._log("read the certificate again")
        except OSError as error:
            self._log(f"the certificate has changed and is refused, that of before serves on: {error}")

    def _read(self) -> ssl.SSLContext:
        # A context that has read half of a pair has lost what it had.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(*self._files)
        return context


class _TokenFile:
    """Tokens of a file, which is read again when it changes. One that cannot be used lets nobody in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp, self._tokens = _stamp(path), _read_tokens(path)

    def name_of(self, authorization: str | None) -> str | None:
        """The name in the token; None where it is none of them."""
        with self._lock:
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                try:
                    self._tokens = _read_tokens(self._path)
                except InputError:
                    self._tokens = _Tokens(())
                self._stamp = stamp
            tokens = self._tokens
        return tokens.name_of(authorization)


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
    form = "holds no token: it is NAME.SECRET, as `pronghorn keys DIR --token NAME` makes it"
    try:
        lines = _secret(path).decode().split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} {form}") from error
    tokens = []
    for number, line in enumerate(lines, 1):
        token = line.strip()
        if not token or line.startswith("#"):
            continue
        if len(token) > MOST_TOKEN or TOKEN.fullmatch(token) is None:
            raise InputError(f"{path}, line {number} {form}")
        tokens.append(token.encode())
    return _Tokens(tuple(tokens))


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
    node: str | None = None,
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
        node: the node that the ticket is to be for, where this client is already: for a connection in the background,
            or another after a rest.
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
    body = json.dumps({"model": model, "images": images, "failed": failed, "node": node}).encode()
    request = urllib.request.Request(f"{url.rstrip('/')}{PATH}", body, {"Content-Type": "application/json"})
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        context = ssl.create_default_context(cafile=authority) if scheme == "https" else None
    except OSError as error:
        raise InputError(f"{authority} cannot be used: {error}") from error
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    # A proxy sees what goes to loopback in clear. Of HTTPS it passes bytes on.
    handlers.append(
        urllib.request.ProxyHandler({}) if context is None else urllib.request.HTTPSHandler(context=context)
    )
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
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


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses answers that name another place: the token would go there, perhaps without TLS."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: the status is an error."""
        return None


def _refused(url: str, error: urllib.error.HTTPError) -> RunError:
    try:
        said = json.loads(error.read(MOST_BYTES))
        code, retryable, message = str(said["code"]), said["retryable"] is True, str(said["message"])
    except (OSError, ValueError, KeyError, TypeError):
        code, retryable, message = "protocol", False, f"status {error.code}"
    return RunError(f"the admission service {url} refuses: {message}", code=code, retryable=retryable)
