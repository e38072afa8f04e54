"""Nodes on a Ray cluster: one detached actor a machine, which runs the unchanged server on a port of its own.

Ray starts servers and knows which machines are there. No message of a session passes it: clients get an address and a
ticket from an admission service, and connect to the server itself.

    from ray import serve
    from pronghorn import on_ray

    serve.run(on_ray.admission(["--config", "/srv/server.toml", "--tickets", "/srv/admission.key.pub"],
                               "/srv/admission.key"))

That service is a Ray Serve application. `RayNodes` alone serves `pronghorn.Admission`, a plain process.

Needs `pip install pronghorn[ray]`, on all machines, with the files that the options name.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
import os
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pronghorn import _processes
from pronghorn._admission import (
    LONGEST,
    MOST_BYTES,
    PATH,
    PER_ADDRESS,
    PER_CLIENT,
    Desk,
    read_admission_key,
    text_of,
)
from pronghorn._monitor import TYPE
from pronghorn._placement import LOOK, Node
from pronghorn.errors import InputError, RunError

NAMESPACE = "pronghorn"
PATIENCE = 1.0
"""Seconds that an actor has to answer; one that still plans its models is asked again."""
MOST_AT_ONCE = 256
"""Requests that the application answers at once; so many more wait, and Ray Serve refuses the others."""


class ServerActor:
    """A server of one machine, which ends with the actor, however that ends."""

    def __init__(self, host: str, options: Sequence[str], ports: tuple[int, int] | None = None) -> None:
        """Starts `pronghorn serve` with these options, on an address: for clients and for metrics, free ports where
        none are given."""
        ports = ports or (_free_port(host), _free_port(host))
        self._node = Node(f"{host}:{ports[0]}", f"{host}:{ports[1]}")
        place = ["--listen", self._node.address, "--node", self._node.address, "--metrics", self._node.metrics]
        self._process = subprocess.Popen(
            [*_processes.COMMAND, "serve", *place, *options, "--exit-with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("listening on "):
            raise RunError(f"the server did not start: its words are in the actor's log; it said {line!r}")

    def node(self) -> tuple[str, str]:
        """Its addresses for clients and of its metrics.

        Raises:
            RunError: the server has ended.
        """
        if self._process.poll() is not None:
            raise RunError(f"the server has ended with status {self._process.returncode}")
        return self._node.address, self._node.metrics

    def process(self) -> int:
        """The server's process."""
        return self._process.pid

    def drain(self) -> None:
        """Lets batches that run come to their end."""
        self._process.terminate()
        self._process.wait()


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as free:
        port: int = free.getsockname()[1]
    return port


@dataclass(frozen=True)
class Scale:
    """How many servers there are, by the predicted seconds of work that waits for them all."""

    least: int = 1
    most: int | None = None
    """None: as many as there are machines."""
    seconds: float = 60.0
    """Of predicted work for each server; where more waits another one starts."""
    rest: float = 300.0
    """Seconds for which fewer must have done until one is drained."""
    machine: Mapping[str, int] = field(default_factory=lambda: {"CPU": 1})
    """What the autoscaler is asked for, once a server. Name what only a whole machine has, such as all its CPUs: where
    one machine has room for two of these, two servers get no second machine."""

    def wanted(self, waiting: float, machines: int) -> int:
        """Servers for so much work, where there are so many machines."""
        most = machines if self.most is None else self.most
        return max(self.least, min(math.ceil(waiting / self.seconds), most))


