"""The imported network beside the model's file, as onnxruntime computes it where it is installed.

Plans are judged against the imported network. A fault of the import would be in both, and no expected error would show
it. So some samples run through both before the first plan.
"""

from __future__ import annotations

import math
import time
import warnings

import numpy as np
import numpy.typing as npt

from pronghorn import _native
from pronghorn._float import session
from pronghorn._inputs import BYTES
from pronghorn._model.core import Floats
from pronghorn._model.verification import relative_error
from pronghorn._outputs import split
from pronghorn.errors import PrecisionWarning, UnsupportedModelError
from pronghorn.onnx import ImportedModel

MOST_WEIGHTS = 256 << 20
"""Bytes of weights up to which models are compared: onnxruntime copies them."""

MOST_IMAGES, SECONDS = 16, 0.2
"""Images that run, at most and by the first one's time."""

WARN = 0.05
"""Differences of a larger part of an output's spread are told: of other weights or functions they are larger."""

REFUSE = 0.5
"""A network that differs by more is another one."""

OF_SIZE = 1e-4
"""Differences below this part of an output itself may be rounding in single precision."""


def compare(imported: ImportedModel, native: _native.Model, samples: Floats | None, stacklevel: int) -> None:
    """Compares the imported network with the file on some samples.

    Quantised models round within; the classes that a model ends in may change by rounding alone. So neither is
    compared, and nothing is where onnxruntime is absent or cannot run the model.

    Raises:
        UnsupportedModelError: they are different networks.
    """
    weights = sum(tensor.nbytes for tensor in imported.tensors.values())
    if imported.is_quantised or imported.takes_class or "arg_max" in imported.finish or weights > MOST_WEIGHTS:
        return
    images = _made_up(native, imported.takes_integers) if samples is None else samples
    # The file takes whole numbers alone.
    images = np.rint(images) if imported.takes_integers else images
    try:
        wanted, found = _both(imported, native, images)
    except Exception:
        return
    shapes = imported.outputs if len(imported.outputs) > 1 else {}
    heads = zip(split(wanted, shapes).values(), split(found, shapes).values(), strict=True) if shapes else ()
    error = max(_difference(*head) for head in heads or [(wanted, found)])
    if error <= WARN:
        return
    problem = (
        f"on {len(wanted)} inputs Pronghorn's reading of the model differs from onnxruntime's by {error:.2g} of the "
        "outputs' spread"
    )
    advice = "report it, with the model; results would be as wrong"
    if error > REFUSE:
        raise UnsupportedModelError(problem, advice)
    warnings.warn(f"{problem}\n  what to do: {advice}", PrecisionWarning, stacklevel=stacklevel + 1)


def _both(imported: ImportedModel, native: _native.Model, images: Floats) -> tuple[Floats, Floats]:
    """Results of the file and of the imported network, `(images, outputs)`."""
    run = session(imported.reference_bytes(), imported.is_quantised)
    started = time.monotonic()
    first = run(images[:1])
    count = int(np.clip(SECONDS / max(time.monotonic() - started, 1e-6), 1, MOST_IMAGES))
    chosen = images[np.linspace(0, len(images) - 1, min(count, len(images))).astype(int)]
    wanted = np.concatenate([run(chosen[at : at + 1]) for at in range(len(chosen))]).astype(np.float32)
    found = native.run_float(np.ascontiguousarray(chosen), None)
    return wanted.reshape(len(chosen), first.size), found.reshape(len(chosen), first.size)


def _difference(wanted: Floats, found: Floats) -> float:
    """The relative error where the file's results are finite, or 0 where rounding explains it."""
    known = np.isfinite(wanted)
    size = math.sqrt(np.mean(np.square(wanted[known], dtype=np.float64))) if known.any() else 0.0
    wanted, found = (np.where(known, each, 0) for each in (wanted, found))
    if not np.isfinite(found).all():
        return math.inf
    off = math.sqrt(np.mean(np.square(found - wanted, dtype=np.float64)))
    return 0.0 if off <= OF_SIZE * size else relative_error(found, wanted)


def _made_up(native: _native.Model, are_bytes: bool) -> npt.NDArray[np.float32]:
    numbers = np.random.default_rng(0).random((MOST_IMAGES, *native.input_shape), np.float32)
    return numbers * BYTES[1] if are_bytes else numbers
