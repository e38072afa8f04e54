"""Reading ONNX files, which may be hostile or damaged."""

from __future__ import annotations

import copy
import math
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt
import onnx
import onnx.external_data_helper
import onnx.inliner
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from pronghorn.errors import InputError, ModelFileError, UnsupportedModelError
from pronghorn.onnx.advice import export_advice

Source = str | os.PathLike[str] | bytes | ModelProto
T = TypeVar("T")
MOST_DIMENSIONS = 32
"""Of a tensor: beyond them numpy does not read its numbers one by one."""

OLDEST_OPSET = 7

ADDED_OPSET = 13
"""The version of the standard operators in a model that has none of its own: the import adds some."""

DEPRECATED = {"GroupNormalization": range(18, 21)}
"""Operators that onnx's checker refuses as deprecated, and their versions of the operator set."""

ASIDE = "pronghorn.deprecated"
"""A domain for them while a model is checked."""

OF_EXPORTERS = {"Erfc": "use the approximate GELU: keras.activations.gelu(x, approximate=True)"}
"""What to do about operators of exporters that ONNX does not have."""

OPERAND = re.compile(r"/[A-Z]\w*/[xy](:\d+)?$")
"""How TensorFlow calls constants that are operands, such as `sequential/normalization/Sub/y:0`."""

LEAST_IR = 4
"""The version of the format since which weights need not be inputs."""

LARGE = 1 << 8
"""Numbers of a tensor of weights that the checker need not see."""

MOST_LISTED = 5
"""Files of a directory that a refusal names."""

OF_TORCH = (".pt", ".pth", ".ckpt", ".safetensors")
"""How names of files with a PyTorch module's weights end."""


def read(model: Source) -> tuple[ModelProto, int, str]:
    """A checked model with its functions inlined; the version of its operator set; the name of its
    file or "".

    Raises:
        InputError: `model` is nothing that can be read.
        ModelFileError: the file is missing, damaged, or not ONNX.
        UnsupportedModelError: an operator set that is not supported, or sparse weights.
    """
    proto, name = _read(model)
    opset = _check(proto)
    # Copying a model of large weights for nothing takes seconds.
    if proto.functions:
        proto = guarded("its functions cannot be inlined", lambda: onnx.inliner.inline_local_functions(proto))
        _refuse_bytes(proto)
    return proto, opset, name


def free_name(name: str, *taken: Container[str]) -> str:
    """The name, or a longer one where a value of the model has it."""
    while any(name in names for names in taken):
        name += "'"
    return name


def free_in(graph: GraphProto, name: str) -> str:
    """The name, or a longer one where a graph has it."""
    stored, given = (tensor.name for tensor in graph.initializer), (entry.name for entry in graph.input)
    return free_name(name, {*stored, *given, *(output for node in graph.node for output in node.output)})


def inputs_of(graph: GraphProto) -> list[ValueInfoProto]:
    """The inputs of a graph that are no weights, which old files list among them."""
    stored = {tensor.name for tensor in graph.initializer}
    return [entry for entry in graph.input if entry.name not in stored]


def initializers(tensors: Iterable[TensorProto]) -> dict[str, npt.NDArray[Any]]:
    """The weights of a file as arrays.

    Raises:
        ModelFileError: one cannot be read; the error names it.
    """
    arrays = {}
    for tensor in tensors:
        try:
            arrays[tensor.name] = numpy_helper.to_array(tensor)
        except Exception as error:
            problem = f"tensor {tensor.name!r} cannot be read: {first_line(error)}"
            raise ModelFileError(f"the model is damaged: {problem}") from error
        if arrays[tensor.name].ndim > MOST_DIMENSIONS:
            problem = f"tensor {tensor.name!r} has {arrays[tensor.name].ndim} dimensions, of at most {MOST_DIMENSIONS}"
            raise ModelFileError(f"the model is damaged: {problem}")
    return arrays


def refuse_left_out(inputs: Iterable[str]) -> None:
    """Refuses inputs that are constants within the network: tf2onnx writes no values of tensors that a function
    captured, such as those that `Normalization.adapt` computed.

    Raises:
        UnsupportedModelError: there is one.
    """
    names = list(inputs)
    found = next((name for name in names if OPERAND.search(name)), None)
    # The model's own input is beside it.
    if found is not None and len(names) > 1:
        raise UnsupportedModelError(
            f"the exporter left out the values of a constant within the network, and made an input of it: {found!r}",
            "where a Keras Normalization `layer` was adapted, write this before exporting again: "
            "layer.mean, layer.variance = layer.mean.numpy(), layer.variance.numpy()",
        )


