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
    "Abs": (0.0, np.inf),
    "Erf": (-1.0, 1.0),
    "Exp": (0.0, np.inf),
    "HardSigmoid": (0.0, 1.0),
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Softplus": (0.0, np.inf),
    "Tanh": (-1.0, 1.0),
}
"""The intervals of operators whatever they read."""

WITHIN = ("GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMean", "ReduceMin")
"""Operators whose results are between those that they read."""

CUTTING = ("Clip", "Max", "Min", "Relu")
"""Operators that bound what may be any number."""

ANY: Interval = (-np.inf, np.inf)

ROUNDING = 1e-6


def are_probabilities(proto: ModelProto, opset: int, name: str) -> bool:
    """Whether a value follows from results of Sigmoids or the like, and is from 0 to 1 for any input."""
    if not _may_follow(proto, name):
        return False
    constants, known = constants_of(proto, opset), dict[str, Interval]()
    for node in proto.graph.node:
        interval = _interval(node, known, constants)
        if interval is not None and not np.isnan(interval).any():
            known[node.output[0]] = interval
    low, high = known.get(name, (-np.inf, np.inf))
    return low >= -ROUNDING and high <= 1 + ROUNDING


def _may_follow(proto: ModelProto, name: str) -> bool:
    """Whether a value follows from bounded numbers, by the operators alone: constants take time to fold."""
    kinds, known = {*MOVING, *WITHIN, *WEIGHED, *OF_ALL}, set[str]()
    for node in proto.graph.node:
        kind = name_of(node)
        # From above a bound is a Clip's, or a Min's.
        if kind in (*BOUNDED, "Clip", "Min") or (kind in kinds and not known.isdisjoint(node.input)):
            known.add(node.output[0])
    return name in known


def _interval(node: NodeProto, known: Mapping[str, Interval], constants: Mapping[str, Array]) -> Interval | None:
    """The interval of a node's result; None where it follows from no bounded numbers, or is not known."""
    kind, read = name_of(node), [name for name in node.input if name]
    if kind not in CUTTING and not any(name in known for name in read):
        return BOUNDED.get(kind)
    if kind in (*MOVING, *WITHIN):
        return known.get(read[0])
    if kind in WEIGHED:
        with np.errstate(all="ignore"):
            return WEIGHED[kind](node, known.get(node.input[0]), constants)
    if kind not in OF_ALL:
        return BOUNDED.get(kind)
    # A choice by truths is one of the others.
    read = read[1:] if kind == "Where" else read
    rest = ANY if kind in CUTTING else None
    intervals = [known.get(name) or _of_constant(constants.get(name)) or rest for name in read]
    found = [interval for interval in intervals if interval is not None]
    return OF_ALL[kind](found) if len(found) == len(read) else None


def _clipped(node: NodeProto, interval: Interval | None, constants: Mapping[str, Array]) -> Interval | None:
    """That of a Clip, whose bounds are inputs or attributes, or absent."""
    attributes = {each.name: float(each.f) for each in node.attribute}
    bounds = [attributes.get("min", -np.inf), attributes.get("max", np.inf)]
    for place, name in enumerate(node.input[1:]):
        if name and name not in constants:
            return None
        if name and constants[name].size == 1:
            bounds[place] = float(constants[name].reshape(()))
    low, high = np.clip(interval or ANY, bounds[0], bounds[1])
    return float(low), float(high)


def _weighed(node: NodeProto, interval: Interval | None, constants: Mapping[str, Array]) -> Interval | None:
    """That of products with a constant matrix on the right."""
    others = [constants.get(name) for name in node.input[1:] if name]
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    if interval is None or any(other is None for other in others) or {"alpha", "beta", "transA"} & attributes.keys():
        return None
    (low, high), (matrix, *addend) = interval, (np.asarray(other, np.float64) for other in others)
    if matrix.ndim != 2:
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
    # What is zero stays so, however large the other is.
    ends = [one * other if one and other else 0.0 for one in intervals[0] for other in intervals[1]]
    return min(ends), max(ends)


def _quotient(intervals: list[Interval]) -> Interval | None:
    (low, high), (least, most) = intervals
    return _product([(low, high), (1 / most, 1 / least)]) if least > 0 else None


def _power(intervals: list[Interval]) -> Interval | None:
    (low, high), (least, most) = intervals
    if low < 0 or not least == most > 0:
        return None
    with np.errstate(all="ignore"):
        raised = np.power(np.array([low, high]), least)
    return float(raised[0]), float(raised[1])


def _rising(function: Callable[[float], float], least: float = -np.inf) -> Callable[[list[Interval]], Interval | None]:
    """The interval of a function that rises from `least` on."""
    return lambda intervals: (
        (function(intervals[0][0]), function(intervals[0][1])) if intervals[0][0] >= least else None
    )


def _exp(exponent: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.exp(exponent))


def _ends(choice: Callable[..., float]) -> Callable[[list[Interval]], Interval]:
    """That of a choice among all results, by the choice among their ends."""
    return lambda intervals: (choice(low for low, _ in intervals), choice(high for _, high in intervals))


def _union(intervals: list[Interval]) -> Interval:
    return min(low for low, _ in intervals), max(high for _, high in intervals)


OF_ALL: dict[str, Callable[[list[Interval]], Interval | None]] = {
    "Add": _sum,
    "Concat": _union,
    "Div": _quotient,
    "Exp": _rising(_exp),
    "Max": _ends(max),
    "Mean": _mean,
    "Min": _ends(min),
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

WEIGHED = {"Clip": _clipped, "Gemm": _weighed, "MatMul": _weighed}
"""That of operators whose other inputs are constants that are looked at one by one."""
