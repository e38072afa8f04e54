"""The nodes that exporters write for ends of models which the client computes.

These are `x - logsumexp(x)` and logarithms of a Softmax that is kept from zero for LogSoftmax, `c * exp(x)` and
`c ** x` for Exp, `exp(x) - 1` for `expm1`, and the probabilities of scikit-learn's classifiers of one class against
the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, helper

from pronghorn.onnx.lowering import Array
from pronghorn.onnx.registry import name_of

ML = "ai.onnx.ml"

CLASSIFIER = f"{ML}.LinearClassifier"


def ending(node: NodeProto, makers: Mapping[str, NodeProto], constants: dict[str, Array]) -> list[NodeProto] | None:
    """The nodes that make what `node` and those before it make; None where they are no such end.

    Args:
        node: the last node of the pattern.
        makers: the node that makes each value.
        constants: the model's weights, which constants of the new nodes join.
    """
    match name_of(node):
        case "Sub":
            return _log_softmax(node, makers, constants) or _less_one(node, makers, constants)
        case "Add":
            return _less_one(node, makers, constants)
        case "Mul" | "Div" | "Pow":
            return _exponential(node, node, makers, constants) or _shares(node, makers, constants)
        case "Concat":
            return _against_the_rest(node, makers, constants)
        case _:
            return None


def last_ending(
    node: NodeProto, makers: Mapping[str, NodeProto], constants: dict[str, Array]
) -> list[NodeProto] | None:
    """As `ending`, of values behind which no layer comes."""
    match name_of(node):
        case "Log":
            return _log_of_shares(node, makers, constants)
        case "Div" | "Reciprocal":
            return _falling(node, makers, constants)
        case _:
            return None


def _log_softmax(
    node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]
) -> list[NodeProto] | None:
    """`x - logsumexp(x)`, whose sum keeps its axis, or is made a column again, as naive Bayes of scikit-learn is."""
    value, total = node.input
    column = maker_of(makers, total, "Reshape")
    if column is not None and not _is(constants, column.input[1], -1, 1):
        return None
    summed = maker_of(makers, total if column is None else column.input[0], "ReduceLogSumExp")
    if summed is None or summed.input[0] != value:
        return None
    given = {each.name: helper.get_attribute_value(each) for each in summed.attribute}
    axes = constants.get(summed.input[1]) if len(summed.input) > 1 else np.array(given.get("axes", []))
    if axes is None or axes.size != 1 or (column is None and not given.get("keepdims", 1)):
        return None
    axis = int(axes.reshape(()))
    if column is not None and axis not in (1, -1):
        return None
    of_rows = {} if column is None else {"rank": 2}
    of_axis: dict[str, Any] = {"axis": axis, "one_axis": 1, **of_rows}
    return [helper.make_node("LogSoftmax", [value], node.output, name=node.name or node.output[0], **of_axis)]


def _log_of_shares(
    node: NodeProto, makers: Mapping[str, NodeProto], constants: dict[str, Array]
) -> list[NodeProto] | None:
    """`log(softmax(x) + c)` and `log(clip(softmax(x), c, d))` by LogSoftmax: shares near zero have no fixed point."""
    kept = makers.get(node.input[0])
    if kept is None or name_of(kept) not in ("Add", "Clip"):
        return None
    value, *given = sorted(kept.input, key=constants.__contains__) if name_of(kept) == "Add" else kept.input
    shares, bounds = maker_of(makers, value, "Softmax"), [_bound(name, constants) for name in given]
    if shares is None or not any(given[:1]) or any(bound is None for bound in bounds):
        return None
    name, prefix = node.name or node.output[0], node.output[0]
    logs = helper.make_node("LogSoftmax", shares.input, [f"{prefix}/shares"], name=name)
    logs.attribute.extend(shares.attribute)
    names = [f"{prefix}/bound{at}" for at in range(len(bounds))]
    constants.update((each, bound) for each, bound in zip(names, bounds, strict=True) if bound is not None)
    if name_of(kept) == "Clip":
        return [logs, helper.make_node("Clip", [f"{prefix}/shares", *names], node.output, name=name)]
    # With `s = log(softmax(x))` it is `softplus(s - log(c)) + log(c)`.
    return [
        logs,
        helper.make_node("Sub", [f"{prefix}/shares", names[0]], [f"{prefix}/above"], name=name),
        helper.make_node("Softplus", [f"{prefix}/above"], [f"{prefix}/bent"], name=name),
        helper.make_node("Add", [f"{prefix}/bent", names[0]], node.output, name=name),
    ]


def _falling(
    node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]
) -> list[NodeProto] | None:
    """`1 / (1 + exp(x))`, a Sigmoid of `-x`: scikit-learn calibrates probabilities so."""
    *above, below = node.input
    total = maker_of(makers, below, "Add")
    if total is None or not all(_is(constants, name, 1) for name in above):
        return None
    one, power = sorted(total.input, key=constants.__contains__, reverse=True)
    exponential = maker_of(makers, power, "Exp")
    if exponential is None or not _is(constants, one, 1):
        return None
    name, negated = node.name or node.output[0], f"{node.output[0]}/negated"
    negative = helper.make_node("Neg", exponential.input, [negated], name=name)
    return [negative, helper.make_node("Sigmoid", [negated], node.output, name=name)]


def _bound(name: str, constants: Mapping[str, Array]) -> Array | None:
    """The logarithm of a bound of shares: one positive number; of an absent one that of 1, the most that a share is."""
    logarithm = _logarithm(constants.get(name)) if name else np.zeros(1, np.float32)
    return None if logarithm is None or logarithm.size != 1 else logarithm.reshape(())


def _less_one(node: NodeProto, makers: Mapping[str, NodeProto], constants: dict[str, Array]) -> list[NodeProto] | None:
    """`exp(x) - 1`, also as `exp(x) + -1`: regressions of `log(1 + y)` end so."""
    is_sum = name_of(node) == "Add"
    for power, one in [tuple(node.input), *([tuple(reversed(node.input))] if is_sum else [])]:
        if _is(constants, one, -1 if is_sum else 1):
            return _exponential(node, makers.get(power), makers, constants, minus_one=1)
    return None


def _exponential(
    node: NodeProto,
    power: NodeProto | None,
    makers: Mapping[str, NodeProto],
    constants: dict[str, Array],
    **attributes: Any,
) -> list[NodeProto] | None:
    """The result of `node` as an Exp with these attributes, where `power` is `exp(x)`, `c * exp(x)` or `c ** x`."""
    name = node.name or node.output[0]
    found = _exponent(power, makers, constants, node.output[0])
    if found is None:
        return None
    before, exponent = found
    for each in before:
        each.name = name
    return [*before, helper.make_node("Exp", [exponent], node.output, name=name, **attributes)]


def _exponent(
    node: NodeProto | None, makers: Mapping[str, NodeProto], constants: dict[str, Array], prefix: str
) -> tuple[list[NodeProto], str] | None:
    """The name of `z` where a node makes `exp(z)`, and the nodes that make it; None where it is no exponential.

    Of `c * exp(x)` it is `x + log(c)`, and of `c ** x` it is `x * log(c)`.
    """
    kind = "" if node is None else name_of(node)
    if node is None or kind not in ("Exp", "Pow", "Mul", "Div"):
        return None
    if kind == "Exp":
        return [], node.input[0]
    if kind == "Pow":
        return _moved("Mul", node.input[1], _logarithm(constants.get(node.input[0])), constants, f"{prefix}/power")
    sign = -1 if kind == "Div" else 1
    for value, factor in [tuple(node.input), *([tuple(reversed(node.input))] if kind == "Mul" else [])]:
        power, logarithm = makers.get(value), _logarithm(constants.get(factor))
        if power is None or logarithm is None or name_of(power) not in ("Exp", "Pow"):
            continue
        if (found := _exponent(power, makers, constants, prefix)) is not None:
            before, exponent = found
            after = _moved("Add", exponent, sign * logarithm, constants, f"{prefix}/factor")
            return None if after is None else ([*before, *after[0]], after[1])
    return None


def _moved(
    kind: str, value: str, constant: Array | None, constants: dict[str, Array], name: str
) -> tuple[list[NodeProto], str] | None:
    """A node that adds a constant to a value or multiplies them, and the name of its result."""
    if constant is None or value in constants:
        return None
    constants[f"{name}/log"] = constant
    return [helper.make_node(kind, [value, f"{name}/log"], [name])], name


def _logarithm(constant: Array | None) -> Array | None:
    """Logarithms of positive floats; None of all else: a power of an integer is an integer, and is rounded."""
    if constant is None or constant.dtype.kind != "f" or not (constant > 0).all():
        return None
    logarithm = np.log(constant.astype(np.float64))
    return logarithm.astype(np.float32) if np.isfinite(logarithm).all() else None


def _boosted(
    node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]
) -> list[NodeProto] | None:
    """`exp(x) / (sum + (int(sum) == 0))`, as AdaBoostClassifier of scikit-learn ends: its sum is at least the number of
    classes, whose scores add up to 0. It is a Softmax."""
    power, total = maker_of(makers, node.input[0], "Exp"), maker_of(makers, node.input[1], "Add")
    if power is None or total is None:
        return None
    for summed, zero in (total.input, tuple(reversed(total.input))):
        column = makers.get(summed)
        sums = maker_of(makers, column.input[0], "ReduceSum") if column is not None and column.input else None
        cast, whole = maker_of(makers, zero, "Cast"), None
        equal = maker_of(makers, cast.input[0], "Equal") if cast is not None else None
        if equal is not None and _is(constants, equal.input[1], 0):
            whole = maker_of(makers, equal.input[0], "Cast")
        if sums is None or whole is None or whole.input[0] != summed or sums.input[0] != power.output[0]:
            continue
        if len(sums.input) > 1 and _is(constants, sums.input[1], 1):
            return [helper.make_node("Softmax", power.input, node.output, name=node.name or node.output[0], axis=1)]
    return None


def _shares(node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]) -> list[NodeProto] | None:
    """`(p + z) / (sum(p) + n * z)`, where `z` is 1 if the sum is 0, as SGDClassifier of scikit-learn divides."""
    if name_of(node) != "Div":
        return None
    if (boosted := _boosted(node, makers, constants)) is not None:
        return boosted
    above, below = (maker_of(makers, name, "Add") for name in node.input)
    if above is None or below is None:
        return None
    for value, is_zero in (above.input, reversed(above.input)):
        for total, correction in (below.input, reversed(below.input)):
            summed, product = maker_of(makers, total, "ReduceSum"), maker_of(makers, correction, "Mul")
            if summed is None or product is None or summed.input[0] != value or is_zero not in product.input:
                continue
            if _is_not(makers, is_zero, total) and len(summed.input) > 1 and _is(constants, summed.input[1], 1):
                name = node.name or node.output[0]
                # Of zeros it makes equal shares.
                shares: dict[str, Any] = {"norm": "L1", "equal": 1}
                return [helper.make_node("Normalizer", [value], node.output, name=name, domain=ML, **shares)]
    return None


def _is_not(makers: Mapping[str, NodeProto], name: str, total: str) -> bool:
    """Whether a value is `float(not bool(total))`."""
    for kind in ("Cast", "Not", "Cast"):
        maker = maker_of(makers, name, kind)
        if maker is None:
            return False
        name = maker.input[0]
    return name == total


def _against_the_rest(
    node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]
) -> list[NodeProto] | None:
    """The second columns of several binary classifiers in a row, as OneVsRestClassifier of scikit-learn has them: one
    Sigmoid of their scores in a row."""
    found = [_yes(name, makers, constants) for name in node.input]
    scores = [each for each in found if each is not None]
    if len(scores) < max(len(found), 2):
        return None
    row = f"{node.output[0]}/scores"
    joined = helper.make_node("Concat", [score.output[0] for score in scores], [row], name=row)
    joined.attribute.extend(node.attribute)
    return [*scores, joined, helper.make_node("Sigmoid", [row], node.output, name=node.name or node.output[0])]


def _yes(name: str, makers: Mapping[str, NodeProto], constants: Mapping[str, Array]) -> NodeProto | None:
    """The score of the second class of a logistic classifier of two, whose probability is cut out."""
    column = maker_of(makers, name, "Slice")
    if column is None or len(column.input) < 4 or not all(_is(constants, column.input[i], 1) for i in (1, 3)):
        return None
    end = constants.get(column.input[2])
    maker = makers.get(column.input[0])
    if end is None or end.size != 1 or int(end.reshape(())) < 2 or maker is None:
        return None
    if name_of(maker) != CLASSIFIER or len(column.input) > 4:
        return None
    given = {each.name: helper.get_attribute_value(each) for each in maker.attribute}
    classes = max(len(given.get(names, [])) for names in ("classlabels_ints", "classlabels_strings"))
    coefficients, intercepts = given.get("coefficients", []), given.get("intercepts", [])
    if given.get("post_transform") != b"LOGISTIC" or classes != 2 or len(intercepts) not in (1, 2):
        return None
    features = len(coefficients) // len(intercepts)
    return helper.make_node(
        "LinearRegressor",
        maker.input[:1],
        [f"{name}/score"],
        name=column.name or name,
        domain=ML,
        coefficients=coefficients[-features:],
        intercepts=intercepts[-1:],
    )


def score_classes(graph: GraphProto, output: str) -> None:
    """Changes the signs of both scores of a classifier by support vectors, where they are the result. onnxruntime gives
    those of the decision for the second class, and for the first: the larger one is that of the other class."""
    makers = {name: node for node in graph.node for name in node.output}
    scores = output
    while (node := maker_of(makers, scores, "Cast", "Identity")) is not None:
        scores = node.input[0]
    maker = maker_of(makers, scores, f"{ML}.SVMClassifier")
    if maker is None or len(maker.output) < 2 or scores != maker.output[1]:
        return
    given = {each.name: helper.get_attribute_value(each) for each in maker.attribute}
    if given.get("prob_a") or len(given.get("rho", [])) != 1:
        return
    if any(scores in node.input and node.op_type not in ("Cast", "Identity") for node in graph.node):
        return
    columns = f"{scores}/columns"
    negated = helper.make_node("Neg", [columns], [scores], name=f"{scores}/signs")
    maker.output[1] = columns
    graph.node.insert(list(graph.node).index(maker) + 1, negated)


RESTORING = ("Expand", "Reshape", "Unsqueeze")
"""Operators that give a reduction's results the dimensions of what they are of."""


def without_dimensions(makers: Mapping[str, NodeProto], name: str) -> str:
    """The value before operators that restore dimensions."""
    while (node := maker_of(makers, name, *RESTORING)) is not None:
        name = node.input[0]
    return name


def maker_of(makers: Mapping[str, NodeProto], name: str, *kinds: str) -> NodeProto | None:
    """The node that makes a value, if it is of one of these kinds."""
    node = makers.get(name)
    return node if node is not None and name_of(node) in kinds else None


def numbers_of(node: NodeProto, name: str, constants: Mapping[str, Array]) -> list[int] | None:
    """Whole numbers that are an attribute, or axes that are the second input; None where there are none."""
    found = next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), None)
    if found is None and name == "axes" and len(node.input) > 1:
        found = constants.get(node.input[1])
    return None if found is None else [int(number) for number in np.ravel(found)]


def _is(constants: Mapping[str, Array], name: str, *numbers: int) -> bool:
    """Whether a constant holds these numbers in a row."""
    constant = constants.get(name)
    return constant is not None and constant.ravel().tolist() == list(numbers)
