"""Whole numbers of a file: counts, of which comparisons and look-ups are exact, and those that it cuts off.

A count is a sum of truths, or follows from one, or from categories alone. It is followed by names, as types are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, TensorProto, numpy_helper

from pronghorn.onnx.lowering import Array
from pronghorn.onnx.masks import MOVING
from pronghorn.onnx.registry import COUNTED_TYPES, OF_TRUTHS, name_of

COUNTING = (
    *(*MOVING, "Abs", "Add", "Clip", "Concat", "CumSum", "Max", "Min", "Mul", "Neg"),
    *("ReduceMax", "ReduceMin", "ReduceSum", "Sub", "Sum", "Where"),
)
"""Operators that make whole numbers of such, in whatever type has room for them."""

NATURAL = tuple(kind for kind in COUNTING if kind not in ("Neg", "Sub"))
"""Those that make no negative ones of others."""


@dataclass(frozen=True)
class Given:
    """The kinds, in the file, of the inputs and of the values that follow from them by categories."""

    whole: Collection[str]
    """Whole numbers that follow from other inputs, too."""
    counts: Collection[str]
    """Whole numbers that follow from categories alone."""
    truths: Collection[str]


def counts_of(nodes: Sequence[NodeProto], given: Given, constants: Mapping[str, Array]) -> tuple[set[str], set[str]]:
    """The counts of a model, and those of them that are not negative."""
    sources, numbers = {*given.counts, *_counts(nodes, given.truths)}, {**_filled(nodes, constants), **constants}
    counts = integers(nodes, sources, numbers, COUNTING)
    natural = {*sources, *_kept_from_below(nodes, counts, numbers)}
    return counts, integers(nodes, natural, numbers, NATURAL, least=0)


def integers(
    nodes: Iterable[NodeProto],
    sources: Iterable[str],
    constants: Mapping[str, Array],
    operators: Container[str] = (),
    least: float = -math.inf,
) -> set[str]:
    """The values that are whole numbers, as these are, up to a Cast to others or a DequantizeLinear.

    Args:
        nodes: the nodes, in order.
        sources: the values that are known to be.
        constants: the constants.
        operators: those that are followed; all, if empty.
        least: the least number that constants on the way may have.
    """
    found = set(sources)
    for node in nodes:
        # A condition chooses, and its kind is no other's.
        read = [name for name in node.input[node.op_type == "Where" :] if name]
        computed = [name for name in read if name not in constants]
        known = [constants[name] for name in read if name in constants]
        fits = all(each.dtype.kind != "f" and (each.dtype.kind not in "iu" or (each >= least).all()) for each in known)
        is_cast = node.op_type == "Cast" and _cast_to(node) not in COUNTED_TYPES
        ends = is_cast or node.op_type in ("DequantizeLinear", *OF_TRUTHS)
        if operators:
            ends = ends or name_of(node) not in operators
        if not ends and fits and computed and found.issuperset(computed):
            found.update(node.output)
    return found


def _filled(nodes: Iterable[NodeProto], constants: Mapping[str, Array]) -> dict[str, Array]:
    """The numbers that constants of shapes that are not known yet are filled with."""
    filled = dict[str, Array]()
    for node in nodes:
        if node.op_type == "ConstantOfShape":
            values = [numpy_helper.to_array(each.t) for each in node.attribute if each.name == "value"]
            filled[node.output[0]] = values[0] if values else np.zeros(1, np.float32)
        elif node.op_type == "Expand" and node.input[0] in constants:
            filled[node.output[0]] = constants[node.input[0]]
    return filled


def _kept_from_below(nodes: Iterable[NodeProto], counts: Container[str], constants: Mapping[str, Array]) -> set[str]:
    """Counts that a Clip keeps from negative ones."""
    clips = [node for node in nodes if node.op_type == "Clip" and node.input[0] in counts and len(node.input) > 1]
    return {node.output[0] for node in clips if (constants.get(node.input[1], np.full(1, -1)) >= 0).all()}


def _counts(nodes: Iterable[NodeProto], truths: Iterable[str]) -> set[str]:
    """What Casts to whole numbers make of truths: of these, and of those that nodes make."""
    told, found = set(truths), set[str]()
    for node in nodes:
        is_moved = node.op_type in MOVING and node.input[0] in told
        if is_moved or node.op_type in OF_TRUTHS or _cast_to(node) == TensorProto.BOOL:
            told.update(node.output)
        if is_moved and _cast_to(node) in COUNTED_TYPES:
            found.add(node.output[0])
    return found


def _cast_to(node: NodeProto) -> int:
    """The type that a Cast makes; 0 of other nodes."""
    return next((each.i for each in node.attribute if node.op_type == "Cast" and each.name == "to"), 0)
