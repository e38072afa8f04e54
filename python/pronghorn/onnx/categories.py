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
from pronghorn.onnx.computed_masks import bounded, is_mask, masking
from pronghorn.onnx.folding import NAMING
from pronghorn.onnx.lowering import Array
from pronghorn.onnx.others import changing, told_apart
from pronghorn.onnx.reading import names_read
from pronghorn.onnx.registry import OF_SHAPES
from pronghorn.onnx.tracing import ENCODERS, Evaluator, Kind, Trace, constants_of, listed, shifted, trace, type_of

Shape = tuple[int, ...]

PROBES = (0, 1, 2, 7, 50, 100, 120)
"""Numbers that tell whether values are shifted. Bytes hold them."""

TRUTHS = (0, 1)

NAMING_TABLES = (*NAMING, "DequantizeLinear")
"""Operators that may give the numbers of a table a name."""

MOST_TABLE = 1 << 26
"""Elements of a table, and values of a row, at most."""

MOST_INDICATORS = 1 << 28
"""Elements of a table of zeros and ones, at most: 2,048 bytes as indicators have 2,048 x 256 of 257 rows."""

MOST_AT_ONCE = 1 << 23
"""Elements of tables that are evaluated at once, at most, if there is more than one category's."""


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
    counts: frozenset[str]
    """Those of them that follow from categories alone, none negative, in types that have room for more."""
    truths: frozenset[str]
    """The values that it reads as truths."""

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
    if not traced.lookups and not traced.encoders and not _truths(proto.graph):
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
        traced, evaluator = _followed(
            proto.graph, original, opset, constants, categories, _kinds(categories, evaluator)
        )
        categories = _closed(proto.graph, constants, traced, evaluator, categories)
        encoder = _Encoder(proto, constants, traced, evaluator, categories)
        encoded = encoder.encode()
    except UnsupportedModelError:
        raise
    except Exception:
        # What the onnx package cannot evaluate is refused by name.
        proto.CopyFrom(original)
        return None
    whole, counts, truths = map(frozenset, (encoder.whole, encoder.counts, encoder.truths))
    return Encoded(encoded, dict(evaluator.shapes), original, whole, counts, truths)


def _followed(
    graph: GraphProto,
    original: ModelProto,
    opset: int,
    constants: Mapping[str, Array],
    categories: Mapping[int, Category],
    kinds: Mapping[str, Kind],
) -> tuple[Trace, Evaluator]:
    """The nodes that compute with categories, and of numbers those alone that move them."""
    ends = set[str]()
    while True:
        traced = trace(graph, constants, kinds, ends)
        evaluator = Evaluator(original, opset, constants, traced)
        found = changing(traced, evaluator, categories)
        if not found:
            return traced, evaluator
        ends |= found


def _closed(
    graph: GraphProto,
    constants: Mapping[str, Array],
    traced: Trace,
    evaluator: Evaluator,
    categories: Mapping[int, Category],
) -> dict[int, Category]:
    """The categories, of which those that are numbers, too, have no others: 0 and 1, such as those of a mask.

    Raises:
        UnsupportedModelError: there may be any number beside categories that an encoder lists.
        ValueError: there may be beside those that others compare with.
    """
    rest = _rest(graph, traced)
    exits = _exits(graph, traced, evaluator, rest)
    read = [name for name in exits if _is_read(name, graph, rest)]
    compared, bare = told_apart(traced, evaluator, constants, categories, read)
    closed = dict(categories)
    for place in sorted(compared | bare):
        category = categories[place]
        if place not in compared and category.others == "alike" and set(category.values) <= set(TRUTHS):
            closed[place] = Category(place, TRUTHS, "refused")
            continue
        if not traced.lookups and all(node.op_type not in ENCODERS for node in traced.encoders):
            raise ValueError("numbers are compared")
        (name,) = [name for name, places in evaluator.rows() if place in places]
        raise UnsupportedModelError(
            f"input {name!r} has values that are categories ({category.shown()}) and numbers, too: the model tells "
            "others apart",
            "give the numbers an input of their own, beside the categories",
        )
    return closed


def _rest(graph: GraphProto, traced: Trace) -> list[NodeProto]:
    """The nodes that stay: those that make no traced value, and those that compute shapes among them."""
    gone = set(traced.values).union(*(node.output for node in traced.lookups))
    return [node for node in graph.node if gone.isdisjoint(node.output)]


