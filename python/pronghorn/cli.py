"""The command line."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TextIO, TypedDict, get_type_hints

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text
from typer.core import TyperGroup

import pronghorn
from pronghorn import _bench, _native, _trust
from pronghorn._bench import SUITES, Record
from pronghorn._bench.gazelle import bench_gazelle
from pronghorn._bench.rotation_free import bench_rotation_free
from pronghorn._bench.two_party import Network, bench_networks
from pronghorn._data import Loaded, Preprocessing, load_images, read_labels
from pronghorn._demo import run_demo
from pronghorn._inputs import NARROW, Range, as_labels, beyond, only_a_part
from pronghorn._model import Model, Stats, load, speed
from pronghorn._model import Progress as ProgressCallback
from pronghorn._network import Client
from pronghorn._output_file import OutputFile
from pronghorn._outputs import Predictions, kind_of
from pronghorn.errors import InputError, InputWarning, PrepareWarning, PronghornError, RunError

errors = Console(stderr=True)

SHOWN = 20
"""Most images whose result is printed one by one."""
SHOWN_VALUES = 10
"""Most values, and labels where nobody says how many, that are shown of an image."""
SAMPLES = 256
"""Most images that set the fixed point."""


class _Group(TyperGroup):
    """Prints Pronghorn's errors and warnings as one message each; --debug may stand anywhere."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--debug" in args:
            args.remove("--debug")
            os.environ["PRONGHORN_DEBUG"] = "1"
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", InputWarning)
                warnings.simplefilter("always", PrepareWarning)
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except PronghornError as error:
            if os.environ.get("PRONGHORN_DEBUG"):
                raise
            _say(f"[bold red]error:[/] {escape(str(error))}")
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def _say(markup: str) -> None:
    """A line on standard error."""
    errors.print(markup, soft_wrap=True, highlight=False)


def _warn(text: str) -> None:
    _say(f"[bold yellow]warning:[/] {escape(text)}")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """As `warnings.showwarning`, without the place in the code."""
    _warn(str(message))


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Private inference for the neural networks people already have.",
)


