"""The operators that can be imported: each is one function, registered by one line above it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pronghorn.onnx.lowering import Lowering, Value
    from pronghorn.onnx.site import Site

Lower = Callable[["Lowering", "Site"], "Value | Sequence[Value]"]
"""Makes the graph's nodes of one ONNX node; the value of its first output, or of each."""


@dataclass(frozen=True)
class Operator:
    """How an ONNX operator is lowered."""

    lower: Lower
    on_result: bool
    """Whether it may follow an operator that the client computes, such as Softmax."""


OPERATORS: dict[str, Operator] = {}
"""By the name of the ONNX operator; filled by `pronghorn.onnx.operators`."""


def operator(*names: str, on_result: bool = False) -> Callable[[Lower], Lower]:
    """Registers a function for the ONNX operators `names`."""

    def register(lower: Lower) -> Lower:
        OPERATORS.update(dict.fromkeys(names, Operator(lower, on_result)))
        return lower

    return register
