"""Softmaxes that exporters write in other words.

These are `exp(x) / sum(exp(x))`, also of `x - max(x)`, with sums whose dimensions are restored, and
`exp(LogSoftmax(x))`. `scaled_dot_product_attention` has zeros in place of shares that are no numbers, since a mask left
nothing of their rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import NodeProto, helper

from pronghorn.onnx.endings import maker_of, numbers_of, without_dimensions
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
    power = maker_of(makers, node.input[0], "Exp")
    axes = _one_axis(node.input[1], "ReduceSum", node.input[0], makers, constants)
    if power is None or axes is None:
        return None
    value = power.input[0]
    below = maker_of(makers, value, "Sub")
    # Any number may be taken off a row.
    if below is not None and axes == _one_axis(below.input[1], "ReduceMax", below.input[0], makers, constants):
        value = below.input[0]
    name = node.name or node.output[0]
    return [helper.make_node("Softmax", [value], node.output, name=name, axis=axes[0], one_axis=1)]


def _one_axis(
    name: str, kind: str, value: str, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]
) -> list[int] | None:
    """The one axis of a reduction of `value` that keeps its dimension, or gets it back."""
    bare = without_dimensions(makers, name)
    node = maker_of(makers, _above_nothing(bare, makers, constants), kind)
    axes = None if node is None or node.input[0] != value else numbers_of(node, "axes", constants)
    if node is None or axes is None or len(axes) != 1:
        return None
    return axes if bare != name or numbers_of(node, "keepdims", constants) in (None, [1]) else None


def _above_nothing(name: str, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]) -> str:
    """`y` of JAX's `max(-infinity, y)`; a value itself where it is none."""
    node = maker_of(makers, name, "Max")
    others = [] if node is None else [each for each in node.input if each not in constants]
    if node is None or len(others) != 1:
        return name
    bounds = [constants[each] for each in node.input if each in constants]
    return others[0] if all(np.isneginf(bound).all() for bound in bounds) else name


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
