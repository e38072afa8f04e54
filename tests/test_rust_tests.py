"""Few programs have all tests of a crate. So a file that nothing names would never run."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
CRATES = sorted(folder.parent for folder in (REPOSITORY / "crates").glob("*/tests"))


def unnamed(crate: Path) -> set[str]:
    """The files and folders of a crate's tests that no program has."""
    tests = crate / "tests"
    manifest = tomllib.loads((crate / "Cargo.toml").read_text(encoding="utf-8"))
    if manifest["package"].get("autotests", True):
        return set()
    programs = [crate / test["path"] for test in manifest.get("test", ())]
    folders = [[path] for path in tests.glob("*/mod.rs")]
    return set().union(*(_left_out(roots[0].parent, roots) for roots in [programs, *folders]))


def _left_out(folder: Path, roots: list[Path]) -> set[str]:
    """The modules of a folder that none of its root files has."""
    text = "\n".join(root.read_text(encoding="utf-8") for root in roots)
    named = set(re.findall(r"^(?:pub )?mod (\w+);$", text, re.MULTILINE))
    files = {path.stem for path in folder.glob("*.rs") if path not in roots}
    return files.union(path.parent.name for path in folder.glob("*/mod.rs")) - named


@pytest.mark.parametrize("crate", CRATES, ids=lambda crate: crate.name)
def test_every_file_of_tests_is_in_a_program(crate: Path) -> None:
    assert unnamed(crate) == set()


def test_files_that_nothing_names_are_found(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    manifest = '[package]\nname = "x"\nautotests = false\n[[test]]\nname = "main"\npath = "tests/main.rs"\n'
    (tmp_path / "Cargo.toml").write_text(manifest)
    (tmp_path / "tests" / "main.rs").write_text("mod named;\n")
    for name in ("named", "forgotten"):
        (tmp_path / "tests" / f"{name}.rs").write_text("")
    assert unnamed(tmp_path) == {"forgotten"}
    # Names count in their own folder alone.
    (tmp_path / "tests" / "main.rs").write_text("mod inner;\nmod named;\nmod forgotten;\n")
    (tmp_path / "tests" / "inner").mkdir()
    for name in ("mod", "named"):
        (tmp_path / "tests" / "inner" / f"{name}.rs").write_text("")
    assert unnamed(tmp_path) == {"named"}
