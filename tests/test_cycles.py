"""`scripts/cycles.py`: no file needs itself by way of others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ACYCLIC = ("pronghorn-plan", "pronghorn-engine", "pronghorn-session")


def cycles(*crates: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / "scripts" / "cycles.py"), *map(str, crates)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_crates_have_no_cycle_of_files() -> None:
    found = cycles(*(REPOSITORY / "crates" / crate for crate in ACYCLIC))
    assert (found.stdout, found.returncode) == ("no cycle of files\n", 0)


FILES = {
    "lib.rs": "mod upper;\nmod lower;\npub use upper::{Built, inner::Deep};\n",
    "upper/mod.rs": "pub mod inner;\npub use inner::Deep as Top;\nuse crate::lower;\npub struct Built(lower::Part);\n",
    "upper/inner.rs": "//! For [`Built`](super::Built).\npub struct Deep(u8);\n",
    "lower.rs": "pub struct Part(u8);\n",
}
"""Files without a cycle."""


@pytest.mark.parametrize(
    ("file", "text", "cycle"),
    [
        ("lower.rs", "", []),
        ("lower.rs", "use crate::upper::Built;", ["lower -> upper::Built", "upper -> lower::Part"]),
        ("lower.rs", "fn part(_: &crate::Built) {}", ["lower -> Built", "upper -> lower::Part"]),
        # What is re-exported is in another file than the one that does.
        ("lower.rs", "use crate::{upper::Top, Deep};", []),
        ("upper/inner.rs", "use super::Top;", []),
        # A parent may use its child, or a child its parent.
        ("upper/inner.rs", "use super::Built;", []),
        ("upper/mod.rs", "fn make() { inner::make() }", []),
        ("lower.rs", "#[cfg(test)]\nmod tests {\n    use crate::upper::Built;\n}\n", []),
    ],
)
def test_cycles_are_found(tmp_path: Path, file: str, text: str, cycle: list[str]) -> None:
    for name, content in FILES.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + text * (name == file))
    lines = [line.strip() for line in cycles(tmp_path).stdout.splitlines()]
    assert [line for line in lines if "->" in line] == cycle


def test_a_parent_and_its_child_do_not_use_each_other(tmp_path: Path) -> None:
    (tmp_path / "src" / "upper").mkdir(parents=True)
    (tmp_path / "src" / "upper.rs").write_text("mod inner;\nfn make() -> u8 { inner::make(1) }\npub type Size = u8;\n")
    (tmp_path / "src" / "upper" / "inner.rs").write_text("use super::Size;\npub fn make(size: Size) -> u8 { size }\n")
    found = cycles(tmp_path)
    assert found.returncode == 1
    assert "upper -> upper::inner::make" in found.stdout
