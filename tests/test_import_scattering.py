"""Values that are put at places of others, and tensors of sequences, compared with onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto

from helpers import check, floats, model, node
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import import_onnx

ROWS = np.array([[[0, 0], [0, 2], [0, 4]]])
"""Three columns of the first image."""

SCATTERED: dict[str, list[NodeProto]] = {
    "values": [node("Relu", "x", "r"), node("Slice", "x from to along", "u"), node("ScatterND", "r rows u", "y")],
    "constants": [node("ScatterND", "x rows c", "y")],
    "into constants": [
        node("Slice", "x from to along", "u"),
        node("ScatterND", "zeros rows u", "s"),
        node("Add", "s x", "y"),
    ],
    "elements": [node("ScatterElements", "x columns c", "y", axis=1)],
    "elements from the end": [node("ScatterElements", "x last c", "y", axis=-1)],
    "later ones win": [node("ScatterElements", "x same c", "y", axis=1)],
    "added": [
        node("Slice", "x from to along", "u"),
        node("ScatterElements", "x same u", "y", axis=1, reduction="add"),
    ],
    "added constants": [node("ScatterND", "x rows c", "y", reduction="add")],
}


@pytest.mark.parametrize("name", SCATTERED)
def test_values_at_constant_places(name: str) -> None:
    nodes = SCATTERED[name]
    constants = {
        "rows": ROWS,
        "columns": np.array([[0, 2, 4]]),
        "last": np.array([[-1, 0, -3]]),
        "same": np.array([[2, 2, 4]]),
        "c": floats(1, 3),
        "zeros": np.zeros((1, 5), np.float32),
        "from": np.array([1]),
        "to": np.array([4]),
        "along": np.array([1]),
    }
    used = {each for one in nodes for each in one.input}
    check(model(nodes, (1, 5), {name: each for name, each in constants.items() if name in used}, opset=18))


def test_places_of_each_image() -> None:
    """`x[:, 1:3] = v`: an index of the image and of the column."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape first", "count"),
        node("Range", "none count step", "images"),
        node("Reshape", "images three", "raised"),
        node("Gather", "shape firsts", "counts"),
        node("Concat", "counts rest", "size", axis=0),
        node("Expand", "raised size", "image"),
        node("Expand", "columns size", "column"),
        node("Concat", "image column", "indices", axis=-1),
        node("Slice", "x from to along", "u"),
        node("ScatterND", "x indices u", "y"),
    ]
    constants = {
        "first": np.int64(0),
        "firsts": np.array([0]),
        "none": np.int64(0),
        "step": np.int64(1),
        "three": np.array([-1, 1, 1]),
        "rest": np.array([2, 1]),
        "columns": np.array([[[1], [2]]]),
        "from": np.array([3]),
        "to": np.array([5]),
        "along": np.array([1]),
    }
    check(model(nodes, ("N", 5), constants, opset=17))
    # Places of the first image alone: the file takes no other.
    fixed = [node("Slice", "x from to along", "u"), node("ScatterND", "x rows u", "y")]
    known = {"rows": np.array([[[0, 1], [0, 2]]]), **{name: constants[name] for name in ("from", "to", "along")}}
    assert not check(model(fixed, ("N", 5), known, opset=17)).free_batch


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([node("ScatterND", "x far c", "y")], "do not exist"),
        ([node("ScatterND", "x rows c", "y", reduction="mul")], "reduction is mul"),
        ([node("ScatterND", "x rows four", "y")], "another number of values"),
        ([node("Cast", "x", "i", to=7), node("ScatterND", "x i c", "y")], "not supported|constant"),
        ([node("ScatterElements", "x flat c", "y")], "do not fit"),
    ],
)
def test_what_is_refused(nodes: list[NodeProto], says: str) -> None:
    constants = {"rows": ROWS, "far": ROWS + 3, "c": floats(1, 3), "four": floats(1, 4), "flat": np.array([0, 1, 2])}
    used = {each for one in nodes for each in one.input}
    with pytest.raises(UnsupportedModelError, match=says):
        import_onnx(model(nodes, (1, 5), {name: each for name, each in constants.items() if name in used}, opset=18))


SEQUENCES = {
    "stacked": [
        node("Relu", "x", "r"),
        node("SequenceConstruct", "x r", "s"),
        node("ConcatFromSequence", "s", "y", axis=1),
    ],
    "a new axis": [
        node("Relu", "x", "r"),
        node("SequenceConstruct", "x r", "s"),
        node("ConcatFromSequence", "s", "c", axis=1, new_axis=1),
        node("Flatten", "c", "y"),
    ],
    "parts": [
        node("SplitToSequence", "x sizes", "s", axis=1),
        node("SequenceAt", "s one", "a"),
        node("SequenceAt", "s minus", "b"),
        node("Concat", "b a", "y", axis=1),
    ],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_tensors_of_sequences(name: str) -> None:
    constants = {"sizes": np.array([2, 3]), "one": np.int64(1), "minus": np.int64(-2)}
    used = {each for one in SEQUENCES[name] for each in one.input}
    proto = model(SEQUENCES[name], ("N", 5), {name: each for name, each in constants.items() if name in used})
    check(proto)


def test_other_sequences_are_refused() -> None:
    nodes = [node("SequenceEmpty", "", "s"), node("SequenceInsert", "s x", "t"), node("SequenceAt", "t one", "y")]
    with pytest.raises(UnsupportedModelError, match="Sequence"):
        import_onnx(model(nodes, ("N", 5), {"one": np.int64(0)}))


def test_numbers_that_fixed_point_lacks() -> None:
    """As `nan_to_num` is exported."""
    nodes = [
        node("IsNaN", "x", "n"),
        node("Where", "n zero x", "a"),
        node("IsInf", "x", "i"),
        node("Greater", "x zero", "p"),
        node("And", "i p", "j"),
        node("Where", "j largest a", "b"),
        node("MatMul", "b w", "y"),
    ]
    constants = {"zero": np.float32(0), "largest": np.float32(3e38), "w": floats(5, 2)}
    check(model(nodes, ("N", 5), constants))


def test_a_matrix_for_each_capsule() -> None:
    """A value of one column for all capsules, times a matrix for each."""
    nodes = [node("Unsqueeze", "x places", "u"), node("MatMul", "w u", "m"), node("Flatten", "m", "y")]
    check(model(nodes, ("N", 6, 4, 1), {"places": np.array([2]), "w": floats(1, 6, 3, 2, 4)}))


def test_constants_of_cumsum_with_an_axis_of_one_dimension() -> None:
    nodes = [node("CumSum", "c axis", "s"), node("Mul", "x s", "y")]
    proto = model(nodes, ("N", 5), {"c": floats(5), "axis": np.array([0])})
    # onnxruntime takes such an axis.
    check(proto)
