"""Sums, products and powers."""

from __future__ import annotations

import math
from functools import partial, reduce

import numpy as np

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.computed_masks import below, is_mask
from pronghorn.onnx.lowering import Array, Floats, Lowering, Value
from pronghorn.onnx.masks import Score, scaled, sum_of
from pronghorn.onnx.operators.finish import may_be_zero, shares
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

MAX_POWER = 16
"""The largest exponent of Pow: larger ones leave no precision."""

MAX_REAL_POWER = 128
"""The same of positive values, by their logarithm."""


@operator("Neg", pointwise=True)
def _neg(lowering: Lowering, site: Site) -> Value:
    return scaled(lowering, site, lowering.score(site), -1.0)


@operator("Add", "Sub", "Mul", "Div", "Sum", pointwise=True)
def _arithmetic(lowering: Lowering, site: Site) -> Value:
    kind, names = site.node.op_type, list(site.node.input)
    if kind == "Div":
        lowering.refuse_cut_off(site, "it divides whole numbers into fractions")
    if kind == "Sum" and len(names) != 2:
        return _sum(lowering, site)
    left, right = (name in lowering.values for name in names)
    if left and right:
        return _arithmetic_values(lowering, site, kind)
    at, position = (0, 1) if left else (1, 0)
    if kind == "Div" and not left:
        return lowering.affine(site, lowering.reciprocal(site, lowering.value(site, at)), lowering.required(site, 0))
    adds = kind not in ("Mul", "Div")
    constant = lowering.summand(site, position) if adds else lowering.required(site, position)
    mul: Array | float = 1.0
    add: Array | float = 0.0
    match kind:
        case "Sub":
            mul, add = (1.0, -constant) if left else (-1.0, constant)
        case "Mul":
            mul = _mask_of_truths(lowering, site, at, constant)
        case "Div":
            with np.errstate(all="ignore"):
                mul = 1.0 / constant
        case _:
            add = constant
    return scaled(lowering, site, lowering.score(site, at), mul, add, site.input(position))


def _mask_of_truths(lowering: Lowering, site: Site, at: int, factor: Floats) -> Floats:
    """A factor of truths that makes a mask of them, as a number that fixed point has beside scores."""
    behind = lowering.masking.get(site.node.output[0])
    if behind is None or lowering.values[site.input(at)].index not in lowering.truths or not is_mask(factor, behind):
        return factor
    return np.full_like(factor, below(np.zeros(1), behind))


@operator("Pow", pointwise=True)
def _pow(lowering: Lowering, site: Site) -> Value:
    if site.input(0) in lowering.constants:
        problem = f"it raises a constant, {site.input(0)}, to a computed power"
        site.fail(problem, f"only positive constants are raised, at the end of a model: write it another way, {CUT}")
    value, exponent = lowering.value(site), lowering.required(site, 1)
    if exponent.size > 1 and exponent.shape[-1] == value.shape[-1] and (exponent % 1 != 0).all():
        lowering.refuse_cut_off(site, "it takes roots of whole numbers")
        return _real_power(lowering, site, value, exponent)
    power = float(exponent.reshape(())) if exponent.size == 1 else math.nan
    if power < 0 or not power.is_integer():
        lowering.refuse_cut_off(site, "it takes roots or quotients of whole numbers")
    if math.isclose(power, 0.5, rel_tol=1e-6):
        return lowering.root(site, value)
    if (not power.is_integer() or power < -MAX_POWER) and abs(power) <= MAX_REAL_POWER:
        return _real_power(lowering, site, value, power)
    if power == 0 or not abs(power) <= MAX_POWER:
        problem = f"only exponents to {MAX_POWER} that are one number are supported"
        site.fail(problem, f"replace it by a polynomial, {CUT}")
    made = whole_power(lowering, site, value, abs(int(power)))
    return made if power > 0 else lowering.reciprocal(site, made)


def whole_power(lowering: Lowering, site: Site, value: Value, power: int) -> Value:
    """By squaring, from the second-highest bit of the exponent down: the fewest products one after the other."""
    result = value
    for bit in bin(power)[3:]:
        result = lowering.times(site, result, result)
        if bit == "1":
            result = lowering.times(site, result, value)
    return result


def _real_power(lowering: Lowering, site: Site, value: Value, power: Array | float) -> Value:
    """A power of positive values: `exp(power log(x))`, whose exponential at the end of the model is the client's."""
    logarithm = scaled_logarithm(lowering, site, value, power)
    if lowering.is_within(site):
        return lowering.function(site, logarithm, "exp")
    return lowering.emit(site, {"kind": "exp"}, [logarithm], logarithm.inner)


def scaled_logarithm(lowering: Lowering, site: Site, value: Value, power: Array | float) -> Value:
    """`power log(x)` of positive values, whose exponential is their power."""
    return lowering.affine(site, lowering.function(site, value, "log"), mul=power)


def _arithmetic_values(lowering: Lowering, site: Site, kind: str) -> Value:
    if kind in ("Mul", "Div"):
        left, right = lowering.value(site, 0), lowering.value(site, 1)
        if kind == "Div" and _divides_by_sum(lowering, site, left):
            return shares(lowering, site, left)
        return lowering.times(site, left, right if kind == "Mul" else lowering.reciprocal(site, right))
    scores = lowering.score(site, 0), lowering.score(site, 1)
    return sum_of(lowering, site, *scores, sign=-1.0 if kind == "Sub" else 1.0)


def _divides_by_sum(lowering: Lowering, site: Site, value: Value) -> bool:
    """Whether a node at the end divides the values of a row, which are positive, by their sum."""
    makers = {name: node for node in lowering.network for name in node.output}
    total, axes = makers.get(site.input(1)), np.zeros(0)
    if total is not None and total.op_type == "ReduceSum" and total.input[0] == site.input(0):
        given = [each.ints for each in total.attribute if each.name == "axes"]
        if any(each.name == "keepdims" and each.i == 0 for each in total.attribute):
            return False
        axes = np.array(given[0]) if given else lowering.constants.get((*total.input, "")[1], axes)
    is_row = len(value.shape) == 2 and axes.size == 1 and axes.item() in (1, -1)
    return is_row and not may_be_zero(lowering, value) and not lowering.is_within(site)


def _sum(lowering: Lowering, site: Site) -> Value:
    """A sum of any number of values and constants."""
    positions = range(len(site.node.input))
    computed = [at for at in positions if site.input(at) in lowering.values]
    constants = [at for at in positions if at not in computed]
    score: Score
    if len(computed) == 1:
        score = lowering.score(site, computed[0])
    else:
        score = reduce(partial(lowering.plus, site), [lowering.value(site, at) for at in computed]), None
    try:
        add = sum((lowering.summand(site, at) for at in constants), np.zeros((), np.float32))
    except ValueError:
        site.fail("its constants are not broadcast to one another", "repair the model")
    return scaled(lowering, site, score, add=add, name=site.input(constants[0]) if constants else "")
