"""The end of a model, which the client computes."""

from __future__ import annotations

import math
from collections.abc import Iterable

from onnx import NodeProto

from pronghorn.onnx.lowering import Lowering, Value
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site


@operator("Softmax", on_result=True)
def _softmax(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    _whole(site, value, _softmax_axes(site, value))
    return lowering.emit(site, {"kind": "softmax"}, [value], value.inner)


@operator("LogSoftmax", on_result=True)
def _log_softmax(lowering: Lowering, site: Site) -> Value:
    """Stands only before ArgMax, which it does not change; `check_log_softmax` sees to that."""
    value = lowering.value(site)
    _whole(site, value, _softmax_axes(site, value))
    return value


@operator("ArgMax", on_result=True)
def _arg_max(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    rank = len(value.shape)
    axis = site.axis(site.integer("axis", 0), rank)
    _whole(site, value, [axis])
    if site.integer("select_last_index", 0):
        site.fail("select_last_index is not supported", "the first of equal values is taken")
    keep = site.integer("keepdims", 1)
    result = lowering.emit(site, {"kind": "arg_max"}, [value], [1] if keep else [])
    return lowering.reshape(site, result, [1] * (rank - 1 if keep else rank - 2))


@operator("Sigmoid", on_result=True)
def _sigmoid(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    return lowering.emit(site, {"kind": "sigmoid"}, [value], value.inner)


def _whole(site: Site, value: Value, axes: Iterable[int]) -> None:
    """Refuses an operation that is not over all of an image's values."""
    if math.prod(value.shape[axis] for axis in axes) != math.prod(value.shape):
        name = site.input(0)
        site.fail(
            f"it works on parts of a value of shape {list(value.shape)}",
            f"only over all of it is supported: end the model before it (--output {name}, output={name!r})",
        )


def _softmax_axes(site: Site, value: Value) -> Iterable[int]:
    rank = len(value.shape)
    axis = site.axis(site.integer("axis", 1 if site.opset < 13 else -1), rank)
    return [axis] if site.opset >= 13 else range(axis, rank)


def check_log_softmax(nodes: Iterable[NodeProto], opset: int, output: str) -> None:
    """Refuses a LogSoftmax that is read by anything but ArgMax."""
    nodes = list(nodes)
    for node in nodes:
        if node.op_type != "LogSoftmax":
            continue
        name = node.output[0]
        readers = {reader.op_type for reader in nodes if name in reader.input}
        if name == output or readers != {"ArgMax"}:
            advice = f"--output {node.input[0]} (output={node.input[0]!r}) gives the logits, which have the same argmax"
            Site(node, opset, []).fail("LogSoftmax is supported only directly before ArgMax", advice)
