"""CKKS beside another implementation of it, Microsoft SEAL: the same embedding, polynomials and ciphertexts.

Both put slots at the primitive `2N`-th roots of unity, half of which are the conjugates of the others. Pronghorn orders
them as the paper of CKKS does and most libraries: slot `k` at `exp(i pi 5^k / N)`. SEAL takes powers of 3. The same
polynomial has the same values, half of them conjugate, in another order: `THEIRS` and `CONJUGATE` say which.

Transforms are those of the textbook here, numpy and Python integers; neither library's are used to judge the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pronghorn_bench import _core, peers

seal = peers.load_peer()
needs_seal = pytest.mark.skipif(
    seal is None, reason=f"Microsoft SEAL for Python is not installed: pip install {peers.PACKAGE}"
)

N = 1024
BITS, SPECIAL_BITS = [30, 29], [30]
SCALE = 2.0**40
OUR_GENERATOR, SEAL_GENERATOR = 5, 3

Words = npt.NDArray[np.uint64]
Complex = npt.NDArray[np.complex128]


def _order() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """For each slot of ours, which of SEAL's it is, and whether as its conjugate."""
    theirs = {pow(SEAL_GENERATOR, k, 2 * N): k for k in range(N // 2)}
    ours = [pow(OUR_GENERATOR, k, 2 * N) for k in range(N // 2)]
    conjugate = np.array([exponent not in theirs for exponent in ours])
    return np.array([theirs.get(exponent, theirs.get(2 * N - exponent)) for exponent in ours]), conjugate


THEIRS, CONJUGATE = _order()


# Transforms of the textbook: value i is the polynomial at root^(2 r + 1), r being i with its bits reversed.


def _exponents() -> npt.NDArray[np.int64]:
    """Of the root, by place of the transform and by coefficient."""
    bits = N.bit_length() - 1
    reverse = np.array([int(f"{place:0{bits}b}"[::-1], 2) for place in range(N)])
    return (2 * reverse[:, None] + 1) * np.arange(N)[None, :] % (2 * N)


EXPONENTS = _exponents()


def powers(q: int, root: int) -> Words:
    return np.array([pow(root, exponent, q) for exponent in range(2 * N)], np.uint64)


def evaluate(coefficients: Words, q: int, root: int) -> Words:
    """The transform, for primes of up to 31 bits."""
    terms = powers(q, root)[EXPONENTS] * coefficients[None, :] % np.uint64(q)
    return terms.sum(axis=1) % np.uint64(q)


def interpolate(values: Words, q: int, root: int) -> Words:
    """Its inverse."""
    terms = powers(q, root)[-EXPONENTS % (2 * N)].T * values[None, :] % np.uint64(q)
    return terms.sum(axis=1) % np.uint64(q) * np.uint64(pow(N, -1, q)) % np.uint64(q)


def least_root(q: int) -> int:
    """The least primitive 2N-th root of unity, which SEAL takes."""
    base = next(base for base in range(2, q) if pow(base, (q - 1) // 2, q) == q - 1)
    root = pow(base, (q - 1) // (2 * N), q)
    return min(pow(root, odd, q) for odd in range(1, 2 * N, 2))


def integers(words: Words, primes: list[int], roots: list[int]) -> list[int]:
    """The coefficients of a polynomial in the transform's domain, `[limb][N]`, around zero."""
    product = math.prod(primes)
    limbs = zip(words.reshape(len(primes), N), primes, roots, strict=True)
    residues = [interpolate(limb, q, root).tolist() for limb, q, root in limbs]
    weights = [product // q * pow(product // q, -1, q) for q in primes]
    sums = (sum(w * r for w, r in zip(weights, each, strict=True)) % product for each in zip(*residues, strict=True))
    return [x if 2 * x < product else x - product for x in sums]


def transformed(coefficients: list[int], primes: list[int], roots: list[int]) -> Words:
    """Undoes `integers`."""
    residues = [np.array([x % q for x in coefficients], np.uint64) for q in primes]
    return np.concatenate([evaluate(x, q, root) for x, q, root in zip(residues, primes, roots, strict=True)])


# SEAL's objects, as words. Its files end in them; what is before them holds for all of the same size.


@dataclass
class Peer:
    """SEAL with the primes of `ours`."""

    seal: Any
    folder: Path
    ours: _core.CkksBench

    def __post_init__(self) -> None:
        parameters = self.seal.EncryptionParameters(self.seal.scheme_type.ckks)
        parameters.set_poly_modulus_degree(N)
        primes = [*self.ours.primes, *self.ours.special_primes]
        parameters.set_coeff_modulus([self.seal.Modulus(prime) for prime in primes])
        # A small ring, which protects nothing.
        self.context = self.seal.SEALContext(parameters, True, self.seal.sec_level_type.none)
        self.keys = self.seal.KeyGenerator(self.context)
        self.encoder = self.seal.CKKSEncoder(self.context)

    @property
    def primes(self) -> list[int]:
        return self.ours.primes

    @property
    def roots(self) -> list[int]:
        return [least_root(q) for q in self.primes]

    def encode(self, values: Complex) -> Any:
        """Of values in the order of our slots."""
        slots = np.empty_like(values)
        slots[THEIRS] = np.where(CONJUGATE, values.conj(), values)
        return self.encoder.encode_complex(slots, SCALE)

    def decode(self, plaintext: Any) -> Complex:
        """Undoes `encode`."""
        values = self.encoder.decode_complex(plaintext)[THEIRS]
        return np.where(CONJUGATE, values.conj(), values)

    def words(self, thing: Any, count: int) -> Words:
        """The words of a plaintext, ciphertext or secret key."""
        return np.frombuffer(self._file(thing)[-8 * count :], np.uint64)

    def plaintext(self, words: Words) -> Any:
        """A plaintext of these words."""
        template = self._file(self.encode(np.zeros(N // 2, np.complex128)))
        path = self.folder / "made"
        path.write_bytes(template[: -8 * len(words)] + words.tobytes())
        made = self.seal.Plaintext()
        made.load(self.context, str(path))
        return made

    def _file(self, thing: Any) -> bytes:
        path = self.folder / "thing"
        try:
            thing.save(str(path), self.seal.compr_mode_type.none)
        except TypeError:
            thing.save(str(path))
        found = path.read_bytes()
        assert found[5] == 0, "compressed"
        return found


@pytest.fixture(params=[32, 64])
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Peer:
    return Peer(seal, tmp_path, _core.CkksBench(request.param, N, BITS, SPECIAL_BITS))


def values() -> Complex:
    """In no slot what another has."""
    slots = np.arange(N // 2)
    return np.cos(0.7 * slots) * (1 + slots / N) + 1j * (slots / 100 - np.sin(slots))


def decoded(ours: _core.CkksBench, words: Words) -> Complex:
    re, im = ours.decode(words, SCALE)
    return re + 1j * im


@pytest.mark.parametrize("word_bits", [32, 64])
def test_transforms_evaluate_polynomials(word_bits: int) -> None:
    ours = _core.CkksBench(word_bits, N, BITS, SPECIAL_BITS)
    random = np.random.default_rng(5)
    coefficients = [int(x) for x in random.integers(-(2**40), 2**40, N)]
    # Residues in order, which are no polynomial's transform yet.
    residues = np.concatenate([np.array([x % q for x in coefficients], np.uint64) for q in ours.primes])
    wanted = transformed(coefficients, ours.primes, ours.roots)
    assert np.array_equal(ours.ntt(residues, False), wanted)
    assert np.array_equal(ours.ntt(wanted, True), residues)
    assert integers(wanted, ours.primes, ours.roots) == coefficients


@pytest.mark.parametrize("word_bits", [32, 64])
def test_slots_are_values_at_powers_of_five(word_bits: int) -> None:
    """The canonical embedding by its definition: slot `k` is the polynomial at `exp(i pi 5^k / N)`, over the scale."""
    ours = _core.CkksBench(word_bits, N, BITS, SPECIAL_BITS)
    slots = values()
    coefficients = integers(ours.encode(slots.real.copy(), slots.imag.copy(), SCALE), ours.primes, ours.roots)
    exponents = np.array([pow(OUR_GENERATOR, k, 2 * N) for k in range(N // 2)])
    angles = np.pi / N * (exponents[:, None] * np.arange(N)[None, :] % (2 * N))
    found = np.exp(1j * angles) @ np.array(coefficients, np.float64) / SCALE
    np.testing.assert_allclose(found, slots, atol=1e-8)


@needs_seal
def test_encodings_are_the_same_polynomial(peer: Peer) -> None:
    slots = values()
    theirs = integers(peer.words(peer.encode(slots), len(BITS) * N), peer.primes, peer.roots)
    words = peer.ours.encode(slots.real.copy(), slots.imag.copy(), SCALE)
    ours = integers(words, peer.primes, peer.ours.roots)
    differences = np.abs(np.array(ours) - np.array(theirs))
    # Both round what they compute in double precision.
    assert differences.max() <= 1
    assert np.count_nonzero(differences) < N // 20


@needs_seal
def test_each_decodes_what_the_other_encodes(peer: Peer) -> None:
    slots = values()
    theirs = integers(peer.words(peer.encode(slots), len(BITS) * N), peer.primes, peer.roots)
    found = decoded(peer.ours, transformed(theirs, peer.primes, peer.ours.roots))
    np.testing.assert_allclose(found, slots, atol=1e-9)

    ours = integers(peer.ours.encode(slots.real.copy(), slots.imag.copy(), SCALE), peer.primes, peer.ours.roots)
    made = peer.plaintext(transformed(ours, peer.primes, peer.roots))
    np.testing.assert_allclose(peer.decode(made), slots, atol=1e-9)
    # Without imaginary parts and in each other's order.
    np.testing.assert_allclose(peer.encoder.decode(made)[THEIRS], slots.real, atol=1e-9)


def test_the_orders_of_slots_differ_as_documented() -> None:
    """Every slot is one of the other's; the first is the same, and a half are conjugates."""
    assert sorted(THEIRS) == list(range(N // 2))
    assert (THEIRS[0], CONJUGATE[0]) == (0, False)
    assert np.count_nonzero(CONJUGATE) == N // 4


@needs_seal
def test_each_decodes_what_the_other_encrypts(peer: Peer) -> None:
    """Within the noise of encryption: about `2^10` over the scale a coefficient."""
    slots, count = values(), len(BITS) * N
    secret = peer.keys.secret_key()
    encryptor = peer.seal.Encryptor(peer.context, peer.keys.create_public_key(), secret)
    ciphertext = encryptor.encrypt(peer.encode(slots))
    # c0 + c1 s, place by place in the transform's domain, modulo each prime.
    c0, c1 = peer.words(ciphertext, 2 * count).reshape(2, len(BITS), N)
    s = peer.words(secret, count + N).reshape(len(BITS) + 1, N)[:-1]
    q = np.array(peer.primes, np.uint64)[:, None]
    theirs = integers(((c0 + c1 * s) % q).ravel(), peer.primes, peer.roots)
    found = decoded(peer.ours, transformed(theirs, peer.primes, peer.ours.roots))
    np.testing.assert_allclose(found, slots, atol=1e-5)
    # What was added up so is what SEAL decrypts.
    plain = peer.seal.Plaintext()
    peer.seal.Decryptor(peer.context, secret).decrypt(ciphertext, plain)
    assert np.array_equal(peer.words(plain, count).reshape(len(BITS), N), (c0 + c1 * s) % q)

    encrypted = peer.ours.encrypt(slots.real.copy(), slots.imag.copy(), SCALE)
    assert len(encrypted) == 2 * count
    ours = integers(peer.ours.decrypt(encrypted), peer.primes, peer.ours.roots)
    made = peer.plaintext(transformed(ours, peer.primes, peer.roots))
    np.testing.assert_allclose(peer.decode(made), slots, atol=1e-5)


def test_another_module_of_that_name_is_not_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "seal", ModuleType("seal"))
    assert peers.load_peer() is None
    monkeypatch.setitem(sys.modules, "seal", None)
    assert peers.load_peer() is None
