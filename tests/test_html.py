"""Plans as pages: whole, self-contained, and with nothing of a model's in their markup."""

from __future__ import annotations

import dataclasses
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import pronghorn
from conftest import EXAMPLE
from helpers import floats, model, node
from pronghorn.cli import app
from pronghorn.errors import InputError

MODEL = EXAMPLE / "cryptonets_relu.onnx"
DATA = EXAMPLE / "t10k-images-idx3-ubyte.gz"
IMAGES = np.full((4, 1, 28, 28), 0.5, np.float32)
VOID = {"meta"}
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "pre", "code", "div", "span"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}


class Page(HTMLParser):
    """What is in a page; fails where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            assert "url(" not in data
            assert "@import" not in data
            return
        self.text += data
        if "td" in self.open:
            self.rows[-1][-1] += data


def self_contained(page: Page) -> None:
    names = {name for name, _ in page.attributes}
    assert names <= {"lang", "charset", "http-equiv", "content", "class", "style"}
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes
    widths = [value for name, value in page.attributes if name == "style"]
    assert widths
    for width in widths:
        assert 0 <= float(width.removeprefix("width:").removesuffix("%")) <= 100


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_a_page_says_what_the_plan_does(trust: str) -> None:
    plan = pronghorn.load(MODEL, samples=IMAGES).plan(trust)
    page = Page(plan.to_html())
    self_contained(page)
    found = json.loads(plan.to_json())
    assert found["plan_hash"] in page.text
    assert found["learns"]["client"] in page.text
    assert str(plan.expected_error) in page.text
    steps = [row for row in page.rows if len(row) == 9]
    assert [row[0] for row in steps] == [f"{index} {name}" for index, name in enumerate(found["names"]["steps"])]
    assert ("prepared: offline" in page.text) == (trust == "two-party")
    assert ("once" in page.text) == (trust == "two-party")
    assert "memory of a full batch" in page.text


def test_names_of_the_model_are_text() -> None:
    evil = "</td><script>alert(1)</script>\"'&amp;<img src=x onerror=y>"
    nodes = [node("Gemm", "x w", "h", transB=1), node("Relu", "h", "y")]
    proto = model(nodes, ("n", 5), {"w": floats(3, 5)})
    for one in proto.graph.node:
        one.name = evil
    proto.graph.name = evil
    loaded = pronghorn.load(onnx.ModelProto.FromString(proto.SerializeToString()), samples=floats(20, 5))
    report = loaded.verify(floats(4, 5))
    page = Page(loaded.plan().to_html(report))
    self_contained(page)
    # The owner's names are printable; what is left of this one stands there as text.
    names = json.loads(loaded.plan().to_json())["names"]["steps"]
    name = next(name for name in names if "script" in name)
    assert any(row and row[0].endswith(name) for row in page.rows)


def test_a_page_of_a_verification_has_measured_seconds() -> None:
    loaded = pronghorn.load(MODEL, samples=IMAGES)
    report = loaded.verify(IMAGES)
    assert report.steps is not None
    page = Page(loaded.plan().to_html(report))
    self_contained(page)
    measured = [row for row in page.rows if len(row) == 4]
    assert len(measured) == len(report.steps) + 1
    assert "disagreements with the fixed-point oracle: 0" in page.text
    assert sum(step.predicted for step in report.steps) == pytest.approx(report.predicted_seconds)
    assert all(step.measured >= 0 for step in report.steps)
    assert sum(step.measured for step in report.steps) > 0
    alone = loaded.verify(IMAGES, secure=False)
    assert alone.steps is None
    assert "Verification" in Page(loaded.plan().to_html(alone)).text
    other = dataclasses.replace(report, plan_hash="0" * 64)
    with pytest.raises(InputError, match="report is of plan"):
        loaded.plan().to_html(other)


def test_the_command_line_writes_pages(tmp_path: Path) -> None:
    out = tmp_path / "plan.html"
    result = CliRunner().invoke(app, ["plan", str(MODEL), "--html", str(out)])
    assert result.exit_code == 0, result.output
    assert "plan of" in result.output
    assert "Steps" in Page(out.read_text(encoding="utf-8")).text
    verify = ["verify", str(MODEL), "--data", str(DATA), "--limit", "3", "--html", str(out)]
    result = CliRunner().invoke(app, verify)
    assert result.exit_code == 0, result.output
    assert "measured" in Page(out.read_text(encoding="utf-8")).text
    result = CliRunner().invoke(app, ["plan", str(MODEL), "--html", str(tmp_path / "none" / "x.html")])
    assert result.exit_code == 2
