"""`pronghorn verify`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from pronghorn import _trust
from pronghorn._model import Model
from pronghorn._outputs import kind_of
from pronghorn.cli.inputs import classes_only, labels_of
from pronghorn.cli.options import (
    JsonOption,
    LimitOption,
    ModelArgument,
    ModelOptions,
    OutputsOption,
    Preparation,
    ThreadsOption,
    TrustOption,
)
from pronghorn.cli.progress import progress_bar
from pronghorn.cli.spread import spread
from pronghorn.errors import InputError


@dataclass(frozen=True)
class Images:
    """The images to verify on, their labels, and the samples."""

    data: Annotated[
        Path, typer.Option("--data", help="Images, with labels where known: npz, npy, IDX, a folder of pictures.")
    ]
    samples: Annotated[
        Path | None, typer.Option(help="Other images, such as training images, which set the fixed point.")
    ] = None
    labels: Annotated[Path | None, typer.Option(help="Labels, where the data has none.")] = None
    outputs: OutputsOption = None
    limit: LimitOption = None


@dataclass(frozen=True)
class _Case:
    """A calibrated model and what it is verified on."""

    model: Model
    images: npt.NDArray[np.float32]
    """`(images, *input_shape)`."""
    truth: npt.NDArray[np.int64] | None
    """The class of each image."""
    kind: str
    """What the outputs are: `classes`, `labels` or `values`."""


@spread
def verify(
    model: ModelArgument,
    *,
    trust: TrustOption = None,
    given: Images,
    preparation: Preparation,
    model_options: ModelOptions,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run float model, fixed-point model and secure run side by side on your data.

    The fixed point is set by --samples, or by --input-range, or else by the first images of --data itself.
    """
    _trust.require(trust)
    if given.samples is not None and model_options.input_range is not None:
        raise InputError("--samples set the range of the inputs: leave --input-range out, or --samples")
    with progress_bar() as bar:
        bar.phase("reading the model")
        case = _read(model, given, preparation, model_options)
        report = case.model.verify(
            case.images,
            case.truth,
            trust=trust,
            outputs=case.kind,
            **model_options.of_plan(),
            threads=threads,
            progress=bar.progress,
            phase=bar.phase,
        )
    print(report.to_json() if as_json else report)
    if model_options.input_range is None and not as_json:
        print(f"  pronghorn serve with --data {given.samples or given.data} and the same options serves this plan")
    if not report.ok:
        raise typer.Exit(1)


def _read(path: Path, given: Images, preparation: Preparation, model_options: ModelOptions) -> _Case:
    """Model and images; the samples are those given, or all images, whatever the limit."""
    loaded = model_options.load(path, preparation)
    images, found, *_ = preparation.load(given.data, loaded.input_shape)
    if model_options.input_range is None:
        typical = images if given.samples is None else preparation.load(given.samples, loaded.input_shape).images
        loaded = preparation.calibrate(loaded, typical)
    total, images = len(images), images[: given.limit]
    known = labels_of(given.labels, found, len(images), total)
    kind = kind_of(loaded.finish, loaded.output_shape, given.outputs, known)
    return _Case(loaded, images, classes_only(known, kind, given.labels), kind)
