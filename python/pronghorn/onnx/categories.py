"""Models of categories, as models of numbers and indicators.

A model encodes such a value (OneHotEncoder, OneHot, LabelEncoder), or looks up a row of a table by it (Gather, as
embeddings do). What it computes of this value alone is a table by its category. So whoever owns the data sends an
indicator for each category, and the table is the weight of a layer: `indicators x table`.

The ONNX model is changed, so that the import and the float runtime see the same.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from pronghorn._categories import Categories, Category, Floats
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx.lowering import Array
from pronghorn.onnx.masks import MASKED, scored
from pronghorn.onnx.reading import names_read
from pronghorn.onnx.registry import OF_SHAPES
from pronghorn.onnx.tracing import ENCODERS, Evaluator, Kind, Trace, constants_of, listed, trace, type_of

Shape = tuple[int, ...]

LEFT_OUT = -100.0
"""The number in the place of a mask's in files: `exp(-100)` is 4e-44."""

PROBES = (0, 1, 2, -1, -7, 50, 100, 120)
"""Numbers that tell whether values are shifted alone. Bytes hold them."""

MOST_TABLE = 1 << 26
"""Elements of a table, and values of a row, at most."""


@dataclass(frozen=True)
class Encoded:
    """What became of a model's inputs."""

    categories: Categories
    inputs: dict[str, Shape]
    """The shapes of the inputs as their owner has them, batch not counted."""
    original: ModelProto
    """The model as it was."""
    whole: frozenset[str]
    """The values that the rest of the model reads as whole numbers, which it divides otherwise."""

    def feeds(self, encoded: Floats) -> list[dict[str, Array]] | None:
        """The inputs of the original model, one image each, that these of the network stand for; None where a value is
        of no category."""
        rows = self.categories.decode(encoded)
        if rows is None:
            return None
        return [self._feed(row[None]) for row in rows]

    def _feed(self, row: Array) -> dict[str, Array]:
        found, start = dict[str, Array](), 0
        for entry in self.original.graph.input:
            tensor, shape = entry.type.tensor_type, self.inputs[entry.name]
            part = row[:, start : start + math.prod(shape)]
            part = part.reshape(1, *(shape if len(tensor.shape.dim) > 1 else ()))
            found[entry.name] = part.astype(type_of(tensor))
            start += math.prod(shape)
        return found


def encode_categories(proto: ModelProto, opset: int) -> Encoded | None:
    """Gives a model some of whose inputs' values are categories one input of numbers and indicators, in place.

    Returns: None where no value is one; the model is as it was.

    Raises:
        UnsupportedModelError: a text that the model does not encode, or a table that is too large.
    """
    if not _may_have_categories(proto.graph):
        return None
    constants = constants_of(proto, opset)
    traced = trace(proto.graph, constants)
    if not traced.lookups and not traced.encoders:
        return None
    original = copy.deepcopy(proto)
    for entry in original.graph.input:
        first = entry.type.tensor_type.shape.dim[0]
        if first.dim_value > 1:
            first.dim_value = 1
    evaluator = Evaluator(original, opset, constants, traced)
    try:
        categories = _categories(original, constants, traced, evaluator)
        _add_masks(proto.graph, constants, traced)
        traced = trace(proto.graph, constants, _kinds(categories, evaluator))
        evaluator = Evaluator(original, opset, constants, traced)
        encoder = _Encoder(proto, constants, traced, evaluator, categories)
        encoded = encoder.encode()
    except UnsupportedModelError:
        raise
    except Exception:
        # What the onnx package cannot evaluate is refused by name.
        proto.CopyFrom(original)
        return None
    return Encoded(encoded, dict(evaluator.shapes), original, frozenset(encoder.whole))