class RayNodes:
    """The nodes of a cluster, for an admission service: those whose actors answer."""

    def __init__(
        self,
        options: Sequence[str],
        *,
        host: str | None = None,
        ports: tuple[int, int] | None = None,
        scale: Scale | None = None,
    ) -> None:
        """Joins a cluster that `ray.init` or the environment names.

        Servers that run keep the options with which they began: call `drain` before other options are given.

        Args:
            options: of `pronghorn serve`; `--tickets` with the admission service's key, a model or `--config`, and
                `--tls` beyond loopback.
            host: where servers listen; the machine's address where not given.
            ports: for clients and for metrics, on each machine. A firewall can then leave the first to clients and the
                second to the admission service. Free ones where not given.
            scale: how many there are. Where not given each machine has one, and machines that come get one.
        """
        if not ray.is_initialized():
            ray.init(namespace=NAMESPACE)
        self._options, self._host, self._ports, self._scale = list(options), host, _checked(ports), scale
        self._leaving: dict[str, Any] = {}
        self._enough_since: float | None = None
        self._asked_for: int | None = None

    def __call__(self, waiting: float = 0.0) -> list[Node]:
        """The nodes of now, where so many predicted seconds of work wait."""
        machines = {each["NodeID"]: each["NodeManagerAddress"] for each in ray.nodes() if each["Alive"]}
        self._see_off(machines)
        asked = {}
        for machine in self._chosen(sorted(machines), waiting):
            actor = self._actor(machine, self._host or machines[machine])
            asked[actor.node.remote()] = actor
        ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE) if asked else ([], [])
        nodes = []
        for answer in ready:
            try:
                nodes.append(Node(*ray.get(answer)))
            except ray.exceptions.RayError:
                # Its server has ended, or could not start: the next look makes another.
                ray.kill(asked[answer])
        return nodes

    def drain(self) -> None:
        """Ends all servers, each after the batches that run."""
        actors = [_actor_of(each["NodeID"]) for each in ray.nodes() if each["Alive"]]
        # A machine without an actor has nothing to end.
        found = [actor for actor in actors if actor is not None]
        for answer in [actor.drain.remote() for actor in found]:
            # Nor has one that is gone, of which Ray may hear later.
            with suppress(ray.exceptions.RayError):
                ray.get(answer)
        for actor in found:
            ray.kill(actor)
        self._ask_for(0)

    def _chosen(self, machines: list[str], waiting: float) -> list[str]:
        """The machines that are to have a server."""
        free = [machine for machine in machines if machine not in self._leaving]
        if self._scale is None:
            return free
        wanted = self._scale.wanted(waiting, len(free))
        self._ask_for(wanted)
        have = [machine for machine in free if _actor_of(machine) is not None]
        if len(have) < wanted:
            have += [machine for machine in free if machine not in have][: wanted - len(have)]
        now = time.monotonic()
        if len(have) <= wanted:
            self._enough_since = None
        elif self._enough_since is None:
            self._enough_since = now
        elif now - self._enough_since >= self._scale.rest:
            self._enough_since = now
            leaves = have.pop()
            actor = _actor_of(leaves)
            if actor is not None:
                self._leaving[leaves] = actor, actor.drain.remote()
        return have

    def _ask_for(self, machines: int) -> None:
        """Tells the autoscaler how many machines there are to be; a cluster that does not grow takes no notice."""
        if self._scale is not None and machines != self._asked_for:
            request_resources(bundles=[dict(self._scale.machine)] * machines)
            self._asked_for = machines

    def _see_off(self, machines: dict[str, str]) -> None:
        """Ends the actors of servers that have drained."""
        for machine, (actor, drained) in list(self._leaving.items()):
            done, _ = ray.wait([drained], timeout=0)
            if done or machine not in machines:
                del self._leaving[machine]
                with suppress(ray.exceptions.RayError):
                    ray.kill(actor)

    def _actor(self, machine: str, host: str) -> Any:
        here = NodeAffinitySchedulingStrategy(node_id=machine, soft=False)
        made = ray.remote(num_cpus=0)(ServerActor)
        return made.options(
            name=_name(machine),
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            scheduling_strategy=here,
        ).remote(host, self._options, self._ports)


def _checked(ports: tuple[int, int] | None) -> tuple[int, int] | None:
    if ports is not None and not (len(set(ports)) == 2 and all(0 < port < 1 << 16 for port in ports)):
        raise InputError(f"ports: give one for clients and another for metrics, each 1 to 65535, not {ports}")
    return ports


def _name(machine: str) -> str:
    return f"server-{machine}"


def _actor_of(machine: str) -> Any | None:
    try:
        return ray.get_actor(_name(machine), NAMESPACE)
    except ValueError:
        return None


