"""`pronghorn front`."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from pronghorn._front import Front
from pronghorn.cli.options import BeginOption, FixedOption, InputShapeOption, OutputValueOption, Preparation
from pronghorn.cli.spread import spread
from pronghorn.cli.values import parse_fixed, parse_shape
from pronghorn.errors import InputError, OutputError
from pronghorn.onnx import import_onnx


@spread
def front(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX model, or a front that this command wrote.")],
    *,
    begin: BeginOption = None,
    output: OutputValueOption = None,
    shape: InputShapeOption = None,
    fixed: FixedOption = None,
    preparation: Preparation,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the front here, for clients.")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Data of the file's inputs, for which the front is run.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write what it makes of them here: npy, and npz where it makes several values."
        ),
    ] = None,
) -> None:
    """Compute what is before a network, in the clear.

    The owner of a model that is planned and served with --begin writes its front (--save), and gives it to clients. The
    front is no secret. Clients run it on their data (--data, --out), and send what it makes.
    """
    if (data is None) != (out is None):
        raise InputError("--data and --out go together: what the front is run on, and where its values are written")
    if save is None and out is None:
        raise InputError("give --save FILE to write the front, or --data PATH and --out FILE to run it")
    made = Front(model) if begin is None else _before(model, begin, output, shape, fixed)
    if save is not None:
        made.save(save)
    if data is not None and out is not None:
        _write(out, made(_read(data, made, preparation)))


def _read(data: Path, front: Front, preparation: Preparation) -> np.ndarray | dict[str, np.ndarray]:
    """A front's inputs: arrays as they are, and of its only input other files, too."""
    try:
        if data.suffix == ".npy":
            return np.asarray(np.load(data, allow_pickle=False))
        if data.suffix == ".npz" and len(front.inputs) > 1:
            with np.load(data, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{data} cannot be read: {error}") from error
    if len(front.inputs) > 1:
        raise InputError(f"--data {data}: give an npz file with an array for each of {', '.join(front.inputs)}")
    (shape,) = front.inputs.values()
    return preparation.load(data, shape, True).images


def _before(
    model: Path, begin: list[str], output: list[str] | None, shape: str | None, fixed: list[str] | None
) -> Front:
    """The front of a model."""
    found = import_onnx(
        model, shape=parse_shape(shape), output=output or None, fixed=parse_fixed(fixed or ()), begin=begin
    ).front
    assert found is not None
    return Front(found)


def _write(out: Path, values: np.ndarray | dict[str, np.ndarray]) -> None:
    """Writes a front's values."""
    wanted = ".npz" if isinstance(values, dict) else ".npy"
    if out.suffix != wanted:
        raise InputError(f"--out {out}: the front's values are written as {wanted}")
    try:
        with out.open("wb") as file:
            if isinstance(values, dict):
                np.savez(file, allow_pickle=False, **values)
            else:
                np.save(file, values)
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error}") from error
