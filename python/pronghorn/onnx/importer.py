"""ONNX models to Pronghorn's graph: JSON for `crates/pronghorn-graph/src/graph.rs`, and weights.

A model is read and checked, cut to one output, its batch dimension set to 1, its constants folded
by onnxslim where it has any, and lowered node by node. Everything that is not supported is refused here or by the
graph's own validation, with the node's name and what to do.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from pronghorn._outputs import PROBABILITIES
from pronghorn.errors import InputError, UnsupportedModelError
from pronghorn.onnx.apart import IMAGES, keeps_apart, takes_one_alone
from pronghorn.onnx.batch_first import fixes_several, put_batch_first
from pronghorn.onnx.beginning import Begin, begin_at, refuse_unread, without_front
from pronghorn.onnx.branches import choose_branches
from pronghorn.onnx.categories import Encoded, encode_categories
from pronghorn.onnx.class_names import class_names
from pronghorn.onnx.computed_masks import masking
from pronghorn.onnx.counting import Given, counts_of, integers
from pronghorn.onnx.dynamic import is_dynamic, without_dynamic
from pronghorn.onnx.endings import score_classes
from pronghorn.onnx.fixed_inputs import Fixed, fix_inputs
from pronghorn.onnx.folding import NAMING, has_graphs, is_constant, name_constants
from pronghorn.onnx.input_shape import ShapeOption, add_features, apply_shapes, fix_batch, refuse_large, refuse_sizes
from pronghorn.onnx.integers import has_integers, with_pairs
from pronghorn.onnx.joining import Row, join_inputs, join_outputs
from pronghorn.onnx.lookups import Lookups
from pronghorn.onnx.lowering import FINISH, MAX_ELEMENTS, Lowering, Value, thresholds
from pronghorn.onnx.masks import attended, scored
from pronghorn.onnx.merging import Targets
from pronghorn.onnx.operators import advice_beside, before_layers, inside, lower, unsupported
from pronghorn.onnx.probabilities import are_probabilities
from pronghorn.onnx.pruning import needed_nodes, refuse_unmade, remove_weights, replace_all
from pronghorn.onnx.reading import Source, guarded, initializers, inputs_of, names_read, read, refuse_left_out
from pronghorn.onnx.registry import OF_SHAPES, RECURRENT, name_of
from pronghorn.onnx.rewriting import rewrite
from pronghorn.onnx.sequences import without_sequences
from pronghorn.onnx.unrolling import has_loops, unroll

Output = str | Sequence[str] | None
"""The value to compute, or several."""

SLIM_SKIPS = ["graph_fusion", "dead_node_elimination", "subexpression_elimination", "weight_tying"]

MOVES = ("reshape", "take", "transpose", "pad")
"""Operators of the graph that leave numbers as they are."""

MOST_OF_BYTES = 1 / 32
"""The largest factor that bytes are brought to a usual size with: 1 / 255 divided by a deviation."""


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
    inputs: dict[str, tuple[int, ...]]
    """The shapes of the model's inputs, batch not counted; of several, the input is the row of all."""
    outputs: dict[str, tuple[int, ...]]
    """The shapes of the values that were asked for; of several, the output is the row of all."""
    opset: int
    takes_integers: bool
    """Whether the model declares an input of whole numbers."""
    reference: ModelProto
    """The ONNX model, cut to the output and with fixed sizes, for comparing with a float runtime."""
    plain: ModelProto
    """The same without scales that depend on all images of a batch, for comparing images with themselves."""
    free_batch: bool
    """Whether the model left the size of a batch open, and each image has its results in a row of their own."""
    is_quantised: bool
    """Whether it rounds values by QuantizeLinear or DynamicQuantizeLinear, in whose place fixed point rounds."""
    encoded: Encoded | None = None
    """What became of inputs some of whose values are categories."""
    class_names: tuple[str, ...] = ()
    """The model's own names of its classes, in the order of its outputs; empty where they are 0, 1 and so on."""
    takes_class: bool = False
    """Whether the result is the class that the output tells, and not the output itself."""
    thresholds: dict[int, tuple[float, float]] = field(default_factory=dict)
    """The least and the largest threshold of each feature of a row that comparisons alone read."""
    declares_several: bool = False
    """Whether the file fixes the batch of an input at several images."""
    front: ModelProto | None = None
    """What makes the inputs of those of the file, where the network begins at values within it."""
    moves_batch: bool = False
    """Whether the batch, whose size the model leaves open, may move, so that images might be mixed. Then each image
    runs by itself here."""

    @property
    def multiply_adds(self) -> int:
        """About how many of them one image takes."""
        return sum(map(self._multiply_adds, json.loads(self.graph_json)["nodes"]))

    def _multiply_adds(self, node: dict[str, Any]) -> int:
        weight = self.tensors.get(node["op"].get("weight"))
        each = 1 if weight is None else weight.size // len(weight)
        return int(each * math.prod(node["shape"]))

    def reference_bytes(self) -> bytes:
        """The model for a float runtime: the batch free where it was, else 1.

        Raises:
            Exception: protobuf's, of a model beyond 2 GiB.
        """
        first = self.reference.graph.input[0].type.tensor_type.shape.dim[0]
        if self.free_batch:
            first.Clear()
            first.dim_param = "N"
        return bytes(self.reference.SerializeToString())

    @property
    def finish(self) -> list[str]:
        """The operators that end the model, such as `softmax`."""
        operators = [node["op"] for node in json.loads(self.graph_json)["nodes"]]
        # Such operators stand at the end of the graph only.
        ends = (*FINISH, PROBABILITIES)
        return [f"{op['of']}_along" if "of" in op else op["kind"] for op in operators if op["kind"] in ends]

    @property
    def scales_bytes(self) -> bool:
        """Whether the network begins with a factor that brings bytes to numbers of a usual size."""
        nodes = json.loads(self.graph_json)["nodes"]
        moved, factors = {0}, list[float]()
        for index, node in enumerate(nodes):
            if not moved.intersection(node["inputs"]):
                continue
            op = node["op"]
            if op["kind"] in MOVES or (op["kind"] == "affine" and op["mul"] is None):
                moved.add(index)
            else:
                is_factor = op["kind"] == "affine"
                factors.append(float(np.abs(self.tensors[op["mul"]]).max()) if is_factor else 1.0)
        return bool(factors) and max(factors) <= MOST_OF_BYTES

    def with_class(self) -> ImportedModel:
        """The model whose result is the class.

        Raises:
            InputError: there are several outputs.
        """
        if len(self.outputs) > 1:
            raise InputError(
                f"the model has {len(self.outputs)} outputs, and a class is one of the values of one output: choose it "
                "(--output NAME, output=NAME), or open all values (--opening values, opening='values')"
            )
        return replace(self, takes_class="arg_max" not in self.finish)


