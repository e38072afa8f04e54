"""Activations and normalisations, element by element."""

from __future__ import annotations

import numpy as np

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import Lowering, Value
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site


@operator("Relu")
def _relu(lowering: Lowering, site: Site) -> Value:
    return _rectified(lowering, site, lowering.value(site))


@operator("Clip")
def _clip(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    if site.opset >= 11:
        return lowering.clip(site, value, lowering.scalar(site, 1), lowering.scalar(site, 2))
    bounds = [float(site.attributes[name]) if name in site.attributes else None for name in ("min", "max")]
    return lowering.clip(site, value, *bounds)


@operator("Min", "Max")
def _min_max(lowering: Lowering, site: Site) -> Value:
    names = list(site.node.input)
    data = [i for i, name in enumerate(names) if name in lowering.values]
    if len(data) != 1 or len(names) != 2:
        site.fail("only one value with one constant is supported", f"use Relu, Clip or MaxPool, {CUT}")
    bound = lowering.scalar(site, 1 - data[0])
    value = lowering.value(site, data[0])
    minimum = site.node.op_type == "Min"
    return lowering.clip(site, value, None if minimum else bound, bound if minimum else None)


@operator("LeakyRelu", "PRelu")
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
    above, below = _rectified(lowering, site, value), lowering.affine(site, value, mul=slopes)
    return _plus(lowering, site, lowering.affine(site, above, mul=1.0 - slopes), below)


@operator("Abs")
def _abs(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    above = _rectified(lowering, site, value)
    return _plus(lowering, site, _plus(lowering, site, above, above), lowering.affine(site, value, mul=-1.0))


@operator("HardSigmoid")
def _hard_sigmoid(lowering: Lowering, site: Site) -> Value:
    line = lowering.affine(site, lowering.value(site), site.number("alpha", 0.2), site.number("beta", 0.5))
    return lowering.clip(site, line, 0.0, 1.0)


def _rectified(lowering: Lowering, site: Site, value: Value) -> Value:
    return lowering.emit(site, {"kind": "relu"}, [value], value.inner)


def _plus(lowering: Lowering, site: Site, left: Value, right: Value) -> Value:
    return lowering.emit(site, {"kind": "add"}, [left, right], left.inner)


@operator("BatchNormalization")
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
