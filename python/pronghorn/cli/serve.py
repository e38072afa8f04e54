"""`pronghorn serve`."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

import pronghorn
from pronghorn import _check, _native
from pronghorn._model import Plan
from pronghorn._network import Offer, Server
from pronghorn.cli import config
from pronghorn.cli.caps import Caps, caps_of, open_files_allowed
from pronghorn.cli.channel import ServerChannel
from pronghorn.cli.config import Entry
from pronghorn.cli.kept import KeptPlans, digest
from pronghorn.cli.log import Log, LogOptions
from pronghorn.cli.options import (
    DataOption,
    ExitWithStdin,
    LabelColumnOption,
    ModelOptions,
    Preparation,
    StoreOption,
    ThreadsOption,
)
from pronghorn.cli.progress import Bar, progress_bar
from pronghorn.cli.signals import end_gently, end_with_stdin, interrupt_on_signals, on_hangup
from pronghorn.cli.spread import spread
from pronghorn.errors import InputError, PronghornError

ListenOption = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Address to listen on; port 0 takes a free one.")
]
PlansOption = Annotated[
    Path | None,
    typer.Option(
        "--plans",
        metavar="DIR",
        help="Directory to keep plans in, secret as the models, so that a restart takes seconds.",
    ),
]
MetricsOption = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="[HOST:]PORT",
        help="Answer /healthz, /readyz and /metrics (Prometheus) there over HTTP, by default on 127.0.0.1.",
    ),
]


@dataclass(frozen=True)
class Limits:
    """How long clients may take, and what is kept for them."""

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
    max_waiting: Annotated[
        int, typer.Option(metavar="N", min=0, help="Most clients that wait for a place; more are refused as busy.")
    ] = 256
    queue_timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="Time that a client waits for a place until it is refused."),
    ] = 30.0
    turn: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="Time that a client keeps its place while others wait for one."),
    ] = 5.0
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
    proxy_from: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NETWORK",
            help="Address or network (10.1.0.0/16) of load balancers that send the PROXY protocol; may be given again.",
        ),
    ] = None
    tickets: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Serve clients with a ticket of the admission service with this public key alone."
        ),
    ] = None
    node: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="This node's address in tickets, as clients reach it.")
    ] = None
    store: StoreOption = None

    def ticketed(self) -> tuple[str, str] | None:
        """What `serve` takes as `tickets`.

        Raises:
            InputError: one of the two options is missing, or the file cannot be read.
        """
        if self.tickets is None and self.node is None:
            return None
        if self.tickets is None or self.node is None:
            raise InputError("--tickets and --node go together: give both")
        try:
            return self.tickets.read_text().strip(), self.node
        except OSError as error:
            raise InputError(f"{self.tickets} cannot be read: {error}") from error


@dataclass(frozen=True)
class Operation:
    """How it is watched, and how it ends."""

    metrics: MetricsOption = None
    drain_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Time that running batches have after SIGTERM.")
    ] = 30.0

    def monitor(self, server: Server) -> AbstractContextManager[object]:
        """What answers there.

        Raises:
            InputError: no such address.
            RunError: it cannot be bound.
        """
        if self.metrics is None:
            return nullcontext()
        return pronghorn.Monitor(_check.monitor_address(self.metrics), server.metrics)


OF_MODELS = {"model", "data", "labels", *(field.name for kind in (ModelOptions, Preparation) for field in fields(kind))}
"""Options of `serve` that a file has in the tables of its models."""
HIDDEN = {"config_file", "report", "exit_with_stdin"}


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Takes the options of a server's file as defaults: the command line and the environment go before it."""
    if path is not None:
        where = f"{path}, [server]"
        context.default_map = config.defaults(serve, config.read(path)[0], path.parent, where, OF_MODELS | HIDDEN)
    return path


@spread
def serve(
    model: Annotated[Path | None, typer.Argument(help="An ONNX file; none with --config.", metavar="[MODEL]")] = None,
    *,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            is_eager=True,
            callback=_read_config,
            help="TOML file of several models and of these options (docs/serving.md); SIGHUP reads its models again.",
        ),
    ] = None,
    plans: PlansOption = None,
    listen: ListenOption = "127.0.0.1:7700",
    data: DataOption = None,
    labels: LabelColumnOption = None,
    model_options: ModelOptions,
    preparation: Preparation,
    channel: ServerChannel,
    limits: Limits,
    caps: Caps,
    operation: Operation,
    logging: LogOptions,
    report: Annotated[Path | None, typer.Option(hidden=True)] = None,
    exit_with_stdin: ExitWithStdin = False,
) -> None:
    """Serve a model, or the models of a file, until interrupted."""
    interrupt_on_signals()
    alone = None if model is None else Entry(None, model, data, labels, model_options, preparation)
    entries = _entries(alone, config_file)
    if exit_with_stdin:
        end_with_stdin()
    log = logging.open()
    planner = Planner(None if plans is None else KeptPlans(plans))
    server = None
    try:
        with progress_bar() as bar:
            planned = planner.plan(entries, bar)
            server = _bind(_offers(planned), listen, limits, caps, channel, log)
        if config_file is not None:
            _reload_on_hangup(server, config_file, planner, log)
        for entry, plan in planned:
            _describe(entry, plan, log)
        who = "clients that it knows" if channel.knows_clients else "anybody who connects"
        log("info", "plan", f"the plan (no weights, and of names those that plan prints) goes to {who}")
        with operation.monitor(server) as monitor:
            print(f"listening on {server.address}", flush=True)
            if isinstance(monitor, pronghorn.Monitor):
                log("info", "metrics", f"metrics on http://{monitor.address}/metrics", {"address": monitor.address})
            if server.fingerprint is not None:
                log("info", "tls", f"TLS certificate {server.fingerprint}")
            for entry, plan in planned:
                _print_plan(entry, plan, log)
            wait_for_drain = end_gently(lambda: _drain(server, operation.drain_timeout, log))
            server.run()
            # `run` ends when the server begins to stop. Sessions that are cut still log that.
            wait_for_drain()
    except KeyboardInterrupt:
        log("info", "stopping", "stopping" if server is not None else "stopping: no client was served")
        if server is not None:
            server.stop()
    finally:
        if report is not None:
            report.write_text(json.dumps({"peak_memory_bytes": _native.peak_memory_bytes()}))


