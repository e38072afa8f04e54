"""Support vector machines, of the domain ai.onnx.ml.

A kernel of a row of features and of each support vector, and sums of these kernels. The kernels are a layer and a
function of it: `exp(-gamma |x - v|^2)` is one of `2 gamma v x - gamma x^2 - gamma v^2`, which is linear in `x` and its
squares. Support vectors are rows that the model was trained on. They are weights of the layer, and no part of a plan.
Its shapes tell how many there are.

Source: the operators' definition, and onnxruntime where it is silent: the signs of a classifier of two classes, and the
order of coefficients, which is that of LIBSVM (Chang and Lin, ACM TIST 2011, section 7).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from pronghorn.onnx.advice import CUT, REPAIR
from pronghorn.onnx.lowering import Array, Lowering, Value
from pronghorn.onnx.operators.arithmetic import MAX_POWER, whole_power
from pronghorn.onnx.operators.shapes import joined
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


@operator("ai.onnx.ml.SVMRegressor")
def _regressor(lowering: Lowering, site: Site) -> Value:
    value, coefficients, rho = _features(lowering, site), _numbers(site, "coefficients"), _numbers(site, "rho")
    if site.integer("one_class", 0):
        site.fail("it gives the sign of its sum", f"export OneClassSVM with its scores, {CUT}")
    if rho.size != 1:
        site.fail(f"it has {rho.size} numbers rho", REPAIR)
    count = site.integer("n_supports", 0)
    if not count:
        # Without support vectors its coefficients are those of the features.
        vectors = np.eye(value.shape[1])
        return _sums(lowering, site, _linear_kernels(lowering, site, value, vectors), coefficients[None], rho)
    vectors = _vectors(site, value, count)
    return _sums(lowering, site, _kernels(lowering, site, value, vectors), coefficients[None], rho)


@operator("ai.onnx.ml.SVMClassifier")
def _classifier(lowering: Lowering, site: Site) -> list[Value | None]:
    """Labels, which are not supported, and scores."""
    value, each = _features(lowering, site), site.integers("vectors_per_class") or []
    lists = (site.attributes.get(name, []) for name in ("classlabels_ints", "classlabels_strings"))
    classes, rho = max(map(len, lists)), _numbers(site, "rho")
    if classes < 2 or len(each) != classes or min(each) < 0:
        site.fail(f"{len(each)} numbers of support vectors do not fit {classes} classes", REPAIR)
    pairs = _pairs(site, each)
    if len(pairs) != rho.size:
        site.fail(f"{rho.size} numbers rho do not fit {len(pairs)} pairs of classes", REPAIR)
    kernels = _kernels(lowering, site, value, _vectors(site, value, sum(each)))
    first, second = (_numbers(site, name) for name in ("prob_a", "prob_b"))
    if first.size == second.size == 0:
        if classes == 2:
            # onnxruntime's columns, and -s is that of the class which is chosen where s is above zero: as scores of
            # classes they come in the other order (endings.py).
            pairs, rho = np.concatenate([-pairs, pairs]), np.concatenate([-rho, rho])
        elif not lowering.is_within(site):
            problem = f"its scores are those of {len(pairs)} pairs of classes, and none tells the class"
            site.fail(problem, "train with decision_function_shape='ovr'")
        return [None, _sums(lowering, site, kernels, pairs, rho)]
    if classes > 2:
        site.fail(
            "its probabilities are computed from those of pairs of classes, step by step",
            "train it without them: SVC() in place of SVC(probability=True)",
        )
    if first.size != 1 or second.size != 1:
        site.fail("prob_a and prob_b have not one number each", REPAIR)
    # Platt's probabilities, `1 / (1 + exp(a s + b))` of the first class: a Softmax of two scores with other signs.
    halves = np.array([[-0.5], [0.5]])
    scores = _sums(lowering, site, kernels, halves * first @ pairs, (halves * (first * rho + second)).reshape(-1))
    if lowering.is_within(site):
        site.fail("the network goes on behind its probabilities", f"take them as output, {CUT}")
    return [None, lowering.emit(site, {"kind": "softmax"}, [scores], scores.inner)]


def _pairs(site: Site, each: list[int]) -> Array:
    """The coefficients of all support vectors for each pair of classes, a row each."""
    count, classes = sum(each), len(each)
    given = _numbers(site, "coefficients")
    if given.size != (classes - 1) * count:
        problem = f"{given.size} coefficients do not fit {count} support vectors of {classes} classes"
        site.fail(problem, REPAIR)
    rows, ends = given.reshape(classes - 1, count), np.cumsum([0, *each])
    found = np.zeros((classes * (classes - 1) // 2, count))
    for pair, (one, other) in zip(found, combinations(range(classes), 2), strict=True):
        of_one, of_other = (slice(ends[at], ends[at + 1]) for at in (one, other))
        pair[of_one], pair[of_other] = rows[other - 1, of_one], rows[one, of_other]
    return found


def _features(lowering: Lowering, site: Site) -> Value:
    """A row of features."""
    value = lowering.value(site)
    if len(value.shape) != 2:
        site.fail(f"it reads a value of shape {value.shape}", "give it rows of features: (batch, features)")
    transform = site.text("post_transform", "NONE")
    if transform != "NONE":
        site.fail(f"post_transform {transform} is not supported", f"export it with NONE, {CUT}")
    return value


def _numbers(site: Site, name: str) -> Array:
    return np.array(site.numbers(name) or [], np.float64)


def _vectors(site: Site, value: Value, count: int) -> Array:
    """The support vectors, a row each."""
    vectors, features = _numbers(site, "support_vectors"), value.shape[1]
    if count < 1 or vectors.size != count * features:
        site.fail(f"{vectors.size} numbers do not fit {count} support vectors of {features} features", REPAIR)
    return vectors.reshape(count, features)


def _sums(lowering: Lowering, site: Site, kernels: Value, coefficients: Array, rho: Array) -> Value:
    """Sums of kernels, times coefficients."""
    if coefficients.shape[1] != kernels.shape[1]:
        problem = f"{coefficients.shape[1]} coefficients do not fit {kernels.shape[1]} support vectors"
        site.fail(problem, REPAIR)
    return lowering.linear(site, kernels, coefficients, rho)


def _kernels(lowering: Lowering, site: Site, value: Value, vectors: Array) -> Value:
    """The kernel of the features and of each vector."""
    kind, parameters = site.text("kernel_type", "LINEAR"), _numbers(site, "kernel_params")
    if kind not in KERNELS:
        site.fail(f"its kernel {kind} is unknown", REPAIR)
    if kind == "LINEAR":
        return _linear_kernels(lowering, site, value, vectors)
    if parameters.size != 3 or not np.isfinite(parameters).all():
        site.fail(f"its kernel {kind} has {parameters.size} parameters", REPAIR)
    gamma, shift, degree = (float(number) for number in parameters)
    if kind == "RBF":
        return _gaussian(lowering, site, value, vectors, gamma)
    product = _linear_kernels(lowering, site, value, gamma * vectors, shift)
    if kind == "SIGMOID":
        return lowering.function(site, product, "tanh")
    if not degree.is_integer() or not 1 <= degree <= MAX_POWER:
        site.fail(f"its degree is {degree:g}", f"train it with a whole degree from 1 to {MAX_POWER}")
    return whole_power(lowering, site, product, int(degree))


def _linear_kernels(lowering: Lowering, site: Site, value: Value, vectors: Array, shift: float = 0.0) -> Value:
    return lowering.linear(site, value, vectors, np.full(len(vectors), shift))


def _gaussian(lowering: Lowering, site: Site, value: Value, vectors: Array, gamma: float) -> Value:
    """`exp(-gamma |x - v|^2)` of each vector `v`. Features count from the middle of the vectors, so that squares are
    small and little cancels."""
    if gamma < 0:
        site.fail(f"its gamma is {gamma:g}", "train it with a positive one")
    middle = vectors.mean(axis=0)
    centred = lowering.affine(site, value, add=-middle)
    both = joined(lowering, site, [centred, lowering.times(site, centred, centred)])
    moved = vectors - middle
    matrix = gamma * np.concatenate([2 * moved, -np.ones_like(moved)], axis=1)
    exponents = lowering.linear(site, both, matrix, -gamma * (moved**2).sum(axis=1))
    return lowering.function(site, exponents, "decay", rate=1.0)
