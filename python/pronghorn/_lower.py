"""Lowering: each ONNX node to operators of `crates/pronghorn-graph/src/graph.rs`.

The batch dimension is 1 while importing, and first in every shape; the graph has none. So a value
of ONNX shape `(1, 3, 32, 32)` has shape `[3, 32, 32]` in the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from pronghorn._window import Spatial, Window
from pronghorn.errors import UnsupportedModelError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Shape = tuple[int, ...]

MAX_ELEMENTS = 1 << 28
"""Most elements of one value, as in `geometry.rs`; refused before anything of that size is made."""

FINISH = ("softmax", "arg_max", "sigmoid")
"""Operators that the client computes on the result."""

FLOAT_TYPES = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)

RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")

CUT = "or end the model before it (--output NAME, output=NAME)"

ADVICE = {
    "train it with Relu, LeakyRelu or Clip in its place": "Tanh Elu Selu Celu Gelu Erf Exp Log Sqrt Softplus Softsign "
    "Mish HardSigmoid HardSwish Swish ThresholdedRelu Abs",
    "recurrent networks are not supported; use convolutions": "LSTM GRU RNN",
    "export without data-dependent control flow": "If Loop Scan",
    "train it with BatchNormalization in its place": "InstanceNormalization LayerNormalization GroupNormalization "
    "LpNormalization LRN",
    "upsampling is not supported; use a classifier": "ConvTranspose Resize Upsample",
    "export the float model; Pronghorn quantises it itself": "QLinearConv QLinearMatMul ConvInteger MatMulInteger "
    "QuantizeLinear",
}
HINTS = {name: advice for advice, names in ADVICE.items() for name in names.split()}


@dataclass(frozen=True)
class Value:
    """A value computed from the input: its number in the graph, and its ONNX shape, batch first."""

    index: int
    shape: Shape

    @property
    def inner(self) -> Shape:
        """The shape without the batch dimension."""
        return self.shape[1:]


class Site:
    """An ONNX node where it stands: typed access to its attributes, and errors that name it."""

    def __init__(self, node: NodeProto, opset: int, shapes: list[Shape | None]) -> None:
        """`shapes`: of its inputs, batch first; None where absent or unknown."""
        self.node = node
        self.opset = opset
        self.shapes = shapes
        self.name: str = node.name or next(iter(node.output), "") or node.op_type
        self.attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def fail(self, problem: str, advice: str) -> NoReturn:
        """Raises the error that names this node."""
        raise UnsupportedModelError(
            problem, advice, node=self.name, operator=self.node.op_type, opset=self.opset, shapes=self.shapes
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

    def not_batch(self, axes: Iterable[int]) -> None:
        """Refuses an operation along the batch dimension."""
        if 0 in axes:
            self.fail("it works along the first dimension, the batch", "each image must be computed by itself")


Handler = Callable[["Lowering", Site], Value]
HANDLERS: dict[str, Handler] = {}


def operator(*names: str) -> Callable[[Handler], Handler]:
    """Registers a handler for ONNX operators."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


