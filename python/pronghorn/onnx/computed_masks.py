"""Masks that are computed from the input, as the padding of a text is: numbers far below zero that are added to scores.

The file's numbers leave fixed point no digits beside them. So they are numbers whose exponential is nothing beside
others. Constant masks are others (masks.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from onnx import NodeProto

from pronghorn.onnx.lowering import Array
from pronghorn.onnx.masks import CHANGING, MASKED, MOVING, READERS
from pronghorn.onnx.reading import names_read
from pronghorn.onnx.registry import OF_SHAPES, name_of

LEFT_OUT = -100.0
"""The number in the place of a mask's in files: `exp(-100)` is 4e-44."""


def masking(nodes: Iterable[NodeProto], outputs: Iterable[str], constants: Mapping[str, Array]) -> dict[str, float]:
    """The values that a Softmax or the like alone reads, as they are or changed as masks are: what they are multiplied
    by on the way."""
    found = dict[str, float | None](dict.fromkeys(outputs))
    for node in reversed([node for node in nodes if node.op_type not in OF_SHAPES]):
        kind, behind = name_of(node), [found[name] for name in node.output if name in found]
        factor = None if None in behind else min((each for each in behind if each is not None), default=1.0)
        if kind in READERS:
            # Scores of classes may differ by more than a mask's number here, and masked logarithms are seen.
            factor = None if kind in ("ArgMax", "LogSoftmax") else 1.0
        elif kind in ("Mul", "Div"):
            factor = _scaled(node, constants, factor)
        elif kind not in (*MOVING, *CHANGING) or kind == "Neg":
            factor = None
        for name in names_read(node) - set(constants):
            others = found.get(name, factor)
            found[name] = None if factor is None or others is None else min(factor, others)
    return {name: factor for name, factor in found.items() if factor is not None}


def _scaled(node: NodeProto, constants: Mapping[str, Array], factor: float | None) -> float | None:
    """A factor times the least of a product or a quotient; None where that is no number above zero."""
    divides, number = node.op_type == "Div", constants.get(node.input[1])
    number = number if number is not None or divides else constants.get(node.input[0])
    if factor is None or number is None or number.size == 0 or not (number > 0).all():
        return None
    return factor / float(number.max()) if divides else factor * float(number.min())


def bounded(tables: Array, factor: float) -> Array:
    """Tables of a mask that is added to scores, which are multiplied by a factor behind it, in numbers that a network
    computes with: what is left out is so little that its exponential is nothing beside others."""
    masked = left_out(tables, factor)
    if not masked.any() or masked.all():
        return tables
    return np.where(masked, below(tables[~masked], factor), tables)


def below(kept: Array, factor: float) -> float:
    """What leaves places out beside numbers that are added to others, where both are multiplied by a factor."""
    return float(kept.min()) + LEFT_OUT / min(1.0, factor)


def is_mask(number: Array | None, factor: float) -> bool:
    """Whether all of a constant masks places of scores that are multiplied by a factor."""
    return number is not None and bool(left_out(number, factor).all())


def left_out(numbers: Array, factor: float) -> Array:
    """Which of the numbers that are added to scores leave these out, where both are multiplied by a factor."""
    return np.asarray(numbers * min(1.0, factor) <= MASKED)
