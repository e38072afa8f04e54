"""Smooth functions of one value."""

from __future__ import annotations

from pronghorn.onnx.lowering import Lowering, Value
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

PLAIN = {
    "Atan": "atan",
    "Cos": "cos",
    "Erf": "erf",
    "HardSwish": "hard_swish",
    "Mish": "mish",
    "Sin": "sin",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Tanh": "tanh",
}
"""Functions without parameters."""

LEAST, MOST = 1 / 8, 8.0
"""The bounds of parameters: products of two are within those of `function.rs`."""


@operator(*PLAIN, pointwise=True)
def _plain(lowering: Lowering, site: Site) -> Value:
    return lowering.function(site, lowering.value(site), PLAIN[site.operator])


@operator("Reciprocal", pointwise=True)
def _reciprocal(lowering: Lowering, site: Site) -> Value:
    return lowering.reciprocal(site, lowering.value(site))


@operator("Swish", pointwise=True)
def _swish(lowering: Lowering, site: Site) -> Value:
    return lowering.function(site, lowering.value(site), "swish", beta=_parameter(site, "alpha", 1.0))


@operator("Gelu", pointwise=True)
def _gelu(lowering: Lowering, site: Site) -> Value:
    kinds = {"none": "gelu", "tanh": "gelu_tanh"}
    kind = site.text("approximate", "none")
    if kind not in kinds:
        site.fail(f"its approximation {kind!r} is not known", "use none or tanh")
    return lowering.function(site, lowering.value(site), kinds[kind])


@operator("Elu", pointwise=True)
def _elu(lowering: Lowering, site: Site) -> Value:
    return lowering.function(site, lowering.value(site), "elu", scale=_parameter(site, "alpha", 1.0, 0.0), width=1.0)


@operator("Celu", pointwise=True)
def _celu(lowering: Lowering, site: Site) -> Value:
    alpha = _parameter(site, "alpha", 1.0)
    return lowering.function(site, lowering.value(site), "elu", scale=alpha, width=alpha)


@operator("Selu", pointwise=True)
def _selu(lowering: Lowering, site: Site) -> Value:
    """With the slope before it, where a layer takes it up."""
    alpha = _parameter(site, "alpha", 1.67326319217681884765625, 0.0)
    slope = _parameter(site, "gamma", 1.05070102214813232421875)
    line = lowering.affine(site, lowering.value(site), mul=slope)
    return lowering.function(site, line, "elu", scale=alpha * slope, width=slope)


def _parameter(site: Site, name: str, default: float, least: float = LEAST) -> float:
    """A float attribute for which there is a table."""
    value = site.number(name, default)
    if not least <= value <= MOST:
        site.fail(f"its {name} is {value:g}", f"make it a number from {least:g} to {MOST:g}")
    return value
