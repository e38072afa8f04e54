"""Support vector machines, of the domain ai.onnx.ml.

A kernel of a row of features and of each support vector, and sums of these kernels. The kernels are a layer and a
function of it: `exp(-gamma |x - v|^2)` is one of `2 gamma v x - gamma x^2 - gamma v^2`, which is linear in `x` and its
squares. Support vectors are rows that the model was trained on. They are weights of the layer. A plan tells how many
there are, and the shifts of channels some bits of each.

Source: the operators' definition, and onnxruntime where it is silent: the signs of a classifier of two classes, and the
order of coefficients, which is that of LIBSVM (Chang and Lin, ACM TIST 2011, section 7).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import numpy as np

from pronghorn.onnx.advice import CUT, REPAIR
from pronghorn.onnx.lowering import Array, Lowering, Value
from pronghorn.onnx.operators.arithmetic import MAX_POWER, whole_power
from pronghorn.onnx.operators.shapes import joined
from pronghorn.onnx.operators.tables import MOST_WEIGHTS, classes_of, features
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site


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
        if coefficients.size != value.shape[1]:
            site.fail(f"{coefficients.size} coefficients do not fit {value.shape[1]} features", REPAIR)
        return lowering.linear(site, value, coefficients[None], rho)
    return _decisions(lowering, site, value, _vectors(site, value, count), (coefficients[None], rho))


@operator("ai.onnx.ml.SVMClassifier")
def _classifier(lowering: Lowering, site: Site) -> list[Value | None]:
    """Labels, which are not supported, and scores."""
    value, each = _features(lowering, site), site.integers("vectors_per_class") or []
    classes, rho = classes_of(site), _numbers(site, "rho")
    if classes < 2 or len(each) != classes or min(each) < 0:
        site.fail(f"{len(each)} numbers of support vectors do not fit {classes} classes", REPAIR)
    first, second = (_numbers(site, name) for name in ("prob_a", "prob_b"))
    has_scores = first.size == second.size == 0
    count = classes * (classes - 1) // 2
    if rho.size != count:
        site.fail(f"{rho.size} numbers rho do not fit {count} pairs of classes", REPAIR)
    if classes > 2 and not has_scores:
        site.fail(
            "its probabilities are computed from those of pairs of classes, step by step",
            "train it without them: SVC() in place of SVC(probability=True)",
        )
    if classes > 2 and not lowering.is_within(site):
        problem = f"its scores are those of {count} pairs of classes, and none tells the class"
        site.fail(problem, "train with decision_function_shape='ovr'")
    vectors = _vectors(site, value, sum(each))
    if count * len(vectors) > MOST_WEIGHTS:
        site.fail(f"{count} pairs of classes have too many support vectors, {len(vectors)}", f"train fewer, {CUT}")
    pairs = _pairs(site, each)
    if has_scores:
        if classes == 2 and _is_cut(lowering, site.node.output[1:]):
            site.fail(
                "one against the rest, its column is the score of the rest, so that labels are wrong in the file, too",
                "train SVC() by itself: it tells several classes apart",
            )
        if classes == 2:
            # onnxruntime's columns. Where s is above zero it chooses the first class: scores of classes have the other
            # signs (endings.py).
            pairs, rho = np.concatenate([-pairs, pairs]), np.concatenate([-rho, rho])
        return [None, _decisions(lowering, site, value, vectors, (pairs, rho))]
    if first.size != 1 or second.size != 1:
        site.fail("prob_a and prob_b have not one number each", REPAIR)
    # Platt's probabilities, `1 / (1 + exp(a s + b))` of the first class: a Softmax of two scores with other signs.
    halves = np.array([[-0.5], [0.5]])
    sums = halves * first @ pairs, (halves * (first * rho + second)).reshape(-1)
    scores = _decisions(lowering, site, value, vectors, sums)
    if lowering.is_within(site):
        site.fail("the network goes on behind its probabilities", f"take them as output, {CUT}")
    return [None, lowering.emit(site, {"kind": "softmax"}, [scores], scores.inner)]


def _is_cut(lowering: Lowering, scores: Iterable[str]) -> bool:
    """Whether a Slice takes one column of scores, as skl2onnx writes OneVsRestClassifier."""
    names = set(scores)
    for node in lowering.network:
        if not names.intersection(node.input):
            continue
        if node.op_type == "Slice":
            return True
        if node.op_type in ("Cast", "Identity"):
            names.update(node.output)
    return False


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
    """The features of a machine whose sums are the result as they are."""
    value = features(lowering, site)
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


def _decisions(lowering: Lowering, site: Site, value: Value, vectors: Array, sums: tuple[Array, Array]) -> Value:
    """Sums of kernels times coefficients, plus rho. Of linear kernels they are linear in the features."""
    coefficients, rho = sums
    if coefficients.shape[1] != len(vectors):
        problem = f"{coefficients.shape[1]} coefficients do not fit {len(vectors)} support vectors"
        site.fail(problem, REPAIR)
    if site.text("kernel_type", "LINEAR") == "LINEAR":
        return lowering.linear(site, value, coefficients @ vectors, rho)
    return lowering.linear(site, _kernels(lowering, site, value, vectors), coefficients, rho)


def _kernels(lowering: Lowering, site: Site, value: Value, vectors: Array) -> Value:
    """The kernel of the features and of each vector."""
    kind, parameters = site.text("kernel_type", "LINEAR"), _numbers(site, "kernel_params")
    if kind not in ("POLY", "RBF", "SIGMOID"):
        site.fail(f"its kernel {kind} is unknown", REPAIR)
    if parameters.size != 3 or not np.isfinite(parameters).all():
        site.fail(f"its kernel {kind} has {parameters.size} parameters", REPAIR)
    gamma, shift, degree = (float(number) for number in parameters)
    if kind == "RBF":
        return _gaussian(lowering, site, value, vectors, gamma)
    product = lowering.linear(site, value, gamma * vectors, np.full(len(vectors), shift))
    if kind == "SIGMOID":
        return lowering.function(site, product, "tanh")
    if not degree.is_integer() or not 1 <= degree <= MAX_POWER:
        site.fail(f"its degree is {degree:g}", f"train it with a whole degree from 1 to {MAX_POWER}")
    return whole_power(lowering, site, product, int(degree))


def _gaussian(lowering: Lowering, site: Site, value: Value, vectors: Array, gamma: float) -> Value:
    """`exp(-gamma |x - v|^2)` of each vector `v`."""
    if gamma < 0:
        site.fail(f"its gamma is {gamma:g}", "train it with a positive one")
    exponents = _squared_distances(lowering, site, value, vectors, -gamma)
    return lowering.function(site, exponents, "decay", rate=1.0)


def _squared_distances(lowering: Lowering, site: Site, value: Value, vectors: Array, factor: float) -> Value:
    """`factor |x - v|^2` of each vector `v`. Features count from the middle of the vectors, so that squares are small
    and little cancels."""
    # A number of the graph, so that what is taken off the features and the vectors is the same.
    middle = vectors.mean(axis=0).astype(np.float32).astype(np.float64)
    centred = lowering.affine(site, value, add=-middle)
    both = joined(lowering, site, [centred, lowering.times(site, centred, centred)])
    moved = vectors - middle
    matrix = factor * np.concatenate([-2 * moved, np.ones_like(moved)], axis=1)
    return lowering.linear(site, both, matrix, factor * (moved**2).sum(axis=1))


@operator("com.microsoft.CDist")
def _distances(lowering: Lowering, site: Site) -> Value:
    """The distances to stored rows, `(1, rows)`: of Gaussian processes, and of kernels of several nodes."""
    value, metric = lowering.value(site), site.text("metric", "sqeuclidean")
    rows = lowering.required(site, 1).astype(np.float64)
    if rows.ndim != 2 or len(value.shape) != 2 or rows.shape[1] != value.shape[1] or len(rows) == 0:
        site.fail(f"rows of shape {list(rows.shape)} do not fit features of shape {list(value.shape)}", REPAIR)
    if metric not in ("sqeuclidean", "euclidean"):
        site.fail(f"its metric is {metric}", f"choose euclidean distances, {CUT}")
    squared = _squared_distances(lowering, site, value, rows, 1.0)
    roots = any(node.op_type == "Sqrt" and site.node.output[0] in node.input for node in lowering.network)
    # Next to a stored row rounding may make them negative.
    squared = lowering.rectified(site, squared) if roots or metric == "euclidean" else squared
    return lowering.root(site, squared) if metric == "euclidean" else squared
