"""Kills of client, server and connection in the middle of a long work, and many clients at once: the two commands."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest

from helpers import floats, model, node
from pronghorn_bench import faults, load
from pronghorn_bench.faults import Work, _compare


def test_each_label_is_there_once_and_right(tmp_path: Path) -> None:
    """`python -m pronghorn_bench.faults`, with a kill of each kind."""
    nodes = [node("Gemm", "x w", "g"), node("Relu", "g", "r"), node("Gemm", "r v", "y")]
    onnx.save(model(nodes, ("N", 6), {"w": floats(6, 5), "v": floats(5, 3)}), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(1).uniform(0, 1, (3000, 6)).astype(np.float32))
    work = Work(tmp_path / "model.onnx", tmp_path / "x.npy", "two-party", 2900, 10)
    said: list[str] = []
    found = faults.run(work, 3, random.Random(), said.append)
    assert found.is_right, found
    assert found.kills == {"client": 1, "server": 1, "connection": 1}
    assert (found.images, found.tries, len(said)) == (2900, 2, 3)


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (["0,0,2.0,1.0", "1,1,1.0,2.0"], (0, 0, 0)),
        (["0,0,2.0,1.0"], (1, 0, 0)),
        (["0,0,2.0,1.0", "1,1,1.0,2.0", "0,0,2.0,1.0"], (0, 1, 0)),
        (["0,0,2.0,1.0", "1,1,1.0,2.0", "2,0,2.0,1.0"], (0, 1, 0)),
        (["0,1,2.0,1.0", "1,1,1.0,2.5"], (0, 0, 2)),
    ],
)
def test_what_is_wrong_is_counted(rows: list[str], counts: tuple[int, int, int], tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("\n".join(["index,class,output 0,output 1", *rows, ""]))
    assert _compare(out, np.array([[2, 1], [1, 2]], np.float32)) == counts


def test_many_clients(tmp_path: Path) -> None:
    """`python -m pronghorn_bench.load`, for seconds: all are served; with a single place the others are refused."""
    nodes = [node("Gemm", "x w", "g"), node("Relu", "g", "r"), node("Gemm", "r v", "y")]
    onnx.save(model(nodes, ("N", 6), {"w": floats(6, 5), "v": floats(5, 3)}), tmp_path / "model.onnx")
    images = np.random.default_rng(1).uniform(0, 1, (200, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", images)
    (tmp_path / "plans").mkdir(mode=0o700)
    for places, waiting in ((4, 4), (1, 1)):
        limits = {"max-clients": places, "max-waiting": waiting, "queue-timeout": 0.5, "turn": 1.0}
        server = load.started(tmp_path, tmp_path / "model.onnx", tmp_path / "x.npy", limits)
        try:
            found = load.crowd(server, 4, 3.0, images[:100])
        finally:
            server.stop()
        assert (found.clients, found.wrong, len(found.memory)) == (4, 0, load.QUARTERS)
        assert all(1e6 < least <= most for least, most in found.memory)
        if places == 4:
            assert (found.unserved, found.refusals) == (0, {})
            assert [level.clients for level in found.levels] == [2, 2]
        else:
            assert set(found.refusals) == {"busy"}
        for level in found.levels:
            assert level.p50 <= level.p99 <= level.most
            assert level.least_of_a_client <= level.median_of_a_client <= level.most_of_a_client
            assert level.images_per_second > 0
        assert any("refusals: " in line for line in load.lines_of(found))
