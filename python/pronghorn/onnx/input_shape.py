"""The shape of a model's input, and the sizes of what is computed from it."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Mapping, Sequence

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, shape_inference

from pronghorn.errors import InputError, UnsupportedModelError
from pronghorn.onnx.lowering import MAX_ELEMENTS
from pronghorn.onnx.reading import free_in, graphs_of

NARROW = [kind for name, kind in TensorProto.DataType.items() if name.startswith(("BFLOAT", "FLOAT8", "FLOAT4"))]
"""Types of numbers that onnxruntime does not compute with."""

OF_KNOWN_TYPES = ("DictVectorizer", "LabelEncoder", "RegexFullMatch")
"""Operators at which the inference of onnx ends the process where the type of their input is not known."""

NEVER_NEGATIVE = {
    *("Add", "And", "BatchNormalization", "Cast", "Clip", "Concat", "Constant", "ConstantOfShape", "Div", "Equal"),
    *("Erf", "Exp", "Flatten", "Gather", "Gelu", "Gemm", "Greater", "HardSigmoid", "HardSwish", "Identity"),
    *("LayerNormalization", "LeakyRelu", "Less", "Log", "MatMul", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or"),
    *("Pow", "Range", "ReduceMax", "ReduceMean", "ReduceSum", "Relu", "Reshape", "ScatterND", "Shape", "Sigmoid"),
    *("Softmax", "Sqrt", "Squeeze", "Sub", "Tanh", "Tile", "Transpose", "Unsqueeze", "Where"),
}
"""Operators that the inference of onnx gives no size below 0, unless one that they read has it."""

SQUEEZE_READS_AXES = 13
"""The opset since which axes are an input of Squeeze."""

ShapeOption = Mapping[str, Sequence[int]] | Sequence[int] | None


def refuse_sizes(proto: ModelProto) -> None:
    """Refuses inputs whose sizes are not fixed, but for the batch, or that are no numbers.

    Raises:
        UnsupportedModelError: no inputs, or sizes that nobody says.
    """
    entries = list(proto.graph.input)
    if not entries:
        raise UnsupportedModelError(
            "the output depends on no input: the model has 0 inputs that matter", "pick another (--output NAME)"
        )
    for entry in entries:
        _refuse_input(entry)


def apply_shapes(proto: ModelProto, shape: ShapeOption, of_samples: ShapeOption = None) -> None:
    """Gives inputs the sizes that the user says, and else those of samples where the model leaves some open.

    Raises:
        InputError: `shape` does not fit.
    """
    entries = list(proto.graph.input)
    names = [entry.name for entry in entries]
    if shape is not None and not isinstance(shape, Mapping) and len(entries) > 1:
        raise InputError(f"the model has {len(entries)} inputs: give shapes by name: {', '.join(names)}")
    unknown = [key for key in shape if key not in names] if isinstance(shape, Mapping) else []
    if unknown:
        raise InputError(
            f"a shape is given for {unknown[0]!r}, but the input's name is {' or '.join(map(repr, names))}"
        )
    for entry in entries:
        given = _given_shape(entry.name, shape) or _fitting(entry, of_samples)
        if given is not None and _is_tensor(entry):
            _apply_shape(entry, given)


def add_features(proto: ModelProto, opset: int) -> None:
    """Gives inputs of a number a row, `(batch)`, a second dimension of one, which a Squeeze takes away again."""
    graph = proto.graph
    for entry in graph.input:
        dims = entry.type.tensor_type.shape.dim
        if not _is_tensor(entry) or len(dims) != 1 or dims[0].dim_value > 1:
            continue
        dims.add().dim_value = 1
        within, axes = (free_in(graph, f"{entry.name}/{part}") for part in ("number", "axes"))
        rename(graph, entry.name, within)
        if opset < SQUEEZE_READS_AXES:
            node = helper.make_node("Squeeze", [entry.name], [within], name=within, axes=[1])
        else:
            graph.initializer.append(helper.make_tensor(axes, TensorProto.INT64, [1], [1]))
            node = helper.make_node("Squeeze", [entry.name, axes], [within], name=within)
        graph.node.insert(0, node)


def rename(graph: GraphProto, before: str, after: str) -> None:
    """Another name of a value wherever nodes read it."""
    for node in graph.node:
        node.input[:] = [after if name == before else name for name in node.input]
        for inner in graphs_of(node):
            rename(inner, before, after)


def _is_tensor(entry: ValueInfoProto) -> bool:
    """Whether an input is a tensor of numbers, of texts or of truths."""
    kind = entry.type.tensor_type.elem_type
    is_other = kind in (TensorProto.STRING, TensorProto.BOOL)
    return entry.type.WhichOneof("value") == "tensor_type" and (is_other or _is_number(kind))


def _refuse_input(entry: ValueInfoProto) -> None:
    tensor = entry.type.tensor_type
    if entry.type.WhichOneof("value") != "tensor_type" or not _is_number(tensor.elem_type):
        advice = "export with a float input"
        if tensor.elem_type == TensorProto.STRING:
            advice = "encode texts in the model (OneHotEncoder, OrdinalEncoder): they are categories then"
        problem = f"input {entry.name!r} is no tensor of numbers"
        if tensor.elem_type in NARROW:
            kind = TensorProto.DataType.Name(tensor.elem_type).lower()
            problem, advice = f"input {entry.name!r} has type {kind}, which is not read", "export the model in float32"
        raise UnsupportedModelError(problem, advice)
    dims = tensor.shape.dim
    if len(dims) < 2:
        known = f"has shape ({', '.join(map(_dimension, dims))})" if tensor.HasField("shape") else "has no shape"
        advice = f"say the shape: --shape {entry.name}=1,3,224,224"
        if tensor.HasField("shape") and not dims:
            advice = f"give it a value for all images: --fixed {entry.name}=VALUE (fixed={{{entry.name!r}: VALUE}})"
        if dims:
            advice = "export with an input of shape (batch, features)"
        raise UnsupportedModelError(
            f"input {entry.name!r} {known}; it needs a batch dimension and at least one more", advice
        )
    _refuse_open(entry)


def fix_batch(proto: ModelProto) -> ValueInfoProto:
    """Sets the batch of the only input, whose sizes are fixed, to 1.

    Returns: a copy of the input from before.
    """
    (entry,) = proto.graph.input
    before: ValueInfoProto = copy.deepcopy(entry)
    first = entry.type.tensor_type.shape.dim[0]
    first.Clear()
    first.dim_value = 1
    return before


def _refuse_open(entry: ValueInfoProto) -> None:
    """Refuses sizes that are not fixed, but for the batch."""
    dims = entry.type.tensor_type.shape.dim
    for axis, dim in enumerate(dims):
        if axis > 0 and dim.dim_value < 1:
            example = ",".join(
                str(d.dim_value) if d.dim_value > 0 else "1" if i == 0 else "224" for i, d in enumerate(dims)
            )
            shown = ", ".join(map(_dimension, dims))
            raise UnsupportedModelError(
                f"dimension {axis} of input {entry.name!r} is not fixed: ({shown})",
                f"say the shape, as --shape {entry.name}={example} (shape=...), or fix the sizes in the export",
            )


def _is_number(kind: int) -> bool:
    """Whether a tensor of this type holds plain numbers."""
    try:
        return helper.tensor_dtype_to_np_dtype(kind).kind in "fiu"
    except (KeyError, ValueError, TypeError):
        return False


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> str:
    return str(dim.dim_value) if dim.dim_value > 0 else dim.dim_param or "?"


def _given_shape(name: str, shape: ShapeOption) -> list[int] | None:
    """What the user says about the input's shape."""
    if shape is None:
        return None
    if isinstance(shape, Mapping):
        if name not in shape:
            return None
        shape = shape[name]
    try:
        sizes = [operator.index(size) for size in shape]
    except TypeError:
        raise InputError(f"shape is {shape!r}: give whole numbers, such as (1, 3, 224, 224)") from None
    if len(sizes) < 2 or sizes[0] != 1 or min(sizes) < 1:
        raise InputError(f"shape {sizes} of input {name!r} must be positive, the first number being the batch, 1")
    return sizes


