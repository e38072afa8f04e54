"""Channels: certificates, keys and tokens."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pronghorn import _check, _native
from pronghorn._model import native_errors
from pronghorn.errors import InputError

PathOption: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class ServerTls:
    """How a server shows who it is, and knows its clients. All are PEM files, read again when they change.

    With both `client_ca` and `tokens` a client needs one of the two. With neither any client is served.
    """

    certificate: PathOption
    """The certificate chain."""
    key: PathOption
    """The private key, which others on this machine must not be able to read."""
    client_ca: PathOption | None = None
    """The CAs of clients' certificates."""
    tokens: PathOption | None = None
    """The tokens of clients, one a line."""


@dataclass(frozen=True)
class ClientTls:
    """How a client knows its server, and shows who it is.

    A fingerprint takes one certificate, whatever its names, dates and issuer. Without it and without `ca` the system's
    CAs count.
    """

    ca: PathOption | None = None
    """A PEM file of the CA of the server's certificate."""
    fingerprint: str | None = None
    """The SHA-256 of the server's certificate, 64 hexadecimal digits; colons are left out."""
    certificate: PathOption | None = None
    """The client's certificate chain, PEM."""
    key: PathOption | None = None
    """Its private key, PEM."""
    name: str | None = None
    """The server's name in its certificate, where it is not the host of the address."""
    directory: PathOption | None = None
    """`DIR/clients/NAME` of `pronghorn keys DIR`, in place of all files."""

    def __post_init__(self) -> None:
        """Checks what goes together."""
        if self.directory is not None and [self.ca, self.fingerprint, self.certificate, self.key] != [None] * 4:
            raise InputError("a directory of keys has all files: give it, or the files one by one")
        if (self.certificate is None) != (self.key is None):
            raise InputError("a client's certificate and its key go together: give both, or none")
        if self.fingerprint is not None:
            if self.ca is not None:
                raise InputError("a fingerprint and a CA are two ways to know the server: give one of the two")
            digits = _check.text("fingerprint", self.fingerprint, "0f" * 32).replace(":", "").lower()
            if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
                raise InputError(f"fingerprint is {self.fingerprint!r}: give the 64 hexadecimal digits of a SHA-256")
            object.__setattr__(self, "fingerprint", digits)


def make_keys(
    directory: PathOption,
    *,
    hosts: Iterable[str] = (),
    clients: Iterable[str] = (),
    tokens: Iterable[str] = (),
    days: int = 365,
) -> list[Path]:
    """Makes a CA, a certificate for the server, and certificates or tokens for clients.

    A CA that is there serves on. The server gets a new certificate where `hosts` are given or it has none.

    Args:
        directory: where. `server` in it is for the server, `clients/NAME` for each client.
        hosts: names and addresses of the server, beside those of its own machine and those before, which `hosts` in
            the directory lists.
        clients: names of clients that get a certificate.
        tokens: names of clients that get a token.
        days: how long certificates are valid.

    Returns: the directories that are new or changed.

    Raises:
        InputError: a name is refused, or a file cannot be written.
    """
    names = {name: [_check.text(name, each, "alice") for each in given] for name, given in
             (("hosts", hosts), ("clients", clients), ("tokens", tokens))}  # fmt: skip
    valid = _check.whole("days", days, 1, 36500)
    with native_errors(InputError):
        return _native.make_keys(Path(directory), names["hosts"], names["clients"], names["tokens"], valid)


def token_of(token: str | os.PathLike[str] | None) -> str | Path | None:
    """A token's text, or the path of its file, as the core takes it."""
    return token if token is None or isinstance(token, str) else Path(token)
