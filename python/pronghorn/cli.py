"""The command line."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperGroup

import pronghorn
from pronghorn import _native, _trust
from pronghorn._bench import SUITES, Record
from pronghorn._data import Preprocessing, load_images, read_labels
from pronghorn._demo import run_demo
from pronghorn._model import Floats, Model, as_labels, classes, load
from pronghorn._model import Progress as ProgressCallback
from pronghorn.errors import InputError, PronghornError

errors = Console(stderr=True)

SHOWN = 20
"""Most images whose class is printed one by one."""
SAMPLES = 256
"""Most images of `verify --data` that set the fixed point."""


class _Group(TyperGroup):
    """Prints Pronghorn's errors as one message; --debug may stand anywhere."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--debug" in args:
            args.remove("--debug")
            os.environ["PRONGHORN_DEBUG"] = "1"
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PronghornError as error:
            if os.environ.get("PRONGHORN_DEBUG"):
                raise
            errors.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


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
    str | None, typer.Option("--trust", metavar="LEVEL", help="Who may learn what; must be named: client-aided.")
]
SamplesOption = Annotated[
    Path | None, typer.Option("--data", help="Typical images, which set the fixed point: npz, npy, IDX.")
]
RangeOption = Annotated[
    str | None, typer.Option("--input-range", metavar="LOW,HIGH", help="Least and largest input (default 0,1).")
]
ShapeOption = Annotated[
    str | None, typer.Option("--shape", metavar="NAME=1,C,H,W", help="Input shape, where the model leaves it open.")
]
OutputOption = Annotated[str | None, typer.Option("--output", metavar="NAME", help="Which value to compute.")]
MemoryOption = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Most memory the server may use, as 8G.")
]
WeightBitsOption = Annotated[int | None, typer.Option(help="Bits of all weights (default: chosen a layer).")]
InputBitsOption = Annotated[int | None, typer.Option(help="Bits of all layers' inputs (default: chosen a layer).")]
ThreadsOption = Annotated[int | None, typer.Option("--threads", min=1, help="Threads (default: all cores).")]
ScaleOption = Annotated[
    float | None, typer.Option("--scale", help="Divide values by this (default: 255 for bytes, else 1).")
]
MeanOption = Annotated[
    str | None, typer.Option("--mean", metavar="M[,M,M]", help="Then subtract this, one or one a channel.")
]
StdOption = Annotated[
    str | None, typer.Option("--std", metavar="S[,S,S]", help="Then divide by this, one or one a channel.")
]
LimitOption = Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first images.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ExitWithStdin = Annotated[bool, typer.Option("--exit-with-stdin", hidden=True)]


@app.command()
def plan(
    model: ModelArgument,
    trust: TrustOption = None,
    data: SamplesOption = None,
    input_range: RangeOption = None,
    objective: Annotated[str, typer.Option(help="What to optimise: throughput.")] = "throughput",
    memory: MemoryOption = None,
    shape: ShapeOption = None,
    output: OutputOption = None,
    weight_bits: WeightBitsOption = None,
    input_bits: InputBitsOption = None,
    scale: ScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    as_json: JsonOption = False,
    out: Annotated[Path | None, typer.Option(help="Write the plan to this file, as it is hashed and sent.")] = None,
) -> None:
    """Show what a secure run will cost and who learns what."""
    _trust.require(trust)
    loaded = _load(model, data, input_range, shape, output, _preprocessing(scale, mean, std), (weight_bits, input_bits))
    made = loaded.plan(trust, objective, memory=_size(memory))
    if out is not None:
        _write(out, lambda: made.save(out))
    print(made.to_json() if as_json else made)


