"""Whether a model's results are probabilities, though it ends in no Sigmoid: those of several heads, or their means.

Clients would else take such results for scores, and each through a Sigmoid of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from onnx import ModelProto, NodeProto

from pronghorn.onnx.lowering import Array
from pronghorn.onnx.masks import MOVING
from pronghorn.onnx.registry import name_of
from pronghorn.onnx.tracing import constants_of

Interval = tuple[float, float]
"""The least and the largest value that a tensor may have."""

SHARES = ("HardSigmoid", "Sigmoid", "Softmax")
"""Operators whose results are from 0 to 1."""

WITHIN = ("GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMean", "ReduceMin")
"""Operators whose results are between those that they read."""

ROUNDING = 1e-6


def are_probabilities(proto: ModelProto, opset: int, name: str) -> bool:
    """Whether a value follows from results of Sigmoids or the like, and is from 0 to 1 for any input."""
    if all(name_of(node) not in SHARES for node in proto.graph.node):
        return False
    constants, known = constants_of(proto, opset), dict[str, Interval]()
    for node in proto.graph.node:
        interval = _interval(node, known, constants)
        if interval is not None:
            known[node.output[0]] = interval
    low, high = known.get(name, (-np.inf, np.inf))
    return low >= -ROUNDING and high <= 1 + ROUNDING


def _interval(node: NodeProto, known: Mapping[str, Interval], constants: Mapping[str, Array]) -> Interval | None:
    """The interval of a node's result; None where it follows from no probabilities, or is not known."""
    kind, read = name_of(node), [name for name in node.input if name]
    if kind in SHARES:
        return 0.0, 1.0
    if not any(name in known for name in read):
        return None
    if kind in (*MOVING, *WITHIN):
        return known.get(read[0])
    if kind not in OF_ALL:
        return None
    intervals = [known.get(name) or _of_constant(constants.get(name)) for name in read]
    found = [interval for interval in intervals if interval is not None]
    return OF_ALL[kind](found) if len(found) == len(read) else None


def _of_constant(constant: Array | None) -> Interval | None:
    is_known = constant is not None and constant.size > 0 and constant.dtype.kind == "f"
    return (float(constant.min()), float(constant.max())) if is_known and constant is not None else None


def _sum(intervals: list[Interval]) -> Interval:
    return sum(low for low, _ in intervals), sum(high for _, high in intervals)


def _mean(intervals: list[Interval]) -> Interval:
    low, high = _sum(intervals)
    return low / len(intervals), high / len(intervals)


def _difference(intervals: list[Interval]) -> Interval:
    (low, high), (least, most) = intervals
    return low - most, high - least


def _product(intervals: list[Interval]) -> Interval:
    ends = [one * other for one in intervals[0] for other in intervals[1]]
    return min(ends), max(ends)


def _quotient(intervals: list[Interval]) -> Interval | None:
    (low, high), (least, most) = intervals
    return _product([(low, high), (1 / most, 1 / least)]) if least > 0 else None


def _union(intervals: list[Interval]) -> Interval:
    return min(low for low, _ in intervals), max(high for _, high in intervals)


OF_ALL: dict[str, Callable[[list[Interval]], Interval | None]] = {
    "Add": _sum,
    "Concat": _union,
    "Div": _quotient,
    "Max": _union,
    "Mean": _mean,
    "Min": _union,
    "Mul": _product,
    "Sub": _difference,
    "Sum": _sum,
}
"""The interval of a result by those of all inputs."""
