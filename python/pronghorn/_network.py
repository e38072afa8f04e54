"""Serving a model and asking one, over TLS or plain TCP."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from pronghorn import _check, _native
from pronghorn._arrays import Inputs, as_inputs
from pronghorn._categories import Categories
from pronghorn._inputs import Range, clamped, clamped_text, planned_bounds, planned_range, warn_of_scale
from pronghorn._model import Model, Plan, Progress, Shaped, Stats, native_errors
from pronghorn._outputs import Predictions, beyond_samples, finish_of, kind_of, reader, shapes_of
from pronghorn._tls import ClientTls, PathOption, ServerTls, token_of
from pronghorn._trust import require
from pronghorn.errors import InputError, PrepareWarning, RangeWarning, RunError, StoreWarning

Floats = npt.NDArray[np.float32]
Tls = TypeVar("Tls", ServerTls, ClientTls)


@dataclass(frozen=True)
class Offer:
    """A model of a server, for some of its clients."""

    model: Model | Plan
    """The model, or what `Model.plan` made of it."""
    clients: Sequence[str] | None = None
    """The names in the certificates or tokens of the clients that it is for; None for all. Others are not told that
    there is such a model."""


Offers: TypeAlias = Model | Plan | Offer | Mapping[str, Model | Plan | Offer]


@dataclass(frozen=True)
class Listed:
    """A model that a server has for this client."""

    name: str
    """Its name."""
    version: str
    """Its version."""
    trust: str
    """The trust level of its plan."""
    plan_hash: str
    """The hash of its plan, 64 hexadecimal digits."""


def serve(
    model: Offers,
    listen: str = "127.0.0.1:7700",
    trust: str | None = None,
    *,
    max_clients: int | None = None,
    max_images_per_client: int | None = None,
    idle_timeout: float = 60.0,
    threads: int | None = None,
    memory: int | None = None,
    without: Iterable[str] | None = None,
    engine: str | None = None,
    objective: str | None = None,
    network: str | None = None,
    assume: str | None = None,
    rounding: str | None = None,
    key_checks: int | None = None,
    flood_bits: int | None = None,
    prepare: int = 16,
    prepare_bytes: int = 1 << 30,
    store: str | os.PathLike[str] | None = None,
    log: Callable[[LogLine], None] | None = None,
    hello_timeout: float = 5.0,
    keep_alive: float | None = None,
    max_connections_per_address: int | None = None,
    max_waiting: int = 256,
    queue_timeout: float = 30.0,
    turn: float = 5.0,
    limits: Mapping[str, int | None] | None = None,
    proxies: Sequence[str] = (),
    tickets: tuple[str, str] | None = None,
    tls: PathOption | ServerTls | None = None,
    insecure_plain_tcp: bool = False,
) -> Server:
    """Binds a server of `model`; `with`, `start` or `run` starts it. Until then clients connect and get no answer.

    Args:
        model: what to serve; or several models on one port, by `NAME` or `NAME@VERSION`. A client that names no version
            gets the last one. Names go into the plans, unless the models have names of their own (`load(name=)`).
        listen: host and port; port 0 takes a free one.
        trust: the trust level; `two-party` where none is named.
        max_clients: most sessions at once, 16 where not given. Others wait for a place, first come, first served, and
            those with fewer places before those with more.
        max_images_per_client: most images one client may ask for: by its certificate or token, and with `store` over
            restarts; a client that shows neither is an address, and counts until the server stops.
        idle_timeout: seconds that a client may be silent within a prediction.
        threads: threads to compute with; all cores where not given.
        memory: most bytes to use.
        without: passes over an encrypted network to leave out, as in `Model.plan`.
        engine: what linear layers on shares run in, as in `Model.plan`.
        objective: what to choose the plan for, as in `Model.plan`.
        network: the network that latency is judged on, as in `Model.plan`.
        assume: what oblivious transfers may rest on, as in `Model.plan`.
        rounding: how values between layers lose bits, as in `Model.plan`.
        key_checks: sets of keys that a client makes, as in `Model.plan`.
        flood_bits: bits of the distance that floods keep over all answers under a key, as in `Model.plan`.
        prepare: prepared batches to keep for each client at most; 0 prepares none. Further ones replace its oldest.
        prepare_bytes: bytes that all of them may take; further ones replace the oldest, larger ones are refused.
        store: a directory to keep them in, for later runs; in memory where none is named. They are secrets.
        log: called with a `LogLine` for each session, refusal and error.
        hello_timeout: seconds that a new connection may take to introduce itself; it counts as a client only then.
        keep_alive: seconds that a connection may rest between two predictions, `idle_timeout` where not given. A client
            connects again by itself, and what was prepared is kept.
        max_connections_per_address: most connections of one IPv4 address or IPv6 /64 network; where not given half of
            `max_clients`, at least 2, and any number from this machine.
        max_waiting: most clients that wait for a place; more are refused as `busy`.
        queue_timeout: seconds that a client waits for a place before it is refused as `busy`.
        turn: seconds that a client that is served keeps its place while others wait. It connects again by itself and
            waits as they do. No batch is cut.
        limits: other limits on what clients use, by name: `limits()` lists them. None: no limit.
        proxies: addresses and networks (`10.1.0.0/16`) of load balancers that send the PROXY protocol, version 1 or 2.
            What they say of their clients' addresses is believed, and they must say it.
        tickets: serves clients with a ticket alone: the public key of an admission service (64 hexadecimal digits), and
            this node's address in its tickets.
        tls: `DIR/server` of `pronghorn keys DIR`, or a `ServerTls`; plain TCP on loopback where not given.
        insecure_plain_tcp: plain TCP on other addresses too. Whoever is on the network can then change results, read
            inputs bit by bit, and pose as either party.

    Raises:
        TrustLevelRequired: there is no such trust level.
        InputError: an argument that makes no sense, an address beyond loopback without TLS, or a file of the channel
            that cannot be used.
        RunError: the address cannot be bound.
    """
    _check.address("listen", listen)
    caps = dict(given_limits(limits))
    given = (
        ("max_clients", "max-clients", max_clients),
        ("max_images_per_client", "max-images", max_images_per_client),
        ("max_connections_per_address", "max-connections", max_connections_per_address),
    )
    caps |= {limit: _check.whole(name, value, 1) for name, limit, value in given if value is not None}
    arguments = (
        list(caps.items()),
        _check.seconds("idle_timeout", idle_timeout),
        _check.threads(threads),
        _check.whole("prepare", prepare, 0),
        _check.whole("prepare_bytes", prepare_bytes, 1),
        _check.directory("store", store),
        entries_to(_check.callback("log", log)),
    )
    queue = (
        _check.whole("max_waiting", max_waiting, 0),
        _check.seconds("queue_timeout", queue_timeout),
        _check.seconds("turn", turn),
    )
    hello = _check.seconds("hello_timeout", hello_timeout)
    rest = None if keep_alive is None else _check.seconds("keep_alive", keep_alive)
    options: dict[str, Any] = {"trust": trust, "objective": objective, "memory": memory, "without": without}
    options |= {"engine": engine, "network": network, "assume": assume, "key_checks": key_checks}
    options |= {"rounding": rounding, "flood_bits": flood_bits}
    offered = _offered(model, options)
    with native_errors(RunError):
        native = _native.Server(
            offered,
            listen,
            *arguments,
            hello_timeout=hello,
            keep_alive=rest,
            max_waiting=queue[0],
            queue_timeout=queue[1],
            turn=queue[2],
            proxies=[_check.text("a proxy", each, "10.1.0.0/16") for each in proxies],
            tickets=tickets,
            tls=paths(tls),
            insecure_plain_tcp=bool(insecure_plain_tcp),
        )
    return Server(native, offered, options)


@dataclass(frozen=True)
class Limit:
    """A limit on what the clients of a server use."""

    name: str
    """Its name, for `serve(limits=)`; also a flag of the command, and a key in a server's file."""
    key: str
    """Whose use is counted: of one `client` (the name in its certificate or token, else its address), of one `address`
    (IPv4, or an IPv6 /64), or of `all`."""
    unit: str
    """What is counted."""
    period: str
    """The time over which it adds up. Days begin at midnight UTC."""
    default: int | None
    """Its value where none is given; None: no limit."""
    code: str
    """The `RunError.code` of who is refused."""
    retryable: bool
    """Its `retryable`."""
    help: str
    """What it limits."""


