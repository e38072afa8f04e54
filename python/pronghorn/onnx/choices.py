"""Choices by a comparison that make no jump: `Where(x > t, f(x), g(x))` with `f(t) = g(t)`.

Such a choice is `f(max(x, t)) + g(min(x, t)) - f(t)`: on either side one summand is `f(t)`. A choice between more
pieces is a sum over all of them, each of the value that is clipped to the piece.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from onnx import NodeProto, helper

from pronghorn.onnx.lowering import Array
from pronghorn.onnx.reading import free_name
from pronghorn.onnx.recognition import MOST_NODES, POINTS, POINTWISE, Points, evaluated
from pronghorn.onnx.registry import name_of

LARGER, SMALLER = ("Greater", "GreaterOrEqual"), ("Less", "LessOrEqual")

LOGICAL = ("And", "Not", "Or")

SIDES = ("zero", "above", "opposite")
"""Of a product with a sign."""

Makers = Mapping[str, NodeProto]

Constants = dict[str, Array]

FAR_BELOW: Points = np.array([-30.0])
"""Where an Elu is next to its limit."""

JUMP = 1e-5
"""What rounding makes of a choice without a jump, relative to its values."""


@dataclass(frozen=True)
class Piece:
    """An interval, and the value that is chosen there."""

    low: float
    high: float
    chosen: str


def choice(node: NodeProto, makers: Makers, constants: Constants) -> list[NodeProto] | None:
    """The nodes that make what a Where makes, without a comparison; None where it jumps, or is none of one value.

    Args:
        node: the Where.
        makers: the node that makes each value.
        constants: the model's weights, which constants of the new nodes join.
    """
    if name_of(node) != "Where" or node.input[0] in constants:
        return None
    if (larger := _larger(node, makers)) is not None:
        return [larger]
    compared = list(_comparisons(node.input[0], makers))
    found = [_threshold(each, makers, constants) for each in compared]
    values = {each[0] for each in found if each is not None}
    if None in found or len(values) != 1:
        return None
    (value,) = values
    points = sorted({point for each in found if each is not None for point in each[1]})
    try:
        pieces = _pieces(node, value, points, makers, constants)
        for point in points:
            _refuse_jump_at(point, node, value, pieces, makers, constants)
        rest = -sum(_middle(pair, value, makers, constants) for pair in pairwise(pieces))
        one = _activation(node, value, pieces, makers, constants)
        return [one] if one else _summed(node, value, pieces, rest, makers, constants)
    except (KeyError, ValueError, OverflowError):
        return None  # It is no function of one value, or it jumps.


def signed(node: NodeProto, makers: Makers, constants: Constants) -> list[NodeProto] | None:
    """The nodes that make `sign(x) * f(x)` without a sign; None where it jumps, or is none of one value.

    It is a choice between `f(x)` and `-f(x)`. Exporters write an LpPool as `sign(x) * relu(|x|)`, which is `x`.
    """
    signs = [name for name in node.input if name in makers and name_of(makers[name]) == "Sign"]
    if name_of(node) != "Mul" or len(signs) != 1:
        return None
    (sign,) = signs
    (value,) = makers[sign].input
    magnitude = next(name for name in node.input if name != sign)
    try:
        found = np.sign(POINTS) * _at(magnitude, value, POINTS, makers, constants)
    except (KeyError, ValueError, OverflowError):
        return None
    if np.array_equal(found, POINTS):
        return [helper.make_node("Identity", [value], node.output, name=node.name or node.output[0])]
    zero, above, opposite = (free_name(f"{node.output[0]}/{role}", makers, constants) for role in SIDES)
    own = {
        above: helper.make_node("Greater", [value, zero], [above]),
        opposite: helper.make_node("Neg", [magnitude], [opposite]),
    }
    chosen = helper.make_node("Where", [above, magnitude, opposite], node.output, name=node.name)
    constants[zero] = np.zeros((), np.float32)
    return choice(chosen, {**makers, **own}, constants)


def _larger(node: NodeProto, makers: Makers) -> NodeProto | None:
    """The larger or smaller of two values, chosen by their comparison."""
    compared = makers.get(node.input[0])
    kind = "" if compared is None else name_of(compared)
    if compared is None or kind not in (*LARGER, *SMALLER):
        return None
    both = list(compared.input)
    if list(node.input[1:]) not in (both, both[::-1]):
        return None
    is_larger = (kind in LARGER) == (list(node.input[1:]) == both)
    return helper.make_node("Max" if is_larger else "Min", both, node.output, name=node.name or node.output[0])


def _comparisons(name: str, makers: Makers) -> Iterator[NodeProto | None]:
    """The comparisons that a condition is made of; None for anything else."""
    maker = makers.get(name)
    if maker is not None and name_of(maker) in LOGICAL:
        for each in maker.input:
            yield from _comparisons(each, makers)
    else:
        yield maker if maker is not None and name_of(maker) in (*LARGER, *SMALLER) else None


def _threshold(compared: NodeProto | None, makers: Makers, constants: Constants) -> tuple[str, list[float]] | None:
    """The value that is compared with a number, or whose magnitude is, and where the comparison changes."""
    computed = [] if compared is None else [name for name in compared.input if name not in constants]
    if compared is None or len(computed) != 1:
        return None
    numbers = [constants[name] for name in compared.input if name in constants]
    if len(numbers) != 1 or not is_number(numbers[0]) or not np.isfinite(numbers[0]).all():
        return None
    number, maker = float(numbers[0].reshape(())), makers.get(computed[0])
    if maker is None or name_of(maker) != "Abs":
        return computed[0], [number]
    return maker.input[0], [] if number < 0 else [-number, number] if number else [number]


def _pieces(node: NodeProto, value: str, points: list[float], makers: Makers, constants: Constants) -> list[Piece]:
    """The pieces of a choice, in order; neighbours choose different values."""
    pieces: list[Piece] = []
    for low, high in zip([-math.inf, *points], [*points, math.inf], strict=True):
        inner = np.array([(max(low, high - 2) + min(high, low + 2)) / 2 if points else 0.0])
        holds = bool(_at(node.input[0], value, inner, makers, constants)[0])
        chosen = node.input[1 if holds else 2]
        if pieces and pieces[-1].chosen == chosen:
            low = pieces.pop().low
        pieces.append(Piece(low, high, chosen))
    return pieces


def _refuse_jump_at(
    point: float, node: NodeProto, value: str, pieces: list[Piece], makers: Makers, constants: Constants
) -> None:
    """Refuses another result at a threshold than the pieces have there: `Where(x == 0, -5, x)` as two comparisons.

    Raises:
        ValueError: it jumps there.
    """
    here = np.array([point])
    own = node.input[1 if _at(node.input[0], value, here, makers, constants)[0] else 2]
    piece = next(piece for piece in pieces if piece.low <= point <= piece.high)
    results = [_at(name, value, here, makers, constants)[0] for name in (own, piece.chosen)]
    if _jumps(*results):
        raise ValueError("it jumps")


def _jumps(before: float, after: float) -> bool:
    return not abs(before - after) <= JUMP * max(1.0, abs(before), abs(after))


def is_number(array: Array) -> bool:
    """Whether a constant is one number that does not give values more dimensions."""
    return array.size == 1 and array.ndim <= 2


def _middle(pair: tuple[Piece, Piece], value: str, makers: Makers, constants: Constants) -> float:
    """The result where two pieces meet.

    Raises:
        ValueError: it jumps there.
    """
    before, after = (_at(each.chosen, value, np.array([pair[1].low]), makers, constants)[0] for each in pair)
    if _jumps(before, after):
        raise ValueError("it jumps")
    return float(after)


def _activation(
    node: NodeProto, value: str, pieces: list[Piece], makers: Makers, constants: Constants
) -> NodeProto | None:
    """A Relu, a LeakyRelu or an Elu: two pieces about zero, the upper of which is the value; None of all else."""
    if [piece.low for piece in pieces[1:]] != [0.0] or pieces[1].chosen != value:
        return None
    lower = pieces[0].chosen
    if any(name_of(each) == "Where" for each in _between(lower, value, makers, constants)):
        return None
    points = POINTS[POINTS < 0]
    found, limit = (
        _at(lower, value, points, makers, constants),
        -float(_at(lower, value, FAR_BELOW, makers, constants)[0]),
    )
    slope = float(found[-1] / points[-1])
    kinds = (("LeakyRelu", slope, slope * points), ("Elu", limit, limit * np.expm1(points)))
    for kind, alpha, wanted in kinds:
        if alpha >= 0 and np.allclose(found, wanted, rtol=1e-5, atol=1e-6):
            made = helper.make_node(kind if alpha else "Relu", [value], node.output, name=node.name or node.output[0])
            made.attribute.extend([helper.make_attribute("alpha", alpha)] if alpha else [])
            return made
    return None


def _summed(
    node: NodeProto, value: str, pieces: list[Piece], rest: float, makers: Makers, constants: Constants
) -> list[NodeProto] | None:
    """The sum over all pieces, each of the value that is clipped to it, and over `rest`."""
    name, made, terms = node.name or node.output[0], list[NodeProto](), list[str]()
    for at, piece in enumerate(pieces):
        if piece.chosen in constants:
            rest += float(constants[piece.chosen].reshape(()))
            continue
        prefix = f"{node.output[0]}/piece{at}"
        sides = (("low", piece.low), ("high", piece.high))
        bounds = [_constant(constants, f"{prefix}/{side}", bound) for side, bound in sides]
        made.append(helper.make_node("Clip", [value, *bounds], [prefix], name=name))
        copies = _copies(piece, value, prefix, makers, constants)
        if copies is None:
            return None
        made += copies[0]
        terms.append(copies[1])
    if not terms:
        return None
    total = terms[0]
    for at, term in enumerate(terms[1:]):
        made.append(helper.make_node("Add", [total, term], [f"{node.output[0]}/sum{at}"], name=name))
        total = made[-1].output[0]
    rest_name = _constant(constants, f"{node.output[0]}/rest", rest)
    return [*made, helper.make_node("Add", [total, rest_name], node.output, name=name)]


def _constant(constants: Constants, name: str, number: float) -> str:
    """The name of a constant; empty for a bound that is none."""
    if math.isinf(number):
        return ""
    constants[name] = np.asarray(number, np.float32)
    return name


def _copies(
    piece: Piece, value: str, clipped: str, makers: Makers, constants: Constants
) -> tuple[list[NodeProto], str] | None:
    """The nodes that make what a piece chooses of `clipped` in place of `value`, and the name of their result."""
    names, made, own = {value: clipped}, list[NodeProto](), dict(makers)
    for node in _between(piece.chosen, value, makers, constants):
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [names.get(name, name) for name in node.input]
        if name_of(node) == "Abs" and node.input[0] == value and (piece.low >= 0 or piece.high <= 0):
            copy.op_type = "Identity" if piece.low >= 0 else "Neg"
        copy.output[:] = [f"{clipped}/{name}" for name in node.output]
        names[node.output[0]] = copy.output[0]
        own[copy.output[0]] = copy
        copies = choice(copy, own, constants) if name_of(copy) == "Where" else [copy]
        if copies is None:
            return None
        made += copies
    return made, names[piece.chosen]


def _at(name: str, value: str, points: Points, makers: Makers, constants: Constants) -> Points:
    """A value or a constant at points of another value."""
    if name in constants:
        if not is_number(constants[name]):
            raise ValueError("it is not one number")
        return np.full(points.shape, constants[name].reshape(()), np.float64)
    nodes = _between(name, value, makers, constants)
    return np.broadcast_to(evaluated(nodes, value, points, constants)[name], points.shape)


def _between(name: str, value: str, makers: Makers, constants: Constants) -> list[NodeProto]:
    """The nodes that make a value of another one element by element, in order.

    Raises:
        KeyError: there is another value that it is made of, or another operator.
        ValueError: there are too many of them.
    """
    found: dict[str, NodeProto] = {}

    def add(name: str) -> None:
        if not name or name == value or name in constants or name in found:
            return
        maker = makers[name]
        if name_of(maker) not in POINTWISE:
            raise KeyError(name)
        for each in maker.input:
            add(each)
        found[name] = maker
        if len(found) > MOST_NODES:
            raise ValueError("too many nodes")

    add(name)
    return list(found.values())
