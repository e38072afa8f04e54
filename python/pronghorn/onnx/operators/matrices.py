"""Products with constant matrices."""

from __future__ import annotations

import math
import string

import numpy as np

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import Floats, Lowering, Value
from pronghorn.onnx.operators.exponentials import divided
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site
from pronghorn.onnx.window import Spatial

MOST_SUMS = 1 << 12
"""Values that a CumSum sums up, at most: its matrix has the square of them."""

MOST_PRODUCTS = 1 << 26
"""Products of two values that one MatMul may take: a layer of a stock vision transformer has 7 million."""


@operator("Gemm", unbatched=True)
def _gemm(lowering: Lowering, site: Site) -> Value:
    value, matrix = lowering.value(site), lowering.required(site, 1)
    is_computed = site.input(2) in lowering.values
    addend = None if is_computed else lowering.weights(site, 2)
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
    made = matmul_last(lowering, site, value, lowering.floats(site, weight, "B"), bias)
    if not is_computed:
        return made
    # As distances of K-means have it.
    return lowering.plus(site, made, lowering.affine(site, lowering.value(site, 2), mul=site.number("beta", 1.0)))


@operator("CumSum", unbatched=True)
def _cum_sum(lowering: Lowering, site: Site) -> Value:
    """Sums up to each place: a matrix of ones below its diagonal."""
    value = lowering.value(site)
    given = lowering.required(site, 1)
    if given.size != 1:
        site.fail(f"its axis has {given.size} numbers", "repair the model")
    axis = site.axis(int(given.reshape(())), len(value.shape))
    lowering.keeps_images(site, value, [axis])
    count, inner = value.shape[axis], axis - int(value.batched)
    if count > MOST_SUMS:
        site.fail(f"it sums {count} values up", f"at most {MOST_SUMS} are supported, {CUT}")
    sums = np.tril(np.ones((count, count), np.float32), -1 if site.integer("exclusive", 0) else 0)
    order = [*(place for place in range(len(value.inner)) if place != inner), inner]
    last = lowering.transpose(site, Value(value.index, (1, *value.inner)), order)
    made = matmul_last(lowering, site, last, sums.T if site.integer("reverse", 0) else sums)
    return lowering.in_shape_of(value, lowering.transpose(site, made, [order.index(at) for at in range(len(order))]))


@operator("MatMul", unbatched=True)
def _matmul(lowering: Lowering, site: Site) -> Value:
    names = site.input(0), site.input(1)
    if all(name in lowering.values for name in names):
        return _product(lowering, site, lowering.value(site, 0), lowering.value(site, 1))
    left = names[0] in lowering.values
    value, matrix = (lowering.value(site, 0 if left else 1), lowering.required(site, 1 if left else 0))
    if matrix.ndim > 2 and all(size == 1 for size in matrix.shape[:-2]) and len(value.shape) >= matrix.ndim:
        matrix = matrix.reshape(matrix.shape[-2:])
    if matrix.ndim == 1 and left and len(value.inner) >= 1 and value.inner[-1] == matrix.shape[0]:
        product = matmul_last(lowering, site, value, matrix[None, :])
        return lowering.reshape_onnx(site, product, value.shape[:-1], merges=not value.batched)
    if matrix.ndim == 2 and left and len(value.shape) >= 2 and value.shape[-1] == matrix.shape[0]:
        return matmul_last(lowering, site, value, matrix.T)
    if matrix.ndim == 2 and not left and len(value.shape) == 3 and value.batched and value.shape[1] == matrix.shape[1]:
        return mix(lowering, site, value, matrix)
    if len(value.inner) >= 2 and matrix.ndim >= 2:
        outer, size = value.inner[:-2], value.inner[-1 if left else -2]
        extra = max(0, matrix.ndim - 2 - len(outer))
        sizes = matrix.shape[extra:]
        value = _repeated_for(lowering, site, value, sizes[:-2])
        outer = value.inner[:-2]
        are_parts = all(own in (1, part) for own, part in zip(sizes[-3::-1], outer[::-1], strict=False))
        if are_parts and matrix.shape[:extra] in ((), (1,)) and sizes[-2 if left else -1] == size:
            matrices = np.broadcast_to(matrix.reshape(sizes), (*outer, *sizes[-2:])).reshape(-1, *sizes[-2:])
            return _by_parts(lowering, site, value, matrices, left)
    problem = f"a matrix of shape {list(matrix.shape)} with a value of shape {list(value.shape)} is not supported"
    site.fail(
        problem,
        "supported are value (..., M, K) times matrix (K, N), vector (K) or a matrix for each of the dimensions "
        "before, and matrices (M, K) times value (..., K, P)",
    )