def _fitting(entry: ValueInfoProto, of_samples: ShapeOption) -> list[int] | None:
    """The shape of samples, where the input has as many dimensions and leaves open all that differ."""
    shape = of_samples.get(entry.name) if isinstance(of_samples, Mapping) else of_samples
    known = [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
    if shape is None or len(shape) != len(known) or min(shape) < 1 or all(size > 0 for size in known[1:]):
        return None
    fits = all(size < 1 or size == given for size, given in zip(known[1:], shape[1:], strict=True))
    return list(shape) if fits else None


def _apply_shape(entry: ValueInfoProto, sizes: list[int]) -> None:
    """Sets sizes the model leaves open; the batch stays open where it is."""
    shape = entry.type.tensor_type.shape
    dims = list(shape.dim)
    fixed = [dim.dim_value for dim in dims]
    conflict = any(known > 0 and known != size for known, size in zip(fixed[1:], sizes[1:], strict=False))
    if dims and (len(dims) != len(sizes) or conflict):
        shown = ", ".join(map(_dimension, dims))
        raise InputError(f"shape {sizes} does not fit input {entry.name!r}, which has shape ({shown})")
    if not dims:
        shape.dim.add().dim_param = "N"
        for _ in sizes[1:]:
            shape.dim.add()
    for dim, size in zip(list(shape.dim)[1:], sizes[1:], strict=True):
        dim.dim_value = size


def refuse_large(proto: ModelProto) -> None:
    """Refuses what would not fit into memory before anything evaluates it.

    Raises:
        UnsupportedModelError: a value of more than `MAX_ELEMENTS` elements, or, before a Slice, of
            a size below 0.
    """
    skeleton, levels = _skeleton(proto), _slice_levels(proto)
    pairs = zip(proto.graph.node, levels, strict=True)
    # A type is not known behind operators that onnx lacks, and behind a Slice that is left out.
    nodes = [(node, level) for node, level in pairs if not _operators(node).intersection(OF_KNOWN_TYPES)]
    # The inference of onnx ends the process at a Slice of a size below 0. So it meets a Slice only
    # when the sizes of all values before it are known to be right.
    last, known = max(levels, default=0), set[str]()
    for level in range(last + 1):
        del skeleton.graph.node[:]
        skeleton.graph.node.extend(node for node, at in nodes if node.op_type != "Slice" or at <= level)
        try:
            inferred = shape_inference.infer_shapes(skeleton, data_prop=True)
        except Exception:
            return  # Lowering finds what is wrong, and names it.
        for entry in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
            sizes = [dim.dim_value for dim in entry.type.tensor_type.shape.dim] if entry.name not in known else []
            _refuse_size(entry, sizes, before_slice=level < last)
            known.update([entry.name] if min(sizes, default=0) > 0 else [])


def _refuse_size(entry: ValueInfoProto, sizes: list[int], before_slice: bool) -> None:
    if before_slice and any(size < 0 for size in sizes):
        problem = f"the value {entry.name!r} would have shape {sizes}"
        raise UnsupportedModelError(problem, "give a larger input shape (--shape), or repair the model")
    elements = math.prod(max(size, 1) for size in sizes)
    if elements > MAX_ELEMENTS:
        raise UnsupportedModelError(
            f"the value {entry.name!r} would have {elements} elements", f"at most {MAX_ELEMENTS} are supported"
        )


SMALL = 64
"""Constants of at most so many elements may say a shape, and are left in a skeleton."""


def _skeleton(proto: ModelProto) -> ModelProto:
    """The model without nodes, with the shapes of large weights in place of the weights."""
    graph = proto.graph
    small = [tensor for tensor in graph.initializer if math.prod(tensor.dims) <= SMALL]
    large = [tensor for tensor in graph.initializer if math.prod(tensor.dims) > SMALL]
    inputs = {entry.name for entry in graph.input}
    shapes = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large if t.name not in inputs]
    bare = helper.make_graph([], graph.name or "graph", [*graph.input, *shapes], graph.output, small)
    return helper.make_model(bare, ir_version=proto.ir_version, opset_imports=proto.opset_import)


def _operators(node: NodeProto) -> set[str]:
    """The operators of a node and of the graphs within it."""
    return {node.op_type}.union(*(_operators(inner) for graph in graphs_of(node) for inner in graph.node))


def _slice_levels(proto: ModelProto) -> list[int]:
    """For each node the turn in which its output is known: a Slice waits for another where an operator before it may
    make a size below 0, and no turn has been since."""
    levels: dict[str, tuple[int, bool]] = {}
    found = []
    for node in proto.graph.node:
        read = [levels[name] for name in node.input if name in levels]
        if node.op_type == "Slice":
            level, may_shrink = max((at + may for at, may in read), default=0), False
        else:
            level = max((at for at, _ in read), default=0)
            may_shrink = not _operators(node) <= NEVER_NEGATIVE or any(may for at, may in read if at == level)
        levels.update(dict.fromkeys(node.output, (level, may_shrink)))
        found.append(level)
    return found
