"""A relay that makes a connection as slow as a network of some rate and delay.

Each direction is a line of its own, without loss and without TCP's slow start.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic, sleep

from pronghorn.errors import RunError

CHUNK = 16 << 10
"""Most bytes that are released at once: 1.3 ms at 100 Mbit/s."""
PROGRAM = "import sys; from pronghorn_bench.shaper import main; main(*sys.argv[1:])"
SEND_BUFFER = 4 << 20
"""Bytes that a sender's system takes beyond what is under way; further ones wait at the sender."""


@dataclass(frozen=True)
class Network:
    """A network between two parties."""

    name: str
    bits_per_second: float
    round_trip: float
    """Seconds."""

    def __str__(self) -> str:
        """For people."""
        return self.name

    def transfer_seconds(self, size: float) -> float:
        """How long so many bytes take to leave."""
        return 8 * size / self.bits_per_second


LAN = Network("1 Gbit/s, 1 ms", 1e9, 1e-3)
WAN = Network("100 Mbit/s, 40 ms", 1e8, 40e-3)


class Line:
    """One direction: when bytes that arrive come out. It knows no clock: times are what it is told."""

    def __init__(self, bits_per_second: float, delay: float) -> None:
        """`delay` in seconds, one way."""
        self._seconds_per_byte = 8 / bits_per_second
        self._delay = delay
        self._free = 0.0
        self.most = SEND_BUFFER + int(2 * delay / self._seconds_per_byte)
        """Bytes that may be between arrival and release."""

    def arrive(self, size: int, now: float) -> float:
        """When `size` bytes that arrive now come out: after those before them, at the line's rate, and the delay."""
        self._free = max(self._free, now) + size * self._seconds_per_byte
        return self._free + self._delay


class _Direction:
    """Takes bytes from one socket and gives them to another when the line does; a thread each."""

    def __init__(self, line: Line, source: socket.socket, target: socket.socket) -> None:
        self._line, self._source, self._target = line, source, target
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._waiting = 0
        self._changed = threading.Condition()
        for work in (self._take, self._give):
            threading.Thread(target=work, daemon=True).start()

    def _take(self) -> None:
        while True:
            chunk = b""
            with suppress(OSError):
                chunk = self._source.recv(CHUNK)
            due = self._line.arrive(len(chunk), monotonic())
            with self._changed:
                # An empty chunk is the end.
                self._chunks.append((due, chunk))
                self._waiting += len(chunk)
                self._changed.notify_all()
                if not chunk:
                    return
                self._changed.wait_for(lambda: self._waiting < self._line.most)

    def _give(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._chunks)
                due, chunk = self._chunks.popleft()
            sleep(max(0.0, due - monotonic()))
            with suppress(OSError):
                # Where the target is gone, the source finds out by its own direction.
                if not chunk:
                    self._target.shutdown(socket.SHUT_WR)
                    return
                self._target.sendall(chunk)
            with self._changed:
                self._waiting -= len(chunk)
                self._changed.notify_all()
            if not chunk:
                return


def relay(listener: socket.socket, target: tuple[str, int], network: Network) -> None:
    """Passes every connection on to the target; does not return. Where the target does not listen yet, it hangs up."""
    while True:
        client, _ = listener.accept()
        try:
            server = socket.create_connection(target)
        except OSError:
            client.close()
            continue
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink in ((client, server), (server, client)):
            _Direction(Line(network.bits_per_second, network.round_trip / 2), source, sink)


@contextmanager
def shaped(address: str, network: Network | None) -> Iterator[str]:
    """An address that leads to `address` through a network, by a process of its own; none: `address` itself."""
    if network is None:
        yield address
        return
    settings = (address, str(network.bits_per_second), str(network.round_trip))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *settings],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not line:
            raise RunError("the relay's process did not start")
        yield line
    finally:
        process.kill()
        process.communicate()


def main(address: str, bits_per_second: str, round_trip: str) -> None:
    """Relays from a free port, which it prints, until standard input ends."""
    host, port = address.rsplit(":", 1)
    listener = socket.create_server(("127.0.0.1", 0))
    network = Network("", float(bits_per_second), float(round_trip))
    threading.Thread(target=relay, args=(listener, (host, int(port)), network), daemon=True).start()
    print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)
    sys.stdin.read()
