"""`pronghorn bench`."""

from __future__ import annotations

import typer

from pronghorn._benchmarks import run_benchmarks


def bench(context: typer.Context) -> None:
    """Measure, beside published figures."""
    run_benchmarks(context.args)
