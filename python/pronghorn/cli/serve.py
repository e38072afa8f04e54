"""`pronghorn serve`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

import pronghorn
from pronghorn import _native
from pronghorn._model import Model
from pronghorn._network import Server
from pronghorn.cli.channel import ServerChannel
from pronghorn.cli.console import say
from pronghorn.cli.options import (
    DataOption,
    ExitWithStdin,
    LabelColumnOption,
    ModelArgument,
    ModelOptions,
    Preparation,
    StoreOption,
    ThreadsOption,
)
from pronghorn.cli.progress import progress_bar
from pronghorn.cli.signals import end_with_stdin, interrupt_on_signals
from pronghorn.cli.spread import spread


@dataclass(frozen=True)
class Limits:
    """How much clients may use."""

    max_clients: Annotated[int, typer.Option(metavar="N", min=1, help="Most sessions at once.")] = 16
    max_images: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Most images one client may ask for; under encrypted each batch counts as all of its slots.",
        ),
    ] = None
    idle_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Time that a client may be silent within a prediction.")
    ] = 60.0
    keep_alive: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.1,
            help="Time that a connection may rest between predictions (default: as --idle-timeout).",
        ),
    ] = None
    hello_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Time that a new connection has for its hello.")
    ] = 5.0
    max_connections: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Most connections of one address (default: half of --max-clients, at least 2; no limit on loopback).",
        ),
    ] = None
    threads: ThreadsOption = None
    prepare: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Most prepared batches to keep for each client (two-party); 0 prepares none."
        ),
    ] = 16
    prepare_bytes: Annotated[
        int, typer.Option(metavar="BYTES", min=1, help="Most bytes of all prepared batches; the oldest make room.")
    ] = 1 << 30
    store: StoreOption = None


@spread
def serve(
    model: ModelArgument,
    *,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 takes a free one.")
    ] = "127.0.0.1:7700",
    data: DataOption = None,
    labels: LabelColumnOption = None,
    model_options: ModelOptions,
    preparation: Preparation,
    channel: ServerChannel,
    limits: Limits,
    report: Annotated[Path | None, typer.Option(hidden=True)] = None,
    exit_with_stdin: ExitWithStdin = False,
) -> None:
    """Serve a model until interrupted."""
    options = model_options.of_plan(preparation)
    if exit_with_stdin:
        end_with_stdin()
    interrupt_on_signals()
    with progress_bar() as bar:
        bar.phase("reading the model")
        loaded = model_options.calibrated(model, options, data, labels, preparation)
        bar.phase("planning")
        server = _bind(loaded, listen, limits, channel)
    plan = loaded.plan()
    learns = plan.summary()["learns"]
    say(escape(f"{options.trust}: server learns {learns['server']}; client learns {learns['client']}"))
    who = "clients that it knows" if channel.knows_clients else "anybody who connects"
    say(f"the plan (no weights, no names of the model's file) goes to {who}")
    try:
        print(f"listening on {server.address}", flush=True)
        if server.fingerprint is not None:
            say(f"TLS certificate {server.fingerprint}")
        say(f"plan {server.plan_hash}")
        say(escape(f"plan: {plan.expected_error}"))
        say(escape(f"plan: {plan.prediction}"))
        server.run()
    except KeyboardInterrupt:
        say("stopping")
        server.stop()
    finally:
        if report is not None:
            report.write_text(json.dumps({"peak_memory_bytes": _native.peak_memory_bytes()}))


def _bind(model: Model, listen: str, limits: Limits, channel: ServerChannel) -> Server:
    """A server that listens, and logs to standard error."""
    return pronghorn.serve(
        model,
        listen,
        max_clients=limits.max_clients,
        max_images_per_client=limits.max_images,
        idle_timeout=limits.idle_timeout,
        keep_alive=limits.keep_alive,
        hello_timeout=limits.hello_timeout,
        max_connections_per_address=limits.max_connections,
        threads=limits.threads,
        prepare=limits.prepare,
        prepare_bytes=limits.prepare_bytes,
        store=limits.store,
        tls=channel.options(),
        insecure_plain_tcp=channel.insecure_plain_tcp,
        log=lambda line: say(escape(line)),
    )
