"""What a model does with values that are no categories of it: numbers, and categories that it does not list.

What nodes make of categories is evaluated for each of them. Other values have no end. So the nodes that read them are
known by their operators: those that move values, and those that tell listed categories from all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from pronghorn._categories import Category
from pronghorn.onnx.lowering import Array
from pronghorn.onnx.registry import OF_SHAPES
from pronghorn.onnx.tracing import ENCODERS, MOVES, Evaluator, Kind, Trace, listed, shifted

LEAST_WORD = 4
"""Bytes of whole numbers that hold all inputs which floats hold."""


def changing(traced: Trace, evaluator: Evaluator, categories: Mapping[int, Category]) -> set[str]:
    """The results of traced nodes that do more with numbers than move them, that sum values of several places, or that
    bring the batch elsewhere. Layers do that."""

    def reads_numbers(node: NodeProto) -> bool:
        sources = [name for name in node.input if name in traced.values]
        return any(place not in categories for name in sources for place in evaluator.places(name).ravel().tolist())

    def mixes(node: NodeProto) -> bool:
        try:
            evaluator.places(node.output[0])
        except ValueError:
            return True
        return False

    first = next((node for node in traced.nodes if node.output[0] in traced.values and mixes(node)), None)
    if first is not None:
        # What follows from it has no places.
        return set(first.output)
    nodes = [node for node in traced.nodes if node.output[0] in traced.values]
    nodes = [node for node in nodes if not _moves_numbers(node, traced) and reads_numbers(node)]
    return {name for node in nodes for name in node.output}


def told_apart(
    traced: Trace,
    evaluator: Evaluator,
    constants: Mapping[str, Array],
    categories: Mapping[int, Category],
    read: Iterable[str],
) -> tuple[set[int], set[int]]:
    """The places of a row whose values beyond the categories are told apart by nodes, and those of such values that are
    read as they are.

    Args:
        traced: the nodes from the inputs to these results.
        evaluator: of the same.
        constants: the model's.
        categories: by place.
        read: the traced values that the rest of the model reads.
    """
    known = {place: category.values for place, category in categories.items() if category.others != "refused"}
    found, bare = set[int](), set(evaluator.shapes)
    if not known:
        return set(), set()
    row = np.zeros(evaluator.count, object)
    for place, category in categories.items():
        row[place] = category.values[0] if category.others == "refused" else category.other
    for node in traced.nodes:
        for source in bare.intersection(node.input):
            values = [
                (known[place], place, shift) for place, shift in shifted(source, evaluator, row) if place in known
            ]
            if node.op_type in OF_SHAPES or not values:
                continue
            if node.op_type == "Where" and node.input[0] not in bare:
                # Others have one condition: they stay as they are, or all become a constant.
                bare.update(node.output)
                continue
            others = [name for name in node.input if name not in constants]
            is_alone = node.op_type in MOVES or others == [source]
            largest = max(_size(each) for each, _, _ in values)
            if is_alone and _shifts(node, source, evaluator.widest(source), largest):
                bare.update(node.output)
                continue
            lists = _lists(node, constants)
            found |= {place for each, place, shift in values if lists is None or not _holds(each, lists, shift)}
    places = {place for name in bare.intersection(read) for place in evaluator.places(name).ravel().tolist()}
    return found, places & known.keys()


def _moves_numbers(node: NodeProto, traced: Trace) -> bool:
    """Whether a node leaves numbers as they are."""
    if node.op_type != "Cast":
        return node.op_type in (*OF_SHAPES, *MOVES)
    made = _made(node)
    is_cut = made.kind in "iu" and traced.values[node.input[0]] is Kind.NUMBERS
    return made.kind == "f" or (made.kind in "iu" and made.itemsize >= LEAST_WORD and not is_cut)


def _shifts(node: NodeProto, source: str, widest: int, largest: int) -> bool:
    """Whether a node moves values, or adds constants to them, so that no other value becomes one of the categories.

    Args:
        node: the node.
        source: its input.
        widest: bytes of the inputs' whole numbers.
        largest: the largest magnitude of the categories.
    """
    if node.op_type == "Cast":
        made = _made(node)
        exact = made.kind == "f" and largest < 2 ** int(np.finfo(made).nmant)
        return made.kind == "O" or exact or (made.kind in "iu" and made.itemsize >= widest)
    return node.op_type in MOVES or node.op_type == "Add" or (node.op_type == "Sub" and node.input[0] == source)


def _lists(node: NodeProto, constants: Mapping[str, Array]) -> list[str | int] | None:
    """The categories that a node tells from all other values; None where it does not list them."""
    is_truth = node.op_type == "Cast" and _made(node).kind == "b"
    is_equal = node.op_type == "Equal" and sum(name in constants for name in node.input) == 1
    try:
        return listed(node, constants) if is_truth or is_equal or node.op_type in ENCODERS else None
    except ValueError:
        return None


def _holds(values: Iterable[int | str], lists: list[str | int], shift: int) -> bool:
    """Whether all that a node lists of shifted values are categories."""
    return set(values) >= {each if isinstance(each, str) else each - shift for each in lists}


def _size(values: Iterable[int | str]) -> int:
    return max(0 if isinstance(value, str) else abs(value) for value in values)


def _made(node: NodeProto) -> np.dtype[Any]:
    """What a Cast makes; texts are objects."""
    to = next(attribute.i for attribute in node.attribute if attribute.name == "to")
    return np.dtype(object) if to == TensorProto.STRING else helper.tensor_dtype_to_np_dtype(to)
