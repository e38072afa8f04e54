"""The float model: by onnxruntime where it is installed, else by Pronghorn's own evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn import _native
from pronghorn.onnx_import import ImportedModel

Floats = npt.NDArray[np.float32]

BATCH = 256
TYPES = {
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}


def run_float(imported: ImportedModel, native: _native.Model, inputs: Floats) -> tuple[Floats, str]:
    """The float model's outputs `(images, *output_shape)`, and the name of what computed them."""
    shape = (len(inputs), *native.output_shape)
    try:
        outputs = _run_onnxruntime(imported.reference, inputs)
        return np.ascontiguousarray(outputs.reshape(shape), np.float32), "onnxruntime"
    except Exception:
        # Not installed, or it cannot run this model (an operator set newer than itself, say).
        return native.run_float(inputs), "pronghorn"


def _run_onnxruntime(reference: bytes, inputs: Floats) -> npt.NDArray[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(reference, options, providers=["CPUExecutionProvider"])
    source = session.get_inputs()[0]
    typed = inputs.astype(TYPES.get(source.type, np.float32), copy=False)
    try:
        return _batches(session, source.name, typed, BATCH)
    except Exception:
        # A batch size of 1 that is fixed somewhere within the model.
        return _batches(session, source.name, typed, 1)


def _batches(session: Any, name: str, inputs: npt.NDArray[Any], batch: int) -> npt.NDArray[Any]:
    chunks = [inputs[start : start + batch] for start in range(0, len(inputs), batch)]
    outputs = [np.asarray(session.run(None, {name: chunk})[0]).reshape(len(chunk), -1) for chunk in chunks]
    return np.concatenate(outputs)
