"""`pronghorn plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pronghorn._multikey_plan import LEVEL
from pronghorn.cli.multikey_plan import ResultsOption, of_two, planned
from pronghorn.cli.options import (
    DataOption,
    HtmlOption,
    JsonOption,
    LabelColumnOption,
    ModelArgument,
    ModelOptions,
    Preparation,
)
from pronghorn.cli.progress import progress_bar
from pronghorn.cli.results import write
from pronghorn.cli.spread import spread


@spread
def plan(
    model: ModelArgument,
    *,
    data: DataOption = None,
    labels: LabelColumnOption = None,
    model_options: ModelOptions,
    preparation: Preparation,
    as_json: JsonOption = False,
    html: HtmlOption = None,
    results: ResultsOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show ranges and all parameters, too.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plan here, as it is hashed and sent.")
    ] = None,
) -> None:
    """Show the cost of a secure run, and who learns what."""
    if model_options.trust == LEVEL:
        unused = {"--html": html, "--out": out}
        made_of_three = planned(model, model_options, results, data, labels, preparation, unused)
        print(made_of_three.to_json() if as_json else made_of_three)
        return
    of_two(results)
    options = model_options.of_plan(preparation)
    with progress_bar() as bar:
        bar.phase("reading the model")
        loaded = model_options.calibrated(model, options, data, labels, preparation)
        bar.phase("planning")
        made = loaded.plan()
    if out is not None:
        write(out, lambda: made.save(out))
    if html is not None:
        write(html, lambda: html.write_text(made.to_html(), encoding="utf-8"))
    text = made.details() if verbose else str(made)
    print(made.to_json() if as_json else text)
