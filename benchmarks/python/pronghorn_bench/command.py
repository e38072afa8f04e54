"""The command line: `pronghorn bench`, or `python -m pronghorn_bench`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from pronghorn._data import Preprocessing
from pronghorn._model.options import ROUNDINGS
from pronghorn.cli.spread import spread
from pronghorn.cli.values import parse_numbers
from pronghorn.errors import InputError
from pronghorn_bench import SUITES, Record, Report, mobilenets, networks, peers
from pronghorn_bench.cases import BUILT_IN, Choice, File
from pronghorn_bench.gazelle import bench_gazelle
from pronghorn_bench.predicted import PLANNED_FOR
from pronghorn_bench.rotation_free import bench_rotation_free
from pronghorn_bench.tables import WIDTH, print_tables
from pronghorn_bench.two_party import bench_files

INSECURE = {"gazelle": bench_gazelle, "rotation-free": bench_rotation_free}
"""Suites that can also run their paper's insecure parameters."""
CHOOSING = (networks.SUITE, peers.SUITE)
"""Suites that take a `Choice`."""
NETWORKS = {name: network for network, name in PLANNED_FOR.items()}

T = TypeVar("T")

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@dataclass(frozen=True)
class Files:
    """Further networks."""

    model: Annotated[
        list[Path] | None,
        typer.Option(
            help="Another network, for the suites two-party, networks, peers and mobilenets; may be given again."
        ),
    ] = None
    data: Annotated[
        list[Path] | None, typer.Option(help="Its inputs with labels: npz or IDX; as often as --model.")
    ] = None
    mean: Annotated[
        str | None,
        typer.Option(metavar="M[,M,M]", help="Subtract this from the inputs of --data, one or one a channel."),
    ] = None
    std: Annotated[str | None, typer.Option(metavar="S[,S,S]", help="Then divide by this, one or one a channel.")] = (
        None
    )

    def read(self) -> tuple[File, ...]:
        """Each with its data."""
        if len(self.model or []) != len(self.data or []):
            raise InputError("--model and --data go together: give each network its inputs")
        preprocessing = Preprocessing(
            mean=None if self.mean is None else parse_numbers("--mean", self.mean),
            std=None if self.std is None else parse_numbers("--std", self.std),
        )
        pairs = zip(self.model or [], self.data or [], strict=True)
        return tuple(File(model, data, preprocessing) for model, data in pairs)


@dataclass(frozen=True)
class Chosen:
    """What the suites networks and peers run."""

    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Only this network of the suites networks and peers: {', '.join(BUILT_IN)}, or the name of a --model "
            "without .onnx; may be given again.",
        ),
    ] = None
    network: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NETWORK",
            help="Only through this network between the parties: loopback, lan (1 Gbit/s, 1 ms) or wan (100 Mbit/s, 40 "
            "ms); may be given again.",
        ),
    ] = None
    images: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            help="Images, one after the other (default: as many as 10 seconds allow, at least 2); of mobilenets, in "
            "one batch (default: 4096).",
        ),
    ] = None
    rounding: Annotated[
        str | None,
        typer.Option(
            metavar="ROUNDING",
            help=f"Rounding of values between layers in the suite networks: {', '.join(ROUNDINGS)} (default: nearest).",
        ),
    ] = None
    peer: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"Only this peer: {', '.join(peers.NAMES)}; may be given again."),
    ] = None
    spu: Annotated[
        Path | None,
        typer.Option(
            metavar="PYTHON",
            envvar="PRONGHORN_SPU_PYTHON",
            help="The Python interpreter of an environment that has SPU.",
        ),
    ] = None

    def choice(self, files: tuple[File, ...], quick: bool) -> Choice:
        """With defaults for what is not chosen."""
        found = replace(Choice.default(quick), files=files)
        if self.only or files:
            found = replace(found, only=tuple(self.only or ()))
        if self.network:
            found = replace(found, networks=tuple(_named(name, NETWORKS, "network") for name in self.network))
        found = replace(found, rounding=self.rounding)
        return found if self.images is None else replace(found, images=self.images)

    def peers(self) -> peers.Installed:
        """Those that are installed."""
        names = [_named(name, {each: each for each in peers.NAMES}, "peer") for name in self.peer or []]
        return peers.Installed.find(names, self.spu)


def _named(name: str, known: dict[str, T], what: str) -> T:
    if name not in known:
        raise InputError(f"there is no {what} {name!r}; there are {', '.join(known)}")
    return known[name]


@app.command()
@spread
def bench(
    suite: Annotated[str, typer.Argument(help=f"One of: {', '.join(SUITES)}.", metavar="SUITE")],
    *,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the records to this file.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats; for trying it out.")] = False,
    files: Files,
    chosen: Chosen,
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
    given = files.read()
    _check(suite, files, chosen, insecure)
    report = Report()
    try:
        if suite == networks.SUITE:
            networks.run_networks(chosen.choice(given, quick), report)
        elif suite == peers.SUITE:
            peers.run_peers(chosen.peers(), chosen.choice(given, quick), report, quick)
        elif given and suite == mobilenets.SUITE:
            mobilenets.run_mobilenets(chosen.choice(given, quick), report, quick)
        elif given:
            bench_files(list(given), report, quick)
        elif insecure:
            INSECURE[suite](report, quick, True)
        else:
            SUITES[suite](report, quick)
    finally:
        print_tables(report.headlines, _console())
        if as_json is not None:
            _write(as_json, report.records)


def _check(suite: str, files: Files, chosen: Chosen, insecure: bool) -> None:
    """Refuses options that the suite does not have."""
    takes_files = ("two-party", mobilenets.SUITE, *CHOOSING)
    preprocessing = (mobilenets.SUITE, *CHOOSING)
    options: dict[str, tuple[object, tuple[str, ...]]] = {
        "--model and --data are": (files.model, takes_files),
        "--mean and --std are": (files.mean or files.std, preprocessing),
        "--only and --network are": (chosen.only or chosen.network, CHOOSING),
        "--images is": (chosen.images, preprocessing),
        "--rounding is": (chosen.rounding, (networks.SUITE,)),
        "--peer is": (chosen.peer, (peers.SUITE,)),
        "--insecure-paper-parameters is": (insecure, tuple(INSECURE)),
    }
    for names, (given, suites) in options.items():
        if given and suite not in suites:
            raise InputError(f"{names} for {' and '.join(suites)}, not for {suite}")


def _console() -> Console:
    """Of the terminal's width, or of a table's where the output goes to a file."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def _write(path: Path, records: list[Record]) -> None:
    try:
        path.write_text(json.dumps(records, indent=1) + "\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from error
