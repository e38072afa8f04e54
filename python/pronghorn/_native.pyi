"""The compiled core: `crates/pronghorn-python`. Arrays are C-contiguous, one image a row.

Long calls let Python act on signals, and call `progress` with images done and images in all; an exception in
either cancels them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    def compile(
        self,
        trust: str,
        samples: NDArray[np.float32] | None,
        input_range: tuple[float, float],
        memory_bytes: int | None,
        weight_bits: int | None,
        input_bits: int | None,
        error: float | None,
        without: list[str],
        engine: str | None,
        objective: str,
    ) -> Compiled:
        """Chooses fixed point, parameters and steps.

        `without` are names of `passes` to leave out, `engine` is one of `engines`, `objective` one of `objectives`.
        """

class Compiled:
    """A plan, with the server's half and the oracle."""
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
    def plan_text(self) -> str: ...
    def plan_json(self) -> str: ...
    def plan_bytes(self) -> bytes: ...
    def run_fixed(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """The oracle, decoded."""
    def run_oracle(
        self, inputs: NDArray[np.float32], progress: Progress | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The oracle's integers, before what the client computes at the end, and decoded."""
    def run_secure(
        self, inputs: NDArray[np.float32], threads: int | None = None, progress: Progress | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], dict[str, float]]:
        """Both parties in this process: integers, decoded values, and costs."""

class Server:
    """A server of one model over TCP."""
    def __init__(
        self,
        compiled: Compiled,
        listen: str,
        max_clients: int,
        max_images_per_client: int | None,
        idle_timeout: float,
        threads: int | None,
        prepare: int,
        prepare_bytes: int,
        store: Path | None,
        log: Callable[[str], None] | None,
        *,
        hello_timeout: float = 5.0,
        keep_alive: float | None = None,
        max_connections_per_address: int | None = None,
    ) -> None: ...
    @property
    def address(self) -> str: ...
    def run(self) -> None:
        """Serves until stopped or interrupted."""
    def start(self) -> None:
        """Serves on a thread of its own."""
    def stop(self) -> None:
        """Ends all sessions and waits for them."""

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
    ) -> None: ...
    @property
    def plan_hash(self) -> str: ...
    @property
    def input_shape(self) -> list[int]: ...
    @property
    def output_shape(self) -> list[int]: ...
    def plan_text(self) -> str: ...
    def plan_json(self) -> str: ...
    def prepare(self, images: int, progress: Progress | None = None) -> dict[str, float]:
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
    def predict(
        self, inputs: NDArray[np.float32], progress: Progress | None = None
    ) -> tuple[NDArray[np.float32], dict[str, float]]:
        """The outputs, and costs: seconds, bytes_sent, bytes_received, messages, clamped_inputs and _activations,
        prepared_batches, lost_preparations."""