@dataclass
class Lowering:
    """The graph while it is built."""

    opset: int
    constants: dict[str, Array]
    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    tensors: dict[str, Floats] = field(default_factory=dict)

    def start(self, name: str, shape: Shape) -> None:
        """Makes the input; `shape` has the batch first."""
        self.nodes.append({"name": name, "op": {"kind": "input"}, "inputs": [], "shape": list(shape[1:])})
        self.values[name] = Value(0, shape)

    def lower(self, node: NodeProto, used: set[str]) -> None:
        """Lowers one node; `used`: names that some node or the model's output reads."""
        site = Site(node, self.opset, [self._shape(name) for name in node.input])
        for name in node.input:
            if name and name not in self.values and name not in self.constants:
                site.fail(f"its input {name!r} is made by no node before it", "repair or export the model again")
        if node.domain not in ("", "ai.onnx"):
            site.fail(f"operators of the domain {node.domain!r} are not supported", "export with standard operators")
        if all(name in self.constants for name in node.input if name) and node.op_type not in RANDOM:
            self._fold(site)
            return
        handler = HANDLERS.get(node.op_type)
        if handler is None:
            hint = HINTS.get(node.op_type, f"replace it by one of {', '.join(sorted(HANDLERS))}")
            site.fail("this operator is not supported", f"{hint}, {CUT}")
        extra = [name for name in node.output[1:] if name and name in used]
        if extra:
            site.fail(f"its output {extra[0]!r} is not supported, only its first", "remove what reads it")
        value = handler(self, site)
        if node.output[0] not in self.constants:
            self.values[node.output[0]] = value

    def _shape(self, name: str) -> Shape | None:
        if name in self.values:
            return self.values[name].shape
        return tuple(self.constants[name].shape) if name in self.constants else None

    def _fold(self, site: Site) -> None:
        """Evaluates a node all of whose inputs are constants."""
        node = site.node
        if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
            site.fail("control flow is not supported", HINTS["If"])
        feeds = {name: self.constants[name] for name in node.input if name}
        if _folded_size(node, list(feeds.values())) > MAX_ELEMENTS:
            site.fail("the constant it makes is too large", f"at most {MAX_ELEMENTS} elements are supported")
        inputs = [helper.make_value_info(name, onnx.TypeProto()) for name in feeds]
        outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name]
        graph = helper.make_graph([node], "fold", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        try:
            with np.errstate(all="ignore"):
                results = ReferenceEvaluator(model).run(None, feeds)
            arrays = [np.asarray(result) for result in results]
        except Exception as error:
            site.fail(f"its constants do not fit it: {_first_line(error)}", "repair or export the model again")
        self.constants.update(zip((name for name in node.output if name), arrays, strict=True))

    # Reading inputs.

    def value(self, site: Site, position: int = 0) -> Value:
        """An input that depends on the model's input."""
        name = site.input(position)
        if name not in self.values:
            problem = f"its input {position} ({name or 'absent'}) is a constant, not a value"
            site.fail(problem, "swap its inputs, or fold the constant into the weights")
        return self._usable(site, self.values[name])

    def _usable(self, site: Site, value: Value) -> Value:
        kind = self._finish(value)
        keeps = site.node.op_type in FINISH_OPERATORS + SKIPPED + RESHAPES
        if kind and not keeps:
            problem = f"it comes after a {kind}, which is supported only at the end of a model"
            site.fail(problem, "end the model before that operator (--output NAME, output=NAME)")
        return value

    def _finish(self, value: Value) -> str | None:
        """The operator on the client that `value` comes from, if any."""
        node = self.nodes[value.index]
        while node["op"]["kind"] == "reshape":
            node = self.nodes[node["inputs"][0]]
        return node["op"]["kind"] if node["op"]["kind"] in FINISH else None

    def constant(self, site: Site, position: int) -> Array | None:
        """A constant input; None where absent."""
        name = site.input(position)
        if not name:
            return None
        if name not in self.constants:
            problem = f"its input {position} ({name}) is computed from the model's input, not a constant"
            site.fail(problem, "only the first input may depend on the data; make the other a constant")
        return self.constants[name]

    def weights(self, site: Site, position: int) -> Floats | None:
        """A constant input as float32, finite; None where absent."""
        array = self.constant(site, position)
        return None if array is None else self.floats(site, array, site.input(position))

    def required(self, site: Site, position: int) -> Floats:
        """As `weights`, but must be there."""
        array = self.weights(site, position)
        return array if array is not None else site.fail(f"its input {position} is absent", "repair the model")

    def floats(self, site: Site, array: Array, name: str) -> Floats:
        """`array` as float32."""
        if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
            site.fail(f"its constant {name} has type {array.dtype}", "make it floating point")
        with np.errstate(all="ignore"):
            converted = np.ascontiguousarray(array, dtype=np.float32)
        if not np.isfinite(converted).all():
            position = np.unravel_index(int(np.argmin(np.isfinite(converted))), converted.shape)
            where = [int(p) for p in position]
            problem = f"its constant {name} holds {converted[position]} at {where} (as float32)"
            site.fail(problem, "weights must be finite: train or export the model again")
        return converted.reshape(array.shape)

    # Making nodes.

    def emit(self, site: Site, op: dict[str, Any], inputs: Sequence[Value], inner: Iterable[int]) -> Value:
        """Appends a node with the result's shape, batch not counted."""
        shape = [int(size) for size in inner]
        if any(size < 1 for size in shape) or math.prod(shape) > MAX_ELEMENTS:
            problem = f"its result would have shape {shape}"
            site.fail(problem, f"every dimension must be at least 1, and at most {MAX_ELEMENTS} elements in all")
        indices = [value.index for value in inputs]
        self.nodes.append({"name": site.name, "op": op, "inputs": indices, "shape": shape})
        return Value(len(self.nodes) - 1, (1, *shape))

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
        return value if inner == value.inner else self.emit(site, {"kind": "reshape"}, [value], inner)

    def reshape_onnx(self, site: Site, value: Value, shape: Sequence[int]) -> Value:
        """As `reshape`, to a shape with the batch first."""
        if not shape or shape[0] != 1:
            problem = f"its result has shape {list(shape)}, whose first dimension is not the batch, 1"
            site.fail(problem, "keep the batch as first dimension: export with a batch of 1 or a free batch size")
        if math.prod(shape) != math.prod(value.shape):
            problem = f"it makes shape {list(shape)} of {list(value.shape)}, which has other elements"
            site.fail(problem, "export with a batch of 1 or a free batch size, and a fixed input shape")
        return self.reshape(site, value, shape[1:])

    def transpose(self, site: Site, value: Value, permutation: Sequence[int]) -> Value:
        """Output dimension d is input dimension `permutation[d]`, batch not counted."""
        if list(permutation) == sorted(permutation):
            return value
        inner = [value.inner[axis] for axis in permutation]
        return self.emit(site, {"kind": "transpose", "permutation": list(permutation)}, [value], inner)

    def affine(self, site: Site, value: Value, mul: Array | float = 1.0, add: Array | float = 0.0) -> Value:
        """`value * mul + add`, with constants broadcast as ONNX does."""
        factors = {"mul": np.asarray(mul, np.float32), "add": np.asarray(add, np.float32)}
        shapes: list[Shape] = [array.shape for array in factors.values()]
        try:
            shape = np.broadcast_shapes(value.shape, *shapes)
        except ValueError:
            shape = ()
        if math.prod(shape) != math.prod(value.shape):
            constant = max(shapes, key=math.prod)
            problem = f"its constant of shape {list(constant)} does not fit shape {list(value.shape)}"
            site.fail(problem, "a constant may be broadcast to the value, not the value to the constant")
        value = self.reshape_onnx(site, value, shape)
        op: dict[str, Any] = {"kind": "affine", "mul": None, "add": None}
        for role, neutral in (("mul", 1.0), ("add", 0.0)):
            compact = _compact(self.floats(site, factors[role], role), shape)
            if compact.size > 1 or compact[0] != neutral:
                op[role] = self.tensor(site, role, compact)
        return self.emit(site, op, [value], value.inner) if op["mul"] or op["add"] else value

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


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _folded_size(node: NodeProto, feeds: list[Array]) -> int:
    """How many elements the operators make that make large constants of small ones."""
    try:
        match node.op_type, feeds:
            case "ConstantOfShape", [shape]:
                return math.prod(int(size) for size in shape.flat)
            case "Expand", [data, shape]:
                return int(data.size) * math.prod(int(size) for size in shape.flat)
            case "Tile", [data, *repeats]:
                return int(data.size) * math.prod(int(size) for array in repeats for size in array.flat)
            case "Range", [start, limit, delta]:
                return int(abs((float(limit) - float(start)) / float(delta)))
            case "Pad", [data, pads, *_]:
                return int(data.size) * math.prod(1 + abs(int(size)) for size in pads.flat)
            case _:
                return 0
    except (ArithmeticError, TypeError, ValueError):
        return MAX_ELEMENTS + 1


def _compact(array: Floats, shape: Shape) -> Floats:
    """`array` broadcast to `shape` (batch first), as one value, one a channel, or one an element."""
    channels = shape[1] if len(shape) > 1 else 1
    full = np.broadcast_to(array, shape).reshape(channels, -1)
    if (full == full[0, 0]).all():
        return full[0, :1].copy()
    if (full == full[:, :1]).all():
        return full[:, 0].copy()
    return full.reshape(-1).copy()


# Convolutions and poolings.


def _image(lowering: Lowering, site: Site, value: Value) -> Value:
    """`(C, L)` as `(C, 1, L)`; `(C, H, W)` as it is."""
    if len(value.shape) not in (3, 4):
        problem = f"its input has {len(value.shape) - 2} spatial dimensions"
        site.fail(problem, "1 and 2 are supported: (batch, C, L) and (batch, C, H, W)")
    if len(value.shape) == 4:
        return value
    return lowering.reshape(site, value, (value.inner[0], 1, value.inner[1]))


def _like(lowering: Lowering, site: Site, image: Value, rank: int) -> Value:
    """Undoes `_image` for a value of ONNX rank `rank`."""
    return image if rank == 4 else lowering.reshape(site, image, (image.inner[0], image.inner[2]))


def _spatial(site: Site, kernel: Sequence[int], size: Sequence[int], ceil: bool = False) -> Spatial:
    """The window of this node over an input of `size`, a number an axis."""
    try:
        return Spatial.resolve(
            kernel=kernel,
            size=size,
            stride=site.integers("strides"),
            dilation=site.integers("dilations"),
            pads=site.integers("pads"),
            auto_pad=site.text("auto_pad", "NOTSET"),
            ceil=ceil,
        )
    except ValueError as error:
        site.fail(str(error), "correct its attributes, or give a larger input shape (--shape)")


@operator("Conv")
def _conv(lowering: Lowering, site: Site) -> Value:
    value, weight, bias = (lowering.value(site), lowering.required(site, 1), lowering.weights(site, 2))
    image = _image(lowering, site, value)
    channels, groups = image.inner[0], site.integer("group", 1)
    if weight.ndim != len(value.shape) or groups < 1 or weight.shape[1] * groups != channels:
        problem = f"weights of shape {list(weight.shape)} in {groups} groups do not fit {channels} channels"
        site.fail(problem, "repair or export the model again")
    if site.integers("kernel_shape") not in (None, list(weight.shape[2:])):
        site.fail("kernel_shape differs from the shape of the weights", "repair or export the model again")
    spatial = _spatial(site, weight.shape[2:], value.shape[2:])
    if weight.ndim == 3:
        weight = weight[:, :, None, :]
    bias = None if bias is None else bias.reshape(-1)
    result = lowering.convolve(site, image, spatial.window(), weight, bias, groups)
    return _like(lowering, site, result, len(value.shape))


def _pool_kernel(site: Site, value: Value) -> list[int]:
    kernel = site.integers("kernel_shape")
    return kernel if kernel is not None else site.fail("kernel_shape is absent", "repair the model")


@operator("MaxPool")
def _max_pool(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    image = _image(lowering, site, value)
    spatial = _spatial(site, _pool_kernel(site, value), value.shape[2:], bool(site.integer("ceil_mode", 0)))
    window = spatial.window(extra=True)
    op = {"kind": "max_pool", "window": window.json()}
    result = lowering.emit(site, op, [image], (image.inner[0], *window.output))
    return _like(lowering, site, result, len(value.shape))


@operator("AveragePool")
def _average_pool(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    image = _image(lowering, site, value)
    spatial = _spatial(site, _pool_kernel(site, value), value.shape[2:], bool(site.integer("ceil_mode", 0)))
    include = bool(site.integer("count_include_pad", 0))
    # What ceil_mode adds beyond the padding never counts, so padding that counts becomes zeros of the input.
    if include and any(spatial.extra):
        image = _pad_image(lowering, site, image, spatial.window().padding)
        spatial, include = spatial.without_padding(), False
    window = spatial.window(extra=True)
    op = {"kind": "average_pool", "window": window.json(), "count_include_pad": include}
    result = lowering.emit(site, op, [image], (image.inner[0], *window.output))
    return _like(lowering, site, result, len(value.shape))


def _pad_image(lowering: Lowering, site: Site, image: Value, padding: Sequence[int]) -> Value:
    top, left, bottom, right = padding
    if not any(padding):
        return image
    channels, height, width = image.inner
    op = {"kind": "pad", "before": [0, top, left], "after": [0, bottom, right]}
    return lowering.emit(site, op, [image], (channels, height + top + bottom, width + left + right))


@operator("GlobalAveragePool")
def _global_average_pool(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    return _mean(lowering, site, value, list(range(2, len(value.shape))), keep=True)


@operator("GlobalMaxPool")
def _global_max_pool(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    image = _image(lowering, site, value)
    window = Spatial.resolve(kernel=image.inner[1:], size=image.inner[1:]).window()
    op = {"kind": "max_pool", "window": window.json()}
    result = lowering.emit(site, op, [image], (image.inner[0], 1, 1))
    return _like(lowering, site, result, len(value.shape))


@operator("ReduceMean")
def _reduce_mean(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    rank = len(value.shape)
    axes = _axes(lowering, site, since=18)
    if not axes and site.integer("noop_with_empty_axes", 0):
        return value
    found = site.axes(axes, rank) if axes else list(range(rank))
    return _mean(lowering, site, value, found, keep=bool(site.integer("keepdims", 1)))


def _mean(lowering: Lowering, site: Site, value: Value, axes: list[int], keep: bool) -> Value:
    """Mean over axes (batch counted): moved last, then one global average pooling."""
    site.not_batch(axes)
    if not axes:
        return value
    kept = [axis for axis in range(1, len(value.shape)) if axis not in axes]
    inner = [1 if axis in axes else value.shape[axis] for axis in range(1, len(value.shape)) if keep or axis in kept]
    moved = lowering.transpose(site, value, [axis - 1 for axis in [*kept, *sorted(axes)]])
    channels = math.prod(value.shape[axis] for axis in kept)
    image_shape = (channels, *moved.inner[1:]) if len(moved.inner) == 3 and len(kept) == 1 else None
    reduced = math.prod(value.shape[axis] for axis in axes)
    image = lowering.reshape(site, moved, image_shape or (channels, 1, reduced))
    result = lowering.emit(site, {"kind": "global_average_pool"}, [image], (channels, 1, 1))
    return lowering.reshape(site, result, inner)


def _axes(lowering: Lowering, site: Site, since: int) -> list[int] | None:
    """Axes: an attribute before opset `since`, an input from there on."""
    if site.opset < since:
        return site.integers("axes")
    array = lowering.constant(site, 1)
    return None if array is None else [int(axis) for axis in array.flat]


# Matrix products.


@operator("Gemm")
def _gemm(lowering: Lowering, site: Site) -> Value:
    value, matrix = lowering.value(site), lowering.required(site, 1)
    addend = lowering.weights(site, 2)
    if site.integer("transA", 0):
        site.fail("transA is set on the value, whose first dimension is the batch", "export without transA")
    weight = matrix if site.integer("transB", 0) else matrix.T
    if len(value.shape) != 2 or weight.ndim != 2 or weight.shape[1] != value.shape[1]:
        problem = f"a matrix of shape {list(matrix.shape)} does not fit"
        site.fail(problem, "flatten the value to (batch, features) before it")
    weight = weight * np.float32(site.number("alpha", 1.0))
    bias = None
    if addend is not None:
        try:
            bias = np.broadcast_to(addend * np.float32(site.number("beta", 1.0)), (1, len(weight))).reshape(-1)
        except ValueError:
            site.fail(f"its C of shape {list(addend.shape)} does not fit (1, {len(weight)})", "repair the model")
    return lowering.dense(site, value, lowering.floats(site, weight, "B"), bias)


@operator("MatMul")
def _matmul(lowering: Lowering, site: Site) -> Value:
    names = site.input(0), site.input(1)
    if all(name in lowering.values for name in names):
        site.fail("a product of two values (as in attention) is not supported", f"use constant weights, {CUT}")
    left = names[0] in lowering.values
    value, matrix = (lowering.value(site, 0 if left else 1), lowering.required(site, 1 if left else 0))
    if matrix.ndim > 2 and all(size == 1 for size in matrix.shape[:-2]) and len(value.shape) >= matrix.ndim:
        matrix = matrix.reshape(matrix.shape[-2:])
    if matrix.ndim == 2 and left and len(value.shape) >= 2 and value.shape[-1] == matrix.shape[0]:
        return _matmul_last(lowering, site, value, matrix.T)
    if matrix.ndim == 2 and not left and len(value.shape) == 3 and value.shape[1] == matrix.shape[1]:
        return _mix(lowering, site, value, matrix)
    problem = f"a matrix of shape {list(matrix.shape)} with a value of shape {list(value.shape)} is not supported"
    site.fail(problem, "supported are value (..., K) times matrix (K, N), and matrix (M, K) times value (batch, K, P)")


def _matmul_last(lowering: Lowering, site: Site, value: Value, weight: Floats) -> Value:
    """A matrix over the last dimension: a dense layer, or a 1x1 convolution between transpositions."""
    inner = (*value.inner[:-1], weight.shape[0])
    rows, features = math.prod(value.inner[:-1]), value.inner[-1]
    if rows == 1:
        flat = lowering.reshape(site, value, (features,))
        return lowering.reshape(site, lowering.dense(site, flat, weight, None), inner)
    columns = lowering.transpose(site, lowering.reshape(site, value, (rows, features)), [1, 0])
    mixed = _mix(lowering, site, columns, weight)
    return lowering.reshape(site, lowering.transpose(site, mixed, [1, 0]), inner)


def _mix(lowering: Lowering, site: Site, value: Value, weight: Floats) -> Value:
    """`weight (M, K)` times `value (K, P)`: a 1x1 convolution."""
    features, points = value.inner
    image = lowering.reshape(site, value, (features, 1, points))
    window = Spatial.resolve(kernel=[1, 1], size=[1, points]).window()
    result = lowering.convolve(site, image, window, weight[:, :, None, None], None)
    return lowering.reshape(site, result, (weight.shape[0], points))


# Elementwise.


@operator("BatchNormalization")
def _batch_normalization(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    if site.integer("training_mode", 0) or not site.integer("spatial", 1):
        site.fail("training mode and spatial=0 are not supported", "export the model for inference (model.eval())")
    scale, bias, mean, variance = (lowering.required(site, i).astype(np.float64).reshape(-1) for i in range(1, 5))
    channels = value.shape[1] if len(value.shape) > 1 else 1
    if not scale.size == bias.size == mean.size == variance.size == channels:
        site.fail(f"its constants do not have one value for each of {channels} channels", "repair the model")
    with np.errstate(all="ignore"):
        mul = scale / np.sqrt(variance + site.number("epsilon", 1e-5))
        add = bias - mean * mul
    shape = (1, channels, *[1] * (len(value.shape) - 2))
    return lowering.affine(site, value, mul.reshape(shape), add.reshape(shape))


@operator("Relu")
def _relu(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    return lowering.emit(site, {"kind": "relu"}, [value], value.inner)


def _scalar(lowering: Lowering, site: Site, position: int) -> float | None:
    array = lowering.constant(site, position)
    if array is None:
        return None
    if array.size != 1:
        site.fail(f"its bound of shape {list(array.shape)} is not one number", "use one bound for all values")
    return float(array.reshape(()))


@operator("Clip")
def _clip(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    if site.opset >= 11:
        return lowering.clip(site, value, _scalar(lowering, site, 1), _scalar(lowering, site, 2))
    bounds = [float(site.attributes[name]) if name in site.attributes else None for name in ("min", "max")]
    return lowering.clip(site, value, *bounds)


@operator("Min", "Max")
def _min_max(lowering: Lowering, site: Site) -> Value:
    names = list(site.node.input)
    data = [i for i, name in enumerate(names) if name in lowering.values]
    if len(data) != 1 or len(names) != 2:
        site.fail("only one value with one constant is supported", f"use Relu, Clip or MaxPool, {CUT}")
    bound = _scalar(lowering, site, 1 - data[0])
    value = lowering.value(site, data[0])
    minimum = site.node.op_type == "Min"
    return lowering.clip(site, value, None if minimum else bound, bound if minimum else None)


@operator("LeakyRelu", "PRelu")
def _leaky_relu(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    alpha = site.number("alpha", 0.01)
    if site.node.op_type == "PRelu":
        slope = lowering.required(site, 1)
        if slope.size == 0 or (slope != slope.flat[0]).any():
            site.fail("it has different slopes, only one for all values is supported", "use LeakyRelu")
        alpha = float(slope.flat[0])
    return lowering.emit(site, {"kind": "leaky_relu", "alpha": alpha}, [value], value.inner)


@operator("Neg")
def _neg(lowering: Lowering, site: Site) -> Value:
    return lowering.affine(site, lowering.value(site), mul=-1.0)


@operator("Add", "Sub", "Mul", "Div", "Sum")
def _arithmetic(lowering: Lowering, site: Site) -> Value:
    kind, names = site.node.op_type, list(site.node.input)
    if kind == "Sum" and len(names) != 2:
        return _sum(lowering, site)
    left, right = (name in lowering.values for name in names)
    if left and right:
        return _arithmetic_values(lowering, site, kind, lowering.value(site, 0), lowering.value(site, 1))
    value = lowering.value(site, 0 if left else 1)
    constant = lowering.required(site, 1 if left else 0)
    match kind:
        case "Add" | "Sum":
            return lowering.affine(site, value, add=constant)
        case "Sub":
            return lowering.affine(site, value, add=-constant) if left else lowering.affine(site, value, -1.0, constant)
        case "Mul":
            return lowering.affine(site, value, mul=constant)
    if not left:
        site.fail("a division by a value is not supported", f"divide by a constant, {CUT}")
    with np.errstate(all="ignore"):
        return lowering.affine(site, value, mul=1.0 / constant)


def _arithmetic_values(lowering: Lowering, site: Site, kind: str, left: Value, right: Value) -> Value:
    if kind == "Div":
        site.fail("a quotient of two values is not supported", f"divide by a constant, {CUT}")
    if left.shape != right.shape:
        site.fail("values of different shapes are not broadcast", "give both the same shape")
    if kind == "Mul":
        return _product(lowering, site, left, right)
    if kind == "Sub":
        right = lowering.affine(site, right, mul=-1.0)
    return lowering.emit(site, {"kind": "add"}, [left, right], left.inner)


def _product(lowering: Lowering, site: Site, left: Value, right: Value) -> Value:
    if left == right:
        return lowering.emit(site, {"kind": "square"}, [left], left.inner)
    return lowering.emit(site, {"kind": "multiply"}, [left, right], left.inner)


def _sum(lowering: Lowering, site: Site) -> Value:
    total = lowering.value(site, 0)
    for position in range(1, len(site.node.input)):
        total = _arithmetic_values(lowering, site, "Add", total, lowering.value(site, position))
    return total


MAX_POWER = 16
"""The largest exponent of Pow: larger ones leave no precision."""


@operator("Pow")
def _pow(lowering: Lowering, site: Site) -> Value:
    value, exponent = lowering.value(site), lowering.required(site, 1)
    power = float(exponent.reshape(())) if exponent.size == 1 else math.nan
    if not (power.is_integer() and 1 <= power <= MAX_POWER):
        site.fail(f"only whole exponents from 1 to {MAX_POWER} are supported", f"replace it by a polynomial, {CUT}")
    # By squaring, from the second-highest bit of the exponent down: the fewest products one after the other.
    result = value
    for bit in bin(int(power))[3:]:
        result = _product(lowering, site, result, result)
        if bit == "1":
            result = _product(lowering, site, result, value)
    return result


# Shapes.

RESHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
SKIPPED = ("Identity", "Dropout", "Cast", "Shape", "Size")


@operator("Identity")
def _identity(lowering: Lowering, site: Site) -> Value:
    return lowering.value(site)


@operator("Dropout")
def _dropout(lowering: Lowering, site: Site) -> Value:
    training = lowering.constant(site, 2)
    if training is not None and training.any():
        site.fail("training mode is not supported", "export the model for inference (model.eval())")
    return lowering.value(site)


@operator("Cast")
def _cast(lowering: Lowering, site: Site) -> Value:
    value, to = lowering.value(site), site.integer("to", 0)
    if to not in FLOAT_TYPES and lowering._finish(value) != "arg_max":
        name = TensorProto.DataType.Name(to) if to in TensorProto.DataType.values() else str(to)
        site.fail(f"a cast of a value to {name} is not supported", f"keep values in floating point, {CUT}")
    return value


@operator("Flatten")
def _flatten(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    rank = len(value.shape)
    axis = site.integer("axis", 1)
    if not -rank <= axis <= rank:
        site.fail(f"axis {axis} does not exist in {rank} dimensions", "correct the axis")
    axis = axis + rank if axis < 0 else axis
    return lowering.reshape_onnx(site, value, (math.prod(value.shape[:axis]), math.prod(value.shape[axis:])))


@operator("Reshape")
def _reshape(lowering: Lowering, site: Site) -> Value:
    value, target = lowering.value(site), lowering.constant(site, 1)
    if target is None:
        site.fail("its shape is absent", "repair the model")
    copy = not site.integer("allowzero", 0)
    shape = [int(size) for size in target.flat]
    for axis, size in enumerate(shape):
        if size == 0 and copy and axis < len(value.shape):
            shape[axis] = value.shape[axis]
    if shape.count(-1) == 1:
        rest = -math.prod(shape)
        if rest > 0:
            shape[shape.index(-1)] = math.prod(value.shape) // rest
    return lowering.reshape_onnx(site, value, shape)


@operator("Squeeze")
def _squeeze(lowering: Lowering, site: Site) -> Value:
    value, axes = lowering.value(site), _axes(lowering, site, since=13)
    rank = len(value.shape)
    # Without axes every dimension of size 1 goes; the batch is free in use, so it stays.
    found = [axis for axis in range(1, rank) if value.shape[axis] == 1] if axes is None else site.axes(axes, rank)
    if any(value.shape[axis] != 1 for axis in found):
        site.fail(f"axes {found} are not all of size 1", "correct the axes")
    return lowering.reshape_onnx(site, value, [s for axis, s in enumerate(value.shape) if axis not in found])


@operator("Unsqueeze")
def _unsqueeze(lowering: Lowering, site: Site) -> Value:
    value, axes = lowering.value(site), _axes(lowering, site, since=13)
    if axes is None:
        site.fail("its axes are absent", "repair the model")
    found = site.axes(axes, len(value.shape) + len(axes))
    shape, sizes = [], iter(value.shape)
    for axis in range(len(value.shape) + len(axes)):
        shape.append(1 if axis in found else next(sizes))
    return lowering.reshape_onnx(site, value, shape)


@operator("Shape", "Size")
def _shape(lowering: Lowering, site: Site) -> Value:
    """Becomes a constant: the caller finds it there."""
    value = lowering.value(site)
    shape = value.shape[slice(site.integer("start", 0), site.attributes.get("end"))]
    found = np.array(shape if site.node.op_type == "Shape" else math.prod(value.shape), np.int64)
    lowering.constants[site.node.output[0]] = found
    return value


@operator("Transpose")
def _transpose(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    rank = len(value.shape)
    permutation = site.integers("perm") or list(range(rank))[::-1]
    if sorted(permutation) != list(range(rank)):
        site.fail(f"perm {permutation} is no permutation of {rank} dimensions", "repair the model")
    if permutation[0] != 0:
        site.fail(f"perm {permutation} moves the first dimension, the batch", "keep the batch first")
    return lowering.transpose(site, value, [axis - 1 for axis in permutation[1:]])


@operator("Pad")
def _pad(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    rank, mode = len(value.shape), site.text("mode", "constant")
    pads = site.integers("pads")
    fill: float | None = site.number("value", 0.0)
    if site.opset >= 11:
        array, axes = lowering.constant(site, 1), lowering.constant(site, 3)
        pads = None if array is None else [int(size) for size in array.flat]
        fill = _scalar(lowering, site, 2)
        if axes is not None and pads is not None and len(pads) == 2 * axes.size:
            pads = _pads_of_axes(pads, site.axes([int(axis) for axis in axes.flat], rank), rank)
    if mode != "constant" or fill:
        site.fail(f"mode {mode} with value {fill or 0} is not supported", "pad with zeros")
    if pads is None or len(pads) != 2 * rank:
        site.fail(f"pads {pads} are not two numbers for each of {rank} dimensions", "repair the model")
    if min(pads) < 0:
        site.fail(f"negative pads {pads} (cropping) are not supported", "crop before the model")
    site.not_batch([axis % rank for axis, size in enumerate(pads) if size])
    before, after = pads[1:rank], pads[rank + 1 :]
    if not any(pads):
        return value
    inner = [b + size + a for b, size, a in zip(before, value.inner, after, strict=True)]
    return lowering.emit(site, {"kind": "pad", "before": before, "after": after}, [value], inner)


def _pads_of_axes(pads: list[int], axes: list[int], rank: int) -> list[int]:
    """Pads of some axes as pads of all."""
    full = [0] * (2 * rank)
    for position, axis in enumerate(axes):
        full[axis], full[axis + rank] = pads[position], pads[position + len(axes)]
    return full


@operator("Concat")
def _concat(lowering: Lowering, site: Site) -> Value:
    values = [lowering.value(site, position) for position in range(len(site.node.input))]
    rank = len(values[0].shape)
    axis = site.axis(site.integer("axis", 1), rank)
    site.not_batch([axis])
    rests = {(*v.shape[:axis], *v.shape[axis + 1 :]) for v in values}
    if len(rests) != 1 or any(len(v.shape) != rank for v in values):
        site.fail("its inputs differ in another dimension than the axis", "repair the model")
    if len(values) == 1:
        return values[0]
    inner = list(values[0].inner)
    inner[axis - 1] = sum(v.shape[axis] for v in values)
    return lowering.emit(site, {"kind": "concat", "axis": axis - 1}, values, inner)


# The end of a model.

FINISH_OPERATORS = ("Softmax", "LogSoftmax", "ArgMax", "Sigmoid")


def _whole(site: Site, value: Value, axes: Iterable[int]) -> None:
    """Refuses an operation that is not over all of an image's values."""
    if math.prod(value.shape[axis] for axis in axes) != math.prod(value.shape):
        site.fail(
            f"it works on parts of a value of shape {list(value.shape)}", f"only over all of it is supported, {CUT}"
        )


def _softmax_axes(site: Site, value: Value) -> Iterable[int]:
    rank = len(value.shape)
    axis = site.axis(site.integer("axis", 1 if site.opset < 13 else -1), rank)
    return [axis] if site.opset >= 13 else range(axis, rank)


@operator("Softmax")
def _softmax(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    _whole(site, value, _softmax_axes(site, value))
    return lowering.emit(site, {"kind": "softmax"}, [value], value.inner)


@operator("LogSoftmax")
def _log_softmax(lowering: Lowering, site: Site) -> Value:
    """Stands only before ArgMax, which it does not change; `check_log_softmax` sees to that."""
    value = lowering.value(site)
    _whole(site, value, _softmax_axes(site, value))
    return value


@operator("ArgMax")
def _arg_max(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    rank = len(value.shape)
    axis = site.axis(site.integer("axis", 0), rank)
    _whole(site, value, [axis])
    if site.integer("select_last_index", 0):
        site.fail("select_last_index is not supported", "the first of equal values is taken")
    keep = site.integer("keepdims", 1)
    result = lowering.emit(site, {"kind": "arg_max"}, [value], [1] if keep else [])
    return lowering.reshape(site, result, [1] * (rank - 1 if keep else rank - 2))


@operator("Sigmoid")
def _sigmoid(lowering: Lowering, site: Site) -> Value:
    value = lowering.value(site)
    return lowering.emit(site, {"kind": "sigmoid"}, [value], value.inner)


def check_log_softmax(nodes: Iterable[NodeProto], opset: int, output: str) -> None:
    """Refuses a LogSoftmax that is read by anything but ArgMax."""
    nodes = list(nodes)
    for node in nodes:
        if node.op_type != "LogSoftmax":
            continue
        name = node.output[0]
        readers = {reader.op_type for reader in nodes if name in reader.input}
        if name == output or readers != {"ArgMax"}:
            advice = f"--output {node.input[0]} (output={node.input[0]!r}) gives the logits, which have the same argmax"
            Site(node, opset, []).fail("LogSoftmax is supported only directly before ArgMax", advice)


def initializers(tensors: Iterable[TensorProto]) -> dict[str, Array]:
    """The weights of a file as arrays; raises ValueError naming one that cannot be read."""
    arrays = {}
    for tensor in tensors:
        try:
            arrays[tensor.name] = numpy_helper.to_array(tensor)
        except Exception as error:
            raise ValueError(f"tensor {tensor.name!r} cannot be read: {_first_line(error)}") from error
    return arrays