def _exits(graph: GraphProto, traced: Trace, evaluator: Evaluator, rest: Sequence[NodeProto]) -> list[str]:
    """The traced values that the rest of the model reads."""
    read = {entry.name for entry in graph.output}.union(*map(names_read, rest))
    made = [name for node in traced.nodes for name in node.output]
    return [name for name in (*evaluator.shapes, *made) if name in read and name in traced.values]


def _is_read(name: str, graph: GraphProto, rest: Sequence[NodeProto]) -> bool:
    """Whether a value is read for more than its shape."""
    readers = [node.op_type for node in rest if name in names_read(node)]
    return any(kind not in OF_SHAPES for kind in readers) or any(entry.name == name for entry in graph.output)


def _add_masks(graph: GraphProto, constants: dict[str, Array], traced: Trace) -> None:
    """Scores that a Where replaces by a mask's number, as `masked_fill` does, as a sum with a mask."""
    nodes = list(graph.node)
    factors = masking(nodes, [entry.name for entry in graph.output], constants)
    changed = list[NodeProto]()
    for node in nodes:
        result = node.output[0]
        may_mask = node.op_type == "Where" and node.input[0] in traced.values and result in factors
        choices = node.input[1:3] if may_mask else ()
        other = next((name for name in choices if is_mask(constants.get(name), factors[result])), None)
        if other is None or all(name in constants for name in choices):
            changed.append(node)
            continue
        zero = f"{result}/zero"
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
        name for node in graph.node if node.op_type in NAMING_TABLES for name in node.output
    }
    tell = any(node.op_type in (*ENCODERS, "Equal", "Cast") for node in graph.node)
    looks_up = any(node.op_type == "Gather" and node.input[0] in weights for node in graph.node)
    may_have = tell or looks_up or len(_truths(graph)) > 0
    return may_have and all(_is_fixed(entry.type.tensor_type) for entry in graph.input)


def _truths(graph: GraphProto) -> set[str]:
    """The inputs of truths."""
    return {entry.name for entry in graph.input if entry.type.tensor_type.elem_type == TensorProto.BOOL}


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
        (source,) = [name for name in node.input if name in traced.values]
        if not _is_shifted(source, evaluator):
            continue
        for place, shift in shifted(source, evaluator):
            known = found.setdefault(place, _Known())
            values = known.values if node.op_type in ENCODERS else known.compared
            values += [value if isinstance(value, str) else value - shift for value in listed(node, constants)]
            known.is_strict |= _refuses_others(node)
    for node in traced.lookups:
        rows = len(constants[node.input[0]])
        for place, shift in shifted(node.input[1], evaluator):
            found.setdefault(place, _Known()).look_up(range(max(0, -shift), rows - shift))
    for name, places in evaluator.rows():
        for place in places if name in _truths(proto.graph) else ():
            found.setdefault(place, _Known()).look_up(range(len(TRUTHS)))
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


