"""Whether a model keeps the images of a batch apart, found by running it.

Transformers bring the batch behind the sequence, merge it with their heads, and bring it back. For one image such a
model runs as it is. But if it mixed images its results would depend on the batch. So it is run on some images
together, and one by one: by onnxruntime where that is installed, and else by ONNX's own evaluator, which is slow. The
values before the client's operators are compared, as an ArgMax hides most differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from pronghorn.onnx.cutting import ENDS, MOVING

Floats = npt.NDArray[np.float32]
Images = npt.NDArray[np.generic]
Run = Callable[[Images], Floats]

IMAGES = 8

SCALES = (0.3, 1.0, 4.0)
"""Of random inputs."""

NEAR, ROUNDING = 1e-3, 3e-6
"""Differences up to such parts of an element's spread over the images, and of its size, are rounding: products of other
sizes add up in another order."""


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
    whole = kind.kind in "iu"
    made = [random.integers(0, 256, shape) if whole else scale * random.standard_normal(shape) for scale in SCALES]
    images = [batch.astype(kind) for batch in made]
    try:
        return all(_keeps_apart(proto, images)) and all(_keeps_apart(_before_ends(proto), images, is_end=False))
    except Exception:
        return False


def _before_ends(proto: ModelProto) -> ModelProto:
    """A model that ends before operators which the client computes."""
    cut = ModelProto()
    cut.CopyFrom(proto)
    makers = {name: node for node in proto.graph.node for name in node.output}
    name, found = proto.graph.output[0].name, proto.graph.output[0].name
    while (node := makers.get(name)) is not None and node.op_type in (*ENDS, *MOVING, "Cast", "Sigmoid"):
        name = node.input[0]
        # Moves alone are no ends.
        found = found if node.op_type in MOVING else name
    if found in makers:
        cut.graph.output[0].CopyFrom(helper.make_tensor_value_info(found, TensorProto.FLOAT, None))
    return cut


def _keeps_apart(proto: ModelProto, images: Sequence[Images], is_end: bool = True) -> Iterator[bool]:
    """Whether results of batches are those of their images, element by element.

    Args:
        proto: the model.
        images: batches.
        is_end: whether the results are the model's: the batch is to be first.
    """
    run = _runner(proto, proto.graph.input[0].name)
    for batch in images:
        together, alone = run(batch), [run(batch[at : at + 1]) for at in range(len(batch))]
        sizes = zip(together.shape, alone[0].shape, strict=True)
        axis = next((axis for axis, (all_of, one) in enumerate(sizes) if all_of == len(batch) * one), None)
        if axis is None or (is_end and (axis, *alone[0].shape[:1]) != (0, 1)):
            yield False
            continue
        joined = np.stack(alone).astype(np.float64)
        parts = np.stack(np.split(together, len(batch), axis=axis))
        # A class may be that of all images.
        yield _are_alike(parts, joined) and (is_end or _differ(joined))


def _are_alike(found: Floats, wanted: npt.NDArray[np.float64]) -> bool:
    """Whether results `(images, ...)` are alike but for rounding."""
    known = np.isfinite(wanted).all(axis=0)
    spread, size = wanted.std(axis=0)[known], np.abs(wanted).max(axis=0)[known]
    off = np.abs(found - wanted).max(axis=0)[known]
    return bool((off <= NEAR * spread + ROUNDING * size).all())


def _differ(wanted: npt.NDArray[np.float64]) -> bool:
    """Whether results are not alike for all images, which would tell nothing of any."""
    known = np.isfinite(wanted).all(axis=0)
    return bool((wanted.std(axis=0)[known] > ROUNDING * np.abs(wanted).max(axis=0)[known]).any())


def _runner(proto: ModelProto, name: str) -> Run:
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return lambda images: np.asarray(session.run(None, {name: images})[0])
    except Exception:
        evaluator = ReferenceEvaluator(proto)
        return lambda images: np.asarray(next(iter(evaluator.run(None, {name: images}))))
