"""Operators that put values at places of others, which follow from constants."""

from __future__ import annotations

import math

import numpy as np

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import SEVERAL, Array, Lowering, Value
from pronghorn.onnx.registry import operator
from pronghorn.onnx.site import Shape, Site

MOST_ADDED = 1 << 22
"""Most weights of a layer that adds values at places."""


@operator("ScatterND", "ScatterElements", "Scatter", unbatched=True)
def _scatter(lowering: Lowering, site: Site) -> Value:
    """The first input, with values of the third at the places of the second. Later ones win, or are added."""
    data, updates = (_flat(lowering, site, position) for position in (0, 2))
    shape = lowering.shape_of(site.input(0)) or ()
    places = _places_of_image(lowering, site, shape)
    reduction = site.text("reduction", "none")
    if reduction not in ("none", "add"):
        site.fail(f"its reduction is {reduction}, which is not supported", f"choose none or add, {CUT}")
    size, count = math.prod(shape), places.size
    if count != (math.prod(updates.inner) if isinstance(updates, Value) else updates.size):
        site.fail(f"it puts {count} places, and is given another number of values", "repair the model")
    made = _added(lowering, site, data, updates, places) if reduction == "add" else None
    if made is None:
        sources = np.arange(size)
        sources[places] = size + np.arange(count)
        both = [_as_value(lowering, site, each) for each in (data, updates)]
        joined = lowering.emit(site, {"kind": "concat", "axis": 0}, both, (size + count,))
        made = lowering.take(site, joined, 0, size, sources.__getitem__)
    result = lowering.reshape(site, made, shape[1:] if shape[:1] == (1,) else shape)
    return result if shape[:1] == (1,) else Value(result.index, shape)


def _flat(lowering: Lowering, site: Site, position: int) -> Value | Array:
    """An input as a row."""
    if site.input(position) in lowering.values:
        value = lowering.value(site, position)
        return lowering.reshape(site, Value(value.index, (1, *value.inner)), (math.prod(value.inner),))
    return lowering.required(site, position).reshape(-1)


def _as_value(lowering: Lowering, site: Site, row: Value | Array) -> Value:
    """A row; constants as a value of the network, which is 0 times it."""
    if isinstance(row, Value):
        return row
    some = next(value for name, value in lowering.values.items() if name in site.node.input)
    flat = lowering.reshape(site, Value(some.index, (1, *some.inner)), (math.prod(some.inner),))
    repeated = lowering.take(site, flat, 0, row.size, lambda _: 0)
    return lowering.affine(site, repeated, np.zeros(row.size), row)


def _added(lowering: Lowering, site: Site, data: Value | Array, updates: Value | Array, places: Array) -> Value:
    """Values that are added at places."""
    size = data.inner[0] if isinstance(data, Value) else data.size
    if not isinstance(updates, Value):
        total = np.zeros(size)
        np.add.at(total, places, updates)
        return lowering.affine(site, _as_value(lowering, site, data), add=total)
    if size * places.size > MOST_ADDED:
        problem = f"it adds {places.size} values at {size} places, a matrix of {size * places.size} weights"
        site.fail(problem, f"at most {MOST_ADDED} are supported: {CUT}")
    matrix = np.zeros((size, places.size), np.float32)
    matrix[places, np.arange(places.size)] = 1
    weight = lowering.tensor(site, "weight", matrix)
    moved = lowering.emit(site, {"kind": "dense", "weight": weight, "bias": None}, [updates], (size,))
    if isinstance(data, Value):
        return lowering.plus(site, data, moved)
    return lowering.affine(site, moved, add=data)


def _places_of_image(lowering: Lowering, site: Site, shape: Shape) -> Array:
    """The places of one image; those of several must be as far from each other as the images are."""
    indices = lowering.constant(site, 1)
    if indices is None or indices.dtype.kind not in "iu" or not shape or indices.ndim == 0:
        site.fail("its indices are no constant whole numbers", f"index by a constant, {CUT}")
    places = _places(site, indices, shape)
    if not lowering.one_image:
        several = lowering.targets.find(lowering, site.input(1)) if lowering.targets is not None else None
        value = lowering.values.get(site.input(0))
        of_several = value.of_several if value is not None else (SEVERAL * shape[0], *shape[1:])
        own = places + math.prod(shape) * np.arange(SEVERAL)[:, None]
        found = None if several is None else _places(site, several, of_several)
        if found is None or not np.array_equal(found, own.ravel()):
            site.fail("its indices are those of one image", "export with a batch of 1, or join parts with Concat")
    return places


def _places(site: Site, indices: Array, shape: Shape) -> Array:
    """The place of each value among all of a shape."""
    if site.operator == "ScatterND":
        count = indices.shape[-1]
        if not 1 <= count <= len(shape):
            site.fail(f"indices of shape {list(indices.shape)} do not fit {len(shape)} dimensions", "repair the model")
        rest = math.prod(shape[count:])
        columns = list(indices.reshape(-1, count).T)
        first = _raveled(site, columns, shape[:count])
        return (first[:, None] * rest + np.arange(rest)).reshape(-1)
    if indices.ndim != len(shape):
        site.fail(f"indices of shape {list(indices.shape)} do not fit {len(shape)} dimensions", "repair the model")
    columns = list(np.indices(indices.shape).reshape(len(shape), -1))
    columns[site.axis(site.integer("axis", 0), len(shape))] = indices.reshape(-1)
    return _raveled(site, columns, shape)


def _raveled(site: Site, columns: list[Array], shape: Shape) -> Array:
    """The places of indices, of which those below zero count from the end."""
    counted = [np.where(column < 0, column + size, column) for column, size in zip(columns, shape, strict=True)]
    if any(((column < 0) | (column >= size)).any() for column, size in zip(counted, shape, strict=True)):
        site.fail(f"some of its indices do not exist in shape {list(shape)}", "correct the indices")
    return np.asarray(np.ravel_multi_index([column.astype(np.int64) for column in counted], shape))