def _repeated_for(lowering: Lowering, site: Site, value: Value, parts: tuple[int, ...]) -> Value:
    """A value whose dimensions of size 1 are repeated for a matrix each; `parts`: the dimensions before matrices."""
    outer = value.inner[:-2]
    if not value.batched:
        return value
    for place, size in enumerate(reversed(parts[-len(outer) :] if outer else ())):
        axis = len(outer) - 1 - place
        if size > 1 and value.inner[axis] == 1:
            value = lowering.take(site, value, axis, size, lambda _: 0)
    return value


def _by_parts(lowering: Lowering, site: Site, value: Value, matrices: Floats, left: bool) -> Value:
    """A matrix for each of a value's parts: a 1x1 convolution in groups. `left`: whether the value is the left factor.

    Args:
        value: `(batch, ..., K, P)`, or `(batch, ..., P, K)` on the left.
        matrices: `(parts, M, K)`, or `(parts, K, M)`.
    """
    if not (value.batched or lowering.one_image):
        lowering.refuse_unbatched(site, value)
    *outer, rows, columns = value.inner
    parts = lowering.reshape(site, value, (len(matrices), rows, columns))
    if left:
        parts, matrices = lowering.transpose(site, parts, [0, 2, 1]), matrices.transpose(0, 2, 1)
    _, made, size = matrices.shape
    points = parts.inner[-1]
    flat = lowering.reshape(site, parts, (len(matrices) * size, points))
    mixed = mix(lowering, site, flat, np.ascontiguousarray(matrices).reshape(-1, size))
    mixed = lowering.reshape(site, mixed, (len(matrices), made, points))
    if left:
        mixed = lowering.transpose(site, mixed, [0, 2, 1])
    return lowering.in_shape_of(value, lowering.reshape(site, mixed, (*outer, *mixed.inner[1:])))


@operator("Trilu", unbatched=True)
def _trilu(lowering: Lowering, site: Site) -> Value:
    """The part of matrices above a diagonal, or below it; zeros elsewhere."""
    value, given = lowering.value(site), lowering.integers(site, 1) or [0]
    if len(value.inner) < 2 or len(given) != 1:
        site.fail(
            f"its input of shape {list(value.shape)} has no matrices, or it has no one diagonal", "repair the model"
        )
    ones = np.ones(value.inner[-2:], np.float32)
    kept = np.triu(ones, given[0]) if site.integer("upper", 1) else np.tril(ones, given[0])
    return lowering.in_shape_of(value, lowering.affine(site, Value(value.index, (1, *value.inner)), mul=kept))


