"""The imported network beside the model's file, as onnxruntime computes it where it is installed.

Plans are judged against the imported network. A fault of the import would be in both, and no expected error would show
it. So some samples run through both before the first plan.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pronghorn import _native, _runtime
from pronghorn._float import classes_of, session
from pronghorn._inputs import BYTES
from pronghorn._model.core import Floats
from pronghorn._model.verification import relative_error, rms, spreads
from pronghorn._outputs import split
from pronghorn.errors import PrecisionWarning, UnsupportedModelError
from pronghorn.onnx import ImportedModel
from pronghorn.onnx.apart import mixes, nearby

Values = npt.NDArray[np.float64]
Each = Values | float
"""Of each value, or of all together."""

MOST_WEIGHTS = 256 << 20
"""Bytes of weights up to which models are compared: onnxruntime copies them."""

LEAST_IMAGES, MOST_IMAGES = 2, 16
"""Images that run. Of one alone no spread is known."""

MOST_WORK = 1 << 33
"""Multiply-adds of all of them, about: a fraction of a second. A time would make warnings depend on the machine."""

WARN = 0.05
"""Differences of a larger part of an output's spread are told: of other weights or functions they are larger."""

REFUSE = 0.5
"""A network that differs by more is another one."""

MOST_ROUNDED = 0.5
"""Integers of a quantised model that do more are told."""

MOST_CLASSES = 0.2
"""So is one that has another class for more of the inputs than this part."""

LEAST_SPREAD = 0.05
"""The part of its output's spread that a value's own counts for at least: what hardly moves may differ in rounding."""

OF_SIZE = 1e-4
"""Differences below this part of an output itself may be rounding in single precision."""

OF_ROUNDING = 4.0
"""So may those of so many times what the last bit of the inputs changes, up to `REFUSE`: large numbers may cancel. Some
1 is usual."""


@dataclass(frozen=True)
class _Difference:
    error: float
    spread: str
    """Of what the error is a part."""


def compare(imported: ImportedModel, native: _native.Model, samples: Floats | None, stacklevel: int) -> None:
    """Compares the imported network with the file on some samples.

    Quantised models round within, so that only a large difference is told, of samples alone. Nothing is compared where
    onnxruntime is absent or cannot run the model. That images are kept apart is, of all models whose batch may move.
    Of models that end in classes, classes are compared, but those that rounding alone changes.

    Raises:
        UnsupportedModelError: they are different networks, or the file mixes images.
    """
    given = _made_up(imported, native) if samples is None else samples
    images = _chosen(given, imported.multiply_adds)
    # The file takes whole numbers alone.
    images = np.rint(images) if imported.takes_integers else images
    if imported.moves_batch and mixes(imported.plain, images):
        raise UnsupportedModelError(
            f"a batch of {len(images)} inputs has other results than these have one by one: the model mixes images",
            "keep the images of a batch apart, or export with a batch of 1",
        )
    weights = sum(tensor.nbytes for tensor in imported.tensors.values())
    if weights > MOST_WEIGHTS or (imported.is_quantised and samples is None):
        return
    try:
        wanted = _by_file(imported, images)
    except Exception:
        return  # It is not installed, or cannot run this model.
    found = native.run_float(images, None).reshape(len(images), -1)
    if found.shape != wanted.shape:
        raise UnsupportedModelError(
            f"Pronghorn's reading of the model gives {found.shape[1]} values for an input, and onnxruntime's "
            f"{wanted.shape[1]}",
            "report it, with the model",
        )

    def beside() -> Floats:
        return native.run_float(nearby(images), None).reshape(found.shape)

    if imported.takes_class or "arg_max" in imported.finish:
        if imported.is_quantised:
            return
        differs = found != wanted
        if differs.any():
            _tell_classes(differs & (found == beside()), stacklevel + 1)
        return
    if imported.is_quantised:
        _tell_integers(imported, wanted, found, stacklevel + 1)
        return
    _refuse_lost(wanted, found)
    worst = _worst(imported, wanted, found, found)
    worst = worst if worst.error <= WARN else _worst(imported, wanted, found, beside())
    if samples is not None:
        _tell_unknown(imported, wanted, stacklevel + 1)
    if worst.error > WARN:
        _tell(worst, len(images), stacklevel + 1)


