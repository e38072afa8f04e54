"""The operators of scikit-learn's models, of the domain ai.onnx.ml."""

from __future__ import annotations

import math

import numpy as np

from pronghorn.onnx.advice import CUT, REPAIR
from pronghorn.onnx.class_names import ATTRIBUTES
from pronghorn.onnx.lowering import Array, Lowering, Value
from pronghorn.onnx.operators.exponentials import softmax_within
from pronghorn.onnx.operators.finish import may_be_zero, shares
from pronghorn.onnx.operators.normalisations import of_sum_one, of_unit_length
from pronghorn.onnx.operators.shapes import joined
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

MOST_WEIGHTS = 1 << 27
"""Weights of a layer of an ensemble or of support vectors, at most."""


def features(lowering: Lowering, site: Site) -> Value:
    """A row of features."""
    value = lowering.value(site)
    if len(value.shape) != 2:
        site.fail(f"it reads a value of shape {value.shape}", "give it rows of features: (batch, features)")
    return value


def classes_of(site: Site) -> int:
    """How many classes a classifier names."""
    return max(len(site.attributes.get(name, [])) for name in ATTRIBUTES)


@operator("ai.onnx.ml.Scaler")
def _scaler(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    offset, scale = (np.array(site.numbers(name) or [neutral]) for name, neutral in (("offset", 0.0), ("scale", 1.0)))
    return lowering.affine(site, lowering.affine(site, value, add=-offset), mul=scale)


@operator("ai.onnx.ml.FeatureVectorizer")
def _feature_vectorizer(lowering: Lowering, site: Site) -> Value:
    return joined(lowering, site, [lowering.value(site, position) for position in range(len(site.node.input))])


@operator("ai.onnx.ml.Imputer")
def _imputer(lowering: Lowering, site: Site) -> Value:
    """Nothing: a value that is missing is NaN, which no client sends."""
    replaced = site.attributes.get("replaced_value_float", math.nan)
    if "replaced_value_int64" in site.attributes or not math.isnan(replaced):
        site.fail(
            "it fills in values that have a number of their own, as a comparison that jumps",
            "mark missing values as NaN (SimpleImputer(missing_values=numpy.nan)), and fill them in before sending",
        )
    return lowering.value(site)


@operator("ai.onnx.ml.LinearRegressor")
def _linear_regressor(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    if site.text("post_transform", "NONE") != "NONE":
        site.fail("post_transform is not NONE", "export the regression without it")
    return lowering.linear(site, value, *_coefficients(site, value, site.integer("targets", 1)))


@operator("ai.onnx.ml.LinearClassifier")
def _linear_classifier(lowering: Lowering, site: Site) -> list[Value | None]:
    """Labels, which are not supported, and scores."""
    value, transform = lowering.value(site), site.text("post_transform", "NONE")
    classes = classes_of(site)
    matrix, bias = _coefficients(site, value, len(site.numbers("intercepts") or []) or classes)
    if len(matrix) == 1 and classes == 2:
        # The standard leaves the first column open; onnxruntime gives these.
        matrix = np.concatenate([-matrix, matrix])
        bias = np.concatenate([(0.0 if transform == "LOGISTIC" else 1.0) - bias, bias])
        transform = "" if transform == "SOFTMAX" else transform
    if transform not in ("NONE", "SOFTMAX", "LOGISTIC"):
        problem = f"post_transform {site.text('post_transform', '')} with {classes} classes is not supported"
        site.fail(problem, f"use NONE, SOFTMAX or LOGISTIC, {CUT}")
    if transform == "LOGISTIC" and _is_opposite(matrix) and _is_opposite(bias):
        # Two probabilities that add up to 1.
        transform, matrix, bias = "SOFTMAX", matrix / 2, bias / 2
    scores = lowering.linear(site, value, matrix, bias)
    if transform == "SOFTMAX" and lowering.is_within(site):
        return [None, softmax_within(lowering, site, (scores, None), 1)]
    finish = {"SOFTMAX": "softmax", "LOGISTIC": "sigmoid"}.get(transform)
    return [None, scores if finish is None else lowering.emit(site, {"kind": finish}, [scores], scores.inner)]


@operator("ai.onnx.ml.Normalizer", on_result=True)
def _normalizer(lowering: Lowering, site: Site) -> Value:
    value, norm = lowering.value(site), site.text("norm", "MAX")
    finish = lowering.finish_of(value)
    if norm == "L1" and len(value.shape) == 2 and (finish == "softmax" or value.index in lowering.shares):
        return value  # Its sum is 1 already.
    if norm == "L2" and finish is None and len(value.shape) == 2:
        return of_unit_length(lowering, site, value, 1)
    if norm == "L1" and finish == "sigmoid" and (scores := _opposite_scores(lowering, value)) is not None:
        halves = lowering.affine(site, scores, mul=0.5)
        return lowering.emit(site, {"kind": "softmax"}, [halves], halves.inner)
    are_shares = site.integer("equal", 0) or not may_be_zero(lowering, value)
    if norm == "L1" and len(value.shape) == 2 and are_shares and not lowering.is_within(site):
        return shares(lowering, site, value)
    # Of zeros shares may be equal.
    divides = norm == "L1" and not (site.integer("equal", 0) and may_be_zero(lowering, value))
    if divides and len(value.shape) == 2 and lowering.without_sigmoid(value) is None:
        return of_sum_one(lowering, site, value, 1)
    problem = f"it divides each row by its norm ({norm}), which is not supported"
    if value.index == 0:
        site.fail(problem, "normalise before sending, and export the model without it")
    if finish is None:
        site.fail(problem, f"train without it, {CUT}")
    name = site.input(0)
    divide = "divide each row by its sum" if norm == "L1" else "divide each row by its norm"
    site.fail(problem, f"end the model before it (--output {name}, output={name!r}), and {divide}")


def _opposite_scores(lowering: Lowering, value: Value) -> Value | None:
    """The two scores before a Sigmoid, if one is exactly the other's negative: then the probabilities add up to 1."""
    made = lowering.nodes[value.index]
    if made["op"]["kind"] != "sigmoid" or value.shape != (1, 2):
        return None
    (scores,) = made["inputs"]
    node = lowering.nodes[scores]
    while node["op"]["kind"] == "affine":
        mul, add = (lowering.tensors.get(node["op"][role]) for role in ("mul", "add"))
        if (mul is not None and mul.size > 1) or (add is not None and not _is_opposite(add)):
            return None
        node = lowering.nodes[node["inputs"][0]]
    parts = [lowering.tensors.get(node["op"].get(role)) for role in ("weight", "bias")]
    opposite = node["op"]["kind"] == "dense" and all(part is None or _is_opposite(part) for part in parts)
    return Value(scores, value.shape) if opposite else None


def _is_opposite(rows: Array) -> bool:
    """Whether there are two rows, one exactly the other's negative."""
    return len(rows) == 2 and bool((rows[0] == -rows[1]).all())


@operator("ai.onnx.ml.ArrayFeatureExtractor", on_result=True)
def _array_feature_extractor(lowering: Lowering, site: Site) -> Value:
    """The label of a class, which must be its number. Columns of a value are a Gather (rewriting.py)."""
    if site.input(0) in lowering.values:
        site.fail("it chooses columns by numbers that are not constant", f"choose after the model, {CUT}")
    classes, value = lowering.constant(site, 0), lowering.value(site, 1)
    numbered = classes is not None and np.array_equal(classes.reshape(-1), np.arange(classes.size))
    if not numbered or lowering.finish_of(value) != "arg_max":
        site.fail(
            "it looks a label up", "take the probabilities as output (--output NAME, output=NAME): column k is class k"
        )
    return value


def _coefficients(site: Site, value: Value, rows: int) -> tuple[Array, Array]:
    """The matrix `(rows, features)` and the bias `(rows)` of a linear model."""
    coefficients, intercepts = (np.array(site.numbers(name) or []) for name in ("coefficients", "intercepts"))
    features = value.shape[-1] if len(value.shape) == 2 else 0
    if rows < 1 or features < 1 or coefficients.size != rows * features or intercepts.size not in (0, rows):
        problem = f"{coefficients.size} coefficients and {intercepts.size} intercepts do not fit {rows} rows"
        site.fail(f"{problem} of {features} features", REPAIR)
    return coefficients.reshape(rows, features), intercepts if intercepts.size else np.zeros(rows)