def given_limits(given: Mapping[str, int | None] | None) -> list[tuple[str, int | None]]:
    """Limits by their names, checked, for the core."""
    return [(name, _check.optional(name, value, 1)) for name, value in (given or {}).items()]


def limits() -> list[Limit]:
    """All limits on what the clients of a server use."""
    return [Limit(**row) for row in _native.limits()]


class LogLine(str):
    """A line of a server's log, with what programs read. It has no secrets; what a peer wrote is escaped."""

    level: str
    """`debug`, `info`, `warning` or `error`."""
    event: str
    """What happened, in a word, such as `connected`, `left` or `refused`."""
    fields: dict[str, Any]
    """Its parts, such as `session`, `address`, `model`, `images` or `reason`."""


Entries: TypeAlias = Callable[[str, str, str, dict[str, Any]], None]


def entries_to(log: Callable[[LogLine], None] | None) -> Entries | None:
    """Calls `log` with the core's entries."""
    if log is None:
        return None

    def write(level: str, event: str, text: str, fields: dict[str, Any]) -> None:
        line = LogLine(text)
        line.level, line.event, line.fields = level, event, fields
        log(line)

    return write


def _offered(model: Offers, options: Mapping[str, Any]) -> list[_native.Offered]:
    """The models as the core takes them, planned with `options` where they are not planned yet."""
    if isinstance(model, Mapping):
        return [
            _one_offered(_check.text("a model's name", name, "triage@2"), each, options) for name, each in model.items()
        ]
    return [_one_offered(None, model, options)]


