"""Groups of ONNX nodes that another node says at once."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import NodeProto, helper

from pronghorn.onnx.lowering import Array
from pronghorn.onnx.recognition import constants_of, recognised
from pronghorn.onnx.registry import name_of


def rewrite(nodes: Iterable[NodeProto], constants: dict[str, Array]) -> list[NodeProto]:
    """The nodes with `Concat(1 - Sigmoid(z), Sigmoid(z))`, a binary classifier's probabilities, as one
    `LinearClassifier`, and with smooth functions of several nodes as one node each.

    The replaced nodes stay where others may read them.
    """
    nodes = list(nodes)
    makers = {node.output[0]: node for node in nodes if node.output}
    places = {node.output[0]: place for place, node in enumerate(nodes) if node.output}
    known = constants_of(nodes, constants)
    return [_binary(node, makers, constants) or recognised(node, places, nodes, known) or node for node in nodes]


def _binary(node: NodeProto, makers: dict[str, NodeProto], constants: dict[str, Array]) -> NodeProto | None:
    if name_of(node) != "Concat" or len(node.input) != 2:
        return None
    no, yes = (makers.get(name) for name in node.input)
    if no is None or yes is None or (name_of(no), name_of(yes)) != ("Sub", "Sigmoid") or no.input[1] != yes.output[0]:
        return None
    one = constants.get(no.input[0])
    if one is None or one.size != 1 or one.item() != 1:
        return None
    return helper.make_node(
        "LinearClassifier",
        yes.input[:1],
        ["", node.output[0]],
        name=node.name or node.output[0],
        domain="ai.onnx.ml",
        coefficients=[-1.0, 1.0],
        intercepts=[0.0, 0.0],
        classlabels_ints=[0, 1],
        post_transform="LOGISTIC",
    )
