"""Options that several commands share."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from pronghorn import _native, _trust
from pronghorn._categories import NO_CATEGORIES, Categories
from pronghorn._data import Loaded, Preprocessing, load_images, shape_of_one
from pronghorn._model import Model, PlanOptions, load_with
from pronghorn._model.options import ENGINES_OF, PASSES_OF
from pronghorn._tables import header, is_table
from pronghorn.cli.console import say
from pronghorn.cli.values import parse_fixed, parse_numbers, parse_shape, parse_size
from pronghorn.errors import InputError, InputWarning

SAMPLES = 256
"""Most images that set the fixed point."""
TABLE_SAMPLES = 4096
"""Most rows of features. They are cheap, and each feature is clamped to a range of its own."""


def _choices(listed: list[tuple[str, str]]) -> str:
    """Names that may be given, each with what it is."""
    return "; ".join(f"{name} ({what})" for name, what in listed) + "."


ModelArgument = Annotated[Path, typer.Argument(help="An ONNX file.", metavar="MODEL")]
TrustOption = Annotated[
    str | None,
    typer.Option(
        "--trust",
        metavar="LEVEL",
        help=f"Who may learn what: {', '.join(_trust.REVEALS)} (default: {_trust.DEFAULT}); "
        "`plan` and `verify` take multi-key, too.",
    ),
]
ServerOption = Annotated[str, typer.Option("--server", metavar="HOST:PORT", help="Address of the server.")]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", metavar="N", min=1, help="Threads to compute with (default: all cores).")
]
LimitOption = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Use only the first N images.")]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="DIR",
        help="Directory for prepared batches, publications and key seeds, all secret (default: memory).",
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write a page with charts of the time and bytes of each step."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LabelColumnOption = Annotated[
    str | None,
    typer.Option("--labels", metavar="COLUMN", help="Column of a table of --data that is no feature."),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Typical images, which set the fixed point: npz, npy, IDX, CSV, parquet or a folder.",
    ),
]
InputRangeOption = Annotated[
    str | None, typer.Option(metavar="LOW,HIGH", help="Least and largest input (default: those of bytes).")
]
InputShapeOption = Annotated[
    str | None, typer.Option(metavar="NAME=1,C,H,W", help="Input shape, where the model leaves it open.")
]
OutputValueOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="The value to compute (default: the output). Repeat it for several, whose names clients get.",
    ),
]
FixedOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="A value of an input that is no data but the same for all images: a number, or an npy file. Repeat it for "
        "several.",
    ),
]
BeginOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Begin the network at this value: clients compute what is before it, in the clear (pronghorn front). "
        "Repeat it for several.",
    ),
]
OutputsOption = Annotated[
    str | None,
    typer.Option(
        "--outputs",
        metavar="KIND",
        help="Kind of the outputs: classes (one of several), labels (each holds or not) or values (a regression, a "
        "map). Default: classes for a row of numbers, labels for one after a Sigmoid, else values, as for several "
        "outputs.",
    ),
]
ExitWithStdin = Annotated[bool, typer.Option("--exit-with-stdin", hidden=True)]


@dataclass(frozen=True)
class Preparation:
    """How files become inputs."""

    scale: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Divide values by this (default: 255 for bytes, 1 for floats and where the model takes bytes as they "
            "are; other integers need one). Of inputs by name, --scale, --mean and --std are for pictures alone.",
        ),
    ] = None
    mean: Annotated[str | None, typer.Option(metavar="M[,M,M]", help="Then subtract this, one or one a channel.")] = (
        None
    )
    std: Annotated[str | None, typer.Option(metavar="S[,S,S]", help="Then divide by this, one or one a channel.")] = (
        None
    )
    resize: Annotated[bool, typer.Option("--resize", help="Stretch pictures to the model's size.")] = False
    short_side: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1 << 16,
            metavar="PIXELS",
            help="Scale the shorter side of pictures to this, then cut out the middle (ImageNet models: 256).",
        ),
    ] = None

    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line of CSV has names of columns (default: where a cell of it is no number, or "
            "its numbers are clearly names).",
        ),
    ] = None

    def values(self, as_they_are: bool = False) -> Preprocessing:
        """The preprocessing; `as_they_are`: bytes are not divided unasked.

        Raises:
            InputError: an option cannot be read, or two exclude each other.
        """
        if self.resize and self.short_side is not None:
            raise InputError("--resize stretches pictures and --short-side cuts them: give one of the two")
        mean = None if self.mean is None else parse_numbers("--mean", self.mean)
        std = None if self.std is None else parse_numbers("--std", self.std)
        byte_scale = 1.0 if as_they_are else 255.0
        return Preprocessing(self.scale, mean, std, self.resize, self.short_side, byte_scale, self.header)

    def arguments(self) -> list[str]:
        """These options as another process takes them."""
        given: dict[str, object] = {
            "--scale": self.scale,
            "--mean": self.mean,
            "--std": self.std,
            "--short-side": self.short_side,
        }
        options = [text for name, value in given.items() if value is not None for text in (name, str(value))]
        flags = ["--resize"] if self.resize else []
        if self.header is not None:
            flags.append("--header" if self.header else "--no-header")
        return [*options, *flags]

    def load(
        self,
        path: Path,
        shape: tuple[int, ...],
        as_they_are: bool,
        label_column: str | None = None,
        columns: Sequence[str] = (),
        parts: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
        categories: Categories = NO_CATEGORIES,
    ) -> Loaded:
        """The images of a file or folder; `as_they_are`: bytes are not divided unasked. `columns`: the names of the
        features that the model takes, where they are known. `parts`: the shapes of its inputs. `categories`: the values
        that are categories."""
        return load_images(path, shape, self.values(as_they_are), label_column, columns, parts, categories)

    def load_for(
        self, model: Model, path: Path, label_column: str | None = None, columns: Sequence[str] = ()
    ) -> Loaded:
        """The images of a file or folder for a model; a table's columns by `columns`, or by the names that the model
        knows."""
        # Of several inputs each may be a column. Only then the table's names are asked before it is read.
        names = header(path, self.header) if len(model.inputs) > 1 and is_table(path) else ()
        known = columns or model.columns_of(names)
        given = path, model.network_shape, model.takes_bytes, label_column, known, model.inputs, model.categories
        return self.load(*given)

    def calibrate(self, model: Model, found: Loaded) -> Model:
        """`model` with some of the images, which may be sorted, as samples, and with the names of their features."""
        with warnings.catch_warnings():
            if self.scale is not None:
                # Whoever names a scale means it.
                warnings.simplefilter("ignore", InputWarning)
            most = TABLE_SAMPLES if len(model.network_shape) == 1 else SAMPLES
            samples = found.images
            if len(samples) > most:
                samples = samples[sorted(random.Random(0).sample(range(len(samples)), most))]
            return model.calibrated(samples, columns=found.columns)


@dataclass(frozen=True)
class ModelOptions:
    """How a model is read and planned."""

    trust: TrustOption = None
    input_range: InputRangeOption = None
    shape: InputShapeOption = None
    output: OutputValueOption = None
    fixed: FixedOption = None
    begin: BeginOption = None
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Most memory of the server, such as 8G.")] = None
    weight_bits: Annotated[
        int | None, typer.Option(metavar="N", help="Bits of all weights (default: chosen for each layer).")
    ] = None
    input_bits: Annotated[
        int | None, typer.Option(metavar="N", help="Bits of all layers' inputs (default: chosen for each layer).")
    ] = None
    error: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Error of results to aim at, 0.0001 to 2 of their spread (default: 0.05; two-party and coefficient "
            "engine 0.02; table 0.01).",
        ),
    ] = None
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PASS",
            help=f"Leave out a pass over an {PASSES_OF} network; may be given again: {_choices(_native.passes())}",
        ),
    ] = None
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help=f"Engine of linear layers under {' and '.join(ENGINES_OF)} (default: chosen by cost): "
            + _choices(_native.engines()),
        ),
    ] = None
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="GOAL",
            help="Quantity to choose the plan by (default: latency; client-aided: throughput, for small networks): "
            f"{_choices(_native.objectives())}",
        ),
    ] = None
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NETWORK",
            help="Network that latency is judged on, under two-party: loopback, lan (1 Gbit/s, 1 ms; the default), "
            "wan (100 Mbit/s, 40 ms), or MILLISECONDS,MBITS of a round trip and a second",
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the model for clients (default: model), who do not get the file's."),
    ] = None
    opening: Annotated[
        str | None,
        typer.Option(
            metavar="RESULT",
            help="Result that clients learn (default: class for a model that ends in ArgMax, else values): "
            + _choices(_native.openings()),
        ),
    ] = None
    rounding: Annotated[
        str | None,
        typer.Option(
            metavar="ROUNDING",
            help="Rounding of values between layers, under two-party (default: nearest): "
            + _choices(_native.roundings()),
        ),
    ] = None
    assume: Annotated[
        str | None,
        typer.Option(
            metavar="ASSUMPTION",
            help="Assumption behind many oblivious transfers, under two-party (default: lpn): "
            + _choices(_native.assumptions()),
        ),
    ] = None
    key_checks: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Sets of keys that a client makes, under encrypted: the server opens all but one, and a "
            "false set passes once in K times: a power of two up to 256 (default: 64; 1 checks none)",
        ),
    ] = None

    flood_bits: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Bits of statistical distance that floods keep over all answers under a key, under encrypted: 40 to "
            "128 (default: 40).",
        ),
    ] = None

    def of_plan(self, preparation: Preparation) -> PlanOptions:
        """The options as the planner takes them, without samples: for inputs in the range given, or
        where bytes end up.

        Raises:
            TrustLevelRequired: there is no such trust level.
            InputError: an option that makes no sense; the error names it.
        """
        bounds = preparation.values().byte_range()
        if self.input_range is not None:
            ends = parse_numbers("--input-range", self.input_range)
            if len(ends) != 2:
                raise InputError(f"--input-range {self.input_range} is not LOW,HIGH")
            bounds = (ends[0], ends[1])
        return PlanOptions(
            trust=_trust.require(self.trust),
            input_range=bounds,
            memory=parse_size(self.memory),
            weight_bits=self.weight_bits,
            input_bits=self.input_bits,
            error=self.error,
            without=tuple(self.without or ()),
            engine=self.engine,
            objective=self.objective,
            network=self.network,
            opening=self.opening,
            rounding=self.rounding,
            assume=self.assume,
            name=self.name,
            key_checks=self.key_checks,
            flood_bits=self.flood_bits,
        )

    def load(self, path: Path, options: PlanOptions, preparation: Preparation, data: Path | None = None) -> Model:
        """The model, not calibrated. An npy file of `data` tells sizes that it leaves open."""
        shapes = None if data is None else shape_of_one(data)
        bare = load_with(
            path,
            options,
            shape=parse_shape(self.shape),
            output=self.output or None,
            of_samples=shapes,
            fixed=parse_fixed(self.fixed or ()),
            begin=self.begin or None,
        )
        if self.input_range is not None:
            return bare
        return bare.changed(input_range=preparation.values(bare.takes_bytes).byte_range())

    def calibrated(
        self, path: Path, options: PlanOptions, data: Path | None, labels: str | None, preparation: Preparation
    ) -> Model:
        """The model with the samples of `data`, without the column `labels` of a table."""
        bare = self.load(path, options, preparation, data)
        if data is not None:
            if self.input_range is not None:
                raise InputError("--data sets the range of the inputs: leave --input-range out, or --data")
            return preparation.calibrate(bare, preparation.load_for(bare, data, labels))
        if self.input_range is None:
            low, high = preparation.values(bare.takes_bytes).byte_range()
            say(
                f"no --data: ranges are guessed from made-up inputs in {low:.4g}..{high:.4g}; "
                "typical images (--data) make the fixed point more precise"
            )
        return bare
