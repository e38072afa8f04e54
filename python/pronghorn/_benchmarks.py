"""`pronghorn bench`, whose suites are a package of their own."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from pronghorn.errors import InputError

PACKAGE = "pronghorn_bench"


def run_benchmarks(arguments: Sequence[str]) -> None:
    """Runs the command line of the benchmarks, which is imported only now."""
    if find_spec(PACKAGE) is None:
        raise InputError(
            "the benchmarks are not installed: pip install 'pronghorn[bench]', or run `make setup` in a checkout"
        )
    from pronghorn_bench.command import app

    app(list(arguments), prog_name="pronghorn bench", standalone_mode=False)
