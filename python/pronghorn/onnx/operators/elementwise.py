"""Activations and normalisations, element by element."""

from __future__ import annotations

import numpy as np

from pronghorn.onnx.lowering import Lowering, Value
from pronghorn.onnx.masks import at_least
from pronghorn.onnx.operators.comparisons import beyond
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site


@operator("Relu", pointwise=True)
def _relu(lowering: Lowering, site: Site) -> Value:
    return lowering.rectified(site, lowering.value(site))


@operator("Clip", pointwise=True)
def _clip(lowering: Lowering, site: Site) -> Value:
    # Those that are made of other nodes have their bounds as inputs.
    if site.opset >= 11 or len(site.node.input) > 1:
        low, high = lowering.scalar(site, 1), lowering.scalar(site, 2)
        made = at_least(lowering, site, 0, low) if high is None else None
        return lowering.clip(site, lowering.value(site), low, high) if made is None else made
    value = lowering.value(site)
    bounds = [float(site.attributes[name]) if name in site.attributes else None for name in ("min", "max")]
    return lowering.clip(site, value, *bounds)


@operator("Shrink", pointwise=True)
def _shrink(lowering: Lowering, site: Site) -> Value:
    """Softshrink, `x - clip(x, -bias, bias)`; with another bias it jumps."""
    value, bound, bias = lowering.value(site), site.number("lambd", 0.5), site.number("bias", 0.0)
    if bound != bias or bound <= 0:
        return beyond(lowering, site, value, bound, bias)
    return lowering.minus(site, value, lowering.clip(site, value, -bound, bound))


@operator("Min", "Max", pointwise=True)
def _min_max(lowering: Lowering, site: Site) -> Value:
    """`max(a, b) = b + relu(a - b)` and `min(a, b) = b - relu(b - a)`, one input after the other."""
    larger = site.node.op_type == "Max"
    names = range(len(site.node.input))
    computed = [at for at in names if site.input(at) in lowering.values]
    if larger and len(names) == 2 and len(computed) == 1 and site.input(computed[0]) in lowering.masks:
        made = at_least(lowering, site, computed[0], lowering.required(site, 1 - computed[0]))
        if made is not None:
            return made
    values = [lowering.value(site, at) for at in computed]
    result = values[0]
    for value in values[1:]:
        if value == result:
            continue
        first, second = (result, value) if larger else (value, result)
        above = lowering.rectified(site, lowering.minus(site, first, second))
        result = lowering.plus(site, value, above) if larger else lowering.minus(site, value, above)
    for position in names:
        if site.input(position) not in lowering.values:
            result = _bounded(lowering, site, result, position, larger)
    return result


def _bounded(lowering: Lowering, site: Site, value: Value, position: int, larger: bool) -> Value:
    """The larger or the smaller of a value and the constant at an input."""
    constant = lowering.constant(site, position)
    if constant is not None and constant.size == 1:
        number = lowering.scalar(site, position)
        return lowering.clip(site, value, number if larger else None, None if larger else number)
    bound = lowering.required(site, position)
    sign = 1.0 if larger else -1.0
    above = lowering.rectified(site, lowering.affine(site, value, sign, -sign * bound))
    return lowering.affine(site, above, sign, bound)


@operator("LeakyRelu", "PRelu", pointwise=True)
def _leaky_relu(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    one = site.node.op_type == "LeakyRelu"
    slopes = np.array(site.number("alpha", 0.01)) if one else lowering.required(site, 1)
    if slopes.size == 0:
        site.fail("it has no slope", "repair the model")
    alpha = float(slopes.flat[0])
    if alpha >= 0 and (slopes == alpha).all():
        return lowering.emit(site, {"kind": "leaky_relu", "alpha": alpha}, [value], value.inner)
    # No circuit has slopes that differ or are negative.
    above, below = lowering.rectified(site, value), lowering.affine(site, value, mul=slopes)
    return lowering.plus(site, lowering.affine(site, above, mul=1.0 - slopes), below)


@operator("Abs", pointwise=True)
def _abs(lowering: Lowering, site: Site) -> Value:
    return magnitude(lowering, site, lowering.value(site))


def magnitude(lowering: Lowering, site: Site, value: Value) -> Value:
    """`|x| = 2 relu(x) - x`."""
    above = lowering.rectified(site, value)
    return lowering.plus(site, lowering.plus(site, above, above), lowering.affine(site, value, mul=-1.0))


@operator("HardSigmoid", pointwise=True)
def _hard_sigmoid(lowering: Lowering, site: Site) -> Value:
    line = lowering.affine(site, lowering.value(site), site.number("alpha", 0.2), site.number("beta", 0.5))
    return lowering.clip(site, line, 0.0, 1.0)


@operator("BatchNormalization", unbatched=True)
def _batch_normalization(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    if site.integer("training_mode", 0) or not site.integer("spatial", 1):
        site.fail("training mode and spatial=0 are not supported", "export the model for inference (model.eval())")
    scale, bias, mean, variance = (lowering.required(site, i).astype(np.float64).reshape(-1) for i in range(1, 5))
    channels = value.shape[1] if len(value.shape) > 1 else 1
    if not scale.size == bias.size == mean.size == variance.size == channels:
        site.fail(f"its constants do not have one value for each of {channels} channels", "repair the model")
    with np.errstate(all="ignore"):
        mul = scale / np.sqrt(variance + site.number("epsilon", 1e-5))
        add = bias - mean * mul
    shape = (1, channels, *[1] * (len(value.shape) - 2))
    return lowering.affine(site, value, mul.reshape(shape), add.reshape(shape))