@operator("Einsum", unbatched=True)
def _einsum(lowering: Lowering, site: Site) -> Value:
    """A product with one constant matrix, as `bik,kj->bij` is, or of two computed ones, as `bhid,bhjd->bhij`."""
    names = [site.input(at) for at in range(len(site.node.input))]
    computed = [at for at, name in enumerate(names) if name in lowering.values]
    if len(names) != 2:
        site.fail(f"it multiplies {len(names)} values, and two are supported", "multiply two at a time")
    if len(computed) != 1:
        return _einsum_of_two(lowering, site)
    value, constant = lowering.value(site, computed[0]), lowering.required(site, 1 - computed[0])
    left, arrow, result = site.text("equation", "").replace(" ", "").partition("->")
    terms = left.split(",")
    axes, others = (terms[computed[0]], terms[1 - computed[0]]) if len(terms) == 2 else ("", "")
    summed = [axis for axis in axes if axis in others]
    free = [axis for axis in axes if axis not in others]
    made = [axis for axis in others if axis not in axes]
    fits = len(axes) == len(value.shape) and len(others) == constant.ndim
    each_once = all(len(set(term)) == len(term) for term in (axes, others, result))
    if not (arrow and fits and each_once and summed and sorted(result) == sorted([*free, *made])):
        site.fail(
            f"its equation {site.text('equation', '')!r} is no product with a matrix", f"write it with MatMul, {CUT}"
        )
    if not value.batched or axes[0] not in free or result[0] != axes[0]:
        site.fail("the batch is not first in its values, or it sums over the batch", "keep the batch first")
    sizes = dict(zip((*others, *axes), (*constant.shape, *value.shape), strict=True))
    if any(constant.shape[others.index(axis)] != sizes[axis] for axis in summed):
        site.fail(f"a constant of shape {list(constant.shape)} does not fit {list(value.shape)}", "repair the model")
    matrix = constant.transpose([others.index(axis) for axis in (*made, *summed)])
    weight = matrix.reshape(math.prod(sizes[axis] for axis in made), -1)
    order = [axes.index(axis) - 1 for axis in (*free[1:], *summed)]
    last = lowering.transpose(site, value, order)
    rows = [sizes[axis] for axis in free[1:]]
    product = matmul_last(lowering, site, lowering.reshape(site, last, (*rows, weight.shape[1])), weight)
    shaped = lowering.reshape(site, product, (*rows, *(sizes[axis] for axis in made)))
    there = [*free[1:], *made]
    return lowering.transpose(site, shaped, [there.index(axis) for axis in result[1:]])


