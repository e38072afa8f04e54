"""What watches a server: health, readiness and metrics over HTTP, on a port of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any

from pronghorn._listener import Bounds, Listener
from pronghorn.errors import RunError

TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of Prometheus' text format."""
PATIENCE = 5.0
"""Seconds that a connection may be silent."""
BOUNDS = Bounds(places=32, of_address=32, seconds=15.0)
"""Of connections. Probes and Prometheus are few."""


class Monitor:
    """Answers GET of `/healthz` (the process is there), `/readyz` (it takes clients) and `/metrics`.

    A context manager: answers within `with`. It reads counters, and has no secrets. Whoever reaches its address is
    answered.
    """

    def __init__(
        self,
        listen: str,
        metrics: Callable[[], dict[str, Any]],
        text: Callable[[dict[str, Any]], str] | None = None,
    ) -> None:
        """Listens on `HOST:PORT`.

        Args:
            listen: host and port.
            metrics: what is told, with `ready`.
            text: writes it for Prometheus; a server's where not given.

        Raises:
            RunError: the address cannot be bound.
        """

        class Handler(BaseHTTPRequestHandler):
            timeout = PATIENCE
            server_version = "pronghorn"
            sys_version = ""

            def do_GET(self) -> None:
                """Answers."""
                status, said = _answer(self.path, metrics, text or text_of)
                content = said.encode()
                self.send_response(status)
                self.send_header("Content-Type", TYPE)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Probes come every few seconds: nothing is written down."""

        try:
            self._server = Listener(listen, Handler, BOUNDS)
        except OSError as error:
            raise RunError(f"cannot listen on {listen} for metrics: {error}", code="address") from error

    @property
    def address(self) -> str:
        """Host and port."""
        return self._server.address

    def __enter__(self) -> Monitor:
        """Begins to answer."""
        threading.Thread(target=self._server.serve_forever, name="pronghorn monitor", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends that."""
        self._server.shutdown()
        self._server.server_close()


def _answer(path: str, metrics: Callable[[], dict[str, Any]], text: Callable[[dict[str, Any]], str]) -> tuple[int, str]:
    match path.partition("?")[0]:
        case "/healthz":
            return 200, "ok\n"
        case "/readyz":
            return (200, "ok\n") if metrics()["ready"] else (503, "stopping\n")
        case "/metrics":
            return 200, text(metrics())
        case _:
            return 404, "there are /healthz, /readyz and /metrics\n"


Samples = Iterable[tuple[dict[str, str], float]]
Family = tuple[str, str, str, Samples]
"""Name, kind, meaning, and the samples with their labels."""


def text_of(found: dict[str, Any]) -> str:
    """Metrics in Prometheus' text format."""
    models = [({"model": each["model"], "version": each["version"]}, each) for each in found["models"]]

    def of_models(key: str) -> Samples:
        return [(labels, each[key]) for labels, each in models]

    def of_phases() -> Samples:
        return [({**labels, "phase": phase}, time) for labels, each in models for phase, time in each["seconds"]]

    def of_directions() -> Samples:
        for labels, each in models:
            for direction in ("received", "sent"):
                for phase, count in each[f"bytes_{direction}"]:
                    # Nothing goes over the line while a batch waits for memory.
                    if phase != "waiting":
                        yield {**labels, "direction": direction, "phase": phase}, count

    run = [] if found["run"] is None else [({"run": found["run"]}, 1)]
    families: list[Family] = [
        ("run_info", "gauge", "This process's name in tickets, where it takes them.", run),
        ("ready", "gauge", "Whether the server takes new clients.", [({}, found["ready"])]),
        ("connections", "gauge", "Connections, those without a hello included.", [({}, found["connections"])]),
        ("places", "gauge", "Sessions that the server has places for.", [({}, found["places"])]),
        ("queue", "gauge", "Clients that wait for a place.", [({}, found["queued"])]),
        ("places_used", "gauge", "Sessions that have a place.", [({}, found["places_used"])]),
        ("memory_limit_bytes", "gauge", "Memory that batches share, by the cost model.", [({}, found["memory"])]),
        ("memory_used_bytes", "gauge", "Memory that batches hold, by the cost model.", [({}, found["memory_used"])]),
        ("resident_memory_bytes", "gauge", "Memory of the process.", [({}, found["resident"])]),
        ("batches_waiting", "gauge", "Batches that wait for memory.", [({}, found["waiting"])]),
        (
            "failures_total",
            "counter",
            "Refusals, and sessions that ended with an error, by reason.",
            [({"reason": reason}, count) for reason, count in found["failures"]],
        ),
        (
            "refusals_total",
            "counter",
            "Of these, connections that got no place, by reason.",
            [({"reason": reason}, count) for reason, count in found["refusals"]],
        ),
        ("sessions", "gauge", "Sessions now.", of_models("sessions")),
        ("sessions_total", "counter", "Sessions that were admitted.", of_models("admitted")),
        ("batches_total", "counter", "Batches that were predicted.", of_models("batches")),
        ("prepared_batches_total", "counter", "Of these, batches that used what was prepared.", of_models("prepared")),
        ("images_total", "counter", "Images that were predicted.", of_models("images")),
        ("bytes_total", "counter", "Bytes of sessions.", of_directions()),
        (
            "seconds_total",
            "counter",
            "Seconds until sessions had a place, waited for memory, prepared and predicted, clients' time included.",
            of_phases(),
        ),
        (
            "predicted_seconds_total",
            "counter",
            "Seconds of one nominal core that the planner predicts for the batches, both parties together.",
            of_models("predicted_seconds"),
        ),
        ("stock_batches", "gauge", "Prepared batches that are kept.", of_models("stock")),
        ("stock_bytes", "gauge", "Their bytes.", of_models("stock_bytes")),
    ]
    return text_of_families(families)


def text_of_families(families: Iterable[Family]) -> str:
    """Families of metrics in that format."""
    return "".join(_family(*family) for family in families)


def _family(name: str, kind: str, meaning: str, samples: Samples) -> str:
    full = f"pronghorn_{name}"
    # Labels are names of models, reasons and addresses, which have no quotes.
    lines = [f"{full}{_labels(labels)} {float(value):.12g}" for labels, value in samples]
    return "\n".join([f"# HELP {full} {meaning}", f"# TYPE {full} {kind}", *lines]) + "\n"


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""