def _version(show: bool) -> None:
    if show:
        print(f"pronghorn {pronghorn.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    pass


# Options that several commands share.

ModelArgument = Annotated[Path, typer.Argument(help="An ONNX file.", metavar="MODEL")]
TrustOption = Annotated[
    str | None,
    typer.Option(
        "--trust",
        metavar="LEVEL",
        help=f"Who may learn what: {', '.join(_trust.REVEALS)}; {_trust.DEFAULT} where none is named.",
    ),
]
ThreadsOption = Annotated[int | None, typer.Option("--threads", min=1, help="Threads (default: all cores).")]
LimitOption = Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first images.")]
_KEPT = (
    "Keep here what later runs need not exchange again: prepared batches, published polynomials, seeds of keys. "
    "In memory otherwise. They are secrets."
)
StoreOption = Annotated[Path | None, typer.Option("--store", metavar="DIR", help=_KEPT)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Typical images, which set the fixed point: npz, npy, IDX, a folder of pictures."),
]
OutputsOption = Annotated[
    str | None,
    typer.Option(
        "--outputs",
        metavar="KIND",
        help="What the outputs are: classes (one of several), labels (each holds or not) or values (a regression, a "
        "map). Where not said, a row of numbers is taken for classes, and for labels if the model ends in a Sigmoid.",
    ),
]
ExitWithStdin = Annotated[bool, typer.Option("--exit-with-stdin", hidden=True)]


INSECURE = {"gazelle": bench_gazelle, "rotation-free": bench_rotation_free}
"""Suites that can also run their paper's insecure parameters."""


class _PlanOptions(TypedDict):
    """Options of `Model.plan`, `Model.verify` and `serve`."""

    memory: int | None
    without: Sequence[str]
    engine: str | None
    objective: str


@dataclass
class ModelOptions:
    """How a model is read and planned."""

    input_range: Annotated[
        str | None, typer.Option(metavar="LOW,HIGH", help="Least and largest input (default: those of bytes).")
    ] = None
    shape: Annotated[
        str | None, typer.Option(metavar="NAME=1,C,H,W", help="Input shape, where the model leaves it open.")
    ] = None
    output: Annotated[str | None, typer.Option(metavar="NAME", help="Which value to compute.")] = None
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Most memory the server may use, as 8G.")] = None
    weight_bits: Annotated[int | None, typer.Option(help="Bits of all weights (default: chosen a layer).")] = None
    input_bits: Annotated[int | None, typer.Option(help="Bits of all layers' inputs (default: chosen a layer).")] = None
    error: Annotated[
        float | None,
        typer.Option(help="Error of results to aim at, 0.0001 to 0.5 of their rms (default 0.05; two-party 0.02)."),
    ] = None
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PASS",
            help="Leave out a pass over an encrypted network, to see what it brings; may be given again: "
            + "; ".join(f"{name} ({what})" for name, what in _native.passes())
            + ".",
        ),
    ] = None
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help="What linear layers run in under two-party (default: the planner's choice): "
            + "; ".join(f"{name} ({what})" for name, what in _native.engines())
            + ".",
        ),
    ] = None

    objective: Annotated[
        str,
        typer.Option(
            metavar="GOAL",
            help="What the plan is chosen for, where there is a choice: "
            + "; ".join(f"{name} ({what})" for name, what in _native.objectives())
            + ".",
        ),
    ] = "latency"

    def load(self, path: Path, preparation: Preparation) -> Model:
        """The model, not calibrated: for inputs in the range given, or where bytes end up."""
        bounds = preparation.values().byte_range()
        if self.input_range is not None:
            numbers = _numbers("--input-range", self.input_range)
            if len(numbers) != 2:
                raise InputError(f"--input-range {self.input_range} is not LOW,HIGH")
            bounds = (numbers[0], numbers[1])
        return load(
            path,
            input_range=bounds,
            shape=_shape(self.shape),
            output=self.output,
            weight_bits=self.weight_bits,
            input_bits=self.input_bits,
            error=self.error,
        )

    def calibrated(self, path: Path, data: Path | None, preparation: Preparation) -> Model:
        """The model with the samples of `data`."""
        bare = self.load(path, preparation)
        if data is not None:
            if self.input_range is not None:
                raise InputError("--data sets the range of the inputs: leave --input-range out, or --data")
            return preparation.calibrate(bare, preparation.load(data, bare.input_shape).images)
        if self.input_range is None:
            low, high = preparation.values().byte_range()
            _say(
                f"no --data: ranges are guessed from made-up inputs in {low:.4g}..{high:.4g}; "
                "typical images (--data) make the fixed point more precise"
            )
        return bare

    def of_plan(self) -> _PlanOptions:
        """What the planner takes."""
        return {
            "memory": _size(self.memory),
            "without": self.without or (),
            "engine": self.engine,
            "objective": self.objective,
        }


@dataclass
class Preparation:
    """How files become inputs."""

    scale: Annotated[
        float | None,
        typer.Option(help="Divide values by this (default: 255 for bytes, 1 for floats; other integers must be told)."),
    ] = None
    mean: Annotated[str | None, typer.Option(metavar="M[,M,M]", help="Then subtract this, one or one a channel.")] = (
        None
    )
    std: Annotated[str | None, typer.Option(metavar="S[,S,S]", help="Then divide by this, one or one a channel.")] = (
        None
    )
    resize: Annotated[bool, typer.Option("--resize", help="Stretch pictures to the size that the model takes.")] = False
    short_side: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1 << 16,
            metavar="PIXELS",
            help="Scale pictures until their shorter side has so many pixels, and cut the model's size out of the "
            "middle: 256 is what most ImageNet models of 224x224 expect.",
        ),
    ] = None

    def values(self) -> Preprocessing:
        """What users typed, read."""
        if self.resize and self.short_side is not None:
            raise InputError("--resize stretches pictures and --short-side cuts them: give one of the two")
        mean = None if self.mean is None else _numbers("--mean", self.mean)
        std = None if self.std is None else _numbers("--std", self.std)
        return Preprocessing(self.scale, mean, std, self.resize, self.short_side)

    def load(self, path: Path, shape: tuple[int, ...]) -> Loaded:
        """The images of a file or folder."""
        return load_images(path, shape, self.values())

    def calibrate(self, model: Model, images: npt.NDArray[np.float32]) -> Model:
        """`model` with the first images as samples."""
        with warnings.catch_warnings():
            if self.scale is not None:
                # Whoever names a scale means it.
                warnings.simplefilter("ignore", InputWarning)
            return model.calibrated(images[:SAMPLES])


