"""Groups of ONNX nodes that another node says at once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from pronghorn.onnx.choices import choice, signed
from pronghorn.onnx.columns import sums_of_columns
from pronghorn.onnx.endings import CLASSIFIER, ending, last_ending, numbers_of
from pronghorn.onnx.lowering import Array
from pronghorn.onnx.normalisation_pattern import normalisation
from pronghorn.onnx.operators import before_layers
from pronghorn.onnx.reading import free_name
from pronghorn.onnx.recognition import recognised
from pronghorn.onnx.registry import name_of
from pronghorn.onnx.softmaxes import softmax

EVEN = (2, 4, 6, 8)
"""Exponents of powers that a scale may go before."""

TREES = "ai.onnx.ml.TreeEnsembleClassifier"

VECTORS = "ai.onnx.ml.SVMClassifier"

ROLES = ("factor", "scaled", "exponent")
"""Of values that such a power is made of."""


def rewrite(nodes: Iterable[NodeProto], constants: dict[str, Array]) -> list[NodeProto]:
    """The nodes, with groups of them that another node says at once as that node.

    * `Concat(1 - Sigmoid(z), Sigmoid(z))`, a binary classifier's probabilities: a Concat of `z` with the attribute
      `no_and_yes`.
    * Smooth functions, normalisations, Softmaxes and ends of several nodes, and choices and signs that make no jump.
    * Sums of columns of a row beside each other: a product with a matrix.
    * Means of values that are stacked before the batch: of these values.
    * GatherND and the transpositions around it.
    * ConvTranspose and BatchNormalization: one ConvTranspose, whose weights join `constants`.
    * A factor of 1 and a summand of 0, as onnxmltools writes them behind probabilities: an Identity.
    * Even powers and magnitudes that are divided by a constant each: of values that are divided by its root.

    The replaced nodes stay where others may read them.
    """
    nodes = list(nodes)
    makers, scored = _makers(nodes, CLASSIFIER), _makers(nodes, CLASSIFIER, TREES)
    voted = partial(sums_of_columns, makers=_makers(nodes, VECTORS))
    places = {node.output[0]: place for place, node in enumerate(nodes) if node.output}
    scaled_power = partial(_scaled_power, readers=Counter(name for node in nodes for name in set(node.input)))

    def replaced(node: NodeProto) -> list[NodeProto]:
        one = _binary(node, makers, constants) or recognised(node, places, nodes, constants)
        ways = () if one else (normalisation, softmax, choice, signed, ending, _stacked, scaled_power)
        several = next((made for way in ways if (made := way(node, makers, constants))), None)
        several = several or voted(node, constants=constants)
        ways_of_one = (
            _gathered(node, makers),
            _normalised(node, makers, constants),
            _columns(node, makers, constants),
            _distances(node, makers, constants),
            _place_of_largest(node, makers, constants),
            _neutral(node, scored, constants),
            node,
        )
        return several or [one or next(each for each in ways_of_one if each is not None)]

    return _with_last_endings([made for node in nodes for made in replaced(node)], constants)


def _makers(nodes: list[NodeProto], *classifiers: str) -> dict[str, NodeProto]:
    """The node that makes each value."""
    makers = {node.output[0]: node for node in nodes if node.output}
    makers |= {node.output[1]: node for node in nodes if name_of(node) == "Scan" and len(node.output) == 2}
    # The probabilities of a classifier are its second output.
    return makers | {name: node for node in nodes if name_of(node) in classifiers for name in node.output[1:]}


def _with_last_endings(nodes: list[NodeProto], constants: dict[str, Array]) -> list[NodeProto]:
    """The nodes, with ends in other words where no layer comes behind them."""
    makers, on_the_way = _makers(nodes, CLASSIFIER), before_layers(nodes, constants)
    found: list[NodeProto] = []
    for node in nodes:
        made = None if on_the_way.intersection(node.output) else last_ending(node, makers, constants)
        found += made or [node]
    return found


def _binary(node: NodeProto, makers: dict[str, NodeProto], constants: dict[str, Array]) -> NodeProto | None:
    if name_of(node) != "Concat" or len(node.input) != 2:
        return None
    no, yes = (makers.get(name) for name in node.input)
    if no is None or yes is None or (name_of(no), name_of(yes)) != ("Sub", "Sigmoid") or no.input[1] != yes.output[0]:
        return None
    one = constants.get(no.input[0])
    if one is None or one.size != 1 or one.ndim > 2 or one.item() != 1:
        return None
    made = helper.make_node("Concat", yes.input[:1], node.output, name=node.name or node.output[0], no_and_yes=1)
    made.attribute.extend(node.attribute)
    return made


PROBABILITIES = ("Sigmoid", "Softmax", CLASSIFIER, TREES)
"""Operators whose results the client computes at the end of a model."""


def _neutral(node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]) -> NodeProto | None:
    """An Identity for a node that changes no probabilities, so that the client may compute these."""
    neutral = {"Mul": 1, "Div": 1, "Add": 0, "Sub": 0}.get(name_of(node))
    if neutral is None or len(node.input) != 2:
        return None
    last = 1 if node.op_type in ("Div", "Sub") else 0
    for value, constant in (tuple(node.input), tuple(reversed(node.input)))[: 2 - last]:
        array, maker = constants.get(constant), makers.get(value)
        while maker is not None and maker.op_type == "Identity":
            maker = makers.get(maker.input[0])
        if maker is None or name_of(maker) not in PROBABILITIES:
            continue
        if array is not None and array.size == 1 and array.ndim <= 1 and array == neutral:
            return helper.make_node("Identity", [value], node.output, name=node.name)
    return None


def _stacked(node: NodeProto, makers: dict[str, NodeProto], constants: dict[str, Array]) -> list[NodeProto] | None:
    """A sum or mean over values that are stacked along a new first axis, as the sum of these values, or its mean: the
    batch stands behind such an axis. `torch.stack(values).mean(0)` is so.
    """
    joined = makers.get(node.input[0]) if name_of(node) in ("ReduceMean", "ReduceSum") else None
    if joined is None or name_of(joined) != "Concat" or numbers_of(joined, "axis", constants) != [0]:
        return None
    if numbers_of(node, "axes", constants) != [0] or numbers_of(node, "keepdims", constants) != [0]:
        return None
    parts = [makers.get(name) for name in joined.input]
    values = [part.input[0] for part in parts if part is not None and name_of(part) == "Unsqueeze"]
    if len(values) < len(parts) or any(
        numbers_of(part, "axes", constants) != [0] for part in parts if part is not None
    ):
        return None
    name = node.name or node.output[0]
    total, share = (free_name(f"{node.output[0]}/{part}", makers, constants) for part in ("total", "share"))
    if name_of(node) == "ReduceSum":
        return [helper.make_node("Sum", values, node.output, name=name)]
    constants[share] = np.asarray(1 / len(values), np.float32)
    return [
        helper.make_node("Sum", values, [total], name=name),
        helper.make_node("Mul", [total, share], node.output, name=name),
    ]


def _scaled_power(
    node: NodeProto, makers: dict[str, NodeProto], constants: dict[str, Array], readers: Mapping[str, int]
) -> list[NodeProto] | None:
    """An even power, or a magnitude, of values that is divided by a positive constant each, or multiplied: that of
    values which the constant's root has scaled, so that their ranges are alike. Distances of naive Bayes are so.

    It is left where nothing before it takes the factor up, which would be a layer of its own.
    """
    kind, inputs = name_of(node), list(node.input)
    if kind == "Mul" and inputs[0] in constants:
        inputs.reverse()
    power = makers.get(inputs[0]) if kind in ("Div", "Mul") else None
    given = constants.get(inputs[1]) if power is not None else None
    exponent = 0 if power is None else _even_exponent(power, constants)
    if power is None or given is None or exponent == 0 or given.dtype.kind != "f" or given.size < 2:
        return None
    if readers[power.output[0]] > 1 or not _takes_up(makers.get(power.input[0]), given, constants):
        return None
    sign = -1 if kind == "Div" else 1
    with np.errstate(all="ignore"):
        factor = given.astype(np.float64) ** (sign / exponent)
        factor = factor.astype(np.float32)
    if not (np.isfinite(factor).all() and (factor > 0).all()):
        return None
    role, scaled, number = (free_name(f"{node.output[0]}/{part}", makers, constants) for part in ROLES)
    constants[role], title = factor, node.name or node.output[0]
    before = helper.make_node("Mul", [power.input[0], role], [scaled], name=f"{title}/scaled")
    if exponent == 1:
        return [before, helper.make_node("Abs", [scaled], node.output, name=title)]
    constants[number] = np.asarray(exponent, np.float32)
    return [before, helper.make_node("Pow", [scaled, number], node.output, name=title)]


def _takes_up(before: NodeProto | None, factor: Array, constants: Mapping[str, Array]) -> bool:
    """Whether a node that makes a value takes a factor of it into its constants, which have a place for each number."""
    kind = "" if before is None else name_of(before)
    if before is None or kind not in ("Add", "Div", "Gemm", "MatMul", "Mul", "Sub"):
        return False
    own = next((constants[name] for name in reversed(before.input) if name in constants), None)
    if own is None:
        return False
    if kind in ("Gemm", "MatMul"):
        outputs = constants[before.input[1]].shape if before.input[1] in constants else ()
        return len(outputs) == 2 and factor.size == factor.shape[-1] and factor.size in outputs
    try:
        return np.broadcast_shapes(own.shape, factor.shape) == own.shape
    except ValueError:
        return False


def _even_exponent(node: NodeProto, constants: Mapping[str, Array]) -> int:
    """The even whole exponent of a power of a value, 1 of a magnitude, and 0 of all else."""
    if name_of(node) == "Abs":
        return 1
    if name_of(node) == "Mul":
        return 2 if node.input[0] == node.input[1] else 0
    exponent = constants.get(node.input[1]) if name_of(node) == "Pow" else None
    if exponent is None or exponent.size != 1 or exponent.item() not in EVEN:
        return 0
    return int(exponent.item())


def _columns(node: NodeProto, makers: dict[str, NodeProto], constants: dict[str, Array]) -> NodeProto | None:
    """Columns that scikit-learn's exporter chooses of a value, as a Gather."""
    if name_of(node) != "ai.onnx.ml.ArrayFeatureExtractor" or node.input[0] in constants:
        return None
    chosen = constants.get(node.input[1])
    if chosen is None or chosen.dtype.kind not in "iu":
        return None
    name = free_name(f"{node.output[0]}/columns", makers, constants)
    constants[name] = chosen.reshape(-1)
    return helper.make_node("Gather", [node.input[0], name], node.output, name=node.name or node.output[0], axis=-1)