@app.command()
def verify(
    model: ModelArgument,
    data: Annotated[Path, typer.Option("--data", help="Images, with labels where known: npz, npy, IDX.")],
    trust: TrustOption = None,
    labels: Annotated[Path | None, typer.Option(help="Labels, where the data has none.")] = None,
    limit: LimitOption = None,
    input_range: RangeOption = None,
    shape: ShapeOption = None,
    output: OutputOption = None,
    weight_bits: WeightBitsOption = None,
    input_bits: InputBitsOption = None,
    scale: ScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    memory: MemoryOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run float model, fixed-point model and secure run side by side on your data.

    The first images set the fixed point, unless --input-range is given.
    """
    _trust.require(trust)
    preprocessing = _preprocessing(scale, mean, std)
    bits = (weight_bits, input_bits)
    bare = _load(model, None, input_range, shape, output, preprocessing, bits, notice=False)
    images, found = load_images(data, bare.input_shape, preprocessing)
    total = len(images)
    images = images[:limit]
    known = _labels(labels, found, len(images), total)
    loaded = bare
    if input_range is None:
        loaded = load(
            model,
            samples=images[:SAMPLES],
            shape=_shape(shape),
            output=output,
            weight_bits=weight_bits,
            input_bits=input_bits,
        )
    with _progress("secure run") as progress:
        report = loaded.verify(images, known, trust=trust, memory=_size(memory), threads=threads, progress=progress)
    print(report.to_json() if as_json else report)
    if input_range is None and not as_json:
        used = min(len(images), SAMPLES)
        print(f"  ranges are from the first {used} images; serve --data with the same file serves this plan")
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def serve(
    model: ModelArgument,
    trust: TrustOption = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
    ] = "127.0.0.1:7700",
    data: SamplesOption = None,
    input_range: RangeOption = None,
    memory: MemoryOption = None,
    shape: ShapeOption = None,
    output: OutputOption = None,
    weight_bits: WeightBitsOption = None,
    input_bits: InputBitsOption = None,
    scale: ScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    max_clients: Annotated[int, typer.Option(min=1, help="Most sessions at once.")] = 16,
    max_images: Annotated[int | None, typer.Option(min=1, help="Most images one client may ask for.")] = None,
    idle_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds until a silent session ends.")] = 60.0,
    threads: ThreadsOption = None,
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
    loaded = _load(model, data, input_range, shape, output, _preprocessing(scale, mean, std), (weight_bits, input_bits))
    server = pronghorn.serve(
        loaded,
        listen,
        level,
        max_clients=max_clients,
        max_images_per_client=max_images,
        idle_timeout=idle_timeout,
        threads=threads,
        memory=_size(memory),
        log=lambda line: errors.print(escape(line), highlight=False, soft_wrap=True),
    )
    errors.print(escape(_trust.REVEALS), highlight=False, soft_wrap=True)
    try:
        print(f"listening on {server.address}", flush=True)
        errors.print(f"plan {server.plan_hash}", highlight=False, soft_wrap=True)
        server.run()
    except KeyboardInterrupt:
        server.stop()
    finally:
        if report is not None:
            report.write_text(json.dumps({"peak_memory_bytes": _native.peak_memory_bytes()}))


@app.command()
def predict(
    inputs: Annotated[list[Path], typer.Argument(help="Images: png, jpeg, npy, npz, IDX.", metavar="INPUT...")],
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="The server.")],
    trust: TrustOption = None,
    plan_hash: Annotated[str | None, typer.Option(help="Insist on this plan.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write outputs and classes to this file: npy or npz.")] = None,
    labels: Annotated[Path | None, typer.Option(help="True classes, to print the accuracy: npz, npy, IDX.")] = None,
    names: Annotated[Path | None, typer.Option(help="Names of the classes, one a line.")] = None,
    limit: LimitOption = None,
    resize: Annotated[bool, typer.Option("--resize", help="Resize pictures to what the model takes.")] = False,
    scale: ScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the server.")] = 60.0,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
    repeat: Annotated[int, typer.Option(min=1, hidden=True)] = 1,
    with_plan: Annotated[bool, typer.Option("--with-plan", hidden=True)] = False,
    exit_with_stdin: ExitWithStdin = False,
) -> None:
    """Classify images that the server does not see."""
    level = _trust.require(trust)
    if exit_with_stdin:
        _exit_with_stdin()
    if out is not None:
        _writable(out)
    preprocessing = _preprocessing(scale, mean, std)
    class_names = _names(names)
    with pronghorn.connect(server, level, plan_hash=plan_hash, timeout=timeout, threads=threads) as client:
        loaded = [load_images(path, client.input_shape, preprocessing, resize=resize) for path in inputs]
        images = np.concatenate([found for found, _ in loaded])
        total = len(images)
        images = images[:limit]
        titles = [
            path.name if len(f) == 1 else f"{path.name}[{i}]"
            for path, (f, _) in zip(inputs, loaded, strict=True)
            for i in range(len(f))
        ]
        known = _labels(labels, loaded[0][1] if len(inputs) == 1 else None, len(images), total)
        plan_json = json.loads(client.plan_json())
        runs = []
        # The core computes without Python, which could not act on an interrupt until the end.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for _ in range(repeat):
            with _progress("predicting") as progress:
                outputs = client.predict(images, progress=progress)
            assert client.last_stats is not None
            runs.append(client.last_stats)
        plan_hash, plan_text = client.plan_hash, client.plan_text()
    finish = plan_json["finish"]
    found = classes(outputs, is_class="arg_max" in finish, is_probability="sigmoid" in finish)
    accuracy = None if known is None else float(np.mean(found == known))
    if out is not None:
        _write(out, lambda: _save(out, outputs, found))
    if as_json:
        summary = {
            "images": len(images),
            "trust": level,
            "plan_hash": plan_hash,
            "accuracy": accuracy,
            "runs": [
                {"seconds": r.seconds, "bytes_sent": r.bytes_sent, "bytes_received": r.bytes_received} for r in runs
            ],
            "clamped_inputs": runs[-1].clamped_inputs,
            "clamped_activations": runs[-1].clamped_activations,
            "peak_memory_bytes": _native.peak_memory_bytes(),
            **({"classes": found.tolist()} if len(found) <= SHOWN else {}),
            **({"plan": plan_json, "security_bits": _security_bits(plan_text)} if with_plan else {}),
        }
        print(json.dumps(summary))
        return
    for index in range(min(len(images), SHOWN)):
        print(f"{titles[index]}: {_class_name(class_names, int(found[index]))}")
    if len(images) > SHOWN:
        print(f"and {len(images) - SHOWN} more" + (f", all in {out}" if out else " (--out FILE writes all)"))
    if accuracy is not None:
        print(f"accuracy: {100 * accuracy:.2f} %")
    stats = runs[-1]
    sent, received = stats.bytes_sent / stats.images, stats.bytes_received / stats.images
    print(
        f"{stats.images:,} images in {stats.seconds:.2f} s ({stats.images_per_second:,.0f} images/s), "
        f"{sent:,.0f} bytes an image sent and {received:,.0f} received"
    )
    if stats.clamped_inputs:
        errors.print(
            f"{stats.clamped_inputs} input values were outside the range the server planned for, and clamped: "
            "results may be wrong. Check --scale, --mean and --std here, and --data or --input-range at the server",
            soft_wrap=True,
        )
    if stats.clamped_activations:
        errors.print(
            f"{stats.clamped_activations / stats.images:.3g} activations an image were beyond the ranges of the "
            "server's samples and clamped: many mean that its samples do not represent these inputs",
            soft_wrap=True,
        )


@app.command()
def demo(images: Annotated[int, typer.Option(min=1, max=10_000, help="How many MNIST test images.")] = 2048) -> None:
    """Classify encrypted MNIST digits through a server and a client process."""
    print(run_demo(images))


@app.command()
def bench(
    suite: Annotated[str, typer.Argument(help=f"One of: {', '.join(SUITES)}.", metavar="SUITE")],
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the records to this file.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repeats; for trying it out.")] = False,
) -> None:
    """Measure, beside published figures."""
    if suite not in SUITES:
        raise InputError(f"there is no suite {suite!r}; there are {', '.join(SUITES)}")
    records: list[Record] = []

    def report(record: Record) -> None:
        records.append(record)
        print(_record_line(record), flush=True)

    SUITES[suite](report, quick)
    if as_json is not None:
        _write(as_json, lambda: as_json.write_text(json.dumps(records, indent=1) + "\n"))


def _record_line(record: Record) -> str:
    line = f"{record['case']}: {record['metric']}: {record['value']:,.4g} {record['unit']}"
    if record["value"] >= 1000:
        line = f"{record['case']}: {record['metric']}: {record['value']:,.0f} {record['unit']}"
    if record["ratio"] is not None:
        line += f" ({record['ratio']:.2f} of {record['reference']['value']:,.6g}, {record['reference']['source']})"
    return line


# What users type, as values.


def _load(
    model: Path,
    data: Path | None,
    input_range: str | None,
    shape: str | None,
    output: str | None,
    preprocessing: Preprocessing,
    bits: tuple[int | None, int | None],
    notice: bool = True,
) -> Model:
    bounds = (0.0, 1.0)
    if input_range is not None:
        numbers = _numbers("--input-range", input_range)
        if len(numbers) != 2:
            raise InputError(f"--input-range {input_range} is not LOW,HIGH")
        bounds = (numbers[0], numbers[1])
    given = _shape(shape)
    if data is None and input_range is None:
        bounds = preprocessing.byte_range()
        if notice:
            errors.print(
                f"no --data: ranges are guessed from made-up inputs in {bounds[0]:.4g}..{bounds[1]:.4g}; "
                "typical images (--data) make the fixed point more precise",
                soft_wrap=True,
            )
    samples = None
    if data is not None:
        takes = load(model, shape=given, output=output).input_shape
        samples = load_images(data, takes, preprocessing)[0][:SAMPLES]
    return load(
        model,
        samples=samples,
        input_range=bounds,
        shape=given,
        output=output,
        weight_bits=bits[0],
        input_bits=bits[1],
    )


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


def _preprocessing(scale: float | None, mean: str | None, std: str | None) -> Preprocessing:
    return Preprocessing(
        scale, None if mean is None else _numbers("--mean", mean), None if std is None else _numbers("--std", std)
    )


def _labels(path: Path | None, found: npt.NDArray[Any] | None, images: int, total: int) -> npt.NDArray[np.int64] | None:
    labels = found if path is None else read_labels(path)
    if labels is None:
        return None
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError(f"labels have shape {list(labels.shape)}: give one class index an image")
    if len(labels) != total:
        raise InputError(f"there are {len(labels)} labels for {total} images")
    return as_labels(labels[:images], images)


def _names(path: Path | None) -> list[str] | None:
    if path is None:
        return None
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _class_name(names: list[str] | None, index: int) -> str:
    return names[index] if names and 0 <= index < len(names) else str(index)


def _security_bits(plan_text: str) -> int | None:
    """The least security of a plan's steps, as its text says."""
    return min(map(int, re.findall(r"(\d+)-bit security", plan_text)), default=None)


def _writable(path: Path) -> None:
    """Refuses before the run what could not be written after it."""
    if path.suffix not in (".npy", ".npz"):
        raise InputError(f"{path} is neither .npy (outputs) nor .npz (outputs and classes)")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}")


def _save(path: Path, outputs: Floats, found: npt.NDArray[np.int64]) -> None:
    if path.suffix == ".npz":
        np.savez(path, outputs=outputs, classes=found)
    else:
        np.save(path, outputs)


def _write(path: Path, write: Any) -> None:
    try:
        write()
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from error


@contextmanager
def _progress(description: str) -> Iterator[ProgressCallback | None]:
    """A progress bar on standard error, only on a terminal."""
    if not errors.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _exit_with_stdin() -> None:
    """Ends this process when whoever started it is gone."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):  # Not a buffered read: it holds a lock at exit.
            pass
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=wait, daemon=True).start()
