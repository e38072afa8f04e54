"""Data and model under different keys: a cloud that can read neither, a model owner, and clients.

    # on the cloud's machine
    with multikey.Cloud("0.0.0.0:7700", "cloud", tls="keys/server") as cloud: ...

    # at the model owner, who stays reachable
    owner = multikey.ModelOwner(pronghorn.load("model.onnx", samples=images), "owner-keys")
    owner.admit(name_that_the_client_gave_by_another_way)
    owner.attend("cloud.example:7700", tls="keys/clients/owner")

    # at a client
    with multikey.Client("cloud.example:7700", owner_name, "client-keys", tls="keys/clients/alice") as client:
        client.join()
        found = client.classify(images)

docs/multi-key.md says who must be online when, and what parties learn alone and together.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn import _check, _native
from pronghorn._arrays import as_inputs
from pronghorn._inputs import Range
from pronghorn._model import Model, Progress, Shaped, native_errors
from pronghorn._multikey_plan import (
    ERROR,
    MAX_UPLOAD,
    RESULTS,
    MultiKeyPlan,
    MultiKeyReport,
    aim_of,
    in_range,
    spreads_of,
    warn_of_error,
)
from pronghorn._network import LogLine, entries_to, given_limits, paths
from pronghorn._outputs import Predictions, kind_of, reader
from pronghorn._tls import ClientTls, PathOption, ServerTls, token_of
from pronghorn.errors import InputError, PlanError, PrecisionWarning, RunError

__all__ = [
    "ERROR",
    "MAX_UPLOAD",
    "RESULTS",
    "Attending",
    "Client",
    "Cloud",
    "Delegate",
    "ModelOwner",
    "MultiKeyPlan",
    "MultiKeyReport",
    "Terms",
    "admit",
    "hand_over",
]

Floats = npt.NDArray[np.float32]
Log = Callable[[LogLine], None]

CLIENTS = "clients"
"""The file of an owner's directory with the names of its clients, one a line."""
OWNER = "name"
"""The one with the owner's own name, which is no client's."""


@dataclass(frozen=True)
class Terms:
    """What all parties of a model agree on."""

    error: float
    """The largest absolute error of an output, but for probability 2^-63."""
    input_range: tuple[float, float]
    """The least and the largest input, which the model owner's samples set."""
    results: int
    """The results that the model owner's key decrypts."""
    key_bytes: int
    """Most bytes of a party's public keys."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Terms:
        """From what the core tells."""
        return cls(**found)


class Cloud:
    """A cloud for one model and its clients. A context manager: serves within `with`."""

    def __init__(
        self,
        listen: str,
        directory: PathOption,
        *,
        owner: str | None = None,
        limits: Mapping[str, int | None] | None = None,
        keys_in_memory: int = 4,
        max_upload: int = MAX_UPLOAD,
        log: Log | None = None,
        tls: PathOption | ServerTls | None = None,
        insecure_plain_tcp: bool = False,
    ) -> None:
        """Listens.

        Args:
            listen: host and port; port 0 takes a free one.
            directory: where the encrypted model and public keys are kept. What is there serves on.
            owner: the name of the model owner that may publish; where not given, the first that does.
            limits: other limits on what clients use, by name: `pronghorn.limits()` lists them. None: no limit.
            keys_in_memory: clients whose public keys are in memory, about twice their bytes each. Keys of others are
                read from the directory when they ask.
            max_upload: most bytes of a publication, and of a party's public keys.
            log: called with a `LogLine` for each connection and error.
            tls: `DIR/server` of `pronghorn keys DIR`, or a `ServerTls`; plain TCP on loopback where not given.
            insecure_plain_tcp: plain TCP on other addresses too.

        Raises:
            InputError: an argument that makes no sense, or a file that cannot be used.
            RunError: the address cannot be bound, or the directory has something else.
        """
        _check.address("listen", listen)
        with native_errors(RunError):
            self._native = _native.MultiKeyCloud(
                listen,
                Path(directory),
                owner=None if owner is None else party("owner", owner),
                clients=_check.whole("keys_in_memory", keys_in_memory, 1),
                max_upload=_check.whole("max_upload", max_upload, 1),
                limits=given_limits(limits),
                log=entries_to(_check.callback("log", log)),
                tls=paths(tls),
                insecure_plain_tcp=bool(insecure_plain_tcp),
            )

    @property
    def address(self) -> str:
        """Host and port it listens on."""
        return self._native.address

    @property
    def fingerprint(self) -> str | None:
        """The SHA-256 of its certificate; None on plain TCP."""
        return self._native.fingerprint

    def run(self) -> None:
        """Serves until `stop` or an interrupt."""
        with native_errors(RunError):
            self._native.run()

    def start(self) -> None:
        """Serves on a thread of its own."""
        with native_errors(RunError):
            self._native.start()

    def stop(self) -> None:
        """Ends all connections."""
        self._native.stop()

    def __enter__(self) -> Cloud:
        """Starts it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops it."""
        self.stop()


class Attending:
    """Who takes part in decryptions with a model owner's key: the owner, or its delegate."""

    _native: _native.MultiKeyOwner
    _directory: Path

    @property
    def name(self) -> str:
        """The owner's name, which clients must get by a way that the cloud does not control."""
        return self._native.name

    @property
    def terms(self) -> Terms:
        """What all parties agree on."""
        return Terms.of(self._native.terms())

    @property
    def results_left(self) -> int:
        """Results that may still be decrypted."""
        return self._native.results_left

    def _write_name(self) -> None:
        with suppress(OSError):  # It serves `admit` alone.
            (self._directory / OWNER).write_text(self.name + "\n", encoding="ascii")

    def admit(self, client: str) -> None:
        """Decrypts results for a client of this name from now on; see `admit`."""
        admit(self._directory, client)

    def attend(
        self,
        cloud: str,
        *,
        timeout: float = 120.0,
        log: Log | None = None,
        tls: PathOption | ClientTls | None = None,
        token: str | os.PathLike[str] | None = None,
        insecure_plain_tcp: bool = False,
    ) -> None:
        """Takes part in decryptions until an interrupt or `stop`. A connection that ends is made again. An owner
        publishes the model before, where the cloud has not got it.

        Args:
            cloud: host and port.
            timeout: seconds that the cloud may be silent within an exchange.
            log: called with a `LogLine` for each event.
            tls: `DIR/clients/NAME` of `pronghorn keys DIR`, or a `ClientTls`.
            token: a token, or the path of a file that holds one.
            insecure_plain_tcp: plain TCP to any address.

        Raises:
            RunError: the cloud refuses this owner, has no model for a delegate, or `stop`.
        """
        _check.address("cloud", cloud)
        limit, entries = _check.seconds("timeout", timeout), entries_to(_check.callback("log", log))
        with native_errors(RunError):
            self._native.attend(
                cloud,
                limit,
                entries or (lambda *entry: None),
                tls=paths(tls),
                token=token_of(token),
                insecure_plain_tcp=bool(insecure_plain_tcp),
            )

    def stop(self) -> None:
        """Ends `attend`, which another thread runs."""
        self._native.stop()