class CkksBench:
    """CKKS with the largest primes of these sizes and made-up values, for measurements and checks; protects nothing."""
    def __init__(self, word_bits: int, degree: int, bits: list[int], special_bits: list[int]) -> None: ...
    @property
    def primes(self) -> list[int]: ...
    @property
    def special_primes(self) -> list[int]: ...
    @property
    def roots(self) -> list[int]:
        """One a prime: place i of a transform is the polynomial at root^(2 r + 1), r being i with its bits reversed."""
    @property
    def security_bits(self) -> int | None:
        """By the table of ePrint 2024/463; None where it gives less than 128."""
    @property
    def plain_bytes(self) -> tuple[int, int]:
        """Bytes of a plaintext and of a scalar."""
    def seconds(self, operation: str, iterations: int, threads: int = 1) -> float:
        """Seconds of one operation: `iterations` on each of `threads` at once, divided by how many there were."""
    def encode(self, re: NDArray[np.float64], im: NDArray[np.float64], scale: float) -> NDArray[np.uint64]:
        """Residues `[limb][degree]` in the transform's domain, one after the other."""
    def decode(self, words: NDArray[np.uint64], scale: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Real and imaginary parts."""
    def encrypt(self, re: NDArray[np.float64], im: NDArray[np.float64], scale: float) -> NDArray[np.uint64]:
        """A ciphertext, `[poly][limb][degree]`."""
    def decrypt(self, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The plaintext of a ciphertext of any number of polynomials, `[limb][degree]`."""
    def ntt(self, words: NDArray[np.uint64], inverse: bool) -> NDArray[np.uint64]:
        """The transform of a polynomial `[limb][degree]`, or its inverse."""

class NttBench:
    """The transform of one limb, with the largest prime of this size."""
    def __init__(self, word_bits: int, degree: int, bits: int) -> None: ...
    @property
    def prime(self) -> int: ...
    @property
    def security_bits(self) -> int | None:
        """Of ciphertexts with this prime alone, as above."""
    @property
    def levels(self) -> list[str]:
        """The SIMD levels of this CPU that differ for this word and prime, slowest first."""
    def seconds(self, inverse: bool, iterations: int, level: str | None = None) -> float:
        """Seconds of one transform: the mean; at the level in use where none is named."""

def bench_cryptonets(
    word_bits: int,
    degree: int,
    prime_bits: list[int],
    special_bits: int | None,
    scale_log: int,
    weight_scale_log: int | None,
    complex_packing: bool,
    relu: bool,
    one_in: int,
    threads: int,
) -> dict[str, Any]:
    """CryptoNets, an operation a weight: client, server (seconds by step), error, security_bits, images and others."""

def bench_parties(
    compiled: Compiled, inputs: NDArray[np.float32], threads: int
) -> tuple[list[dict[str, float]], list[float]]:
    """Both parties here, by batch: images, client_seconds, server_seconds, bytes_up, bytes_down; and all outputs."""

class ActivationBench:
    """Activations on shares of 20 bits, both parties here, over one connection with fresh OTs."""
    def __init__(self) -> None: ...
    @property
    def setup(self) -> dict[str, float]:
        """client_seconds, server_seconds, bytes_up, bytes_down of the OTs' set-up."""
    def run(self, function: str, outputs: int, threads: int) -> dict[str, dict[str, float]]:
        """`square`, `relu` or `max pool` (2x2): the same of `offline`, `online`, and `at once` without preparation."""
    @staticmethod
    def rates(rounds: int) -> tuple[float, float, float, float]:
        """A second on one core: AND gates garbled, evaluated; OTs at the sender, at the receiver."""

def bench_slot_layer(
    channels: tuple[int, int],
    input: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    method: str,
    bits: int,
    rounds: int,
    threads: int,
) -> dict[str, Any]:
    """A linear layer on slots, both parties here: seconds of each step, bytes, operations, security_bits, described."""

class SlotBench:
    """The encryption of slots: N = 4096, two primes of 50 bits; or N = 2048, a prime of 60 bits, insecure."""
    def __init__(self, insecure: bool, digit_bits: int) -> None: ...
    @property
    def security_bits(self) -> int | None:
        """None for the paper's parameters."""
    @property
    def key_bytes(self) -> int:
        """Of the key of a rotation."""
    @property
    def log_noise(self) -> float:
        """Bits of the noise of a rotation, as measured."""
    def seconds(self, operation: str, iterations: int) -> float:
        """The mean; operations are those of Table VI, and `rotate many`, of seventeen."""

class RotationFreeBench:
    """The linear steps of a plan in the coefficient engine, both parties here, published to the client."""
    def __init__(self, compiled: Compiled, threads: int) -> None: ...
    @property
    def publication(self) -> dict[str, float]:
        """client_seconds, server_seconds, bytes_up, bytes_down of publishing, once a client."""
    def run(self, threads: int, checked: bool) -> list[dict[str, Any]]:
        """One image on random shares; by step: name, client_seconds, server_seconds, bytes_up, bytes_down,
        published (polynomials), coefficients, degree, modulus_bits, client_products, server_products and
        server_small_products."""
    def sample(self, step: int) -> dict[str, Any]:
        """What a client sees of output channel 0: degree, modulus, a, published and dropped_bits; and weights, which
        it is not to find there: pairs of an exponent and an integer."""

def bench_rotation_free_paper(insecure: bool, sizes: list[int], degree: int, rounds: int) -> dict[str, Any]:
    """The same of a layer in the paper's protocol, or with masking coefficients; and error, the largest of outputs
    whose inputs are in +-1 and weights in +-1/2. `sizes`: input and output channels, width, kernel and stride, or
    inputs and outputs."""

def bench_batch(threads: int, quick: bool) -> list[dict[str, object]]:
    """Kernel figures: case, metric, value, unit, parameters, security_bits, ceiling."""

def passes() -> list[tuple[str, str]]:
    """The passes over an encrypted network, each with what it does."""

def objectives() -> list[tuple[str, str]]:
    """What a plan can be chosen for, each with what it is."""

def engines() -> list[tuple[str, str]]:
    """The engines of linear steps on shares, each with what it does."""

def peak_memory_bytes() -> int:
    """Most resident bytes this process ever had; 0 where unknown."""

def simd_level() -> str:
    """The SIMD level in use."""

def trust_levels() -> str:
    """The table of trust levels, a line each."""

def available_trust_levels() -> list[tuple[str, str]]:
    """The levels of this version, each with what it reveals."""
