"""The command line: a module for each command, and what commands share."""

from __future__ import annotations

from typing import Annotated

import typer

import pronghorn
from pronghorn import _interrupt
from pronghorn.cli import (
    admit,
    bench,
    calibrate,
    demo,
    doctor,
    front,
    keys,
    models,
    multikey,
    plan,
    predict,
    serve,
    verify,
)
from pronghorn.cli.console import Commands

__all__ = ["app"]

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 120},
    help="Private inference for the neural networks people already have.",
)


def _version(show: bool) -> None:
    if show:
        print(f"pronghorn {pronghorn.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.command()(plan.plan)
app.command()(verify.verify)
app.command(context_settings={"auto_envvar_prefix": "PRONGHORN_SERVE"})(serve.serve)
app.command()(predict.predict)
app.command()(front.front)
app.command()(models.models)
app.command()(admit.admit)
app.command()(demo.demo)
app.command()(doctor.doctor)
app.command()(keys.keys)
app.command()(calibrate.calibrate)
app.add_typer(multikey.app, name="multikey")
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)(
    bench.bench
)
_interrupt.imported()
