"""The rotation-free paper publishes small filters; the coefficient engine does not (SECURITY.md).

A published polynomial `p = f a + e` is LWE with as many unknowns as the filter `f` has coefficients, whose places are
public. For few of them LLL alone finds the filter. The same attack is run on what the paper's server publishes, on what
ours does, and on ours without the summand `u a_0` that hides it: the first and the last fall.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import pronghorn
from pronghorn_bench import _core
from pronghorn_bench.compiled import compile_in_core

DEGREE = 1 << 13
MODULUS = (1 << 104) - 17
DELTA = 1 << 40
WIDTH = 32
FILTER = 3
DEVIATION = 3.24


class Samples(NamedTuple):
    """Of LWE: row after row of known coefficients, and the noisy products with the unknowns."""

    modulus: int
    rows: list[list[int]]
    values: list[int]
    largest: float
    """Typical size of an unknown."""
    error: float
    """Of an error."""


def lll(basis: list[list[int]]) -> None:
    """Reduces a basis where it stands, delta 3/4.

    The integral algorithm: Cohen, A Course in Computational Algebraic Number Theory, 2.6.7.
    """
    size = len(basis)
    dot = [[0] * size for _ in range(size)]
    minors = [1] + [0] * size
    orthogonalised, at = 0, 0

    def orthogonalise(k: int) -> None:
        for j in range(k + 1):
            value = sum(x * y for x, y in zip(basis[k], basis[j], strict=True))
            for i in range(j):
                value = (minors[i + 1] * value - dot[k][i] * dot[j][i]) // minors[i]
            dot[k][j] = value
        minors[k + 1] = dot[k][k]

    def reduce(k: int, against: int) -> None:
        divisor = minors[against + 1]
        if 2 * abs(dot[k][against]) <= divisor:
            return
        times = (2 * dot[k][against] + divisor) // (2 * divisor)
        basis[k] = [x - times * y for x, y in zip(basis[k], basis[against], strict=True)]
        dot[k][against] -= times * divisor
        for i in range(against):
            dot[k][i] -= times * dot[against][i]

    def swap(k: int) -> None:
        basis[k], basis[k - 1] = basis[k - 1], basis[k]
        for j in range(k - 1):
            dot[k][j], dot[k - 1][j] = dot[k - 1][j], dot[k][j]
        shared, before, after, last = dot[k][k - 1], minors[k - 1], minors[k], minors[k + 1]
        new = (before * last + shared * shared) // after
        for i in range(k + 1, orthogonalised + 1):
            old = dot[i][k]
            dot[i][k] = (last * dot[i][k - 1] - shared * old) // after
            dot[i][k - 1] = (new * old + shared * dot[i][k]) // last
        minors[k] = new

    orthogonalise(0)
    at = 1
    while at < size:
        if at > orthogonalised:
            orthogonalised = at
            orthogonalise(at)
        reduce(at, at - 1)
        if 4 * (minors[at + 1] * minors[at - 1] + dot[at][at - 1] ** 2) < 3 * minors[at] ** 2:
            swap(at)
            at = max(at - 1, 1)
        else:
            for against in range(at - 2, -1, -1):
                reduce(at, against)
            at += 1


def attack(samples: Samples) -> list[int] | None:
    """The unknowns, by Kannan's embedding: a short vector `(errors, unknowns, scale)`. None where there is none."""
    count, unknowns = len(samples.values), len(samples.rows[0])
    size = count + unknowns + 1
    # Errors and unknowns are made equally large.
    of_errors = max(1, round(samples.largest / samples.error))
    of_unknowns = max(1, round(samples.error / samples.largest))
    scale = max(1, round(of_errors * samples.error))
    basis = [[0] * size for _ in range(size)]
    for sample in range(count):
        basis[sample][sample] = of_errors * samples.modulus
        basis[-1][sample] = of_errors * samples.values[sample]
        for unknown in range(unknowns):
            basis[count + unknown][sample] = of_errors * samples.rows[sample][unknown]
    for unknown in range(unknowns):
        basis[count + unknown][count + unknown] = of_unknowns
    basis[-1][-1] = scale
    lll(basis)
    for vector in basis:
        if abs(vector[-1]) == scale:
            sign = -1 if vector[-1] == scale else 1
            return [sign * value // of_unknowns for value in vector[count:-1]]
    return None


def coefficient(a: list[int], power: int, place: int, degree: int) -> int:
    """Of `X^place` in `X^power a`, negacyclic; `power` may be negative."""
    turns, at = divmod(place - power, degree)
    return a[at] if turns % 2 == 0 else -a[at]


def paper(seed: int) -> tuple[Samples, list[int]]:
    """What the paper's server publishes of a 3 x 3 filter of one channel, at its parameters; and the filter."""
    generator = random.Random(seed)
    places = [i * WIDTH + j for i in range(FILTER) for j in range(FILTER)]
    weights = [generator.randint(-DELTA, DELTA) for _ in places]
    a = [generator.randrange(MODULUS) for _ in range(DEGREE)]
    rows = [[coefficient(a, place, at, DEGREE) for place in places] for at in range(len(places) + 3)]
    values = [
        (sum(w * x for w, x in zip(weights, row, strict=True)) + round(generator.gauss(0, 3.2) * DELTA)) % MODULUS
        for row in rows
    ]
    return Samples(MODULUS, rows, values, DELTA / 3**0.5, 3.2 * DELTA), weights


def noise(generator: random.Random, dropped: int) -> int:
    """An error, and what rounding leaves."""
    return round(generator.gauss(0, DEVIATION)) + generator.randint(-dropped, dropped)


def ours() -> tuple[Samples, Samples, list[int]]:
    """What our server publishes of such a filter; the same without what hides it; and the filter."""
    weights = np.random.default_rng(3).normal(size=(1, 1, FILTER, FILTER)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[FILTER] * 2, pads=[1] * 4)],
        "filter",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, WIDTH, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, WIDTH, WIDTH])],
        [numpy_helper.from_array(weights, "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    # Bits of weights and inputs for which the planner takes a modulus of 64-bit words.
    model = pronghorn.load(proto, weight_bits=12, input_bits=16)
    compiled = compile_in_core(model, "two-party", engine="coefficient")
    found = _core.RotationFreeBench(compiled, 1).sample(1)
    degree, modulus, a = found["degree"], found["modulus"], found["a"]
    exponents, secret = (list(values) for values in zip(*found["weights"], strict=True))
    assert len(secret) == FILTER * FILTER
    assert any(secret)
    # Bits that are not sent are noise too.
    dropped = 1 << found["dropped_bits"] >> 1
    deviation = float(np.sqrt(DEVIATION**2 + dropped**2 / 3))
    rows = [[coefficient(a, -power, at, degree) for power in exponents] for at in range(2 * len(secret))]
    values = found["published"][: len(rows)]
    largest = float(np.sqrt(np.mean(np.square(secret))))
    generator = random.Random(4)
    bare = [
        (sum(w * x for w, x in zip(secret, row, strict=True)) + noise(generator, dropped)) % modulus for row in rows
    ]
    hidden = Samples(modulus, rows, values, largest, deviation)
    return hidden, hidden._replace(values=bare), secret


def test_the_papers_filters_are_recovered() -> None:
    samples, weights = paper(1)
    assert attack(samples) == weights


def test_ours_are_not() -> None:
    hidden, bare, weights = ours()
    assert attack(bare) == weights, "the attack works where nothing hides the filter"
    assert attack(hidden) != weights


def test_lattices_are_reduced() -> None:
    basis = [[1, 1, 1], [-1, 0, 2], [3, 5, 6]]
    lll(basis)
    assert sorted(sum(x * x for x in row) for row in basis) == [1, 2, 5]