def _reload_on_hangup(server: Server, path: Path, planner: Planner, log: Log) -> None:
    options = config.read(path)[0]
    on_hangup(lambda: _reload(server, path, options, planner, log))


def _drain(server: Server, timeout: float, log: Log) -> None:
    whole = server.drain(timeout)
    log("info" if whole else "warning", "stopped", "all batches have ended" if whole else "batches were cut")


def _entries(alone: Entry | None, config_file: Path | None) -> list[Entry]:
    """What is to be served.

    Raises:
        InputError: nothing, or a model and a file of models.
    """
    if alone is not None and config_file is not None:
        raise InputError("--config names the models: leave MODEL out, or --config")
    if config_file is not None:
        return config.entries(config_file)
    if alone is None:
        raise InputError("give an ONNX file to serve, or --config FILE")
    return [alone]


Planned = list[tuple[Entry, Plan]]


class Planner:
    """Plans entries, each once as long as it does not change."""

    def __init__(self, kept: KeptPlans | None) -> None:
        """`kept`: where plans outlive the process."""
        self._kept = kept
        self._plans: dict[str, Plan] = {}

    def plan(self, entries: list[Entry], bar: Bar | None = None) -> Planned:
        """The plan of each entry. Those of entries that are no more are forgotten."""
        plans: dict[str, Plan] = {}
        planned = []
        for entry in entries:
            name = digest(entry)
            plans[name] = self._plans.get(name) or self._make(entry, bar)
            planned.append((entry, plans[name]))
        self._plans = plans
        return planned

    def _make(self, entry: Entry, bar: Bar | None) -> Plan:
        def make() -> Plan:
            return _plan(entry, bar)

        return make() if self._kept is None else self._kept.plan(entry, make)


def _plan(entry: Entry, bar: Bar | None) -> Plan:
    of = "" if entry.name is None else f" {entry.name}"
    options = entry.options.of_plan(entry.preparation)
    if bar is not None:
        bar.phase(f"reading the model{of}")
    loaded = entry.options.calibrated(entry.file, options, entry.data, entry.labels, entry.preparation)
    if bar is not None:
        bar.phase(f"planning{of}")
    return loaded.plan()


def _offers(planned: Planned) -> Plan | dict[str, Offer]:
    """The plans as `pronghorn.serve` takes them."""
    if planned[0][0].name is None:
        return planned[0][1]
    return {str(entry.name): Offer(plan, entry.clients) for entry, plan in planned}


def _reload(server: Server, path: Path, options: dict[str, Any], planner: Planner, log: Log) -> None:
    """Serves what the file says now. Where it cannot be used, all is as before. `options` are those it began with."""
    try:
        now = config.read(path)[0]
        planned = planner.plan(config.entries(path))
        server.offer(_offers(planned))
    except PronghornError as error:
        log("error", "reload", f"{path} is refused, and the models of before are served on: {error}")
        return
    log("info", "reload", f"read {path} again")
    changed = sorted(name for name in {*options, *now} if options.get(name) != now.get(name))
    if changed:
        names = ", ".join(name.replace("_", "-") for name in changed)
        log("warning", "reload", f"[server] has changed ({names}): options need a restart")
    for entry, plan in planned:
        _print_plan(entry, plan, log)


def _describe(entry: Entry, plan: Plan, log: Log) -> None:
    learns = plan.summary()["learns"]
    of = "" if entry.name is None else f"{entry.name}: "
    log("info", "trust", f"{of}{plan.trust}: server learns {learns['server']}; client learns {learns['client']}")


def _print_plan(entry: Entry, plan: Plan, log: Log) -> None:
    of = "" if entry.name is None else f" of {entry.name}"
    log("info", "plan", f"plan{of} {plan.hash}", {"model": entry.name, "plan_hash": plan.hash})
    log("info", "plan", f"plan{of}: {plan.expected_error}")
    log("info", "plan", f"plan{of}: {plan.prediction}")


def _bind(
    models: Plan | dict[str, Offer], listen: str, limits: Limits, caps: Caps, channel: ServerChannel, log: Log
) -> Server:
    """A server that listens, and logs to standard error."""
    open_files_allowed()
    return pronghorn.serve(
        models,
        listen,
        limits=caps_of(caps),
        proxies=limits.proxy_from or (),
        tickets=limits.ticketed(),
        idle_timeout=limits.idle_timeout,
        keep_alive=limits.keep_alive,
        hello_timeout=limits.hello_timeout,
        max_waiting=limits.max_waiting,
        queue_timeout=limits.queue_timeout,
        turn=limits.turn,
        threads=limits.threads,
        prepare=limits.prepare,
        prepare_bytes=limits.prepare_bytes,
        store=limits.store,
        tls=channel.options(),
        insecure_plain_tcp=channel.insecure_plain_tcp,
        log=lambda line: log(line.level, line.event, str(line), line.fields),
    )