def _refuse_lost(wanted: Floats, found: Floats) -> None:
    """Refuses a network that makes no number where the file does, as both branches of a choice are computed.

    Raises:
        UnsupportedModelError: there is one.
    """
    lost = (np.isfinite(wanted) & ~np.isfinite(found)).any(axis=1)
    if lost.any():
        raise UnsupportedModelError(
            f"for {np.count_nonzero(lost)} of {len(wanted)} inputs Pronghorn's reading of the model makes infinite "
            "values or NaN where the file makes numbers, as what an If or a Where does not choose is computed, too",
            "keep that finite, by a Clip before a logarithm, a root or a division; without such a choice, report it",
        )


def _tell_integers(imported: ImportedModel, wanted: Floats, found: Floats, stacklevel: int) -> None:
    """Warns where the integers of a file do more than Pronghorn's reading, which leaves them out."""
    heads = zip(_outputs(imported, wanted).values(), _outputs(imported, found).values(), strict=True)
    error = max(float(relative_error(of_head, own)) for own, of_head in heads)
    if error > MOST_ROUNDED:
        text = (
            f"on {len(wanted)} samples the results of the file are {error:.2g} of their spread away from Pronghorn's "
            "reading of it, which leaves its rounding to integers out: the rounding is coarse, or integers cut values "
            "off in the place of a Clip\n  what to do: load the float model; Pronghorn quantises it itself"
        )
        warnings.warn(text, PrecisionWarning, stacklevel=stacklevel + 1)


def _tell_classes(differs: npt.NDArray[np.bool_], stacklevel: int) -> None:
    """Warns of other classes than the file's that rounding does not explain, or refuses.

    Raises:
        UnsupportedModelError: so many differ that the import is another network.
    """
    others = int(np.count_nonzero(differs))
    problem = (
        f"on {differs.size} inputs Pronghorn's reading of the model has other classes than onnxruntime's for {others}"
    )
    advice = "report it, with the model; results would be as wrong"
    if others > max(1, MOST_CLASSES * differs.size):
        raise UnsupportedModelError(problem, advice)
    if others:
        warnings.warn(f"{problem}\n  what to do: {advice}", PrecisionWarning, stacklevel=stacklevel + 1)


def _tell_unknown(imported: ImportedModel, wanted: Floats, stacklevel: int) -> None:
    """Warns of an output that tells nothing of the import."""
    unknown = [name for name, each in _outputs(imported, wanted).items() if not np.isfinite(each).any()]
    if unknown:
        of_output = f" in output {unknown[0]!r}" if unknown[0] else ""
        text = (
            f"on {len(wanted)} samples the model's file gives no finite number{of_output}, so that the import was not "
            "compared with it\n  what to do: give samples that the model has results for"
        )
        warnings.warn(text, PrecisionWarning, stacklevel=stacklevel + 1)


def _tell(worst: _Difference, count: int, stacklevel: int) -> None:
    """Warns of a difference, or refuses.

    Raises:
        UnsupportedModelError: the difference is that of another network.
    """
    problem = (
        f"on {count} inputs Pronghorn's reading of the model differs from onnxruntime's by {worst.error:.2g} of "
        f"{worst.spread}"
    )
    advice = "report it, with the model; results would be as wrong"
    if worst.error > REFUSE:
        raise UnsupportedModelError(problem, advice)
    warnings.warn(f"{problem}\n  what to do: {advice}", PrecisionWarning, stacklevel=stacklevel + 1)


