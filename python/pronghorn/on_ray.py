"""Nodes on a Ray cluster: one detached actor a machine, which runs the unchanged server on a port of its own.

Ray starts servers and knows which machines are there. No message of a session passes it: clients get an address and a
ticket from an `Admission`, and connect to the server itself.

    admission = pronghorn.Admission(listen, on_ray.RayNodes(["--config", "/srv/server.toml"]), key, tls=...)

Needs `pip install pronghorn[ray]`, on all machines, with the files that the options name.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pronghorn import _processes
from pronghorn._admission import Node
from pronghorn.errors import RunError

NAMESPACE = "pronghorn"
PATIENCE = 1.0
"""Seconds that an actor has to answer; one that still plans its models is asked again."""


class ServerActor:
    """A server of one machine, which ends with the actor, however that ends."""

    def __init__(self, host: str, options: Sequence[str]) -> None:
        """Starts `pronghorn serve` with these options, on free ports of an address."""
        ports = [_free_port(host) for _ in range(2)]
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

    def drain(self) -> None:
        """Lets batches that run come to their end."""
        self._process.terminate()
        self._process.wait()


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as free:
        port: int = free.getsockname()[1]
    return port


class RayNodes:
    """The nodes of a cluster, for `Admission`: those whose actors answer. Machines that come get one."""

    def __init__(self, options: Sequence[str], *, host: str | None = None) -> None:
        """Joins a cluster that `ray.init` or the environment names.

        Args:
            options: of `pronghorn serve`; `--tickets` with the admission service's key, a model or `--config`, and
                `--tls` beyond loopback.
            host: where servers listen, each on ports of its own; the machine's address where not given.
        """
        if not ray.is_initialized():
            ray.init(namespace=NAMESPACE)
        self._options, self._host = list(options), host

    def __call__(self) -> list[Node]:
        """The nodes of now."""
        machines = {each["NodeID"]: each["NodeManagerAddress"] for each in ray.nodes() if each["Alive"]}
        asked = {}
        for machine, address in machines.items():
            actor = self._actor(machine, self._host or address)
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
        actors = []
        for machine in [each["NodeID"] for each in ray.nodes() if each["Alive"]]:
            # A machine without an actor has nothing to end.
            with suppress(ValueError):
                actors.append(ray.get_actor(_name(machine), NAMESPACE))
        for answer in [actor.drain.remote() for actor in actors]:
            # Nor has one that is gone, of which Ray may hear later.
            with suppress(ray.exceptions.RayError):
                ray.get(answer)
        for actor in actors:
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
        ).remote(host, self._options)


def _name(machine: str) -> str:
    return f"server-{machine}"
