"""`scripts/get-rust`: where a toolchain comes from, with made-up ones."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "get-rust"
TOOLS = ("basename", "cat", "chmod", "expr", "head", "id", "mkdir", "rm", "sed", "sh", "tail")
"""All that PATH has: no cargo, no curl, no apt-get."""


class Machine:
    """A machine with a home folder and few tools."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.home = folder / "rust", folder / "bin", folder / "home"
        self.bin.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None
            (self.bin / tool).symlink_to(found)
        self.python("exit 1")

    def python(self, script: str) -> None:
        """What runs in place of Python."""
        write(self.bin / "python", script)

    def run(self) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.bin), "HOME": str(self.home)}
        command = ["sh", str(SCRIPT), str(self.folder), str(self.bin / "python")]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    def cargo(self) -> str:
        """What cargo says with the folder in front of PATH."""
        path = os.pathsep.join((str(self.folder / "bin"), str(self.bin)))
        return subprocess.run(["cargo", "--version"], env={"PATH": path}, capture_output=True, text=True).stdout


def write(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_new_cargo_in_path_is_left_alone(machine: Machine) -> None:
    write(machine.bin / "cargo", "echo cargo 1.95.0")
    found = machine.run()
    assert (found.returncode, found.stderr) == (0, "")
    assert not machine.folder.exists()


def test_one_in_the_home_folder_is_used_and_told(machine: Machine) -> None:
    write(machine.bin / "cargo", "echo 'cargo 1.80.1 (old)'")
    write(machine.home / ".cargo" / "bin" / "cargo", "echo 'cargo 1.99.0 (new)'")
    found = machine.run()
    assert found.returncode == 0
    assert "cargo 1.80.1 (old) is older than 1.95" in found.stderr
    assert "using an installation in the home folder" in found.stderr
    assert machine.cargo() == "cargo 1.99.0 (new)\n"


def test_an_old_one_in_the_home_folder_is_not(machine: Machine) -> None:
    write(machine.home / ".cargo" / "bin" / "cargo", "echo 'cargo 1.94.0 (old)'")
    assert machine.run().returncode == 1
    assert not (machine.folder / "bin").exists()


def test_puccinialin_is_told_and_its_homes_are_kept(machine: Machine) -> None:
    installed = machine.folder / "cargo" / "bin" / "cargo"
    says = 'echo "cargo 1.97.0 of $RUSTUP_HOME and $CARGO_HOME"'
    machine.python(f"mkdir -p {installed.parent}; echo '{says}' > {installed}; chmod +x {installed}; echo noise >&2")
    found = machine.run()
    assert found.returncode == 0, found.stderr
    assert "puccinialin" in found.stderr
    assert "noise" not in found.stderr
    assert machine.cargo() == f"cargo 1.97.0 of {machine.folder}/rustup and {machine.folder}/cargo\n"


def test_where_nothing_answers_it_says_what_to_install(machine: Machine) -> None:
    machine.python("echo no network >&2; exit 1")
    found = machine.run()
    assert found.returncode == 1
    for words in ("no cargo in PATH", "puccinialin", "no network", "sh.rustup.rs", "Debian", "install Rust 1.95"):
        assert words in found.stderr