def _distances(node: NodeProto, makers: dict[str, NodeProto], constants: dict[str, Array]) -> NodeProto | None:
    """Distances of features to stored rows, which scikit-learn's exporter writes as a Scan over the features' rows, and
    a Transpose."""
    scan = makers.get(node.input[0]) if name_of(node) == "Transpose" else None
    if scan is None or name_of(scan) != "Scan" or len(scan.input) != 2 or scan.input[1] not in constants:
        return None
    given = {each.name: helper.get_attribute_value(each) for each in (*scan.attribute, *node.attribute)}
    body = given.get("body")
    if list(given.get("perm", [])) != [1, 0] or given.get("num_scan_inputs") != 1 or node.input[0] != scan.output[1]:
        return None
    directions = [*given.get("scan_input_directions", []), *given.get("scan_output_directions", [])]
    if body is None or len(body.output) != 2 or any(directions) or not _are_distances(body, constants):
        return None
    inputs, title = list(scan.input), node.name or node.output[0]
    return helper.make_node("CDist", inputs, node.output, name=title, domain="com.microsoft", metric="sqeuclidean")


def _are_distances(body: GraphProto, constants: dict[str, Array]) -> bool:
    """Whether a Scan keeps its state, and gives the squared distance of its rows to one more."""
    makers = {node.output[0]: node for node in body.node}
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in body.initializer}

    def before(name: str) -> str:
        while name in makers and makers[name].op_type == "Identity":
            name = makers[name].input[0]
        return name

    sums = makers.get(before(body.output[1].name))
    if sums is None or sums.op_type != "ReduceSumSquare" or numbers_of(sums, "keepdims", {}) != [0]:
        return False
    difference = makers.get(before(sums.input[0]))
    over = numbers_of(sums, "axes", {**constants, **stored})
    ends = {entry.name for entry in body.input}
    is_kept = before(body.output[0].name) == body.input[0].name
    is_difference = difference is not None and difference.op_type == "Sub"
    if difference is None or not is_difference or not is_kept:
        return False
    return over == [1] and {*map(before, difference.input)} == ends


