"""Whether a model keeps the images of a batch apart, found by running it.

Transformers bring the batch behind the sequence, merge it with their heads, and bring it back. For one image such a
model runs as it is. But if it mixed images its results would depend on the batch. So it is run on some images
together, and one by one: by onnxruntime where that is installed, and else by ONNX's own evaluator, which is slow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator

Floats = npt.NDArray[np.float32]

IMAGES = 3

NEAR = 1e-3
"""Differences up to such a part of the results are rounding: products of other sizes add up in another order."""


def keeps_apart(model: ModelProto) -> bool:
    """Whether a model, with the batch of its one input free again, gives each image its own results.

    False where it cannot be run.

    Args:
        model: as cut and with fixed sizes. Its batch is 1.
    """
    proto = ModelProto()
    proto.CopyFrom(model)
    source = proto.graph.input[0]
    first, *sizes = source.type.tensor_type.shape.dim
    first.Clear()
    first.dim_param = "N"
    kind = helper.tensor_dtype_to_np_dtype(source.type.tensor_type.elem_type)
    random = np.random.default_rng(0)
    shape = (IMAGES, *(size.dim_value for size in sizes))
    # Of both signs, and of a size that no bound cuts off.
    images = (random.integers(0, 256, shape) if kind.kind in "iu" else random.standard_normal(shape)).astype(kind)
    try:
        run = _runner(proto, source.name)
        together, alone = run(images), [run(images[at : at + 1]) for at in range(IMAGES)]
    except Exception:
        return False
    return _are_alike(together, alone)


def _runner(proto: ModelProto, name: str) -> Callable[[npt.NDArray[np.generic]], Floats]:
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return lambda images: np.asarray(session.run(None, {name: images})[0])
    except Exception:
        evaluator = ReferenceEvaluator(proto)
        return lambda images: np.asarray(next(iter(evaluator.run(None, {name: images}))))


def _are_alike(together: Floats, alone: list[Floats]) -> bool:
    """Whether results of a batch are those of its images, the batch first."""
    one = alone[0]
    if one.shape[:1] != (1,) or together.shape != (IMAGES, *one.shape[1:]):
        return False
    joined = np.concatenate(alone)
    known = np.isfinite(joined)
    size = np.abs(joined[known]).max(initial=0.0)
    is_near = np.allclose(together[known], joined[known], rtol=0, atol=NEAR * float(size))
    # Results that are alike for all images tell nothing of any.
    tells = any(not np.allclose(each, one, rtol=0, atol=NEAR * float(size)) for each in alone[1:])
    return bool(known.any()) and is_near and tells