class ModelOwner(Attending):
    """The owner of a model: its keys, in a directory that one process uses at a time."""

    def __init__(
        self, model: Model, directory: PathOption, *, error: float | None = None, results: int = RESULTS
    ) -> None:
        """The keys of a directory, or new ones where there are none.

        Args:
            model: a polynomial network, as `pronghorn.load` gives it. Its samples set the range of inputs.
            directory: where the keys are, and the ledger of what they decrypted. Secret.
            error: the largest absolute error of outputs. 2^-10 by default, or a 64th of the outputs' spread on the
                samples where that is less. Ignored where there are keys: they have theirs.
            results: results that the key may decrypt; likewise.

        Raises:
            PlanError: the model cannot be computed so, or the directory has keys of another.
        """
        (native, options), spreads = model.parts, spreads_of(model)
        arguments = (aim_of(spreads, error), _check.whole("results", results, 1, 1 << 40))
        self._directory = Path(directory)
        with native_errors(PlanError):
            self._native = _native.MultiKeyOwner(native, options, self._directory, *arguments)
        self._write_name()
        stated = self.terms.error
        if error is not None and stated > error:
            text = (
                f"the keys in {self._directory} are for outputs within {stated:.3g}, not {error:.3g}: their error stays"
            )
            warnings.warn(text, PrecisionWarning, stacklevel=2)
        warn_of_error(spreads, stated, stacklevel=2)


class Delegate(Attending):
    """Who attends in a model owner's place, with the key that `hand_over` moved, and without weights.

    Alone it learns who asks when. Together with the cloud it can decrypt the model.
    """

    def __init__(self, directory: PathOption) -> None:
        """The keys of a directory.

        Args:
            directory: what `hand_over` wrote. Secret. One process uses it at a time.

        Raises:
            RunError: the directory has no key, or no ledger.
        """
        self._directory = Path(directory)
        with native_errors(RunError):
            self._native = _native.MultiKeyOwner.delegate(self._directory)
        self._write_name()


