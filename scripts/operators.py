#!/usr/bin/env python3
"""The table of operators: what each ONNX operator becomes, and the trust levels at which it runs.

Usage: scripts/operators.py > docs/operators.md

Each operator is imported in a small network, whose graph says what it becomes. The network is planned at each trust
level. So the table says what the code does, for these examples: an attribute may need more, or be refused.
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import pronghorn
from pronghorn.errors import PlanError
from pronghorn.onnx import import_onnx
from pronghorn.onnx.lowering import FINISH
from pronghorn.onnx.registry import OPERATORS

LEVELS = ("two-party", "client-aided", "encrypted")

RANDOM = np.random.default_rng(1)

ROW, SEQUENCE, IMAGE = (1, 8), (1, 4, 6), (1, 4, 4, 4)


def floats(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Random weights."""
    return RANDOM.normal(scale=0.5, size=shape).astype(np.float32)


def integers(*numbers: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A row of whole numbers."""
    return np.array(numbers, np.int64)


Node = tuple[str, list[str], list[str], dict[str, Any]]
"""An operator, its inputs, outputs and attributes."""


@dataclass(frozen=True)
class Example:
    """A node that makes `y` from the value `v` behind a layer, and from constants."""

    constants: list[Any] = field(default_factory=list)
    """Its inputs after the first; a string names a value."""
    attributes: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = IMAGE
    """Of `v`, batch first."""
    opset: int = 17
    tables: int = 3
    """The opset of ai.onnx.ml."""
    before: list[Node] = field(default_factory=list)
    """Nodes between `v` and it."""
    value: str = "v"
    """Its first input."""
    after: list[Node] = field(default_factory=list)
    """Nodes behind it, which make `z`."""
    last: bool = False
    """Whether no layer follows."""
    outputs: tuple[str, ...] = ("y",)


def recurrent(gates: int, **attributes: Any) -> Example:
    """A network of 3 features and states over 4 steps."""
    constants = [floats(1, 3 * gates, 3), floats(1, 3 * gates, 3), floats(1, 6 * gates)]
    there: list[Node] = [("Transpose", ["v"], ["s"], {"perm": [1, 0, 2]})]
    back: list[Node] = [("Transpose", ["y"], ["z"], {"perm": [1, 0, 2, 3]})]
    return Example(constants, {"hidden_size": 3, **attributes}, (1, 4, 3), before=there, value="s", after=back)


SCALE = [np.float32(0.1), np.int8(0)]

TRUTHS: list[Node] = [("Greater", ["v", "x"], ["b"], {}), ("Less", ["x", "v"], ["d"], {})]


def tree(kind: str, targets: int) -> dict[str, Any]:
    """The attributes of a tree of two comparisons, whose leaves are of a class or a target."""
    return {
        "nodes_treeids": [0] * 5,
        "nodes_nodeids": [0, 1, 2, 3, 4],
        "nodes_featureids": [0, 1, 0, 0, 0],
        "nodes_values": [0.5, -0.5, 0.0, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 2, 0, 0, 0],
        "nodes_falsenodeids": [4, 3, 0, 0, 0],
        f"{kind}_treeids": [0] * 3 * targets,
        f"{kind}_nodeids": [2, 3, 4] * targets,
        f"{kind}_ids": [target for target in range(targets) for _ in range(3)],
        f"{kind}_weights": [0.5, -1.0, 2.0] * targets,
    }


SCALES = np.array([1, 1, 2, 2], np.float32)
POOL = {"kernel_shape": [2, 2]}
EXAMPLES = {
    **dict.fromkeys(("Abs", "Relu", "LeakyRelu", "HardSigmoid", "Neg", "Identity", "Dropout", "Flatten"), Example()),
    **dict.fromkeys(("Elu", "Celu", "Selu", "Mish", "HardSwish", "Softsign", "Tanh"), Example(opset=22)),
    **dict.fromkeys(("Swish", "Gelu"), Example(opset=24)),
    **dict.fromkeys(("Atan", "Cos", "Erf", "Sin"), Example()),
    **dict.fromkeys(("Exp within a network", "Softplus"), Example(shape=ROW)),
    **dict.fromkeys(
        ("Log within a network", "Reciprocal", "Sqrt within a network"),
        Example(shape=ROW, before=[("Softplus", ["v"], ["p"], {})], value="p"),
    ),
    **dict.fromkeys(
        ("LogSoftmax within a network", "Softmax within a network"), Example(attributes={"axis": 1}, shape=ROW)
    ),
    **dict.fromkeys(
        ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
        Example([np.float32(0.1)], after=[("Cast", ["y"], ["z"], {"to": TensorProto.FLOAT})]),
    ),
    "Not": Example(before=TRUTHS[:1], value="b", after=[("Cast", ["y"], ["z"], {"to": TensorProto.FLOAT})]),
    **dict.fromkeys(
        ("And", "Or", "Xor"),
        Example(["d"], before=TRUTHS, value="b", after=[("Cast", ["y"], ["z"], {"to": TensorProto.FLOAT})]),
    ),
    **dict.fromkeys(("Sign", "ThresholdedRelu"), Example()),
    "Hardmax": Example(attributes={"axis": 1}, shape=ROW),
    "Shrink, with a jump": Example(),
    "Where, by a comparison": Example(["v", np.float32(0)], before=[("Greater", ["x", "v"], ["b"], {})], value="b"),
    "CumSum": Example([integers(1)], shape=SEQUENCE),
    "Div of values": Example(["p"], shape=ROW, before=[("Softplus", ["v"], ["p"], {})]),
    "MatMul of values": Example(["t"], shape=SEQUENCE, before=[("Transpose", ["v"], ["t"], {"perm": [0, 2, 1]})]),
    "ReduceLogSumExp": Example(attributes={"axes": [1]}, shape=ROW),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), Example()),
    **dict.fromkeys(("Softmax", "ArgMax", "ArgMin"), Example(attributes={"axis": 1}, shape=ROW, last=True)),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min"), Example([floats(4, 1, 1) + 3])),
    **dict.fromkeys(
        ("Add of values", "Sub of values", "Mul of values", "Max of values", "Min of values"), Example(["x"])
    ),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin"), Example(attributes={"axes": [2, 3]})),
    **dict.fromkeys(("MaxPool", "AveragePool"), Example(attributes=POOL)),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), Example(attributes={"blocksize": 2})),
    "BatchNormalization": Example([floats(4), floats(4), floats(4), np.abs(floats(4))]),
    "Cast": Example(attributes={"to": TensorProto.FLOAT}),
    "Clip": Example([np.float32(-1), np.float32(1)]),
    "Concat": Example(["x"], {"axis": 1}),
    "Concat with constants": Example([floats(1, 2, 4, 4)], {"axis": 1}),
    "Conv": Example([floats(4, 4, 3, 3)]),
    "ConvTranspose": Example([floats(4, 4, 2, 2)], {"strides": [2, 2]}),
    "LayerNormalization": Example([floats(6), floats(6)], shape=SEQUENCE),
    "MeanVarianceNormalization": Example(attributes={"axes": [1]}),
    "InstanceNormalization": Example([floats(4), floats(4)]),
    "GroupNormalization": Example([floats(4), floats(4)], {"num_groups": 2}, opset=21),
    "RMSNormalization": Example([floats(6)], shape=SEQUENCE, opset=23),
    "LpNormalization": Example(attributes={"axis": 1}, shape=SEQUENCE),
    "LRN": Example(attributes={"size": 3}),
    "LpNormalization, order 1": Example(attributes={"axis": 1, "p": 1}, shape=SEQUENCE),
    "Einsum of values": Example(
        ["t"], {"equation": "bij,bjk->bik"}, SEQUENCE, before=[("Transpose", ["v"], ["t"], {"perm": [0, 2, 1]})]
    ),
    "Einsum": Example([floats(6, 4)], {"equation": "bij,jk->bik"}, SEQUENCE),
    "GatherElements": Example([np.arange(8).reshape(1, 2, 2, 2) % 4], {"axis": 2}),
    "LogSoftmax": Example(attributes={"axis": 1}, shape=ROW, last=True),
    **dict.fromkeys(("Exp", "Log", "Sqrt"), Example(shape=ROW, last=True)),
    "ReduceL1": Example(attributes={"axes": [1]}, shape=ROW),
    "ReduceLogSum": Example(
        attributes={"axes": [1]}, shape=ROW, before=[("Softplus", ["v"], ["p"], {})], value="p", last=True
    ),
    "ReduceL2": Example(attributes={"axes": [1]}, shape=ROW, last=True),
    "ReduceSumSquare": Example(attributes={"axes": [1]}, shape=ROW),
    "Softmax over an axis": Example(attributes={"axis": 1}, last=True),
    "ArgMax over an axis": Example(attributes={"axis": 1}, last=True),
    "com.microsoft.DequantizeLinear": Example(
        SCALE, before=[("QuantizeLinear", ["v", "c1", "c2"], ["q"], {})], value="q"
    ),
    "com.microsoft.QuantizeLinear": Example(SCALE, after=[("DequantizeLinear", ["y", "c1", "c2"], ["z"], {})]),
    "DequantizeLinear": Example(SCALE, before=[("QuantizeLinear", ["v", "c1", "c2"], ["q"], {})], value="q"),
    "Expand": Example([integers(1, 4, 4, 4)], shape=(1, 4, 1, 4)),
    "GatherND": Example(
        [np.arange(12).reshape(2, 3, 2) % 4],
        before=[("Transpose", ["v"], ["t"], {"perm": [2, 3, 0, 1]})],
        value="t",
        after=[("Transpose", ["y"], ["z"], {"perm": [2, 3, 0, 1]})],
    ),
    "Gather": Example([integers(2, 0)], {"axis": 1}),
    "Gemm": Example([floats(8, 4)], shape=ROW),
    "GRU": recurrent(3),
    "LSTM": recurrent(4),
    "RNN": recurrent(1),
    "MatMul": Example([floats(6, 4)], shape=SEQUENCE),
    "PRelu": Example([np.abs(floats(4, 1, 1))]),
    "Pad": Example([integers(0, 0, 1, 1, 0, 0, 1, 1)]),
    "Pow": Example([np.float32(2)]),
    "Pow, a real exponent": Example([np.float32(1.5)], shape=ROW, before=[("Softplus", ["v"], ["p"], {})], value="p"),
    "QuantizeLinear": Example(SCALE, after=[("DequantizeLinear", ["y", "c1", "c2"], ["z"], {})]),
    "ReduceSum": Example([integers(2, 3)]),
    "Reshape": Example([integers(1, 16, 4)]),
    "Resize": Example(["", SCALES]),
    "Resize, linear or cubic": Example(["", SCALES], {"mode": "linear"}),
    "ScatterND": Example([np.array([[[0, 1], [0, 3]]]), floats(1, 2)], shape=ROW),
    "ScatterElements": Example([np.array([[1, 3]]), floats(1, 2)], {"axis": 1}, ROW),
    "Scatter": Example([np.array([[1, 3]]), floats(1, 2)], {"axis": 1}, ROW, opset=10),
    "com.microsoft.CDist": Example([floats(3, 8)], {"metric": "sqeuclidean"}, ROW),
    "Shrink": Example(attributes={"lambd": 0.5, "bias": 0.5}),
    "Shape": Example(after=[("Reshape", ["v", "y"], ["z"], {})]),
    "Sigmoid": Example(shape=ROW, last=True),
    "Size": Example(after=[("Cast", ["y"], ["f"], {"to": TensorProto.FLOAT}), ("Mul", ["v", "f"], ["z"], {})]),
    "Sigmoid within a network": Example(shape=ROW),
    "Slice": Example([integers(1), integers(3), integers(2)]),
    "ReduceProd": Example([], {"axes": [1]}, (1, 4, 6)),
    "ReverseSequence": Example([integers(4)], {"batch_axis": 0, "time_axis": 1}, (1, 4, 6)),
    "Split": Example(attributes={"axis": 1}, outputs=("y", "other")),
    "Squeeze": Example([integers(2)], shape=(1, 4, 1, 4)),
    "Sum": Example(["x"]),
    "Tile": Example([integers(1, 1, 2, 1)]),
    "Transpose": Example(attributes={"perm": [0, 2, 3, 1]}),
    "Trilu": Example(shape=SEQUENCE),
    "Unsqueeze": Example([integers(1)]),
    "Upsample": Example([SCALES], opset=9),
    "Where": Example(["v", np.float32(0)], value="c"),
    "ai.onnx.ml.ArrayFeatureExtractor": Example([integers(2, 0)], shape=ROW),
    "ai.onnx.ml.LinearClassifier": Example(
        attributes={
            "coefficients": [0.5] * 24,
            "intercepts": [0.1] * 3,
            "classlabels_ints": [0, 1, 2],
            "post_transform": "SOFTMAX",
        },
        shape=ROW,
        last=True,
        outputs=("label", "y"),
    ),
    "ai.onnx.ml.TreeEnsemble": Example(
        attributes={
            "nodes_featureids": [0, 1],
            "nodes_modes": numpy_helper.from_array(np.zeros(2, np.uint8)),
            "nodes_splits": numpy_helper.from_array(np.array([0.5, -0.5], np.float32)),
            "nodes_truenodeids": [1, 0],
            "nodes_trueleafs": [0, 1],
            "nodes_falsenodeids": [2, 1],
            "nodes_falseleafs": [1, 1],
            "tree_roots": [0],
            "leaf_targetids": [0, 0, 0],
            "leaf_weights": numpy_helper.from_array(np.array([0.5, -1.0, 2.0], np.float32)),
            "n_targets": 1,
        },
        shape=ROW,
        tables=5,
    ),
    "ai.onnx.ml.TreeEnsembleClassifier": Example(
        attributes={
            **tree("class", 2),
            "classlabels_int64s": [0, 1],
            "post_transform": "SOFTMAX",
        },
        shape=ROW,
        last=True,
        outputs=("label", "y"),
    ),
    "ai.onnx.ml.TreeEnsembleRegressor": Example(attributes={**tree("target", 1), "n_targets": 1}, shape=ROW),
    **{
        f"ai.onnx.ml.SVMRegressor{words}": Example(
            attributes={
                "kernel_type": kernel,
                "kernel_params": [0.1, 0.5, 3.0],
                "support_vectors": [0.5] * 8 + [-0.25] * 8,
                "coefficients": [0.3, -0.1],
                "rho": [0.1],
                "n_supports": 2,
            },
            shape=ROW,
        )
        for kernel, words in (
            ("LINEAR", ""),
            ("RBF", ", Gaussian kernel"),
            ("POLY", ", polynomial kernel"),
            ("SIGMOID", ", kernel of a Tanh"),
        )
    },
    "ai.onnx.ml.SVMClassifier": Example(
        attributes={
            "kernel_type": "RBF",
            "kernel_params": [0.1, 0.0, 3.0],
            "support_vectors": [0.5] * 8 + [-0.25] * 8,
            "vectors_per_class": [1, 1],
            "coefficients": [0.3, -0.1],
            "rho": [0.1],
            "classlabels_ints": [0, 1],
        },
        shape=ROW,
        last=True,
        outputs=("label", "y"),
    ),
    "ai.onnx.ml.Binarizer": Example(attributes={"threshold": 0.1}, shape=ROW),
    "ai.onnx.ml.LinearRegressor": Example(attributes={"coefficients": [0.5] * 8, "intercepts": [0.1]}, shape=ROW),
    "ai.onnx.ml.Normalizer": Example(
        attributes={"norm": "L1"}, shape=ROW, before=[("Softmax", ["v"], ["s"], {})], value="s", last=True
    ),
    "ai.onnx.ml.FeatureVectorizer": Example(["x"], attributes={"inputdimensions": [4, 4]}, shape=ROW),
    "ai.onnx.ml.Imputer": Example(attributes={"imputed_value_floats": [0.5]}, shape=ROW),
    "ai.onnx.ml.Scaler": Example(attributes={"offset": [0.5] * 8, "scale": [2.0] * 8}, shape=ROW),
}
"""An example of each operator; words behind a name say which form of it."""

NODE = "it"
"""The name of the node in question."""


def network(label: str, example: Example) -> onnx.ModelProto:
    """The example between two layers, or behind one."""
    domain, _, kind = label.partition(" ")[0].rstrip(",").rpartition(".")
    arrays: dict[str, Any] = {"c": floats(4, 4) > 0} if example.value == "c" else {}
    names = [example.value]
    for position, constant in enumerate(example.constants, start=1):
        names.append(constant if isinstance(constant, str) else f"c{position}")
        if not isinstance(constant, str):
            arrays[f"c{position}"] = constant
    layer = "Conv" if len(example.shape) == 4 else "MatMul"
    arrays["w"] = floats(4, 4, 1, 1) if layer == "Conv" else floats(example.shape[-1], example.shape[-1])
    nodes = [helper.make_node(layer, ["x", "w"], ["v"])]
    nodes += [helper.make_node(k, i, o, **attributes) for k, i, o, attributes in example.before]
    nodes.append(helper.make_node(kind, names, example.outputs, name=NODE, domain=domain, **example.attributes))
    nodes += [helper.make_node(k, i, o, **attributes) for k, i, o, attributes in example.after]
    graph = helper.make_graph(
        nodes,
        "example",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, example.shape)],
        [helper.make_tensor_value_info("z" if example.after else "y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    others = [helper.make_opsetid("ai.onnx.ml", example.tables), helper.make_opsetid("com.microsoft", 1)]
    versions = [helper.make_opsetid("", example.opset), *others]
    proto = helper.make_model(graph, opset_imports=versions, ir_version=10)
    if not example.last:
        size = int(np.prod(import_onnx(proto).output_shape))
        graph.node.append(helper.make_node("Flatten", [graph.output[0].name], ["flat"]))
        graph.node.append(helper.make_node("MatMul", ["flat", "g"], ["result"]))
        graph.initializer.append(numpy_helper.from_array(floats(size, 2), "g"))
        graph.output[0].name = "result"
        proto.graph.CopyFrom(graph)
    return proto


def becomes(proto: onnx.ModelProto) -> list[str]:
    """The operators of the graph that the node in question becomes, each once."""
    nodes = [node for node in json.loads(import_onnx(proto).graph_json)["nodes"] if node["name"] == NODE]
    return list(dict.fromkeys(node["op"]["kind"] for node in nodes))


def levels(proto: onnx.ModelProto, shape: tuple[int, ...]) -> list[str]:
    """The trust levels at which the network can be planned."""
    model = pronghorn.load(proto, samples=floats(32, *shape[1:]), error=2.0)
    found = []
    for level in LEVELS:
        try:
            model.plan(level)
        except PlanError:
            continue
        found.append(level)
    return found


def table() -> str:
    """The document."""
    missing = sorted(set(OPERATORS) - {label.partition(" ")[0].rstrip(",") for label in EXAMPLES})
    if missing:
        sys.exit(f"give an example of {', '.join(missing)} in {__file__}")
    lines = [HEAD, f"| operator | becomes | {' | '.join(LEVELS)} |", f"|---|---|{'---|' * len(LEVELS)}"]
    for label, example in sorted(EXAMPLES.items(), key=lambda pair: pair[0].rpartition(".")[2].lower()):
        proto = network(label, example)
        runs = levels(proto, example.shape)
        cells = [label, ", ".join(becomes(proto)) or "nothing", *("yes" if level in runs else "no" for level in LEVELS)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


HEAD = f"""# Operators

`scripts/operators.py` makes this page from the code, and a test compares the two. It imports each operator in a small
network and plans it at each [trust level](trust-and-security.md). "Becomes" has the operators of Pronghorn's graph
(`crates/pronghorn-graph/src/graph.rs`). {", ".join(f"`{kind}`" for kind in FINISH)} are computed by the client on the
result, but `arg_max` under `two-party` by both parties on shares. A yes holds for the example: an attribute may be
refused, and a large network may find no parameters.
[The guide](guide.md#what-it-runs) says which attributes are supported.
"""

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(table(), end="")
