"""An HTTP server of few connections: the admission service and the metrics are behind it."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from pronghorn._rates import network


class Bounds(NamedTuple):
    """What a listener gives. Connections beyond it are closed without a word."""

    places: int
    """Connections at once. Where all are taken, a newcomer gets the oldest of who holds most."""
    of_address: int
    """Of these, of one address."""
    seconds: float
    """Of a connection, whatever it sends."""


class _Open(NamedTuple):
    """A connection."""

    address: str
    block: str
    """Addresses that one customer of a provider may have."""
    until: float


class Listener(ThreadingHTTPServer):
    """Listens on `HOST:PORT`, with a thread for each connection, within bounds."""

    daemon_threads = True
    wrap: Callable[[socket.socket], socket.socket] | None = None
    """Makes a TLS connection of one. The handshake is its thread's: a silent client keeps nobody waiting."""

    def __init__(self, listen: str, handler: type[BaseHTTPRequestHandler], bounds: Bounds) -> None:
        """Binds the address; OSError where it cannot be bound."""
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._bounds = bounds
        self._lock = threading.Lock()
        self._open: dict[socket.socket, _Open] = {}
        """The oldest first."""
        super().__init__((host, int(port)), handler)

    @property
    def address(self) -> str:
        """Host and port."""
        host, port = self.server_address[:2]
        return f"{host!s}:{port}"

    def get_request(self) -> tuple[socket.socket, Any]:
        """A connection, of TLS where it is to be."""
        connection, address = super().get_request()
        return connection if self.wrap is None else self.wrap(connection), address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Gives it a thread, where there is a place."""
        if not self._take(request, client_address):
            return self.shutdown_request(request)
        try:
            return super().process_request(request, client_address)
        except RuntimeError:
            # There are no more threads.
            self._give_back(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Gives the place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._give_back(request)

    def service_actions(self) -> None:
        """Between connections, and twice a second: ends those whose time is over."""
        now = time.monotonic()
        with self._lock:
            for connection, each in self._open.items():
                if now > each.until:
                    _cut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break off are no news, and what else fails is."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def _take(self, connection: socket.socket, client_address: Any) -> bool:
        found = str(client_address[0])
        new = _Open(network(found), network(found, 48), time.monotonic() + self._bounds.seconds)
        with self._lock:
            if sum(each.address == new.address for each in self._open.values()) >= self._bounds.of_address:
                return False
            if len(self._open) >= self._bounds.places and not self._makes_room(new.block):
                return False
            self._open[connection] = new
            return True

    def _makes_room(self, block: str) -> bool:
        """Whether somebody has more places than the newcomer would have, and gives his oldest up."""
        held = Counter(each.block for each in self._open.values())
        largest, places = held.most_common(1)[0]
        if places <= held[block] + 1:
            return False
        oldest = next(connection for connection, each in self._open.items() if each.block == largest)
        del self._open[oldest]
        _cut(oldest)
        return True

    def _give_back(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.pop(connection, None)


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        # An SSLSocket's own `shutdown` takes its TLS off, and its thread would then read plain text.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
