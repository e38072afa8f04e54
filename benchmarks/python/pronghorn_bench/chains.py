"""Parameters that several suites measure, and what SEAL with HEXL does with such on another machine."""

from __future__ import annotations

from dataclasses import dataclass

from pronghorn_bench import _core


@dataclass(frozen=True)
class Chain:
    """Sizes in bits of the primes of ciphertexts and of the special primes, at a degree."""

    degree: int
    bits: list[int]
    special_bits: list[int]
    word_bits: int

    def make(self) -> _core.CkksBench:
        """The parameters with the largest primes of these sizes."""
        return _core.CkksBench(self.word_bits, self.degree, self.bits, self.special_bits)

    @property
    def total(self) -> int:
        """Bits of all primes."""
        return sum(self.bits) + sum(self.special_bits)

    def __str__(self) -> str:
        """For people."""
        primes = "primes" if len(self.bits) > 1 else "prime"
        special = f" and {len(self.special_bits)} special" if self.special_bits else ""
        return f"N = {self.degree}, {len(self.bits)} {primes}{special} ({self.total} bits), {self.word_bits}-bit words"


def described(chain: Chain, made: _core.CkksBench, timing: str) -> dict[str, object]:
    """Parameters for a record."""
    return {
        "degree": chain.degree,
        "word_bits": chain.word_bits,
        "primes": made.primes,
        "special_primes": made.special_primes,
        "128 bits by ePrint 2024/463": made.security_bits is not None,
        "timing": timing,
    }


def secure(made: _core.CkksBench) -> str:
    """Whether the security table allows these parameters."""
    return "below 128 bits" if made.security_bits is None else f"{made.security_bits} bits secure"


SEAL_DEFAULTS = {
    4096: Chain(4096, [36, 36], [37], 64),
    8192: Chain(8192, [43, 43, 44, 44], [44], 64),
    16384: Chain(16384, [48, 48, 48, 49, 49, 49, 49, 49], [49], 64),
}
"""What SEAL takes by itself, and so its performance test, nGraph-HE2's Table 9 and the figures below: a few bits more
than ePrint 2024/463 allows at 128 bits (106, 214 and 430)."""

WIDE = {
    4096: Chain(4096, [35, 35], [36], 64),
    8192: Chain(8192, [42, 43, 43, 43], [43], 64),
    16384: Chain(16384, [47, 47, 48, 48, 48, 48, 48, 48], [48], 64),
}
"""As many primes as there, within the table."""

NARROW = {
    4096: Chain(4096, [24, 23, 23], [31], 32),
    8192: Chain(8192, [29, 29, 29, 28, 28, 28], [31], 32),
    16384: Chain(16384, [30] * 5 + [29] * 8, [31], 32),
}
"""The same moduli of ciphertexts, to the bit, in primes for 32-bit words, with a special prime."""

TWO_SPECIAL = {
    8192: Chain(8192, [22] * 3 + [21] * 5, [22, 21], 32),
    16384: Chain(16384, [24] * 14 + [23, 23], [24, 24], 32),
}
"""The same, in as small primes as key switching with two special primes needs: fewer and larger digits."""

WIDE_TWO_SPECIAL = {
    8192: Chain(8192, [42, 43, 43], [43, 43], 64),
    16384: Chain(16384, [47, 47, 48, 48, 48, 48, 48], [48, 48], 64),
}
"""The moduli of `WIDE`, special primes included, with one level less: what fewer and larger digits bring."""

SEAL_HEXL = "SEAL 4.4 + HEXL on one core of another machine, a Zen 5 at 4.1 GHz"

SEAL_HEXL_NTT = {2048: 1.44, 4096: 3.4, 8192: 7.4, 16384: 16.0}
"""Microseconds of a forward transform at 50 bits; 30 bits take as long."""

SEAL_HEXL_INVERSE = 1.15
"""What an inverse one takes more."""

SEAL_HEXL_CKKS = {
    "relinearise": {4096: 157.0, 8192: 763.0, 16384: 5775.0},
    "rotate": {4096: 160.0, 8192: 779.0, 16384: 5398.0},
    "rescale": {4096: 22.0, 8192: 105.0, 16384: 490.0},
    "multiply": {4096: 6.7, 8192: 30.0, 16384: 163.0},
    "encrypt_secret": {4096: 240.0, 8192: 758.0, 16384: 2687.0},
}
"""Microseconds of an operation with 2, 4 and 8 primes."""