def _add_masks(graph: GraphProto, constants: dict[str, Array], traced: Trace) -> None:
    """Scores that a Where replaces by a mask's number, as `masked_fill` does, as a sum with a mask."""
    nodes = list(graph.node)
    are_scores = scored(nodes, constants)
    changed = list[NodeProto]()
    for node in nodes:
        is_mask = node.op_type == "Where" and node.input[0] in traced.values and node.output[0] in are_scores
        choices = node.input[1:3] if is_mask else ()
        other = next((name for name in choices if name in constants and (constants[name] <= MASKED).all()), None)
        if other is None or all(name in constants for name in choices):
            changed.append(node)
            continue
        result, zero = node.output[0], f"{node.output[0]}/zero"
        constants[zero] = np.zeros((), np.float32)
        graph.initializer.append(numpy_helper.from_array(constants[zero], zero))
        chosen = [zero if name != other else name for name in choices]
        (scores,) = [name for name in choices if name != other]
        changed += [
            helper.make_node("Where", [node.input[0], *chosen], [f"{result}/mask"], name=f"{node.name}/mask"),
            helper.make_node("Add", [scores, f"{result}/mask"], [result], name=node.name),
        ]
    copies = [copy.deepcopy(node) for node in changed]
    del graph.node[:]
    graph.node.extend(copies)


def _may_have_categories(graph: GraphProto) -> bool:
    """Whether sizes of all inputs are fixed but for the batch, and a value may be a category: a look that costs
    nothing, which most networks end here."""
    weights = {tensor.name for tensor in graph.initializer} | {
        name for node in graph.node if node.op_type in ("Constant", "Identity") for name in node.output
    }
    tell = any(node.op_type in (*ENCODERS, "Equal", "Cast") for node in graph.node)
    looks_up = any(node.op_type == "Gather" and node.input[0] in weights for node in graph.node)
    return (tell or looks_up) and all(_is_fixed(entry.type.tensor_type) for entry in graph.input)


def _is_fixed(tensor: TypeProto.Tensor) -> bool:
    sizes = [dim.dim_value for dim in tensor.shape.dim]
    return len(sizes) > 0 and min(sizes[1:], default=1) >= 1


@dataclass
class _Known:
    """What is known of the categories of one value."""

    values: list[str | int] = field(default_factory=list)
    """Those that encoders list."""
    rows: range | None = None
    """Those that are rows of all tables that it looks up."""
    compared: list[str | int] = field(default_factory=list)
    """Those that it is compared with. Where others are refused, and of rows of tables, they tell nothing more."""
    is_strict: bool = False
    """Whether others are refused."""

    def category(self, place: int) -> Category:
        if self.values and self.is_strict:
            return Category(place, _different(self.values), "refused")
        if self.values:
            return Category(place, _different(self.values + self.compared), "zeros")
        if self.rows is not None:
            return Category(place, self.rows if self.rows.start == 0 else tuple(self.rows), "refused")
        return Category(place, _different(self.compared), "alike")

    def look_up(self, rows: range) -> None:
        """Adds a table."""
        known = rows if self.rows is None else self.rows
        self.rows = range(max(rows.start, known.start), min(rows.stop, known.stop))
        self.is_strict = True