def _chosen(images: Floats, multiply_adds: int) -> Floats:
    """Some of the images, the first among them."""
    count = int(np.clip(MOST_WORK // max(1, multiply_adds), LEAST_IMAGES, MOST_IMAGES))
    places = np.linspace(0, len(images) - 1, min(count, len(images))).astype(int)
    return np.ascontiguousarray(images[places], np.float32)


def _by_file(imported: ImportedModel, images: Floats) -> Floats:
    """The file's results on images, `(images, outputs)`; the classes, where these are asked for."""
    feeds = None if imported.encoded is None else imported.encoded.feeds(images)
    if imported.encoded is not None and feeds is not None:
        # The file itself takes categories.
        of_file = _runtime.session(imported.encoded.original.SerializeToString())
        results = np.concatenate([np.reshape(of_file.run(None, feed)[0], (1, -1)) for feed in feeds])
    else:
        run = session(imported.reference_bytes(), imported.is_quantised)
        results = np.concatenate([run(images[at : at + 1]) for at in range(len(images))])
    results = classes_of(results, imported.finish) if imported.takes_class else results
    return np.asarray(results, np.float32).reshape(len(images), -1)


def _worst(imported: ImportedModel, wanted: Floats, found: Floats, beside: Floats) -> _Difference:
    """The largest difference of the imported network that rounding does not explain.

    Args:
        wanted: the file's results, `(images, outputs)`.
        found: those of the imported network.
        beside: those for inputs whose last bits are others.
    """
    parts = [_outputs(imported, each) for each in (wanted, found, beside)]
    heads = {name: [part[name] for part in parts] for name in parts[0]}
    return max((each for name in heads for each in _differences(name, *heads[name])), key=lambda each: each.error)


def _outputs(imported: ImportedModel, row: Floats) -> dict[str, Floats]:
    """The values of each output, `(images, values)`; one alone has no name."""
    shapes = imported.outputs if len(imported.outputs) > 1 else {"": row.shape[1:]}
    return {name: each.reshape(len(row), -1) for name, each in split(row, shapes).items()}


def _differences(name: str, wanted: Floats, found: Floats, beside: Floats) -> Iterator[_Difference]:
    """The differences of an output, and of the value in it that differs most, where the file's results are finite.

    Args:
        name: the output's, where there are several.
        wanted: the file's results, `(images, values)`.
        found: those of the imported network.
        beside: those for inputs whose last bits are others.
    """
    known = np.isfinite(wanted)
    wanted, found, beside = (np.where(known, each, 0) for each in (wanted, found, beside))
    of_output = f" of output {name!r}" if name else ""
    if not np.isfinite(found).all():
        yield _Difference(math.inf, f"the spread{of_output}, where some results are infinite or no numbers")
        return
    whole = _unexplained(relative_error(found, wanted), rms(found - wanted), rms(wanted), rms(beside - found))
    yield _Difference(float(whole), f"the spread{of_output}" if name else "the outputs' spread")
    # An output of many values may hide one that is wrong.
    yield _of_values(wanted, found, beside, of_output)


def _of_values(wanted: Floats, found: Floats, beside: Floats, of_output: str) -> _Difference:
    """The largest difference of a value."""
    off, size, moved = (_rms_of_each(each) for each in (found - wanted, wanted, beside - found))
    own = spreads(wanted)
    spread = np.maximum(own, LEAST_SPREAD * rms(own))
    moved = np.maximum(moved, rms(moved))
    errors = np.divide(off, spread, out=np.zeros_like(off), where=spread > 0)
    errors = _unexplained(errors, off, size, moved)
    place = int(np.argmax(errors))
    return _Difference(float(errors[place]), f"the spread of value {place}{of_output or ' of the output'}")


def _unexplained(error: Each, off: Each, size: Each, moved: Each) -> Values:
    """Errors, or 0 where rounding explains them: `off` by which results of such a size differ, and `moved` by which
    they do for other last bits of the inputs."""
    is_rounding = (off <= OF_SIZE * size) | ((error <= REFUSE) & (off <= OF_ROUNDING * moved))
    return np.where(is_rounding, 0.0, error)


def _rms_of_each(values: Floats) -> Values:
    """The root mean square of each value over the images."""
    return np.asarray(np.sqrt(np.square(values, dtype=np.float64).mean(axis=0)))


def _made_up(imported: ImportedModel, native: _native.Model) -> npt.NDArray[np.float32]:
    if imported.encoded is not None:
        return imported.encoded.categories.random(MOST_IMAGES, tuple(native.input_shape))
    numbers = np.random.default_rng(0).random((MOST_IMAGES, *native.input_shape), np.float32)
    return numbers * BYTES[1] if imported.takes_integers or imported.scales_bytes else numbers