def names_read(node: NodeProto) -> set[str]:
    """The names of a node's inputs, and of all that the graphs within it read."""
    names = set(node.input)
    for graph in graphs_of(node):
        names.update((entry.name for entry in graph.output), *map(names_read, graph.node))
    return names


def graphs_of(node: NodeProto) -> list[GraphProto]:
    """The graphs within a node, as `If` and `Loop` have them."""
    each = ([a.g] if a.type == AttributeProto.GRAPH else a.graphs for a in node.attribute)
    return list(chain.from_iterable(each))


def first_line(error: Exception) -> str:
    """The first line of an error's message; its type where it has none."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def guarded(problem: str, call: Callable[[], T]) -> T:
    """Calls a library on a file that may be hostile; whatever it raises is the file's fault."""
    try:
        return call()
    except Exception as error:
        raise ModelFileError(
            f"{problem}: {first_line(error)}\n  what to do: export or download the model again"
        ) from error


def _read(model: Source) -> tuple[ModelProto, str]:
    """The model, a copy the caller does not see, and the name of its file."""
    if isinstance(model, ModelProto):
        _refuse_external(model)
        return copy.deepcopy(model), ""
    if isinstance(model, bytes):
        proto = guarded("these bytes are not an ONNX model", lambda: onnx.load_model_from_string(model))
        _refuse_external(proto)
        return proto, ""
    if not isinstance(model, str | os.PathLike):
        raise InputError(
            f"model is {model!r:.200}: give a path, the bytes of an .onnx file, an onnx.ModelProto or a torch.nn.Module"
            + export_advice(model)
        )
    path = Path(model)
    _refuse_absent(path)
    if path.suffix.lower() in OF_TORCH:
        raise ModelFileError(
            f"{path} is not an ONNX model: PyTorch keeps weights in {path.suffix} files\n"
            "  what to do: load them into their module with torch, and give that: pronghorn.load(module, example=input)"
        )
    proto = guarded(f"{path} is not an ONNX model", lambda: onnx.load(path, load_external_data=False))
    _load_external(proto, path)
    return proto, path.stem


def _refuse_absent(path: Path) -> None:
    """Refuses a path at which there is no file."""
    if path.is_dir():
        files = sorted(each.name for each in path.glob("*.onnx"))
        more = f" and {len(files) - MOST_LISTED} more" if len(files) > MOST_LISTED else ""
        held = f"holds {', '.join(files[:MOST_LISTED])}{more}" if files else "holds no .onnx file"
        example = f", such as {path / files[0]}" if files else ""
        raise ModelFileError(
            f"{path} is a directory, which {held}\n  what to do: give the path of an .onnx file{example}"
        )
    if not path.is_file():
        raise ModelFileError(f"there is no file {path}")


def external_files(path: Path) -> list[Path]:
    """The files beside a model that hold its weights.

    Raises:
        ModelFileError: there is no such file, or it is not ONNX.
    """
    _refuse_absent(path)
    proto = guarded(f"{path} is not an ONNX model", lambda: onnx.load(path, load_external_data=False))
    return [path.absolute().parent / location for location in sorted({location for _, location in _external(proto)})]


def _external(proto: ModelProto) -> list[tuple[str, str]]:
    """Tensors whose values are in files of their own: the tensor's name, and the file relative to
    the model's."""
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
    """Reads the values that are in files beside the model; the onnx package refuses files outside
    its folder."""
    external = _external(proto)
    folder = path.absolute().parent

    def absent() -> list[tuple[str, str]]:
        return [(name, location) for name, location in external if not (folder / location).is_file()]

    missing = guarded("the model is damaged", absent)
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
        guarded(problem, lambda: onnx.load_external_data_for_model(proto, str(folder)))


