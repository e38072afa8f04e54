"""Products with constant matrices."""

from __future__ import annotations

import math

import numpy as np

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import Floats, Lowering, Value
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site
from pronghorn.onnx.window import Spatial


@operator("Gemm", unbatched=True)
def _gemm(lowering: Lowering, site: Site) -> Value:
    value, matrix = lowering.value(site), lowering.required(site, 1)
    addend = lowering.weights(site, 2)
    if site.integer("transA", 0):
        site.fail("transA is set on the value, whose first dimension is the batch", "export without transA")
    weight = matrix if site.integer("transB", 0) else matrix.T
    if len(value.shape) != 2 or weight.ndim != 2 or weight.shape[1] != value.shape[1]:
        problem = f"a matrix of shape {list(matrix.shape)} does not fit"
        site.fail(problem, "flatten the value to (batch, features) before it")
    alpha = site.number("alpha", 1.0)
    weight = weight if alpha == 1.0 else weight * np.float32(alpha)
    bias = None
    if addend is not None:
        try:
            bias = np.broadcast_to(addend * np.float32(site.number("beta", 1.0)), (1, len(weight))).reshape(-1)
        except ValueError:
            site.fail(f"its C of shape {list(addend.shape)} does not fit (1, {len(weight)})", "repair the model")
    weight = lowering.floats(site, weight, "B")
    return _matmul_last(lowering, site, value, weight, bias)


@operator("MatMul", unbatched=True)
def _matmul(lowering: Lowering, site: Site) -> Value:
    names = site.input(0), site.input(1)
    if all(name in lowering.values for name in names):
        site.fail("a product of two values (as in attention) is not supported", f"use constant weights, {CUT}")
    left = names[0] in lowering.values
    value, matrix = (lowering.value(site, 0 if left else 1), lowering.required(site, 1 if left else 0))
    if matrix.ndim > 2 and all(size == 1 for size in matrix.shape[:-2]) and len(value.shape) >= matrix.ndim:
        matrix = matrix.reshape(matrix.shape[-2:])
    if matrix.ndim == 1 and left and len(value.inner) >= 1 and value.inner[-1] == matrix.shape[0]:
        product = _matmul_last(lowering, site, value, matrix[None, :])
        return lowering.reshape_onnx(site, product, value.shape[:-1], merges=not value.batched)
    if matrix.ndim == 2 and left and len(value.shape) >= 2 and value.shape[-1] == matrix.shape[0]:
        return _matmul_last(lowering, site, value, matrix.T)
    if matrix.ndim == 2 and not left and len(value.shape) == 3 and value.batched and value.shape[1] == matrix.shape[1]:
        return mix(lowering, site, value, matrix)
    problem = f"a matrix of shape {list(matrix.shape)} with a value of shape {list(value.shape)} is not supported"
    site.fail(
        problem,
        "supported are value (..., K) times matrix (K, N) or vector (K), and matrix (M, K) times value (batch, K, P)",
    )


def _matmul_last(lowering: Lowering, site: Site, value: Value, weight: Floats, bias: Floats | None = None) -> Value:
    """A matrix over the last dimension, and a summand for each of its rows: a dense layer, or a 1x1 convolution
    between transpositions."""
    inner = (*value.inner[:-1], weight.shape[0])
    rows, features = math.prod(value.inner[:-1]), value.inner[-1]
    if rows == 1:
        flat = lowering.reshape(site, value, (features,))
        made = lowering.reshape(site, lowering.dense(site, flat, weight, bias), inner)
        return lowering.in_shape_of(value, made)
    columns = lowering.transpose(site, lowering.reshape(site, value, (rows, features)), [1, 0])
    mixed = mix(lowering, site, columns, weight, bias)
    made = lowering.reshape(site, lowering.transpose(site, mixed, [1, 0]), inner)
    return lowering.in_shape_of(value, made)


def mix(lowering: Lowering, site: Site, value: Value, weight: Floats, bias: Floats | None = None) -> Value:
    """`weight (M, K)` times `value (K, P)`, plus `bias (M)`: a 1x1 convolution."""
    features, points = value.inner
    image = lowering.reshape(site, value, (features, 1, points))
    window = Spatial.resolve(kernel=[1, 1], size=[1, points]).window()
    result = lowering.convolve(site, image, window, weight[:, :, None, None], bias)
    return lowering.reshape(site, result, (weight.shape[0], points))
