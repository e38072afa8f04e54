"""Serving a model and asking one over TCP."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import numpy as np
import numpy.typing as npt

from pronghorn import _native
from pronghorn._model import Model, Progress, Stats, as_inputs, native_errors
from pronghorn._trust import require
from pronghorn.errors import RunError

Floats = npt.NDArray[np.float32]


def serve(
    model: Model,
    listen: str = "127.0.0.1:7700",
    trust: str | None = None,
    *,
    max_clients: int = 16,
    max_images_per_client: int | None = None,
    idle_timeout: float = 60.0,
    threads: int | None = None,
    memory: int | None = None,
    log: Callable[[str], None] | None = None,
) -> Server:
    """Binds a server of `model`; `with` or `run` starts it.

    Args:
        model: what to serve.
        listen: host and port; port 0 takes a free one.
        trust: the trust level; must be named.
        max_clients: most sessions at once.
        max_images_per_client: most images one client address may ask for.
        idle_timeout: seconds after which a silent session ends.
        threads: threads to compute with; all cores where not given.
        memory: most bytes to use.
        log: called with a line for each session and error.

    Raises:
        TrustLevelRequired: no trust level was named.
        RunError: the address cannot be bound.
    """
    compiled = model.compiled(trust, memory=memory)
    with native_errors(RunError):
        native = _native.Server(compiled, listen, max_clients, max_images_per_client, idle_timeout, threads, log)
    return Server(native, compiled.plan_hash)


class Server:
    """A server of one model. A context manager: serves within `with`."""

    def __init__(self, native: _native.Server, plan_hash: str) -> None:
        """Use `serve`."""
        self._native = native
        self._plan_hash = plan_hash

    @property
    def address(self) -> str:
        """Host and port it listens on."""
        return self._native.address

    @property
    def plan_hash(self) -> str:
        """The hash of the plan it serves, which clients may insist on."""
        return self._plan_hash

    def run(self) -> None:
        """Serves until `stop` or an interrupt."""
        with native_errors(RunError):
            self._native.run()

    def start(self) -> None:
        """Serves on a thread of its own."""
        with native_errors(RunError):
            self._native.start()

    def stop(self) -> None:
        """Ends all sessions."""
        self._native.stop()

    def __enter__(self) -> Server:
        """Starts it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops it."""
        self.stop()


def connect(
    address: str,
    trust: str | None = None,
    *,
    plan_hash: str | None = None,
    timeout: float = 60.0,
    threads: int | None = None,
) -> Client:
    """Connects to a server.

    Args:
        address: host and port.
        trust: the trust level; must be named, and be the server's.
        plan_hash: the plan to insist on, in hexadecimal, as `Plan.hash` says.
        timeout: seconds to wait for the server at any time.
        threads: threads to compute with; all cores where not given.

    Raises:
        TrustLevelRequired: no trust level was named.
        RunError: no server there, or it does not agree.
    """
    level = require(trust)
    with native_errors(RunError):
        return Client(_native.Client(address, level, plan_hash, timeout, threads))


class Client:
    """A connection to a server. A context manager: closed at the end of `with`."""

    def __init__(self, native: _native.Client) -> None:
        """Use `connect`."""
        self._connection: _native.Client | None = native
        self.last_stats: Stats | None = None
        """What the last prediction cost."""

    @property
    def _native(self) -> _native.Client:
        if self._connection is None:
            raise RunError("this client is closed: connect again")
        return self._connection

    @property
    def plan_hash(self) -> str:
        """The hash of the server's plan."""
        return self._native.plan_hash

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one image."""
        return tuple(self._native.input_shape)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of one result."""
        return tuple(self._native.output_shape)

    def plan_text(self) -> str:
        """The server's plan as a table."""
        return self._native.plan_text()

    def plan_json(self) -> str:
        """The server's plan as JSON."""
        return self._native.plan_json()

    def predict(self, x: npt.ArrayLike, *, progress: Progress | None = None) -> Floats:
        """The model's outputs `(images, *output_shape)` on images the server does not see.

        Raises:
            InputError: `x` is not `(images, *input_shape)`.
            RunError: the session failed.
        """
        inputs = as_inputs(x, self.input_shape)
        with native_errors(RunError):
            outputs, found = self._native.predict(inputs, progress)
        self.last_stats = Stats.of(len(inputs), found)
        return outputs

    def close(self) -> None:
        """Ends the session."""
        self._connection = None

    def __enter__(self) -> Client:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        self.close()