class _Application:
    """The admission service in a replica of Ray Serve."""

    def __init__(
        self,
        options: Sequence[str],
        key: str,
        host: str | None,
        ports: tuple[int, int] | None,
        scale: Scale | None,
        tokens: str | None,
        has_metrics: bool,
        insecure_plain_tcp: bool,
        most: dict[str, int],
    ) -> None:
        self._has_metrics, self._takes_plain = has_metrics, insecure_plain_tcp
        self._desk = Desk(
            RayNodes(options, host=host, ports=ports, scale=scale),
            # A key that is made here would be another than that of the nodes.
            read_admission_key(Path(key))[0],
            tokens=None if tokens is None else Path(tokens),
            log=lambda line: print(line, flush=True),
            **most,
        )
        threading.Thread(target=self._watch, name="pronghorn nodes", daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                self._desk.look()
            except (ray.exceptions.RayError, OSError) as error:
                # What was known of the nodes stays until the next look.
                print(f"cannot look at the nodes: {error}", flush=True)
            time.sleep(LOOK)

    async def __call__(self, request: Any) -> Any:
        from starlette.responses import Response

        status, text = await self._answer(request)
        kind = TYPE if request.url.path == "/metrics" else "application/json"
        return Response(text, status_code=status, media_type=kind)

    async def _answer(self, request: Any) -> tuple[int, str]:
        match request.method, request.url.path:
            case "POST", path if path == PATH:
                address = request.client.host if request.client is not None else ""
                # Versions of Ray Serve that do not know `ssl_certfile` take no notice of it.
                if request.url.scheme != "https" and not self._takes_plain and not _is_loopback(address):
                    return 403, _said("protocol", "the service answers HTTPS alone: Ray Serve has no certificate")
                try:
                    body = await asyncio.wait_for(_body(request), LONGEST)
                except TimeoutError:
                    return 408, _said("protocol", f"send the body within {LONGEST:.0f} s")
                if body is None:
                    return 413, _said("protocol", f"give a body of at most {MOST_BYTES} bytes")
                status, answer = self._desk.answer(body, request.headers.get("authorization"), address)
                return status, json.dumps(answer)
            case "GET", "/healthz":
                return 200, "{}"
            case "GET", "/readyz":
                return (200 if self._desk.metrics()["ready"] else 503), "{}"
            case "GET", "/metrics" if self._has_metrics:
                return 200, text_of(self._desk.metrics())
            case _:
                return 404, _said("protocol", f"there is {PATH}")


async def _body(request: Any) -> bytes | None:
    """None: it is too long."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            return None
    return bytes(body)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _said(code: str, message: str) -> str:
    return json.dumps({"code": code, "retryable": False, "message": message})


def admission(
    options: Sequence[str],
    key: str | os.PathLike[str],
    *,
    host: str | None = None,
    ports: tuple[int, int] | None = None,
    scale: Scale | None = None,
    tokens: str | os.PathLike[str] | None = None,
    metrics: bool = False,
    insecure_plain_tcp: bool = False,
    tickets_per_client: int = PER_CLIENT,
    requests_per_address: int = PER_ADDRESS,
) -> Any:
    """An application for `ray.serve.run`, which answers `POST /v1/sessions` as `pronghorn.Admission` does.

    It has one replica, since each knows the work that it has promised itself. Ray Serve starts another where it dies.
    TLS is Ray Serve's (`HTTPOptions`, `ssl_certfile` and `ssl_keyfile`). A version without these serves plain HTTP:
    requests for tickets over HTTP are refused, except on loopback.

    Args:
        options: of `pronghorn serve`, as for `RayNodes`.
        key: the file of `admission_key`, on each machine on which Ray Serve may run the replica. It does not pass Ray,
            and is not made here.
        host: as for `RayNodes`.
        ports: likewise.
        scale: as for `RayNodes`.
        tokens: a file of tokens there.
        metrics: answers `GET /metrics` too, to whoever reaches the application.
        insecure_plain_tcp: answers HTTP beyond loopback.
        tickets_per_client: as for `pronghorn.Admission`.
        requests_per_address: likewise.

    Raises:
        InputError: Ray Serve is missing.
    """
    try:
        from ray import serve
    except ImportError as error:
        raise InputError(f"Ray Serve is missing ({error}): pip install pronghorn[ray]") from error
    made = serve.deployment(
        name="pronghorn-admission",
        num_replicas=1,
        max_ongoing_requests=MOST_AT_ONCE,
        max_queued_requests=MOST_AT_ONCE,
    )(_Application)
    most = {"tickets_per_client": tickets_per_client, "requests_per_address": requests_per_address}
    known = None if tokens is None else str(tokens)
    return made.bind(list(options), str(key), host, _checked(ports), scale, known, metrics, insecure_plain_tcp, most)
