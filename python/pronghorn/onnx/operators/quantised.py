"""Quantised models: pairs of QuantizeLinear and DequantizeLinear, which Pronghorn's own fixed point replaces."""

from __future__ import annotations

import numpy as np

from pronghorn.onnx.advice import CUT, FLOAT_MODEL
from pronghorn.onnx.lowering import Lowering, Quantised, Value
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

SIGN_KEPT = ("max_pool", "average_pool", "global_average_pool", "reshape", "transpose", "pad", "add", "concat", "take")
"""Operators whose result is not negative where their inputs are not."""

UNBOUNDED = ("exp", "exp_m1", "log", "sqrt")
"""Ends whose results integers may cut off."""

NEARLY_ONE = 0.98
"""Integers up to here cut off nothing of a Sigmoid that matters."""


@operator("QuantizeLinear", "com.microsoft.QuantizeLinear", on_result=True, pointwise=True)
def _quantize(lowering: Lowering, site: Site) -> Value:
    value, found = lowering.value(site), _scale(lowering, site)
    lowering.quantised[site.node.output[0]] = found
    is_inside = lowering.is_within(site)
    finish = lowering.without_sigmoid(value) if is_inside else lowering.finish_of(value)
    if finish in UNBOUNDED:
        name = site.input(0)
        advice = f"end the model before it (--output {name}, output={name!r}), and round the result"
        site.fail("it rounds what the client computes to integers that may not reach as far", advice)
    if finish is not None:
        # The client computes it, in floats.
        return value
    # The quantiser drops a ReLU or Clip where saturation does its work: where the least integer is zero.
    if found.low == 0 and not (_is_nonnegative(lowering, value) or _is_below(lowering, value, found.high)):
        return lowering.clip(site, value, 0.0, found.high)
    return value


@operator("DequantizeLinear", "com.microsoft.DequantizeLinear", on_result=True, pointwise=True)
def _dequantize(lowering: Lowering, site: Site) -> Value:
    value, found = lowering.value(site), _scale(lowering, site)
    before = lowering.quantised.get(site.input(0))
    if before is None:
        return lowering.affine(site, value, found.scale, -found.scale * found.zero)
    # A zero point that is left out tells no kind of integers.
    if (before.scale, before.zero) != (found.scale, found.zero):
        site.fail("its scale or zero point differs from that of the QuantizeLinear before it", FLOAT_MODEL)
    return value


def _scale(lowering: Lowering, site: Site) -> Quantised:
    scale, point = lowering.required(site, 1), lowering.constant(site, 2)
    zero = np.zeros((), np.uint8) if point is None else point
    if scale.size != 1 or scale.item() <= 0 or zero.size != 1 or zero.dtype.kind not in "iu":
        site.fail("its scale or its type is not that of integers with one scale", f"{FLOAT_MODEL}, {CUT}")
    kinds = np.iinfo(zero.dtype)
    return Quantised(scale.item(), zero.item(), kinds.min, kinds.max)


def _is_below(lowering: Lowering, value: Value, most: float) -> bool:
    """Whether a value is a Sigmoid's, and no integer cuts it off."""
    op = lowering.nodes[value.index]["op"]
    return op["kind"] == "function" and op["function"]["name"] == "sigmoid" and most >= NEARLY_ONE


def _is_nonnegative(lowering: Lowering, value: Value) -> bool:
    """Whether a value is never negative, as far as the operators say; inputs keep to the calibrated range."""
    seen, pending = {value.index}, [value.index]
    while pending:
        node = lowering.nodes[pending.pop()]
        op = node["op"]
        if op["kind"] in SIGN_KEPT:
            pending += set(node["inputs"]) - seen
            seen.update(node["inputs"])
        elif op["kind"] not in ("input", "relu", "square") and not (
            op["kind"] == "clip" and op["min"] is not None and op["min"] >= 0
        ):
            return False
    return True