def _check(proto: ModelProto) -> int:
    """Checks the model against ONNX's rules; the version of its operator set."""
    if all(entry.domain == "ai.onnx.ml" for entry in proto.opset_import) and proto.opset_import:
        proto.opset_import.append(onnx.helper.make_opsetid("", ADDED_OPSET))
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
    # Before anything takes names for text, and again after functions are inlined.
    _refuse_bytes(proto)
    _refuse_unknown(proto, versions[0])
    # Before version 4 weights had to be inputs, too. Runtimes take them in any case.
    proto.ir_version = max(proto.ir_version, LEAST_IR)
    # The checker wants every input's and output's rank; some exporters leave it out, and nothing
    # here needs it.
    entries = [entry.type.tensor_type for entry in (*proto.graph.input, *proto.graph.output)]
    open_ended = [tensor for tensor in entries if tensor.elem_type and not tensor.HasField("shape")]
    for tensor in open_ended:
        tensor.shape.SetInParent()
    with _deprecated_aside(proto, versions[0]):
        try:
            guarded("the model is damaged", lambda: onnx.checker.check_model(_without_weights(proto)))
        except ModelFileError:
            # Runtimes take nodes in any order, and some tools write them so.
            if not _sort(proto.graph):
                raise
            guarded("the model is damaged", lambda: onnx.checker.check_model(_without_weights(proto)))
    for tensor in open_ended:
        tensor.ClearField("shape")
    return int(versions[0])


def _without_weights(proto: ModelProto) -> ModelProto:
    """The model without large weights, which the checker would copy twice. `initializers` sees whether their bytes are
    as many as their shapes say."""
    light = ModelProto()
    for message, own, left_out in ((proto, light, "graph"), (proto.graph, light.graph, "initializer")):
        for field, value in message.ListFields():
            if field.name != left_out:
                _set(own, field.name, value)
    for tensor in proto.graph.initializer:
        # Asking for its bytes takes as long as reading them.
        is_small = math.prod(tensor.dims) < LARGE
        if is_small or min(tensor.dims, default=0) < 0 or not tensor.HasField("raw_data"):
            light.graph.initializer.append(tensor)
        else:
            light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=[0])
    return light


def _set(message: ModelProto | GraphProto, name: str, value: Any) -> None:
    """Sets a field of any kind."""
    if hasattr(value, "CopyFrom"):
        getattr(message, name).CopyFrom(value)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        getattr(message, name).extend(value)
    else:
        setattr(message, name, value)


@contextmanager
def _deprecated_aside(proto: ModelProto, opset: int) -> Iterator[None]:
    """Gives operators that the checker refuses as deprecated, and runtimes run, a domain of their own meanwhile."""
    if not any(_is_deprecated(node, opset) for node in proto.graph.node):
        yield
        return
    proto.opset_import.append(onnx.helper.make_opsetid(ASIDE, 1))
    for node in proto.graph.node:
        node.domain = ASIDE if _is_deprecated(node, opset) else node.domain
    try:
        yield
    finally:
        del proto.opset_import[-1]
        # Sorting makes new nodes.
        for node in proto.graph.node:
            node.domain = "" if node.domain == ASIDE else node.domain


def _is_deprecated(node: NodeProto, opset: int) -> bool:
    return node.domain in ("", "ai.onnx") and opset in DEPRECATED.get(node.op_type, ())


def _sort(graph: GraphProto) -> bool:
    """Puts nodes behind those whose values they read. Says whether that changes anything."""
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    before = {
        place: {makers[name] for name in names_read(node) if name in makers} for place, node in enumerate(graph.node)
    }
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError:
        return False
    if all(maker < place for place, makers_read in before.items() for maker in makers_read):
        return False
    nodes = [copy.deepcopy(graph.node[place]) for place in order]
    del graph.node[:]
    graph.node.extend(nodes)
    return True


def _refuse_unknown(proto: ModelProto, opset: int) -> None:
    """Refuses operators that the exporter passed on without translating them."""
    own = {function.name for function in proto.functions}
    for node in proto.graph.node:
        if node.domain in ("", "ai.onnx") and node.op_type not in own and not onnx.defs.has(node.op_type):
            raise UnsupportedModelError(
                f"ONNX has no operator {node.op_type}: the exporter did not translate it",
                OF_EXPORTERS.get(node.op_type, "use other operators in its place, and export the model again"),
                node=node.name or next(iter(node.output), ""),
                operator=node.op_type,
                opset=opset,
            )


def _refuse_bytes(proto: ModelProto) -> None:
    """Refuses names that are no text."""
    if any(isinstance(name, bytes) for name in _names(proto)):
        raise ModelFileError("the model is damaged: a name in it is not UTF-8\n  what to do: export it again")


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
