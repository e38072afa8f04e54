"""The limits on what clients use as options: those of the core's table."""

from __future__ import annotations

import dataclasses
import resource
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pronghorn._network import limits

MOST_FILES = 1 << 16
"""Open files that a server asks the system for at most."""

MaxClientsOption = Annotated[int, typer.Option("--max-clients", metavar="N", min=1, help="Most sessions at once.")]

_NAMES = {limit.name.replace("-", "_"): limit.name for limit in limits()}


def _options() -> list[tuple[str, Any, Any]]:
    """A field for each limit: its name, type and default."""
    options = []
    for limit in limits():
        percent = 100 if limit.unit == "percent" else None
        option = typer.Option(f"--{limit.name}", metavar="N", min=1, max=percent, help=f"{limit.help}.")
        name = limit.name.replace("-", "_")
        options.append((name, Annotated[int | None, option], dataclasses.field(default=limit.default)))
    return options


if TYPE_CHECKING:

    @dataclasses.dataclass(frozen=True)
    class Caps:
        """How much clients may use."""

        max_clients: int | None = None

else:
    Caps = dataclasses.make_dataclass("Caps", _options(), frozen=True)


def caps_of(caps: Caps) -> dict[str, int | None]:
    """The limits by their names."""
    return {_NAMES[name]: value for name, value in dataclasses.asdict(caps).items()}


def open_files_allowed() -> int:
    """Raises this process' limit on open files as far as the system lets it; the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
