"""`pronghorn multikey`: cloud, model owner and client, each a process of its own."""

from __future__ import annotations

import json
import warnings
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pronghorn import _native
from pronghorn import multikey as roles
from pronghorn._model import counted
from pronghorn._multikey_check import Case
from pronghorn._multikey_plan import in_range
from pronghorn._network import LogLine
from pronghorn._output_file import OutputFile
from pronghorn._outputs import classes_of, kind_of, reader
from pronghorn.cli.caps import Caps, caps_of
from pronghorn.cli.channel import ClientChannel, ServerChannel
from pronghorn.cli.console import say
from pronghorn.cli.inputs import classes_only, labels_of
from pronghorn.cli.log import LogOptions
from pronghorn.cli.long_work import MOST_AT_ONCE, LongWork
from pronghorn.cli.options import (
    DataOption,
    ExitWithStdin,
    InputRangeOption,
    InputShapeOption,
    JsonOption,
    LabelColumnOption,
    LimitOption,
    ModelArgument,
    ModelOptions,
    OutputsOption,
    OutputValueOption,
    Preparation,
)
from pronghorn.cli.pieces import Answer, Attempts
from pronghorn.cli.progress import progress_bar
from pronghorn.cli.results import SHOWN, Results
from pronghorn.cli.signals import end_with_stdin, interrupt_on_signals
from pronghorn.cli.spread import spread
from pronghorn.cli.values import parse_size
from pronghorn.cli.wanted import Wanted
from pronghorn.errors import InputWarning

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Data and model under different keys: a cloud that can read neither, a model owner, and clients.",
)

CloudOption = Annotated[str, typer.Option("--cloud", metavar="HOST:PORT", help="Address of the cloud.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Time without a byte until the peer is given up.")
]
OwnerKeysOption = Annotated[
    Path,
    typer.Option("--keys", metavar="DIR", help="Directory of the owner's key, its ledger and its clients. Secret."),
]
ClientKeysOption = Annotated[
    Path, typer.Option("--keys", metavar="DIR", help="Directory of this client's secret; made where there is none.")
]
ErrorOption = Annotated[
    float | None,
    typer.Option(
        "--error",
        metavar="X",
        min=0.0,
        help="Largest absolute error of outputs, of a new key (default: 2^-10, or a 64th of the outputs' spread on "
        "the samples where that is less).",
    ),
]
ResultsOption = Annotated[
    int, typer.Option("--results", metavar="N", min=1, help="Results that a new key may decrypt.")
]


@dataclass(frozen=True)
class Reading:
    """How the owner's model is read."""

    data: DataOption = None
    labels: LabelColumnOption = None
    input_range: InputRangeOption = None
    shape: InputShapeOption = None
    output: OutputValueOption = None

    def load(self, model: Path, preparation: Preparation) -> Any:
        """The model with its samples."""
        options = ModelOptions(input_range=self.input_range, shape=self.shape, output=self.output)
        return options.calibrated(model, options.of_plan(preparation), self.data, self.labels, preparation)


@dataclass(frozen=True)
class AtCloud:
    """Which cloud a client asks, for whose model."""

    cloud: CloudOption
    owner: Annotated[
        str, typer.Option(metavar="NAME", help="The model owner's name, as its owner told you: not the cloud.")
    ]
    keys: ClientKeysOption
    timeout: TimeoutOption = 120.0

    def open(self, channel: ClientChannel) -> roles.Client:
        """A connection."""
        return roles.Client(
            self.cloud,
            self.owner,
            self.keys,
            timeout=self.timeout,
            tls=channel.options(),
            token=channel.token,
            insecure_plain_tcp=channel.insecure_plain_tcp,
        )

    def joined(self, channel: ClientChannel) -> roles.Client:
        """A connection that the model owner knows of, and whose public keys the cloud has."""
        party = self.open(channel)
        try:
            party.join()
        except BaseException:
            party.close()
            raise
        return party


@app.command()
@spread
def cloud(
    *,
    store: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory for the encrypted model and public keys; nothing is secret.")
    ],
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Address to listen on; port 0 takes a free one.")
    ] = "127.0.0.1:7700",
    owner: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The only model owner that may publish (default: the first that does)."),
    ] = None,
    caps: Caps,
    keys_in_memory: Annotated[
        int, typer.Option(metavar="N", min=1, help="Clients whose public keys are in memory, twice their bytes each.")
    ] = 4,
    max_upload: Annotated[
        str, typer.Option(metavar="SIZE", help="Most bytes of a publication, and of a party's public keys.")
    ] = "2G",
    channel: ServerChannel,
    logging: LogOptions,
    report: Annotated[Path | None, typer.Option(hidden=True)] = None,
    exit_with_stdin: ExitWithStdin = False,
) -> None:
    """Compute with an encrypted model on encrypted inputs, until interrupted.

    The cloud has no secret and learns neither the weights, nor inputs, nor results.
    """
    if exit_with_stdin:
        end_with_stdin()
    interrupt_on_signals()
    log = logging.open()
    server = roles.Cloud(
        listen,
        store,
        owner=owner,
        limits=caps_of(caps),
        keys_in_memory=keys_in_memory,
        max_upload=parse_size(max_upload) or roles.MAX_UPLOAD,
        log=lambda line: log(line.level, line.event, str(line), line.fields),
        tls=channel.options(),
        insecure_plain_tcp=channel.insecure_plain_tcp,
    )
    print(f"listening on {server.address}", flush=True)
    if server.fingerprint is not None:
        log("info", "tls", f"TLS certificate {server.fingerprint}")
    try:
        server.run()
    except KeyboardInterrupt:
        log("info", "stopping", "stopping")
        server.stop()
    finally:
        _write_report(report)


