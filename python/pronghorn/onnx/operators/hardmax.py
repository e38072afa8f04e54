"""The place of the largest value within a network: 1 there, and 0 elsewhere."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import Lowering, Value
from pronghorn.onnx.operators.comparisons import step
from pronghorn.onnx.operators.matrices import matmul_last
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Site

MOST_PLACES = 64
"""Most values of which the largest is found: each two are compared."""


@operator("Hardmax", on_result=True, unbatched=True)
def _hardmax(lowering: Lowering, site: Site) -> Value:
    """Each two values are compared. The largest wins all its comparisons, and the first of equal ones."""
    value = _scores(lowering, site)
    rank = len(value.shape)
    axis = site.axis(site.integer("axis", -1 if site.opset >= 13 else 1), rank)
    if site.opset < 13 and axis < rank - 1 and "last" not in site.attributes:
        site.fail("it is over several dimensions", "export with opset 13 or later, where it is over one axis")
    lowering.not_images(site, value, [axis])
    if site.integer("last", 0) and axis != rank - 1:
        site.fail("its places are compared along another axis", f"compare them along the same axis, {CUT}")
    count = value.shape[axis]
    if not 2 <= count <= MOST_PLACES:
        problem = f"it finds the largest of {count} values"
        site.fail(problem, f"from 2 to {MOST_PLACES} are supported, and any number at the end of a model: {CUT}")
    inner = axis - int(value.batched)
    others = [place for place in range(len(value.inner)) if place != inner]
    moved = lowering.transpose(site, value, [*others, inner])
    pairs = list(combinations(range(count), 2))
    difference, votes = np.zeros((len(pairs), count), np.float32), np.zeros((count, len(pairs)), np.float32)
    for at, (first, second) in enumerate(pairs):
        difference[at, [first, second]] = -1, 1
        votes[[first, second], at] = -1, 1
    # Whole numbers that are equal are not next to zero.
    margin = 0.5 if site.input(0) in lowering.counts or value.index in lowering.truths else 0.0
    bias = np.full(len(pairs), -margin, np.float32) if margin else None
    wins = step(lowering, site, matmul_last(lowering, site, moved, difference, bias))
    # The first of two has a vote where the second does not win.
    most = np.arange(count - 1, -1, -1, dtype=np.float32) - (count - 1.5)
    largest = step(lowering, site, matmul_last(lowering, site, wins, votes, most))
    back = [*others, inner]
    return lowering.transpose(site, largest, [back.index(place) for place in range(len(back))])


def _scores(lowering: Lowering, site: Site) -> Value:
    """The input, or what a Softmax or a Sigmoid makes it of, whose order is the same."""
    name = site.input(0)
    value = lowering.values.get(name)
    if value is not None and name not in lowering.masks and value.batched:
        node = lowering.nodes[value.index]
        op = node["op"]
        is_row = len(value.inner) == 1
        if op.get("function", op).get("name", op["kind"]) == "sigmoid" or (op["kind"] == "softmax" and is_row):
            return Value(node["inputs"][0], value.shape)
    return lowering.value_within(site)
