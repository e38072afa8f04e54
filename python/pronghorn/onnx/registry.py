"""The operators that can be imported: each is one function, registered by one line above it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx import NodeProto, TensorProto

if TYPE_CHECKING:
    from pronghorn.onnx.lowering import Lowering, Value
    from pronghorn.onnx.site import Site

Lower = Callable[["Lowering", "Site"], "Value | Sequence[Value | None]"]
"""Makes the graph's nodes of one ONNX node; the value of its first output, or of each, None where that is not
supported."""


@dataclass(frozen=True)
class Operator:
    """How an ONNX operator is lowered."""

    lower: Lower
    on_result: bool
    """Whether it may follow an operator that the client computes, such as Softmax."""
    unbatched: bool
    """Whether it takes values whose batch, fixed at 1, a reshape has dropped."""
    pointwise: bool
    """Whether it works element by element: the place of the batch then does not matter."""


OPERATORS: dict[str, Operator] = {}
"""By `name_of` the ONNX operator; filled by `pronghorn.onnx.operators`."""

RECURRENT = ("LSTM", "GRU", "RNN")
"""Operators whose sequences may be before the batch."""


OF_SHAPES = ("Shape", "Size")
"""Operators whose results follow from shapes, which are known."""


FLOAT_TYPES = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)

WHOLE_TYPES = (
    *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
    *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
)

COUNTED_TYPES = (TensorProto.INT32, TensorProto.INT64)
"""Those that counts do not overflow, and that have signs."""

OF_TRUTHS = ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or", "Xor")
"""Operators whose results are truths."""


AXES_GIVEN = 13
"""The opset since which the axes of Squeeze and Unsqueeze are an input."""

NEVER = ("IsInf", "IsNaN")
"""Operators whose results are false for all values of fixed point."""


def name_of(node: NodeProto) -> str:
    """The operator of a node, with its domain unless that is the standard one: `ai.onnx.ml.Scaler`."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def operator(
    *names: str, on_result: bool = False, unbatched: bool = False, pointwise: bool = False
) -> Callable[[Lower], Lower]:
    """Registers a function for the ONNX operators `names`."""

    def register(lower: Lower) -> Lower:
        OPERATORS.update(dict.fromkeys(names, Operator(lower, on_result, unbatched, pointwise)))
        return lower

    return register
