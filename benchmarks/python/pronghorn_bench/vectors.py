"""TenSEAL's vectors beside Pronghorn: each of its operations is several of CKKS."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from pronghorn_bench import _core, chains, timing

PACKAGE = "tenseal"

CALLED = (
    "called from Python; its operations make new vectors, and decryption a list of numbers; Pronghorn's products, "
    "relinearisations and rescalings write into room they have"
)
"""What is not alike."""

OPERATIONS = {
    "encode and encrypt": ("encode", "encrypt"),
    "decrypt and decode": ("decrypt", "decode"),
    "add": ("add",),
    "multiply, relinearise, rescale": ("multiply", "relinearise", "rescale"),
    "square, relinearise, rescale": ("square", "relinearise", "rescale"),
    "encode, multiply plain, rescale": ("encode", "multiply_plain", "rescale"),
}
"""What each is made of here."""

DEGREES = (8192, 16384)
"""Those at which a product of two scales and a rescaling fit."""


def load_tenseal() -> ModuleType | None:
    """The module; None where it is not installed."""
    try:
        import tenseal
    except ImportError:
        return None
    return tenseal if hasattr(tenseal, "ckks_vector") else None


class Vectors:
    """A context with primes of the sizes of `chain`, and two encrypted vectors."""

    def __init__(self, tenseal: ModuleType, chain: chains.Chain) -> None:
        """Makes keys."""
        self._tenseal = tenseal
        sizes = [*chain.bits, *chain.special_bits]
        context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, chain.degree, coeff_mod_bit_sizes=sizes, n_threads=1)
        context.global_scale = 2.0**40
        context.generate_relin_keys()
        self._context = context
        self._values = np.sin(0.618 * np.arange(chain.degree // 2)).tolist()
        self._plain = tenseal.plain_tensor(self._values)
        self._x, self._y = self._encrypted(), self._encrypted()
        version = importlib.metadata.version(PACKAGE)
        self.name = f"{PACKAGE} {version}, primes of the same sizes, the same run"

    def _encrypted(self) -> Any:
        return self._tenseal.ckks_vector(self._context, self._plain)

    def run(self, operation: str) -> timing.Run:
        """What `timing` calls."""
        x, y = self._x, self._y
        work: dict[str, Callable[[], object]] = {
            "encode and encrypt": self._encrypted,
            "decrypt and decode": x.decrypt,
            "add": lambda: x + y,
            "multiply, relinearise, rescale": lambda: x * y,
            "square, relinearise, rescale": x.square,
            "encode, multiply plain, rescale": lambda: x * self._plain,
        }
        return partial(timing.timed, work[operation])


def ours(made: _core.CkksBench, operation: str) -> timing.Run:
    """The same by Pronghorn: the seconds of its parts, added up."""
    return lambda iterations: sum(made.seconds(part, iterations) for part in OPERATIONS[operation])
