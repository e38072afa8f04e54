"""Softmaxes that exporters write in other words.

These are `exp(x) / sum(exp(x))`, also of `x - max(x)`, and `exp(LogSoftmax(x))`. `scaled_dot_product_attention` has
zeros in place of shares that are no numbers, since a mask left nothing of their rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto, helper

from pronghorn.onnx.endings import maker_of, numbers_of
from pronghorn.onnx.lowering import Array
from pronghorn.onnx.registry import name_of


def softmax(node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]) -> list[NodeProto] | None:
    """The Softmax that makes what `node` and those before it make, if they are one.

    Args:
        node: the last node of the pattern.
        makers: the node that makes each value.
        constants: the model's weights.
    """
    match name_of(node):
        case "Div":
            return _shares(node, makers, constants)
        case "Exp":
            logarithm = maker_of(makers, node.input[0], "LogSoftmax")
            return None if logarithm is None else [_like(logarithm, node)]
        case "Where":
            return _with_zeros(node, makers, constants)
        case _:
            return None


def _like(before: NodeProto, node: NodeProto) -> NodeProto:
    """A Softmax over the axis of `before`, with the result of `node`."""
    made = helper.make_node("Softmax", before.input[:1], node.output, name=node.name or node.output[0])
    made.attribute.extend(before.attribute)
    return made


def _shares(node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]) -> list[NodeProto] | None:
    power, summed = maker_of(makers, node.input[0], "Exp"), maker_of(makers, node.input[1], "ReduceSum")
    if power is None or summed is None or summed.input[0] != power.output[0]:
        return None
    axes = _one_kept(summed, constants)
    if axes is None:
        return None
    value = power.input[0]
    below = maker_of(makers, value, "Sub")
    largest = None if below is None else maker_of(makers, below.input[1], "ReduceMax")
    if below is not None and largest is not None and largest.input[0] == below.input[0]:
        # Any number may be taken off a row.
        value = below.input[0] if _one_kept(largest, constants) == axes else value
    name = node.name or node.output[0]
    return [helper.make_node("Softmax", [value], node.output, name=name, axis=axes[0], one_axis=1)]


def _one_kept(node: NodeProto, constants: Mapping[str, Array]) -> list[int] | None:
    """The one axis of a reduction that keeps it."""
    axes = numbers_of(node, "axes", constants)
    return (
        axes if axes is not None and len(axes) == 1 and numbers_of(node, "keepdims", constants) in (None, [1]) else None
    )


def _with_zeros(
    node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]
) -> list[NodeProto] | None:
    """`Where(IsNaN(shares), 0, shares)`. Shares are no numbers only in rows that are masked wholly."""
    condition, zero, shares = node.input
    is_none, before = maker_of(makers, condition, "IsNaN"), maker_of(makers, shares, "Softmax")
    if is_none is None or before is None or is_none.input[0] != shares:
        return None
    if zero not in constants or constants[zero].any():
        return None
    made = _like(before, node)
    made.attribute.append(helper.make_attribute("zeros_of_none", 1))
    if constants[zero].ndim:
        # Shares that are broadcast to it would have another shape, which their lowering knows.
        made.attribute.append(helper.make_attribute("shape_of_zeros", constants[zero].shape))
    return [made]