def _one_offered(name: str | None, model: Model | Plan | Offer, options: Mapping[str, Any]) -> _native.Offered:
    offer = model if isinstance(model, Offer) else Offer(model)
    clients = (
        None if offer.clients is None else [_check.text("a client's name", each, "alice") for each in offer.clients]
    )
    if isinstance(offer.model, Plan):
        return name, offer.model.compiled, clients
    if not isinstance(offer.model, Model):
        raise InputError(f"model is {offer.model!r}: give what pronghorn.load returns")
    named = offer.model if name is None else offer.model.named(name)
    return name, named.compiled(**options), clients


class Server:
    """A server of models. A context manager: serves within `with`. Without it call `start` or `run`.

    The child of `os.fork` cannot use it: a `RunError` of code `forked` says so.
    """

    def __init__(self, native: _native.Server, offered: Sequence[_native.Offered], options: Mapping[str, Any]) -> None:
        """Use `serve`."""
        self._native = native
        self._offered = list(offered)
        self._options = options

    @property
    def address(self) -> str:
        """Host and port it listens on."""
        return self._native.address

    @property
    def fingerprint(self) -> str | None:
        """The SHA-256 of its certificate, which clients may pin; None on plain TCP."""
        return self._native.fingerprint

    @property
    def plan_hash(self) -> str:
        """The hash of the plan it serves, which clients may insist on; of the first of several models."""
        return self._offered[0][1].plan_hash

    def offer(self, model: Offers) -> None:
        """Serves other models from now on, planned with the options of `serve`.

        A model that was planned before, and is offered again under its name, keeps its clients' keys and prepared
        batches. Connections of models that are gone go on to their end.

        Args:
            model: as in `serve`.

        Raises:
            InputError: something else.
            RunError: the models cannot be served together; all is as before.
        """
        offered = _offered(model, self._options)
        with native_errors(RunError):
            self._native.offer(offered)
        self._offered = offered

    def run(self) -> None:
        """Serves until `stop` or an interrupt."""
        with native_errors(RunError):
            self._native.run()

    def start(self) -> None:
        """Serves on a thread of its own."""
        with native_errors(RunError):
            self._native.start()

    def drain(self, timeout: float = 30.0) -> bool:
        """Takes no new clients, lets batches that run come to their end, and stops.

        Clients between two batches, and those that come, hear a `RunError` of code `stopping`.

        Args:
            timeout: seconds that batches have; what runs then is cut.

        Returns: whether nothing was cut.

        Raises:
            InputError: no such time.
        """
        patience = _check.seconds("timeout", timeout)
        with native_errors(RunError):
            whole = self._native.drain(patience)
        self.stop()
        return whole

    def metrics(self) -> dict[str, Any]:
        """What the server counts: sessions, images, bytes, seconds, memory. `Monitor` serves it to Prometheus."""
        return {**self._native.metrics(), "resident": resident_bytes()}

    def stop(self) -> None:
        """Ends all sessions."""
        with native_errors(RunError):
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


