"""Nodes on a local Ray cluster of two machines: one killed in the middle, servers by work, and the service on Serve."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pronghorn
from helpers import floats, model, node
from pronghorn import _processes
from pronghorn._admission import admission_key
from pronghorn_bench.service import free_port

pytest.importorskip("ray")

TRUST = "client-aided"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    """Two machines, with the second as `second`; and a model in the folder."""
    import ray
    from ray.cluster_utils import Cluster

    nodes = [node("Gemm", "x w", "g"), node("Relu", "g", "r"), node("Gemm", "r v", "y")]
    onnx.save(model(nodes, ("N", 6), {"w": floats(6, 5), "v": floats(5, 3)}), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", inputs())
    admission_key(tmp_path / "key")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    made.second = made.add_node(num_cpus=1)
    try:
        ray.init(address=made.address, namespace="pronghorn")
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def inputs() -> np.ndarray:
    return np.random.default_rng(1).uniform(0, 1, (3000, 6)).astype(np.float32)


def wanted(folder: Path) -> np.ndarray:
    return pronghorn.load(folder / "model.onnx", input_range=(0, 1)).compiled(TRUST).run_fixed(inputs())


def options(folder: Path) -> list[str]:
    own = [str(folder / "model.onnx"), "--trust", TRUST, "--input-range", "0,1"]
    return [*own, "--tickets", str(folder / "key.pub")]


def client(folder: Path, url: str, name: str) -> subprocess.Popen[bytes]:
    ask = [*_processes.COMMAND, "predict", str(folder / "x.npy"), "--scale", "1", "--trust", TRUST]
    ask += ["--batch", "--admission", url, "--piece", "10", "--out", str(folder / name)]
    return subprocess.Popen(ask)


def wait_for(is_so: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def killed_in_the_middle(folder: Path, cluster: Any, url: str) -> None:
    """Two clients predict, and the second machine is killed: nothing is lost."""
    clients = [client(folder, url, f"{index}.npy") for index in range(2)]

    def are_going() -> bool:
        assert all(each.poll() is None for each in clients)
        return all(len(list((folder / f"{index}.npy.parts").glob("*.npy"))) >= 20 for index in range(2))

    wait_for(are_going)
    cluster.remove_node(cluster.second, allow_graceful=False)
    assert [each.wait(120) for each in clients] == [0, 0]
    for index in range(2):
        np.testing.assert_array_equal(np.load(folder / f"{index}.npy"), wanted(folder))


def test_a_machine_is_killed_in_the_middle(tmp_path: Path, cluster: Any) -> None:
    from pronghorn.on_ray import RayNodes

    on_ray = RayNodes(options(tmp_path), host="127.0.0.1")
    wait_for(lambda: len(on_ray()) == 2)
    with pronghorn.Admission("127.0.0.1:0", on_ray, admission_key(tmp_path / "key")) as service:
        killed_in_the_middle(tmp_path, cluster, f"http://{service.address}")
        wait_for(lambda: len(on_ray()) == 1)
    on_ray.drain()


def test_servers_come_and_go_by_the_work_that_waits(tmp_path: Path, cluster: Any) -> None:
    from pronghorn.on_ray import RayNodes, Scale

    assert [Scale(seconds=10).wanted(waiting, 5) for waiting in (0, 10, 11, 95)] == [1, 1, 2, 5]
    assert [Scale(2, 3, 10).wanted(waiting, 1) for waiting in (0, 25, 95)] == [2, 3, 3]
    on_ray = RayNodes(options(tmp_path), host="127.0.0.1", scale=Scale(most=2, seconds=10, rest=1.0))
    wait_for(lambda: len(on_ray(0.0)) == 1)
    first = on_ray(10.0)
    assert len(first) == 1
    wait_for(lambda: len(on_ray(11.0)) == 2)
    # Both stay for a while, and then the other one goes.
    assert len(on_ray(0.0)) == 2
    wait_for(lambda: on_ray(0.0) == first)
    wait_for(lambda: len(on_ray(11.0)) == 2)
    on_ray.drain()


def test_the_service_is_a_ray_serve_application(tmp_path: Path, cluster: Any) -> None:
    serve = pytest.importorskip("ray.serve")
    from ray.serve.config import HTTPOptions

    from pronghorn import on_ray

    port = free_port()
    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=port))
    serve.run(on_ray.admission(options(tmp_path), tmp_path / "key", host="127.0.0.1", metrics=True))
    url = f"http://127.0.0.1:{port}"

    def get(path: str, body: bytes | None = None) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{url}{path}", body, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    wait_for(lambda: "pronghorn_admission_nodes 2" in get("/metrics")[1])
    assert (get("/healthz")[0], get("/readyz")[0], get("/other")[0]) == (200, 200, 404)
    assert get("/v1/sessions", b"x" * (1 << 17))[0] == 413
    status, text = get("/v1/sessions", b"[")
    assert (status, json.loads(text)["code"]) == (400, "protocol")
    killed_in_the_middle(tmp_path, cluster, url)
    lines = get("/metrics")[1].splitlines()
    issued = [line for line in lines if line.startswith("pronghorn_admission_tickets_total ")]
    assert float(issued[0].split()[1]) >= 3
    assert 'pronghorn_admission_refusals_total{reason="protocol"} 1' in lines
    wait_for(lambda: "pronghorn_admission_nodes 1" in get("/metrics")[1])
    serve.shutdown()
