"""A plan as one HTML page: nothing is loaded from elsewhere, and nothing runs in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from pronghorn._model.report import Report

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; width: 100%; margin: .6em 0 1.6em; }
th, td { text-align: left; padding: .2em .6em; border-bottom: 1px solid #ddd; vertical-align: top; }
td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.bar { width: 22%; min-width: 9em; }
.track { display: flex; height: 1em; margin-top: .2em; }
.a { background: #4477aa; } .b { background: #ee9944; }
.key { display: inline-block; width: .9em; height: .9em; margin: 0 .3em 0 1em; }
code { overflow-wrap: anywhere; } .note { color: #666; }
"""

Bars = Sequence[tuple[float, float]]
"""Two values a row, drawn one after the other."""


def page(title: str, summary: dict[str, Any], error: str, whose: str, report: Report | None) -> str:
    """The page.

    Args:
        title: what the plan is of.
        summary: what `Plan.summary` gives.
        error: the expected error in words.
        whose: the machine whose seconds are predicted, in words.
        report: a verification, whose measured seconds stand beside the predicted ones.
    """
    cost = summary["cost"]
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>Plan <code>{escape(summary['plan_hash'])}</code></p>",
        "<h2>Who learns what</h2>",
        _table(["party", "learns"], [[name, _text(words)] for name, words in summary["learns"].items()]),
        "<h2>Expected error</h2>",
        *(f"<p>{escape(line)}</p>" for line in error.splitlines()),
        "<h2>Cost</h2>",
        _totals(cost),
        f'<p class="note">{escape(whose)}</p>',
        "<h2>Steps: seconds and bytes</h2>",
        _steps(cost["steps"]),
        *([] if report is None else _verification(report)),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _totals(cost: dict[str, Any]) -> str:
    named = {
        "one image alone": cost["one_image"],
        "one image, prepared: offline": cost["one_image_offline"],
        "one image, prepared: online": cost["one_image_online"],
        f"an image of a batch of {cost['full_batch']['images']:,}": cost["full_batch"],
    }
    rows = [
        [
            name,
            _size(each["bytes_up"] / n),
            _size(each["bytes_down"] / n),
            str(each["rounds"]),
            _time(each["seconds"] / n),
        ]
        for name, each in named.items()
        if each is not None
        for n in [each["images"]]
    ]
    once = {
        "each way a connection, oblivious transfers": "connection_ot_setup_each_way",
        "down a connection, rows of the batch engine": "connection_rows_down",
        "down a client and model, published polynomials": "client_publication_down",
        "up a client and server, keys": "client_keys_up",
    }
    kept = [[name, _size(cost["once"][field])] for name, field in once.items() if cost["once"][field]]
    memory = [[party, _size(cost["memory"][party])] for party in ("server", "client")]
    return (
        _table(["", "up", "down", "rounds", "seconds, one core"], rows)
        + (_table(["once", "bytes"], kept) if kept else "")
        + _table(["memory of a full batch", "bytes"], memory)
    )


def _steps(steps: dict[str, Any]) -> str:
    each, images = steps["each"], steps["images"]
    # A step without offline work costs all at once what it costs online.
    prepared = any(step["offline"]["rounds"] for step in each)
    seconds = [(step["offline"]["seconds"] / images, step["online"]["seconds"] / images) for step in each]
    traffic = [(step["at_once"]["bytes_up"] / images, step["at_once"]["bytes_down"] / images) for step in each]
    cells = zip(each, _bars(seconds), _bars(traffic), seconds, traffic, strict=True)
    rows = [
        [
            f"{index} {escape(step['name'])}",
            _text(step["protocol"]),
            _text("x".join(map(str, step["shape"]))),
            time_bar,
            _time(sum(time)),
            byte_bar,
            _size(sum(sent)),
            _size(step["memory"]["server"]),
            _size(step["memory"]["client"]),
        ]
        for index, (step, time_bar, byte_bar, time, sent) in enumerate(cells)
    ]
    head = ["step", "protocol", "shape", "seconds", "", "bytes", "", "server memory", "client memory"]
    times = _key("offline", "online") if prepared else _key("", "online")
    return (
        f"<p>Of an image, in batches of {images:,}. Seconds of one core: {times}. "
        f"Bytes, nothing prepared: {_key('up', 'down')}</p>" + _table(head, rows)
    )


def _verification(report: Report) -> Iterable[str]:
    yield "<h2>Verification</h2>"
    yield f"<pre>{escape(str(report))}</pre>"
    if report.steps is None:
        return
    yield f"<h2>Predicted and measured seconds of {report.images:,} images</h2>"
    yield f"<p>{_key('predicted, on one core', 'measured, on all threads')}. Set-ups count as step 0.</p>"
    largest = max((max(step.predicted, step.measured) for step in report.steps), default=0.0)
    rows = [
        [
            f"{index} {escape(step.name)}",
            _bar((step.predicted, 0), largest) + _bar((0, step.measured), largest),
            _time(step.predicted),
            _time(step.measured),
        ]
        for index, step in enumerate(report.steps)
    ]
    sums = [sum(step.predicted for step in report.steps), sum(step.measured for step in report.steps)]
    rows.append(["all", "", *map(_time, sums)])
    yield _table(["step", "", "predicted", "measured"], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are HTML."""

    def cell(content: str) -> str:
        kind = ' class="bar"' if content.startswith("<div") else ' class="n"' if content[:1].isdigit() else ""
        return f"<td{kind}>{content}</td>"

    # The first cell of a row is a name, whatever it begins with.
    lines = ["<tr><td>" + row[0] + "</td>" + "".join(map(cell, row[1:])) + "</tr>" for row in rows]
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    return f"<table>\n<thead><tr>{titles}</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody>\n</table>\n"


def _bars(values: Bars) -> list[str]:
    """A bar of two colours for each pair, all on one scale."""
    largest = max((sum(pair) for pair in values), default=0.0)
    return [_bar(pair, largest) for pair in values]


def _bar(pair: tuple[float, float], largest: float) -> str:
    parts = zip("ab", pair, strict=True)
    spans = (
        f'<span class="{name}" style="width:{100 * value / largest:.2f}%"></span>' for name, value in parts if value
    )
    return f'<div class="track">{"".join(spans)}</div>'


def _key(*names: str) -> str:
    """What the colours of bars stand for."""
    keys = zip("ab", names, strict=True)
    return "".join(f'<span class="key {color}"></span>{escape(name)}' for color, name in keys if name)


def _text(words: object) -> str:
    """Words in a cell, which no number begins."""
    return f"<span>{escape(str(words))}</span>"


def _size(count: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}" if count < 999.5 * unit else f"{count / unit:,.0f} {name}"
    return f"{count:.0f} B"


def _time(seconds: float) -> str:
    if seconds >= 999.5:
        return f"{seconds:,.0f} s"
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{1e3 * seconds:.3g} ms"
