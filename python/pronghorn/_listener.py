"""An HTTP server of few connections: the admission service and the metrics are behind it."""

from __future__ import annotations

import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from pronghorn._rates import network


class Bounds(NamedTuple):
    """What a listener gives. Connections beyond it are closed without a word."""

    places: int
    """Connections at once."""
    of_address: int
    """Of these, of one address."""
    seconds: float
    """Of a connection, whatever it sends."""


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
        self._open: Counter[str] = Counter()
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
        if not self._take(client_address):
            return self.shutdown_request(request)
        try:
            return super().process_request(request, client_address)
        except RuntimeError:
            # There are no more threads.
            self._give_back(client_address)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Ends it in time, and gives the place back."""
        end = threading.Timer(self._bounds.seconds, _cut, (request,))
        end.daemon = True
        try:
            end.start()
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._give_back(client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break off are no news, and what else fails is."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def _take(self, client_address: Any) -> bool:
        address = network(str(client_address[0]))
        with self._lock:
            if self._open.total() >= self._bounds.places or self._open[address] >= self._bounds.of_address:
                return False
            self._open[address] += 1
            return True

    def _give_back(self, client_address: Any) -> None:
        address = network(str(client_address[0]))
        with self._lock:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        # An SSLSocket's own `shutdown` takes its TLS off, and its thread would then read plain text.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
