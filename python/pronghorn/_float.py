"""The float model: by onnxruntime where it is installed, else by Pronghorn's own evaluator."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn import _native, _runtime
from pronghorn._outputs import Predictions
from pronghorn.onnx import ImportedModel

Floats = npt.NDArray[np.float32]
Progress = Callable[[float, int], None]
Run = Callable[[Floats], npt.NDArray[Any]]

BATCH = 256
BATCH_SECONDS = 0.2
"""What a batch should take at most: nothing interrupts it."""
TYPES = {
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}


def run_float(
    imported: ImportedModel, native: _native.Model, inputs: Floats, progress: Progress | None = None
) -> tuple[Floats, str]:
    """The float model's outputs `(images, *output_shape)`, and the name of what computed them."""
    shape = (len(inputs), *native.output_shape)
    try:
        run = session(imported.reference_bytes(), imported.is_quantised)
        first = run(inputs[:1])
    except Exception:
        # Not installed, or it cannot run this model (an operator set newer than itself, say).
        return native.run_float(inputs, progress), "pronghorn"
    outputs = _batches(run, first, inputs, progress or (lambda done, total: None))
    if imported.takes_class:
        outputs = classes_of(outputs, imported.finish)
    return np.ascontiguousarray(outputs.reshape(shape), np.float32), "onnxruntime"


def classes_of(outputs: npt.NDArray[Any], finish: list[str]) -> npt.NDArray[Any]:
    """The class of each row of a model's outputs."""
    classes = Predictions.of(np.asarray(outputs, np.float32), finish, "classes").classes
    assert classes is not None
    return classes


def session(reference: bytes, is_quantised: bool) -> Run:
    """What computes the model's outputs, a row an image. A quantised model runs as its file says: the kernels that
    replace its nodes otherwise differ by more than its own rounding on some CPUs."""
    made = _runtime.session(reference, as_written=is_quantised)
    source = made.get_inputs()[0]

    def run(inputs: Floats) -> npt.NDArray[Any]:
        typed = inputs.astype(TYPES.get(source.type, np.float32), copy=False)
        return np.asarray(made.run(None, {source.name: typed})[0]).reshape(len(inputs), -1)

    return run


def _batches(run: Run, first: npt.NDArray[Any], inputs: Floats, progress: Progress) -> npt.NDArray[Any]:
    """The outputs of all images, the first of which are known; batches are short enough to
    interrupt in between."""
    outputs, done, batch, most = [first], 1, 1, BATCH
    while done < len(inputs):
        progress(done, len(inputs))
        started = time.monotonic()
        try:
            found = run(inputs[done : done + batch])
        except Exception:
            if batch == 1:
                raise
            # A batch size of 1 that is fixed somewhere within the model.
            batch = most = 1
            continue
        if time.monotonic() - started < BATCH_SECONDS / 2:
            batch = min(2 * batch, most)
        outputs.append(found)
        done += len(found)
    progress(done, len(inputs))
    return np.concatenate(outputs)
