"""Convolutions."""

from __future__ import annotations

from pronghorn.onnx.lowering import Lowering, Value
from pronghorn.onnx.operators.images import as_image, like, spatial_of
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site


@operator("Conv")
def _conv(lowering: Lowering, site: Site) -> Value:
    value, weight, bias = (lowering.value(site), lowering.required(site, 1), lowering.weights(site, 2))
    image = as_image(lowering, site, value)
    channels, groups = image.inner[0], site.integer("group", 1)
    if weight.ndim != len(value.shape) or groups < 1 or weight.shape[1] * groups != channels:
        problem = f"weights of shape {list(weight.shape)} in {groups} groups do not fit {channels} channels"
        site.fail(problem, "repair or export the model again")
    if site.integers("kernel_shape") not in (None, list(weight.shape[2:])):
        site.fail("kernel_shape differs from the shape of the weights", "repair or export the model again")
    spatial = spatial_of(site, weight.shape[2:], value.shape[2:])
    if weight.ndim == 3:
        weight = weight[:, :, None, :]
    bias = None if bias is None else bias.reshape(-1)
    result = lowering.convolve(site, image, spatial.window(), weight, bias, groups)
    return like(lowering, site, result, len(value.shape))
