"""Smooth functions that exporters write as several nodes, such as `Mul(x, Sigmoid(x))` for SiLU.

A function is recognised by its values, not by its nodes: there are many ways to write one. From a product, a quotient
or a choice, nodes that work element by element are followed back to one value. If the whole is a function that
Pronghorn knows, on points where all of them differ, that function takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, helper

from pronghorn.onnx.lowering import Array
from pronghorn.onnx.registry import name_of

Points = npt.NDArray[np.float64]

MOST_NODES = 12
"""Most nodes of a function: GELU by tanh has nine."""

LAST = ("Add", "Mul", "Div", "Reciprocal", "Where")
"""The last nodes of functions."""

FAR: Points = np.array([9.0, 12.0, 16.0, 20.0, 26.0, 33.0, 47.0, 70.0, 1e3, 1e6])

POINTS: Points = np.concatenate([np.linspace(-7.0, 7.0, 57), -FAR, FAR])
"""Where functions are compared: far out, too, as a bound may be anywhere. Where a function written in several nodes
overflows, its file gives no number, either."""

STEEPEST = 8.0
"""Of a Swish: one of another steepness, or of the inverse of more, stays a product."""

LEAST, MOST = 1e-3, 5.0
"""The bounds of Softshrink's threshold: functions are compared on both sides of it."""

AROUND: Points = np.array([*np.linspace(-3.0, 3.0, 61), 0.99, 1.01, -0.99, -1.01, 100.0, -100.0, 1e4, -1e4])
"""Where Softshrinks are compared, in thresholds: others are next to them elsewhere."""

ABSENT: Points = np.asarray(math.nan)
"""An input that a node does not have."""


def recognised(
    node: NodeProto, makers: Mapping[str, int], nodes: list[NodeProto], constants: Mapping[str, Array]
) -> NodeProto | None:
    """The one node that makes what `node` and those before it make; None where there is no such node.

    Args:
        node: the last node of the function.
        makers: the index of the node that makes each value.
        nodes: all nodes, in topological order.
        constants: the model's weights.
    """
    if name_of(node) not in LAST:
        return None
    inside, leaves = [node], _values(node, constants)
    while leaves and len(inside) <= MOST_NODES:
        if len(leaves) == 1:
            (leaf,) = leaves
            found = _function(leaf, inside, constants)
            if found is not None:
                made = helper.make_node(found[0], [leaf], node.output, name=node.name or node.output[0])
                made.attribute.extend(helper.make_attribute(name, value) for name, value in found[1].items())
                return made
        last = max(leaves, key=lambda name: makers.get(name, -1))
        index = makers.get(last, -1)
        if index < 0 or name_of(nodes[index]) not in POINTWISE:
            return None
        inside.append(nodes[index])
        leaves = (leaves - {last}) | _values(nodes[index], constants)
    return None


def _values(node: NodeProto, constants: Mapping[str, Array]) -> set[str]:
    return {name for name in node.input if name and name not in constants}


def _function(
    leaf: str, inside: list[NodeProto], constants: Mapping[str, Array]
) -> tuple[str, dict[str, float | str]] | None:
    """The ONNX operator that computes the last of some nodes from `leaf`, and its attributes."""

    def results(points: Points) -> Points:
        # They were found from the last to the first.
        return evaluated(inside[::-1], leaf, points, constants)[inside[0].output[0]]

    try:
        found, threshold = results(POINTS), _threshold(results)
    except (KeyError, IndexError, ValueError, TypeError):
        return None
    if threshold is not None:
        return "Shrink", {"lambd": threshold, "bias": threshold}
    at_one = float(found[np.argmin(np.abs(POINTS - 1.0))])
    steepness = math.log(at_one / (1.0 - at_one)) if 0.5 < at_one < 1.0 else 1.0
    steepness = steepness if 1 / STEEPEST <= steepness <= STEEPEST else math.nan
    candidates: list[tuple[str, dict[str, float | str], Points]] = [
        ("HardSwish", {}, POINTS * np.clip(POINTS / 6 + 0.5, 0.0, 1.0)),
        ("Gelu", {}, POINTS * (1 + _erf(POINTS / math.sqrt(2))) / 2),
        ("Gelu", {"approximate": "tanh"}, POINTS * (1 + np.tanh(_inner(POINTS))) / 2),
        ("Mish", {}, POINTS * np.tanh(_softplus(POINTS))),
        ("Sigmoid", {}, _sigmoid(POINTS)),
        ("Softplus", {}, _softplus(POINTS)),
        ("Softsign", {}, POINTS / (1 + np.abs(POINTS))),
        ("Swish", {"alpha": steepness}, POINTS * _sigmoid(steepness * POINTS)),
    ]
    known = np.isfinite(found) | (np.abs(POINTS) <= FAR[3])
    for name, attributes, wanted in candidates:
        if found.shape == wanted.shape and np.allclose(found[known], wanted[known], rtol=1e-4, atol=1e-4):
            return name, attributes
    return None


