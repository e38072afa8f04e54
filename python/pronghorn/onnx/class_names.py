"""The names that a classifier of scikit-learn has for its classes."""

from __future__ import annotations

from typing import Any

from onnx import GraphProto, helper, numpy_helper

from pronghorn.onnx.registry import name_of

ATTRIBUTES = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
"""Of ZipMap and of classifiers."""


def class_names(graph: GraphProto) -> tuple[str, ...]:
    """The names in the order of the outputs; empty where the model has none, or they are 0, 1 and so on."""
    found = [str(name) for name in _of_attributes(graph) or _of_extractor(graph)]
    return () if found == [str(index) for index in range(len(found))] else tuple(found)


def _of_attributes(graph: GraphProto) -> list[Any]:
    """Those of the last node that has such an attribute."""
    attributes = [entry for node in reversed(graph.node) for entry in node.attribute if entry.name in ATTRIBUTES]
    lists = (helper.get_attribute_value(entry) for entry in attributes)
    return next(([_text(value) for value in values] for values in lists if len(values) > 0), [])


def _of_extractor(graph: GraphProto) -> list[Any]:
    """Those of the table that an index of a class is looked up in."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    tables = [node.input[0] for node in graph.node if name_of(node) == "ai.onnx.ml.ArrayFeatureExtractor"]
    arrays = (numpy_helper.to_array(stored[name]) for name in reversed(tables) if name in stored)
    return next(([_text(value) for value in array] for array in arrays if array.ndim == 1), [])


def _text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
