"""Checks on the binaries that no branch and no address depends on a secret (SECURITY.md, "Timing, client").

Builds `constant-time/`, runs its routines under Valgrind's memcheck at each SIMD level that Valgrind can run, and
prints a table. A finding is a branch or an address that depends on a secret, at a line that
`constant-time/exceptions.toml` does not list. Exit status: 0 clean, 1 findings, 2 the check could not run.
"""

import argparse
import functools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATE = ROOT / "constant-time"
LEVELS = ("portable", "avx2")
# Routines that branch on a secret, and read at one: the check fails unless it finds each.
CONTROL = "control"
# What memcheck calls a branch on a secret, and an address made of one.
KINDS = {"UninitCondition": "branch", "UninitValue": "address"}


@dataclass(frozen=True)
class Place:
    """A line of source."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Finding:
    """What memcheck reported."""

    kind: str
    # The innermost line that is not of the standard library.
    place: Place
    # That line and all that led to it.
    stack: tuple[Place, ...]


@dataclass
class LineException:
    """A line that may depend on what is marked as secret, and why; with `calls`, and what it calls."""

    file: str
    text: str
    reason: str
    calls: bool = False
    met: int = field(default=0, compare=False)

    def allows(self, finding: Finding) -> bool:
        """Whether it takes in a finding."""
        places = finding.stack if self.calls else (finding.place,)
        return any(self.file in place.file and self.text == place.text for place in places)


def build(target: Path | None) -> Path:
    """Builds the routines as users' binaries are built; the program."""
    command = ["cargo", "build", "--release", "--locked", "--quiet"]
    # Of its own, since its flags would have all others built again.
    target = target or Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "constant-time"
    subprocess.run([*command, "--target-dir", str(target.resolve())], cwd=CRATE, check=True)
    return target.resolve() / "release" / "pronghorn-constant-time"


@functools.cache
def lines_of(file: str) -> list[str]:
    """The lines of a source file; none where it is not there."""
    try:
        return Path(file).read_text().splitlines()
    except OSError:
        return []


def text_of(file: str, line: int) -> str:
    """A line of a source file, without its indentation."""
    lines = lines_of(file)
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def finding_of(error: ElementTree.Element) -> Finding:
    """A report of memcheck."""
    kind = error.findtext("kind", "")
    stack = []
    for frame in error.findall("stack/frame"):
        file = f"{frame.findtext('dir', '')}/{frame.findtext('file', '')}"
        line = int(frame.findtext("line", "0"))
        text = text_of(file, line)
        # Sources of the standard library are not installed.
        if text:
            stack.append(Place(file, line, text))
    place = stack[0] if stack else Place("no line of source", 0, "")
    return Finding(KINDS.get(kind, kind), place, tuple(stack))


def check(program: Path, routine: str, level: str) -> list[Finding]:
    """What memcheck reports of a routine."""
    with tempfile.TemporaryDirectory() as room:
        report = Path(room) / "report.xml"
        command = ["valgrind", "--tool=memcheck", "--xml=yes", f"--xml-file={report}", "--error-limit=no"]
        command += [
            "--num-callers=100",
            "--keep-stacktraces=none",
            "--leak-check=no",
            "--expensive-definedness-checks=yes",
        ]
        # One worker: reports come in one order.
        environment = os.environ | {"PRONGHORN_SIMD": level, "RAYON_NUM_THREADS": "1"}
        done = subprocess.run([*command, str(program), routine], env=environment, capture_output=True, text=True)
        if done.returncode != 0 or "checked" not in done.stdout:
            raise RuntimeError(f"{routine} at {level} failed under valgrind:\n{done.stdout}{done.stderr}")
        errors = ElementTree.parse(report).getroot().findall("error")
        return [finding_of(error) for error in errors if not error.findtext("kind", "").startswith("Leak_")]


def shown(place: Place) -> str:
    """A place, shortened."""
    file = place.file
    for start in (f"{ROOT}/", "/registry/src/"):
        _, found, rest = file.partition(start)
        file = rest if found else file
    return f"{file}:{place.line}: {place.text}"


def main() -> int:
    """Runs the check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target-dir", type=Path, help="where to build (default: target/constant-time)")
    parser.add_argument("--only", default="", help="routines whose name has this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--verbose", action="store_true", help="stacks of findings, and how often each exception was met"
    )
    arguments = parser.parse_args()
    if platform.machine() not in ("x86_64", "AMD64") or not shutil.which("valgrind"):
        print("constant time was NOT checked: that takes valgrind on x86-64 (apt install valgrind)", file=sys.stderr)
        return 2
    program = build(arguments.target_dir)
    listed = tomllib.loads((CRATE / "exceptions.toml").read_text())["exception"]
    exceptions = [LineException(**entry) for entry in listed]
    routines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    routines = [routine for routine in routines if arguments.only in routine]
    runs = [(routine, level) for routine in routines for level in LEVELS]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        reports = dict(zip(runs, pool.map(lambda run: check(program, *run), runs), strict=True))

    failed = False
    found: dict[Place, list[tuple[str, Finding]]] = {}
    rows = {}
    for (routine, level), findings in reports.items():
        new, excepted = [], 0
        for finding in findings:
            allowing = [exception for exception in exceptions if exception.allows(finding)]
            for exception in allowing:
                exception.met += 1
            excepted += bool(allowing)
            if not allowing:
                new.append(finding)
        if routine.startswith(CONTROL):
            ok = bool(new)
            rows[routine, level] = "found" if ok else "NOT FOUND"
        else:
            ok = not new
            for finding in new:
                found.setdefault(finding.place, []).append((f"{routine} at {level}", finding))
            rows[routine, level] = f"{len(new)} findings" if new else "clean"
            rows[routine, level] += f" ({excepted} listed)" if excepted else ""
        failed |= not ok
    width = max(map(len, routines), default=0)
    print(f"{'routine':{width}}  " + "  ".join(f"{level:24}" for level in LEVELS))
    for routine in routines:
        print(f"{routine:{width}}  " + "  ".join(f"{rows[routine, level]:24}" for level in LEVELS))
    for place, of in found.items():
        kinds = Counter(finding.kind for _, finding in of)
        runs_of = sorted({run for run, _ in of})
        print(f"\n{shown(place)}\n  {dict(kinds)} in {', '.join(runs_of)}")
        if arguments.verbose:
            print("".join(f"    {shown(caller)}\n" for caller in of[0][1].stack[:16]))
    for exception in exceptions:
        if arguments.verbose:
            print(f"{exception.met:6} {exception.file}: {exception.text}")
        if not exception.met and not arguments.only:
            failed = True
            print(f"\nexceptions.toml lists a line that nothing met: {exception.file}: {exception.text}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
