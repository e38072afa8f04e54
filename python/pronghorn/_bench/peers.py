"""`pronghorn bench peers`: the same operations by another library of CKKS, in the same process and in turn."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

from pronghorn import _native, _processes
from pronghorn._bench import chains, timing
from pronghorn._bench.records import Report, Sheet
from pronghorn.errors import InputError

PACKAGE = "seal-python"
"""Microsoft SEAL's Python interface on PyPI. Its wheels have no HEXL; where one is installed that was built with it,
records say so."""

OPERATIONS = (
    "encode",
    "encode_scalar",
    "encrypt",
    "encrypt_secret",
    "decrypt",
    "decode",
    "add",
    "multiply_plain",
    "multiply",
    "square",
    "relinearise",
    "rescale",
    "rotate",
)
PAIR = ("ntt_forward", "ntt_inverse")
"""The peer's interface has both together: a limb there and back."""


def load_peer() -> ModuleType | None:
    """The peer's module; None where it is not installed, or another package has its name."""
    try:
        import seal
    except ImportError:
        return None
    return seal if hasattr(seal, "CKKSEncoder") else None


def bench_peers(report: Report, quick: bool) -> None:
    """One core: SEAL with each of `chains.WIDE`; Pronghorn with the same primes, and as many bits in 32-bit words."""
    seal = load_peer()
    if seal is None:
        raise InputError(f"this suite runs a peer beside Pronghorn, which is not installed: pip install {PACKAGE}")
    with _processes.pinned(_processes.available_cores()[:1]):
        for degree in sorted(chains.WIDE)[: 1 if quick else None]:
            _compare(report, seal, degree, quick)


def _compare(report: Report, seal: ModuleType, degree: int, quick: bool) -> None:
    ours = [(chain, chain.make()) for chain in (chains.WIDE[degree], chains.NARROW[degree])]
    wide = ours[0][1]
    peer = Peer(seal, degree, [*wide.primes, *wide.special_primes])
    sheets = [
        Sheet(
            report,
            "peers",
            f"{chain}, {chains.secure(made)}",
            chains.described(chain, made, timing.described(quick)),
            made.security_bits,
        )
        for chain, made in ours
    ]
    for operation in OPERATIONS:
        runs = [partial(made.seconds, operation) for _, made in ours]
        theirs, *found = timing.best_of_each([peer.run(operation), *runs], quick)
        for sheet, seconds in zip(sheets, found, strict=True):
            sheet.add(operation.replace("_", " "), 1e6 * seconds, "µs", [(1e6 * theirs, peer.name)])
    pairs = [partial(_pair, made) for _, made in ours]
    theirs, *found = timing.best_of_each([peer.transforms(), *pairs], quick)
    for sheet, seconds in zip(sheets, found, strict=True):
        sheet.add("transform of a limb, there and back", 1e6 * seconds, "µs", [(1e6 * theirs, peer.name)])


def _pair(made: _native.CkksBench, iterations: int) -> float:
    return sum(made.seconds(operation, iterations) for operation in PAIR)


class Peer:
    """SEAL with these primes, the last of which is special; keys, and one of everything that the operations take."""

    def __init__(self, seal: ModuleType, degree: int, primes: list[int]) -> None:
        """Makes keys."""
        parameters = seal.EncryptionParameters(seal.scheme_type.ckks)
        parameters.set_poly_modulus_degree(degree)
        parameters.set_coeff_modulus([seal.Modulus(prime) for prime in primes])
        # Its table is older than Pronghorn's and stricter nowhere: what Pronghorn takes it takes.
        self.context = seal.SEALContext(parameters, True, seal.sec_level_type.none)
        keys = seal.KeyGenerator(self.context)
        self.secret = keys.secret_key()
        self.relinearisation = keys.create_relin_keys()
        self.rotation = keys.create_galois_keys()
        self.encoder = seal.CKKSEncoder(self.context)
        self.evaluator = seal.Evaluator(self.context)
        self.encryptor = seal.Encryptor(self.context, keys.create_public_key(), self.secret)
        self.decryptor = seal.Decryptor(self.context, self.secret)
        self.limbs = len(primes) - 1
        self.scale = 2.0 ** min(40, primes[0].bit_length() * self.limbs // 2 - 4)
        self.values = np.sin(0.618 * np.arange(degree // 2))
        self.name = f"{_name(seal)}, the same run"
        self._seal = seal

    def run(self, operation: str) -> timing.Run:
        """What `timing` calls."""
        return partial(_timed, self._work(operation))

    def transforms(self) -> timing.Run:
        """A limb to coefficients and back."""
        evaluator, x = self.evaluator, self._ciphertext()

        def work() -> None:
            evaluator.transform_from_ntt_inplace(x)
            evaluator.transform_to_ntt_inplace(x)

        return lambda count: _timed(work, count) / (2 * self.limbs)

    def _ciphertext(self) -> Any:
        return self.encryptor.encrypt(self.encoder.encode(self.values, self.scale))

    def _work(self, operation: str) -> Callable[[], object]:
        seal, evaluator, encoder, scale = self._seal, self.evaluator, self.encoder, self.scale
        x, y = self._ciphertext(), self._ciphertext()
        plain, out, out_plain = encoder.encode(self.values, scale), seal.Ciphertext(), seal.Plaintext()
        product = evaluator.multiply(x, y)
        work: dict[str, Callable[[], object]] = {
            "encode": partial(encoder.encode, self.values, scale, out_plain),
            "encode_scalar": partial(encoder.encode, 0.618, scale, out_plain),
            "encrypt": partial(self.encryptor.encrypt, plain, out),
            "encrypt_secret": partial(self.encryptor.encrypt_symmetric, plain, out),
            "decrypt": partial(self.decryptor.decrypt, x, out_plain),
            "decode": partial(encoder.decode, plain),
            "add": partial(evaluator.add_inplace, x, y),
            # New ciphertexts each time, with a copy: in place the scale and the polynomials grow.
            "multiply_plain": partial(evaluator.multiply_plain, x, plain),
            "multiply": partial(evaluator.multiply, x, y),
            "square": partial(evaluator.square, x),
            "relinearise": partial(evaluator.relinearize, product, self.relinearisation),
            "rescale": partial(evaluator.rescale_to_next, x),
            "rotate": partial(evaluator.rotate_vector, x, 1, self.rotation),
        }
        return work[operation]


def _name(seal: ModuleType) -> str:
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        version = str(getattr(seal, "__version__", "of unknown version"))
    binary = Path(str(seal.__file__)).read_bytes()
    return f"{PACKAGE} {version} {'with' if b'hexl' in binary.lower() else 'without'} HEXL"


def _timed(work: Callable[[], object], iterations: int) -> float:
    started = perf_counter()
    for _ in range(iterations):
        work()
    return (perf_counter() - started) / iterations
