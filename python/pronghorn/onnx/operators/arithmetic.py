"""Sums, products and powers."""

from __future__ import annotations

import math
from functools import partial, reduce

import numpy as np

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import Array, Lowering, Value
from pronghorn.onnx.masks import Score, scaled, sum_of
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

MAX_POWER = 16
"""The largest exponent of Pow: larger ones leave no precision."""


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
            mul = constant
        case "Div":
            with np.errstate(all="ignore"):
                mul = 1.0 / constant
        case _:
            add = constant
    return scaled(lowering, site, lowering.score(site, at), mul, add, site.input(position))


@operator("Pow", pointwise=True)
def _pow(lowering: Lowering, site: Site) -> Value:
    if site.input(0) in lowering.constants:
        problem = f"it raises a constant, {site.input(0)}, to a computed power"
        site.fail(problem, f"only positive constants are raised, at the end of a model: write it another way, {CUT}")
    value, exponent = lowering.value(site), lowering.required(site, 1)
    power = float(exponent.reshape(())) if exponent.size == 1 else math.nan
    if power < 0 or not power.is_integer():
        lowering.refuse_cut_off(site, "it takes roots or quotients of whole numbers")
    if math.isclose(power, 0.5, rel_tol=1e-6):
        return lowering.root(site, value)
    if power == 0 or not abs(power) <= MAX_POWER:
        problem = f"only exponents to {MAX_POWER} that are one number are supported"
        site.fail(problem, f"replace it by a polynomial, {CUT}")
    if not power.is_integer():
        return _real_power(lowering, site, value, power)
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


def _real_power(lowering: Lowering, site: Site, value: Value, power: float) -> Value:
    """A power of positive values: `exp(power log(x))`, whose exponential at the end of the model is the client's."""
    logarithm = scaled_logarithm(lowering, site, value, power)
    if lowering.is_within(site):
        return lowering.function(site, logarithm, "exp")
    return lowering.emit(site, {"kind": "exp"}, [logarithm], logarithm.inner)


def scaled_logarithm(lowering: Lowering, site: Site, value: Value, power: float) -> Value:
    """`power log(x)` of positive values, whose exponential is their power."""
    return lowering.affine(site, lowering.function(site, value, "log"), mul=power)


def _arithmetic_values(lowering: Lowering, site: Site, kind: str) -> Value:
    if kind in ("Mul", "Div"):
        left, right = lowering.value(site, 0), lowering.value(site, 1)
        return lowering.times(site, left, right if kind == "Mul" else lowering.reciprocal(site, right))
    scores = lowering.score(site, 0), lowering.score(site, 1)
    return sum_of(lowering, site, *scores, sign=-1.0 if kind == "Sub" else 1.0)


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
