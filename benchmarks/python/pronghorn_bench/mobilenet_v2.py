"""MobileNetV2 (arXiv 1801.04381, Table 2) of any width and size, with random weights: for run times only."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SEED = 1
CLASSES = 1000
LAST = 1280
# Expansion, channels, blocks, and the stride of the first block.
BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def channels(count: int, width: float) -> int:
    """A multiple of 8 near `count * width`, at most a tenth below it."""
    wanted = count * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8


class Builder:
    """Nodes and weights so far, and the value at their end."""

    def __init__(self) -> None:
        """At the input."""
        self.random = np.random.default_rng(SEED)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.value = "input"

    def constant(self, name: str, value: np.ndarray) -> str:
        """A weight."""
        self.weights.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def add(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        """A node on the value so far and `inputs`."""
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [self.value, *inputs], [name], name, **attributes))
        self.value = name
        return name

    def conv(self, inputs: int, outputs: int, kernel: int, stride: int, depthwise: bool, clipped: bool) -> None:
        """A convolution, with ReLU6 where it is clipped. Its weights keep the size of values."""
        groups = inputs if depthwise else 1
        shape = (outputs, inputs // groups, kernel, kernel)
        spread = np.sqrt((2 if clipped else 1) / np.prod(shape[1:]))
        place = len(self.nodes)
        names = [
            self.constant(f"{place}.weight", spread * self.random.standard_normal(shape)),
            self.constant(f"{place}.bias", 0.1 * self.random.uniform(-1, 1, outputs)),
        ]
        pads = [kernel // 2] * 4
        self.add("Conv", names, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=groups)
        if clipped:
            self.add("Clip", ["zero", "six"])

    def block(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        """An inverted residual."""
        before, hidden = self.value, inputs * expansion
        if expansion > 1:
            self.conv(inputs, hidden, 1, 1, depthwise=False, clipped=True)
        self.conv(hidden, hidden, 3, stride, depthwise=True, clipped=True)
        self.conv(hidden, outputs, 1, 1, depthwise=False, clipped=False)
        if stride == 1 and inputs == outputs:
            self.add("Add", [before])


def mobilenet_v2(width: float, pixels: int) -> onnx.ModelProto:
    """The network for pictures of `pixels` by `pixels`, its batch norms folded."""
    builder = Builder()
    builder.constant("zero", np.array(0.0))
    builder.constant("six", np.array(6.0))
    inputs = channels(32, width)
    builder.conv(3, inputs, 3, 2, depthwise=False, clipped=True)
    for expansion, count, blocks, stride in BLOCKS:
        for index in range(blocks):
            builder.block(inputs, channels(count, width), expansion, stride if index == 0 else 1)
            inputs = channels(count, width)
    last = max(LAST, channels(LAST, width))
    builder.conv(inputs, last, 1, 1, depthwise=False, clipped=True)
    builder.add("GlobalAveragePool", [])
    builder.add("Flatten", [], axis=1)
    spread = np.sqrt(1 / last)
    weight = builder.constant("dense.weight", spread * builder.random.standard_normal((CLASSES, last)))
    result = builder.add("Gemm", [weight, builder.constant("dense.bias", np.zeros(CLASSES))], transB=1)
    graph = helper.make_graph(
        builder.nodes,
        f"mobilenet_v2_{width}_{pixels}",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 3, pixels, pixels])],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, ["N", CLASSES])],
        builder.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
