"""How the command line names channels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pronghorn._tls import ClientTls, ServerTls
from pronghorn.errors import InputError

CertificateOption = Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Own certificate (PEM).")]
KeyOption = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key (PEM).")]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure-plain-tcp",
        help="Use no TLS beyond loopback: whoever is on the network can change results, read inputs bit by bit and "
        "pose as either party.",
    ),
]


@dataclass(frozen=True)
class ServerChannel:
    """How a server's connections are protected."""

    tls: Annotated[
        Path | None, typer.Option("--tls", metavar="DIR", help="Speak TLS with DIR/server of `pronghorn keys DIR`.")
    ] = None
    tls_cert: CertificateOption = None
    tls_key: KeyOption = None
    client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ask clients for a certificate of this CA (PEM).")
    ] = None
    tokens: Annotated[Path | None, typer.Option(metavar="FILE", help="Ask clients for one of these tokens.")] = None
    insecure_plain_tcp: InsecureOption = False

    @property
    def knows_clients(self) -> bool:
        """Whether clients show a certificate or a token."""
        return any(file is not None for file in (self.tls, self.client_ca, self.tokens))

    def options(self) -> Path | ServerTls | None:
        """What `serve` takes as `tls`; None for plain TCP.

        Raises:
            InputError: options that do not go together.
        """
        files = [self.tls_cert, self.tls_key, self.client_ca, self.tokens]
        if self.tls is None and files == [None] * 4:
            return None
        if self.insecure_plain_tcp:
            raise InputError("--insecure-plain-tcp is without TLS: leave it out, or the files of TLS")
        if self.tls is not None:
            if files != [None] * 4:
                raise InputError("--tls names a directory with all files: give it, or the files one by one")
            return self.tls
        if self.tls_cert is None or self.tls_key is None:
            raise InputError("TLS needs a certificate and its key: give --tls-cert and --tls-key, or --tls DIR")
        return ServerTls(self.tls_cert, self.tls_key, self.client_ca, self.tokens)


@dataclass(frozen=True)
class ClientChannel:
    """How a client's connection is protected."""

    tls: Annotated[
        Path | None,
        typer.Option(
            "--tls",
            metavar="DIR",
            help="Speak TLS with clients/NAME of `pronghorn keys`, which the server's owner sent.",
        ),
    ] = None
    tls_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CA of the server's certificate (PEM; default: the system's).")
    ] = None
    tls_fingerprint: Annotated[
        str | None, typer.Option(metavar="HEX", help="SHA-256 of the server's certificate: take this one alone.")
    ] = None
    tls_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name in the server's certificate (default: the address's host).")
    ] = None
    tls_cert: CertificateOption = None
    tls_key: KeyOption = None
    token: Annotated[Path | None, typer.Option(metavar="FILE", help="File with this client's token.")] = None
    insecure_plain_tcp: InsecureOption = False

    def options(self) -> ClientTls | None:
        """What `connect` takes as `tls`; None where nothing is said of it.

        Raises:
            InputError: options that do not go together.
        """
        files = [self.tls_ca, self.tls_fingerprint, self.tls_name, self.tls_cert, self.tls_key]
        given = files != [None] * 5
        if self.insecure_plain_tcp and (given or self.tls is not None or self.token is not None):
            raise InputError("--insecure-plain-tcp is without TLS: leave it out, or the options of TLS")
        if self.tls is None:
            return ClientTls(*self._files()) if given else None
        if files != [None, None, self.tls_name, None, None]:
            raise InputError("--tls names a directory with all files: give it, or the options one by one")
        if (self.tls / "server.pem").exists() or (self.tls / "clients").is_dir():
            raise InputError(f"--tls {self.tls} is a server's or the owner's directory: give DIR/clients/NAME")
        return ClientTls(directory=self.tls, name=self.tls_name)

    def of_admission(self) -> tuple[str | None, Path | None]:
        """The token that is shown to an admission service, and the CA of its certificate.

        Raises:
            InputError: the file of the token cannot be read.
        """
        inside = None if self.tls is None else self.tls / "token"
        file = self.token or (inside if inside is not None and inside.exists() else None)
        authority = self.tls_ca if self.tls is None else self.tls / "ca.pem"
        try:
            return None if file is None else file.read_text().strip(), authority
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error}") from error

    def _files(self) -> tuple[Path | None, str | None, Path | None, Path | None, str | None]:
        return self.tls_ca, self.tls_fingerprint, self.tls_cert, self.tls_key, self.tls_name
