"""Comparisons of values within a network, and what is made of them: 1 where they hold, and 0 where not.

A comparison is one of the difference with zero, a `Step` of the graph. It jumps: where a value is next to the bound,
its rounding decides. The expected error of a plan has what that does on the samples. Choices that make no jump are no
comparisons here (choices.py).
"""

from __future__ import annotations

import numpy as np

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.computed_masks import below, is_mask
from pronghorn.onnx.lowering import Array, Lowering, Value
from pronghorn.onnx.masks import FAR, sum_of
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


@operator("Equal", pointwise=True)
def _equal(lowering: Lowering, site: Site) -> Value:
    """Values that round to the same integer are equal."""
    return truth(lowering, site, _differs(lowering, site), True)


@operator("Xor", pointwise=True)
def _xor(lowering: Lowering, site: Site) -> Value:
    return truth(lowering, site, _differs(lowering, site))


def _differs(lowering: Lowering, site: Site) -> Value:
    """Steps of the difference and of its opposite, of which one at most is 1."""
    above, below = (step(lowering, site, _difference(lowering, site, sign)) for sign in (ABOVE, BELOW))
    return lowering.plus(site, above, below)


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


def truth_of(lowering: Lowering, site: Site, value: Value) -> Value:
    """1 where a whole number is not 0, and 0 where it is."""
    if value.index in lowering.truths:
        return value
    above, below_it = (step(lowering, site, lowering.affine(site, value, sign, -0.5)) for sign in (ABOVE, BELOW))
    return lowering.plus(site, above, below_it)


def truth(lowering: Lowering, site: Site, holds: Value, is_opposite: bool = False) -> Value:
    """A truth of 1 and 0, or its opposite."""
    return lowering.affine(site, holds, -1.0, 1.0) if is_opposite else holds


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
    _refuse_guards(lowering, site)
    condition = lowering.value(site, 0)
    masked = _masked(lowering, site, condition)
    if masked is not None:
        return masked
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


def _refuse_guards(lowering: Lowering, site: Site) -> None:
    """Refuses to choose between a quotient and others where its divisor is a number: a quotient by zero is no number,
    and in fixed point beyond the range."""
    kinds = {name: node.op_type for node in lowering.network for name in node.output}
    branches = [kinds.get(name) for name in site.node.input[1:]]
    if kinds.get(site.input(0)) == "Equal" and ("Div" in branches or "Reciprocal" in branches):
        problem = "it chooses by an Equal whether a quotient is taken, as where a divisor is zero"
        site.fail(problem, f"add a small number to the divisor instead, {CUT}")


def _masked(lowering: Lowering, site: Site, condition: Value) -> Value | None:
    """Scores that a Where by a computed condition masks, or the mask alone; None for other choices."""
    factor, places = lowering.masking.get(site.node.output[0]), (1, 2)
    computed = [at for at in places if site.input(at) in lowering.values]
    if factor is None or len(computed) == len(places):
        return None
    numbers = [np.asarray(lowering.constants.get(site.input(at), 0.0), np.float64) for at in places]
    masks = [is_mask(each, factor) for each in numbers]
    if masks.count(True) != 1 or not np.isfinite(numbers[masks.index(False)]).all():
        return None
    kept = numbers[masks.index(False)]
    holds, fails = (below(kept, factor) if masked else each for masked, each in zip(masks, numbers, strict=True))
    mask = lowering.affine(site, condition, holds - fails, fails)
    return sum_of(lowering, site, lowering.score(site, computed[0]), (mask, None), 1.0) if computed else mask


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
        advice = f"choose one that is about as large as the values, such as -10 for what a maximum leaves out, {CUT}"
        site.fail(f"{problem}, beside which fixed point leaves the value no digits", advice)
    return constant


def _difference(lowering: Lowering, site: Site, sign: float) -> Value:
    """The first less the second, times a sign; of whole numbers half less, which is not near zero."""
    names = [name for name in site.node.input if name in lowering.values]
    if any(name in lowering.of_inputs and name not in lowering.counts for name in names):
        # Lists of categories are told before.
        site.fail("it jumps", f"compare whole numbers before sending, {CUT}")
    margin = 0.5 if all(name in lowering.counts for name in names) else 0.0
    if len(names) == 2:
        ends = [lowering.value(site, 0), lowering.value(site, 1)]
        made = lowering.minus(site, *(ends if sign > 0 else ends[::-1]))
        return lowering.affine(site, made, add=-margin) if margin else made
    value, bound = (0, 1) if site.input(0) in lowering.values else (1, 0)
    factor = sign if value == 0 else -sign
    return lowering.affine(site, lowering.value(site, value), factor, -factor * lowering.required(site, bound) - margin)
