"""Parties that are processes: each answers a line of its input with a line of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pronghorn import _processes
from pronghorn.errors import RunError

PROGRAMS = Path(__file__).parent / "programs"
STOP_SECONDS = 15.0


@dataclass(frozen=True)
class Party:
    """A running program of `PROGRAMS`."""

    program: str
    process: subprocess.Popen[str]
    errors: IO[str]

    def ask(self, line: object) -> None:
        """Writes a line."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def answer(self) -> dict[str, Any]:
        """Waits for the next line.

        Raises:
            RunError: the process has ended; with the end of what it wrote to standard error.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise self._ended()
        found: dict[str, Any] = json.loads(line)
        return found

    def _ended(self) -> RunError:
        self.errors.seek(0)
        return RunError(f"the process of {self.program} ended:\n{self.errors.read().strip()[-2000:]}")


@contextmanager
def started(
    program: str, settings: dict[str, Any], cores: Sequence[int], python: str = sys.executable
) -> Iterator[Party]:
    """A party on these cores, which has its settings; ended on the way out."""
    with tempfile.TemporaryFile("w+") as errors:
        with _processes.pinned(cores):
            # Run by its path, and without its folder among the modules: it may be another environment's.
            process = subprocess.Popen(
                [python, "-P", str(PROGRAMS / program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            party = Party(program, process, errors)
            party.ask(json.dumps(settings))
            yield party
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    """Ends a process by closing its standard input, and by force if that does not help."""
    try:
        process.communicate(timeout=STOP_SECONDS)
    except (subprocess.TimeoutExpired, OSError):
        process.kill()
        process.communicate()