@dataclass(frozen=True)
class Reading:
    """What a model is read with."""

    model: Source
    shape: ShapeOption
    output: Output
    of_samples: ShapeOption
    fixed: Fixed
    begin: Begin


def import_onnx(
    model: Source,
    *,
    shape: ShapeOption = None,
    output: Output = None,
    of_samples: ShapeOption = None,
    fixed: Fixed = None,
    begin: Begin = None,
) -> ImportedModel:
    """Imports an ONNX model.

    Args:
        model: a path, the bytes of a file, or a loaded model.
        shape: the input's shape with the batch first, for models that leave it open; for the only
            input, or by name: `{"input": (1, 3, 224, 224)}`.
        output: the value to compute, or several, which become one row; needed where a model has
            several outputs. Any value in the model may be named, which cuts the model there.
        of_samples: the shape of samples, as `shape`: for sizes that the model and `shape` leave open, where it fits.
        fixed: values of inputs that are the same for all images, by name.
        begin: a value within the model at which the network begins, or several.

    Raises:
        InputError: `model`, `shape` or `fixed` cannot be used.
        ModelFileError: the file is missing, damaged, or not ONNX.
        UnsupportedModelError: something in it cannot be run; the error names it.
    """
    reading = Reading(model, shape, output, of_samples, fixed, begin)
    try:
        return _imported(reading)
    except UnsupportedModelError as error:
        # Where the batch is has then no part in it.
        if error.operator is None or error.operator in error.unsupported:
            raise
        first = error
    # The model is read once more: copying it at first would be for nothing.
    for attempt in (_of_second, _of_one):
        try:
            return attempt(reading)
        except UnsupportedModelError as error:
            # Where the batch may move, an operator that is not supported is the cause.
            first = error if error.operator in error.unsupported else first
        except InputError:
            continue
    raise first