def _place_of_largest(node: NodeProto, makers: dict[str, NodeProto], constants: dict[str, Array]) -> NodeProto | None:
    """An ArgMax that is compared with each place's number, or whose OneHot is made, as a Hardmax; its attribute `last`
    says that the axis must be the last."""
    kind = name_of(node)
    if kind not in ("Equal", "OneHot"):
        return None
    found = [_before_casts(name, makers) for name in node.input]
    raised = next((each for each in found if each is not None and name_of(each) == "Unsqueeze"), None)
    is_raised = kind == "Equal" and raised is not None and numbers_of(raised, "axes", constants) == [-1]
    if is_raised and raised is not None:
        found = [_before_casts(raised.input[0], makers)]
    largest = next((each for each in found if each is not None and name_of(each) == "ArgMax"), None)
    if largest is None:
        return None
    given = {each.name: helper.get_attribute_value(each) for each in largest.attribute}
    axis, keeps = given.get("axis", 0), given.get("keepdims", 1)
    if given.get("select_last_index", 0):
        return None
    if kind == "Equal":
        places = next((constants[name] for name in node.input if name in constants), np.zeros(0))
        last = int(places.shape[-1:] == (places.size,))
        along = not is_raised and places.ndim > axis >= 0 and places.shape[axis] == places.size
        if (
            bool(keeps) == is_raised
            or not (last or along)
            or not np.array_equal(places.ravel(), np.arange(places.size))
        ):
            return None
        last = 0 if along else last
    else:
        values = constants.get(node.input[2], np.zeros(0))
        own = next((each.i for each in node.attribute if each.name == "axis"), -1)
        if found[0] is not largest or list(values.ravel()) != [0, 1] or keeps or own != -1:
            return None
        last = 1
    title = node.name or node.output[0]
    return helper.make_node("Hardmax", largest.input[:1], node.output, name=title, axis=axis, last=last)


