"""`pronghorn models`."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

import pronghorn
from pronghorn.cli.channel import ClientChannel
from pronghorn.cli.options import JsonOption, ServerOption
from pronghorn.cli.spread import spread


@spread
def models(
    *,
    server: ServerOption,
    channel: ClientChannel,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Time to wait for the server.")] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """List the models that a server has for this client.

    Of several versions of a name clients that name none get the last one.
    """
    listed = pronghorn.list_models(
        server,
        timeout=timeout,
        tls=channel.options(),
        token=channel.token,
        insecure_plain_tcp=channel.insecure_plain_tcp,
    )
    if as_json:
        print(json.dumps([dataclasses.asdict(each) for each in listed]))
        return
    for each in listed:
        print(f"{each.name}@{each.version}  {each.trust}  {each.plan_hash}")
