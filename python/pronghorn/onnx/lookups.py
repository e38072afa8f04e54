"""Look-ups in tables by whole numbers that the network computes, as RoBERTa looks up the places of words.

An index is a count: a sum of truths, or follows from one. It is compared with each row's number, and a row is the first
one and the differences of all rows that come until it. Look-ups by values of the input are others (categories.py).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from pronghorn.onnx.lowering import Array
from pronghorn.onnx.reading import free_name
from pronghorn.onnx.registry import AXES_GIVEN, name_of

MOST_ROWS = 1 << 11
"""Most rows of a table: each is compared with every index."""

ROLES = ("index", "row", "above", "reached", "sum", "found")
"""Values that a look-up is made of."""

STORED = ("bounds", "differences", "first", "last")
"""Constants that all look-ups in a table share."""


@dataclass(frozen=True)
class Lookups:
    """The look-ups of a model whose categories are encoded."""

    counts: Container[str]
    """The values that are counts."""
    natural: Container[str]
    """Those that are not negative. Others count rows from the end where they are."""
    taken: Container[str]
    """The names that nodes and inputs have."""
    opset: int
    stored: dict[tuple[str, bool], list[str]] = field(default_factory=dict)
    """The names of the constants of each table, as rows are counted from the end, too, or not."""

    def replaced(self, nodes: Iterable[NodeProto], constants: dict[str, Array]) -> tuple[list[NodeProto], set[str]]:
        """The nodes with look-ups by counts as comparisons, and the results that are whole numbers.

        Args:
            nodes: the nodes.
            constants: the constants, which take up those of the comparisons.
        """
        made, whole = list[NodeProto](), set[str]()
        for node in nodes:
            table = constants.get(node.input[0]) if name_of(node) == "Gather" else None
            if (places := self._places(node, constants)) is not None:
                name = free_name(f"{node.output[0]}/places", self.taken, constants)
                constants[name] = places
                gather = helper.make_node("Gather", [name, node.input[0]], node.output, name=node.name)
                made += self._compared(gather, places, constants)
                continue
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            is_table = table is not None and axis == 0 and table.ndim in (1, 2) and table.dtype.kind in "fiu"
            if table is None or not is_table or node.input[1] not in self.counts or not 2 <= len(table) <= MOST_ROWS:
                made.append(node)
                continue
            made += self._compared(node, table, constants)
            if table.dtype.kind in "iu":
                whole.add(node.output[0])
        return made, whole

    def _places(self, node: NodeProto, constants: dict[str, Array]) -> Array | None:
        """The table of a OneHot of a count, whose last row is that of all beyond it; None for other nodes."""
        if name_of(node) != "OneHot" or node.input[0] not in self.natural:
            return None
        depth, values = (constants.get(name, np.zeros(0)) for name in node.input[1:3])
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), -1)
        if axis != -1 or depth.size != 1 or not 1 <= depth.item() < MOST_ROWS or list(values.ravel()) != [0, 1]:
            return None
        count = int(depth.item())
        return np.concatenate([np.eye(count), np.zeros((1, count))]).astype(np.float32)

    def _stored(self, node: NodeProto, table: Array, constants: dict[str, Array]) -> list[str]:
        """The names of the constants `STORED` of a table."""
        from_the_end = node.input[1] not in self.natural
        key = node.input[0], from_the_end
        if key not in self.stored:
            rows = table.astype(np.float64).reshape(len(table), -1)
            rows = np.concatenate([rows, rows]) if from_the_end else rows
            least = -len(table) if from_the_end else 0
            bounds = np.arange(1, len(rows)) + least - 0.5
            arrays = [bounds.astype(np.float32), np.diff(rows, axis=0).astype(np.float32), rows[0].astype(np.float32)]
            self.stored[key] = [free_name(f"{node.output[0]}/{role}", self.taken, constants) for role in STORED]
            constants.update(zip(self.stored[key], [*arrays, np.array([-1])], strict=True))
        return self.stored[key]

    def _compared(self, node: NodeProto, table: Array, constants: dict[str, Array]) -> list[NodeProto]:
        """`first + sum_k (index > k - 1/2) (row_k - row_(k - 1))`."""
        bounds, differences, first, last = self._stored(node, table, constants)
        names = {role: free_name(f"{node.output[0]}/{role}", self.taken, constants) for role in ROLES}

        def made(kind: str, inputs: list[str], result: str, **attributes: Any) -> NodeProto:
            return helper.make_node(kind, inputs, [result], name=f"{node.name or result}/{kind}", **attributes)

        def along_last(kind: str, value: str, result: str) -> NodeProto:
            if self.opset < AXES_GIVEN:
                return made(kind, [value], result, axes=[-1])
            return made(kind, [value, last], result)

        is_row = table.ndim == 2
        nodes = [
            made("Cast", [node.input[1]], names["index"], to=TensorProto.FLOAT),
            along_last("Unsqueeze", names["index"], names["row"]),
            made("Greater", [names["row"], bounds], names["above"], of_counts=1),
            made("Cast", [names["above"]], names["reached"], to=TensorProto.FLOAT),
            made("MatMul", [names["reached"], differences], names["sum"]),
            made("Add", [names["sum"], first], node.output[0] if is_row else names["found"]),
        ]
        return nodes if is_row else [*nodes, along_last("Squeeze", names["found"], node.output[0])]
