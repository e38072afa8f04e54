"""The ONNX operators that can be imported, a module for each family.

A new operator is one function in its family's module, with `@operator("Name")` above it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import numpy as np
from onnx import NodeProto, TensorProto

from pronghorn.onnx.advice import COMPARISONS, CUT, DOMAIN_HINTS, LOOK_UP, PREPARE, PREPARES, REPAIR, UNSUPPORTED
from pronghorn.onnx.cutting import CLASSES, LAYERS
from pronghorn.onnx.folding import fold, has_graphs, is_constant
from pronghorn.onnx.lowering import Array, Lowering, Value
from pronghorn.onnx.masks import MOVING
from pronghorn.onnx.operators import (  # noqa: F401  # They register their operators.
    arithmetic,
    comparisons,
    convolution,
    elementwise,
    exponentials,
    finish,
    functions,
    hardmax,
    matrices,
    normalisations,
    pooling,
    quantised,
    recurrent,
    resizing,
    scattering,
    selections,
    shapes,
    support_vectors,
    tables,
    transposed,
    trees,
)
from pronghorn.onnx.registry import COUNTED_TYPES, FLOAT_TYPES, NEVER, OF_SHAPES, OF_TRUTHS, OPERATORS, name_of
from pronghorn.onnx.site import Site, name_of_node

PRODUCTS = ("Mul", "MatMul", "Div")
"""Operators that multiply or divide."""


def lower(lowering: Lowering, node: NodeProto, readers: Mapping[str, str]) -> None:
    """Lowers one node.

    Args:
        lowering: the graph so far, with the values of all nodes before it.
        node: the ONNX node.
        readers: names that are read, and an operator that reads each; empty for the model's output.

    Raises:
        UnsupportedModelError: the node cannot be imported; the error names it.
    """
    site = Site(node, lowering.opset, [lowering.shape_of(name) for name in node.input])
    _check(lowering, site)
    if is_constant(lowering.constants, node):
        fold(lowering, site)
        return
    if (same := _known_anyway(lowering, node)) is not None:
        lowering.constants[node.output[0]] = same
        return
    if site.operator in COMPARISONS and not site.integer("of_counts", 0) and _looks_up(lowering):
        site.fail(*LOOK_UP)
    _refuse_overflow(lowering, site)
    operator = OPERATORS.get(site.operator)
    if operator is None:
        others = "replace it by operators that docs/operators.md lists"
        usual = "this operator is not supported", DOMAIN_HINTS.get(node.domain, others)
        reason, advice = UNSUPPORTED.get(site.operator, usual)
        site.fail(reason if reason == usual[0] else f"this operator is not supported: {reason}", f"{advice}, {CUT}")
    made = operator.lower(lowering, site)
    values = [made] if isinstance(made, Value) else made
    if operator.pointwise:
        values = [lowering.lowered(site, value) for value in values if value is not None]
    found = {name: value for name, value in zip(node.output, values, strict=False) if name and value is not None}
    extra = [name for name in node.output if name and name in readers and name not in found]
    if extra:
        problem = f"its output {extra[0]!r} is not supported"
        if reader := readers[extra[0]]:
            # What else it gives is no result of the model.
            site.fail(
                f"{problem}, and {reader} reads it", "train one model that gives numbers, without votes of several"
            )
        site.fail(problem, f"take {', '.join(found)} as output (--output NAME, output=NAME)")
    if _are_truths(lowering, node):
        lowering.truths.update(value.index for value in found.values())
    if site.operator in MOVING and node.input[0] in lowering.masks:
        mask, before = lowering.masks[node.input[0]], lowering.values[node.input[0]]
        lowering.masks.update((name, mask.moved(lowering.nodes, before, value)) for name, value in found.items())
    lowering.values.update((name, value) for name, value in found.items() if name not in lowering.constants)


def _are_truths(lowering: Lowering, node: NodeProto) -> bool:
    """Whether a node's results are 1 and 0: those of comparisons and what comes of them, as they are moved."""
    if node.op_type in (*OF_TRUTHS, "Hardmax") or node.output[0] in lowering.given_truths:
        return True
    told = [lowering.values[name].index in lowering.truths for name in node.input if name in lowering.values]
    if node.op_type == "Sub" and len(told) == 1:
        # What is taken from 1.
        first = lowering.constants.get(node.input[0])
        return told[0] and first is not None and bool((first == 1).all())
    return (node.op_type in MOVING and told == [True]) or (node.op_type == "Mul" and told == [True, True])


def _looks_up(lowering: Lowering) -> bool:
    """Whether rows of a table are looked up, before which Keras compares indices with zero."""
    gathers = (node for node in lowering.network if node.op_type == "Gather")
    return any(node.input[0] in lowering.constants and node.input[1] not in lowering.constants for node in gathers)


