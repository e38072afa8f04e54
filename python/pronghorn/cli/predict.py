"""`pronghorn predict`."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

import pronghorn
from pronghorn import _trust
from pronghorn._model import Stats
from pronghorn._network import Client, Quantised
from pronghorn._output_file import OutputFile
from pronghorn._outputs import Predictions, finish_of, reader, shapes_of
from pronghorn._security import security_bits
from pronghorn.cli.channel import ClientChannel
from pronghorn.cli.inputs import check_range
from pronghorn.cli.long_work import LongWork
from pronghorn.cli.options import (
    ExitWithStdin,
    JsonOption,
    Preparation,
    StoreOption,
    ThreadsOption,
    TrustOption,
)
from pronghorn.cli.pieces import Answer, Attempts
from pronghorn.cli.preparing import prepare_ahead, wait_prepared
from pronghorn.cli.progress import Bar, progress_bar
from pronghorn.cli.results import SHOWN, Outcome, Results
from pronghorn.cli.signals import end_with_stdin
from pronghorn.cli.spread import spread
from pronghorn.cli.wanted import Parts, Wanted
from pronghorn.errors import InputError, InputWarning, RunError


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

    def to_plan_of(self, client: Client) -> Connection:
        """The way to the model of a client, which refuses any other plan."""
        return replace(self, plan_hash=client.plan_hash, model=client.model)

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
    work.check(wanted, prepares=prepare > 0, repeats=repeat > 1)
    if work.batch and wanted.out is not None:
        _predict_pieces(inputs, connection, channel, wanted, wanted.out, preparation, work, as_json)
        return
    output = None if wanted.out is None else OutputFile(wanted.out)
    refills = prepare > 0 and connection.store is not None
    with ExitStack() as stack:
        client = stack.enter_context(connection.open(channel))
        with progress_bar() as bar:
            plan = json.loads(client.plan_json())
            batch = wanted.parts(inputs, client, finish_of(plan), preparation)
            images, names = batch.images, wanted.class_names(batch.kind, finish_of(plan), client.output_shape)
            quantised = _quantised(client, batch, preparation)
            if output is not None:
                output.reserve(images, client.output_shape)
            prepared = None
            if prepare:
                prepared = prepare_ahead(client, prepare, images, bar, keeps=refills or repeat > 1)
            try:
                found, runs = _run(client, quantised, batch.kind, repeat, bar)
            except RunError as error:
                # A preparation that failed, of which a warning was given, may have ended the session.
                if not prepare or error.code != "over":
                    raise
                client = stack.enter_context(_connected_again(client, connection, channel, images))
                found, runs = _run(client, quantised, batch.kind, repeat, bar)
        plan_hash, plan_text = client.plan_hash, client.plan_text(details=True)
        if not refills:
            stack.close()
        # Results that cannot be written are printed, all of them.
        unwritten = None if output is None else output.write(found)
        results = Results(batch.titles, found, wanted.top, names)
        outcome = Outcome(level, plan_hash, results, batch.accuracy(found), runs, prepared)
        if as_json:
            shown = {"plan": plan, "security_bits": security_bits(plan_text)} if with_plan else {}
            print(json.dumps({**outcome.json(), **shown}))
        else:
            outcome.print(wanted.out, images if unwritten is not None else SHOWN)
        # Last, as it takes long: whoever ends it has the results.
        sys.stdout.flush()
        if refills:
            with progress_bar() as bar:
                wait_prepared(client, bar)
    if unwritten is not None:
        raise unwritten


def _connected_again(client: Client, connection: Connection, channel: ClientChannel, images: int) -> Client:
    """Another client of the plan of one whose session is over."""
    same = connection.to_plan_of(client)
    client.close()
    return same.open(channel, images)


def _predict_pieces(
    inputs: list[Path],
    connection: Connection,
    channel: ClientChannel,
    wanted: Wanted,
    out: Path,
    preparation: Preparation,
    work: LongWork,
    as_json: bool,
) -> None:
    """Predicts all inputs piece by piece, and writes the results once all are there."""
    attempts = Attempts(lambda: connection.open(channel), _ask, work.give_up)
    with ExitStack() as stack:
        with closing(attempts):
            client = attempts.connected()
            plan = json.loads(client.plan_json())
            opened = wanted.open(inputs, client, finish_of(plan), preparation)
            names = wanted.class_names(opened.kind, finish_of(plan), client.output_shape) or plan["class_names"]
            whose = {"plan": client.plan_hash}
            size = work.size(out) or client.piece
            check_range(opened.images[:size], client.plan_json(), preparation, opened.were_bytes)
            running = stack.enter_context(work.begin(out, opened, whose, attempts, size))
            same = connection.to_plan_of(client)
            attempts.connect = lambda: same.open(channel, max(running.left, 1))
            running.predict(client.output_shape)
        running.end(reader(finish_of(plan), opened.kind, names, shapes_of(plan)), as_json)


def _ask(client: Client, images: npt.NDArray[np.float32]) -> Answer:
    return Answer(client.predict(images), client.last_beyond_samples, client.last_clamped)


def _quantised(client: Client, batch: Parts, preparation: Preparation) -> Quantised:
    """The images as the plan's integers.

    Raises:
        InputError: as of `check_range`.
    """
    found: list[Quantised] = []
    shown: tuple[bool, npt.NDArray[np.float32]] | None = None
    with warnings.catch_warnings():
        # It is said with the command line's words.
        warnings.simplefilter("ignore", InputWarning)
        for part in batch.parts:
            found.append(client.quantise(part))
            # The part to be described: one that is mostly far beyond the range, or the first.
            is_far = 2 * int(np.count_nonzero(found[-1].far)) >= len(part)
            if shown is None or is_far > shown[0]:
                shown = is_far, part
    quantised = Quantised.joined(found)
    if shown is not None:
        check_range(shown[1], client.plan_json(), preparation, batch.were_bytes, quantised.far)
    return quantised


def _run(client: Client, inputs: Quantised, kind: str, repeat: int, bar: Bar) -> tuple[Predictions, list[Stats]]:
    """Runs the prediction `repeat` times; the last one's results, and the cost of each."""
    runs: list[Stats] = []
    for _ in range(repeat):
        bar.phase("predicting")
        found = client.classify(inputs, outputs=kind, progress=bar.progress)
        assert client.last_stats is not None
        runs.append(client.last_stats)
    return found, runs
