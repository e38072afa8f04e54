"""The ONNX operators that can be imported, a module for each family.

A new operator is one function in its family's module, with `@operator("Name")` above it.
"""

from __future__ import annotations

from onnx import NodeProto

from pronghorn.onnx.advice import CUT, HINTS
from pronghorn.onnx.folding import fold, is_constant
from pronghorn.onnx.lowering import Lowering, Value
from pronghorn.onnx.operators import (  # noqa: F401  # They register their operators.
    arithmetic,
    convolution,
    elementwise,
    finish,
    matrices,
    pooling,
    resizing,
    selections,
    shapes,
)
from pronghorn.onnx.registry import OPERATORS
from pronghorn.onnx.site import Site


def lower(lowering: Lowering, node: NodeProto, used: set[str]) -> None:
    """Lowers one node.

    Args:
        lowering: the graph so far, with the values of all nodes before it.
        node: the ONNX node.
        used: names that some node or the model's output reads.

    Raises:
        UnsupportedModelError: the node cannot be imported; the error names it.
    """
    site = Site(node, lowering.opset, [lowering.shape_of(name) for name in node.input])
    _check(lowering, site)
    if is_constant(lowering, node):
        fold(lowering, site)
        return
    operator = OPERATORS.get(node.op_type)
    if operator is None:
        hint = HINTS.get(node.op_type, f"replace it by one of {', '.join(sorted(OPERATORS))}")
        site.fail("this operator is not supported", f"{hint}, {CUT}")
    made = operator.lower(lowering, site)
    values = [made] if isinstance(made, Value) else made
    extra = [name for name in node.output[len(values) :] if name and name in used]
    if extra:
        site.fail(f"its output {extra[0]!r} is not supported, only its first", "remove what reads it")
    outputs = zip(node.output, values, strict=False)
    lowering.values.update((name, value) for name, value in outputs if name and name not in lowering.constants)


def _check(lowering: Lowering, site: Site) -> None:
    """Refuses inputs that nobody makes, and operators of other domains."""
    for name in site.node.input:
        if name and name not in lowering.values and name not in lowering.constants:
            site.fail(f"its input {name!r} is made by no node before it", "repair or export the model again")
    if site.node.domain not in ("", "ai.onnx"):
        site.fail(f"operators of the domain {site.node.domain!r} are not supported", "export with standard operators")