def _of_one(reading: Reading) -> ImportedModel:
    """The model of one image, where it is found by running it that images are apart.

    Raises: as `import_onnx`.
    """
    imported = _imported(reading, as_one=True)
    encoded = imported.encoded
    rows = encoded.categories.random(3 * IMAGES, imported.input_shape) if encoded else None
    if keeps_apart(imported.plain, imported.outputs, rows):
        return imported
    if not imported.declares_several and takes_one_alone(imported.plain, rows):
        return replace(imported, free_batch=False)
    raise UnsupportedModelError("it mixes images", "keep the images of a batch apart")


def _of_second(reading: Reading) -> ImportedModel:
    """The model whose batch is the second dimension, of size 1. It looks like one of several images.

    Raises: as `import_onnx`, and where it cannot be.
    """
    return _imported(reading, is_second=True)


def _imported(reading: Reading, as_one: bool = False, is_second: bool = False) -> ImportedModel:
    """The model as `import_onnx` reads it; `as_one`: of one image, though it leaves the batch open; `is_second`: whose
    batch is the second dimension, of size 1.

    Raises: as `import_onnx`, and where `is_second` cannot be.
    """
    proto, opset, name = read(reading.model)
    fix_inputs(proto, reading.fixed)
    if not put_batch_first(proto, reading.shape, reading.of_samples, of_one=is_second) and is_second:
        raise UnsupportedModelError("the batch is the first dimension", "leave it there")
    front = begin_at(proto, opset, reading.begin, reading.shape)
    names = class_names(proto.graph)
    wanted, row = _cut(proto, reading.output)
    refuse_unread(proto, front)
    refuse_left_out(entry.name for entry in proto.graph.input)
    add_features(proto, opset)
    apply_shapes(proto, without_front(proto, front, reading.shape), reading.of_samples)
    choose_branches(proto, opset)
    without_sequences(proto, opset)
    declares_several = any(map(fixes_several, proto.graph.input))
    encoded = encode_categories(proto, opset)
    refuse_sizes(proto)
    given = Given(_whole(proto), (), ())
    if encoded:
        given = Given(encoded.whole - encoded.counts, encoded.counts, encoded.truths)
    inputs = join_inputs(proto, opset) if len(proto.graph.input) > 1 else {}
    source = fix_batch(proto)
    refuse_large(proto)
    output_name = proto.graph.output[0].name
    sizes = (1, *(dim.dim_value for dim in source.type.tensor_type.shape.dim[1:]))
    by_batch = is_dynamic(proto.graph)
    written = copy.deepcopy(proto) if by_batch or has_integers(proto.graph) else None
    guarded("its operators on integers cannot be read", lambda: with_pairs(proto, opset))
    without_dynamic(proto)
    plain = copy.deepcopy(proto) if has_loops(proto) else proto
    unrolled = unroll(proto, opset)
    if unrolled:
        refuse_large(proto)
    is_fixed = source.type.tensor_type.shape.dim[0].dim_value == 1
    one_image = is_fixed or as_one or unrolled or _is_recurrent(proto)
    lowering = Lowering(opset, {}, one_image=one_image, targets=Targets.of(proto.graph))
    lowering.is_apart = (is_fixed and not declares_several) or as_one
    lowering.parts = row.parts if row else {}
    lowering.start(source.name, sizes)
    are_shares = row is None and are_probabilities(proto, opset, output_name)
    _lower(_slim(proto, wanted), lowering, output_name, given)
    outputs = {name: _output(lowering, name).inner for name in wanted}
    result = _output(lowering, output_name)
    if row:
        for each in filter(None, (plain, written)):
            row.size(each.graph, outputs)
    # Behind recurrent networks and loops the batch may be another dimension than the first.
    takes_batches = not one_image or (row is None and result.batched)
    title = name or str(proto.graph.name) or "model"
    nodes, last = _without_unread(lowering.nodes, result.index)
    if not any(node["op"]["kind"] in FINISH for node in nodes) and are_shares:
        ends = {"name": output_name, "op": {"kind": PROBABILITIES}, "inputs": [last], "shape": list(result.inner)}
        nodes, last = [*nodes, ends], len(nodes)
    classes = max(2, math.prod(result.inner))
    are_indices = any(node["op"]["kind"] == "arg_max" for node in nodes)
    graph = {"name": title, "nodes": nodes, "output": last}
    return ImportedModel(
        graph_json=json.dumps(graph, allow_nan=False),
        tensors=lowering.tensors,
        name=title,
        input_name=source.name,
        input_shape=sizes[1:],
        output_name=output_name,
        output_shape=result.inner,
        inputs=encoded.inputs if encoded else inputs or {source.name: sizes[1:]},
        encoded=encoded,
        outputs=outputs,
        opset=opset,
        takes_integers=helper.tensor_dtype_to_np_dtype(source.type.tensor_type.elem_type).kind in "iu",
        reference=written or plain,
        plain=plain,
        # A dynamic scale is one for a batch, so that each image is quantised by itself here.
        free_batch=source.type.tensor_type.shape.dim[0].dim_value < 1 and takes_batches and not by_batch,
        is_quantised=written is not None or any(node.op_type == "QuantizeLinear" for node in proto.graph.node),
        class_names=names if are_indices or len(names) == classes else (),
        moves_batch=one_image and not is_fixed,
        declares_several=declares_several,
        front=front,
        thresholds=thresholds(lowering) if lowering.compared else {},
    )


