"""Images, labels and names of files, and whether a server's plan is for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn._data import read_labels
from pronghorn._inputs import (
    NARROW,
    as_indices,
    as_labels,
    beyond,
    clamped,
    only_a_part,
    planned_bounds,
    planned_range,
    takes_bytes,
)
from pronghorn._tables import is_table, numbers_of
from pronghorn.cli.console import warn
from pronghorn.cli.options import Preparation
from pronghorn.errors import InputError

Labels = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]

SHOWN = 10
"""Names of classes in a message, at most."""


def labels_of(
    path: Path | None,
    found: Numbers | None,
    images: int,
    total: int,
    names: Sequence[str] = (),
    column: str | None = None,
) -> Numbers | None:
    """The labels of the first `images` of `total` images.

    Args:
        path: the file that the user names.
        found: labels beside the images, used without such a file; left out, with a warning, where they are neither
            numbers nor names of classes.
        images: how many images are used.
        total: how many images there are.
        names: the names of the classes, whose indices are taken for them.
        column: the column that the user names, of which `found` is.

    Raises:
        InputError: the file cannot be read, does not have labels of each image, or has others than numbers and names.
    """
    labels = found if path is None else read_labels(path)
    if labels is None:
        return None
    labels = as_indices(labels, names)
    if labels.dtype.kind in "OU" and (numbers := numbers_of(labels)) is not None:
        labels = as_indices(numbers, names)
    if path is None and labels.dtype.kind not in "iubf":
        listed = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
        known = f"the model's classes are {listed}" if names else "the model has no names of its classes"
        problem = f"labels such as {str(next(iter(labels.ravel()), ''))!r} are no numbers, and {known}"
        if column is not None:
            raise InputError(f"column {column!r}: {problem}: give the index of each class, from 0 on, or values")
        warn(f"the labels beside the data are ignored: {problem}")
        return None
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 0 or len(labels) != total:
        is_name = path is not None and is_table(path) and labels.ndim == 1 and len(labels) == total + 1
        advice = f"\n  what to do: where the first line of {path} is a name, write labels for it" if is_name else ""
        raise InputError(f"there are {len(labels) if labels.ndim else 1} labels for {total} images{advice}")
    return labels[:images]


def label_column(labels: Path | None, data: list[Path]) -> str | None:
    """The column that --labels names, where the data is a table and there is no such file."""
    named = labels is not None and not labels.exists() and len(data) == 1 and is_table(data[0])
    return str(labels) if named else None


def classes_only(known: Numbers | None, kind: str, path: Path | None, classes: int) -> Labels | None:
    """`known` where both these and the outputs are classes, else None; `classes`: how many there are, 0 where that is
    not known.

    Raises:
        InputError: the outputs or the labels are no classes, but the user names a file of labels.
    """
    if known is None:
        return None
    if path is not None and kind != "classes":
        raise InputError(
            f"--labels {path} are classes, but the outputs are {kind}: leave them out, or say --outputs classes"
        )
    if path is not None and known.ndim != 1:
        raise InputError(f"labels have shape {list(known.shape)}: give one class index an image")
    if path is not None or (kind == "classes" and known.ndim == 1 and known.dtype.kind in "iub"):
        return as_labels(known, len(known), classes)
    return None


def classes_or_values(known: Numbers | None, kind: str, path: Path | None, outputs: int) -> Numbers | None:
    """`known` as classes, or as values where the outputs are values; None, with a warning, where
    labels beside the data are neither.

    Raises:
        InputError: the outputs or the labels are something else, but the user names a file of
            labels.
    """
    if known is None:
        return None
    if kind == "values" and (path is not None or known.size == len(known) * outputs):
        return known
    # Whoever compares says where classes are counted from 1.
    classes = classes_only(known, kind, path, 0)
    if classes is None:
        warn(
            f"the labels beside the data are ignored: they have shape {list(known.shape)} and type {known.dtype}, and "
            f"the outputs are {outputs} {kind} an image\n  what to do: --outputs says what one output is; of several, "
            "labels are all values of an image"
        )
    return classes


def check_range(
    images: npt.NDArray[np.float32],
    plan_json: str,
    preparation: Preparation,
    were_bytes: bool,
    far: npt.NDArray[np.bool_] | None = None,
) -> None:
    """Compares what will be sent with what the server's plan is for. `far`: which of all images are far beyond, where
    these are a part of them.

    Raises:
        InputError: values are far beyond, in half of the images or more, and nobody said --scale. Fewer are wrong
            themselves, and not the scale: each is marked.
    """
    bounds, expected = planned_bounds(plan_json), planned_range(plan_json)
    all_far = clamped(images, bounds) if far is None else far
    are_many = 2 * np.count_nonzero(all_far) >= len(all_far)
    outside = beyond(images, bounds) if are_many else None
    if outside is not None and preparation.scale is None:
        raise InputError(
            f"{outside}\n  what to do: give --scale, --mean and --std as the model's owner does, such as --scale 255 "
            "where the model takes 0..1; --scale 1 sends the values as they are"
        )
    low, high = preparation.values(takes_bytes(expected)).byte_range()
    narrow = were_bytes and high - low < NARROW * (expected[1] - expected[0])
    problem = (
        f"bytes become {low:.4g} to {high:.4g}, but the server's plan is for {expected[0]:.4g} to {expected[1]:.4g}"
        if narrow
        else outside or only_a_part(images, bounds)
    )
    if problem is not None:
        warn(
            f"{problem}: results may be wrong\n"
            "  what to do: give --scale, --mean and --std as the model's owner does; ask which, if in doubt"
        )


def read_names(path: Path | None) -> list[str] | None:
    """The lines of a file, without empty ones at its end.

    Raises:
        InputError: it cannot be read.
    """
    if path is None:
        return None
    try:
        return path.read_text().rstrip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