def _before_casts(name: str, makers: dict[str, NodeProto]) -> NodeProto | None:
    """The node that makes a value, Casts left out."""
    node = makers.get(name)
    while node is not None and name_of(node) in ("Cast", "Identity"):
        node = makers.get(node.input[0])
    return node


def _gathered(node: NodeProto, makers: dict[str, NodeProto]) -> NodeProto | None:
    """A GatherND between two transpositions, as PyTorch's exporter writes `x[:, :, rows, columns]`, as one that has
    their permutations: between them the batch is not first.
    """
    gather = makers.get(node.input[0]) if name_of(node) == "Transpose" else None
    before = makers.get(gather.input[0]) if gather is not None and name_of(gather) == "GatherND" else None
    if gather is None or before is None or name_of(before) != "Transpose":
        return None
    orders = {
        role: attribute.ints
        for role, transpose in (("before", before), ("after", node))
        for attribute in transpose.attribute
        if attribute.name == "perm"
    }
    if len(orders) < 2:
        return None
    result = helper.make_node("GatherND", [before.input[0], gather.input[1]], node.output, name=gather.name, **orders)
    result.attribute.extend(gather.attribute)
    return result


def _normalised(node: NodeProto, makers: dict[str, NodeProto], constants: dict[str, Array]) -> NodeProto | None:
    """A BatchNormalization behind a ConvTranspose as one ConvTranspose, whose weights join `constants`.

    Other layers take a BatchNormalization up later: behind this one stands the interleaving of its phases.
    """
    before = makers.get(node.input[0]) if name_of(node) == "BatchNormalization" else None
    numbers = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if before is None or name_of(before) != "ConvTranspose" or len(node.output) > 1 or numbers.get("training_mode"):
        return None
    names = [*before.input[1:], *node.input[1:]]
    epsilon = numbers.get("epsilon", 1e-5)
    if not numbers.get("spatial", 1) or not isinstance(epsilon, float) or not (names[0] and all(node.input[1:])):
        return None
    if not all(name in constants and constants[name].dtype.kind == "f" for name in names if name):
        return None
    weight, scale, add, mean, variance = (constants[name].astype(np.float64) for name in (names[0], *node.input[1:]))
    bias = constants[names[1]] if len(before.input) > 2 and names[1] else np.zeros_like(mean)
    groups = next((a.i for a in before.attribute if a.name == "group"), 1)
    channels = weight.shape[1] * groups if weight.ndim > 1 else 0
    if (
        groups < 1
        or weight.size == 0
        or len(weight) % groups
        or any(a.shape != (channels,) for a in (scale, add, mean, variance, bias))
    ):
        return None
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + epsilon)
    shape = (groups, -1, weight.shape[1], math.prod(weight.shape[2:]))
    scaled = weight.reshape(shape) * factor.reshape(groups, 1, -1, 1)
    made = [free_name(f"{node.output[0]}.{role}", makers, constants) for role in ("weight", "bias")]
    constants[made[0]] = scaled.reshape(weight.shape).astype(np.float32)
    constants[made[1]] = ((bias - mean) * factor + add).astype(np.float32)
    result = helper.make_node("ConvTranspose", [before.input[0], *made], node.output, name=before.name or node.name)
    result.attribute.extend(before.attribute)
    return result
