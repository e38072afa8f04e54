"""Server and client as two real processes over TCP, for the demonstration and the benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pronghorn.errors import RunError

COMMAND = (sys.executable, "-m", "pronghorn")
START_SECONDS = 300.0
STOP_SECONDS = 15.0


class ServerProcess:
    """A running `pronghorn serve`."""

    def __init__(self, process: subprocess.Popen[str], address: str, report: Path) -> None:
        """Use `served`."""
        self._process = process
        self._report = report
        self.address = address
        self.pid = process.pid

    def processor_seconds(self) -> float | None:
        """Its processor time until now; None where the system does not say."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        # In user and in system mode: the 14th and 15th field, after the name the 12th and 13th.
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """Ends it as a crash does."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> dict[str, Any]:
        """Ends it; its report: peak_memory_bytes."""
        stop(self._process)
        try:
            found: dict[str, Any] = json.loads(self._report.read_text())
        except (OSError, ValueError):
            raise RunError("the server process ended without its report") from None
        return found


@contextmanager
def served(model: Path, trust: str, options: Sequence[str] = ()) -> Iterator[ServerProcess]:
    """A server of `model` on a free port; ended on the way out, whatever happens."""
    with tempfile.TemporaryDirectory(prefix="pronghorn-") as folder, tempfile.TemporaryFile("w+") as errors:
        report = Path(folder) / "server.json"
        arguments = [str(model), "--trust", trust, "--listen", "127.0.0.1:0", "--report", str(report)]
        process = subprocess.Popen(
            [*COMMAND, "serve", *arguments, "--exit-with-stdin", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield ServerProcess(process, _address(process, errors), report)
        finally:
            stop(process)


def _address(process: subprocess.Popen[str], errors: IO[str]) -> str:
    """Waits for the line that says where the server listens."""
    address = said(process, "listening on ", START_SECONDS)
    if address is None:
        stop(process)
        errors.seek(0)
        raise RunError(f"the server process did not start:\n{errors.read().strip()[-2000:]}")
    return address


def said(process: subprocess.Popen[str], start: str, seconds: float) -> str | None:
    """The rest of the next line on a process's standard output; None where it does not begin so, or not in time."""
    assert process.stdout is not None
    limit = threading.Timer(seconds, process.kill)
    limit.start()
    try:
        line = process.stdout.readline()
    finally:
        limit.cancel()
    return line.removeprefix(start).strip() if line.startswith(start) else None


def stop(process: subprocess.Popen[str]) -> None:
    """Ends a process by closing its standard input, and by force if that does not help."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def predict(address: str, trust: str, images: Path, options: Sequence[str] = ()) -> dict[str, Any]:
    """Runs `pronghorn predict --json`; its progress bar goes to this process's standard error."""
    arguments = ["--server", address, "--trust", trust, str(images), "--json", *options]
    process = subprocess.Popen(
        [*COMMAND, "predict", *arguments, "--exit-with-stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        output = process.stdout.read()
        if process.wait() != 0:
            raise RunError(f"the client process ended with status {process.returncode}")
        found: dict[str, Any] = json.loads(output)
        return found
    finally:
        process.kill()
        stop(process)


@contextmanager
def pinned(cores: Sequence[int] | None) -> Iterator[None]:
    """Pins this process, and the processes it starts, to cores; None leaves them free."""
    if cores is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def available_cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
