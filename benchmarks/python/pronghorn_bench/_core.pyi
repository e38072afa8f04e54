"""The benchmarks' extension: `benchmarks/src`. Arrays are C-contiguous."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pronghorn import _native

class NativeError(Exception):
    """An error of the core; its message is ready for users."""

class Model(_native.Model):
    """The bindings of `pronghorn._native`, as a type of this extension."""

class Compiled(_native.Compiled):
    """Likewise."""

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

class MultiKeyBench:
    """Multi-key CKKS and BFV with the largest primes of these sizes and made-up values and keys; protects nothing."""
    def __init__(self, word_bits: int, degree: int, bits: list[int], special_bits: list[int], parties: int) -> None: ...
    @property
    def log_moduli(self) -> tuple[float, float]:
        """Bits of the modulus of ciphertexts, and with the special primes."""
    @property
    def digits(self) -> int:
        """Digits of a key switch."""
    @property
    def security_bits(self) -> int | None:
        """By the table of ePrint 2024/463."""
    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of public_key, evaluation_keys, linear_keys, rotation_key, seeded and ciphertext, of one party."""
    def seconds(self, operation: str, parties: int, dropped: int, iterations: int) -> float:
        """Seconds of one operation under the keys of so many parties, on ciphertexts without the last limbs."""
    def check(self, parties: int) -> tuple[float, bool]:
        """The largest error of a slot of a CKKS product of values up to 1, and whether a BFV product is right."""

class MultiKeyNetwork:
    """A network under the keys of a client and a model owner, in one process; keys protect nothing."""
    def __init__(
        self,
        model: object,
        samples: NDArray[np.float32],
        threads: int,
        aim: tuple[float, int] | None = None,
        chain: tuple[int, list[int], list[int], int, list[int]] | None = None,
    ) -> None:
        """With floods where an error and a number of results are given; else with these primes: degree, primes of the
        result, of a level, levels, special primes."""
    def run(self, image: NDArray[np.float32]) -> dict[str, Any]:
        """Outputs; seconds of encryption, products and decryption; the largest error against doubles."""
    @property
    def seconds(self) -> tuple[float, float, float]:
        """Of both parties' keys, the model's encryption, and its expansion by the cloud."""
    @property
    def security_bits(self) -> int | None:
        """By the table of ePrint 2024/463."""
    @property
    def stated_error(self) -> float:
        """The bound on the error of an element of the result."""
    @property
    def described(self) -> dict[str, Any]:
        """Primes, counts and sizes."""

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

def bench_words(
    network: str,
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
    """A network, an operation a weight: client, server (seconds by step), error, security_bits, images and others."""

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
