"""`pronghorn doctor`."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pronghorn import _check, _native
from pronghorn.cli import config
from pronghorn.cli.caps import MaxClientsOption, open_files_allowed
from pronghorn.cli.channel import ServerChannel
from pronghorn.cli.options import JsonOption, StoreOption
from pronghorn.cli.serve import HIDDEN, OF_MODELS, ListenOption, MetricsOption, PlansOption, serve
from pronghorn.cli.spread import spread
from pronghorn.errors import PronghornError

MEMORY = 2 << 30
"""Bytes of memory below which few models are served."""
DISK = 1 << 30
"""Bytes of a disk below which a store is soon full."""
FILES = 4
"""Open files of a client."""
SPARE_FILES = 64
BUILT = 1_735_689_600.0
"""Seconds since 1970 at which this program was not there yet: 2025."""


@dataclass(frozen=True)
class Finding:
    """What was found of one thing."""

    subject: str
    status: str
    """`ok`, `warning` or `error`."""
    text: str


Check = Callable[[], tuple[str, str]]


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Takes the options of a server's file that are checked here as defaults."""
    if path is not None:
        table = config.read(path)[0]
        found = config.defaults(serve, table, path.parent, f"{path}, [server]", OF_MODELS | HIDDEN)
        own = {parameter.name for parameter in context.command.params}
        context.default_map = {key: value for key, value in found.items() if key in own}
    return path


@spread
def doctor(
    *,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", is_eager=True, callback=_read_config, help="The server's file, as of serve."
        ),
    ] = None,
    listen: ListenOption = "127.0.0.1:7700",
    metrics: MetricsOption = None,
    store: StoreOption = None,
    plans: PlansOption = None,
    max_clients: MaxClientsOption = 16,
    channel: ServerChannel,
    as_json: JsonOption = False,
) -> None:
    """Check whether a server can run here: CPU, memory, open files, clock, ports, directories, TLS, models.

    Takes some of serve's options, listed below, or a server's file, of which it reads these options and the models.
    Exit code 1 where something stops a server.
    """
    checks: list[tuple[str, Check]] = [
        ("cpu", _cpu),
        ("memory", _memory),
        ("open files", lambda: _files(max_clients)),
        ("clock", _clock),
        ("port", lambda: _port(_check.address("--listen", listen))),
    ]
    if metrics is not None:
        checks.append(("metrics port", lambda: _port(_check.monitor_address(metrics))))
    for subject, directory in (("store", store), ("plans", plans)):
        if directory is not None:
            checks.append((subject, lambda directory=directory: _directory(directory)))  # type: ignore[misc]
    checks.append(("tls", lambda: _tls(listen, channel)))
    if config_file is not None:
        checks.append(("options", lambda: _options(config_file)))
        checks.append(("models", lambda: _models(config_file)))
    findings = [_found(subject, check) for subject, check in checks]
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        for line in _lines(findings):
            print(line)
    if any(finding.status == "error" for finding in findings):
        raise typer.Exit(1)


def _found(subject: str, check: Check) -> Finding:
    try:
        return Finding(subject, *check())
    except (PronghornError, _native.NativeError, OSError) as error:
        return Finding(subject, "error", " ".join(str(error).split()))


def _lines(findings: list[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"{finding.status:7}  {finding.subject}: {finding.text}"


def _cpu() -> tuple[str, str]:
    level, cores = _native.simd_level(), len(os.sched_getaffinity(0))
    if level == "portable":
        return "warning", f"no AVX2 on {cores} cores: several times slower"
    return "ok", f"{level}, {cores} cores"


def _memory() -> tuple[str, str]:
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    limit = _cgroup_limit()
    least = free if limit is None else min(free, limit)
    of = "" if limit is None else f" of {limit / 1e9:.1f} GB that its control group allows"
    return "ok" if least >= MEMORY else "warning", f"{free / 1e9:.1f} GB available{of}"


def _cgroup_limit() -> int | None:
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        return None


def _files(clients: int) -> tuple[str, str]:
    limit, needed = open_files_allowed(), FILES * clients + SPARE_FILES
    found = f"{limit} may be open, {clients} clients take {needed}"
    return ("ok", found) if limit >= needed else ("error", f"{found}: raise ulimit -n (LimitNOFILE=)")


def _clock() -> tuple[str, str]:
    now = time.time()
    said = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < BUILT:
        return "error", f"it is not {said}: certificates would be refused; set the clock"
    return "ok", said


def _port(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), int(port)))
        except OSError as error:
            return "error", f"{address} cannot be bound: {error.strerror}"
    return "ok", f"{address} is free"


def _directory(path: Path) -> tuple[str, str]:
    if not path.exists():
        parent = next(each for each in path.absolute().parents if each.exists())
        try:
            # To ask for the rights is not enough: root has them all, and makes nothing in /proc.
            with tempfile.TemporaryDirectory(prefix=".pronghorn-", dir=parent):
                return "ok", f"{path} will be made"
        except OSError as error:
            return "error", f"{path} is not there, and cannot be made in {parent}: {error.strerror}"
    if not path.is_dir() or not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return "error", f"{path} is no directory that this user can write"
    if path.stat().st_mode & 0o077:
        return "error", f"others may enter {path}: chmod 700 {path}"
    free = shutil.disk_usage(path).free
    return "ok" if free >= DISK else "warning", f"{path} has room for {free / 1e9:.1f} GB"


def _tls(listen: str, channel: ServerChannel) -> tuple[str, str]:
    files = channel.options()
    if files is not None:
        who = "" if channel.knows_clients else "; clients show nothing, and anybody is served"
        return "ok", f"certificate {_native.check_server_tls(files)}{who}"
    host = _check.address("--listen", listen).rpartition(":")[0]
    if host in ("127.0.0.1", "localhost", "[::1]"):
        return "ok", "none, on loopback"
    if channel.insecure_plain_tcp:
        return "warning", "none: whoever is on the network can change results and read inputs"
    return "error", "none, beyond loopback: give --tls DIR"


def _options(path: Path) -> tuple[str, str]:
    """Reads all options of the server's file as `serve` does, those that are not checked here too."""
    table, where = config.read(path)[0], f"{path}, [server]"
    given = config.parsed(serve, table, path.parent, where, OF_MODELS | HIDDEN)
    for key in table:
        if isinstance(given[key], float):
            _check.seconds(f"{where}: {key}", given[key])
        elif isinstance(given[key], int) and not isinstance(given[key], bool):
            _check.whole(f"{where}: {key}", given[key], 0)
    return "ok", ", ".join(sorted(key.replace("_", "-") for key in table)) or "none are given"


def _models(path: Path) -> tuple[str, str]:
    entries: list[Any] = config.entries(path)
    for entry in entries:
        for file in (entry.file, entry.data):
            if file is not None and not file.exists():
                return "error", f"{entry.name}: there is no {file}"
    return "ok", ", ".join(str(entry.name) for entry in entries)
