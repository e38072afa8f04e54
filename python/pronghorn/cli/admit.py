"""`pronghorn admit`."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from pronghorn import _check
from pronghorn._admission import PER_ADDRESS, PER_CLIENT, Admission, admission_key
from pronghorn._placement import Node
from pronghorn.cli.channel import InsecureOption
from pronghorn.cli.console import say
from pronghorn.cli.signals import interrupt_on_signals
from pronghorn.errors import InputError


def admit(
    node: Annotated[
        list[str],
        typer.Option(
            metavar="HOST:PORT=HOST:PORT",
            help="A node: its address for clients, and that of its metrics; may be given again.",
        ),
    ],
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="Key that signs tickets, made where it is missing; nodes get FILE.pub.")
    ],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 takes a free one.")
    ] = "127.0.0.1:7800",
    tls: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Answer HTTPS with DIR/server of `pronghorn keys DIR`.")
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ask clients for one of these tokens, whose names tickets have.")
    ] = None,
    insecure_plain_tcp: InsecureOption = False,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Answer /healthz, /readyz and /metrics over HTTP there."),
    ] = None,
    tickets_per_client: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most tickets a minute of one client, by its token's name.")
    ] = PER_CLIENT,
    requests_per_address: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most requests a minute of one address.")
    ] = PER_ADDRESS,
) -> None:
    """Place clients on several nodes: answer POST /v1/sessions with a node and a ticket, until interrupted."""
    nodes = [_node(each) for each in node]
    interrupt_on_signals()
    service = Admission(
        _check.address("--listen", listen),
        nodes,
        admission_key(key),
        tokens=tokens,
        tls=tls,
        insecure_plain_tcp=insecure_plain_tcp,
        tickets_per_client=tickets_per_client,
        requests_per_address=requests_per_address,
        log=lambda line: say(escape(line)),
    )
    try:
        with service, nullcontext() if metrics is None else service.monitor(_check.monitor_address(metrics)):
            print(f"listening on {service.address}", flush=True)
            threading.Event().wait()
    except KeyboardInterrupt:
        say("stopping")


def _node(text: str) -> Node:
    address, _, metrics = text.partition("=")
    if not metrics:
        raise InputError(f"--node is {text!r}: give HOST:PORT=HOST:PORT, the second of its metrics")
    return Node(_check.address("--node", address), _check.address("--node", metrics))
