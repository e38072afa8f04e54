"""The trial: a process for each network, and a table of outcomes."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pronghorn_bench.stock.networks import GROUPS, Floats, Network

if TYPE_CHECKING:
    import pronghorn

SECONDS = 600
"""Most seconds of a network, its export included."""

SAME = 1e-3
"""Outputs of the imported network differ at most by so large a part from those of the file."""

NEAR = 1.5
"""An expected error of so many times the aim is near it."""


def trial(network: Network, photos: Path) -> dict[str, Any]:
    """Exports a network, plans it, and scores its fixed-point form."""
    import pronghorn

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.onnx"
        samples, scored = network.export(path, photos)
        began, used = time.monotonic(), time.process_time()
        model = pronghorn.load(path, samples=samples, **network.options)
        plan = model.plan()
        seconds, processor = time.monotonic() - began, time.process_time() - used
        _check(model, scored[:2])
        report = model.verify(scored, secure=False)
    cost = json.loads(plan.to_json())["cost"]["one_image"]
    expected = plan.expected_error
    return {
        "outcome": "runs",
        "plan_seconds": seconds,
        "plan_processor_seconds": processor,
        "aim": expected.aim,
        "expected": expected.error,
        "alike": expected.alike,
        "found": report.relative_error,
        "megabytes": (cost["bytes_up"] + cost["bytes_down"]) / 1e6,
    }


def _check(model: pronghorn.Model, inputs: Floats) -> None:
    """Compares the imported network with the runtime of ONNX: another network could be as precise in fixed point."""
    if inputs.dtype.kind != "f":
        # Categories, which `load` has compared: they are other numbers within.
        return
    wanted = model.run_float(inputs)
    imported = model.parts[0].run_float(inputs).reshape(wanted.shape)
    if not np.linalg.norm(imported - wanted) <= SAME * np.linalg.norm(wanted):
        raise AssertionError("the imported network gives other outputs than the file")


def one(network: Network, photos: Path) -> dict[str, Any]:
    """`trial`, with refusals as an outcome."""
    import pronghorn

    try:
        return trial(network, photos)
    except pronghorn.PronghornError as error:
        return {"outcome": "refused", "reason": " ".join(str(error).split())}


def apart(network: Network, photos: Path) -> dict[str, Any]:
    """`one` in a process of its own; other errors become an outcome."""
    missing = [package for package in network.packages if importlib.util.find_spec(package) is None]
    if missing:
        return {"outcome": "left out", "reason": f"{', '.join(missing)} not installed"}
    command = [sys.executable, "-W", "ignore", "-m", "pronghorn_bench.stock", "--photos", str(photos)]
    try:
        done = subprocess.run([*command, "--one", network.title], capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"outcome": "too slow", "reason": f"more than {SECONDS} s"}
    lines = done.stdout.strip().splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"outcome": "failed", "reason": last}


def row(network: Network, found: dict[str, Any]) -> str:
    """A line of the table."""
    name = f"| {network.name} | {network.exporter} |"
    if found["outcome"] != "runs":
        return f"{name} {found['outcome']} | | | | | | {found['reason'][:200]} |"
    ratio = found["expected"] / found["aim"]
    note = "" if ratio <= NEAR else f"{ratio:.1f} times the aim"
    return (
        f"{name} runs | {found['expected']:.3f} | {found['found']:.3f} | {found['megabytes']:,.2f} | "
        f"{found['plan_seconds']:.0f} | {found['plan_processor_seconds']:.0f} | {note} |"
    )


def main() -> None:
    """Runs the trial and prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, required=True, help="folder of at least 40 photos")
    parser.add_argument("--group", nargs="*", default=list(GROUPS), choices=list(GROUPS), help="groups of networks")
    parser.add_argument("--only", nargs="*", default=[], help="names of networks, of all groups")
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    every = [network for group in GROUPS.values() for network in group]
    if given.one:
        network = next(network for network in every if network.title == given.one)
        print(json.dumps(one(network, given.photos)))
        return
    networks = [network for name in given.group for network in GROUPS[name]]
    if given.only:
        networks = [network for network in every if network.name in given.only]
    print("| network | exporter | outcome | expected error | found | MB an image | s to plan | processor s | |")
    print("|---|---|---|---|---|---|---|---|---|")
    all_found = []
    for network in networks:
        found = apart(network, given.photos)
        all_found.append({**asdict(network), **found})
        print(row(network, found), flush=True)
        if given.json:
            given.json.write_text(json.dumps(all_found, indent=1))
    near = sum(found["outcome"] == "runs" and found["expected"] <= NEAR * found["aim"] for found in all_found)
    print(f"\n{near} of {len(all_found)} run with an expected error of at most {NEAR} times the aim")


if __name__ == "__main__":
    main()
