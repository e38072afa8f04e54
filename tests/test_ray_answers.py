"""Answers of the Ray Serve application and requests to the autoscaler, without a cluster: Ray is a stub."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import pronghorn
from pronghorn._admission import MOST_BYTES, admission_key
from pronghorn.errors import InputError


class Cluster:
    """What a test says of the machines, and what was asked of the autoscaler."""

    def __init__(self) -> None:
        self.machines: list[str] = []
        self.actors: dict[str, Any] = {}
        self.bundles: list[list[dict[str, int]]] = []


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def on_ray(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Iterator[Any]:
    """The module with a stub in place of Ray, installed or not."""

    def get_actor(name: str, namespace: str) -> Any:
        try:
            return cluster.actors[name]
        except KeyError:
            raise ValueError(name) from None

    class RayError(Exception):
        pass

    ray = ModuleType("ray")
    stubs = {
        "is_initialized": lambda: True,
        "nodes": lambda: [
            {"NodeID": each, "NodeManagerAddress": "127.0.0.1", "Alive": True} for each in cluster.machines
        ],
        "get_actor": get_actor,
        "exceptions": SimpleNamespace(RayError=RayError),
    }
    for name, stub in stubs.items():
        setattr(ray, name, stub)
    scheduling = ModuleType("ray.util.scheduling_strategies")
    scheduling.NodeAffinitySchedulingStrategy = SimpleNamespace  # type: ignore[attr-defined]
    sdk = ModuleType("ray.autoscaler.sdk")
    sdk.request_resources = lambda bundles: cluster.bundles.append(bundles)  # type: ignore[attr-defined]
    modules = {"ray": ray, "ray.util.scheduling_strategies": scheduling, "ray.autoscaler.sdk": sdk}
    parents = {name: ModuleType(name) for name in ("ray.util", "ray.autoscaler")}
    for name, module in {**modules, **parents}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "pronghorn.on_ray", raising=False)
    monkeypatch.delattr(pronghorn, "on_ray", raising=False)
    yield importlib.import_module("pronghorn.on_ray")
    # Others are to import it with the real one.
    sys.modules.pop("pronghorn.on_ray", None)
    vars(pronghorn).pop("on_ray", None)


class Request:
    """Of an HTTP client, as Ray Serve gives it."""

    def __init__(self, address: str = "127.0.0.1", path: str = "/v1/sessions", **more: Any) -> None:
        self.method = more.get("method", "POST")
        self.url = SimpleNamespace(path=path, scheme=more.get("scheme", "http"))
        self.client = SimpleNamespace(host=address) if address else None
        self.headers: dict[str, str] = {}
        self._parts: list[bytes] = more.get("parts", [b"{}"])
        self._rest: float = more.get("rest", 0.0)

    async def stream(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            await asyncio.sleep(self._rest)
            yield part


@pytest.fixture
def application(on_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the application without machines, which nobody looks at."""
    admission_key(tmp_path / "key")
    monkeypatch.setattr(on_ray._Application, "_watch", lambda self: None)

    def make(**more: Any) -> Any:
        given = {"has_metrics": False, "insecure_plain_tcp": False, **more}
        return on_ray._Application(
            options=[],
            key=str(tmp_path / "key"),
            host=None,
            ports=None,
            scale=None,
            tokens=None,
            most={"tickets_per_client": 10, "requests_per_address": 3},
            **given,
        )

    return make


def status(application: Any, request: Request) -> int:
    found: int = asyncio.run(application._answer(request))[0]
    return found


@pytest.mark.parametrize("address", ["10.0.0.1", "2001:db8::1", "", "localhost"])
def test_plain_http_is_for_loopback_alone(application: Any, address: str) -> None:
    strict, lax = application(), application(insecure_plain_tcp=True)
    assert status(strict, Request(address)) == 403
    assert status(strict, Request(address, scheme="https")) != 403
    assert status(strict, Request("127.0.0.1")) != 403
    assert status(strict, Request("::1")) != 403
    assert status(lax, Request(address)) != 403


def test_a_body_has_its_time_and_its_size(application: Any, on_ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "LONGEST", 0.2)
    made = application()
    assert status(made, Request(parts=[b" "] * 1000, rest=0.01)) == 408
    assert status(made, Request(parts=[bytes(MOST_BYTES), b"1"])) == 413
    # Nobody is there to serve: what is asked was read.
    assert status(made, Request(parts=[b"[", b"]"])) == 400


def test_an_address_has_its_rate(application: Any) -> None:
    made = application()
    assert [status(made, Request()) for _ in range(4)][-1] == 429
    assert status(made, Request("10.0.0.9", scheme="https")) != 429


def test_paths(application: Any) -> None:
    made, open_one = application(), application(has_metrics=True)
    get = {"method": "GET"}
    assert status(made, Request(path="/healthz", **get)) == 200
    # There are no nodes.
    assert status(made, Request(path="/readyz", **get)) == 503
    assert status(made, Request(path="/metrics", **get)) == 404
    assert status(open_one, Request(path="/metrics", **get)) == 200
    assert status(made, Request(path="/v1/other")) == 404
    assert status(made, Request(method="PUT")) == 404


def test_no_key_is_made(application: Any, tmp_path: Path) -> None:
    (tmp_path / "key").unlink()
    with pytest.raises((InputError, OSError)):
        application()
    assert not (tmp_path / "key").exists()


def test_the_autoscaler_hears_of_changes_alone(on_ray: Any, cluster: Cluster) -> None:
    nodes = on_ray.RayNodes([], scale=on_ray.Scale(least=1, most=3, seconds=10, machine={"CPU": 8}))
    machines = ["a", "b", "c"]
    assert nodes._chosen(machines, 0.0) == ["a"]
    assert nodes._chosen(machines, 5.0) == ["a"]
    assert nodes._chosen(machines, 25.0) == ["a", "b", "c"]
    assert nodes._chosen(machines, 0.0) == ["a"]
    assert cluster.bundles == [[{"CPU": 8}] * count for count in (1, 3, 1)]
    nodes.drain()
    assert cluster.bundles[-1] == []


def test_without_a_scale_each_machine_has_one(on_ray: Any, cluster: Cluster) -> None:
    assert on_ray.RayNodes([])._chosen(["a", "b"], 1e9) == ["a", "b"]
    assert cluster.bundles == []


@pytest.mark.parametrize("ports", [(7700, 7700), (0, 9100), (7700, 65536)])
def test_ports_are_checked(on_ray: Any, ports: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="ports"):
        on_ray.RayNodes([], ports=ports)


def test_servers_get_the_ports(on_ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    class Process:
        stdout = SimpleNamespace(readline=lambda: "listening on 10.0.0.1:7700\n")
        returncode = None
        pid = 1

        def __init__(self, command: list[str], **_: Any) -> None:
            started.append(command)

        def poll(self) -> None:
            return None

    monkeypatch.setattr(on_ray.subprocess, "Popen", Process)
    actor = on_ray.ServerActor("10.0.0.1", ["--config", "x"], (7700, 9100))
    assert actor.node() == ("10.0.0.1:7700", "10.0.0.1:9100")
    assert "10.0.0.1:7700" in started[0]
    assert "10.0.0.1:9100" in started[0]