@app.command()
@spread
def owner(
    model: ModelArgument,
    *,
    cloud: CloudOption,
    keys: OwnerKeysOption,
    reading: Reading,
    preparation: Preparation,
    error: ErrorOption = None,
    results: ResultsOption = roles.RESULTS,
    timeout: TimeoutOption = 120.0,
    channel: ClientChannel,
    logging: LogOptions,
    report: Annotated[Path | None, typer.Option(hidden=True)] = None,
    exit_with_stdin: ExitWithStdin = False,
) -> None:
    """Upload an encrypted model once, then take part in decryptions until interrupted.

    Clients are admitted by name: `pronghorn multikey admit`.
    """
    if exit_with_stdin:
        end_with_stdin()
    interrupt_on_signals()
    party = roles.ModelOwner(reading.load(model, preparation), keys, error=error, results=results)
    _attend(party, cloud, timeout, channel, logging)
    _write_report(report)


@app.command()
@spread
def delegate(
    *,
    cloud: CloudOption,
    keys: OwnerKeysOption,
    timeout: TimeoutOption = 120.0,
    channel: ClientChannel,
    logging: LogOptions,
    exit_with_stdin: ExitWithStdin = False,
) -> None:
    """Take part in decryptions in a model owner's place, with a key that it handed over, until interrupted.

    A delegate has no weights. Together with the cloud it could decrypt them.
    """
    if exit_with_stdin:
        end_with_stdin()
    interrupt_on_signals()
    _attend(roles.Delegate(keys), cloud, timeout, channel, logging)


def _attend(party: roles.Attending, cloud: str, timeout: float, channel: ClientChannel, logging: LogOptions) -> None:
    log = logging.open()
    terms = party.terms
    print(f"model owner {party.name}", flush=True)
    log(
        "info",
        "terms",
        f"outputs are within {terms.error:.3g}; inputs are from {terms.input_range[0]:.6g} to "
        f"{terms.input_range[1]:.6g}; {party.results_left} of "
        f"{terms.results} results are left; public keys of a party take up to {terms.key_bytes / 1e6:,.0f} MB",
    )

    def told(line: LogLine) -> None:
        log(line.level, line.event, str(line), line.fields)
        if line.event == "attending":
            print("attending", flush=True)

    try:
        party.attend(
            cloud,
            timeout=timeout,
            log=told,
            tls=channel.options(),
            token=channel.token,
            insecure_plain_tcp=channel.insecure_plain_tcp,
        )
    except KeyboardInterrupt:
        log("info", "stopping", "stopping")


@app.command()
def hand_over(
    keys: OwnerKeysOption,
    to: Annotated[Path, typer.Option(metavar="DIR", help="Directory for the delegate; made where it is missing.")],
) -> None:
    """Move a model owner's key, its ledger and its clients to another directory, for a delegate, or back.

    Publish the model before. One directory has the key afterwards: keep no copy.
    """
    roles.hand_over(keys, to)
    print(f"{to}: the key of {keys}, for `pronghorn multikey delegate`")


@app.command()
def admit(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The client's name, as the client told you: not the cloud.")
    ],
    keys: OwnerKeysOption,
) -> None:
    """Decrypt results for a client from now on.

    A name that the cloud could have changed is worth nothing: the cloud could be its own client.
    """
    roles.admit(keys, name)
    print(f"{keys / roles.CLIENTS}: {name}")


@app.command()
@spread
def name(*, at: AtCloud, channel: ClientChannel) -> None:
    """Print this client's name, which the model owner admits."""
    with at.open(channel) as client:
        print(client.name)


