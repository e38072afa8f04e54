"""`pronghorn predict`."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

import pronghorn
from pronghorn import _trust
from pronghorn._inputs import names_of_labels, takes_bytes
from pronghorn._model import Stats
from pronghorn._network import Client
from pronghorn._output_file import OutputFile
from pronghorn._outputs import INDICES, Predictions, beyond_samples, kind_of
from pronghorn._security import security_bits
from pronghorn._streams import Images, open_images
from pronghorn.cli.channel import ClientChannel
from pronghorn.cli.console import say
from pronghorn.cli.inputs import Labels, check_range, classes_only, label_column, labels_of, read_names
from pronghorn.cli.options import (
    ExitWithStdin,
    JsonOption,
    LimitOption,
    OutputsOption,
    Preparation,
    StoreOption,
    ThreadsOption,
    TrustOption,
)
from pronghorn.cli.pieces import Attempts, Pieces, check_format, digest, end_of_failures, write
from pronghorn.cli.preparing import keep_prepared, prepare_now, wait_prepared, warn_of_limit
from pronghorn.cli.progress import Bar, progress_bar
from pronghorn.cli.results import SHOWN, Outcome, Results
from pronghorn.cli.signals import end_with_stdin
from pronghorn.cli.spread import spread
from pronghorn.errors import InputError, InputWarning, RangeWarning, RunError

MOST_AT_ONCE = 1 << 12
"""Images that are read at a time where no piece is predicted."""


@dataclass(frozen=True)
class Connection:
    """Which server is asked, and how."""

    server: Annotated[str | None, typer.Option("--server", metavar="HOST:PORT", help="Address of the server.")] = None
    admission: Annotated[
        str | None,
        typer.Option(
            "--admission",
            metavar="URL",
            help="Ask this admission service for a node and a ticket, in place of --server.",
        ),
    ] = None
    trust: TrustOption = None
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME[@VERSION]", help="Model to ask, where the server has several (pronghorn models)."),
    ] = None
    plan_hash: Annotated[
        str | None, typer.Option(metavar="HASH", help="Refuse any other plan: all 64 digits that the server prints.")
    ] = None
    store: StoreOption = None
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.1, help="Time without a byte from or to the server until it is given up."
        ),
    ] = 60.0
    threads: ThreadsOption = None

    def open(self, channel: ClientChannel, images: int = 1) -> Client:
        """The client of a new connection, for so many images."""
        if (self.server is None) == (self.admission is None):
            raise InputError("give --server HOST:PORT, or --admission URL")
        if self.admission is None:
            return self._connect(channel, str(self.server), None)
        admitted = self._ask(channel, images=images)
        try:
            return self._connect(channel, admitted.address, self._tickets(channel, admitted))
        except RunError as error:
            if error.code not in ("unreachable", "closed", "stopping"):
                raise
        # The service has not noticed yet that the node is gone.
        admitted = self._ask(channel, images=images, failed=admitted.address)
        return self._connect(channel, admitted.address, self._tickets(channel, admitted))

    def _tickets(self, channel: ClientChannel, admitted: pronghorn.Admitted) -> Callable[[], bytes]:
        """The ticket for the first connection, and then others for the same node."""
        given = [admitted.ticket]
        return lambda: given.pop() if given else self._ask(channel, node=admitted.address).ticket

    def _ask(
        self, channel: ClientChannel, *, images: int = 1, failed: str | None = None, node: str | None = None
    ) -> pronghorn.Admitted:
        token, authority = channel.of_admission()
        return pronghorn.ask_admission(
            str(self.admission),
            model=self.model,
            images=images,
            failed=failed,
            node=node,
            token=token,
            authority=authority,
            timeout=self.timeout,
        )

    def _connect(self, channel: ClientChannel, address: str, ticket: Callable[[], bytes] | None) -> Client:
        return pronghorn.connect(
            address,
            self.trust,
            model=self.model,
            plan_hash=self.plan_hash,
            timeout=self.timeout,
            threads=self.threads,
            store=self.store,
            tls=channel.options(),
            token=channel.token,
            ticket=ticket,
            insecure_plain_tcp=channel.insecure_plain_tcp,
        )


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


@dataclass(frozen=True)
class _Batch:
    """What is sent, and what is known of it."""

    images: npt.NDArray[np.float32]
    """`(images, *input_shape)`."""
    titles: list[str]
    """The name of each image."""
    truth: Labels | None
    """The class of each image."""
    kind: str
    """What the outputs are: `classes`, `labels` or `values`."""

    def accuracy(self, found: Predictions) -> float | None:
        """The share of images with the right class; None without labels."""
        return None if self.truth is None else float(np.mean(found.classes == self.truth))


@dataclass(frozen=True)
class _Opened:
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

    def check(self, out: Path | None) -> None:
        """Refuses what does not go together.

        Raises:
            InputError: `--resume` or `--piece` without `--batch`, or that without a file that can be written.
        """
        if not self.batch:
            for option, given in (("--resume", self.resume), ("--piece", self.piece is not None)):
                if given:
                    raise InputError(f"{option} is for --batch: give --batch, or leave {option} out")
            return
        if out is None:
            raise InputError("--batch writes results as they come: give --out FILE")
        check_format(out)


@spread
def predict(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            help="Inputs: png, jpeg, npy, npz, IDX, CSV, parquet or folders of pictures.", metavar="INPUT..."
        ),
    ],
    *,
    connection: Connection,
    channel: ClientChannel,
    wanted: Wanted,
    preparation: Preparation,
    work: LongWork,
    prepare: Annotated[
        int,
        typer.Option(
            "--prepare",
            min=0,
            metavar="N",
            help="Garble ahead (two-party): for these images, and with --store N batches like them for later runs.",
        ),
    ] = 0,
    as_json: JsonOption = False,
    repeat: Annotated[
        int, typer.Option(min=1, metavar="N", help="Predict the images N times over; --json has the cost of each time.")
    ] = 1,
    with_plan: Annotated[bool, typer.Option("--with-plan", hidden=True)] = False,
    exit_with_stdin: ExitWithStdin = False,
) -> None:
    """Predict on images that the server does not see.

    Prints the class of each image and its probability. Outputs of other kinds are printed as they
    are.
    """
    level = _trust.require(connection.trust)
    if exit_with_stdin:
        end_with_stdin()
    work.check(wanted.out)
    if work.batch and wanted.out is not None:
        with ExitStack() as stack:
            _predict_pieces(inputs, connection, channel, wanted, wanted.out, preparation, work, as_json, stack)
        return
    output = None if wanted.out is None else OutputFile(wanted.out)
    names = read_names(wanted.names)
    with connection.open(channel) as client, progress_bar() as bar:
        plan = json.loads(client.plan_json())
        batch = _read(inputs, client, plan["finish"], wanted, preparation)
        if output is not None:
            output.reserve(len(batch.images), client.output_shape)
        if prepare:
            warn_of_limit(client, prepare)
        prepared = prepare_now(client, len(batch.images), bar) if prepare else None
        if prepare and (connection.store is not None or repeat > 1):
            keep_prepared(client, prepare, len(batch.images))
        found, runs = _run(client, batch, repeat, bar)
        if prepare and connection.store is not None:
            wait_prepared(client, bar)
        plan_hash, plan_text = client.plan_hash, client.plan_text(details=True)
    # Results that cannot be written are printed, all of them.
    unwritten = None if output is None else output.write(found)
    results = Results(batch.titles, found, wanted.top, names)
    outcome = Outcome(level, plan_hash, results, batch.accuracy(found), runs, prepared)
    if as_json:
        shown = {"plan": plan, "security_bits": security_bits(plan_text)} if with_plan else {}
        print(json.dumps({**outcome.json(), **shown}))
    else:
        outcome.print(wanted.out, len(batch.images) if unwritten is not None else SHOWN)
    if unwritten is not None:
        raise unwritten


def _predict_pieces(
    inputs: list[Path],
    connection: Connection,
    channel: ClientChannel,
    wanted: Wanted,
    out: Path,
    preparation: Preparation,
    work: LongWork,
    as_json: bool,
    stack: ExitStack,
) -> None:
    """Predicts all inputs piece by piece, and writes the results once all are there. `stack` gives the folder back."""
    started = time.monotonic()
    attempts = Attempts(lambda: connection.open(channel), work.give_up)
    try:
        client = attempts.connected()
        plan = json.loads(client.plan_json())
        batch = _open(inputs, client, plan["finish"], wanted, preparation)
        earlier = Pieces.size_of(out) if work.resume else None
        images, piece = len(batch.images), work.piece or earlier or client.piece
        check_range(batch.images[:piece], client.plan_json(), preparation, batch.were_bytes)
        inputs_digest = digest(batch.images, min(piece, MOST_AT_ONCE))
        named = {"images": images, "inputs": inputs_digest, "plan": client.plan_hash, "piece": piece}
        pieces = Pieces(out, named, work.resume)
        stack.callback(pieces.release)
        same = replace(connection, plan_hash=client.plan_hash, model=client.model)
        missing = pieces.missing()
        left = sum(map(len, missing))
        attempts.connect = lambda: same.open(channel, max(left, 1))
        done = images - left
        if done:
            say(f"{done:,} of {images:,} images are done already")
        with progress_bar() as bar, warnings.catch_warnings():
            # `check_range` has said it with the command line's words.
            warnings.simplefilter("ignore", InputWarning)
            # Said once, of all pieces.
            warnings.simplefilter("ignore", RangeWarning)
            bar.phase("predicting")
            for each in missing:
                found = attempts.predict(batch.images[each.start : each.stop])
                if found is None:
                    pieces.fail(each, client.output_shape)
                else:
                    pieces.add(each, *found)
                done += len(each)
                if bar.progress is not None:
                    bar.progress(done, images)
    finally:
        attempts.close()
    if failure := end_of_failures(pieces):
        raise failure

    def read(outputs: npt.NDArray[np.float32]) -> Predictions:
        return replace(Predictions.of(outputs, plan["finish"], batch.kind), class_names=tuple(plan["class_names"]))

    write(out, batch.images.titles, pieces, read)
    accuracy = batch.accuracy(pieces.found(read))
    known = [each.beyond_samples for each in pieces.found(read) if each.beyond_samples is not None]
    beyond = sum(int(np.count_nonzero(each)) for each in known) if known else None
    pieces.remove()
    if beyond:
        warnings.warn(beyond_samples(beyond, images), RangeWarning, stacklevel=2)
    seconds = time.monotonic() - started
    if as_json:
        counts = {"images": images, "pieces": len(missing), "piece": piece, "failures": attempts.failures}
        print(
            json.dumps({**counts, "beyond_samples": beyond, "seconds": seconds, "accuracy": accuracy, "out": str(out)})
        )
        return
    print(f"{images:,} images, all in {out}")
    if accuracy is not None:
        print(f"accuracy: {100 * accuracy:.2f} %")


def _open(paths: list[Path], client: Client, finish: list[str], wanted: Wanted, preparation: Preparation) -> _Opened:
    """The images of all files, as far as they are wanted, unread."""
    as_they_are = takes_bytes(client.input_range)
    column = label_column(wanted.labels, paths)
    values = preparation.values(as_they_are)
    opened = [open_images(path, client.input_shape, values, column) for path in paths]
    images = Images(opened, wanted.limit)
    beside = opened[0].labels if len(paths) == 1 else None
    path, names = None if column else wanted.labels, names_of_labels(client.class_names, wanted.outputs)
    known = labels_of(path, beside, len(images), images.total, names, column)
    _check_index(finish, wanted)
    kind = kind_of(finish, client.output_shape, wanted.outputs, known)
    truth = classes_only(known, kind, path)
    return _Opened(images, truth, kind, any(each.were_bytes for each in opened))


def _read(paths: list[Path], client: Client, finish: list[str], wanted: Wanted, preparation: Preparation) -> _Batch:
    """The images of all files, as far as they are wanted, checked against the server's plan."""
    as_they_are = takes_bytes(client.input_range)
    column = label_column(wanted.labels, paths)
    loaded = [preparation.load(path, client.input_shape, as_they_are, column) for path in paths]
    images = np.concatenate([each.images for each in loaded])
    total, images = len(images), images[: wanted.limit]
    check_range(images, client.plan_json(), preparation, any(each.were_bytes for each in loaded))
    beside = loaded[0].labels if len(paths) == 1 else None
    path, names = None if column else wanted.labels, names_of_labels(client.class_names, wanted.outputs)
    known = labels_of(path, beside, len(images), total, names, column)
    _check_index(finish, wanted)
    kind = kind_of(finish, client.output_shape, wanted.outputs, known)
    titles = [title for each in loaded for title in each.titles]
    return _Batch(images, titles[: wanted.limit], classes_only(known, kind, path), kind)


def _check_index(finish: list[str], wanted: Wanted) -> None:
    """Refuses options about values where the result is the index of a class."""
    if not INDICES & set(finish):
        return
    useless = {"--top": wanted.top is not None, "--outputs": wanted.outputs not in (None, "classes")}
    for option in [name for name, is_given in useless.items() if is_given]:
        raise InputError(
            f"the server's plan gives the class of each image, and no values or probabilities: leave {option} out"
        )


def _run(client: Client, batch: _Batch, repeat: int, bar: Bar) -> tuple[Predictions, list[Stats]]:
    """Runs the prediction `repeat` times; the last one's results, and the cost of each."""
    runs: list[Stats] = []
    with warnings.catch_warnings():
        # `check_range` has said it with the command line's words.
        warnings.simplefilter("ignore", InputWarning)
        for _ in range(repeat):
            bar.phase("predicting")
            found = client.classify(batch.images, outputs=batch.kind, progress=bar.progress)
            assert client.last_stats is not None
            runs.append(client.last_stats)
    return found, runs
