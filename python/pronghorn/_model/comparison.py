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
from pronghorn._model.verification import relative_error, rms
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
        chosen, wanted = _by_file(imported, images)
        error = _error(imported, native, chosen, wanted)
    except Exception:
        return
    if error <= WARN:
        return
    problem = (
        f"on {len(chosen)} inputs Pronghorn's reading of the model differs from onnxruntime's by {error:.2g} of "
        "the outputs' spread"
    )
    advice = "report it, with the model; results would be as wrong"
    if error > REFUSE:
        raise UnsupportedModelError(problem, advice)
    warnings.warn(f"{problem}\n  what to do: {advice}", PrecisionWarning, stacklevel=stacklevel + 1)


def _by_file(imported: ImportedModel, images: Floats) -> tuple[Floats, Floats]:
    """Some of the images, and the file's results on them, `(images, outputs)`."""
    run = session(imported.reference_bytes(), imported.is_quantised)
    started = time.monotonic()
    results = [run(images[:1])]
    count = int(np.clip(SECONDS / max(time.monotonic() - started, 1e-6), 1, MOST_IMAGES))
    # The first is among them.
    chosen = images[np.linspace(0, len(images) - 1, min(count, len(images))).astype(int)]
    results += [run(chosen[at : at + 1]) for at in range(1, len(chosen))]
    return chosen, np.concatenate(results).astype(np.float32).reshape(len(chosen), -1)


def _error(imported: ImportedModel, native: _native.Model, images: Floats, wanted: Floats) -> float:
    """The largest relative error of an output of the imported network; 0 of one that rounding explains."""
    shapes = imported.outputs if len(imported.outputs) > 1 else {"": wanted.shape[1:]}

    def run(inputs: Floats) -> Floats:
        return native.run_float(np.ascontiguousarray(inputs, np.float32), None).reshape(wanted.shape)

    def largest(nearby: Floats) -> float:
        heads = zip(*(split(each, shapes).values() for each in (wanted, found, nearby)), strict=True)
        return max(_difference(*head) for head in heads)

    found = run(images)
    error = largest(found)
    if error <= WARN:
        return error
    up = np.random.default_rng(0).random(images.shape) < 0.5
    return largest(run(np.nextafter(images, np.where(up, -np.inf, np.inf))))


def _difference(wanted: Floats, found: Floats, nearby: Floats) -> float:
    """The relative error where the file's results are finite, or 0 where rounding explains it: `nearby` are results of
    inputs whose last bits are others."""
    known = np.isfinite(wanted)
    wanted, found, nearby = (np.where(known, each, 0) for each in (wanted, found, nearby))
    if not np.isfinite(found).all():
        return math.inf
    off = rms(found - wanted)
    is_rounding = off <= OF_SIZE * rms(wanted) or off <= OF_ROUNDING * rms(nearby - found)
    return 0.0 if is_rounding else relative_error(found, wanted)


def _made_up(native: _native.Model, are_bytes: bool) -> npt.NDArray[np.float32]:
    numbers = np.random.default_rng(0).random((MOST_IMAGES, *native.input_shape), np.float32)
    return numbers * BYTES[1] if are_bytes else numbers
