"""`pronghorn bench peers`: the same work by other libraries, in the same run and in turn.

Operations of CKKS by SEAL and TenSEAL in the same process; whole networks by SPU (`beside_spu`).
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pronghorn import _processes
from pronghorn.errors import InputError
from pronghorn_bench import _core, beside_spu, chains, timing, vectors
from pronghorn_bench.cases import Choice
from pronghorn_bench.records import Report, Sheet
from pronghorn_bench.tutorial import bench_tutorial
from pronghorn_bench.vectors import DEGREES, Vectors, load_tenseal
from pronghorn_bench.vectors import PACKAGE as TENSEAL

PACKAGE = "seal-python"
"""Microsoft SEAL's Python interface on PyPI. Its wheels have no HEXL; where one is installed that was built with it,
records say so."""

CALLED = (
    "called from Python, which takes a part of a microsecond; its products, relinearisations and rescalings make new "
    "ciphertexts, where Pronghorn's write into room they have"
)
"""What is not alike."""

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


def load_peer() -> ModuleType | None:
    """The peer's module; None where it is not installed, or another package has its name."""
    try:
        import seal
    except ImportError:
        return None
    return seal if hasattr(seal, "CKKSEncoder") else None


SUITE = "peers"
SEAL, SPU = "seal", "spu"
NAMES = (SEAL, TENSEAL, SPU)
"""Of all peers."""


@dataclass(frozen=True)
class Installed:
    """The peers that are here."""

    seal: ModuleType | None
    tenseal: ModuleType | None
    spu: beside_spu.Spu | None

    @classmethod
    def find(cls, wanted: Sequence[str], spu: Path | None) -> Installed:
        """Those of `wanted` that are installed; none wanted: all. `spu`: the Python interpreter of SPU's environment.

        Raises:
            InputError: one that is wanted is missing, or all are; it says how to get it.
        """
        asked = wanted or NAMES
        found = cls(
            load_peer() if SEAL in asked else None,
            load_tenseal() if TENSEAL in asked else None,
            beside_spu.find(spu) if SPU in asked else None,
        )
        missing = [name for name in asked if getattr(found, name) is None]
        if missing:
            packages = [PACKAGE if name == SEAL else name for name in missing if name != SPU]
            ways = [f"pip install {' '.join(packages)}"] * bool(packages)
            ways += ["SPU in an environment of its own:", beside_spu.INSTALL] if SPU in missing else []
            how = "\n  ".join([f"not installed: {', '.join(missing)}; to run it beside Pronghorn:", *ways])
            if wanted or len(missing) == len(asked):
                raise InputError(how)
            print(how, file=sys.stderr)
        return found


def bench_peers(report: Report, quick: bool) -> None:
    """All peers that are installed."""
    run_peers(Installed.find((), None), Choice.default(quick), report, quick)


def run_peers(installed: Installed, choice: Choice, report: Report, quick: bool) -> None:
    """Beside SEAL and TenSEAL on one core, with each of `chains.WIDE`: Pronghorn with the same primes, and as many bits
    in 32-bit words; and TenSEAL's tutorial network. Beside SPU whole networks."""
    seal, tenseal, spu = installed.seal, installed.tenseal, installed.spu
    with _processes.pinned(_processes.available_cores()[:1]):
        if seal is not None:
            for degree in sorted(chains.WIDE)[: 1 if quick else None]:
                _beside_seal(_Ours(report, degree, CALLED, quick), seal)
        if tenseal is not None:
            for degree in DEGREES[: 1 if quick else None]:
                _beside_tenseal(_Ours(report, degree, vectors.CALLED, quick), tenseal)
            bench_tutorial(report, tenseal, quick)
    if spu is not None:
        beside_spu.bench_beside_spu(spu, choice, report)


class _Ours:
    """Pronghorn at a degree: with 64-bit words and the peer's primes, and with 32-bit words."""

    def __init__(self, report: Report, degree: int, called: str, quick: bool) -> None:
        self.chains = (chains.WIDE[degree], chains.NARROW[degree])
        self.made = [chain.make() for chain in self.chains]
        self._quick = quick
        self._sheets = [
            Sheet(
                report,
                SUITE,
                f"{chain}, {chains.secure(made)}",
                {**chains.described(chain, made, timing.described(quick)), "peer": called},
                made.security_bits,
            )
            for chain, made in zip(self.chains, self.made, strict=True)
        ]

    def compare(self, metric: str, peer: str, theirs: timing.Run, ours: Sequence[timing.Run]) -> None:
        """Runs all in turn."""
        reference, *found = timing.best_of_each([theirs, *ours], self._quick)
        for chain, sheet, seconds in zip(self.chains, self._sheets, found, strict=True):
            narrow = chain.word_bits == 32
            sheet.add(metric, 1e6 * seconds, "µs", [(1e6 * reference, peer)], headline=int(narrow))


def _beside_seal(ours: _Ours, seal: ModuleType) -> None:
    wide = ours.made[0]
    peer = Peer(seal, ours.chains[0].degree, [*wide.primes, *wide.special_primes])
    for operation in OPERATIONS:
        runs = [partial(made.seconds, operation) for made in ours.made]
        ours.compare(operation.replace("_", " "), peer.name, peer.run(operation), runs)
    # The peer's interface has both transforms together.
    benches = [_core.NttBench(chain.word_bits, chain.degree, chain.bits[0]) for chain in ours.chains]
    pairs = [partial(_pair, bench) for bench in benches]
    ours.compare("transform of a limb, there and back", peer.name, peer.transforms(), pairs)


def _beside_tenseal(ours: _Ours, tenseal: ModuleType) -> None:
    peer = Vectors(tenseal, ours.chains[0])
    for operation in vectors.OPERATIONS:
        runs = [vectors.ours(made, operation) for made in ours.made]
        ours.compare(operation, peer.name, peer.run(operation), runs)


def _pair(made: _core.NttBench, iterations: int) -> float:
    """Seconds of a transform there and back."""
    return made.seconds(False, iterations) + made.seconds(True, iterations)


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
        return partial(timing.timed, self._work(operation))

    def transforms(self) -> timing.Run:
        """A limb to coefficients and back."""
        evaluator, x = self.evaluator, self._ciphertext()

        def work() -> None:
            evaluator.transform_from_ntt_inplace(x)
            evaluator.transform_to_ntt_inplace(x)

        return lambda count: timing.timed(work, count) / (2 * self.limbs)

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