def resident_bytes() -> int:
    """Bytes of memory that this process has; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def connect(
    address: str,
    trust: str | None = None,
    *,
    model: str | None = None,
    plan_hash: str | None = None,
    timeout: float = 60.0,
    threads: int | None = None,
    prepare: int = 0,
    store: str | os.PathLike[str] | None = None,
    tls: PathOption | ClientTls | None = None,
    token: str | os.PathLike[str] | None = None,
    ticket: bytes | Callable[[], bytes] | None = None,
    insecure_plain_tcp: bool = False,
) -> Client:
    """Connects to a server.

    Args:
        address: host and port.
        trust: the trust level; must be the server's, `two-party` where none is named.
        model: the model, as `NAME` or `NAME@VERSION`; the only one that the server has for this client where none is
            named. See `list_models`.
        plan_hash: the plan to insist on: all 64 hexadecimal digits, as `Plan.hash` has them.
        timeout: seconds without progress until the server is given up: no byte comes while this side waits, or none
            can be sent. The server's computing between two messages counts. A message that comes must also be whole
            after as long and a second more for each 64 KiB. A prediction that goes on takes any time. Connecting takes
            at most 10 of them, beside looking up the name. Ending takes up to two seconds more, to tell the server.
        threads: threads to compute with; all cores where not given.
        prepare: batches to keep prepared in the background, of the last prediction's size: see `Client.keep_prepared`.
        store: a directory to keep this client's halves of them in, for later connections; in memory where none is
            named. They are secrets: see SECURITY.md.
        tls: `DIR/clients/NAME` of `pronghorn keys DIR`, or a `ClientTls`. Where not given, TLS with the system's CAs,
            and plain TCP on loopback.
        token: a token, or the path (`pathlib.Path`) of a file that holds one. It means TLS.
        ticket: of an admission service (`ask_admission`), for one connection; or a function that gives one. A
            connection in the background needs one of its own, and so does one after a rest or a turn. The function is
            then called on other threads. What it raises ends the connection, and its `retryable` says whether for good.
        insecure_plain_tcp: plain TCP to any address. Whoever is on the network can then change results, read inputs bit
            by bit, and pose as the server.

    Raises:
        TrustLevelRequired: there is no such trust level.
        InputError: an argument that makes no sense, or a file of the channel that cannot be used.
        RunError: no server there, or it does not agree.
    """
    return connect_with(
        _native.Cancel(),
        address,
        trust,
        model=model,
        plan_hash=plan_hash,
        timeout=timeout,
        threads=threads,
        prepare=prepare,
        store=store,
        tls=tls,
        token=token,
        insecure_plain_tcp=insecure_plain_tcp,
        ticket=ticket,
    )


def connect_with(
    cancel: _native.Cancel,
    address: str,
    trust: str | None,
    *,
    model: str | None,
    plan_hash: str | None,
    timeout: float,
    threads: int | None,
    prepare: int,
    store: str | os.PathLike[str] | None,
    tls: PathOption | ClientTls | None,
    token: str | os.PathLike[str] | None,
    insecure_plain_tcp: bool,
    ticket: bytes | Callable[[], bytes] | None = None,
) -> Client:
    """`connect`, which `cancel` ends."""
    level = require(trust)
    _check.address("address", address)
    if plan_hash is not None:
        _check_hash(plan_hash)
    limit, cores = _check.seconds("timeout", timeout), _check.threads(threads)
    kept, directory = _check.whole("prepare", prepare, 0), _check.directory("store", store)
    with native_errors(RunError):
        native = _native.Client(
            address,
            level,
            plan_hash,
            limit,
            cores,
            directory,
            model=None if model is None else _check.text("model", model, "triage@2"),
            tls=paths(tls),
            token=token_of(token),
            insecure_plain_tcp=bool(insecure_plain_tcp),
            cancel=cancel,
            ticket=ticket,
        )
    client = Client(native, cancel)
    if kept > 0:
        client.keep_prepared(kept)
    return client


def list_models(
    address: str,
    *,
    timeout: float = 60.0,
    tls: PathOption | ClientTls | None = None,
    token: str | os.PathLike[str] | None = None,
    insecure_plain_tcp: bool = False,
) -> list[Listed]:
    """The models that a server has for this client, in its owner's order: of the versions of a name the last one is
    what clients get that name no version.

    Args: as in `connect`.

    Raises:
        InputError: an argument that makes no sense, or a file of the channel that cannot be used.
        RunError: no server there, or it does not know this client.
    """
    _check.address("address", address)
    limit = _check.seconds("timeout", timeout)
    with native_errors(RunError):
        listed = _native.list_models(
            address, limit, tls=paths(tls), token=token_of(token), insecure_plain_tcp=bool(insecure_plain_tcp)
        )
    return [Listed(*each) for each in listed]


def paths(tls: PathOption | Tls | None) -> Path | Tls | None:
    """A directory as a path; files as they are.

    Raises:
        InputError: it is neither.
    """
    if not isinstance(tls, str | os.PathLike | ClientTls | ServerTls | None):
        raise InputError(
            f"tls is {tls!r:.80}, which is neither a directory of keys nor files\n"
            "  what to do: give DIR/clients/NAME of `pronghorn keys DIR` or a ClientTls, and to a server DIR/server or "
            "a ServerTls. Left out, a client beyond this machine takes TLS with the system's CAs"
        )
    return Path(tls) if isinstance(tls, str | os.PathLike) else tls


def _check_hash(plan_hash: str) -> None:
    """A prefix would do to name a plan, but not to insist on one: another with the same prefix can be made."""
    digits = _check.text("plan_hash", plan_hash, "0f" * 32)
    if len(digits) != 64 or not set(digits.lower()) <= set("0123456789abcdef"):
        raise InputError(
            f"plan_hash is {digits!r}: give all 64 hexadecimal digits, as pronghorn plan, serve and verify print them"
        )


@dataclass(frozen=True, repr=False, eq=False)
class Quantised:
    """Inputs as the integers of a plan: made by `Client.quantise`. Secret as the inputs are."""

    plan_hash: str
    """The plan's."""
    images: int
    """How many there are."""
    far: npt.NDArray[np.bool_]
    """Which have values far beyond the plan's range."""
    core: _native.Quantised

    @classmethod
    def joined(cls, parts: Sequence[Quantised]) -> Quantised:
        """The images of all parts, one after the other.

        Raises:
            InputError: there are none, or those of two plans.
        """
        if not parts:
            raise InputError("there are no images")
        far = np.concatenate([part.far for part in parts])
        with native_errors(InputError):
            core = _native.Quantised.joined([part.core for part in parts])
        return cls(parts[0].plan_hash, len(far), far, core)

    def __len__(self) -> int:
        """How many there are."""
        return self.images