def _different(values: list[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def _categories(
    proto: ModelProto, constants: Mapping[str, Array], traced: Trace, evaluator: Evaluator
) -> dict[int, Category]:
    """The values of a row that are categories, by place."""
    found = dict[int, _Known]()
    for node in traced.encoders:
        zeros = next((attribute.i for attribute in node.attribute if attribute.name == "zeros"), 1)
        (source,) = [name for name in node.input if name in traced.values]
        if not _is_shifted(source, evaluator):
            continue
        for place, shift in _shifted(source, evaluator):
            known = found.setdefault(place, _Known())
            values = known.values if node.op_type in ENCODERS else known.compared
            values += [value if isinstance(value, str) else value - shift for value in listed(node, constants)]
            # OneHot takes numbers below zero for others from the end.
            known.is_strict |= node.op_type in ("LabelEncoder", "OneHot") or zeros != 1
    for node in traced.lookups:
        rows = len(constants[node.input[0]])
        for place, shift in _shifted(node.input[1], evaluator):
            found.setdefault(place, _Known()).look_up(range(max(0, -shift), rows - shift))
    categories = {place: known.category(place) for place, known in sorted(found.items())}
    if all(len(category.values) == 1 for category in categories.values()):
        # A row would be as long as its indicators.
        categories = {place: _with_other(category) for place, category in categories.items()}
    texts = {entry.name for entry in proto.graph.input if entry.type.tensor_type.elem_type == TensorProto.STRING}
    for name, places in evaluator.rows():
        if name in texts and not categories.keys() >= set(places):
            raise UnsupportedModelError(
                f"input {name!r} holds texts that the model does not encode as categories",
                "encode them in the model (OneHotEncoder, OrdinalEncoder), or leave them out",
            )
    return categories


def _is_shifted(name: str, evaluator: Evaluator) -> bool:
    """Whether a traced tensor has the inputs' values, each with something added."""
    numbers = np.array(PROBES)
    rows = np.repeat(numbers, evaluator.count).reshape(len(numbers), -1).astype(object)
    values = evaluator.values(name, rows).reshape(len(numbers), -1)
    if values.dtype.kind in "OU":
        return bool((values.astype(str) == rows.astype(str)[:, :1]).all())
    return values.dtype.kind != "b" and bool((values - values[:1] == (numbers - numbers[0])[:, None]).all())


def _kinds(categories: Mapping[int, Category], evaluator: Evaluator) -> dict[str, Kind]:
    """The kinds of inputs: what follows from categories alone is a table, too, and numbers alone are layers' work."""
    found = dict[str, Kind]()
    for name, places in evaluator.rows():
        if categories.keys() >= set(places):
            found[name] = Kind.OF_CATEGORIES
        elif categories.keys().isdisjoint(places):
            found[name] = Kind.NUMBERS
    return found


def _with_other(category: Category) -> Category:
    """The same with a value that is as all others."""
    if category.others == "refused":
        return category
    return replace(category, values=(*category.values, category.other))


def _shifted(name: str, evaluator: Evaluator) -> list[tuple[int, int]]:
    """For each value of a traced tensor the place that it depends on, and what is added to it; of texts 0."""
    places = evaluator.places(name).ravel()
    values = evaluator.values(name, np.zeros((1, evaluator.count), object))[0].ravel()
    shifts = [0 if isinstance(value, str) else int(value) for value in values.tolist()]
    return list(zip(places.tolist(), shifts, strict=True))


@dataclass
class _Encoder:
    """Makes the new input, and the values that the rest of the model reads, of it."""

    proto: ModelProto
    constants: Mapping[str, Array]
    traced: Trace
    evaluator: Evaluator
    categories: dict[int, Category]

    def __post_init__(self) -> None:
        """Counts the columns of the row."""
        self.graph: GraphProto = self.proto.graph
        sizes = [self._size(place) for place in range(self.evaluator.count)]
        ends = np.cumsum([0, *sizes]).tolist()
        self.columns: list[int] = ends[:-1]
        self.width: int = ends[-1]
        if self.width == self.evaluator.count:
            # Rows would be taken for indicators.
            raise ValueError("each category is alone")
        self.scored = scored(self._rest(), self.constants)
        self.made: list[NodeProto] = []
        self.whole: set[str] = set()
        self.exits: list[str] = []
        if self.width > MOST_TABLE:
            raise UnsupportedModelError(
                f"its inputs' categories take {self.width} indicators, more than {MOST_TABLE}",
                "use smaller tables, or take the model behind them (its rows as inputs)",
            )

    def _size(self, place: int) -> int:
        return len(self.categories[place].values) if place in self.categories else 1

    def encode(self) -> Categories:
        """Changes the model."""
        self.exits = exits = self._exits()
        shapes = list(self.evaluator.shapes.values())
        sizes = {self._size(place) for place in self.categories}
        # Words of one vocabulary stay a series.
        are_words = len(shapes) == 1 and len(sizes) == 1 and len(self.categories) == self.evaluator.count > 1
        row_shape = shapes[0] if len(shapes) == 1 else (self.evaluator.count,)
        self.source = ",".join(self.evaluator.shapes)
        while self.source in exits:
            self.source += "'"
        self.row = self._reshape(self.source, [self.width]) if are_words else self.source
        for name in exits:
            self._make(name, self.evaluator.places(name), None)
        for node in self.traced.lookups:
            self._make(node.output[0], self.evaluator.places(node.input[1]), node)
        self._replace((*row_shape, *sizes) if are_words else (self.width,))
        return Categories(tuple(self.categories.values()), row_shape)

    def _exits(self) -> list[str]:
        """The traced values that the rest of the model reads."""
        read = {entry.name for entry in self.graph.output}.union(*map(names_read, self._rest()))
        made = [name for node in self.traced.nodes for name in node.output]
        return [name for name in (*self.evaluator.shapes, *made) if name in read and name in self.traced.values]

    def _rest(self) -> list[NodeProto]:
        """The nodes that stay: those that make no traced value, and those that compute shapes among them."""
        gone = set(self.traced.values).union(*(node.output for node in self.traced.lookups))
        return [node for node in self.graph.node if gone.isdisjoint(node.output)]

    def _make(self, result: str, places: Array, lookup: NodeProto | None) -> None:
        """Makes a value, or the rows that a lookup finds, of the row of numbers and indicators."""
        inner, flat = places.shape, places.ravel().tolist()
        if lookup is None and self._is_read_for_shape(result):
            # Its values do not matter.
            self._finish(self._take(range(len(flat))), inner, result)
            return
        source = result if lookup is None else lookup.input[1]
        self._refuse_changed(source, flat)
        self._refuse_unlike(source, flat)
        tables, of_others = self._tables(source, flat)
        if lookup is not None:
            rows = self.constants[lookup.input[0]]
            inner += rows.shape[1:]
            tables = [rows.reshape(len(rows), -1)[table[:, 0].astype(np.int64)] for table in tables]
        made = self._looked_up(result, flat, tables)
        if of_others.any():
            # Encoders alone have others, and a number for each value.
            made = self._node("Add", [self._reshape(made, [len(flat)]), self._constant(of_others)])
        self._finish(made, inner, result)

    def _looked_up(self, result: str, places: list[int], tables: list[Array]) -> str:
        """What the tables of values at these places have for the indicators in the row."""
        chosen, first = [_one_of(table) for table in tables], tables[0]
        columns = [range(self.columns[place], self.columns[place] + self._size(place)) for place in places]
        if None not in chosen:
            return self._take([each[at] for each, at in zip(columns, chosen, strict=True) if at is not None])
        if all(table is first or np.array_equal(table, first) for table in tables):
            rows = self._take([column for each in columns for column in each])
            rows = rows if len(places) == 1 else self._reshape(rows, [len(places), len(first)])
            return self._node("MatMul", [rows, self._constant(first.astype(np.float32))])
        different = dict.fromkeys(places)
        rows = self._take([column for place in different for column in columns[places.index(place)]])
        return self._node("MatMul", [rows, self._constant(self._block(result, places, tables))])

    def _tables(self, name: str, places: Sequence[int]) -> tuple[list[Array], Array]:
        """For each value of a traced tensor the numbers that it has by category, `(categories, 1)`, above those of any
        other, and these; of a number `[[1]]`."""
        most = max(self._size(place) for place in places)
        if most * len(places) > MOST_TABLE:
            raise self._too_large(name, most, len(places))
        rows = np.zeros((most + 1, self.evaluator.count), object)
        for place, category in self.categories.items():
            values = np.array(category.values, object)
            rows[:most, place] = values[np.minimum(np.arange(most), len(values) - 1)]
            rows[most, place] = values[0] if category.others == "refused" else category.other
        found = self.evaluator.values(name, rows)
        if found.dtype.kind in "iu" and name in self.exits:
            self.whole.add(name)
        found = found.astype(np.float64).reshape(most + 1, -1, 1)
        found = _bounded(found) if name in self.scored else found
        if not np.isfinite(found).all():
            raise UnsupportedModelError(
                f"{name!r} is infinite for some categories of the inputs",
                "let the model add numbers above -10000 there",
            )
        is_open = [place in self.categories and self.categories[place].others != "refused" for place in places]
        of_others = np.where(is_open, found[most, :, 0], 0.0)
        numbers, same, tables = np.ones((1, 1)), dict[bytes, Array](), []
        for at, place in enumerate(places):
            table = found[: self._size(place), at] - of_others[at] if place in self.categories else numbers
            tables.append(same.setdefault(table.tobytes(), table))
        return tables, of_others.astype(np.float32)

    def _refuse_changed(self, name: str, places: Sequence[int]) -> None:
        """Refuses numbers that the traced nodes do more with than move.

        Raises:
            ValueError: there is one.
        """
        row = np.zeros(self.evaluator.count, object)
        kinds = {entry.name: type_of(entry.type.tensor_type).kind for entry in self.graph.input}
        for source, of_input in self.evaluator.rows():
            row[of_input.start : of_input.stop] = 1.5 if kinds[source] == "f" else 1
        for place, category in self.categories.items():
            row[place] = category.values[0]
        found = self.evaluator.values(name, row[None]).ravel()
        if any(place not in self.categories and found[at] != row[place] for at, place in enumerate(places)):
            raise ValueError(f"{name} changes numbers")

    def _refuse_unlike(self, name: str, places: Sequence[int]) -> None:
        """Refuses values that differ over what is no category: they are numbers, too.

        Raises:
            ValueError: there is one.
        """
        is_open = np.array(
            [place in self.categories and self.categories[place].others != "refused" for place in places]
        )
        if not is_open.any():
            return
        others = {place: category.others_like() for place, category in self.categories.items()}
        rows = np.zeros((max(map(len, others.values())), self.evaluator.count), object)
        for place, values in others.items():
            is_strict = self.categories[place].others == "refused"
            rows[:, place] = [
                self.categories[place].values[0] if is_strict else values[min(at, len(values) - 1)]
                for at in range(len(rows))
            ]
        found = self.evaluator.values(name, rows).reshape(len(rows), -1)[:, is_open]
        if (found != found[:1]).any():
            raise ValueError(f"{name} differs over values that are no categories")

    def _block(self, result: str, places: list[int], tables: list[Array]) -> Array:
        """One table of all: that of each value beside the columns of its own place, and 0 elsewhere."""
        different = list(dict.fromkeys(places))
        starts = dict(zip(different, np.cumsum([0, *map(self._size, different)]).tolist(), strict=False))
        rows, columns = sum(map(self._size, different)), sum(table.shape[1] for table in tables)
        if rows * columns > MOST_TABLE:
            raise self._too_large(result, rows, columns)
        block, column = np.zeros((rows, columns), np.float32), 0
        for place, table in zip(places, tables, strict=True):
            start = starts[place]
            block[start : start + len(table), column : column + table.shape[1]] = table
            column += table.shape[1]
        return block

    def _too_large(self, name: str, rows: int, columns: int) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{name!r} takes a table of {rows} x {columns} numbers for the categories of the inputs",
            "use smaller tables, and of one size for all positions",
        )

    def _is_read_for_shape(self, name: str) -> bool:
        readers = [node.op_type for node in self._rest() if name in names_read(node)]
        return all(kind in OF_SHAPES for kind in readers) and all(entry.name != name for entry in self.graph.output)

    def _take(self, columns: Sequence[int]) -> str:
        """Columns of the row."""
        if list(columns) == list(range(self.width)):
            return self.row
        return self._node("Gather", [self.row, self._constant(np.array(columns, np.int64))], axis=1)

    def _reshape(self, name: str, inner: Sequence[int]) -> str:
        return self._node("Reshape", [name, self._constant(np.array([0, *inner], np.int64))])

    def _finish(self, name: str, inner: Shape, result: str) -> None:
        """Gives a value its shape and its name."""
        self.made.append(
            helper.make_node(
                "Reshape", [name, self._constant(np.array([0, *inner], np.int64))], [result], name=f"{result}/encoded"
            )
        )

    def _node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        name = self._free()
        self.made.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def _constant(self, values: Array) -> str:
        name = self._free()
        self.graph.initializer.append(numpy_helper.from_array(values, name))
        return name

    def _free(self) -> str:
        return f"{self.source}/indicators/{len(self.made)}/{len(self.graph.initializer)}"

    def _replace(self, shape: Shape) -> None:
        """Puts the new nodes and the new input in the place of what was traced."""
        graph = self.graph
        images = [entry.type.tensor_type.shape.dim[0].dim_value for entry in graph.input]
        batch = 1 if max(images) >= 1 else "N"
        entry = helper.make_tensor_value_info(self.source, TensorProto.FLOAT, [batch, *shape])
        nodes = [copy.deepcopy(node) for node in (*self.made, *self._rest())]
        del graph.node[:], graph.input[:]
        graph.node.extend(nodes)
        graph.input.append(entry)


def _bounded(tables: Array) -> Array:
    """Tables of a mask that is added to scores, in numbers that a network computes with: what is left out is so little
    that its exponential is nothing beside others."""
    left_out = tables <= MASKED
    if not left_out.any() or left_out.all():
        return tables
    return np.where(left_out, tables[~left_out].min() + LEFT_OUT, tables)


def _one_of(table: Array) -> int | None:
    """The category whose indicator a table is; None where it is no indicator."""
    is_one = table.shape[1] == 1 and np.count_nonzero(table) == 1 and table.max() == 1
    return int(table.argmax()) if is_one else None
