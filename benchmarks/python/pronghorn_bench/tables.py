"""The headlines of a suite as tables: a row a figure, ours beside the reference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pronghorn_bench.records import Record

WIDTH = 120
"""Most columns of a table."""

COLUMNS = ("case", "ours", "reference", "ratio", "source")

TABLE = re.compile(r"(tables? [^,]*|figure [^,]*), ", re.IGNORECASE)
"""How the case of a row begins that a paper has a table of."""

DEGREE = re.compile(r"N = \d+")

GOAL = "goal"
"""What the sources of references begin with that are no measurements; they are not printed."""


class Row(NamedTuple):
    """What is printed of a figure."""

    case: str
    ours: str
    reference: str
    ratio: str
    source: str


def print_tables(headlines: Sequence[Record], console: Console) -> None:
    """A table for each table of a paper, in the order in which they were first measured."""
    groups: dict[str, list[Record]] = {}
    for record in headlines:
        groups.setdefault(_group(record), []).append(record)
    width = min(WIDTH, console.width)
    for records in groups.values():
        found = TABLE.match(records[0]["case"])
        title = ", ".join([records[0]["suite"], *(found.groups() if found else ())])
        console.print(_table(title, rows(records)), width=width)
    if any(map(_is_compared, headlines)):
        console.print("ratio: how many times better ours is; below 1, worse.", width=width, highlight=False)


def _group(record: Record) -> str:
    """The table of a paper that a case is of; or its degree and what it is compared with; or the suite."""
    suite, case = record["suite"], record["case"]
    if found := TABLE.match(case):
        return f"{suite}, {found[1]}"
    if record["reference"] is not None and (found := DEGREE.match(case)):
        return f"{suite}, {found[0]}, {record['reference']['source']}"
    return str(suite)


def _table(title: str, rows: list[Row]) -> Table:
    """What all rows have in common stands above them."""
    common, rows = _without_common_parts(rows)
    heading = Text(", ".join([title, *common]), style="bold")
    sources = {row.source for row in rows if row.source}
    if len(sources) == 1:
        heading.append(f"\nreference: {sources.pop()}", style="not bold")
    columns = COLUMNS if sources else COLUMNS[:4] if any(row.reference for row in rows) else COLUMNS[:2]
    table = Table(title=heading, title_justify="left", title_style="", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        is_number = name in ("ours", "reference", "ratio")
        table.add_column(name, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row[: len(columns)]))
    return table


def _without_common_parts(rows: list[Row]) -> tuple[list[str], list[Row]]:
    """Parts of the case, between commas, and the metric, where all rows have them; and the rows without them."""
    told = [row.case.partition(": ") for row in rows if row.case]
    cases, metrics = [case.split(", ") for case, _, _ in told], {metric for *_, metric in told}
    if len(cases) == 1:
        return [], rows
    common = [part for part in cases[0] if all(part in case for case in cases)]
    single = metrics.pop() if len(metrics) == 1 else None
    left = []
    for row in rows:
        case, _, metric = row.case.partition(": ")
        kept = [part for part in case.split(", ") if part not in common]
        parts = [", ".join(kept), "" if metric == single else metric]
        left.append(row._replace(case=": ".join(filter(None, parts))))
    return [*common, *filter(None, [single])], left


def rows(records: list[Record]) -> list[Row]:
    """A row a figure, and one more for each further reference, which repeats neither case nor figure."""
    found: list[Row] = []
    last = None
    for record in records:
        figure = (record["case"], record["metric"], record["unit"])
        if not _is_compared(record) and figure == last:
            continue
        told = ("", "") if figure == last else (f"{TABLE.sub('', record['case'])}: {record['metric']}", _ours(record))
        found.append(Row(*told, *_reference(record)))
        last = figure
    return found


def _is_compared(record: Record) -> bool:
    """Whether a row shows what it is compared with."""
    return record["ratio"] is not None and not record["reference"]["source"].startswith(GOAL)


def _ours(record: Record) -> str:
    return f"{_number(record['value'])} {record['unit']}".rstrip()


def _reference(record: Record) -> tuple[str, str, str]:
    if not _is_compared(record):
        return "", "", ""
    reference = record["reference"]
    return _number(reference["value"]), ratio(record), _source(reference["source"])


def ratio(record: Record) -> str:
    """How many times better a figure is than its reference."""
    found = float(record["ratio"])
    return f"{found:,.2f}" if found >= 1 else f"{found:.3g}"


def _source(source: str) -> str:
    """Without authors and the place of publication, which the records have."""
    return re.sub(r" \([^()]*\)", "", source)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.4g}"
