"""The images and labels of files, as a server or a cloud takes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

import numpy as np
import numpy.typing as npt
import typer

from pronghorn._categories import Categories
from pronghorn._data import folder_pictures
from pronghorn._inputs import Range, names_of_labels, takes_bytes
from pronghorn._model import counted
from pronghorn._outputs import INDICES, Predictions, classes_of, kind_of
from pronghorn._streams import Images, open_images
from pronghorn.cli.inputs import Labels, Numbers, classes_only, label_column, labels_of, read_names
from pronghorn.cli.options import LimitOption, OutputsOption, Preparation
from pronghorn.errors import InputError


class Asked(Protocol):
    """Who predicts: its shapes, its range of inputs, its categories, and its names of classes, features and outputs."""

    @property
    def network_shape(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def categories(self) -> Categories: ...  # noqa: D102
    @property
    def output_shape(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def input_range(self) -> Range: ...  # noqa: D102
    @property
    def class_names(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def columns(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def outputs(self) -> Mapping[str, tuple[int, ...]]: ...  # noqa: D102


LARGE = 1 << 28
"""Bytes of inputs, as files or as floats, from which on they are read in parts,"""
PART = 1 << 26
"""and about so many of a part, as floats."""


@dataclass(frozen=True)
class Known:
    """What is known of what is sent."""

    titles: list[str]
    """The name of each image."""
    truth: Labels | None
    """The class of each image."""
    kind: str
    """What the outputs are: `classes`, `labels` or `values`."""
    were_bytes: bool
    """Whether the files have bytes."""

    def accuracy(self, found: Predictions) -> float | None:
        """The share of images with the right class; None without labels."""
        return None if self.truth is None else float(np.mean(found.classes == self.truth))


@dataclass(frozen=True)
class Batch(Known):
    """What is sent."""

    images: npt.NDArray[np.float32]
    """`(images, *input_shape)`."""


@dataclass(frozen=True)
class Parts(Known):
    """What is sent, to be read once."""

    images: int
    """How many."""
    parts: Iterator[npt.NDArray[np.float32]]
    """Some at a time, `(images, *input_shape)`."""


@dataclass(frozen=True)
class Opened:
    """What a long work sends, of which only parts are in memory."""

    images: Images
    truth: Labels | None
    """The class of each image."""
    kind: str
    """What the outputs are."""
    were_bytes: bool
    """Whether the files have bytes."""

    def accuracy(self, found: Iterable[Predictions]) -> float | None:
        """The share of images with the right class; None without labels."""
        if self.truth is None:
            return None
        first, right = 0, 0
        for part in found:
            assert part.classes is not None
            right += int(np.count_nonzero(part.classes == self.truth[first : first + len(part.classes)]))
            first += len(part.classes)
        return right / len(self.truth)


@dataclass(frozen=True)
class Wanted:
    """Which images are predicted, and what is said of them."""

    top: Annotated[
        int | None, typer.Option(metavar="K", min=1, help="Print the K most probable classes (default: 1).")
    ] = None
    outputs: OutputsOption = None
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write outputs, classes and probabilities to npz, or outputs alone to npy."),
    ] = None
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="True classes, to print the accuracy: npz, npy, IDX, CSV; or the column of a table that has them.",
        ),
    ] = None
    names: Annotated[Path | None, typer.Option(metavar="FILE", help="Names of the classes, one a line.")] = None
    limit: LimitOption = None

    def read(self, paths: list[Path], asked: Asked, finish: Sequence[str], preparation: Preparation) -> Batch:
        """The images of all files, as far as they are wanted."""
        as_they_are, column = takes_bytes(asked.input_range), label_column(self.labels, paths)
        given = asked.network_shape, as_they_are, column, asked.columns
        loaded = [preparation.load(path, *given, categories=asked.categories) for path in paths]
        images = np.concatenate([each.images for each in loaded]) if len(loaded) > 1 else loaded[0].images
        total, images = len(images), images[: self.limit]
        beside = loaded[0].labels if len(paths) == 1 else None
        kind, truth = self._labels(beside, len(images), total, column, asked, finish)
        titles = [title for each in loaded for title in each.titles]
        return Batch(titles[: self.limit], truth, kind, any(each.were_bytes for each in loaded), images)

    def open(self, paths: list[Path], asked: Asked, finish: Sequence[str], preparation: Preparation) -> Opened:
        """The same, unread."""
        values, column = preparation.values(takes_bytes(asked.input_range)), label_column(self.labels, paths)
        given = asked.network_shape, values, column, asked.columns, asked.categories
        opened = [open_images(path, *given) for path in paths]
        images = Images(opened, self.limit)
        beside = opened[0].labels if len(paths) == 1 else None
        kind, truth = self._labels(beside, len(images), images.total, column, asked, finish)
        return Opened(images, truth, kind, any(each.were_bytes for each in opened))

    def parts(self, paths: list[Path], asked: Asked, finish: Sequence[str], preparation: Preparation) -> Parts:
        """The same, to be read once: large files in parts."""
        each = math.prod(asked.network_shape)
        if not _are_large(paths, each):
            batch = self.read(paths, asked, finish, preparation)
            count, parts = len(batch.images), iter([batch.images])
            return Parts(batch.titles, batch.truth, batch.kind, batch.were_bytes, count, parts)
        opened, step = self.open(paths, asked, finish, preparation), max(PART // (4 * each), 1)
        images = opened.images
        some = (images.checked(first, first + step) for first in range(0, len(images), step))
        titles = images.titles(0, len(images))
        return Parts(titles, opened.truth, opened.kind, opened.were_bytes, len(images), some)

    def class_names(self, kind: str, finish: Sequence[str], shape: Sequence[int]) -> list[str] | None:
        """The names in the file that the user gives; None without one. Arguments are those of `kind_of`, and the kind
        that it gives.

        Raises:
            InputError: the file cannot be read, or has more or fewer names than there are classes.
        """
        names = read_names(self.names)
        count = classes_of(finish, shape) if kind == "classes" else math.prod(shape) if kind == "labels" else 0
        # 0: nobody knows, or there are none.
        if names is not None and count and len(names) != count:
            raise InputError(
                f"{self.names} has {counted(len(names), 'name')}, but there are {count} {kind}: give a name a line, in "
                "their order"
            )
        return names

    def _labels(
        self,
        beside: Numbers | None,
        images: int,
        total: int,
        column: str | None,
        asked: Asked,
        finish: Sequence[str],
    ) -> tuple[str, Labels | None]:
        """What outputs are, and the class of each image."""
        path, names = None if column else self.labels, names_of_labels(asked.class_names, self.outputs)
        known = labels_of(path, beside, images, total, names, column)
        self._check_index(finish)
        kind = kind_of(finish, asked.output_shape, self.outputs, known, several=bool(asked.outputs))
        return kind, classes_only(known, kind, path, classes_of(finish, asked.output_shape))

    def _check_index(self, finish: Sequence[str]) -> None:
        """Refuses options about values where the result is the index of a class."""
        if not INDICES & set(finish):
            return
        useless = {"--top": self.top is not None, "--outputs": self.outputs not in (None, "classes")}
        for option in [name for name, is_given in useless.items() if is_given]:
            raise InputError(
                f"the model gives the class of each image, and no values or probabilities: leave {option} out"
            )


def _are_large(paths: Sequence[Path], values: int) -> bool:
    """Whether files or folders have many bytes. `values`: of an image."""
    sizes = [
        4 * values * len(folder_pictures(path)) if path.is_dir() else path.stat().st_size
        for path in paths
        if path.is_dir() or path.is_file()
    ]
    return len(sizes) == len(paths) and sum(sizes) > LARGE
