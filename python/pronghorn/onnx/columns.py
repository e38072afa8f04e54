"""Sums of columns of a row, beside each other: one product with a matrix.

scikit-learn's exporter writes the votes of support vector machines so, in a node or more for each of the pairs of
classes. Ten classes have 45 pairs, and two nodes for each and four times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, helper

from pronghorn.onnx.lowering import Array
from pronghorn.onnx.reading import free_name
from pronghorn.onnx.registry import name_of

CHOOSING = "ai.onnx.ml.ArrayFeatureExtractor"

SIGNS = {"Add": (1.0, 1.0), "Identity": (1.0,), "Neg": (-1.0,), "Sub": (1.0, -1.0)}
"""The signs of inputs in operators that add them up; all are positive in a Sum."""

POINTWISE = ("Cast", "Greater", "Identity", "Less", "Neg")
"""Operators between the scores and the columns."""

DEEPEST = 32
"""Operators behind each other in such a sum, at most."""

LEAST_COLUMNS = 2

MOST_WEIGHTS = 1 << 22
"""Of the matrix."""

Makers = Mapping[str, NodeProto]


@dataclass
class Column:
    """`sum_i factors[i] row[i] + constant`, of the row `row`; without a row the constant alone."""

    row: str = ""
    factors: dict[int, float] = field(default_factory=dict)
    constant: float = 0.0

    def plus(self, other: Column, sign: float) -> Column | None:
        """The sum of this and of the other times a sign; None where they are of two rows."""
        if self.row and other.row and self.row != other.row:
            return None
        factors = dict(self.factors)
        for place, factor in other.factors.items():
            factors[place] = factors.get(place, 0.0) + sign * factor
        return Column(self.row or other.row, factors, self.constant + sign * other.constant)


def sums_of_columns(node: NodeProto, makers: Makers, constants: dict[str, Array]) -> list[NodeProto] | None:
    """The nodes that make what a Concat of such sums makes; None where it is none.

    Args:
        node: the Concat.
        makers: the node that makes each value, the scores of classifiers among them.
        constants: the model's weights, which the matrix joins.
    """
    axis = [attribute.i for attribute in node.attribute if attribute.name == "axis"]
    if name_of(node) != "Concat" or len(node.input) < LEAST_COLUMNS or axis not in ([1], [-1]):
        return None
    known: dict[str, Column | None] = {}
    columns = [_column(name, makers, constants, known, 0) for name in node.input]
    sums = [column for column in columns if column is not None and column.row]
    rows = {column.row for column in sums}
    are_sums = sum(len(column.factors) >= LEAST_COLUMNS for column in sums)
    if len(sums) < len(columns) or len(rows) != 1 or 2 * are_sums < len(sums):
        return None
    (row,) = rows
    if not _is_of_classes(row, makers):
        return None
    places = sorted({place for column in sums for place in column.factors})
    if len(places) * len(sums) > MOST_WEIGHTS:
        return None
    roles = ("columns", "chosen", "matrix", "constants")
    chosen, values, matrix, added = (free_name(f"{node.output[0]}/{role}", makers, constants) for role in roles)
    constants[chosen] = np.array(places, np.int64)
    factors = [[column.factors.get(place, 0.0) for column in sums] for place in places]
    constants[matrix] = np.array(factors, np.float32)
    constants[added] = np.array([column.constant for column in sums], np.float32)
    name = node.name or node.output[0]
    return [
        helper.make_node("Gather", [row, chosen], [values], name=name, axis=-1),
        helper.make_node("Gemm", [values, matrix, added], node.output, name=name),
    ]


def _is_of_classes(name: str, makers: Makers) -> bool:
    """Whether a value is made of the scores of a classifier of rows: behind the batch it has one dimension."""
    for _ in range(DEEPEST):
        node = makers.get(name)
        if node is None:
            return False
        if node.domain == "ai.onnx.ml" and node.op_type.endswith("Classifier"):
            return True
        if node.op_type not in POINTWISE:
            return False
        name = node.input[0]
    return False


def _column(
    name: str, makers: Makers, constants: Mapping[str, Array], known: dict[str, Column | None], depth: int
) -> Column | None:
    """What a value is of columns; None where it is anything else."""
    if name not in known:
        known[name] = None
        known[name] = _new_column(name, makers, constants, known, depth)
    return known[name]


def _new_column(
    name: str, makers: Makers, constants: Mapping[str, Array], known: dict[str, Column | None], depth: int
) -> Column | None:
    if name in constants:
        array = constants[name]
        is_number = array.size == 1 and array.ndim <= 2 and array.dtype.kind == "f"
        return Column(constant=float(array.item())) if is_number else None
    node = makers.get(name)
    if node is None or depth > DEEPEST:
        return None
    if name_of(node) == CHOOSING and node.input[0] not in constants:
        place = constants.get(node.input[1])
        is_one = place is not None and place.size == 1 and place.dtype.kind in "iu" and place.item() >= 0
        return Column(node.input[0], {int(place.item()): 1.0}) if place is not None and is_one else None
    signs = SIGNS.get(name_of(node), (1.0,) * len(node.input) if name_of(node) == "Sum" else ())
    if len(signs) != len(node.input):
        return None
    total: Column | None = Column()
    for each, sign in zip(node.input, signs, strict=True):
        part = _column(each, makers, constants, known, depth + 1)
        total = None if total is None or part is None else total.plus(part, sign)
    return total if signs else None
