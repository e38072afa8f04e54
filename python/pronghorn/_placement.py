"""Which node of several a client goes to: the one with the least predicted work that waits."""

from __future__ import annotations

import http.client
import math
import random
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pronghorn._rates import Amounts

MOST_PROMISED = 600.0
"""Seconds of work that one client's tickets may promise all nodes, whatever it announces. What is older counts less, by
FORGET."""
LOOK = 1.0
"""Seconds between two looks at a node, and at most for one."""
STALE = 10.0
"""Seconds after which what was seen of a node says nothing."""
FIRST_GUESS = 0.01
"""Seconds of an image of a model of which none was predicted yet."""
FORGET = 120.0
"""Seconds after which half of the work that was promised to a node and did not come is forgotten."""
MOST_BYTES = 4 << 20
"""Of a node's metrics."""
_PLAIN = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks nodes themselves, whatever proxy the environment names."""


class Node(NamedTuple):
    """A server that takes tickets."""

    address: str
    """Host and port for clients; the node's name."""
    metrics: str
    """Host and port of its metrics."""


Fleet = Callable[[float], Sequence[Node]]
"""Says which nodes there are, at each look; it is told the predicted seconds of work that waits."""


class NodeState(NamedTuple):
    """What is known of a node."""

    address: str
    is_ready: bool
    waiting: float
    """Predicted seconds of work that was promised to it, and that it has not done yet."""
    clients: float
    """Clients that have a place or wait for one."""


class Placed(NamedTuple):
    """Where a client goes."""

    address: str
    run: str
    """The node's process, which a ticket names."""


@dataclass
class _State:
    """What is known of a node."""

    node: Node
    says_ready: bool = False
    run: str | None = None
    """Its process's name in tickets."""
    promised: float = 0.0
    """Seconds of work by tickets, of which the node has not done so much since."""
    done: float | None = None
    """Seconds of work that it has done in all."""
    clients: float = 0.0
    """Clients that have a place or wait for one."""
    looked: float = field(default_factory=time.monotonic)
    looking: threading.Lock = field(default_factory=threading.Lock)
    """Held by a look at it."""

    @property
    def is_ready(self) -> bool:
        """Whether it took clients with tickets when it was last asked, which is not long ago."""
        return self.says_ready and self.run is not None and time.monotonic() - self.looked < STALE

    def placed(self) -> Placed:
        """What a ticket for it says."""
        assert self.run is not None
        return Placed(self.node.address, self.run)


class Nodes:
    """Where work goes: to the node with the least predicted work that waits."""

    def __init__(self, nodes: Sequence[Node] | Fleet) -> None:
        """Nothing is known of them yet."""
        self._list: Fleet = nodes if callable(nodes) else lambda _: nodes
        self._states: list[_State] = []
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = {}
        self._promised = Amounts(MOST_PROMISED, FORGET)

    def place(self, client: str, model: str | None, images: int, failed: str | None = None) -> Placed | None:
        """A node for so many images of a client; None where none is ready. `failed` did not answer this client.

        Others are still sent there until a look finds it dead: no client can take a node from them. Nor can one that
        announces much, and never comes, keep others from a node: what it promises has a bound.
        """
        with self._lock:
            ready = [state for state in self._states if state.is_ready and state.node.address != failed]
            if not ready:
                return None
            chosen = min(ready, key=lambda state: (state.promised, state.clients, random.random()))
            known = self._seconds.get((model or "").partition("@")[0])
            least = min(self._seconds.values(), default=FIRST_GUESS)
            seconds = images * (least if known is None else known)
            chosen.promised += self._promised.take(client, seconds)
            return chosen.placed()

    def at(self, address: str) -> Placed | None:
        """A node of this address, where it takes clients now."""
        with self._lock:
            found = (state for state in self._states if state.node.address == address and state.is_ready)
            state = next(found, None)
            return None if state is None else state.placed()

    def states(self) -> list[NodeState]:
        """What is known of each."""
        with self._lock:
            return [
                NodeState(state.node.address, state.is_ready, state.promised, state.clients) for state in self._states
            ]

    def waiting(self) -> float:
        """Predicted seconds of work that was promised to nodes, and that they have not done yet."""
        with self._lock:
            return sum(state.promised for state in self._states)

    def look(self) -> None:
        """Asks all nodes how they are."""
        known = {state.node: state for state in self._states}
        states = [known.get(node) or _State(node) for node in self._list(self.waiting())]
        with self._lock:
            self._states = states
        threads = [threading.Thread(target=self._look_at, args=(state,), daemon=True) for state in states]
        for thread in threads:
            thread.start()
        # One whose name or answer takes longer keeps nobody from looking at the others.
        deadline = time.monotonic() + LOOK
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _look_at(self, state: _State) -> None:
        if not state.looking.acquire(blocking=False):
            # The last look is not over.
            return
        try:
            with _PLAIN.open(f"http://{state.node.metrics}/metrics", timeout=LOOK) as answer:
                samples = _samples(answer.read(MOST_BYTES).decode())
        except (OSError, ValueError, http.client.HTTPException):
            samples = []
        finally:
            state.looking.release()
        with self._lock:
            self._learn(state, samples)

    def _learn(self, state: _State, samples: list[tuple[str, str, float]]) -> None:
        def total(name: str, label: str = "") -> float:
            return sum(value for found, labels, value in samples if found == name and label in labels)

        now = time.monotonic()
        state.promised *= 0.5 ** ((now - state.looked) / FORGET)
        state.looked = now
        state.says_ready = total("ready") == 1
        runs = [labels for found, labels, _ in samples if found == "run_info"]
        state.run = _run(runs[0]) if runs else None
        state.clients = total("places_used") + total("queue")
        if not samples:
            return
        done = total("predicted_seconds_total")
        # A node that has begun anew has lost what was promised to it.
        since = math.inf if state.done is None or done < state.done else done - state.done
        state.promised = max(0.0, state.promised - since)
        state.done = done
        for found, labels, images in samples:
            if found == "images_total" and images > 0:
                name = labels.partition('model="')[2].partition('"')[0]
                self._seconds[name] = total("predicted_seconds_total", f'model="{name}"') / total(
                    "images_total", f'model="{name}"'
                )


def _run(labels: str) -> str | None:
    found = re.fullmatch(r'run="([0-9a-f]{32})"}', labels)
    return None if found is None else found[1]


def _samples(text: str) -> list[tuple[str, str, float]]:
    """Name, labels and value of each sample in Prometheus' text format."""
    found = []
    for line in text.splitlines():
        if line.startswith("pronghorn_"):
            name, _, value = line.rpartition(" ")
            bare, _, labels = name.partition("{")
            found.append((bare.removeprefix("pronghorn_"), labels, float(value)))
    return found
