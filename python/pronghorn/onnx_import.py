"""ONNX models to Pronghorn's graph: JSON for `crates/pronghorn-graph/src/graph.rs`, and weights.

A model is read and checked, cut to one output, its batch dimension set to 1, simplified by
onnxslim, and lowered node by node (`_lower.py`). Everything that is not supported is refused here
or by the graph's own validation, with the node's name and what to do.
"""

from __future__ import annotations

import copy
import json
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import onnx
import onnx.external_data_helper
import onnx.inliner
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, shape_inference

from pronghorn._lower import MAX_ELEMENTS, Lowering, check_log_softmax, initializers
from pronghorn.errors import InputError, ModelFileError, UnsupportedModelError

Source = str | os.PathLike[str] | bytes | ModelProto
ShapeOption = Mapping[str, Sequence[int]] | Sequence[int] | None
T = TypeVar("T")

OLDEST_OPSET = 7
SLIM_SKIPS = ["graph_fusion", "dead_node_elimination", "subexpression_elimination", "weight_tying"]


@dataclass(frozen=True)
class ImportedModel:
    """A model as the compiled core takes it."""

    graph_json: str
    """The graph, in the JSON of `graph.rs`."""
    tensors: dict[str, npt.NDArray[np.float32]]
    """Its weights, by the names the graph uses."""
    name: str
    input_name: str
    input_shape: tuple[int, ...]
    """Without the batch dimension."""
    output_name: str
    output_shape: tuple[int, ...]
    """Without the batch dimension."""
    opset: int
    takes_integers: bool
    """Whether the model declares an input of whole numbers."""
    reference: bytes
    """The ONNX model, cut to the output and with fixed sizes, for comparing with a float runtime; the
    batch size is free where the model's was."""


def import_onnx(model: Source, *, shape: ShapeOption = None, output: str | None = None) -> ImportedModel:
    """Imports an ONNX model.

    Args:
        model: a path, the bytes of a file, or a loaded model.
        shape: the input's shape with the batch first, for models that leave it open; for the only
            input, or by name: `{"input": (1, 3, 224, 224)}`.
        output: the value to compute; needed where a model has several outputs. Any value in the model
            may be named, which cuts the model there.

    Raises:
        ModelFileError: the file is missing, damaged, or not ONNX.
        UnsupportedModelError: something in it cannot be run; the error names it.
    """
    proto, name = _read(model)
    opset = _check(proto)
    proto = _guarded("its functions cannot be inlined", lambda: onnx.inliner.inline_local_functions(proto))
    if any(isinstance(name, bytes) for name in _names(proto)):
        raise ModelFileError("the model is damaged: a name in it is not UTF-8\n  what to do: export it again")
    _cut(proto, output)
    source = _fix_input(proto, shape)
    _refuse_large(proto)
    lowering = Lowering(opset, {})
    reference = _reference(proto, source)
    slim = _slim(proto)
    output_name = proto.graph.output[0].name
    shapes = (1, *(d.dim_value for d in source.type.tensor_type.shape.dim[1:]))
    lowering.start(source.name, shapes)
    try:
        lowering.constants.update(initializers(slim.graph.initializer))
    except ValueError as error:
        raise ModelFileError(f"the model is damaged: {error}") from error
    _lower(slim, lowering, output_name)
    result = lowering.values[output_name]
    title = name or str(proto.graph.name) or "model"
    graph = {"name": title, "nodes": lowering.nodes, "output": result.index}
    return ImportedModel(
        graph_json=json.dumps(graph, allow_nan=False),
        tensors=lowering.tensors,
        name=title,
        input_name=source.name,
        input_shape=shapes[1:],
        output_name=output_name,
        output_shape=result.inner,
        opset=opset,
        takes_integers=helper.tensor_dtype_to_np_dtype(source.type.tensor_type.elem_type).kind in "iu",
        reference=reference,
    )


def _guarded(problem: str, call: Callable[[], T]) -> T:
    """Calls a library on a file that may be hostile; whatever it raises is the file's fault."""
    try:
        return call()
    except Exception as error:
        detail = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelFileError(f"{problem}: {detail}\n  what to do: export or download the model again") from error


def _read(model: Source) -> tuple[ModelProto, str]:
    """The model, a copy the caller does not see, and the name of its file."""
    if isinstance(model, ModelProto):
        _refuse_external(model)
        return copy.deepcopy(model), ""
    if isinstance(model, bytes):
        proto = _guarded("these bytes are not an ONNX model", lambda: onnx.load_model_from_string(model))
        _refuse_external(proto)
        return proto, ""
    if not isinstance(model, str | os.PathLike):
        raise InputError(f"model is {model!r}: give a path, the bytes of an .onnx file, or an onnx.ModelProto")
    path = Path(model)
    if not path.is_file():
        raise ModelFileError(f"there is no file {path}")
    proto = _guarded(f"{path} is not an ONNX model", lambda: onnx.load(path, load_external_data=False))
    _load_external(proto, path)
    return proto, path.stem


