"""`pronghorn plan` and `verify` at trust level `multi-key`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pronghorn._multikey_plan import LEVEL, MultiKeyPlan
from pronghorn.cli.options import ModelOptions, Preparation
from pronghorn.cli.progress import progress_bar
from pronghorn.errors import InputError

READING = ("trust", "input_range", "shape", "output", "error", "name")
"""Options that have a meaning here. `error` is absolute."""


def of_three(options: ModelOptions, unused: Mapping[str, object]) -> tuple[ModelOptions, dict[str, Any]]:
    """The options of reading a model, and the error that is aimed at.

    Raises:
        InputError: an option that has no meaning between three parties.
    """
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    wrong = ["--" + name.replace("_", "-") for name, value in given.items() if value and name not in READING]
    wrong += [name for name, value in unused.items() if value]
    if wrong:
        raise InputError(f"{', '.join(wrong)} has no meaning at trust level {LEVEL}: leave it out")
    aim = {} if options.error is None else {"error": options.error}
    return dataclasses.replace(options, trust=None, error=None), aim


def planned(
    path: Path,
    options: ModelOptions,
    data: Path | None,
    labels: str | None,
    preparation: Preparation,
    unused: Mapping[str, object],
) -> MultiKeyPlan:
    """The plan of a model."""
    reading, aim = of_three(options, unused)
    with progress_bar() as bar:
        bar.phase("reading the model")
        loaded = reading.calibrated(path, reading.of_plan(preparation), data, labels, preparation)
        bar.phase("planning")
        return MultiKeyPlan(loaded, **aim)
