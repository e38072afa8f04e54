"""An ONNX node where it stands in a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from onnx import NodeProto, helper

from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx.registry import name_of

Shape = tuple[int, ...]


def name_of_node(node: NodeProto) -> str:
    """A node's name; its first output's where it has none."""
    return str(node.name or next(iter(node.output), "") or node.op_type)


class Site:
    """An ONNX node where it stands: typed access to its attributes, and errors that name it."""

    def __init__(self, node: NodeProto, opset: int, shapes: list[Shape | None]) -> None:
        """`shapes`: of its inputs, batch first; None where absent or unknown."""
        self.node = node
        self.opset = opset
        self.shapes = shapes
        self.name = name_of_node(node)
        self.operator = name_of(node)
        self.attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def fail(self, problem: str, advice: str) -> NoReturn:
        """Raises the error that names this node."""
        raise UnsupportedModelError(
            problem, advice, node=self.name, operator=self.operator, opset=self.opset, shapes=self.shapes
        )

    def input(self, position: int) -> str:
        """The name of an input; empty where absent."""
        return str(self.node.input[position]) if position < len(self.node.input) else ""

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else self.fail(f"attribute {name} is {value!r}", "make it an integer")

    def number(self, name: str, default: float) -> float:
        """A float attribute, finite."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int | float) or not math.isfinite(value):
            self.fail(f"attribute {name} is {value!r}", "make it a finite number")
        return float(value)

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        value = self.attributes.get(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def integers(self, name: str) -> list[int] | None:
        """A list attribute; None where absent."""
        value = self.attributes.get(name)
        if value is None:
            return None
        if not isinstance(value, Sequence) or not all(isinstance(item, int) for item in value):
            self.fail(f"attribute {name} is {value!r}", "make it a list of integers")
        return list(value)

    def numbers(self, name: str) -> list[float] | None:
        """A list of floats, finite; None where absent."""
        value = self.attributes.get(name)
        if value is None:
            return None
        if not isinstance(value, Sequence) or not all(isinstance(v, int | float) and math.isfinite(v) for v in value):
            self.fail(f"attribute {name} is {value!r:.100}", "make it a list of finite numbers")
        return list(value)

    def axis(self, axis: int, rank: int) -> int:
        """`axis` counted from the front."""
        if not -rank <= axis < rank:
            self.fail(f"axis {axis} does not exist in {rank} dimensions", "correct the axis")
        return axis % rank

    def axes(self, axes: Iterable[int], rank: int) -> list[int]:
        """Each axis counted from the front, none twice."""
        found = [self.axis(axis, rank) for axis in axes]
        if len(set(found)) != len(found):
            self.fail(f"axes {found} repeat", "name each axis once")
        return found

    def not_batch(self, axes: Iterable[int], advice: str = "each image must be computed by itself") -> None:
        """Refuses an operation along the batch dimension."""
        if 0 in axes:
            self.fail("it works along the first dimension, the batch", advice)
