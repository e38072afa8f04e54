"""Predictions of any number of inputs, through failures: `--batch` and `--resume`."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic

import numpy as np
import typer

from pronghorn._inputs import clamped_text
from pronghorn._outputs import MARKS, beyond_samples
from pronghorn.cli.console import say
from pronghorn.cli.pieces import Attempts, Party, Pieces, Read, check_format, digest, end_of_failures, write
from pronghorn.cli.progress import progress_bar
from pronghorn.cli.wanted import Opened, Wanted
from pronghorn.errors import InputError, InputWarning, RangeWarning

MOST_AT_ONCE = 1 << 12
"""Images that are read at a time where no piece is predicted."""

NOT_IN_PIECES = {
    "--prepare": "prepares nothing ahead",
    "--repeat": "predicts each input once",
    "--top": "writes all outputs and the most probable class",
}
"""Options of one prediction that pieces do not take, and why."""
NAMED = (".csv", ".parquet")
"""Files that have names of classes."""


@dataclass(frozen=True)
class LongWork:
    """How many inputs are predicted through failures."""

    batch: Annotated[
        bool,
        typer.Option(
            "--batch",
            help="Predict any number of inputs in pieces, write each to OUT.parts as it comes, and connect again after "
            "failures; --out is parquet, csv, npz or npy.",
        ),
    ] = False
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an earlier --batch to the same --out, with what is done of it.")
    ] = False
    piece: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Images of a piece of --batch (default: chosen by cost).")
    ] = None
    give_up: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Time without a result until --batch ends.")
    ] = 600.0

    def check(self, wanted: Wanted, *, prepares: bool = False, repeats: bool = False) -> None:
        """Refuses what does not go together.

        Args:
            wanted: what is predicted.
            prepares: whether `--prepare` is given.
            repeats: whether `--repeat` is.

        Raises:
            InputError: `--resume` or `--piece` without `--batch`; or that without a file that can be written, or with
                an option that it does not take.
        """
        out = wanted.out
        if not self.batch:
            for option, given in (("--resume", self.resume), ("--piece", self.piece is not None)):
                if given:
                    raise InputError(f"{option} is for --batch: give --batch, or leave {option} out")
            return
        if out is None:
            raise InputError("--batch writes results as they come: give --out FILE")
        check_format(out)
        useless = {"--prepare": prepares, "--repeat": repeats, "--top": wanted.top is not None}
        for option in [option for option, is_given in useless.items() if is_given]:
            raise InputError(f"--batch {NOT_IN_PIECES[option]}: leave {option} out, or --batch")
        if wanted.names is not None and out.suffix not in NAMED:
            raise InputError(f"{out} has no names of classes: leave --names out, or write {' or '.join(NAMED)}")

    def size(self, out: Path) -> int | None:
        """Images of a piece, where the user or an earlier run says."""
        return self.piece or (Pieces.size_of(out) if self.resume else None)

    @contextmanager
    def begin(
        self, out: Path, opened: Opened, whose: Mapping[str, Any], attempts: Attempts[Party], size: int
    ) -> Iterator[Running[Party]]:
        """Begins a work, or goes on with it, while its folder is this process's.

        Args:
            out: the file of the results.
            opened: the inputs.
            whose: names of what predicts: another one makes another work.
            attempts: connects to it.
            size: images of a piece.

        Raises:
            InputError: an input holds no number, or `out` has another work.
        """
        inputs = digest(opened.images, min(size, MOST_AT_ONCE))
        named = {"images": len(opened.images), "inputs": inputs, **whose, "piece": size}
        pieces = Pieces(out, named, self.resume)
        try:
            yield Running(out, opened, pieces, attempts)
        finally:
            pieces.release()


@dataclass
class Running(Generic[Party]):
    """A work that has begun."""

    out: Path
    opened: Opened
    pieces: Pieces
    attempts: Attempts[Party]
    missing: list[range] = field(init=False)
    """The images of each piece that was not done when the work began."""

    def __post_init__(self) -> None:
        """What is to do."""
        self.missing = self.pieces.missing()

    @property
    def left(self) -> int:
        """Images to predict."""
        return sum(map(len, self.missing))

    def predict(self, shape: tuple[int, ...]) -> None:
        """Predicts what is missing, and keeps each piece as it comes. `shape`: of one output.

        Raises:
            RunError: a failure that does not pass, or that lasts.
            OutputError: a piece cannot be written.
        """
        images = self.opened.images
        total, done = len(images), len(images) - self.left
        if done:
            say(f"{done:,} of {total:,} images are done already")
        with progress_bar() as bar, warnings.catch_warnings():
            # Said before, with the command line's words.
            warnings.simplefilter("ignore", InputWarning)
            # Said once, of all pieces.
            warnings.simplefilter("ignore", RangeWarning)
            bar.phase("predicting")
            for piece in self.missing:
                found = self.attempts.predict(images[piece.start : piece.stop])
                if found is None:
                    self.pieces.fail(piece, shape)
                else:
                    self.pieces.add(piece, found)
                done += len(piece)
                if bar.progress is not None:
                    bar.progress(done, total)

    def end(self, read: Read, as_json: bool) -> None:
        """Writes all results, removes the folder, and says so. The connection is closed: nobody sees what follows.

        Args:
            read: what outputs mean.
            as_json: whether to print a record for programs.

        Raises:
            RunError: a check of results has failed.
            OutputError: the results cannot be written.
        """
        if failure := end_of_failures(self.pieces):
            raise failure
        images = self.opened.images
        write(self.out, images.titles, self.pieces, read)
        accuracy = self.opened.accuracy(self.pieces.found(read))
        marks = {name: self.pieces.marked(name, read) for name in MARKS}
        counts = {name: None if flags is None else int(np.count_nonzero(flags)) for name, flags in marks.items()}
        self.pieces.remove()
        if beyond := counts["beyond_samples"]:
            warnings.warn(beyond_samples(beyond, len(images)), RangeWarning, stacklevel=2)
        if marks["clamped"] is not None and (problem := clamped_text(marks["clamped"])):
            warnings.warn(problem, RangeWarning, stacklevel=2)
        if as_json:
            record = {
                "images": len(images),
                "pieces": len(self.missing),
                "piece": self.pieces.work["piece"],
                "failures": self.attempts.failures,
                **counts,
                "seconds": time.monotonic() - self.attempts.started,
                "accuracy": accuracy,
                "out": str(self.out),
            }
            print(json.dumps(record))
            return
        print(f"{len(images):,} images, all in {self.out}")
        if accuracy is not None:
            print(f"accuracy: {100 * accuracy:.2f} %")
