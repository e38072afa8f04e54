"""Loops whose number of turns follows from constants."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from helpers import check, floats, model, node
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import import_onnx

STEPS = 5


def body(
    condition: Sequence[onnx.NodeProto], *, scan: bool, constants: dict[str, Any] | None = None
) -> onnx.GraphProto:
    """A step of a recurrent layer on the outer `t`, with the outer weights `w` and `u`."""
    nodes = [
        node("Gather", "t place", "step", axis=0),
        node("MatMul", "step w", "a"),
        node("MatMul", "state u", "b"),
        node("Add", "a b", "sum"),
        node("Tanh", "sum", "next"),
        node("Add", "place one", "place_next"),
        *condition,
        *([node("Identity", "next", "row")] if scan else []),
    ]
    types = {"turn": TensorProto.INT64, "go": TensorProto.BOOL, "place": TensorProto.INT64}
    shapes: dict[str, list[Any] | None] = {"turn": [], "go": [], "place": []}
    inputs = [
        helper.make_tensor_value_info(name, types.get(name, TensorProto.FLOAT), shapes.get(name))
        for name in ("turn", "go", "place", "state")
    ]
    outputs = [
        helper.make_tensor_value_info("go_next", TensorProto.BOOL, []),
        helper.make_tensor_value_info("place_next", TensorProto.INT64, []),
        *(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in ["next", *(["row"] if scan else [])]
        ),
    ]
    found = {"one": np.int64(1), **(constants or {})}
    return helper.make_graph(
        nodes, "body", inputs, outputs, [numpy_helper.from_array(np.asarray(v), k) for k, v in found.items()]
    )


ALWAYS = [node("Identity", "go", "go_next")]


def recurrent(
    inner: onnx.GraphProto, *, count: Any = STEPS, go: bool = True, scan: bool = False, opset: int = 17
) -> onnx.ModelProto:
    """A sequence, time first, through a Loop. The output is the last state, or one made of all."""
    constants: dict[str, Any] = {
        "w": floats(4, 6) / 2,
        "u": floats(6, 6) / 2,
        "zero": np.zeros((1, 6), np.float32),
        "begin": np.int64(0),
        "go_first": np.asarray(go),
    }
    if count is not None:
        constants["count"] = np.int64(count)
    outputs = "p y" if not scan else "p last rows"
    nodes = [node("Transpose", "x", "t", perm=[1, 0, 2])]
    nodes.append(node("Loop", f"{'-' if count is None else 'count'} go_first begin zero", outputs, body=inner))
    if scan:
        nodes.append(node("Transpose", "rows", "back", perm=[1, 0, 2]))
        nodes.append(node("Flatten", "back", "y"))
    arrays = {name: np.asarray(array) for name, array in constants.items()}
    return model(nodes, (1, STEPS, 4), arrays, opset=opset)


@pytest.mark.parametrize("opset", [11, 13, 17])
def test_the_turns_are_unrolled(opset: int) -> None:
    imported = check(recurrent(body(ALWAYS, scan=False), opset=opset))
    assert imported.output_shape == (6,)


@pytest.mark.parametrize("opset", [11, 17])
def test_rows_of_all_turns(opset: int) -> None:
    assert check(recurrent(body(ALWAYS, scan=True), scan=True, opset=opset)).output_shape == (6 * STEPS,)


@pytest.mark.parametrize("count", [None, 2, STEPS])
def test_a_condition_ends_the_loop(count: int | None) -> None:
    """After three turns, or fewer where the number of turns says so."""
    condition = [node("Less", "place_next most", "go_next")]
    check(recurrent(body(condition, scan=False, constants={"most": np.int64(3)}), count=count))


def test_a_loop_without_turns() -> None:
    with pytest.raises(UnsupportedModelError, match="does not depend on the input"):
        import_onnx(recurrent(body(ALWAYS, scan=False), go=False))


def test_two_loops_may_share_names() -> None:
    proto = recurrent(body(ALWAYS, scan=False))
    other = onnx.NodeProto()
    other.CopyFrom(proto.graph.node[1])
    other.name = "another"
    other.output[:] = ["q", "z"]
    proto.graph.node.extend([other, node("Add", "y z", "sum")])
    proto.graph.output[0].name = "sum"
    check(proto)


def test_conditions_on_values_are_refused() -> None:
    values = [node("ReduceSum", "next", "s", keepdims=0), node("Less", "s most", "go_next")]
    proto = recurrent(body(values, scan=False, constants={"most": np.float32(1)}))
    with pytest.raises(UnsupportedModelError, match="Loop"):
        import_onnx(proto)


def test_endless_loops_are_refused_at_once() -> None:
    began = time.monotonic()
    for count in (None, 1 << 40, 1025):
        with pytest.raises(UnsupportedModelError, match="Loop"):
            import_onnx(recurrent(body(ALWAYS, scan=False), count=count))
    assert time.monotonic() - began < 60
