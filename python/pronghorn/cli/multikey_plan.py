"""`pronghorn plan` and `verify` at trust level `multi-key`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pronghorn._multikey_plan import LEVEL, RESULTS, MultiKeyPlan
from pronghorn.cli.options import ModelOptions, Preparation
from pronghorn.cli.progress import progress_bar
from pronghorn.errors import InputError

READING = ("trust", "input_range", "shape", "output", "error", "name")
"""Options that have a meaning here. `error` is absolute."""

ResultsOption = Annotated[
    int | None,
    typer.Option(
        "--results",
        metavar="N",
        min=1,
        help=f"Results that a key of the model owner decrypts, under {LEVEL} (default: {RESULTS:,}).",
    ),
]


def of_three(
    options: ModelOptions, results: int | None, unused: Mapping[str, object]
) -> tuple[ModelOptions, dict[str, Any]]:
    """The options of reading a model, and the error and results that are aimed at.

    Raises:
        InputError: an option that has no meaning between three parties.
    """
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    wrong = ["--" + name.replace("_", "-") for name, value in given.items() if value and name not in READING]
    wrong += [name for name, value in unused.items() if value]
    if wrong:
        raise InputError(f"{', '.join(wrong)} has no meaning at trust level {LEVEL}: leave it out")
    aim = {name: value for name, value in [("error", options.error), ("results", results)] if value is not None}
    return dataclasses.replace(options, trust=None, error=None), aim


def of_two(results: int | None) -> None:
    """Refuses what only three parties have.

    Raises:
        InputError: `results` was given.
    """
    if results is not None:
        raise InputError(f"--results counts decryptions of a key, at trust level {LEVEL} alone: leave it out")


def planned(
    path: Path,
    options: ModelOptions,
    results: int | None,
    data: Path | None,
    labels: str | None,
    preparation: Preparation,
    unused: Mapping[str, object],
) -> MultiKeyPlan:
    """The plan of a model."""
    reading, aim = of_three(options, results, unused)
    with progress_bar() as bar:
        bar.phase("reading the model")
        loaded = reading.calibrated(path, reading.of_plan(preparation), data, labels, preparation)
        bar.phase("planning")
        return MultiKeyPlan(loaded, **aim)