def _without_unread(nodes: list[dict[str, Any]], output: int) -> tuple[list[dict[str, Any]], int]:
    """The nodes without those of the client that nothing reads, and the place of the output among them."""
    read = {output}
    for index in reversed(range(len(nodes))):
        if index in read or nodes[index]["op"]["kind"] not in FINISH:
            read.update(nodes[index]["inputs"])
    kept = [index for index, node in enumerate(nodes) if index in read or node["op"]["kind"] not in FINISH]
    places = {index: place for place, index in enumerate(kept)}
    moved = [{**nodes[index], "inputs": [places[source] for source in nodes[index]["inputs"]]} for index in kept]
    return moved, places[output]


def _cut(proto: ModelProto, output: Output) -> tuple[list[str], Row | None]:
    """Keeps what the output needs; the names of the values in it, and the row of several."""
    graph = proto.graph
    names = [_before_zip_map(graph.node, name) for name in _outputs(proto, output)]
    for name in names:
        refuse_unmade(graph, name)
        score_classes(graph, name)
    row = None if len(names) == 1 else join_outputs(graph, names)
    wanted = row.name if row else names[0]
    nodes = needed_nodes(graph.node, [wanted])
    needed = {wanted}.union(*map(names_read, nodes))
    known = [entry for entry in (*graph.output, *graph.value_info) if entry.name == wanted]
    remove_weights(graph, needed)
    kind = known[0].type.tensor_type.elem_type if known else TensorProto.FLOAT
    replace_all(graph.input, [entry for entry in inputs_of(graph) if entry.name in needed])
    replace_all(graph.node, nodes)
    replace_all(graph.output, [helper.make_tensor_value_info(wanted, kind, None)])
    replace_all(graph.value_info, [])
    return names, row


def _outputs(proto: ModelProto, output: Output) -> list[str]:
    """The names of the values to compute: of a classifier's labels and probabilities, the probabilities."""
    if output is not None:
        given = [output] if isinstance(output, str) else list(output)
        if not given or len(set(given)) != len(given):
            raise InputError(f"output is {output!r}: name each value once, and at least one")
        return given
    outputs = [entry.name for entry in proto.graph.output]
    numbers = [entry.name for entry in proto.graph.output if not _is_label(entry)]
    if len(outputs) > 1 and len(numbers) == 1:
        return [str(numbers[0])]
    if len(outputs) != 1:
        listed = ", ".join(outputs)
        raise UnsupportedModelError(
            f"the model has {len(outputs)} outputs: {listed}",
            "pick one with --output NAME (output=NAME), or several, which become one row: --output NAME --output NAME "
            "(output=[NAME, NAME])",
        )
    return [str(outputs[0])]


def _is_label(entry: ValueInfoProto) -> bool:
    """Whether an output holds integers or strings."""
    kind = entry.type.tensor_type.elem_type if entry.type.WhichOneof("value") == "tensor_type" else TensorProto.FLOAT
    return kind in (TensorProto.INT64, TensorProto.INT32, TensorProto.STRING)