def _refuse_overflow(lowering: Lowering, site: Site) -> None:
    """Refuses to compute with truths in types that few numbers fit."""
    node = site.node
    narrow = [name for name in node.input if name in lowering.narrow]
    if not narrow:
        return
    if node.op_type in MOVING or node.op_type == "Concat":
        to = site.integer("to", 0) if node.op_type == "Cast" else 0
        if to not in (TensorProto.BOOL, *FLOAT_TYPES, *COUNTED_TYPES):
            lowering.narrow.update(node.output)
    elif node.op_type not in (*OF_TRUTHS, "Where"):
        site.fail("it computes with whole numbers of a type that they may overflow", "cast them to int64 before (Cast)")


def _known_anyway(lowering: Lowering, node: NodeProto) -> Array | None:
    """A node's result, where it does not depend on the computed values that it reads; None where it does."""
    if node.op_type not in (*NEVER, "And", "Gather", "GatherElements", "Or"):
        return None
    computed = [lowering.values[name] for name in node.input if name in lowering.values]
    known = [lowering.constants[name] for name in node.input if name in lowering.constants]
    readers = {each.op_type for each in lowering.network if node.output[0] in each.input}
    if not readers <= {"And", "Not", "Or", "Where"}:
        # A sum over images would have another number of terms.
        return _looked_up_anywhere(lowering, node) if readers <= {*MOVING, "Add", "Where"} else None
    if node.op_type in NEVER and computed and not _may_be_none(lowering, node.input[0]):
        return np.zeros(computed[0].shape, bool)
    decides = {"And": False, "Or": True}.get(node.op_type)
    if decides is not None and computed and known and known[0].dtype == np.bool_ and (known[0] == decides).all():
        try:
            return np.full(np.broadcast_shapes(known[0].shape, computed[0].shape), decides)
        except ValueError:
            return None
    return _looked_up_anywhere(lowering, node)


def _may_be_none(lowering: Lowering, name: str) -> bool:
    """Whether a value follows from a Softmax, whose shares are no numbers where a mask leaves no place."""
    makers = {output: node for node in lowering.network for output in node.output}
    node = makers.get(name)
    while node is not None and node.op_type in MOVING:
        node = makers.get(node.input[0])
    return node is not None and node.op_type in ("LogSoftmax", "Softmax")


def _looked_up_anywhere(lowering: Lowering, node: NodeProto) -> Array | None:
    """What a look-up of single numbers finds, where all are the same, of whatever index."""
    kind = node.op_type if len(node.input) > 1 else ""
    table = lowering.constants.get(node.input[0]) if kind in ("Gather", "GatherElements") else None
    if table is None or table.size == 0 or node.input[1] not in lowering.values:
        return None
    is_alone = (kind == "GatherElements" or table.ndim == 1) and (table == table.flat[0]).all()
    return np.full(lowering.values[node.input[1]].shape, table.flat[0], table.dtype) if is_alone else None


def unsupported(nodes: Iterable[NodeProto], constants: Iterable[str]) -> dict[str, list[str]]:
    """The nodes whose operators cannot be imported: their names, by operator."""
    nodes, known, found = list(nodes), set(constants), dict[str, list[str]]()
    # What the client would go on with.
    ended = inside(nodes)
    for node in nodes:
        if (is_constant(known, node) and not has_graphs(node)) or name_of(node) in (*OF_SHAPES, *NEVER):
            known.update(node.output)
        elif name_of(node) not in OPERATORS or _is_left(node, ended):
            found.setdefault(name_of(node), []).append(name_of_node(node))
    return found


def _is_left(node: NodeProto, ended: Container[str]) -> bool:
    """Whether a node's result is the client's, and others go on with it."""
    return node.op_type in CLASSES and any(name in ended for name in node.output)


def inside(nodes: Iterable[NodeProto]) -> set[str]:
    """The values that operators read which may not follow one of the client's, some of them behind others that may: no
    client computes them."""
    found: set[str] = set()
    for node in reversed(list(nodes)):
        if not _is_on_result(node) or found.intersection(node.output):
            found.update(node.input)
    return found


def before_layers(nodes: Iterable[NodeProto], constants: Container[str]) -> set[str]:
    """The values behind which a network goes on with layers or with products of computed values."""
    found: set[str] = set()
    for node in reversed(list(nodes)):
        computed = [name for name in node.input if name and name not in constants]
        goes_on = name_of(node) in LAYERS or (node.op_type in PRODUCTS and len(computed) > 1)
        if goes_on or found.intersection(node.output):
            found.update(computed)
    return found


def _is_on_result(node: NodeProto) -> bool:
    return name_of(node) in OPERATORS and OPERATORS[name_of(node)].on_result


def advice_beside(operator: str | None, others: Iterable[str]) -> str | None:
    """What to do about unsupported operators that prepare features, where an error is about another one."""
    prepares = [name for name in others if name in PREPARES]
    return f"{', '.join(prepares)}: {PREPARE}" if prepares and operator not in PREPARES else None


def _check(lowering: Lowering, site: Site) -> None:
    """Refuses inputs that nobody makes."""
    for name in site.node.input:
        if name and name not in lowering.values and name not in lowering.constants:
            site.fail(f"its input {name!r} is made by no node before it", REPAIR)
