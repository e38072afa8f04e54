"""The log of a server: a line an entry, with time and level, as text or JSON."""

from __future__ import annotations

import datetime
import json
import sys
import threading
from dataclasses import dataclass
from typing import Annotated, Any, TextIO

import typer

from pronghorn.errors import InputError

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


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
    """Writes entries to a file, each in one piece. Times are UTC."""

    def __init__(self, as_json: bool, least: int, file: TextIO) -> None:
        """Use `LogOptions.open`."""
        self._as_json = as_json
        self._least = least
        self._file = file
        self._lock = threading.Lock()

    def __call__(self, level: str, event: str, text: str, fields: dict[str, Any] | None = None) -> None:
        """Writes an entry: what happened in a word, all of it as a line, and its parts."""
        if LEVELS.index(level) < self._least:
            return
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._as_json:
            line = json.dumps({"time": now, "level": level, "event": event, "message": text, **(fields or {})})
        else:
            line = f"{now} {level:7} {text}"
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()
