"""`pronghorn bench`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pronghorn import _bench
from pronghorn._bench import SUITES, Record
from pronghorn._bench.gazelle import bench_gazelle
from pronghorn._bench.rotation_free import bench_rotation_free
from pronghorn._bench.two_party import Network, bench_networks
from pronghorn.cli.results import write
from pronghorn.errors import InputError

INSECURE = {"gazelle": bench_gazelle, "rotation-free": bench_rotation_free}
"""Suites that can also run their paper's insecure parameters."""


def bench(
    suite: Annotated[str, typer.Argument(help=f"One of: {', '.join(SUITES)}.", metavar="SUITE")],
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the records to this file.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats; for trying it out.")] = False,
    model: Annotated[
        list[Path] | None, typer.Option(help="Another network, for the suite two-party; may be given again.")
    ] = None,
    data: Annotated[
        list[Path] | None, typer.Option(help="Its inputs with labels: npz or IDX; as often as --model.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure-paper-parameters",
            help="Also what the papers ran, not secure: of gazelle Tables V to VII, of rotation-free the protocol.",
        ),
    ] = False,
) -> None:
    """Measure, beside published figures."""
    if suite not in SUITES:
        raise InputError(f"there is no suite {suite!r}; there are {', '.join(SUITES)}")
    networks = [Network(*pair) for pair in zip(model or [], data or [], strict=False)]
    if len(networks) != max(len(model or []), len(data or [])):
        raise InputError("--model and --data go together: give each network its inputs")
    if networks and suite != "two-party":
        raise InputError(f"--model and --data are for the suite two-party; {suite} has networks of its own")
    if insecure and suite not in INSECURE:
        raise InputError(f"--insecure-paper-parameters is for {' and '.join(INSECURE)}; {suite} has secure ones only")
    records: list[Record] = []

    def report(record: Record) -> None:
        records.append(record)
        print(_bench.line(record), flush=True)

    if networks:
        bench_networks(networks, report, quick)
    elif insecure:
        INSECURE[suite](report, quick, True)
    else:
        SUITES[suite](report, quick)
    if as_json is not None:
        write(as_json, lambda: as_json.write_text(json.dumps(records, indent=1) + "\n"))
