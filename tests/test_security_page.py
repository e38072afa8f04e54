"""SECURITY.md names a test for each claim. Each of these tests exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _rows(title: str) -> list[list[str]]:
    """The cells of the table of a section, without its head."""
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    section = page.split(f"## {title}", 1)[1].split("\n## ", 1)[0]
    return [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "][1:]


def _behaviours() -> list[list[str]]:
    """Number, behaviour and tests; rows without a number are titles."""
    return [row for row in _rows("Malicious behaviours and their tests") if row[0].isdigit()]


def _index() -> list[tuple[str, str]]:
    """The claims and behaviours of the page, each with a file and a name of a test."""
    named = []
    for claim, tests in [*_rows("Claims and their tests"), *(row[1:] for row in _behaviours())]:
        found = re.findall(r"`([\w./-]+)::(\w+)`", tests)
        assert found, f"{claim!r} has no test"
        named += found
    return named


def test_behaviours_are_counted() -> None:
    rows = _behaviours()
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1))
    assert f"\n{len(rows)} behaviours that tests try" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def _tests_of(path: Path) -> str:
    files = path.rglob("*.rs") if path.is_dir() else [path]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize(("path", "name"), _index(), ids=lambda value: str(value))
def test_every_claim_has_a_test(path: str, name: str) -> None:
    place = ROOT / path
    assert place.exists(), f"{path} does not exist"
    assert re.search(rf"(fn|def) {name}\b", _tests_of(place)), f"{path} has no test {name}"