class Client(Shaped):
    """A client of a cloud. A context manager."""

    def __init__(
        self,
        cloud: str,
        owner: str,
        directory: PathOption,
        *,
        timeout: float = 120.0,
        tls: PathOption | ClientTls | None = None,
        token: str | os.PathLike[str] | None = None,
        insecure_plain_tcp: bool = False,
    ) -> None:
        """Connects, and learns what the cloud offers: enough to know the own name.

        Args:
            cloud: host and port.
            owner: the model owner's name, which came by a way that the cloud does not control.
            directory: where the client's secret is kept; made where there is none.
            timeout: seconds without a byte from the cloud until it is given up.
            tls: `DIR/clients/NAME` of `pronghorn keys DIR`, or a `ClientTls`.
            token: a token, or the path of a file that holds one.
            insecure_plain_tcp: plain TCP to any address.

        Raises:
            RunError: no cloud there, or it has no model of this owner.
        """
        _check.address("cloud", cloud)
        limit = _check.seconds("timeout", timeout)
        self._directory = Path(directory)
        with native_errors(RunError):
            self._native = _native.MultiKeyClient(
                cloud,
                party("owner", owner),
                self._directory,
                limit,
                tls=paths(tls),
                token=token_of(token),
                insecure_plain_tcp=bool(insecure_plain_tcp),
            )
        self.last_stats: dict[str, Any] | None = None

    @property
    def _core(self) -> _native.MultiKeyClient:
        return self._native

    @property
    def name(self) -> str:
        """Its name, which the model owner must get by a way that the cloud does not control."""
        return self._native.name

    @property
    def terms(self) -> Terms:
        """What all parties agree on."""
        return Terms.of(self._native.terms())

    @property
    def input_range(self) -> Range:
        """The least and the largest input. Others are refused."""
        return self.terms.input_range

    @property
    def columns(self) -> tuple[str, ...]:
        """None: descriptions have no names of features."""
        return ()

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """None: descriptions have no names of several outputs."""
        return {}

    @property
    def class_names(self) -> tuple[str, ...]:
        """The model's own names of its classes; empty where they are 0, 1 and so on."""
        return tuple(self._native.class_names)

    @property
    def finish(self) -> list[str]:
        """What this side computes from the values in the end, such as `softmax`."""
        return self._native.finish

    def join(self) -> int | None:
        """Introduces itself to the model owner, and sends the public keys unless the cloud has them.

        Returns: bytes of the keys; None where the cloud had them.

        Raises:
            RunError: the owner is away or does not admit this client; the error names it.
        """
        with native_errors(RunError):
            return self._native.join()

    def predict(self, inputs: npt.ArrayLike, *, progress: Progress | None = None) -> Floats:
        """The outputs of images, `(images, *output_shape)`; `last_stats` has seconds and bytes.

        Raises:
            InputError: inputs of another shape, or out of range. Then none is sent.
            RunError: the cloud or the owner refuse.
        """
        values = in_range(as_inputs(inputs, self.input_shape), self.terms.input_range)
        with native_errors(RunError):
            _, outputs, self.last_stats = self._native.predict(values, progress)
        return outputs

    def classify(
        self, inputs: npt.ArrayLike, *, outputs: str | None = None, progress: Progress | None = None
    ) -> Predictions:
        """Classes and probabilities of images.

        Args:
            inputs: `(images, *input_shape)`.
            outputs: what outputs are: `classes`, `labels` or `values`.
            progress: called with images done and images in all.

        Raises: as `predict`.
        """
        found = self.predict(inputs, progress=progress)
        kind = kind_of(self.finish, self.output_shape, outputs)
        return reader(self.finish, kind, self.class_names)(found)

    def close(self) -> None:
        """Leaves the cloud."""
        self._native.close()

    def __enter__(self) -> Client:
        """Nothing more."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the cloud."""
        self.close()


def admit(directory: PathOption, client: str) -> None:
    """Lets a model owner decrypt results for a client. An owner that attends hears of it at once.

    The name must come from the client by a way that the cloud does not control: the cloud could be its own client.

    Args:
        directory: the owner's.
        client: the client's name, 64 hexadecimal digits.

    Raises:
        InputError: no such name, the owner's own, or the directory cannot be written.
    """
    name, path = party("client", client), Path(directory) / CLIENTS
    try:
        own = Path(directory) / OWNER
        if own.exists() and own.read_text(encoding="ascii").strip() == name:
            raise InputError(f"{name} is the model owner's own name: give the client's (pronghorn multikey name)")
        known = path.read_text(encoding="ascii").split() if path.exists() else []
        if name not in known:
            with path.open("a", encoding="ascii") as file:
                file.write(name + "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be written: {error}") from error


def hand_over(directory: PathOption, to: PathOption) -> None:
    """Moves a model owner's key, its ledger and its clients to another directory, for a `Delegate`, or back.

    One directory has the key afterwards, so each result is decrypted once still. Move the new directory to the
    delegate's machine, and keep no copy.

    Args:
        directory: that has the key, and that no process uses.
        to: made where it is missing; it must have no other key.

    Raises:
        RunError: a process uses the keys, or a directory has none or another's.
    """
    with native_errors(RunError):
        _native.MultiKeyOwner.hand_over(Path(directory), Path(to))


def party(option: str, name: Any) -> str:
    """A party's name.

    Raises:
        InputError: it is not 64 hexadecimal digits.
    """
    digits = _check.text(option, name, "0f" * 32).strip().lower()
    if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
        raise InputError(f"{option} is {name!r}: give the 64 hexadecimal digits of a party's name")
    return digits
