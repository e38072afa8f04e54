"""Sums, products and powers."""

from __future__ import annotations

import math

import numpy as np

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import Lowering, Value
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

MAX_POWER = 16
"""The largest exponent of Pow: larger ones leave no precision."""


@operator("Neg", pointwise=True)
def _neg(lowering: Lowering, site: Site) -> Value:
    return lowering.affine(site, lowering.value(site), mul=-1.0)


@operator("Add", "Sub", "Mul", "Div", "Sum", pointwise=True)
def _arithmetic(lowering: Lowering, site: Site) -> Value:
    kind, names = site.node.op_type, list(site.node.input)
    if kind == "Div" and any(name in lowering.whole for name in names):
        site.fail("it divides whole numbers, whose quotient the file cuts off", "cast them to floats before (Cast)")
    if kind == "Sum" and len(names) != 2:
        return _sum(lowering, site)
    left, right = (name in lowering.values for name in names)
    if left and right:
        return _arithmetic_values(lowering, site, kind, lowering.value(site, 0), lowering.value(site, 1))
    value = lowering.value(site, 0 if left else 1)
    position = 1 if left else 0
    if kind in ("Add", "Sum"):
        return lowering.affine(site, value, add=lowering.summand(site, position))
    constant = lowering.required(site, position)
    match kind:
        case "Sub":
            return lowering.affine(site, value, add=-constant) if left else lowering.affine(site, value, -1.0, constant)
        case "Mul":
            return lowering.affine(site, value, mul=constant)
    if not left:
        return lowering.affine(site, lowering.reciprocal(site, value), mul=constant)
    with np.errstate(all="ignore"):
        return lowering.affine(site, value, mul=1.0 / constant)


@operator("Pow", pointwise=True)
def _pow(lowering: Lowering, site: Site) -> Value:
    if site.input(0) in lowering.constants:
        problem = f"it raises a constant, {site.input(0)}, to a computed power"
        site.fail(problem, f"only positive constants are raised, at the end of a model: write it another way, {CUT}")
    value, exponent = lowering.value(site), lowering.required(site, 1)
    power = float(exponent.reshape(())) if exponent.size == 1 else math.nan
    if math.isclose(power, 0.5, rel_tol=1e-6):
        return lowering.root(site, value)
    if not (power.is_integer() and 1 <= power <= MAX_POWER):
        site.fail(f"only whole exponents from 1 to {MAX_POWER} are supported", f"replace it by a polynomial, {CUT}")
    # By squaring, from the second-highest bit of the exponent down: the fewest products one after
    # the other.
    result = value
    for bit in bin(int(power))[3:]:
        result = lowering.times(site, result, result)
        if bit == "1":
            result = lowering.times(site, result, value)
    return result


def _arithmetic_values(lowering: Lowering, site: Site, kind: str, left: Value, right: Value) -> Value:
    if kind == "Div":
        return lowering.times(site, left, lowering.reciprocal(site, right))
    if kind == "Mul":
        return lowering.times(site, left, right)
    return lowering.minus(site, left, right) if kind == "Sub" else lowering.plus(site, left, right)


def _sum(lowering: Lowering, site: Site) -> Value:
    total = lowering.value(site, 0)
    for position in range(1, len(site.node.input)):
        total = lowering.plus(site, total, lowering.value(site, position))
    return total