def _before_zip_map(nodes: Iterable[NodeProto], wanted: str) -> str:
    """The probabilities that scikit-learn's ZipMap puts into dictionaries, which no client wants."""
    makers = {name: node for node in nodes for name in node.output}
    node = makers.get(wanted)
    return node.input[0] if node is not None and name_of(node) == "ai.onnx.ml.ZipMap" else wanted


def _is_recurrent(proto: ModelProto) -> bool:
    """Whether a batch goes behind a sequence and comes back, so that it may move."""
    return any(name_of(node) in RECURRENT for node in proto.graph.node)


def _slim(proto: ModelProto, wanted: list[str]) -> ModelProto:
    """Constants folded by onnxslim; unchanged where it fails, as lowering can do most of it.

    Its other passes are left out: lowering does what they do, and they take a Dropout in training
    mode away. So is its inference of shapes, which computes some pads in the wrong order. A model
    without constants to fold is spared it: it takes longer than the rest, and copies of the
    weights.
    """
    if _is_folded(proto):
        return proto
    import onnxslim

    # Values within a row of several keep their names as outputs.
    bare, inner = copy.deepcopy(proto), [name for name in wanted if name != proto.graph.output[0].name]
    bare.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inner)
    try:
        options = {"size_threshold": 4 * MAX_ELEMENTS, "skip_optimizations": SLIM_SKIPS, "no_shape_infer": True}
        slim = onnxslim.slim(bare, **options)
    except Exception:
        return proto
    names = [proto.graph.output[0].name, *inner]
    if not isinstance(slim, ModelProto) or [entry.name for entry in slim.graph.output] != names:
        return proto
    del slim.graph.output[1:]
    return slim


def _is_folded(proto: ModelProto) -> bool:
    """Whether each node depends on the input and on no shape. Lowering knows constants by all their names."""
    constants = {"", *(tensor.name for tensor in proto.graph.initializer)}
    for node in proto.graph.node:
        if has_graphs(node) or node.op_type in OF_SHAPES:
            return False
        if is_constant(constants, node):
            if node.op_type not in NAMING:
                return False
            constants.update(node.output)
    return True


def _lower(proto: ModelProto, lowering: Lowering, output: str, given: Given) -> None:
    """Lowers all nodes."""
    lowering.constants.update(initializers(proto.graph.initializer))
    nodes = name_constants(proto.graph.node, lowering.constants, lowering.opset)
    counts, natural = counts_of(nodes, given, lowering.constants)
    taken = {*lowering.values, *(name for node in nodes for name in node.output)}
    lookups = Lookups(counts, natural, taken, lowering.opset)
    nodes, looked_up = lookups.replaced(nodes, lowering.constants)
    nodes = needed_nodes(rewrite(nodes, lowering.constants), [output])
    lowering.within, lowering.network = inside(nodes), nodes
    lowering.before_layers = before_layers(nodes, lowering.constants)
    lowering.scored = scored(nodes, lowering.constants)
    lowering.masking = masking(nodes, [output], lowering.constants)
    lowering.attended = attended(nodes, lowering.constants)
    lowering.counts, _ = counts_of(nodes, given, lowering.constants)
    lowering.of_inputs = integers(nodes, given.whole, lowering.constants)
    lowering.whole = integers(nodes, {*given.whole, *lowering.counts, *looked_up}, lowering.constants)
    lowering.given_truths = given.truths
    lowering.given = {*given.whole, *given.counts, *given.truths}
    readers = {name: node.op_type for node in nodes for name in node.input} | {output: ""}
    try:
        for node in nodes:
            lower(lowering, node, readers)
    except UnsupportedModelError as error:
        others = unsupported(nodes, lowering.constants)
        raise error.listing(others, advice_beside(error.operator, others)) from None
    if output in lowering.quantised:
        raise UnsupportedModelError(
            f"the output {output!r} is quantised",
            "take the value before its QuantizeLinear (--output NAME, output=NAME)",
        )


def _whole(proto: ModelProto) -> set[str]:
    """The inputs that are whole numbers."""
    types = (
        (entry.name, helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type)) for entry in proto.graph.input
    )
    return {name for name, kind in types if kind.kind in "iu"}


def _output(lowering: Lowering, name: str) -> Value:
    """The value of an output, which depends on the input."""
    if name not in lowering.values:
        raise UnsupportedModelError(
            f"the output {name!r} does not depend on the input", "pick another (--output NAME, output=NAME)"
        )
    return lowering.computed(name)
