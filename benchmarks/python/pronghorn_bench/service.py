"""A server that is killed and started again, and a line to it that is cut: for `faults` and `load`."""

from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from pronghorn import _processes
from pronghorn.errors import RunError

START_SECONDS = 600.0
RESET = struct.pack("ii", 1, 0)
"""`SO_LINGER` that makes closing a reset."""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


class Server:
    """A process of `pronghorn serve`, which can be killed and started again at its port."""

    def __init__(self, options: Sequence[str], names_itself: bool = False) -> None:
        """Starts it. `names_itself`: it takes tickets with its address."""
        self.address = f"127.0.0.1:{free_port()}"
        self._options = [*options, *(["--node", self.address] if names_itself else [])]
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        arguments = [*_processes.COMMAND, "serve", "--listen", self.address, *self._options]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=self._errors, text=True)
        assert process.stdout is not None
        limit = threading.Timer(START_SECONDS, process.kill)
        limit.start()
        line = process.stdout.readline()
        limit.cancel()
        if not line.startswith("listening on "):
            process.kill()
            process.wait()
            raise RunError(f"the server did not start:\n{self.log()[-2000:]}")
        return process

    def log(self) -> str:
        """What it has said."""
        # Without moving the place where the server writes.
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode(errors="replace")

    def resident_bytes(self) -> int:
        """Bytes of its memory; 0 where the system does not say."""
        return resident_bytes(self._process.pid)

    def kill(self) -> None:
        """Ends it as a crash does."""
        self._process.kill()
        self._process.communicate()

    def restart(self) -> None:
        """Kills it, and starts another at its port."""
        self.kill()
        self._process = self._start()

    def stop(self) -> None:
        """Ends it for good."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.kill()
        self._errors.close()


class Line:
    """A line to an address, which can be cut."""

    def __init__(self, address: str) -> None:
        """Listens on a port of its own."""
        host, _, port = address.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._open.discard(end)

    def cut(self, chance: random.Random) -> bool:
        """Resets all connections, from one side or the other; whether there was one."""
        with self._lock:
            ends, self._open = list(self._open), set()
        chance.shuffle(ends)
        for end in ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        return bool(ends)

    def close(self) -> None:
        """Ends it."""
        self._listener.close()
        self.cut(random.Random(0))


def resident_bytes(pid: int) -> int:
    """Bytes of a process's memory; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0
