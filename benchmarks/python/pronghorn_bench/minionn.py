"""MiniONN's network for CIFAR-10 (MiniONN, Figure 13; Gazelle, Table XIII), with random weights: for run times only."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SEED = 1
SHAPE = (3, 32, 32)
CLASSES = 10
# Convolutions that keep the size, by outputs and kernel, each with ReLU; None: average pooling of windows of 2x2.
LAYERS: tuple[tuple[int, int] | None, ...] = (
    (64, 3),
    (64, 3),
    None,
    (64, 3),
    (64, 3),
    None,
    (64, 3),
    (64, 1),
    (16, 1),
)


def cifar10_network() -> onnx.ModelProto:
    """The network; its weights have the spread that keeps the size of values from layer to layer."""
    random = np.random.default_rng(SEED)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def layer(kind: str, index: int, source: str, shape: tuple[int, ...], **attributes: Any) -> str:
        spread = np.sqrt(2 / np.prod(shape[1:]))
        values = spread * random.standard_normal(shape), 0.1 * random.uniform(-1, 1, shape[0])
        names = [f"{index}.weight", f"{index}.bias"]
        for name, value in zip(names, values, strict=True):
            weights.append(numpy_helper.from_array(value.astype(np.float32), name))
        nodes.append(helper.make_node(kind, [source, *names], [f"{kind}{index}"], f"{kind}{index}", **attributes))
        return f"{kind}{index}"

    def operator(kind: str, index: int, source: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, [source], [f"{kind}{index}"], f"{kind}{index}", **attributes))
        return f"{kind}{index}"

    value, (channels, size, _) = "input", SHAPE
    for index, made in enumerate(LAYERS):
        if made is None:
            value = operator("AveragePool", index, value, kernel_shape=[2, 2], strides=[2, 2])
            size //= 2
            continue
        outputs, kernel = made
        shape = (outputs, channels, kernel, kernel)
        value = layer("Conv", index, value, shape, kernel_shape=[kernel, kernel], pads=[kernel // 2] * 4)
        value = operator("Relu", index, value)
        channels = outputs
    value = operator("Flatten", len(LAYERS), value, axis=1)
    last = layer("Gemm", len(LAYERS) + 1, value, (CLASSES, channels * size * size), transB=1)
    graph = helper.make_graph(
        nodes,
        "minionn_cifar10",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", *SHAPE])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["N", CLASSES])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
