"""SECURITY.md names a test for each claim. Each of these tests exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _index() -> list[tuple[str, str]]:
    """The claims of the index, each with a file and a name of a test."""
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    section = page.split("## Claims and their tests", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    named = []
    for claim, tests in rows[1:]:
        found = re.findall(r"`([\w./-]+)::(\w+)`", tests)
        assert found, f"{claim!r} has no test"
        named += found
    return named


def _tests_of(path: Path) -> str:
    files = path.rglob("*.rs") if path.is_dir() else [path]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize(("path", "name"), _index(), ids=lambda value: str(value))
def test_every_claim_has_a_test(path: str, name: str) -> None:
    place = ROOT / path
    assert place.exists(), f"{path} does not exist"
    assert re.search(rf"(fn|def) {name}\b", _tests_of(place)), f"{path} has no test {name}"
