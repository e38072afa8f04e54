"""The log of a server: a line an entry, with time and level, as text or JSON."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import json
import queue
import sys
import threading
from dataclasses import dataclass
from typing import Annotated, Any, TextIO

import typer

from pronghorn.errors import InputError

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
MOST_WAITING = 1 << 12
"""Lines that wait to be written."""
LAST_WORDS = 1.0
"""Seconds that the end of a process waits for its log."""


@dataclass(frozen=True)
class LogOptions:
    """How much is written down, and how."""

    log_format: Annotated[
        str, typer.Option(metavar="FORMAT", help=f"Format of the log on standard error: {' or '.join(FORMATS)}.")
    ] = "text"
    log_level: Annotated[
        str, typer.Option(metavar="LEVEL", help=f"Least level of what is logged: {', '.join(LEVELS)}.")
    ] = "info"

    def open(self) -> Log:
        """The log.

        Raises:
            InputError: there is no such format or level.
        """
        for option, value, known in (("format", self.log_format, FORMATS), ("level", self.log_level, LEVELS)):
            if value not in known:
                raise InputError(f"--log-{option} is {value}: give one of {', '.join(known)}")
        return Log(self.log_format == "json", LEVELS.index(self.log_level), sys.stderr)


class Log:
    """Writes entries to a file, each in one piece. Times are UTC.

    A thread of its own writes: nobody who serves waits for whoever reads the file. Where that one stands still, entries
    are lost, and counted.
    """

    def __init__(self, as_json: bool, least: int, file: TextIO) -> None:
        """Use `LogOptions.open`."""
        self._as_json = as_json
        self._least = least
        self._file = file
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_WAITING)
        self._lost = 0
        self._lock = threading.Lock()
        self._writer = threading.Thread(target=self._write, name="pronghorn log", daemon=True)
        self._writer.start()
        atexit.register(self.close)

    def __call__(self, level: str, event: str, text: str, fields: dict[str, Any] | None = None) -> None:
        """Writes an entry: what happened in a word, all of it as a line, and its parts."""
        if LEVELS.index(level) < self._least:
            return
        line = self._line(level, event, text, fields or {})
        if not self._writer.is_alive():
            # After `close`.
            self._put(line)
            return
        with self._lock:
            try:
                self._lines.put_nowait(line)
            except queue.Full:
                self._lost += 1

    def close(self) -> None:
        """Writes what is left, if that takes no longer than a second."""
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=LAST_WORDS)
            self._writer.join(LAST_WORDS)

    def _line(self, level: str, event: str, text: str, fields: dict[str, Any]) -> str:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._as_json:
            return json.dumps({"time": now, "level": level, "event": event, "message": text, **fields})
        return f"{now} {level:7} {text}"

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            self._put(line)
            self._tell_lost()
        self._tell_lost()

    def _tell_lost(self) -> None:
        with self._lock:
            lost, self._lost = self._lost, 0
        if lost:
            text = f"{lost} lines of this log are lost: nobody read it for a while"
            self._put(self._line("warning", "lost", text, {"lines": lost}))

    def _put(self, line: str) -> None:
        # A file that takes nothing more ends the log, not the server.
        with contextlib.suppress(OSError, ValueError):
            self._file.write(line + "\n")
            self._file.flush()
