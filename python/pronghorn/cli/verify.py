"""`pronghorn verify`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from pronghorn._data import Loaded
from pronghorn._inputs import names_of_labels
from pronghorn._model import Model
from pronghorn._multikey_plan import LEVEL, MultiKeyPlan
from pronghorn.cli.inputs import Numbers, classes_or_values, label_column, labels_of
from pronghorn.cli.multikey_plan import ResultsOption, of_three, of_two
from pronghorn.cli.options import (
    HtmlOption,
    JsonOption,
    LimitOption,
    ModelArgument,
    ModelOptions,
    OutputsOption,
    Preparation,
    ThreadsOption,
)
from pronghorn.cli.progress import progress_bar
from pronghorn.cli.results import write
from pronghorn.cli.spread import spread
from pronghorn.errors import InputError


@dataclass(frozen=True)
class Images:
    """The images to verify on, their labels, and the samples."""

    data: Annotated[
        Path,
        typer.Option(
            "--data", metavar="PATH", help="Images, with labels where known: npz, npy, IDX, CSV, parquet or a folder."
        ),
    ]
    samples: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Other images that set the fixed point, such as training images."),
    ] = None
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Labels, where the data has none; or the column of a table that has them."),
    ] = None
    outputs: OutputsOption = None
    limit: LimitOption = None


@dataclass(frozen=True)
class _Case:
    """A calibrated model and what it is verified on."""

    model: Model
    images: npt.NDArray[np.float32]
    """`(images, *input_shape)`."""
    truth: Numbers | None
    """The class of each image, or its values."""
    kind: str
    """What the outputs are: `classes`, `labels` or `values`."""
    is_guess: bool
    """Whether their shape alone says so."""


@spread
def verify(
    model: ModelArgument,
    *,
    given: Images,
    model_options: ModelOptions,
    preparation: Preparation,
    secure: Annotated[
        bool, typer.Option("--secure/--no-secure", help="Run the protocol, or score the fixed-point model alone.")
    ] = True,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
    html: HtmlOption = None,
    results: ResultsOption = None,
) -> None:
    """Compare float model, fixed-point model and secure run on your data.

    The fixed point is set by --samples or --input-range. Without both, images of --data set it.
    """
    if model_options.trust == LEVEL:
        unused = {"--html": html, "--no-secure": not secure}
        verified(model, given, model_options, results, preparation, as_json, unused)
        return
    of_two(results)
    options = model_options.of_plan(preparation)
    if given.samples is not None and model_options.input_range is not None:
        raise InputError("--samples set the range of the inputs: leave --input-range out, or --samples")
    with progress_bar() as bar:
        bar.phase("reading the model")
        loaded = model_options.load(model, options, preparation, given.samples or given.data)
        case = _read(loaded, given, preparation, calibrate=model_options.input_range is None)
        report = case.model.verify(
            case.images,
            case.truth,
            outputs=case.kind,
            secure=secure,
            threads=threads,
            progress=bar.progress,
            phase=bar.phase,
        )
        report = replace(report, is_guess=case.is_guess)
    if html is not None:
        page = case.model.plan().to_html(report)
        write(html, lambda: html.write_text(page, encoding="utf-8"))
    print(report.to_json() if as_json else report)
    if model_options.input_range is None and not as_json:
        print(f"  pronghorn serve with --data {given.samples or given.data} and the same options serves this plan")
    if report.ok is False:
        raise typer.Exit(1)


def verified(
    path: Path,
    given: Images,
    model_options: ModelOptions,
    results: int | None,
    preparation: Preparation,
    as_json: bool,
    unused: Mapping[str, object],
) -> None:
    """Runs all roles of `multi-key` in this process.

    Raises:
        typer.Exit: an output is not within the stated error of the oracle's.
    """
    with progress_bar() as bar:
        bar.phase("reading the model")
        reading, aim = of_three(model_options, results, unused)
        loaded = reading.load(path, reading.of_plan(preparation), preparation)
        case = _read(loaded, given, preparation, calibrate=model_options.input_range is None)
        made = MultiKeyPlan(case.model, **aim)
        bar.phase("running all roles")
        truth = case.truth if case.kind == "classes" else None
        report = made.verify(case.images, truth, kind=case.kind, progress=bar.progress)
    print(report.to_json() if as_json else report)
    if not report.ok:
        raise typer.Exit(1)


def _samples(path: Path, load: Callable[..., Loaded], has_column: bool) -> Loaded:
    """Samples, which may lack the column of labels that the data has."""
    try:
        return load(path)
    except InputError:
        if not has_column:
            raise
        return load(path, None)


def _read(model: Model, given: Images, preparation: Preparation, calibrate: bool) -> _Case:
    """The images; `calibrate`: the model's samples are those given, or all images, whatever the
    limit."""
    column = label_column(given.labels, [given.data])

    def load(path: Path, column: str | None = column, columns: Sequence[str] = ()) -> Loaded:
        return preparation.load_for(model, path, column, columns)

    typical = None if given.samples is None else _samples(given.samples, load, column is not None)
    loaded = load(given.data, columns=() if typical is None else typical.columns)
    images, found = loaded.images, loaded.labels
    if calibrate:
        model = preparation.calibrate(model, typical or loaded)
    total, images = len(images), images[: given.limit]
    path = None if column else given.labels
    names = names_of_labels(model.class_names, given.outputs)
    known = labels_of(path, found, len(images), total, names, column)
    kind = model.kind(given.outputs, known)
    truth = classes_or_values(known, kind, given.labels, math.prod(model.output_shape))
    return _Case(model, images, truth, kind, model.guesses(given.outputs, known))