def _external(proto: ModelProto) -> list[tuple[str, str]]:
    """Tensors whose values are in files of their own: the tensor's name, and the file relative to the model's."""
    nodes = chain(proto.graph.node, *(function.node for function in proto.functions))
    outside = filter(onnx.external_data_helper.uses_external_data, chain(proto.graph.initializer, _constants(nodes)))
    entries = [(tensor.name, {entry.key: entry.value for entry in tensor.external_data}) for tensor in outside]
    return [(name, fields.get("location", "")) for name, fields in entries]


def _constants(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    """The tensors in nodes' attributes, those in graphs within them included."""
    for attribute in chain.from_iterable(node.attribute for node in nodes):
        yield from (attribute.t, *attribute.tensors)
        for graph in (attribute.g, *attribute.graphs):
            yield from graph.initializer
            yield from _constants(graph.node)


def _refuse_external(proto: ModelProto) -> None:
    """A model in memory does not say in which folder its files are."""
    for name, location in _external(proto)[:1]:
        raise ModelFileError(
            f"the values of tensor {name!r} are in another file, {location!r}, which a model in memory does not have\n"
            "  what to do: give the path of the .onnx file, or load it with onnx.load, which reads that file too"
        )


def _load_external(proto: ModelProto, path: Path) -> None:
    """Reads the values that are in files beside the model; the onnx package refuses files outside its folder."""
    external = _external(proto)
    folder = path.absolute().parent

    def absent() -> list[tuple[str, str]]:
        return [(name, location) for name, location in external if not (folder / location).is_file()]

    missing = _guarded("the model is damaged", absent)
    if missing:
        files = ", ".join(sorted({repr(location) for _, location in missing}))
        name, location = missing[0]
        raise ModelFileError(
            f"{path} keeps its weights in other files, and these are missing: {files}\n"
            f"  looked for: {folder / location} (tensor {name!r})\n"
            "  what to do: put them there, under these names: they were written beside the model when it was exported; "
            "or export into one file (torch.onnx.export(..., external_data=False))"
        )
    if external:
        problem = f"the files beside {path} that hold its weights cannot be read"
        _guarded(problem, lambda: onnx.load_external_data_for_model(proto, str(folder)))


def _check(proto: ModelProto) -> int:
    """Checks the model against ONNX's rules; the version of its operator set."""
    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    if not proto.HasField("graph") or not versions:
        raise ModelFileError(
            "this is not an ONNX model: it has no graph or no operator set\n"
            "  what to do: give an .onnx file; export PyTorch models with torch.onnx.export"
        )
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= versions[0] <= newest:
        raise UnsupportedModelError(
            f"opset {versions[0]} is not supported, {OLDEST_OPSET} to {newest} are",
            "export again with one of them, or update onnx (pip install -U onnx)",
        )
    if proto.graph.sparse_initializer:
        raise UnsupportedModelError("sparse weights are not supported", "export with dense weights")
    # The checker wants every input's and output's rank; some exporters leave it out, and nothing here needs it.
    entries = [entry.type.tensor_type for entry in (*proto.graph.input, *proto.graph.output)]
    open_ended = [tensor for tensor in entries if tensor.elem_type and not tensor.HasField("shape")]
    for tensor in open_ended:
        tensor.shape.SetInParent()
    _guarded("the model is damaged", lambda: onnx.checker.check_model(proto))
    for tensor in open_ended:
        tensor.ClearField("shape")
    return int(versions[0])


def _names(proto: ModelProto) -> Iterator[object]:
    """Every name in the graph; protobuf gives bytes for one that is not UTF-8."""
    graph = proto.graph
    yield graph.name
    for entry in (*graph.input, *graph.output, *graph.value_info):
        yield entry.name
        yield from (dim.dim_param for dim in entry.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        yield tensor.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def _cut(proto: ModelProto, output: str | None) -> None:
    """Keeps what the output needs."""
    graph = proto.graph
    outputs = [entry.name for entry in graph.output]
    if output is None and len(outputs) != 1:
        listed = ", ".join(outputs)
        raise UnsupportedModelError(
            f"the model has {len(outputs)} outputs: {listed}", "pick one with --output NAME (output=NAME)"
        )
    wanted = outputs[0] if output is None else output
    needed, nodes = {wanted}, []
    for node in reversed(graph.node):
        if any(name in needed for name in node.output if name):
            nodes.append(node)
            needed.update(node.input)
    if not any(wanted in node.output for node in nodes):
        raise UnsupportedModelError(
            f"no node of the model makes {wanted!r}",
            f"its outputs are {', '.join(outputs)}; any value between may be named too (--output NAME, output=NAME)",
        )
    known = [entry for entry in (*graph.output, *graph.value_info) if entry.name == wanted]
    weights = [tensor for tensor in graph.initializer if tensor.name in needed]
    names = {tensor.name for tensor in weights}
    inputs = [entry for entry in graph.input if entry.name in needed and entry.name not in names]
    kind = known[0].type.tensor_type.elem_type if known else TensorProto.FLOAT
    result = helper.make_tensor_value_info(wanted, kind, None)
    for repeated, kept in (
        (graph.node, nodes[::-1]),
        (graph.input, inputs),
        (graph.initializer, weights),
        (graph.output, [result]),
        (graph.value_info, []),
    ):
        entries = [copy.deepcopy(entry) for entry in kept]
        del repeated[:]
        repeated.extend(entries)


def _fix_input(proto: ModelProto, shape: ShapeOption) -> ValueInfoProto:
    """Gives the only input its sizes, the batch being 1; a copy from before the batch was set."""
    inputs = list(proto.graph.input)
    if len(inputs) != 1:
        listed = ", ".join(entry.name for entry in inputs) or "none"
        raise UnsupportedModelError(
            f"the model has {len(inputs)} inputs that its output depends on: {listed}",
            "one is supported: make the others constants, or pick an output that needs one (--output NAME)",
        )
    entry = inputs[0]
    tensor = entry.type.tensor_type
    if entry.type.WhichOneof("value") != "tensor_type" or not _is_number(tensor.elem_type):
        raise UnsupportedModelError(f"input {entry.name!r} is no tensor of numbers", "export with a float input")
    given = _given_shape(entry.name, shape)
    if given is not None:
        _apply_shape(entry, given)
    dims = tensor.shape.dim
    if len(dims) < 2:
        known = f"has shape ({', '.join(map(_dimension, dims))})" if tensor.HasField("shape") else "has no shape"
        raise UnsupportedModelError(
            f"input {entry.name!r} {known}; it needs a batch dimension and at least one more",
            f"say the shape: --shape {entry.name}=1,3,224,224",
        )
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
    before: ValueInfoProto = copy.deepcopy(entry)
    dims[0].Clear()
    dims[0].dim_value = 1
    return before


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
        unknown = [key for key in shape if key != name]
        if unknown:
            raise InputError(f"a shape is given for {unknown[0]!r}, but the input's name is {name!r}")
        if not shape:
            return None
        shape = shape[name]
    try:
        sizes = [operator.index(size) for size in shape]
    except TypeError:
        raise InputError(f"shape is {shape!r}: give whole numbers, such as (1, 3, 224, 224)") from None
    if len(sizes) < 2 or sizes[0] != 1 or min(sizes) < 1:
        raise InputError(f"shape {sizes} of input {name!r} must be positive, the first number being the batch, 1")
    return sizes


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


def _refuse_large(proto: ModelProto) -> None:
    """Refuses what would not fit into memory before anything evaluates it."""
    try:
        inferred = shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:
        return  # Lowering finds what is wrong, and names it.
    for entry in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        elements = 1
        for dim in entry.type.tensor_type.shape.dim:
            elements *= max(dim.dim_value, 1)
        if elements > MAX_ELEMENTS:
            raise UnsupportedModelError(
                f"the value {entry.name!r} would have {elements} elements", f"at most {MAX_ELEMENTS} are supported"
            )


def _reference(proto: ModelProto, source: ValueInfoProto) -> bytes:
    """The model for a float runtime: the batch free where it was, else 1; empty beyond 2 GiB."""
    reference = copy.deepcopy(proto)
    dims = source.type.tensor_type.shape.dim
    if dims[0].dim_value < 1:
        first = reference.graph.input[0].type.tensor_type.shape.dim[0]
        first.Clear()
        first.dim_param = "N"
    try:
        return bytes(reference.SerializeToString())
    except ValueError:
        return b""


OF_SHAPES = ("Shape", "Size")
"""Operators whose results follow from shapes, which are known."""


def _slim(proto: ModelProto) -> ModelProto:
    """Constants folded by onnxslim; unchanged where it fails, as lowering can do most of it.

    Its other passes are left out: lowering does what they do, and they take a Dropout in training mode away. A
    chain of layers has nothing to fold or to sort, and is spared the import, which takes longer than the rest.
    """
    if _is_chain(proto):
        return proto
    import onnxslim

    try:
        slim = onnxslim.slim(copy.deepcopy(proto), size_threshold=4 * MAX_ELEMENTS, skip_optimizations=SLIM_SKIPS)
    except Exception:
        return proto
    kept = isinstance(slim, ModelProto) and [o.name for o in slim.graph.output] == [proto.graph.output[0].name]
    return slim if kept else proto


def _is_chain(proto: ModelProto) -> bool:
    """Whether each node reads weights and the output of the node before it, and nothing else."""
    weights = {"", *(tensor.name for tensor in proto.graph.initializer)}
    values = [value.name for value in proto.graph.input if value.name not in weights][:1]
    for node in proto.graph.node:
        has_graphs = any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)
        read = [name for name in node.input if name not in weights]
        if has_graphs or node.op_type in OF_SHAPES or read != values:
            return False
        values = list(node.output[:1])
    return True


def _lower(proto: ModelProto, lowering: Lowering, output: str) -> None:
    """Lowers all nodes."""
    used = {name for node in proto.graph.node for name in node.input} | {output}
    check_log_softmax(proto.graph.node, lowering.opset, output)
    for node in proto.graph.node:
        if node.domain == "ai.onnx.ml" or node.output:
            lowering.lower(node, used)
    if output not in lowering.values:
        raise UnsupportedModelError(
            f"the output {output!r} does not depend on the input", "pick another (--output NAME, output=NAME)"
        )
