"""Whether a model's results are probabilities, though it ends in no Sigmoid: those of several heads, or their means.

Clients would else take such results for scores, and each through a Sigmoid of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from onnx import ModelProto, NodeProto, helper

from pronghorn.onnx.lowering import Array
from pronghorn.onnx.masks import MOVING
from pronghorn.onnx.registry import name_of
from pronghorn.onnx.tracing import constants_of

Interval = tuple[float, float]
"""The least and the largest value that a tensor may have."""

BOUNDED: dict[str, Interval] = {
    "Erf": (-1.0, 1.0),
    "Exp": (0.0, np.inf),
    "HardSigmoid": (0.0, 1.0),
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
}
"""The intervals of operators whatever they read."""

WITHIN = ("GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMean", "ReduceMin")
"""Operators whose results are between those that they read."""

WEIGHED = ("Clip", "Gemm", "MatMul")
"""Operators whose other inputs are constants that are looked at one by one."""

ROUNDING = 1e-6


def are_probabilities(proto: ModelProto, opset: int, name: str) -> bool:
    """Whether a value follows from results of Sigmoids or the like, and is from 0 to 1 for any input."""
    if not follows_from_probabilities(proto):
        return False
    constants, known = constants_of(proto, opset), dict[str, Interval]()
    for node in proto.graph.node:
        interval = _interval(node, known, constants)
        if interval is not None and not np.isnan(interval).any():
            known[node.output[0]] = interval
    low, high = known.get(name, (-np.inf, np.inf))
    return low >= -ROUNDING and high <= 1 + ROUNDING


def follows_from_probabilities(proto: ModelProto) -> bool:
    """Whether a model makes numbers of a bounded interval, of which results may be probabilities."""
    return any(name_of(node) in BOUNDED for node in proto.graph.node)


def _interval(node: NodeProto, known: Mapping[str, Interval], constants: Mapping[str, Array]) -> Interval | None:
    """The interval of a node's result; None where it follows from no bounded numbers, or is not known."""
    kind, read = name_of(node), [name for name in node.input if name]
    if not any(name in known for name in read):
        return BOUNDED.get(kind)
    if kind in (*MOVING, *WITHIN):
        return known.get(read[0])
    if kind in WEIGHED:
        return _weighed(node, known.get(read[0]), [constants.get(name) for name in read[1:]])
    if kind not in OF_ALL:
        return BOUNDED.get(kind)
    # A choice by truths is one of the others.
    read = read[1:] if kind == "Where" else read
    intervals = [known.get(name) or _of_constant(constants.get(name)) for name in read]
    found = [interval for interval in intervals if interval is not None]
    return OF_ALL[kind](found) if len(found) == len(read) else None


def _weighed(node: NodeProto, interval: Interval | None, others: list[Array | None]) -> Interval | None:
    """That of products with a constant matrix on the right, and of a Clip by constants."""
    if interval is None or any(other is None for other in others):
        return None
    low, high = interval
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    if name_of(node) == "Clip":
        ends = [float(other) for other in others if other is not None and other.size == 1]
        least, most = (ends[0], ends[-1]) if len(ends) == 2 else (attributes.get("min"), attributes.get("max"))
        least, most = (-np.inf if least is None else least, np.inf if most is None else most)
        return float(np.clip(low, least, most)), float(np.clip(high, least, most))
    matrix, *addend = (np.asarray(other, np.float64) for other in others if other is not None)
    if matrix.ndim != 2 or {"alpha", "beta", "transA"} & attributes.keys():
        return None
    matrix = matrix.T if attributes.get("transB") else matrix
    up, down = np.maximum(matrix, 0).sum(axis=0), np.minimum(matrix, 0).sum(axis=0)
    shift = addend[0] if addend else np.zeros(1)
    return float((up * low + down * high + shift).min()), float((up * high + down * low + shift).max())


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


def _power(intervals: list[Interval]) -> Interval | None:
    (low, high), (least, most) = intervals
    return (low**least, high**least) if low >= 0 and least == most > 0 else None


def _rising(function: Callable[[float], float], least: float = -np.inf) -> Callable[[list[Interval]], Interval | None]:
    """The interval of a function that rises from `least` on."""
    return lambda intervals: (
        (function(intervals[0][0]), function(intervals[0][1])) if intervals[0][0] >= least else None
    )


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
    "Neg": lambda intervals: _difference([(0.0, 0.0), *intervals]),
    "Pow": _power,
    "Reciprocal": lambda intervals: _quotient([(1.0, 1.0), *intervals]),
    "Relu": _rising(lambda x: max(x, 0.0)),
    "Sqrt": _rising(math.sqrt, least=0.0),
    "Sub": _difference,
    "Sum": _sum,
    "Where": _union,
}
"""The interval of a result by those of all inputs."""
