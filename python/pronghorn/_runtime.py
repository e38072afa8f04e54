"""Sessions of onnxruntime, where that is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

Array = npt.NDArray[Any]


def evaluator(proto: ModelProto, as_written: bool = False) -> Callable[[Mapping[str, Array]], list[Array]]:
    """What computes a model's outputs of its inputs by name: onnxruntime where that is installed and can, and else the
    onnx package, which is slow. `as_written`: as of `session`."""
    try:
        run = session(proto.SerializeToString(), as_written).run
    except Exception:
        run = np.errstate(all="ignore")(ReferenceEvaluator(proto).run)
    return lambda inputs: [np.asarray(each) for each in run(None, dict(inputs))]


def session(model: bytes, as_written: bool = False) -> Any:
    """A session on the CPU.

    Args:
        model: an ONNX model.
        as_written: whether each node runs as it stands, and none as a part of another.

    Raises:
        ImportError: onnxruntime is not installed.
        Exception: its own, where it cannot run the model.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    # At its own level, ORT_ENABLE_ALL, version 1.32 ends the process on small models in float16. Below this one, which
    # old versions do not have, convolutions take up to three times as long.
    most = getattr(levels, "ORT_ENABLE_LAYOUT", levels.ORT_ENABLE_EXTENDED)
    options.graph_optimization_level = levels.ORT_DISABLE_ALL if as_written else most
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
