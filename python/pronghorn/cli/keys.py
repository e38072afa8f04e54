"""`pronghorn keys`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pronghorn import _tls


def keys(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the CA is, or is to be.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Name or address of the server, beside those before; may be given again. Makes a new certificate.",
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Client that gets a certificate; may be given again."),
    ] = None,
    token: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Client that gets a token; may be given again.")
    ] = None,
    days: Annotated[int, typer.Option(metavar="N", min=1, max=36500, help="Days that certificates are valid.")] = 365,
) -> None:
    """Make an own CA, with certificates and tokens for TLS.

    A server that runs reads new files by itself.
    """
    made = _tls.make_keys(directory, hosts=host or (), clients=client or (), tokens=token or (), days=days)
    for path in made:
        if path.name == "server" and path.parent == directory:
            names = ", ".join((directory / "hosts").read_text(encoding="utf-8").split())
            print(f"{path}: for the server, serve --tls {path}; its certificate is for {names}")
        else:
            print(f"{path}: for {path.name} alone, predict --tls {path}")
    print(f"{directory / 'ca.key'}: makes further certificates; keep it off the server")