class Client(Shaped):
    """A connection to a server. A context manager: closed at the end of `with`.

    A connection that the server has ended because it rested is made again by the next call, to the same plan and with
    all that is prepared. After a `RunError` connect again; its `code` and `retryable` say whether that may help. The
    child of `os.fork` cannot use it: a `RunError` of code `forked` says so.
    """

    def __init__(self, native: _native.Client, cancel: _native.Cancel) -> None:
        """Use `connect`."""
        self._connection: _native.Client | None = native
        self._cancel = cancel
        self.last_stats: Stats | None = None
        """What the last prediction cost."""
        self.last_beyond_samples: npt.NDArray[np.bool_] | None = None
        """For each image of the last prediction, whether its result is beyond those of the server's samples, and so
        likely wrong. None where the plan does not say."""
        self.last_clamped: npt.NDArray[np.bool_] | None = None
        """For each image of the last prediction, whether it has values far beyond the plan's range, which were clamped.
        Its result may be wrong."""

    @property
    def _core(self) -> _native.Client:
        if self._connection is None:
            raise RunError("this client is closed: connect again", code="over", retryable=True)
        return self._connection

    @property
    def model(self) -> str:
        """The server's model, as `NAME@VERSION`."""
        return "{}@{}".format(*self._core.model)

    @property
    def plan_hash(self) -> str:
        """The hash of the server's plan."""
        return self._core.plan_hash

    @property
    def input_range(self) -> Range:
        """The least and the largest input that the server's plan takes; others are clamped. Features with
        scales of their own have ranges of their own within it."""
        return planned_range(self.plan_json())

    @property
    def class_names(self) -> tuple[str, ...]:
        """The model's own names of its classes, from the server's plan; empty where they are 0, 1 and so on."""
        return tuple(json.loads(self.plan_json())["class_names"])

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """The shapes of a model's several outputs, by name, from the server's plan; empty where there is one."""
        return shapes_of(json.loads(self.plan_json()))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of a row's features, in the model's order, as its owner's table has them, or none.

        Columns of a data frame are found by them, in any order.
        """
        return tuple(json.loads(self.plan_json())["columns"])

    @property
    def categories(self) -> Categories:
        """The values of a row that are categories, from the server's plan."""
        return Categories.of_plan(json.loads(self.plan_json()))

    def plan_text(self, details: bool = False) -> str:
        """The server's plan as a table, and with all parameters where `details` says so."""
        return self._core.plan_text(details)

    def plan_json(self) -> str:
        """The server's plan as JSON."""
        return self._core.plan_json()

    @property
    def piece(self) -> int:
        """Images of a piece of a long work: the fewest with which an image costs little more than in the best batch.
        What is lost with a connection is a piece."""
        with native_errors(RunError):
            return self._core.piece()

    @property
    def most_prepared(self) -> int:
        """Most prepared batches that the server keeps for this client; 0: it keeps none."""
        with native_errors(RunError):
            return self._core.most_prepared()

    def prepare(self, images: int, *, progress: Progress | None = None) -> Stats:
        """Does ahead what the prediction of `images` images needs no inputs for; what that cost.

        Under `two-party` the server garbles all circuits and sends them: most of the traffic. They are kept in
        the store, or in memory as long as this client is there; predictions of as many images use them up, each once.

        Args:
            images: how many.
            progress: as in `predict`.

        Raises:
            InputError: `images` is not a positive number.
            RunError: the trust level has nothing to prepare, the server keeps fewer, or the session failed.
        """
        _check.callback("progress", progress)
        count = _check.whole("images", images, 1)
        with native_errors(RunError):
            return Stats.of(count, self._core.prepare(count, progress))

    def is_prepared(self, images: int) -> bool:
        """Whether the prediction of `images` images finds a preparation for each of its batches in the store.

        Raises:
            InputError: `images` is not a positive number.
            RunError: the store cannot be read.
        """
        count = _check.whole("images", images, 1)
        with native_errors(RunError):
            return self._core.is_prepared(count)

    def keep_prepared(self, batches: int, images: int | None = None) -> None:
        """Keeps `batches` batches prepared from now on, on a second connection, while predictions go on.

        As many as the server keeps for a client at most. What goes wrong with that is a `PrepareWarning` after the next
        prediction and when the client is closed; predictions go on without, and each tries again.

        Args:
            batches: how many; 0 for no more.
            images: images of the predictions they are for; those of the last prediction where not given.

        Raises:
            InputError: an argument that makes no sense.
            RunError: the trust level has nothing to prepare, or the server keeps none.
        """
        count, size = _check.whole("batches", batches, 0), _check.optional("images", images, 1)
        with native_errors(RunError):
            self._core.keep_prepared(count, size)

    def wait_prepared(self, timeout: float = 60.0) -> bool:
        """Waits until the batches to be kept are prepared, `timeout` seconds at most; whether they are.

        Raises:
            InputError: no such time.
            RunError: what goes wrong with that.
        """
        patience = _check.seconds("timeout", timeout)
        deadline = time.monotonic() + patience
        while True:
            # Short, so that an interrupt is not kept waiting.
            step = min(0.1, max(deadline - time.monotonic(), 1e-3))
            with native_errors(RunError):
                if self._core.wait_prepared(step):
                    return True
            if time.monotonic() >= deadline:
                return False

    def quantise(self, x: Inputs | Iterator[Inputs]) -> Quantised:
        """Inputs as the integers of the server's plan, which `predict` and `classify` take in place of `x`.

        A value takes one byte or two in most plans, and four in an array. So whoever predicts thousands of pictures can
        let the array go before the prediction begins, or never have all in memory. Nothing is sent.

        Args:
            x: as in `predict`; or an iterator over parts of them, such as `iter(batches)`.

        Raises:
            InputError: `x` is not `(images, *input_shape)`, or there are no images.
        """
        if not isinstance(x, Iterator):
            return self._quantise(x, stacklevel=3)
        parts: list[Quantised] = []
        for part in x:
            # The scale of the first part is that of all.
            parts.append(self._quantise(part, stacklevel=3, warns=not parts))
        return Quantised.joined(parts)

    def predict(self, x: Inputs | Quantised, *, progress: Progress | None = None) -> Floats:
        """The model's outputs `(images, *output_shape)` on images the server does not see.

        `x` is taken as it is: preprocessed as the model wants it. No other thread may change it meanwhile. Inputs that
        cannot be what the server's plan was made for, such as bytes where it expects 0..1, are an `InputWarning`.
        Results beyond those of the server's samples, and inputs with values far beyond the plan's range, are a
        `RangeWarning`; `last_beyond_samples` and `last_clamped` say which.

        Args:
            x: images `(images, *input_shape)`; or columns by their names, where the server's plan has these
                (`columns`). It has no names of other inputs: of a model of several give rows of `Model.join`. Or what
                `quantise` made of them.
            progress: called with images done and images in all, first with 0.0 before anything is sent. An exception
                in it cancels the prediction and is raised here. So is an interrupt. The session is over then, unless it
                was the first call: after that the client goes on.

        Raises:
            InputError: `x` is not `(images, *input_shape)`, or was quantised for another plan.
            RunError: the session failed.
        """
        return self._predict(x, progress)

    def classify(
        self, x: Inputs | Quantised, *, outputs: str | None = None, progress: Progress | None = None
    ) -> Predictions:
        """The same with what the outputs mean: `classes`, `probabilities` and `top(k)` beside `outputs`.

        Args:
            x: images, as in `predict`.
            outputs: what they are, where that is not clear: `classes`, `labels` or `values`.
            progress: as in `predict`.

        Raises:
            InputError: as `predict`, or `outputs` is none of these.
            RunError: the session failed.
        """
        plan = json.loads(self.plan_json())
        finish, shapes = finish_of(plan), shapes_of(plan)
        kind = kind_of(finish, self.output_shape, outputs, several=bool(shapes))
        found = reader(finish, kind, plan["class_names"], shapes)(self._predict(x, progress))
        return replace(found, beyond_samples=self.last_beyond_samples, clamped=self.last_clamped)

    def _quantise(self, x: Inputs, stacklevel: int, warns: bool = True) -> Quantised:
        inputs = as_inputs(x, self.network_shape, columns=self.columns, categories=self.categories)
        bounds = planned_bounds(self.plan_json())
        if warns:
            warn_of_scale(inputs, bounds, stacklevel)
        # Before the prediction: the time after it is the same whether a check has failed or not.
        far = clamped(inputs, bounds)
        with native_errors(RunError):
            return Quantised(self.plan_hash, len(inputs), far, self._core.quantise(inputs))

    def _predict(self, x: Inputs | Quantised, progress: Progress | None) -> Floats:
        _check.callback("progress", progress)
        inputs = x if isinstance(x, Quantised) else self._quantise(x, stacklevel=4)
        if inputs.plan_hash != self.plan_hash:
            raise InputError(
                "these inputs were quantised for another plan\n  what to do: quantise them with this client"
            )
        self.last_clamped = inputs.far
        with native_errors(RunError):
            outputs, beyond, found, unkept = self._core.predict(inputs.core, progress)
        self.last_beyond_samples = None if beyond is None else np.array(beyond, np.bool_)
        count = None if beyond is None else sum(beyond)
        self.last_stats = Stats.of(inputs.images, {**found, "beyond_samples": count})
        if count:
            warnings.warn(beyond_samples(count, inputs.images), RangeWarning, stacklevel=3)
        if problem := clamped_text(self.last_clamped):
            warnings.warn(problem, RangeWarning, stacklevel=3)
        if unkept is not None:
            warnings.warn(f"the next connection fetches again what this one did: {unkept}", StoreWarning, stacklevel=3)
        self._warn_of_refill(stacklevel=4)
        return outputs

    def _warn_of_refill(self, stacklevel: int) -> None:
        error = self._core.refill_error()
        if error is not None:
            warnings.warn(f"no batches are prepared in the background: {error}", PrepareWarning, stacklevel=stacklevel)

    def cancel(self) -> None:
        """Ends what the client does, from any thread, and the session with it.

        The call that runs raises a `RunError` of code `cancelled`, within a fraction of a second or once the computing
        of one message is over. The server is told, and its work ends with the next message. Connect again to go on.
        """
        self._cancel.set()

    def close(self) -> None:
        """Ends the session, and what is prepared in the background."""
        if self._connection is not None:
            self._warn_of_refill(stacklevel=3)
            self._connection.end_refill()
            self._connection = None

    def __enter__(self) -> Client:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        self.close()