@app.command()
@spread
def client(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            help="Inputs: png, jpeg, npy, npz, IDX, CSV, parquet or folders of pictures.", metavar="INPUT..."
        ),
    ],
    *,
    at: AtCloud,
    channel: ClientChannel,
    wanted: Wanted,
    preparation: Preparation,
    work: LongWork,
    as_json: JsonOption = False,
    exit_with_stdin: ExitWithStdin = False,
) -> None:
    """Predict on images that neither the cloud nor the model owner sees.

    The public keys are sent once. The model owner must be connected to the cloud.
    """
    if exit_with_stdin:
        end_with_stdin()
    work.check(wanted)
    if work.batch and wanted.out is not None:
        _predict_pieces(inputs, at, channel, wanted, wanted.out, preparation, work, as_json)
        return
    output = None if wanted.out is None else OutputFile(wanted.out)
    with at.open(channel) as party, progress_bar() as bar:
        batch = wanted.read(inputs, party, party.finish, preparation)
        names = wanted.class_names(batch.kind, party.finish, party.output_shape)
        images = len(batch.images)
        if output is not None:
            output.reserve(images, party.output_shape)
        terms = party.terms
        in_range(batch.images, terms.input_range)
        say(_introduced(party))
        bar.phase("sending keys")
        sent = party.join()
        bar.phase("predicting")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)
            found = party.classify(batch.images, outputs=batch.kind, progress=bar.progress)
        stats = party.last_stats or {}
    unwritten = None if output is None else output.write(found)
    accuracy = batch.accuracy(found)
    shown = Results(batch.titles, found, wanted.top, names)
    if as_json:
        record = {
            "images": images,
            "trust": "multi-key",
            "client": party.name,
            "key_bytes_sent": sent,
            "error": terms.error,
            "accuracy": accuracy,
            "runs": [stats],
            "peak_memory_bytes": _native.peak_memory_bytes(),
        }
        print(json.dumps({**record, **shown.json()}))
    else:
        shown.print(wanted.out, images if unwritten is not None else SHOWN)
        if accuracy is not None:
            print(f"accuracy: {100 * accuracy:.2f} %")
        print(
            f"{counted(images, 'image')} in {stats['seconds']:.2f} s, "
            f"{stats['bytes_sent'] / images:,.0f} bytes an image sent and "
            f"{stats['bytes_received'] / images:,.0f} received; outputs are within {terms.error:.3g}"
        )
    if unwritten is not None:
        raise unwritten


def _predict_pieces(
    inputs: list[Path],
    at: AtCloud,
    channel: ClientChannel,
    wanted: Wanted,
    out: Path,
    preparation: Preparation,
    work: LongWork,
    as_json: bool,
) -> None:
    """Predicts all inputs piece by piece, and writes the results once all are there."""
    attempts = Attempts(lambda: at.open(channel), lambda party, images: Answer(party.predict(images)), work.give_up)
    with ExitStack() as stack:
        with closing(attempts):
            party = attempts.connected()
            opened = wanted.open(inputs, party, party.finish, preparation)
            names = wanted.class_names(opened.kind, party.finish, party.output_shape) or party.class_names
            for first in range(0, len(opened.images), MOST_AT_ONCE):
                in_range(opened.images[first : first + MOST_AT_ONCE], party.input_range, first)
            running = stack.enter_context(work.begin(out, opened, {"owner": at.owner}, attempts, work.size(out) or 1))
            say(_introduced(party))
            attempts.close()
            attempts.connect = lambda: at.joined(channel)
            running.predict(party.output_shape)
        running.end(reader(party.finish, opened.kind, names), as_json)


def _introduced(party: roles.Client) -> str:
    return f"client {party.name}; public keys take up to {party.terms.key_bytes / 1e6:,.0f} MB, sent once"


@app.command()
@spread
def check(
    model: ModelArgument,
    *,
    data: Annotated[Path, typer.Option("--data", metavar="PATH", help="Images, with labels where known.")],
    limit: LimitOption = None,
    outputs: OutputsOption = None,
    preparation: Preparation,
    error: ErrorOption = None,
    results: ResultsOption = roles.RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Run cloud, model owner and client as processes of this machine, and compare with the float model.

    Images set the range of inputs. Exits with 1 where under 99 % of the labels are equal, or an output
    differs from the float model's by more than is stated and single precision rounds.
    """
    reading = preparation.arguments()
    loaded = Reading(data=data).load(model, preparation)
    images, found, *_ = preparation.load_for(loaded, data)
    known = labels_of(None, found, len(images[:limit]), len(images), loaded.class_names)
    kind = kind_of(loaded.finish, loaded.output_shape, outputs, known)
    truth = classes_only(known, kind, None, classes_of(loaded.finish, loaded.output_shape))
    terms = [*([] if error is None else ["--error", str(error)]), "--results", str(results)]
    case = Case(loaded, model, data, images[:limit], truth, kind, reading, terms)
    report = case.run()
    print(report.to_json() if as_json else report)
    if not report.ok:
        raise typer.Exit(1)


def _write_report(report: Path | None) -> None:
    if report is not None:
        report.write_text(json.dumps({"peak_memory_bytes": _native.peak_memory_bytes()}))