def _threshold(results: Callable[[Points], Points]) -> float | None:
    """The threshold of a Softshrink, which takes as much off every value beyond; None of other functions."""
    last = FAR[3:4]
    threshold = float((last - results(last)).item())
    if not LEAST <= threshold <= MOST:
        return None
    points = threshold * AROUND
    found, wanted = results(points), points - np.clip(points, -threshold, threshold)
    alike = found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-4, atol=1e-4 * threshold)
    return threshold if alike else None


def evaluated(
    nodes: Iterable[NodeProto], leaf: str, points: Points, constants: Mapping[str, Array]
) -> dict[str, Points]:
    """The results of nodes in their order at points of one value, by name."""
    values: dict[str, Points] = {leaf: points}
    with np.errstate(all="ignore"):
        for node in nodes:
            values[node.output[0]] = _evaluate(node, values, constants)
    return values


def _evaluate(node: NodeProto, values: Mapping[str, Points], constants: Mapping[str, Array]) -> Points:
    def read(name: str) -> Points:
        if name in values:
            return values[name]
        if constants[name].size != 1:
            raise ValueError("a constant for each element makes no function of one value")
        return np.asarray(constants[name], np.float64).reshape(())

    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return POINTWISE[name_of(node)]([read(name) if name else ABSENT for name in node.input], attributes)


def _clip(inputs: list[Points], attributes: dict[str, float]) -> Points:
    low, high = [*inputs[1:], ABSENT, ABSENT][:2]
    low = np.asarray(attributes.get("min", -math.inf)) if np.isnan(low) else low
    high = np.asarray(attributes.get("max", math.inf)) if np.isnan(high) else high
    return np.minimum(np.maximum(inputs[0], low), high)


def _sigmoid(x: Points) -> Points:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _softplus(x: Points) -> Points:
    return np.logaddexp(0.0, x)


def _erf(x: Points) -> Points:
    return np.array([math.erf(value) for value in x.flat]).reshape(x.shape)


def _inner(x: Points) -> Points:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


POINTWISE: dict[str, Callable[[list[Points], dict[str, float]], Points]] = {
    "Add": lambda inputs, _: inputs[0] + inputs[1],
    "Sub": lambda inputs, _: inputs[0] - inputs[1],
    "Mul": lambda inputs, _: inputs[0] * inputs[1],
    "Div": lambda inputs, _: inputs[0] / inputs[1],
    "Pow": lambda inputs, _: inputs[0] ** inputs[1],
    "Max": lambda inputs, _: np.maximum(inputs[0], inputs[1]),
    "Min": lambda inputs, _: np.minimum(inputs[0], inputs[1]),
    "Greater": lambda inputs, _: np.asarray(inputs[0] > inputs[1], np.float64),
    "GreaterOrEqual": lambda inputs, _: np.asarray(inputs[0] >= inputs[1], np.float64),
    "Less": lambda inputs, _: np.asarray(inputs[0] < inputs[1], np.float64),
    "LessOrEqual": lambda inputs, _: np.asarray(inputs[0] <= inputs[1], np.float64),
    "And": lambda inputs, _: np.minimum(inputs[0], inputs[1]),
    "Or": lambda inputs, _: np.maximum(inputs[0], inputs[1]),
    "Not": lambda inputs, _: 1 - inputs[0],
    "Where": lambda inputs, _: np.where(inputs[0] > 0, inputs[1], inputs[2]),
    "Abs": lambda inputs, _: np.abs(inputs[0]),
    "Neg": lambda inputs, _: -inputs[0],
    "Sign": lambda inputs, _: np.sign(inputs[0]),
    "Exp": lambda inputs, _: np.exp(inputs[0]),
    "Log": lambda inputs, _: np.log(inputs[0]),
    "Sqrt": lambda inputs, _: np.sqrt(inputs[0]),
    "Reciprocal": lambda inputs, _: 1 / inputs[0],
    "Identity": lambda inputs, _: inputs[0],
    "Relu": lambda inputs, _: np.maximum(inputs[0], 0),
    "Clip": _clip,
    "Erf": lambda inputs, _: _erf(inputs[0]),
    "Sigmoid": lambda inputs, _: _sigmoid(inputs[0]),
    "Softplus": lambda inputs, _: _softplus(inputs[0]),
    "Tanh": lambda inputs, _: np.tanh(inputs[0]),
    "HardSigmoid": lambda inputs, given: np.clip(given.get("alpha", 0.2) * inputs[0] + given.get("beta", 0.5), 0, 1),
}
"""Operators that work element by element."""
