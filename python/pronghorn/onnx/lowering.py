"""Lowering: the graph of `crates/pronghorn-graph/src/graph.rs` while it is built.

The batch dimension is 1 while importing, and first in every shape; the graph has none. So a value
of ONNX shape `(1, 3, 32, 32)` has shape `[3, 32, 32]` in the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx.advice import FLOAT_MODEL
from pronghorn.onnx.cutting import Network
from pronghorn.onnx.masks import MOVING, Mask
from pronghorn.onnx.reading import MOST_DIMENSIONS
from pronghorn.onnx.registry import OPERATORS
from pronghorn.onnx.site import Shape, Site
from pronghorn.onnx.window import Window

if TYPE_CHECKING:
    from pronghorn.onnx.merging import Targets

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

LEAST_EPSILON = 1e-20
"""A smaller epsilon below a root counts as this: it matters to values below 1e-9 alone, which have no fixed point."""

MAX_ELEMENTS = 1 << 28
"""Most elements of one value, as in `geometry.rs`; refused before anything of that size is made."""

APART = "keep the images of a batch apart: reshape to (batch, ...), or export with a batch of 1"
"""What to do about operators that mix images."""

BATCH_FIRST = (
    "reshape the value to (batch, ...) before it, stack values behind the batch (torch.stack(values, 1)), or export "
    "with a batch of 1"
)
"""What to do about operators that need the batch in the first dimension."""

OTHER_AXIS = "choose an axis of an image: its result would depend on others"
"""What to do about operators over the batch."""

FINISH = ("softmax", "arg_max", "sigmoid", "along", "exp", "exp_m1", "log", "sqrt")
"""Operators that the client computes on the result."""

FINISH_NAMES = {
    "arg_max": "ArgMax",
    "exp": "Exp",
    "exp_m1": "Exp and a subtraction of 1",
    "log": "Log",
    "log_softmax": "LogSoftmax",
    "shares": "a division by the sum",
    "sigmoid": "Sigmoid",
    "softmax": "Softmax",
    "sqrt": "a root (Sqrt, ReduceL2 or Pow)",
}
"""Their names for users, by `Lowering.finish_of`."""

SEVERAL = 3
"""A number of images for which shapes are computed, too: some tell only of several which dimension the batch is."""

HIDDEN = ("Cast", "Dropout", "Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Unsqueeze")
"""Operators that take a batch behind dimensions of size 1, as those do that work element by element."""

LONG = 4096
"""A value that is repeated more often is repeated in two steps."""

MOVED = ("affine", "reshape", "take", "transpose")
"""Nodes of the graph whose values are those of their input, at most scaled and moved."""

CHOOSING = ("Gather", "Slice", "Split")
"""Operators that choose one of two shares."""

REACHING = (*MOVED, "add", "clip", "concat", "leaky_relu", "relu")
"""Those that leave a summand of an input in their value."""

MAPS = {"affine": ("mul", "add"), "dense": ("weight", "bias")}
"""The factor and the summand of linear maps of flat values."""


@dataclass(frozen=True)
class Value:
    """A value computed from the input: its number in the graph, and its ONNX shape.

    A shape has the batch first, 1. Where the model fixes it at 1, a reshape may drop or move it, and
    else merge it with the dimension behind it: then the shape begins with another number, and is the graph's.
    """

    index: int
    shape: Shape
    hidden: Shape | None = None
    """The shape for `SEVERAL` images where the batch is behind dimensions of size 1; None where it is in the first."""

    @property
    def of_several(self) -> Shape:
        """The shape for `SEVERAL` images."""
        return of_several(self.shape) if self.hidden is None else self.hidden

    @property
    def batch(self) -> int:
        """The dimension that the batch is, or is merged with."""
        sizes = zip(self.shape, self.of_several, strict=False)
        return next((axis for axis, (one, several) in enumerate(sizes) if one != several), 0)

    @property
    def batched(self) -> bool:
        """Whether the batch is the first dimension."""
        return self.shape[:1] == (1,)

    @property
    def inner(self) -> Shape:
        """The shape in the graph, without the batch dimension."""
        return self.shape[1:] if self.batched else self.shape


def of_several(shape: Shape) -> Shape:
    """The shape for `SEVERAL` images of a value that has `shape` for one, where the batch is in the first dimension."""
    return (*(SEVERAL * size for size in shape[:1]), *shape[1:])


@dataclass(frozen=True)
class Quantised:
    """What integers of a quantised value stand for: `scale * (integer - zero)`."""

    scale: float
    zero: int
    least: int
    most: int

    @property
    def low(self) -> float:
        """The least number."""
        return self.scale * (self.least - self.zero)

    @property
    def high(self) -> float:
        """The largest number."""
        return self.scale * (self.most - self.zero)


@dataclass
class Lowering:
    """The graph while it is built."""

    opset: int
    constants: dict[str, Array]
    within: Container[str] = ()
    """The names of values that operators within the network read, so that the client cannot compute them."""
    before_layers: Container[str] = ()
    """Those behind which a network goes on with layers or products."""
    scored: Container[str] = ()
    """Those that a Softmax reads, at most moved, scaled and added to: a summand far below zero masks places."""
    masking: Mapping[str, float] = field(default_factory=dict)
    """The names of values that Softmaxes alone read, at most changed as masks are, and their factors on the way."""
    attended: Container[str] = ()
    """The results of Softmaxes by which other values are weighed."""
    whole: Container[str] = ()
    """The names of values that may be whole numbers in the file, which cuts fractions off."""
    of_inputs: Container[str] = ()
    """The names of those that follow from inputs of whole numbers."""
    narrow: set[str] = field(default_factory=set)
    """The names of truths in types that whole numbers may overflow."""
    counts: Container[str] = ()
    """The names of those that are known to be whole: sums of truths, and what follows from them or from categories."""
    given: Container[str] = ()
    """The names of whole numbers and truths that are inputs, or that indicators of categories make."""
    given_truths: Container[str] = ()
    """The names of truths that follow from categories."""
    network: list[NodeProto] = field(default_factory=list)
    """All nodes that are lowered, for advice."""
    one_image: bool = False
    """Whether the model fixes the batch at 1, or has a recurrent network, before which the batch moves."""
    is_apart: bool = False
    """Whether images are known to be apart: the model fixes the batch at 1, or is run to see that."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The output of each part of the row of several outputs."""
    targets: Targets | None = None
    """The shapes that values are reshaped to, for several images."""
    values: dict[str, Value] = field(default_factory=dict)
    masks: dict[str, Mask] = field(default_factory=dict)
    """What some values are to be scaled by and added to yet, by name."""
    nodes: list[dict[str, Any]] = field(default_factory=list)
    tensors: dict[str, Floats] = field(default_factory=dict)
    shares: set[int] = field(default_factory=set)
    """The values that a Softmax within the network made."""
    quotients: dict[int, tuple[Value, Value]] = field(default_factory=dict)
    """Its products of exponentials, whose places come first, and 1 over their sum."""
    unscaled: dict[int, int] = field(default_factory=dict)
    """Scores without the factor that their exponentials took over: two of one score share them."""
    compared: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    """The columns of a row that a layer compares with thresholds, and these."""
    truths: set[int] = field(default_factory=set)
    """The values that are 1 where a comparison holds, and 0 elsewhere."""
    quantised: dict[str, Quantised] = field(default_factory=dict)
    """The results of QuantizeLinear, whose values are kept as the numbers that the integers stand for."""

    def start(self, name: str, shape: Shape) -> None:
        """Makes the input; `shape` has the batch first."""
        self.nodes.append({"name": name, "op": {"kind": "input"}, "inputs": [], "shape": list(shape[1:])})
        self.values[name] = Value(0, shape)

    def shape_of(self, name: str) -> Shape | None:
        """The ONNX shape of a value or constant; None where unknown."""
        if name in self.values:
            return self.values[name].shape
        return tuple(self.constants[name].shape) if name in self.constants else None

    # Reading inputs.

    def value(self, site: Site, position: int = 0) -> Value:
        """An input that depends on the model's input."""
        value, mask = self.score(site, position)
        return value if mask is None or site.operator in MOVING else self._with_mask(value, mask)

    def computed(self, name: str) -> Value:
        """A value by its name, which depends on the model's input."""
        value, mask = self.values[name], self.masks.get(name)
        return value if mask is None else self._with_mask(value, mask)

    def _with_mask(self, value: Value, mask: Mask) -> Value:
        return self.affine(mask.site, value, mask.mul, self.floats(mask.site, mask.add, mask.name))

    def score(self, site: Site, position: int = 0) -> tuple[Value, Mask | None]:
        """As `value`, with its mask apart."""
        name = site.input(position)
        if name not in self.values:
            problem = f"its input {position} ({name or 'absent'}) is a constant, not a value"
            site.fail(problem, "swap its inputs, or fold the constant into the weights")
        if name in self.quantised and site.node.op_type != "DequantizeLinear":
            site.fail(f"its input {name!r} is quantised", f"put a DequantizeLinear before it, or {FLOAT_MODEL}")
        return self._usable(site, self.values[name]), self.masks.get(name)

    def _usable(self, site: Site, value: Value) -> Value:
        operator = OPERATORS[site.operator]
        if value.hidden is not None and not (operator.pointwise or self._takes_hidden(site, value)):
            problem = f"of {SEVERAL} images its input has shape {list(value.hidden)}: the batch is not first"
            site.fail(problem, BATCH_FIRST)
        is_raised = not value.batched and operator.pointwise
        if not (value.batched or operator.unbatched or is_raised):
            self.refuse_unbatched(site, value)
        kind = self.finish_of(value)
        if not operator.on_result:
            kind = self.without_sigmoid(value)
        if kind and not operator.on_result:
            self.refuse_going_on(site, value, kind)
        return Value(value.index, (1, *value.shape)) if is_raised else value

    def summand(self, site: Site, position: int) -> Floats:
        """A constant input that is added; what masks scores may be infinite."""
        array = self.constant(site, position)
        if array is None or site.node.output[0] not in self.scored:
            return self.required(site, position)
        return self.floats(site, array, site.input(position), finite=False)

    def refuse_cut_off(self, site: Site, problem: str) -> None:
        """Refuses an operator on whole numbers that gives fractions, which the file cuts off."""
        if any(name in self.whole for name in site.node.input):
            site.fail(f"{problem}, which the file cuts off", "cast them to floats before (Cast)")

    def is_within(self, site: Site) -> bool:
        """Whether the network goes on behind a node, so that the client does not compute it."""
        return any(name in self.within for name in site.node.output)

    def value_within(self, site: Site) -> Value:
        """As `value`, of a node within the network that could have been the client's."""
        value, mask = self.score_within(site)
        return value if mask is None else self._with_mask(value, mask)

    def score_within(self, site: Site) -> tuple[Value, Mask | None]:
        """As `value_within`, with its mask apart."""
        value, mask = self.score(site)
        if kind := self.without_sigmoid(value):
            self.refuse_going_on(site, value, kind)
        return value, mask

    def _takes_hidden(self, site: Site, value: Value) -> bool:
        """Whether an operator leaves images apart whose batch is hidden: it moves none, or runs for one image only."""
        fits_one = site.operator in ("Gemm", "MatMul") and value.of_several[-1:] != value.shape[-1:]
        return fits_one or site.operator in HIDDEN

    def refuse_going_on(self, site: Site, value: Value, kind: str) -> NoReturn:
        """Refuses to go on with a value that the client computes."""
        problem = f"it comes after {FINISH_NAMES[kind]}, which is supported only at the end of a model"
        last = next((name for name in site.node.input if self.values.get(name) == value), site.input(0))
        advice = Network(self.network, next(iter(self.values)), self._number, self._is_end).advice(last)
        output = self.parts.get(last) or self.parts.get(site.node.output[0])
        if output is not None:
            # No node of the file makes one row of several outputs.
            problem = f"output {output!r} comes after {FINISH_NAMES[kind]}, and is supported only without other outputs"
            raise UnsupportedModelError(problem, advice, opset=self.opset)
        site.fail(problem, advice)

    def _number(self, name: str) -> float | None:
        """A constant of one number; None for all else."""
        constant = self.constants.get(name)
        is_number = constant is not None and constant.size == 1 and constant.dtype.kind in "fiu"
        return float(constant.reshape(())) if constant is not None and is_number else None

    def _is_end(self, name: str) -> bool:
        """Whether the client computes a value, and no function within a network does."""
        return name in self.values and self.finish_of(self.values[name]) not in (None, "sigmoid")

    def lowered(self, site: Site, value: Value) -> Value:
        """The result of a pointwise operator in its ONNX shape, where an input was given a batch before all others,
        or a constant has more dimensions."""
        made = self._in_all_dimensions(site, value)
        inputs = [name for name in site.node.input if name]
        values = [self.values[name] for name in inputs if name in self.values]
        shapes = [self.constants[name].shape for name in inputs if name not in self.values]
        try:
            several = np.broadcast_shapes(*shapes, *(each.of_several for each in values))
        except ValueError:
            return made  # The model runs for one image only.
        if len({len(each.of_several) - each.batch for each in values}) > 1 and not self.one_image:
            shown = [list(each.of_several) for each in values]
            site.fail(f"of {SEVERAL} images its inputs have shapes {shown}: the batch is not the same dimension", APART)
        return self.of_images(site, made, several)

    def of_images(self, site: Site, value: Value, several: Shape | None) -> Value:
        """A result with its shape for `SEVERAL` images; None where the model runs for one image only.

        Raises:
            UnsupportedModelError: the values of an image are not together in it.
        """
        if self.one_image or several is None:
            return value
        self.keeps_apart(site, value.shape, several)
        is_first = several == of_several(value.shape)
        return Value(value.index, value.shape, None if is_first else several)

    def keeps_apart(self, site: Site, shape: Shape, several: Shape) -> None:
        """Refuses a result in which the values of an image are not together, by its shapes for one and several."""
        batch = Value(0, shape, several).batch
        if several != (*shape[:batch], *of_several(shape[batch:])) or math.prod(shape[:batch]) != 1:
            problem = f"of {SEVERAL} images it makes shape {list(several)}, and of one {list(shape)}: it mixes images"
            site.fail(problem, APART)

    def _in_all_dimensions(self, site: Site, value: Value) -> Value:
        shape = np.broadcast_shapes(*(shape for shape in site.shapes if shape is not None))
        is_batched = all(self.values[name].batched for name in site.node.input if name in self.values)
        if is_batched and len(shape) == len(value.shape):
            return value
        if not (is_batched or self.one_image) and shape[:1] == (1,):
            self.refuse_unbatched(site, Value(value.index, value.inner))
        return self.reshape_onnx(site, value, shape)

    def refuse_unbatched(self, site: Site, value: Value) -> NoReturn:
        """Refuses an input whose batch is not where the operator needs it."""
        if not self.one_image:
            problem = f"the batch is merged with another dimension in its input, of shape {list(value.shape)}"
            site.fail(problem, BATCH_FIRST)
        problem = f"the batch is not the first dimension of its input, of shape {list(value.shape)}"
        site.fail(problem, "reshape the value to (batch, ...) before it, or export with a free batch size")

    def not_images(self, site: Site, value: Value, axes: Iterable[int]) -> None:
        """Refuses an operation along the dimension that the batch is, or is merged with."""
        if value.batched or not self.one_image:
            site.not_batch(axes)

    def not_over_images(self, site: Site, axes: Iterable[int]) -> None:
        """Refuses an operation over the batch, also where an image has one value alone."""
        if not self.one_image and 0 in axes:
            site.fail("it works over the batch (axis 0)", OTHER_AXIS)

    def keeps_images(self, site: Site, value: Value, axes: Sequence[int]) -> None:
        """Refuses a reduction over the batch. Where it is not first, as behind a recurrent network, it is a dimension
        of size 1: one must stay. Without any, it is merged with the first.
        """
        self.not_images(site, value, axes)
        if value.batched or not self.one_image or (1 not in value.shape and 0 not in axes):
            return
        if not any(size == 1 and axis not in axes for axis, size in enumerate(value.shape)):
            self.refuse_unbatched(site, value)

    def in_shape_of(self, value: Value, made: Value) -> Value:
        """`made`, of all dimensions of `value` in the graph, with its batch where `value` has it."""
        return made if value.batched else Value(made.index, made.inner)

    def finish_of(self, value: Value) -> str | None:
        """The operator on the client that `value` comes from, if any."""
        op = self._last_node(value)["op"]
        return op.get("of", op["kind"]) if op["kind"] in FINISH else None

    def largest_factor(self, value: Value) -> float:
        """The largest number of those that a value was multiplied by last, one after the other; at least 1."""
        index, largest = value.index, 1.0
        while (op := self.nodes[index]["op"])["kind"] in MOVED:
            factor = self.tensors.get(op.get("mul") or "")
            if factor is not None and factor.size == 1:
                largest = max(largest, abs(float(factor[0])))
            (index,) = self.nodes[index]["inputs"]
        return largest

    def largest_summand(self, value: Value) -> float:
        """The largest constant among those that were added to a value last, or its parts, times the factors since."""
        largest, waiting, factors = 0.0, [value.index], {value.index: 1.0}
        while waiting:
            index = waiting.pop()
            node = self.nodes[index]
            if node["op"]["kind"] not in REACHING:
                continue
            mul, add = (self._size_of(node["op"].get(role), neutral) for role, neutral in (("mul", 1.0), ("add", 0.0)))
            largest = max(largest, factors[index] * add)
            # On several ways to a part the largest factor counts.
            further = [each for each in node["inputs"] if factors[index] * mul > factors.get(each, 0.0)]
            factors.update(dict.fromkeys(further, factors[index] * mul))
            waiting += further
        return largest

    def _size_of(self, tensor: str | None, absent: float) -> float:
        """The largest size of the numbers of a node's tensor."""
        return float(np.abs(self.tensors[tensor]).max()) if tensor else absent

    def without_sigmoid(self, value: Value) -> str | None:
        """As `finish_of`, after every Sigmoid at the end has become a function within the network."""
        node = self._last_node(value)
        while node["op"]["kind"] == "sigmoid":
            node["op"] = {"kind": "function", "function": {"name": "sigmoid"}}
            node = self._last_node(Value(node["inputs"][0], ()))
        op = node["op"]
        return op.get("of", op["kind"]) if op["kind"] in FINISH else None

    def _last_node(self, value: Value) -> dict[str, Any]:
        """The node of the graph that computes a value, reshapes behind it left out."""
        node = self.nodes[value.index]
        while node["op"]["kind"] == "reshape":
            node = self.nodes[node["inputs"][0]]
        return node

    def constant(self, site: Site, position: int) -> Array | None:
        """A constant input; None where absent."""
        name = site.input(position)
        if not name:
            return None
        if name not in self.constants:
            problem = f"its input {position} ({name}) is computed from the model's input, not a constant"
            site.fail(problem, "only the first input may depend on the data; make the other a constant")
        array = self.constants[name]
        if array.ndim > MOST_DIMENSIONS:
            site.fail(f"its input {position} ({name}) has {array.ndim} dimensions", f"use at most {MOST_DIMENSIONS}")
        return array

    def weights(self, site: Site, position: int) -> Floats | None:
        """A constant input as float32, finite; None where absent."""
        array = self.constant(site, position)
        return None if array is None else self.floats(site, array, site.input(position))

    def required(self, site: Site, position: int) -> Floats:
        """As `weights`, but must be there."""
        array = self.weights(site, position)
        return array if array is not None else site.fail(f"its input {position} is absent", "repair the model")

    def scalar(self, site: Site, position: int) -> float | None:
        """A constant input of one number; None where absent."""
        array = self.constant(site, position)
        if array is None:
            return None
        if array.size != 1:
            site.fail(f"its bound of shape {list(array.shape)} is not one number", "use one bound for all values")
        return float(array.reshape(()))

    def integers(self, site: Site, position: int) -> list[int] | None:
        """A constant input of whole numbers; None where absent."""
        array = self.constant(site, position)
        if array is None:
            return None
        if array.dtype.kind not in "iu":
            site.fail(f"its input {site.input(position)} has type {array.dtype}", "make it integers")
        return [int(number) for number in array.flat]

    def axes(self, site: Site, since: int) -> list[int] | None:
        """Axes: an attribute before opset `since`, an input from there on; None where absent."""
        if site.opset < since:
            return site.integers("axes")
        return self.integers(site, 1)

    def floats(self, site: Site, array: Array, name: str, finite: bool = True) -> Floats:
        """`array` as float32; `finite`: whether other numbers are refused."""
        if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
            site.fail(f"its constant {name} has type {array.dtype}", "make it floating point")
        with np.errstate(all="ignore"):
            converted = np.ascontiguousarray(array, dtype=np.float32)
        if finite and not np.isfinite(converted).all():
            position = np.unravel_index(int(np.argmin(np.isfinite(converted))), converted.shape)
            where = [int(p) for p in position]
            problem = f"its constant {name} holds {converted[position]} at {where} (as float32)"
            site.fail(problem, "weights must be finite: train or export the model again")
        return converted.reshape(array.shape)

    # Making nodes.

    def emit(self, site: Site, op: dict[str, Any], inputs: Sequence[Value], inner: Iterable[int]) -> Value:
        """Appends a node with the result's shape, batch not counted."""
        shape = [int(size) for size in inner]
        self._bounded(site, shape)
        indices = [value.index for value in inputs]
        self.nodes.append({"name": site.name, "op": op, "inputs": indices, "shape": shape})
        return Value(len(self.nodes) - 1, (1, *shape))

    def _bounded(self, site: Site, shape: Sequence[int]) -> None:
        """Refuses a value that would be empty or too large; `shape` is without the batch."""
        if any(size < 1 for size in shape) or math.prod(shape) > MAX_ELEMENTS:
            problem = f"its result would have shape {list(shape)}"
            site.fail(problem, f"every dimension must be at least 1, and at most {MAX_ELEMENTS} elements in all")

    def repeated(self, site: Site, weight: Floats, times: int) -> Floats:
        """Weights several times, one behind the other."""
        self._bounded(site, (times, *weight.shape))
        return np.tile(weight, (times, *(1 for _ in weight.shape[1:])))

    def tensor(self, site: Site, role: str, array: Floats) -> str:
        """Stores weights under a name of their own."""
        name = base = f"{site.name}.{role}"
        number = 1
        while name in self.tensors:
            number += 1
            name = f"{base}.{number}"
        self.tensors[name] = np.ascontiguousarray(array)
        return name

    def reshape(self, site: Site, value: Value, inner: Iterable[int]) -> Value:
        """The same elements in another shape; no node where the shape is the same."""
        inner = tuple(inner)
        if inner == value.inner:
            return value
        made = self.nodes[value.index]
        if made["op"]["kind"] in ("sigmoid", "softmax", "exp", "exp_m1", "log", "sqrt"):
            # The client computes these last, on a result that has its shape already.
            before = self.reshape(site, Value(made["inputs"][0], value.shape), inner)
            return self.emit(site, made["op"], [before], inner)
        if made["op"]["kind"] == "along":
            return self._reshape_along(site, made, inner)
        return self.emit(site, {"kind": "reshape"}, [value], inner)

    def _reshape_along(self, site: Site, made: dict[str, Any], inner: Shape) -> Value:
        """A result over an axis in another shape: the value before it is reshaped, and keeps the axis."""
        op, before = made["op"], self._read_by(made)
        count, *after = before.inner[op["axis"] :]
        for place in range(len(inner) + 1):
            # An ArgMax has no axis in its result.
            shaped = (*inner[:place], count, *inner[place:]) if op["of"] == "arg_max" else inner
            if shaped[place : place + 1] == (count,) and math.prod(shaped[place + 1 :]) == math.prod(after):
                return self.emit(site, {**op, "axis": place}, [self.reshape(site, before, shaped)], inner)
        name = site.input(0)
        if self.is_within(site):
            self.refuse_going_on(site, self.values[name], op["of"])
        site.fail(
            f"it reshapes a result of {op['of']} to {[1, *inner]}, where its axis is none",
            f"reshape the result yourself: end the model before it (--output {name}, output={name!r})",
        )

    def _read_by(self, made: dict[str, Any]) -> Value:
        """The value that a node of one input reads."""
        index = made["inputs"][0]
        return Value(index, (1, *self.nodes[index]["shape"]))

    def reshape_onnx(self, site: Site, value: Value, shape: Sequence[int], merges: bool = False) -> Value:
        """As `reshape`, to an ONNX shape. `merges`: whether it may merge the batch with another dimension."""
        found = Value(value.index, tuple(shape))
        # Rows of all images, as a matrix product of a sequence has them, stay apart.
        are_rows = found.inner == value.inner or (
            value.batched and len(found.shape) > 1 and found.shape[1:] == value.shape[1 - len(found.shape) :]
        )
        stays = not value.batched and found.shape[:1] == value.shape[:1]
        if not (found.batched or self.one_image or are_rows or stays or (merges and found.shape)):
            problem = f"its result has shape {list(shape)}, whose first dimension is not the batch, 1"
            site.fail(problem, "keep the batch as first dimension: export with a batch of 1 or a free batch size")
        if math.prod(shape) != math.prod(value.shape):
            problem = f"it makes shape {list(shape)} of {list(value.shape)}, which has other elements"
            site.fail(problem, "export with a batch of 1 or a free batch size, and a fixed input shape")
        return Value(self.reshape(site, value, found.inner).index, found.shape)

    def transpose(self, site: Site, value: Value, permutation: Sequence[int]) -> Value:
        """Output dimension d is input dimension `permutation[d]`, batch not counted."""
        if list(permutation) == sorted(permutation):
            return value
        inner = [value.inner[axis] for axis in permutation]
        made = self.nodes[value.index]
        if (op := made["op"])["kind"] not in FINISH:
            return self.emit(site, {"kind": "transpose", "permutation": list(permutation)}, [value], inner)
        # The client computes these last, on a result that is transposed already.
        before = self._read_by(made)
        order = list(permutation)
        if op["kind"] == "along":
            axis = op["axis"]
            if op["of"] == "arg_max":
                order = [place + (place >= axis) for place in order]
                order.insert(axis, axis)
            op = {**op, "axis": order.index(axis)}
        return self.emit(site, op, [self.transpose(site, before, order)], inner)

    def with_axis_first(self, site: Site, value: Value, axis: int, made: Callable[[Value], Value]) -> Value:
        """What `made` makes of a value whose axis (batch counted) stands first, with the axis in its place again."""
        inner = axis - int(value.batched)
        order = [inner, *(place for place in range(len(value.inner)) if place != inner)]
        first = self.transpose(site, Value(value.index, (1, *value.inner)), order)
        back = self.transpose(site, made(first), [order.index(place) for place in range(len(order))])
        return self.in_shape_of(value, back)

    def take(self, site: Site, value: Value, axis: int, count: int, source: Callable[[int], int]) -> Value:
        """Place `i` of `count` along `axis`, batch not counted, is the input's place `source(i)`; no
        node where all places stay."""
        inner = [*value.inner[:axis], count, *value.inner[axis + 1 :]]
        self._bounded(site, inner)
        indices = [int(source(place)) for place in range(count)]
        if count == value.inner[axis] and indices == list(range(count)):
            return value
        made = self.nodes[value.index]
        is_of_two = value.index in self.shares and made["op"]["kind"] == "function"
        if is_of_two and site.operator in CHOOSING and site.node.output[0] not in self.before_layers:
            # One of two shares is a Sigmoid, which at the end is the client's.
            before = self.take(site, self._read_by(made), axis, count, source)
            return self.emit(site, {"kind": "sigmoid"}, [before], inner)
        part = _near_root(count) if value.inner[axis] == 1 and count > LONG else 1
        if part > 1:
            # The plan has a number for each place of a selection.
            rows = self.take(site, value, axis, part, lambda _: 0)
            apart = self.reshape(site, rows, (*inner[:axis], part, 1, *inner[axis + 1 :]))
            return self.reshape(site, self.take(site, apart, axis + 1, count // part, lambda _: 0), inner)
        return self.emit(site, {"kind": "take", "axis": axis, "indices": indices}, [value], inner)

    def zeros_around(self, site: Site, value: Value, before: Sequence[int], after: Sequence[int]) -> Value:
        """With zeros before and after each dimension, batch not counted; no node where there are none."""
        if not any((*before, *after)):
            return value
        inner = [first + size + last for first, size, last in zip(before, value.inner, after, strict=True)]
        return self.emit(site, {"kind": "pad", "before": list(before), "after": list(after)}, [value], inner)

    def aligned(self, site: Site, values: Sequence[Value]) -> list[Value]:
        """Values with one number of dimensions, whose shapes are broadcast to one another as ONNX does.

        Of a model with a free batch, values of fewer dimensions would meet another dimension than the batch
        with theirs.
        """
        ranks = {len(value.shape) for value in values}
        shapes = [list(value.shape) for value in values]
        try:
            np.broadcast_shapes(*(value.shape for value in values))
        except ValueError:
            site.fail(f"its inputs of shapes {shapes} are not broadcast to one another", "give all the same shape")
        if len(ranks) > 1 and not self.one_image:
            advice = "give all the same number of dimensions, or export with a batch of 1"
            site.fail(f"its inputs of shapes {shapes} are not broadcast to one another", advice)
        rank = max(ranks)
        return [self.reshape_onnx(site, value, (1,) * (rank - len(value.shape)) + value.shape) for value in values]

    def alike(self, site: Site, values: Sequence[Value]) -> list[Value]:
        """As `aligned`, with all values repeated to one shape."""
        values = self.aligned(site, values)
        inner = np.broadcast_shapes(*(value.inner for value in values))
        return [self._repeated(site, value, inner) for value in values]

    def _repeated(self, site: Site, value: Value, inner: Shape) -> Value:
        for axis, size in enumerate(inner):
            if value.inner[axis] != size:
                value = self.take(site, value, axis, size, lambda _: 0)
        return value

    def plus(self, site: Site, left: Value, right: Value) -> Value:
        """The sum of two values."""
        left, right = self.alike(site, [left, right])
        return self.emit(site, {"kind": "add"}, [left, right], left.inner)

    def minus(self, site: Site, left: Value, right: Value) -> Value:
        """The difference of two values."""
        return self.plus(site, left, self.affine(site, right, mul=-1.0))

    def times(self, site: Site, left: Value, right: Value) -> Value:
        """The product of two values."""
        if left == right:
            return self.emit(site, {"kind": "square"}, [left], left.inner)
        left, right = self.aligned(site, [left, right])
        inner = np.broadcast_shapes(left.inner, right.inner)
        return self.emit(site, {"kind": "multiply"}, [left, right], inner)

    def rectified(self, site: Site, value: Value) -> Value:
        """`max(value, 0)`."""
        return self.emit(site, {"kind": "relu"}, [value], value.inner)

    def affine(self, site: Site, value: Value, mul: Array | float = 1.0, add: Array | float = 0.0) -> Value:
        """`value * mul + add`, with constants broadcast as ONNX does.

        A factor of -1 that is no array is the network's own, and the plan tells it. Of an array it may be trained.
        """
        factors = {"mul": np.asarray(mul, np.float32), "add": np.asarray(add, np.float32)}
        shapes: list[Shape] = [array.shape for array in factors.values()]
        try:
            shape = np.broadcast_shapes(value.shape, *shapes)
        except ValueError:
            shape = ()
        ones = (1,) * (len(shape) - len(value.shape))
        if shape[:1] != (*ones, *value.shape)[:1]:
            constant = max(shapes, key=math.prod)
            problem = f"its constant of shape {list(constant)} does not fit shape {list(value.shape)}"
            site.fail(problem, "give it a shape that is broadcast to the value, or the value to it behind the batch")
        value = self.reshape_onnx(site, value, ones + value.shape)
        value = self._repeated(site, value, shape[1:] if value.batched else shape)
        op: dict[str, Any] = {"kind": "affine", "mul": None, "add": None}
        for role, neutral in (("mul", 1.0), ("add", 0.0)):
            compact = _compact(self.floats(site, factors[role], role), shape if value.batched else (1, *shape))
            if role == "mul" and compact.size == 1 and compact[0] == -1 and not isinstance(mul, int | float):
                channels = next(iter(value.inner), 1)
                compact = np.full(channels if channels > 1 else math.prod(value.inner), compact[0])
            if compact.size > 1 or compact[0] != neutral:
                op[role] = self.tensor(site, role, compact)
        if not (op["mul"] or op["add"]):
            return value
        return Value(self.emit(site, op, [value], value.inner).index, value.shape)

    def convolve(
        self, site: Site, image: Value, window: Window, weight: Floats, bias: Floats | None, groups: int = 1
    ) -> Value:
        """A convolution of a `(C, H, W)` value."""
        op = {
            "kind": "conv",
            "window": window.json(),
            "groups": groups,
            "weight": self.tensor(site, "weight", weight),
            "bias": None if bias is None else self.tensor(site, "bias", bias),
        }
        return self.emit(site, op, [image], (weight.shape[0], *window.output))

    def dense(self, site: Site, value: Value, weight: Floats, bias: Floats | None) -> Value:
        """`weight @ value + bias` of a flat value."""
        op = {
            "kind": "dense",
            "weight": self.tensor(site, "weight", weight),
            "bias": None if bias is None else self.tensor(site, "bias", bias),
        }
        return self.emit(site, op, [value], (weight.shape[0],))

    def linear(self, site: Site, value: Value, matrix: Array, bias: Array) -> Value:
        """`matrix @ value + bias` of a flat value, in one layer with the linear maps that made the value, but
        where a narrow layer before it saves much."""
        node = self.nodes[value.index]
        kind = node["op"]["kind"]
        if kind not in MAPS or (kind == "dense" and len(matrix) > 2 * node["shape"][0]):
            weight, addend = (self.floats(site, array, role) for array, role in ((matrix, "weight"), (bias, "bias")))
            return self.dense(site, value, weight, addend)
        before = self.nodes[node["inputs"][0]]["shape"]
        first, second = (self.tensors.get(node["op"][role]) for role in MAPS[kind])
        if kind == "dense":
            assert first is not None
            product = matrix @ first.astype(np.float64)
        else:
            product = matrix if first is None else matrix * first.astype(np.float64)
        added = bias if second is None else bias + matrix @ np.broadcast_to(second, value.inner).astype(np.float64)
        return self.linear(site, Value(node["inputs"][0], (1, *before)), product, added)

    def function(self, site: Site, value: Value, name: str, **parameters: float) -> Value:
        """A smooth function of each value, by its name in `function.rs`."""
        op = {"kind": "function", "function": {"name": name, **parameters}}
        return self.emit(site, op, [value], value.inner)

    def inverse_root(self, site: Site, value: Value, epsilon: float, scale: float = 1.0) -> Value:
        """`scale / sqrt(value + epsilon)`, where `value` is at least zero."""
        epsilon, scale = (float(np.float32(number)) for number in (epsilon, scale))
        return self.function(site, value, "inverse_root", epsilon=epsilon, scale=scale)

    def root(self, site: Site, value: Value) -> Value:
        """The square root: the client's at the end of the model."""
        if self.is_within(site):
            return self.function(site, value, "sqrt")
        return self.emit(site, {"kind": "sqrt"}, [value], value.inner)

    def reciprocal(self, site: Site, value: Value) -> Value:
        """`1 / value`, where that is positive; of a root in one function, whose table has steps for small values."""
        node = self.nodes[value.index]
        if node["op"].get("function", {}).get("name") == "sqrt":
            squared = Value(node["inputs"][0], value.shape)
            return self.inverse_root(site, squared, LEAST_EPSILON)
        return self.function(site, value, "reciprocal", scale=1.0)

    def clip(self, site: Site, value: Value, low: float | None, high: float | None) -> Value:
        """`min(max(value, low), high)`; bounds beyond float32 are none."""
        limit = float(np.finfo(np.float32).max)
        low = None if low is None or low <= -limit else low
        high = None if high is None or high >= limit else high
        if low is None and high is None:
            return value
        if low == 0 and high is None:
            return self.emit(site, {"kind": "relu"}, [value], value.inner)
        if any(bound is not None and not math.isfinite(bound) for bound in (low, high)):
            site.fail(f"its bounds are {low} and {high}", "make them numbers")
        return self.emit(site, {"kind": "clip", "min": low, "max": high}, [value], value.inner)


def thresholds(lowering: Lowering) -> dict[int, tuple[float, float]]:
    """The least and the largest threshold of each feature, where comparisons alone read the row of them, as it is or
    scaled column by column. Empty where others read it, too."""
    found = dict[int, tuple[float, float]]()
    size = lowering.nodes[0]["shape"]
    pending: list[tuple[int, Array, Array]] = [(0, np.ones(size), np.zeros(size))]
    while pending:
        index, scale, offset = pending.pop()
        for at, node in enumerate(lowering.nodes):
            if index not in node["inputs"]:
                continue
            if at in lowering.compared:
                for column, number in lowering.compared[at]:
                    if scale[column] != 0:
                        raw = float((number - offset[column]) / scale[column])
                        low, high = found.get(column, (raw, raw))
                        found[column] = (min(low, raw), max(high, raw))
            elif node["op"]["kind"] == "affine" and node["shape"] == size:
                factor, summand = (lowering.tensors.get(node["op"].get(role)) for role in ("mul", "add"))
                times: Array = np.ones(1) if factor is None else factor.astype(np.float64)
                plus: Array = np.zeros(1) if summand is None else summand.astype(np.float64)
                pending.append((at, scale * times, offset * times + plus))
            else:
                return {}
    return found


def _near_root(count: int) -> int:
    """The largest divisor of a number up to its square root."""
    return next(part for part in range(math.isqrt(count), 0, -1) if count % part == 0)


def _compact(array: Floats, shape: Shape) -> Floats:
    """`array` broadcast to `shape` (batch first), as one value, one a channel, or one an
    element."""
    channels = shape[1] if len(shape) > 1 else 1
    full = np.broadcast_to(array, shape).reshape(channels, -1)
    if (full == full[0, 0]).all():
        return full[0, :1].copy()
    if (full == full[:, :1]).all():
        return full[:, 0].copy()
    return full.reshape(-1).copy()