def _terms(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The dimensions of each factor and of the result; those of an ellipsis have letters of their own."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != len(ranks):
        return [], ""
    dots = {rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "..." in term}
    unused = [letter for letter in string.ascii_letters if letter not in equation]
    letters = "".join(unused[: max(0, *dots, 0)]) if len(dots) == 1 else "..."
    return [term.replace("...", letters) for term in terms], result.replace("...", letters)


def _einsum_of_two(lowering: Lowering, site: Site) -> Value:
    """A product of two computed matrices, for each place of the dimensions that both and the result have."""
    values = [lowering.value(site, at) for at in range(2)]
    equation = site.text("equation", "")
    problem = (
        f"its equation {equation!r} is no product of two matrices with the batch first, whose dimensions are each in "
    )
    problem += "the other factor or the result"
    terms, result = _terms(equation, [len(value.shape) for value in values])
    fits = [len(term) for term in terms] == [len(value.shape) for value in values]
    if not fits or any(len(set(term)) != len(term) for term in (*terms, result)):
        site.fail(problem, f"write it with MatMul, {CUT}")
    sizes: dict[str, int] = {}
    for term, value in zip(terms, values, strict=True):
        for axis, size in zip(term, value.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                site.fail(f"dimension {axis!r} has sizes {sizes[axis]} and {size}", "repair the model")
    both = [axis for axis in terms[0] if axis in terms[1]]
    parts, summed = ([axis for axis in both if (axis in result) == kept] for kept in (True, False))
    free = [[axis for axis in term if axis not in both] for term in terms]
    made = [*parts, *free[0], *free[1]]
    batch_first = all(term[:1] == made[0] for term in (*terms, result)) if parts and result else False
    if not batch_first or not all(value.batched for value in values) or sorted(made) != sorted(result):
        site.fail(problem, f"write it with MatMul, {CUT}")
    outer = parts[1:]

    def matrix(at: int, order: list[list[str]]) -> Value:
        axes = [axis for group in order for axis in group]
        turned = lowering.transpose(site, values[at], [terms[at].index(axis) - 1 for axis in axes])
        return lowering.reshape(site, turned, tuple(math.prod(sizes[axis] for axis in group) for group in order))

    product = _multiplied(lowering, site, matrix(0, [outer, free[0], summed]), matrix(1, [outer, summed, free[1]]))
    shaped = lowering.reshape(site, product, tuple(sizes[axis] for axis in made[1:]))
    return lowering.transpose(site, shaped, [made[1:].index(axis) for axis in result[1:]])


def _product(lowering: Lowering, site: Site, left: Value, right: Value) -> Value:
    """`(batch, ..., M, K)` times `(batch, ..., K, N)`, both computed, as in attention; the dimensions between are
    broadcast."""
    shapes = f"values of shapes {list(left.shape)} and {list(right.shape)}"
    if len(left.inner) != len(right.inner) or len(left.inner) < 2 or left.batched != right.batched:
        site.fail(f"it multiplies {shapes}", "give both the batch first, and one number of dimensions")
    # Heads that are merged with the batch are matrices of their own.
    are_merged = len(left.shape) > 2 and left.shape[0] == right.shape[0]
    if not (left.batched or lowering.one_image or are_merged):
        lowering.refuse_unbatched(site, left)
    fits = all(a == b or 1 in (a, b) for a, b in zip(left.inner[:-2], right.inner[:-2], strict=True))
    if not fits or left.inner[-1] != right.inner[-2]:
        site.fail(f"it multiplies {shapes}, which do not fit", "repair the model")
    outer = np.broadcast_shapes(left.inner[:-2], right.inner[:-2])
    parts = math.prod(outer)

    def matrices(value: Value) -> Value:
        for axis, size in enumerate(outer):
            if value.inner[axis] != size:
                value = lowering.take(site, value, axis, size, lambda _: 0)
        return lowering.reshape(site, value, (parts, *value.inner[-2:]))

    made = _multiplied(lowering, site, matrices(left), matrices(right))
    return lowering.in_shape_of(left, lowering.reshape(site, made, (*outer, *made.inner[1:])))


def _multiplied(lowering: Lowering, site: Site, first: Value, second: Value) -> Value:
    """`(parts, M, K)` times `(parts, K, N)`, batch not counted.

    Shares of a Softmax over K are exponentials over their sum. Where N is below K, exponentials are multiplied, and
    then the results by 1 over the sums: there are fewer of them, and many shares are next to nothing when rounded.
    """
    (parts, rows, inner), columns = first.inner, second.inner[2]
    products = parts * rows * inner * columns
    if products > MOST_PRODUCTS:
        problem = f"it multiplies {rows}x{inner} by {inner}x{columns} numbers {parts} times: {products} products"
        site.fail(problem, f"at most {MOST_PRODUCTS} products of two values are supported: {CUT}")
    factors = [first, second]
    for at, axis, others in ((0, 2, columns), (1, 1, rows)):
        found = divided(lowering, site, factors[at], axis) if others < inner else None
        if found is not None:
            factors[at], by = found
            product = lowering.emit(site, {"kind": "mat_mul"}, factors, (parts, rows, columns))
            return lowering.times(site, product, by)
    return lowering.emit(site, {"kind": "mat_mul"}, factors, (parts, rows, columns))


def matmul_last(lowering: Lowering, site: Site, value: Value, weight: Floats, bias: Floats | None = None) -> Value:
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
    """`weight (M, K)` times `value (K, P)`, plus `bias (M)`: a 1x1 convolution; in groups of K, where there are more
    features."""
    features, points = value.inner
    image = lowering.reshape(site, value, (features, 1, points))
    window = Spatial.resolve(kernel=[1, 1], size=[1, points]).window()
    groups = features // weight.shape[1]
    result = lowering.convolve(site, image, window, weight[:, :, None, None], bias, groups)
    return lowering.reshape(site, result, (weight.shape[0], points))