def _refuses_others(encoder: NodeProto) -> bool:
    """Whether a node takes no other values than it lists. OneHot takes numbers below zero for others from the end, and
    a LabelEncoder of scikit-learn has a default where it takes others."""
    if encoder.op_type == "LabelEncoder":
        defaults = [each for each in encoder.attribute if each.name in ("default_float", "default_int64")]
        return not defaults or any(math.isnan(each.f) for each in defaults)
    return encoder.op_type == "OneHot" or any(each.name == "zeros" and each.i != 1 for each in encoder.attribute)


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
        self.rest = _rest(self.graph, self.traced)
        self.exits = _exits(self.graph, self.traced, self.evaluator, self.rest)
        self.masking = masking(self.rest, [entry.name for entry in self.graph.output], self.constants)
        self.made: list[NodeProto] = []
        self.whole: set[str] = set()
        self.counts: set[str] = set()
        self.truths: set[str] = set()
        self.kinds: dict[str, int] = {}
        if self.width > MOST_TABLE:
            raise UnsupportedModelError(
                f"its inputs' categories take {self.width} indicators, more than {MOST_TABLE}",
                "use smaller tables, or take the model behind them (its rows as inputs)",
            )

    def _size(self, place: int) -> int:
        return len(self.categories[place].values) if place in self.categories else 1

    def encode(self) -> Categories:
        """Changes the model."""
        exits = self.exits
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

    def _make(self, result: str, places: Array, lookup: NodeProto | None) -> None:
        """Makes a value, or the rows that a lookup finds, of the row of numbers and indicators."""
        inner, flat = places.shape, places.ravel().tolist()
        if lookup is None and not _is_read(result, self.graph, self.rest):
            # Its values do not matter.
            self._finish(self._take(range(len(flat))), inner, result)
            return
        source = result if lookup is None else lookup.input[1]
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
        rows = np.zeros((most + 1, self.evaluator.count), object)
        for place, category in self.categories.items():
            values = np.array(category.values, object)
            rows[:most, place] = values[np.minimum(np.arange(most), len(values) - 1)]
            rows[most, place] = values[0] if category.others == "refused" else category.other
        found, dtype = self._evaluated(name, rows, len(places))
        kind, wide = dtype.kind, dtype in (np.int32, np.int64)
        if kind in "biu" and name in self.exits:
            self.kinds[name] = helper.np_dtype_to_tensor_dtype(dtype)
        if kind == "b":
            self.truths.add(name)
        elif kind in "iu" and name in self.exits:
            self.whole.add(name)
            is_natural = self.categories.keys() >= set(places) and wide and bool((found >= 0).all())
            self.counts.update([name] if is_natural else [])
        found = found.reshape(most + 1, -1, 1)
        found = bounded(found.astype(np.float64), self.masking[name]) if name in self.masking else found
        if not np.isfinite(found).all():
            raise UnsupportedModelError(
                f"{name!r} is infinite for some categories of the inputs",
                "let the model add numbers above -10000 there",
            )
        is_open = [place in self.categories and self.categories[place].others != "refused" for place in places]
        of_others = np.where(is_open, found[most, :, 0].astype(np.float64), 0.0)
        numbers, same, tables = np.ones((1, 1)), dict[bytes, Array](), []
        for at, place in enumerate(places):
            table = numbers
            if place in self.categories:
                table = found[: self._size(place), at].astype(np.float64) - of_others[at]
            tables.append(same.setdefault(table.tobytes(), table))
        return tables, of_others.astype(np.float32)

    def _evaluated(self, name: str, rows: Array, values: int) -> tuple[Array, np.dtype[Any]]:
        """A traced tensor's values for each row, and their type in the file.

        Zeros and ones take a byte each.

        Args:
            name: the tensor.
            rows: the rows of inputs.
            values: the elements of the tensor.
        """
        found, each, dtype = list[Array](), max(1, MOST_AT_ONCE // values), np.dtype(bool)
        may_be_large = len(rows) * values > MOST_TABLE
        if len(rows) * values > MOST_INDICATORS:
            raise self._too_large(name, len(rows) - 1, values)
        for at in range(0, len(rows), each):
            part = self.evaluator.values(name, rows[at : at + each])
            dtype = part.dtype
            are_indicators = np.isin(part, TRUTHS).all()
            if may_be_large and not are_indicators:
                raise self._too_large(name, len(rows) - 1, values)
            found.append(part.astype(bool if are_indicators else np.float64))
        return np.concatenate(found), dtype

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

    def _take(self, columns: Sequence[int]) -> str:
        """Columns of the row."""
        if list(columns) == list(range(self.width)):
            return self.row
        return self._node("Gather", [self.row, self._constant(np.array(columns, np.int64))], axis=1)

    def _reshape(self, name: str, inner: Sequence[int]) -> str:
        return self._node("Reshape", [name, self._constant(np.array([0, *inner], np.int64))])

    def _finish(self, name: str, inner: Shape, result: str) -> None:
        """Gives a value its shape, its name, and its type where that is no float."""
        kind, title = self.kinds.get(result), f"{result}/encoded"
        shaped = result if kind is None else title
        shape = self._constant(np.array([0, *inner], np.int64))
        self.made.append(helper.make_node("Reshape", [name, shape], [shaped], name=title))
        if kind is not None:
            self.made.append(helper.make_node("Cast", [shaped], [result], name=f"{result}/typed", to=kind))

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
        nodes = [copy.deepcopy(node) for node in (*self.made, *self.rest)]
        del graph.node[:], graph.input[:]
        graph.node.extend(nodes)
        graph.input.append(entry)


def _one_of(table: Array) -> int | None:
    """The category whose indicator a table is; None where it is no indicator."""
    is_one = table.shape[1] == 1 and np.count_nonzero(table) == 1 and table.max() == 1
    return int(table.argmax()) if is_one else None
