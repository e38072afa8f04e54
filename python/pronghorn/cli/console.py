"""Messages on standard error, and the group of commands that prints errors as messages."""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from pronghorn.errors import (
    InputWarning,
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
            with warnings.catch_warnings():
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
