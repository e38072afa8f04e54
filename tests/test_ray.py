"""Nodes on a local Ray cluster of two machines, one of them killed in the middle."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

import pronghorn
from helpers import floats, model, node
from pronghorn import _processes
from pronghorn._admission import admission_key

pytest.importorskip("ray")

TRUST = "client-aided"


def test_a_machine_is_killed_in_the_middle(tmp_path: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    from pronghorn.on_ray import RayNodes

    nodes = [node("Gemm", "x w", "g"), node("Relu", "g", "r"), node("Gemm", "r v", "y")]
    onnx.save(model(nodes, ("N", 6), {"w": floats(6, 5), "v": floats(5, 3)}), tmp_path / "model.onnx")
    x = np.random.default_rng(1).uniform(0, 1, (3000, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    wanted = pronghorn.load(tmp_path / "model.onnx", input_range=(0, 1)).compiled(TRUST).run_fixed(x)
    key = admission_key(tmp_path / "key")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    try:
        ray.init(address=cluster.address, namespace="pronghorn")
        options = [str(tmp_path / "model.onnx"), "--trust", TRUST, "--input-range", "0,1"]
        on_ray = RayNodes([*options, "--tickets", str(tmp_path / "key.pub")], host="127.0.0.1")
        deadline = time.monotonic() + 120
        while len(on_ray()) < 2:
            assert time.monotonic() < deadline, ray.nodes()
        with pronghorn.Admission("127.0.0.1:0", on_ray, key) as service:
            ask = [*_processes.COMMAND, "predict", str(tmp_path / "x.npy"), "--scale", "1", "--trust", TRUST]
            ask += ["--batch", "--admission", f"http://{service.address}", "--piece", "10"]
            clients = [subprocess.Popen([*ask, "--out", str(tmp_path / f"{index}.npy")]) for index in range(2)]
            while any(len(list((tmp_path / f"{index}.npy.parts").glob("*.npy"))) < 20 for index in range(2)):
                assert time.monotonic() < deadline
                assert all(client.poll() is None for client in clients)
                time.sleep(0.01)
            cluster.remove_node(second, allow_graceful=False)
            assert [client.wait(120) for client in clients] == [0, 0]
            for index in range(2):
                np.testing.assert_array_equal(np.load(tmp_path / f"{index}.npy"), wanted)
            while len(on_ray()) != 1:
                assert time.monotonic() < deadline
        on_ray.drain()
    finally:
        ray.shutdown()
        cluster.shutdown()
