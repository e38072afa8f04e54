#!/usr/bin/env python3
"""Cycles of files in Rust crates: files of which each needs the next, by the paths that they name.

Usage: scripts/cycles.py crates/pronghorn-plan crates/pronghorn-engine

Prints each cycle with the paths that make it, and exits with 1 where there is one. A path counts where it is
imported or written out. It leads to the file that has the item, through re-exports, which do not count themselves: a
`mod.rs` may name its children in `pub use`. Tests do not count. Calls of methods are not seen: an `impl` of a type may
stand in another file than the type.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

Names = tuple[str, ...]
"""A path from the crate's root: of a module, and so of its file, or of an item."""

COMMENT = re.compile(r"//[^\n]*")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod \w+ \{.*", re.DOTALL)
TEST_LINE = re.compile(r"#\[cfg\(test\)\]\s*(?:[^;{]*|[^;{]*\buse [^;]*);")
USE = re.compile(r"(pub(?:\([^)]*\))? )?\buse ([^;]+);")
PATH = re.compile(r"(?<![:\w])\w+(?:::\w+)+")
MOST_EXPORTS = 8
"""Re-exports of re-exports that are followed."""


class Use(NamedTuple):
    """One name that a `use` brings in."""

    name: str
    path: list[str]
    public: bool


class File(NamedTuple):
    """What a file imports, and all else in it."""

    uses: list[Use]
    body: str


def leaves(tree: str) -> Iterator[tuple[str, list[str]]]:
    """The names and paths of a tree such as `a::{b, c as d}`."""
    before, brace, inner = tree.strip().partition("{")
    if not brace:
        path, _, alias = before.partition(" as ")
        parts = [part.strip() for part in path.split("::")]
        if parts[-1] == "self":
            parts.pop()
        if parts[-1]:
            yield alias.strip() or parts[-1], parts
        return
    depth, branch = 0, ""
    for character in inner.rpartition("}")[0] + ",":
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            yield from leaves(before + branch) if branch.strip() else ()
            branch = ""
        else:
            branch += character


def parse(text: str) -> File:
    """A file without comments and tests."""
    text = TEST_LINE.sub("", TESTS.sub("", COMMENT.sub("", text)))
    uses = [
        Use(name, path, public=found[1] is not None) for found in USE.finditer(text) for name, path in leaves(found[2])
    ]
    return File(uses, USE.sub("", text))


def read(crate: Path) -> dict[Names, File]:
    """The files of a crate by their modules."""
    source, files = crate / "src", {}
    for file in sorted(source.rglob("*.rs")):
        parts = file.relative_to(source).with_suffix("").parts
        if "tests" not in parts:
            files[parts[:-1] if parts[-1] in ("mod", "lib") else parts] = parse(file.read_text())
    return files


class Crate:
    """The files of a crate, and where their paths lead."""

    def __init__(self, folder: Path) -> None:
        """The crate in a folder, which has `src`."""
        self.files = read(folder)
        self.exports: dict[Names, Names] = {}
        for module, file in self.files.items():
            for use in file.uses:
                path = self.absolute(module, use.path)
                if use.public and path is not None:
                    self.exports[(*module, use.name)] = path

    def absolute(self, module: Names, path: list[str]) -> Names | None:
        """The path from the root; none for a path of another crate or of the file's own items."""
        if path[0] == "crate":
            return tuple(path[1:])
        rest, base = path, module
        while rest and rest[0] in ("self", "super"):
            base = base[:-1] if rest[0] == "super" else base
            rest = rest[1:]
        if rest is not path or (*module, path[0]) in self.files:
            return (*base, *rest)
        return None

    def home(self, path: Names) -> Names:
        """The module whose file has the item."""
        for _ in range(MOST_EXPORTS):
            known = next((length for length in range(len(path), 0, -1) if path[:length] in self.exports), None)
            if known is None or path[:known] in self.files:
                break
            path = self.exports[path[:known]] + path[known:]
        while path not in self.files:
            path = path[:-1]
        return path

    def needs(self, module: Names) -> dict[Names, str]:
        """The modules that a file needs, each with a path that says so."""
        file, found = self.files[module], {}
        imported: dict[str, Names] = {}
        for use in file.uses:
            path = self.absolute(module, use.path)
            if path is None:
                continue
            imported[use.name] = path
            # A re-export is none of the file's own needs. Of a module, the paths through it count.
            if not use.public and path not in self.files:
                found[self.home(path)] = "::".join(path)
        for written in PATH.findall(file.body):
            first, *rest = written.split("::")
            whole = (*imported[first], *rest) if first in imported else self.absolute(module, [first, *rest])
            if whole is not None:
                found.setdefault(self.home(whole), "::".join(whole))
        found.pop(module, None)
        return found

    def cycles(self) -> list[dict[Names, dict[Names, str]]]:
        """The cycles, each as its files with what they need of the others."""
        needs = {module: self.needs(module) for module in self.files}
        return [
            {module: {to: path for to, path in needs[module].items() if to in cycle} for module in sorted(cycle)}
            for cycle in components(needs)
        ]


def components(graph: dict[Names, dict[Names, str]]) -> list[set[Names]]:
    """The strongly connected components with more than one node."""
    reached = {node: reachable(graph, node) for node in graph}
    found: list[set[Names]] = []
    for node in graph:
        component = {other for other in reached[node] if node in reached[other]}
        if len(component) > 1 and component not in found:
            found.append(component)
    return found


def reachable(graph: dict[Names, dict[Names, str]], start: Names) -> set[Names]:
    """The nodes on ways from a node, at least one step long."""
    seen: set[Names] = set()
    ahead = [start]
    while ahead:
        new = set(graph[ahead.pop()]) - seen
        seen |= new
        ahead.extend(new)
    return seen


def report(folder: Path) -> list[str]:
    """The cycles of a crate, a line each file."""
    lines = []
    for cycle in Crate(folder).cycles():
        lines.append(f"{folder.name}: a cycle of {len(cycle)} files")
        for module, needs in cycle.items():
            lines.append(f"  {'/'.join(module) or 'lib'} -> {', '.join(needs.values())}")
    return lines


def main() -> None:
    """Prints the cycles of the crates that are named."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    lines = [line for crate in sys.argv[1:] for line in report(Path(crate))]
    print("\n".join(lines) or "no cycle of files")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
