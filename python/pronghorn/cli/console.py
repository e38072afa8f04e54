"""Messages on standard error, and the group of commands that prints errors as messages."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO, cast

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from pronghorn.errors import (
    InputWarning,
    OutputError,
    PrecisionWarning,
    PrepareWarning,
    PronghornError,
    RangeWarning,
    RoundingWarning,
    StoreWarning,
    TrafficWarning,
)

errors = Console(stderr=True)

SHOWN = (InputWarning, PrecisionWarning, PrepareWarning, RangeWarning, RoundingWarning, StoreWarning, TrafficWarning)
"""Warnings that every command shows."""


def say(markup: str) -> None:
    """A line on standard error."""
    errors.print(markup, soft_wrap=True, highlight=False)


def warn(text: str) -> None:
    """A warning on standard error."""
    say(f"[bold yellow]warning:[/] {escape(text)}")


class Commands(TyperGroup):
    """Prints Pronghorn's errors and warnings as one message each; --debug may stand anywhere."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Takes --debug out of `args`."""
        if "--debug" in args:
            args.remove("--debug")
            os.environ["PRONGHORN_DEBUG"] = "1"
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command.

        Raises:
            typer.Exit: with the error's exit code, after its message; 130 after an interrupt.
        """
        try:
            with warnings.catch_warnings(), _checked_output():
                for category in SHOWN:
                    warnings.simplefilter("always", category)
                warnings.showwarning = functools.partial(_show_warning, set())
                return super().invoke(ctx)
        except PronghornError as error:
            if os.environ.get("PRONGHORN_DEBUG"):
                raise
            say(f"[bold red]error:[/] {escape(str(error))}")
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(130) from None


@contextlib.contextmanager
def _checked_output() -> Iterator[None]:
    """Makes a standard output that takes nothing more an error of one line, at the end of `with` at the latest.

    Raises:
        OutputError: it cannot be written.
    """
    if sys.stdout is None:
        yield
        return
    output = cast(TextIO, _StandardOutput(sys.stdout))
    with contextlib.redirect_stdout(output):
        try:
            yield
        except typer.Exit:
            output.flush()
            raise
        output.flush()


class _StandardOutput:
    """A standard output of which a write that fails is an `OutputError`, but for a closed pipe, which Typer handles."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._failure: OutputError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        with self._writing():
            return self._file.write(text)

    def flush(self) -> None:
        with self._writing():
            self._file.flush()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            # Kept, as Typer takes some for an answer.
            self._failure = OutputError(f"standard output cannot be written: {error.strerror}")
            self._drop()
            raise self._failure from error

    def _drop(self) -> None:
        """Lets go of what waits to be written: Python would complain at its exit that it cannot write it."""
        # An output that is no file has nothing to let go of.
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), self._file.fileno())


def _show_warning(
    shown: set[str],
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """As `warnings.showwarning`, without the place in the code. `shown` are the warnings of inputs so far: each is
    shown once, however many pictures it is about."""
    text = str(message)
    if text not in shown:
        warn(text)
    if issubclass(category, InputWarning):
        shown.add(text)
