"""Values that are stacked before the batch, and reduced along the new axis."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto

from helpers import check, floats, model, node
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import import_onnx

WEIGHTS = {f"w{at}": floats(6, 4) for at in range(3)} | {"axes": np.array([0])}


def stacked(kind: str, end: str = "Identity", **given: int) -> list[NodeProto]:
    """`torch.stack([end(x @ w) for w in weights])`, reduced."""
    nodes = [made for at in range(3) for made in (node("MatMul", f"x w{at}", f"h{at}"), node(end, f"h{at}", f"e{at}"))]
    nodes += [node("Unsqueeze", f"e{at} axes", f"u{at}") for at in range(3)]
    nodes += [node("Concat", "u0 u1 u2", "c", axis=0)]
    inputs = "c axes" if kind == "ReduceSum" else "c"
    return [*nodes, node(kind, inputs, "y", **({} if kind == "ReduceSum" else {"axes": [0]}), **given)]


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceSum"])
@pytest.mark.parametrize("batch", ["N", 1])
def test_means_and_sums(kind: str, batch: str | int) -> None:
    check(model(stacked(kind, keepdims=0), (batch, 6), WEIGHTS))


def test_other_reductions_are_refused_with_the_way_to_one() -> None:
    # It keeps images apart.
    check(model(stacked("ReduceMax", keepdims=0), ("N", 6), WEIGHTS))
    with pytest.raises(UnsupportedModelError, match="the batch"):
        import_onnx(model(stacked("ReduceMean", keepdims=1), ("N", 6), WEIGHTS))


def test_means_of_probabilities() -> None:
    proto = model(stacked("ReduceMean", "Softmax", keepdims=0), ("N", 6), WEIGHTS)
    assert check(proto).finish == ["probabilities"]
    assert import_onnx(proto, output=["h0", "h1", "h2"]).output_shape == (12,)


def test_the_advice_names_ends_that_are_not_lowered_yet() -> None:
    each = [(node("MatMul", f"x w{at}", f"h{at}"), node("ArgMax", f"h{at}", f"e{at}", axis=1)) for at in range(3)]
    nodes = [*each[0], *each[1], node("Add", "e0 e1", "a"), *each[2], node("Add", "a e2", "y")]
    with pytest.raises(UnsupportedModelError, match=r"output=\['h0', 'h1', 'h2'\]"):
        import_onnx(model(nodes, ("N", 6), WEIGHTS))


def test_steps_before_the_batch_are_refused_with_the_way_to_one() -> None:
    nodes = [node("Transpose", "x", "t", perm=[1, 0, 2, 3]), node("Relu", "t", "y")]
    with pytest.raises(UnsupportedModelError, match="TimeDistributed"):
        import_onnx(model(nodes, ("N", 5, 6, 2)))
