"""The names that a classifier of scikit-learn has for its classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, numpy_helper

from pronghorn.onnx.registry import name_of

ATTRIBUTES = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
"""Of ZipMap and of classifiers."""
DOMAIN = "ai.onnx.ml"
MOST_CHARACTERS = 1 << 16
"""Of all names: a plan with more of them gets too long."""


def class_names(graph: GraphProto) -> tuple[str, ...]:
    """The names in the order of the outputs. Empty where the model has none, has one twice or more than a plan takes,
    and where they are 0, 1 and so on."""
    lists = (*_of_attributes(graph), *_of_extractors(graph))
    found = [_text(name) for name in next(iter(lists), [])]
    indices = [str(index) for index in range(len(found))]
    fits = len(set(found)) == len(found) and sum(map(len, found)) <= MOST_CHARACTERS
    return tuple(found) if fits and found != indices else ()


def _of_attributes(graph: GraphProto) -> Iterator[list[Any]]:
    """Those of attributes, the last node's first."""
    for node in reversed(graph.node):
        for entry in node.attribute:
            if node.domain == DOMAIN and entry.name in ATTRIBUTES and (names := _listed(entry)):
                yield names


def _listed(entry: AttributeProto) -> list[Any]:
    """The strings or integers of an attribute."""
    return list(entry.strings) or list(entry.ints)


def _of_extractors(graph: GraphProto) -> Iterator[list[Any]]:
    """Those of tables that the index of a class is looked up in, the last node's first."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in reversed(graph.node):
        if name_of(node) != f"{DOMAIN}.ArrayFeatureExtractor" or not node.input or node.input[0] not in stored:
            continue
        try:
            table = numpy_helper.to_array(stored[node.input[0]])
        except Exception:
            continue  # A damaged table is no matter of names: what reads it is refused.
        if table.ndim == 1 and (table.dtype == np.object_ or table.dtype.kind in "iUS"):
            yield table.tolist()


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
