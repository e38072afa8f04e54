"""Comparisons of values within a network, and what is made of them: 1 where they hold, and 0 where not.

A comparison is one of the difference with zero, a `Step` of the graph. It jumps: where a value is next to the bound,
its rounding decides. The expected error of a plan has what that does on the samples. Choices that make no jump are no
comparisons here (choices.py).
"""

from __future__ import annotations

import numpy as np

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import Array, Lowering, Value
from pronghorn.onnx.masks import FAR
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

ABOVE, BELOW = 1.0, -1.0
"""The sign of the difference of which the step is taken."""

COMPARED = {
    "Greater": (ABOVE, False),
    "GreaterOrEqual": (BELOW, True),
    "Less": (BELOW, False),
    "LessOrEqual": (ABOVE, True),
}
"""The sign, and whether the step tells where the comparison does not hold."""


@operator(*COMPARED, pointwise=True)
def _comparison(lowering: Lowering, site: Site) -> Value:
    sign, is_opposite = COMPARED[site.node.op_type]
    difference = _difference(lowering, site, sign)
    return truth(lowering, site, step(lowering, site, difference), is_opposite)


@operator("Sign", pointwise=True)
def _sign(lowering: Lowering, site: Site) -> Value:
    """Steps of the value and of its opposite: zero has the sign 0."""
    value = lowering.value(site)
    above, below = (step(lowering, site, lowering.affine(site, value, mul=sign)) for sign in (ABOVE, BELOW))
    return lowering.minus(site, above, below)


@operator("ThresholdedRelu", pointwise=True)
def _thresholded_relu(lowering: Lowering, site: Site) -> Value:
    """`x` where it is above `alpha`, and 0 elsewhere."""
    value, alpha = lowering.value(site), site.number("alpha", 1.0)
    above = step(lowering, site, lowering.affine(site, value, add=-alpha))
    return lowering.times(site, value, above)


@operator("ai.onnx.ml.Binarizer", pointwise=True)
def _binarizer(lowering: Lowering, site: Site) -> Value:
    return step(lowering, site, lowering.affine(site, lowering.value(site), add=-site.number("threshold", 0.0)))


@operator("Not", pointwise=True)
def _not(lowering: Lowering, site: Site) -> Value:
    return truth(lowering, site, lowering.value(site), True)


@operator("And", "Or", pointwise=True)
def _both(lowering: Lowering, site: Site) -> Value:
    """`relu(a + b - 1)`, and `1 - relu(1 - a - b)`."""
    is_or = site.node.op_type == "Or"
    computed = [at for at in range(2) if site.input(at) in lowering.values]
    if len(computed) == 1:
        known = lowering.constant(site, 1 - computed[0])
        if known is None or known.dtype != np.bool_:
            site.fail("an input of it is no tensor of booleans", "repair the model")
        # What is known leaves the other, or decides.
        kept = (~known if is_or else known).astype(float)
        decided = (is_or & known).astype(float)
        return truth(lowering, site, lowering.affine(site, lowering.value(site, computed[0]), kept, decided))
    total = lowering.plus(site, lowering.value(site, 0), lowering.value(site, 1))
    if is_or:
        return truth(lowering, site, lowering.rectified(site, lowering.affine(site, total, -1.0, 1.0)), True)
    return truth(lowering, site, lowering.rectified(site, lowering.affine(site, total, add=-1.0)))


def step(lowering: Lowering, site: Site, value: Value) -> Value:
    """1 where the value is above zero, and 0 elsewhere."""
    return lowering.emit(site, {"kind": "step"}, [value], value.inner)


def truth(lowering: Lowering, site: Site, holds: Value, is_opposite: bool = False) -> Value:
    """A truth of 1 and 0, or its opposite, known as such."""
    made = lowering.affine(site, holds, -1.0, 1.0) if is_opposite else holds
    lowering.truths.add(made.index)
    return made


def beyond(lowering: Lowering, site: Site, value: Value, bound: float, bias: float) -> Value:
    """`x - bias` above a bound, `x + bias` below its opposite, and 0 between: a Hardshrink, where the bias is 0."""
    if bound < 0:
        site.fail(f"its lambd is {bound:g}", f"make it positive, {CUT}")
    above, below = (step(lowering, site, lowering.affine(site, value, sign, -bound)) for sign in (ABOVE, BELOW))
    kept = lowering.times(site, value, lowering.plus(site, above, below))
    if not bias:
        return kept
    return lowering.plus(site, kept, lowering.affine(site, lowering.minus(site, below, above), mul=bias))


def chosen_by(lowering: Lowering, site: Site) -> Value:
    """A Where by a computed condition: `b + c (a - b)`."""
    condition = lowering.value(site, 0)
    first, second = (_finite(lowering, site, position) for position in (1, 2))
    if isinstance(second, Value):
        if isinstance(first, Value):
            difference = lowering.minus(site, first, second)
        else:
            difference = lowering.affine(site, second, -1.0, first)
        return lowering.plus(site, lowering.times(site, condition, difference), second)
    if isinstance(first, Value):
        difference = lowering.affine(site, first, add=-second)
        return lowering.affine(site, lowering.times(site, condition, difference), add=second)
    return lowering.affine(site, condition, first - second, second)


def _finite(lowering: Lowering, site: Site, position: int) -> Value | Array:
    """A value or a constant to choose."""
    if site.input(position) in lowering.values:
        return lowering.value(site, position)
    constant = lowering.constant(site, position)
    if constant is None or constant.dtype.kind not in "fiub":
        site.fail(f"its input {position} is no tensor of numbers", "repair the model")
    constant = constant.astype(np.float64)
    is_beside = any(site.input(at) in lowering.values for at in (1, 2))
    if not np.isfinite(constant).all() or (is_beside and np.abs(constant).max(initial=0.0) >= -FAR):
        problem = f"it chooses between a value and a number as large as {np.abs(constant).max():g}"
        site.fail(f"{problem}, beside which fixed point leaves the value no digits", f"choose a smaller number, {CUT}")
    return constant


def _difference(lowering: Lowering, site: Site, sign: float) -> Value:
    """The first less the second, times a sign."""
    if any(name in lowering.whole for name in site.node.input):
        # Lists of categories are told by `Equal`.
        site.fail("it jumps", f"compare whole numbers before sending, {CUT}")
    first, second = (name in lowering.values for name in site.node.input)
    if first and second:
        ends = [lowering.value(site, 0), lowering.value(site, 1)]
        return lowering.minus(site, *(ends if sign > 0 else ends[::-1]))
    value, bound = (0, 1) if first else (1, 0)
    factor = sign if first else -sign
    return lowering.affine(site, lowering.value(site, value), factor, -factor * lowering.required(site, bound))