def _spread(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command each field of its dataclass parameters as an option, so that commands can share them."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        kind = groups.get(parameter.name)
        if kind is None:
            parameters.append(parameter.replace(annotation=hints[parameter.name], kind=parameter.KEYWORD_ONLY))
            continue
        fields = get_type_hints(kind, include_extras=True)
        parameters += [
            parameter.replace(
                name=field.name, annotation=fields[field.name], default=field.default, kind=parameter.KEYWORD_ONLY
            )
            for field in dataclasses.fields(kind)
        ]

    @wraps(command)
    def spread(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
        command(**given)

    spread.__dict__["__signature__"] = inspect.Signature(parameters)
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return spread


@app.command()
@_spread
def plan(
    model: ModelArgument,
    *,
    trust: TrustOption = None,
    data: DataOption = None,
    preparation: Preparation,
    model_options: ModelOptions,
    as_json: JsonOption = False,
    out: Annotated[Path | None, typer.Option(help="Write the plan to this file, as it is hashed and sent.")] = None,
) -> None:
    """Show what a secure run will cost and who learns what."""
    _trust.require(trust)
    with _bar() as bar:
        bar.phase("reading the model")
        loaded = model_options.calibrated(model, data, preparation)
        bar.phase("planning")
        made = loaded.plan(trust, **model_options.of_plan())
    if out is not None:
        _write(out, lambda: made.save(out))
    print(made.to_json() if as_json else made)


@app.command()
@_spread
def verify(
    model: ModelArgument,
    *,
    data: Annotated[
        Path, typer.Option("--data", help="Images, with labels where known: npz, npy, IDX, a folder of pictures.")
    ],
    trust: TrustOption = None,
    samples: Annotated[
        Path | None, typer.Option(help="Other images, such as training images, which set the fixed point.")
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="Labels, where the data has none.")] = None,
    outputs: OutputsOption = None,
    limit: LimitOption = None,
    preparation: Preparation,
    model_options: ModelOptions,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run float model, fixed-point model and secure run side by side on your data.

    The fixed point is set by --samples, or by --input-range, or else by the first images of --data itself.
    """
    _trust.require(trust)
    if samples is not None and model_options.input_range is not None:
        raise InputError("--samples set the range of the inputs: leave --input-range out, or --samples")
    with _bar() as bar:
        bar.phase("reading the model")
        loaded = model_options.load(model, preparation)
        shape = loaded.input_shape
        images, found, *_ = preparation.load(data, shape)
        if model_options.input_range is None:
            typical = images if samples is None else preparation.load(samples, shape).images
            loaded = preparation.calibrate(loaded, typical)
        total = len(images)
        images = images[:limit]
        known = _labels(labels, found, len(images), total)
        kind = kind_of(loaded.finish, loaded.output_shape, outputs, known)
        report = loaded.verify(
            images,
            _for_classes(known, kind, labels),
            trust=trust,
            outputs=kind,
            **model_options.of_plan(),
            threads=threads,
            progress=bar.progress,
            phase=bar.phase,
        )
    print(report.to_json() if as_json else report)
    if model_options.input_range is None and not as_json:
        print(f"  pronghorn serve with --data {samples or data} and the same options serves this plan")
    if not report.ok:
        raise typer.Exit(1)


@app.command()
@_spread
def serve(
    model: ModelArgument,
    *,
    trust: TrustOption = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
    ] = "127.0.0.1:7700",
    data: DataOption = None,
    preparation: Preparation,
    model_options: ModelOptions,
    max_clients: Annotated[int, typer.Option(min=1, help="Most sessions at once.")] = 16,
    max_images: Annotated[int | None, typer.Option(min=1, help="Most images one client may ask for.")] = None,
    idle_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds that a client may be silent within a prediction.")
    ] = 60.0,
    keep_alive: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="Seconds that a connection may rest between predictions (default: as --idle-timeout)."
        ),
    ] = None,
    hello_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds that a new connection may take to introduce itself.")
    ] = 5.0,
    max_connections: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most connections of one address (default: half of --max-clients, at least 2; any number of this "
            "machine).",
        ),
    ] = None,
    threads: ThreadsOption = None,
    prepare: Annotated[
        int, typer.Option(min=0, help="Prepared batches to keep for each client at most (two-party); 0 prepares none.")
    ] = 16,
    prepare_bytes: Annotated[
        int, typer.Option(min=1, help="Bytes that all of them may take; the oldest make room.")
    ] = 1 << 30,
    store: StoreOption = None,
    report: Annotated[Path | None, typer.Option(hidden=True)] = None,
    exit_with_stdin: ExitWithStdin = False,
) -> None:
    """Serve a model until interrupted."""
    level = _trust.require(trust)
    if exit_with_stdin:
        _exit_with_stdin()
    # A shell starts background jobs with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with _bar() as bar:
        bar.phase("reading the model")
        loaded = model_options.calibrated(model, data, preparation)
        bar.phase("planning")
        server = pronghorn.serve(
            loaded,
            listen,
            level,
            max_clients=max_clients,
            max_images_per_client=max_images,
            idle_timeout=idle_timeout,
            keep_alive=keep_alive,
            hello_timeout=hello_timeout,
            max_connections_per_address=max_connections,
            threads=threads,
            prepare=prepare,
            prepare_bytes=prepare_bytes,
            store=store,
            **model_options.of_plan(),
            log=lambda line: _say(escape(line)),
        )
    _say(escape(f"{level}: {_trust.REVEALS[level]}"))
    try:
        print(f"listening on {server.address}", flush=True)
        _say(f"plan {server.plan_hash}")
        server.run()
    except KeyboardInterrupt:
        server.stop()
    finally:
        if report is not None:
            report.write_text(json.dumps({"peak_memory_bytes": _native.peak_memory_bytes()}))


@app.command()
@_spread
def predict(
    inputs: Annotated[
        list[Path], typer.Argument(help="Images: png, jpeg, npy, npz, IDX, folders of pictures.", metavar="INPUT...")
    ],
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="The server.")],
    *,
    trust: TrustOption = None,
    plan_hash: Annotated[
        str | None, typer.Option(metavar="HASH", help="Insist on this plan: all 64 digits that the server prints.")
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Print so many classes, the most probable first (default: 1).")
    ] = None,
    outputs: OutputsOption = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write outputs, classes and probabilities to this file: npz; npy for outputs alone."),
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="True classes, to print the accuracy: npz, npy, IDX.")] = None,
    names: Annotated[Path | None, typer.Option(help="Names of the classes, one a line.")] = None,
    limit: LimitOption = None,
    preparation: Preparation,
    prepare: Annotated[
        int,
        typer.Option(
            "--prepare",
            min=0,
            metavar="N",
            help="Make garbled circuits ahead (two-party): for these images before they are sent, unless the store has "
            "them; and in the background for N batches like theirs, which later runs find in the store.",
        ),
    ] = 0,
    store: StoreOption = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds without a byte from or to the server until it is given up.")
    ] = 60.0,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
    repeat: Annotated[int, typer.Option(min=1, hidden=True)] = 1,
    with_plan: Annotated[bool, typer.Option("--with-plan", hidden=True)] = False,
    exit_with_stdin: ExitWithStdin = False,
) -> None:
    """Predict for images that the server does not see.

    Prints the class of each image and its probability; outputs that are no classes as they are.
    """
    level = _trust.require(trust)
    if exit_with_stdin:
        _exit_with_stdin()
    output = None if out is None else OutputFile(out)
    class_names = _names(names)
    with (
        pronghorn.connect(server, level, plan_hash=plan_hash, timeout=timeout, threads=threads, store=store) as client,
        _bar() as bar,
    ):
        loaded = [preparation.load(path, client.input_shape) for path in inputs]
        images = np.concatenate([each.images for each in loaded])
        total = len(images)
        images = images[:limit]
        titles = [title for each in loaded for title in each.titles][:limit]
        _check_range(images, client.input_range, preparation, any(each.were_bytes for each in loaded))
        plan_json = json.loads(client.plan_json())
        known = _labels(labels, loaded[0].labels if len(inputs) == 1 else None, len(images), total)
        kind = kind_of(plan_json["finish"], client.output_shape, outputs, known)
        known = _for_classes(known, kind, labels)
        if output is not None:
            output.reserve(len(images), client.output_shape)
        prepared = _prepare(client, len(images), prepare, bar)
        if prepare and (store is not None or repeat > 1):
            _keep(client, prepare, len(images))
        found, runs = _predict(client, images, kind, repeat, bar)
        if prepare and store is not None:
            bar.phase("preparing for later runs")
            _fill(client)
        plan_hash, plan_text = client.plan_hash, client.plan_text()
    accuracy = None if known is None else float(np.mean(found.classes == known))
    # Results that cannot be written are printed, all of them.
    unwritten = None if output is None else output.write(found)
    results = _Results(titles, found, top, class_names)
    if not as_json:
        used, lost = runs[-1].prepared_batches, runs[-1].lost_preparations
        if used or lost:
            _say(f"prepared batches used: {used}" + (f"; of no use any more: {lost}" if lost else ""))
        if prepared is not None:
            _say(
                f"prepared in {prepared.seconds:.2f} s: {prepared.bytes_sent:,} bytes sent, "
                f"{prepared.bytes_received:,} received"
            )
        results.print(accuracy, runs[-1], out, SHOWN if unwritten is None else len(titles))
        if unwritten is not None:
            raise unwritten
        return
    summary = {
        "images": len(images),
        "trust": level,
        "plan_hash": plan_hash,
        "accuracy": accuracy,
        "runs": [_costs(run) for run in runs],
        "prepared_batches": sum(run.prepared_batches for run in runs),
        "lost_preparations": sum(run.lost_preparations for run in runs),
        **({"prepared": _costs(prepared)} if prepared is not None else {}),
        "clamped_inputs": runs[-1].clamped_inputs,
        "clamped_activations": runs[-1].clamped_activations,
        "peak_memory_bytes": _native.peak_memory_bytes(),
        **results.json(),
        **({"plan": plan_json, "security_bits": _bench.security_bits(plan_text)} if with_plan else {}),
    }
    print(json.dumps(summary))
    if unwritten is not None:
        raise unwritten


@app.command()
def demo(images: Annotated[int, typer.Option(min=1, max=10_000, help="How many MNIST test images.")] = 256) -> None:
    """Classify encrypted MNIST digits through a server and a client process."""
    print(run_demo(images))


@app.command()
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
        _write(as_json, lambda: as_json.write_text(json.dumps(records, indent=1) + "\n"))


# What users type, as values.


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} {text!r} is not a list of numbers separated by commas") from None


def _shape(text: str | None) -> dict[str, Sequence[int]] | Sequence[int] | None:
    if text is None:
        return None
    name, equals, sizes = text.rpartition("=")
    try:
        parsed = [int(size) for size in sizes.split(",")]
    except ValueError:
        raise InputError(f"--shape {text!r} is not NAME=1,C,H,W") from None
    return {name: parsed} if equals else parsed


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    digits = text.upper().removesuffix("B").removesuffix("I")
    unit = units.get(digits[-1:], 1)
    try:
        return int(float(digits[:-1] if digits[-1:] in units else digits) * unit)
    except (ValueError, OverflowError):
        raise InputError(f"--memory {text!r} is no size: give bytes, or 500M, 8G") from None


def _labels(path: Path | None, found: npt.NDArray[Any] | None, images: int, total: int) -> npt.NDArray[np.int64] | None:
    """The labels of a file, or those found beside the images: if these are no classes, they are left out."""
    labels = found if path is None else read_labels(path)
    if labels is None:
        return None
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if path is None and (labels.ndim != 1 or labels.dtype.kind not in "iub"):
        return None
    if labels.ndim != 1:
        raise InputError(f"labels have shape {list(labels.shape)}: give one class index an image")
    if len(labels) != total:
        raise InputError(f"there are {len(labels)} labels for {total} images")
    return as_labels(labels[:images], images)


def _for_classes(known: npt.NDArray[np.int64] | None, kind: str, path: Path | None) -> npt.NDArray[np.int64] | None:
    """Labels where outputs are classes; none where they are not, unless the user asks for the impossible."""
    if kind == "classes":
        return known
    if path is not None:
        raise InputError(
            f"--labels {path} are classes, but the outputs are {kind}: leave them out, or say --outputs classes"
        )
    return None


def _check_range(images: npt.NDArray[np.float32], expected: Range, preparation: Preparation, were_bytes: bool) -> None:
    """Compares what will be sent with what the server's plan is for.

    Raises:
        InputError: it is far beyond, and nobody said --scale.
    """
    outside = beyond(images, expected)
    if outside is not None and preparation.scale is None:
        raise InputError(
            f"{outside}\n  what to do: give --scale, --mean and --std as the model's owner does, such as --scale 255 "
            "where the model takes 0..1; --scale 1 sends the values as they are"
        )
    low, high = preparation.values().byte_range()
    narrow = were_bytes and high - low < NARROW * (expected[1] - expected[0])
    problem = (
        f"bytes become {low:.4g} to {high:.4g}, but the server's plan is for {expected[0]:.4g} to {expected[1]:.4g}"
        if narrow
        else outside or only_a_part(images, expected)
    )
    if problem is not None:
        _warn(
            f"{problem}: results may be wrong\n"
            "  what to do: give --scale, --mean and --std as the model's owner does; ask which, if in doubt"
        )


def _names(path: Path | None) -> list[str] | None:
    if path is None:
        return None
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


# Results.


def _costs(stats: Stats) -> dict[str, float]:
    return {"seconds": stats.seconds, "bytes_sent": stats.bytes_sent, "bytes_received": stats.bytes_received}


def _prepare(client: Client, images: int, batches: int, bar: _Bar) -> Stats | None:
    """Prepares for these images, unless that was done; what it cost. Predictions go on without."""
    if not batches or client.is_prepared(images):
        return None
    bar.phase("preparing")
    try:
        return client.prepare(images, progress=bar.progress)
    except RunError as error:
        _warn(f"nothing is prepared: {error}")
        return None


def _keep(client: Client, batches: int, images: int) -> None:
    """Keeps batches prepared, where the server does."""
    try:
        client.keep_prepared(batches, images)
    except RunError as error:
        _warn(f"no batches are kept prepared: {error}")


def _fill(client: Client) -> None:
    """Waits until the store is full, however long that takes; the results are there, so a failure is a warning."""
    try:
        while not client.wait_prepared(3600.0):
            pass
    except RunError as error:
        _warn(f"not all batches are prepared for later runs: {error}")


def _predict(
    client: Client, images: npt.NDArray[np.float32], kind: str, repeat: int, bar: _Bar
) -> tuple[Predictions, list[Stats]]:
    """Runs the prediction `repeat` times; the last one's results, and what each cost."""
    runs = []
    with warnings.catch_warnings():
        # `_check_range` has said it with the command line's words.
        warnings.simplefilter("ignore", InputWarning)
        for _ in range(repeat):
            bar.phase("predicting")
            found = client.classify(images, outputs=kind, progress=bar.progress)
            assert client.last_stats is not None
            runs.append(client.last_stats)
    return found, runs


class _Results:
    """What is said of each image."""

    def __init__(self, titles: list[str], found: Predictions, top: int | None, names: list[str] | None) -> None:
        self._titles = titles
        self._found = found
        self._names = names
        self._ranked = None
        if found.probabilities is not None:
            self._ranked = found.top(top or (1 if found.kind == "classes" else SHOWN_VALUES))

    def json(self) -> Record:
        """For programs."""
        classes = {} if self._found.classes is None else {"classes": self._found.classes.tolist()}
        results = [{"input": title, **self._entry(index)} for index, title in enumerate(self._titles)]
        return {"outputs": self._found.kind, **classes, "results": results}

    def print(self, accuracy: float | None, stats: Stats, out: Path | None, shown: int) -> None:
        """For people: the first images, and what it cost."""
        count = len(self._titles)
        for index, title in enumerate(self._titles[:shown]):
            print(f"{title}: {self._line(index)}")
        if count > shown:
            print(f"and {count - shown} more" + (f", all in {out}" if out else " (--out FILE writes all)"))
        if accuracy is not None:
            print(f"accuracy: {100 * accuracy:.2f} %")
        sent, received = stats.bytes_sent / stats.images, stats.bytes_received / stats.images
        print(
            f"{stats.images:,} images in {stats.seconds:.2f} s ({stats.speed}), "
            f"{sent:,.0f} bytes an image sent and {received:,.0f} received"
        )
        if stats.clamped_inputs:
            _warn(
                f"{stats.clamped_inputs} input values were outside the range the server planned for, and clamped: "
                "results may be wrong. Check --scale, --mean and --std here, and --data or --input-range at the server"
            )
        if stats.clamped_activations:
            _say(
                f"{stats.clamped_activations / stats.images:.3g} activations an image were beyond the ranges of the "
                "server's samples and clamped: many mean that its samples do not represent these inputs"
            )

    def _entry(self, index: int) -> Record:
        """One image's result: classes or labels with probabilities, a class, or values."""
        if self._ranked is not None:
            order, shares = (each[index].tolist() for each in self._ranked)
            ranked = zip(order, shares, strict=True)
            return {"top": [{**self._named(which), "probability": round(share, 6)} for which, share in ranked]}
        if self._found.classes is not None:
            return self._named(int(self._found.classes[index]))
        return {"values": self._found.outputs[index].tolist()}

    def _line(self, index: int) -> str:
        """The same in words."""
        entry = self._entry(index)
        if "top" in entry:
            return ", ".join(
                f"{self._name(each['class'])} ({100 * each['probability']:.2f} %)" for each in entry["top"]
            )
        if "class" in entry:
            return self._name(entry["class"])
        values = self._found.outputs[index].ravel()
        if values.size > SHOWN_VALUES:
            shape = "x".join(map(str, self._found.outputs.shape[1:]))
            return f"{shape} values from {values.min():.6g} to {values.max():.6g} (--out FILE writes them)"
        named = self._names is not None and len(self._names) == values.size
        return ", ".join(f"{self._name(i)} {value:.6g}" if named else f"{value:.6g}" for i, value in enumerate(values))

    def _named(self, index: int) -> Record:
        return {"class": index} if self._names is None else {"class": index, "name": self._name(index)}

    def _name(self, index: int) -> str:
        names = self._names
        return names[index] if names and 0 <= index < len(names) else str(index)


def _write(path: Path, write: Any) -> None:
    try:
        write()
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from error


# Progress.


class _Images(ProgressColumn):
    """Images done, in all, and a second; the share moves within a batch too."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text("")
        rate = task.completed / task.elapsed if task.elapsed else 0.0
        counted = f"{task.percentage:.0f} %, {int(task.completed):,} of {int(task.total):,} images"
        return Text(counted + (f", {speed(rate)}" if rate > 0 else ""))


class _Bar:
    """A progress bar on standard error; none where that is no terminal."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("", total=None)

    def phase(self, name: str) -> None:
        """Begins something else."""
        if self._bar is not None and self._task is not None:
            self._bar.reset(self._task, description=name, total=None, completed=0)

    @property
    def progress(self) -> ProgressCallback | None:
        """What says how far it is."""
        bar, task = self._bar, self._task
        if bar is None or task is None:
            return None
        return lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _bar() -> Iterator[_Bar]:
    if not errors.is_terminal:
        yield _Bar(None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), _Images(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        yield _Bar(bar)


def _exit_with_stdin() -> None:
    """Ends this process when whoever started it is gone."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):  # Not a buffered read: it holds a lock at exit.
            pass
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=wait, daemon=True).start()
