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

OF_ROUNDING = 16.0
"""So may those of so many times what the last bit of the inputs changes: where large numbers cancel."""


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
        results = _results(imported, native, images)
    except Exception:
        return
    shapes = imported.outputs if len(imported.outputs) > 1 else {}
    heads = zip(*(split(each, shapes).values() for each in results), strict=True) if shapes else [results]
    error = max(_difference(*head) for head in heads)
    if error <= WARN:
        return
    problem = (
        f"on {len(results[0])} inputs Pronghorn's reading of the model differs from onnxruntime's by {error:.2g} of "
        "the outputs' spread"
    )
    advice = "report it, with the model; results would be as wrong"
    if error > REFUSE:
        raise UnsupportedModelError(problem, advice)
    warnings.warn(f"{problem}\n  what to do: {advice}", PrecisionWarning, stacklevel=stacklevel + 1)


def _results(imported: ImportedModel, native: _native.Model, images: Floats) -> tuple[Floats, Floats, Floats]:
    """Results of the file and of the imported network, `(images, outputs)`; and of that for inputs whose last bits are
    others."""
    run = session(imported.reference_bytes(), imported.is_quantised)
    started = time.monotonic()
    first = run(images[:1])
    count = int(np.clip(SECONDS / max(time.monotonic() - started, 1e-6), 1, MOST_IMAGES))
    chosen = images[np.linspace(0, len(images) - 1, min(count, len(images))).astype(int)]
    wanted = np.concatenate([run(chosen[at : at + 1]) for at in range(len(chosen))]).astype(np.float32)
    nearby = np.nextafter(chosen, np.where(np.random.default_rng(0).random(chosen.shape) < 0.5, -np.inf, np.inf))
    found = [native.run_float(np.ascontiguousarray(each, np.float32), None) for each in (chosen, nearby)]
    shape = (len(chosen), first.size)
    return wanted.reshape(shape), found[0].reshape(shape), found[1].reshape(shape)


def _difference(wanted: Floats, found: Floats, nearby: Floats) -> float:
    """The relative error where the file's results are finite, or 0 where rounding explains it."""
    known = np.isfinite(wanted)
    wanted, found, nearby = (np.where(known, each, 0) for each in (wanted, found, nearby))
    if not np.isfinite(found).all():
        return math.inf
    off, size, rounding = (_rms(each) for each in (found - wanted, wanted, nearby - found))
    is_rounding = off <= OF_SIZE * size or off <= OF_ROUNDING * rounding
    return 0.0 if is_rounding else relative_error(found, wanted)


def _rms(values: Floats) -> float:
    return math.sqrt(np.mean(np.square(values, dtype=np.float64))) if values.size else 0.0


def _made_up(native: _native.Model, are_bytes: bool) -> npt.NDArray[np.float32]:
    numbers = np.random.default_rng(0).random((MOST_IMAGES, *native.input_shape), np.float32)
    return numbers * BYTES[1] if are_bytes else numbers
