"""The compiled core: `crates/pronghorn-python`. Arrays are C-contiguous, one image a row.

Long calls let Python act on signals, and call `progress` with images done and images in all; an exception in
either cancels them.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pronghorn._machine import Speed
from pronghorn._model.options import PlanOptions
from pronghorn._tls import ClientTls, ServerTls

Progress = Callable[[float, int], None]

class NativeError(Exception):
    """An error of the core; its message is ready for users. Those of sessions have what follows."""

    code: str
    retryable: bool

class Model:
    """A float model."""
    def __init__(self, graph_json: str, tensors: dict[str, NDArray[np.float32]]) -> None: ...
    @property
    def input_shape(self) -> list[int]: ...
    @property
    def output_shape(self) -> list[int]: ...
    def run_float(self, inputs: NDArray[np.float32], progress: Progress | None = None) -> NDArray[np.float32]:
        """The plain float evaluator: `(images, *input_shape)` to `(images, *output_shape)`."""
    def features_in_products(self) -> list[int]:
        """The features of a row that products, squares and functions read before any layer."""
    def with_class(self) -> Model:
        """The model whose result is the class: the index of the largest output."""
    def compile(self, options: PlanOptions) -> Compiled:
        """Chooses fixed point, parameters and steps."""

class Compiled:
    """A plan, with the server's half and the oracle."""
    @staticmethod
    def from_bytes(bytes: bytes, without: list[str]) -> Compiled:
        """Reads what `to_bytes` gave; `without`: the passes that were left out."""
    def to_bytes(self) -> bytes:
        """All of it, which holds the weights."""
    @property
    def input_shape(self) -> list[int]: ...
    @property
    def output_shape(self) -> list[int]: ...
    @property
    def trust(self) -> str: ...
    @property
    def plan_hash(self) -> str: ...
    @property
    def tolerance(self) -> int:
        """By how much a secure run's integers may differ from the oracle's: 0, unless ciphertexts are approximate."""
    @property
    def fidelity(self) -> dict[str, Any]:
        """The expected error: error, aim, is_near, about_mean, alike, images, outputs (error and rmse of each),
        outputs_text, text, warning."""
    @property
    def is_dithered(self) -> bool:
        """Whether results differ from run to run."""
    def plan_text(self, details: bool = False, speed: Speed | None = None) -> str:
        """The plan, with the seconds of a machine or of the nominal CPU."""
    def plan_json(self) -> str: ...
    def summary_json(self, speed: Speed | None = None) -> str:
        """The plan's hash, costs, names of the file, and who learns what; seconds as in `plan_text`."""
    def predicted(self, images: int, speed: Speed | None = None) -> tuple[float, int, int]:
        """Predicted seconds on one core, and bytes up and down, of a run of so many images."""
    def predicted_steps(self, images: int, speed: Speed | None = None) -> list[float]:
        """Predicted seconds of each step on one core, of a run of so many images."""
    def plan_bytes(self) -> bytes: ...
    def beyond_samples(self, inputs: NDArray[np.float32], integers: NDArray[np.int32]) -> list[bool] | None:
        """For each image, whether its deviation or its result's integers are beyond those of the samples; None where
        the plan does not say."""
    def run_fixed(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """The oracle, decoded."""
    def run_oracle(
        self, inputs: NDArray[np.float32], progress: Progress | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The oracle's integers, before what the client computes at the end, and decoded."""
    def run_secure(
        self, inputs: NDArray[np.float32], threads: int | None = None, progress: Progress | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], dict[str, Any]]:
        """Both parties in this process: integers, decoded values, and costs. Where rounding is dithered, `oracle` is
        what `run_oracle` would give with the run's own addends, and else None."""

Offered = tuple[str | None, Compiled, list[str] | None]
"""A model with its name (of its plan where None), and the names of the clients that it is for."""

def list_models(
    address: str,
    timeout: float,
    *,
    tls: Path | ClientTls | None = None,
    token: str | Path | None = None,
    insecure_plain_tcp: bool = False,
) -> list[tuple[str, str, str, str]]:
    """The models that a server has for this client: name, version, trust level and plan hash of each."""

def check_server_tls(tls: Path | ServerTls) -> str:
    """Reads a server's files as it does when it starts; the SHA-256 of its certificate."""

class Server:
    """A server of models over TCP."""
    def __init__(
        self,
        models: list[Offered],
        listen: str,
        limits: list[tuple[str, int | None]],
        idle_timeout: float,
        threads: int | None,
        prepare: int,
        prepare_bytes: int,
        store: Path | None,
        log: Callable[[str, str, str, dict[str, Any]], None] | None,
        *,
        hello_timeout: float = 5.0,
        keep_alive: float | None = None,
        max_waiting: int = 256,
        queue_timeout: float = 30.0,
        turn: float = 5.0,
        proxies: list[str] = ...,
        tickets: tuple[str, str] | None = None,
        tls: Path | ServerTls | None = None,
        insecure_plain_tcp: bool = False,
    ) -> None: ...
    @property
    def address(self) -> str: ...
    @property
    def fingerprint(self) -> str | None:
        """The SHA-256 of its certificate; None on plain TCP."""
    def offer(self, models: list[Offered]) -> None:
        """Serves other models from now on; those that it has already go on."""
    def run(self) -> None:
        """Serves until stopped or interrupted."""
    def start(self) -> None:
        """Serves on a thread of its own."""
    def drain(self, timeout: float) -> bool:
        """Takes no new clients, and waits until sessions have ended, each after its batch; whether all have."""
    def metrics(self) -> dict[str, Any]:
        """Its state and counters, as `pronghorn-session/src/metrics.rs` names them."""
    def stop(self) -> None:
        """Ends all sessions and waits for them."""

def limits() -> list[dict[str, Any]]:
    """The table of limits, `pronghorn-session/src/limits/table.rs`: name, key, unit, period, default, code, retryable,
    help."""

def new_admission_key() -> bytes:
    """A new key of an admission service."""

def admission_public(key: bytes) -> str:
    """Its public half, 64 hexadecimal digits, as nodes know it."""

def issue_ticket(key: bytes, node: str, run: str, client: str | None, time: float) -> bytes:
    """A ticket for a client at a node, for so many seconds."""

class Cancel:
    """Ends what a client does, from any thread."""
    def __init__(self) -> None: ...
    def set(self) -> None:
        """Ends it, now and for good."""

class Quantised:
    """Images as a plan's integers, made by `Client.quantise`."""
    @staticmethod
    def joined(parts: Sequence[Quantised]) -> Quantised:
        """The images of all parts, one after the other, which are of one plan."""

class Client:
    """A connection to a server."""
    def __init__(
        self,
        address: str,
        trust: str | None,
        expected_plan_hash: str | None,
        timeout: float,
        threads: int | None,
        store: Path | None,
        *,
        model: str | None = None,
        tls: Path | ClientTls | None = None,
        token: str | Path | None = None,
        insecure_plain_tcp: bool = False,
        cancel: Cancel | None = None,
        ticket: bytes | Callable[[], bytes] | None = None,
    ) -> None: ...
    @property
    def model(self) -> tuple[str, str]:
        """Name and version of the model."""
    @property
    def plan_hash(self) -> str: ...
    @property
    def input_shape(self) -> list[int]: ...
    @property
    def output_shape(self) -> list[int]: ...
    def plan_text(self, details: bool = False) -> str: ...
    def plan_json(self) -> str: ...
    def piece(self) -> int:
        """Images of a piece of a long work."""
    def most_prepared(self) -> int:
        """Most prepared batches that the server keeps for this client."""
    def prepare(self, images: int, progress: Progress | None = None) -> dict[str, Any]:
        """What a prediction of so many images needs no inputs for; its costs as of `predict`."""
    def is_prepared(self, images: int) -> bool:
        """Whether a prediction of so many images finds a preparation for each of its batches."""
    def keep_prepared(self, batches: int, images: int | None) -> None:
        """Keeps so many batches prepared, on a thread and a connection of their own; 0: no more."""
    def end_refill(self) -> None:
        """Ends that; where a prediction goes on in another thread, with that."""
    def wait_prepared(self, timeout: float) -> bool:
        """Waits so many seconds at most until they are; whether they are."""
    def refill_error(self) -> str | None:
        """Why they are not kept any more, until the next prediction; told once."""
    def quantise(self, inputs: NDArray[np.float32]) -> Quantised:
        """Images as the plan's integers."""
    def predict(
        self, inputs: Quantised, progress: Progress | None = None
    ) -> tuple[NDArray[np.float32], list[bool] | None, dict[str, Any], str | None]:
        """The outputs, which images' are beyond those of the server's samples (None where the plan does not say), their
        costs, and why the store did not keep what the server published.

        Costs: seconds, bytes_sent, bytes_received, messages, clamped_inputs and _activations (None where nobody sees
        them), prepared_batches, lost_preparations."""

class MultiKeyPlan:
    """A network under `multi-key`: what it costs, and what it computes."""
    def __init__(self, model: Model, options: PlanOptions, error: float, results: int) -> None: ...
    def summary(self) -> dict[str, Any]:
        """Counts, bytes and bounds, as `MultiKeyPlan::summary` of `src/multikey.rs` names them."""
    def run_oracle(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """The polynomial network in doubles, before `finish`."""
    def run_secure(
        self, inputs: NDArray[np.float32], progress: Progress | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float32], list[float]]:
        """All roles in this process: values before and after `finish`, seconds of keys and model, and of images."""

class MultiKeyCloud:
    """A cloud for one model that it cannot read."""
    def __init__(
        self,
        listen: str,
        directory: Path,
        *,
        owner: str | None = None,
        clients: int = 4,
        max_upload: int = ...,
        limits: list[tuple[str, int | None]] = ...,
        log: Callable[[str, str, str, dict[str, Any]], None] | None = None,
        tls: Path | ServerTls | None = None,
        insecure_plain_tcp: bool = False,
    ) -> None: ...
    @property
    def address(self) -> str: ...
    @property
    def fingerprint(self) -> str | None: ...
    def run(self) -> None:
        """Serves until stopped or interrupted."""
    def start(self) -> None:
        """Serves on a thread of its own."""
    def stop(self) -> None:
        """Ends all connections and waits for them."""

class MultiKeyOwner:
    """A model owner's keys in a directory, with its network; or without it, of a delegate."""
    def __init__(self, model: Model, options: PlanOptions, directory: Path, error: float, results: int) -> None: ...
    @staticmethod
    def delegate(directory: Path) -> MultiKeyOwner:
        """The keys that an owner has handed over, without a network."""
    @staticmethod
    def hand_over(directory: Path, to: Path) -> None:
        """Moves a key with its ledger and clients to another directory."""
    @property
    def name(self) -> str:
        """64 hexadecimal digits."""
    @property
    def results_left(self) -> int: ...
    def terms(self) -> dict[str, Any]:
        """error, input_range, results, key_bytes."""
    def attend(
        self,
        address: str,
        timeout: float,
        log: Callable[[str, str, str, dict[str, Any]], None],
        *,
        tls: Path | ClientTls | None = None,
        token: str | Path | None = None,
        insecure_plain_tcp: bool = False,
    ) -> None:
        """Publishes where the cloud lacks the model, and takes part in decryptions until interrupted."""
    def stop(self) -> None:
        """Ends `attend` on another thread."""

class MultiKeyClient:
    """A client of a cloud."""
    def __init__(
        self,
        address: str,
        owner: str,
        directory: Path,
        timeout: float,
        *,
        tls: Path | ClientTls | None = None,
        token: str | Path | None = None,
        insecure_plain_tcp: bool = False,
    ) -> None: ...
    @property
    def name(self) -> str:
        """64 hexadecimal digits."""
    @property
    def input_shape(self) -> list[int]: ...
    @property
    def output_shape(self) -> list[int]: ...
    @property
    def finish(self) -> list[str]: ...
    @property
    def class_names(self) -> list[str]: ...
    def terms(self) -> dict[str, Any]:
        """As of `MultiKeyOwner`."""
    def join(self) -> int | None:
        """Introduces itself, and sends public keys unless the cloud has them; their bytes."""
    def predict(
        self, inputs: NDArray[np.float32], progress: Progress | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float32], dict[str, Any]]:
        """The values before and after `finish`, and costs: seconds, bytes_sent, bytes_received."""
    def close(self) -> None:
        """Leaves the cloud."""

def passes() -> list[tuple[str, str]]:
    """The passes over an encrypted network, each with what it does."""

def openings() -> list[tuple[str, str]]:
    """What clients can learn in the end, each with what it is."""

def roundings() -> list[tuple[str, str]]:
    """How values between layers can lose bits, each with what it is."""

def assumptions() -> list[tuple[str, str]]: ...
def network(name: str) -> tuple[float, float]: ...
def objectives() -> list[tuple[str, str]]:
    """What a plan can be chosen for, each with what it is."""

def engines() -> list[tuple[str, str]]:
    """The engines of linear steps on shares, each with what it does."""

def peak_memory_bytes() -> int:
    """Most resident bytes this process ever had; 0 where unknown."""

def measure_speed() -> dict[str, float]:
    """Measures one core of this machine, for about a second: the fields of `Speed`."""

def simd_level() -> str:
    """The SIMD level in use."""

def trust_levels() -> str:
    """The table of trust levels, a line each."""

def available_trust_levels() -> list[tuple[str, str]]:
    """The levels of this version, each with what it reveals."""

def make_keys(directory: Path, hosts: list[str], clients: list[str], tokens: list[str], days: int) -> list[Path]:
    """Makes a CA, certificates and tokens; the directories for the server and each client."""
