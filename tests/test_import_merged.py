"""Values whose batch is merged with another dimension: layers for every step of a series, or for every picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from helpers import check, floats, model, node, run_native
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import ImportedModel, import_onnx

F, T = 8, 5

ROWS = np.array([-1, F])
BATCH = [
    node("Shape", "x", "shape"),
    node("Gather", "shape zero", "n1"),
    node("Mul", "n1 five", "nt"),
]
NUMBERS = {"zero": np.array([0]), "five": np.array([T]), "rest": np.array([-1])}


def of_batches(proto: onnx.ModelProto) -> ImportedModel:
    """Imports a model of a free batch, and compares with onnxruntime for batches of one and of three."""
    imported = import_onnx(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    inputs = floats(3, *imported.input_shape)
    for batch in (inputs[:1], inputs):
        expected = np.asarray(session.run(None, {"x": batch})[0])
        found = run_native(imported, batch)
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=2e-4, atol=2e-5)
    return imported


def target(*parts: str) -> list[onnx.NodeProto]:
    """The shape of a batch and other sizes, which are constants, as exporters compute it."""
    return [*BATCH, node("Concat", " ".join(parts), "target", axis=0)]


LAYERS: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray]]] = {
    "gemm": ([node("Gemm", "r w b", "h", transB=1)], {"w": floats(F, F), "b": floats(F)}),
    "matmul": ([node("MatMul", "r w", "m"), node("Add", "m b", "h")], {"w": floats(F, F), "b": floats(F)}),
    "vector": ([node("MatMul", "r w", "m"), node("Unsqueeze", "m one", "h")], {"w": floats(F), "one": np.array([1])}),
    "functions": ([node("Tanh", "r", "t"), node("Clip", "t", "c"), node("Mul", "c r", "h")], {}),
    "prelu": ([node("PRelu", "r s", "h")], {"s": floats(F)}),
    "batch normalisation": (
        [node("BatchNormalization", "r s b m v", "h")],
        {"s": floats(F), "b": floats(F), "m": floats(F), "v": floats(F) ** 2 + 1},
    ),
    "layer normalisation": ([node("LayerNormalization", "r s b", "h")], {"s": floats(F), "b": floats(F)}),
    "unit length": ([node("LpNormalization", "r", "h", axis=1)], {}),
    "mean": ([node("ReduceMean", "r", "h", axes=[1])], {}),
    "mean without its axis": (
        [node("ReduceMean", "r", "m", axes=[1], keepdims=0), node("Unsqueeze", "m one", "h")],
        {"one": np.array([1])},
    ),
    "squares": ([node("ReduceSumSquare", "r", "h", axes=[1])], {}),
    "concat": ([node("Neg", "r", "n"), node("Concat", "r n", "h", axis=1)], {}),
    "slice": ([node("Slice", "r s e a", "h")], {"s": np.array([2]), "e": np.array([5]), "a": np.array([1])}),
    "gather": (
        [node("Gather", "r i", "g", axis=1), node("Unsqueeze", "g one", "h")],
        {"i": np.array(3), "one": np.array([1])},
    ),
    "transposed": (
        [node("Reshape", "r two", "q"), node("Transpose", "q", "h", perm=[0, 2, 1])],
        {"two": np.array([-1, 2, F // 2])},
    ),
    "gated": ([node("Sigmoid", "r", "s"), node("Mul", "r s", "h")], {}),
}


@pytest.mark.parametrize("first", [True, False], ids=["free", "one"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_every_step(name: str, first: bool) -> None:
    """`x.reshape(-1, F)`, layers, and `reshape(N, -1)`, which a last layer reads."""
    layers, constants = LAYERS[name]
    nodes = [node("Reshape", "x rows", "r"), *layers, *target("n1", "rest"), node("Reshape", "h target", "y")]
    proto = model(nodes, ("N" if first else 1, T, F), {"rows": ROWS, **NUMBERS, **constants})
    if first:
        of_batches(proto)
    else:
        check(proto)


@pytest.mark.parametrize("merge", ["rows", "flatten", "batch"])
@pytest.mark.parametrize("split", [("n1", "five", "rest"), ("rest", "five", "six"), ("rest", "thirty"), ("n1", "rest")])
def test_forms_of_exporters(merge: str, split: tuple[str, ...]) -> None:
    merged = {
        "rows": [node("Reshape", "x rows", "r")],
        "flatten": [node("Flatten", "x", "r", axis=2)],
        "batch": [node("Concat", "nt eight", "merged", axis=0), node("Reshape", "x merged", "r")],
    }[merge]
    nodes = [
        *target(*split),
        *merged,
        node("Gemm", "r w b", "h"),
        node("Relu", "h", "a"),
        node("Reshape", "a target", "y"),
    ]
    constants = {"rows": ROWS, "eight": np.array([F]), "six": np.array([6]), "thirty": np.array([30]), **NUMBERS}
    of_batches(model(nodes, ("N", T, F), {"w": floats(F, 6), "b": floats(6), **constants}))


CONVOLUTIONS: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...], dict[str, np.ndarray]]] = {
    "series": (
        [node("Conv", "r w b", "c", strides=[2], pads=[1, 2]), node("Relu", "c", "h")],
        (2, 9),
        {"w": floats(4, 2, 3), "b": floats(4)},
    ),
    "series in groups": ([node("Conv", "r w", "h", group=2)], (4, 9), {"w": floats(6, 2, 3)}),
    "pictures": (
        [
            node("Conv", "r w b", "c", pads=[1, 1, 0, 0], strides=[2, 1]),
            node("BatchNormalization", "c s b m v", "n"),
            node("Relu", "n", "a"),
            node("MaxPool", "a", "p", kernel_shape=[2, 2]),
            node("Conv", "p k", "q"),
            node("GlobalAveragePool", "q", "h"),
        ],
        (3, 8, 7),
        {
            "w": floats(4, 3, 3, 2),
            "b": floats(4),
            "k": floats(2, 4, 2, 2),
            "s": floats(4),
            "m": floats(4),
            "v": np.ones(4, np.float32),
        },
    ),
    "pools of series": (
        [node("AveragePool", "r", "p", kernel_shape=[3], strides=[2]), node("MaxPool", "p", "h", kernel_shape=[2])],
        (2, 9),
        {},
    ),
    "depthwise": (
        [node("Conv", "r w", "c", group=4), node("GlobalMaxPool", "c", "h")],
        (4, 5, 6),
        {"w": floats(4, 1, 3, 3)},
    ),
    "instances": ([node("InstanceNormalization", "r s b", "h")], (2, 3, 4), {"s": floats(2), "b": floats(2)}),
}


@pytest.mark.parametrize("first", [True, False], ids=["free", "one"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_every_picture(name: str, first: bool) -> None:
    """`x.view(N * T, C, H, W)`, convolutions, and `view(N, T, -1)`."""
    layers, sizes, constants = CONVOLUTIONS[name]
    nodes = [*target("n1", "five", "rest"), node("Concat", "nt sizes", "merged", axis=0)]
    nodes += [node("Reshape", "x merged", "r"), *layers, node("Reshape", "h target", "y")]
    proto = model(nodes, ("N" if first else 1, T, *sizes), {"sizes": np.array(sizes), **NUMBERS, **constants})
    if first:
        of_batches(proto)
    else:
        check(proto)


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax", "ArgMax"])
def test_ends_of_every_step(kind: str) -> None:
    attributes = {"axis": 1, **({"keepdims": 0} if kind == "ArgMax" else {})}
    nodes = [node("Reshape", "x rows", "r"), node("Gemm", "r w", "h"), node(kind, "h", "e", **attributes)]
    nodes += [*target("n1", "five", "rest"), node("Reshape", "e target", "y")]
    output = onnx.TensorProto.INT64 if kind == "ArgMax" else onnx.TensorProto.FLOAT
    of_batches(model(nodes, ("N", T, F), {"rows": ROWS, "w": floats(F, 4), **NUMBERS}, output_dtype=output))


REFUSED: dict[str, tuple[list[onnx.NodeProto], str]] = {
    "moved batch": ([*target("five", "n1", "rest"), node("Reshape", "x target", "y")], "mixes images"),
    "split elsewhere": ([*target("five", "n1", "rest"), node("Reshape", "r target", "y")], "mixes images"),
    "one row": ([node("Reshape", "r one_row", "q"), node("ReduceMean", "q", "y", axes=[1])], "the batch is not first"),
    "five rows": ([node("Reshape", "x five_rows", "y")], "mixes images"),
    "over rows": ([node("ReduceMean", "r", "y", axes=[0])], "the batch"),
    "softmax over rows": ([node("Softmax", "r", "y", axis=0)], "the batch"),
    "first row": ([node("Gather", "r zero", "y", axis=0)], "the batch"),
    "some rows": ([node("Slice", "r zero five", "y")], "the batch"),
    "joined rows": ([node("Concat", "r r", "y", axis=0)], "the batch"),
    "raised": ([node("Unsqueeze", "r zero", "y")], "the batch"),
    "raised by a constant": ([node("Add", "r three", "y")], "merged with another dimension"),
    "flattened": ([node("Flatten", "r", "y", axis=0)], "the batch"),
    "normalised over rows": ([node("LayerNormalization", "r scale", "y", axis=0)], "the batch"),
    "not supported": (
        [node("Reshape", "x three_axes", "q"), node("LRN", "q", "y", size=3)],
        "merged with another dimension",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_mixes_images_is_refused(name: str) -> None:
    nodes, message = REFUSED[name]
    constants: dict[str, Any] = {
        "rows": ROWS,
        "one_row": np.array([1, -1]),
        "five_rows": np.array([T, -1]),
        "three": np.ones((1, 1, F), np.float32),
        "three_axes": np.array([-1, 2, F // 2]),
        "scale": floats(T, F),
        **NUMBERS,
    }
    proto = model([node("Reshape", "x rows", "r"), *nodes], ("N", T, F), constants)
    with pytest.raises(UnsupportedModelError, match=message):
        import_onnx(proto)


def test_shapes_may_read_a_value_many_times() -> None:
    nodes = [*BATCH, node("Max", " ".join(["n1"] * 20), "n2"), node("Concat", "n2 rest", "target", axis=0)]
    nodes += [node("Reshape", "x rows", "r"), node("Relu", "r", "h"), node("Reshape", "h target", "y")]
    of_batches(model(nodes, ("N", T, F), {"rows": ROWS, **NUMBERS}))


RAISE = node("Unsqueeze", "x zero", "r")
BEHIND_ONES: dict[str, list[onnx.NodeProto]] = {
    "unsqueezed": [RAISE, node("ReduceMean", "r", "y", axes=[1], keepdims=0)],
    "pooled": [RAISE, node("MaxPool", "r", "y", kernel_shape=[2, 2], strides=[1, 1])],
    "flattened": [node("Flatten", "x", "r", axis=0), node("ReduceMax", "r", "y", axes=[1])],
    "reshaped": [node("Reshape", "x row", "r"), node("ReduceMean", "r", "m", axes=[1]), node("Sub", "r m", "y")],
    "reshaped in steps": [RAISE, node("Flatten", "r", "f"), node("ReduceMax", "f", "y", axes=[1])],
    "by a constant": [node("Add", "x three", "r"), node("ReduceProd", "r", "y", axes=[1])],
    "by a choice": [node("Where", "yes x three", "r"), node("LayerNormalization", "r scale", "y", axis=1)],
    "beside others": [RAISE, node("Unsqueeze", "x one", "s"), node("Add", "r s", "y")],
    "between others": [*target("two", "n1", "rest"), node("Reshape", "x target", "y")],
    "softmax": [node("ReduceMax", "x", "r", axes=[1], keepdims=0), node("Softmax", "r", "y", axis=0)],
    "class": [node("ReduceMax", "x", "r", axes=[1], keepdims=0), node("ArgMax", "r", "y", axis=0)],
}


@pytest.mark.parametrize("name", BEHIND_ONES)
def test_a_batch_behind_dimensions_of_1_is_seen(name: str) -> None:
    """One image alone does not tell them from the batch."""
    constants = {
        "row": np.array([1, -1]),
        "one": np.array([1]),
        "two": np.array([1, 2]),
        "three": np.ones((1, 1, F), np.float32),
        "yes": np.ones((1, 1, F), np.bool_),
        "scale": floats(1, F),
        **NUMBERS,
    }
    read = {each for made in BEHIND_ONES[name] for each in made.input}
    proto = model(BEHIND_ONES[name], ("N", F), {k: v for k, v in constants.items() if k in read})
    with pytest.raises(UnsupportedModelError, match=r"the batch|mixes images"):
        import_onnx(proto)


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_ends_over_the_batch_are_refused(kind: str) -> None:
    """Up to opset 12 they are over all dimensions from an axis on."""
    nodes = [node(kind, "x", "y", axis=0)]
    with pytest.raises(UnsupportedModelError, match="over the batch"):
        import_onnx(model(nodes, ("N", F), opset=11))
    if kind == "Softmax":
        check(model(nodes, (1, F), opset=11))


KEPT: dict[str, list[onnx.NodeProto]] = {
    "pair": [RAISE, node("Relu", "r", "s"), node("Squeeze", "s zero", "y")],
    "all of size 1": [RAISE, node("Squeeze", "r", "y")],
    "reshaped back": [RAISE, node("Reshape", "r columns", "y")],
    "flattened back": [RAISE, node("Flatten", "r", "y", axis=2)],
    "row back": [node("Flatten", "x", "r", axis=0), node("Reshape", "r columns", "y")],
    "normalised": [node("Sub", "x three", "r"), node("Mul", "r three", "s"), node("Reshape", "s columns", "y")],
    "last": [node("Sub", "x three", "y")],
}


@pytest.mark.parametrize("name", KEPT)
def test_a_batch_may_be_behind_dimensions_of_1_for_a_while(name: str) -> None:
    constants = {"columns": np.array([-1, F]), "three": floats(1, 1, F), "zero": np.array([0])}
    read = {each for made in KEPT[name] for each in made.input}
    of_batches(model(KEPT[name], ("N", F), {k: v for k, v in constants.items() if k in read}))


def test_rows_of_one_image_alone_go_into_layers() -> None:
    """`x.view(1, -1)` and a layer do not run for several images."""
    nodes = [node("Reshape", "x row", "r"), node("MatMul", "r w", "y")]
    check(model(nodes, ("N", T, F), {"row": np.array([1, -1]), "w": floats(T * F, 2)}))


def test_a_moved_batch_is_not_normalised_over() -> None:
    """Behind a recurrent network a dimension of size 1 may be the batch."""
    for kind, attributes in (("Softmax", {}), ("LpNormalization", {}), ("ReduceL2", {"axes": [1]})):
        axis = {} if attributes else {"axis": 1}
        nodes = [node("Transpose", "x", "t", perm=[1, 0, 2]), node(kind, "t", "y", **attributes, **axis)]
        with pytest.raises(UnsupportedModelError, match="the batch is not the first dimension"):
            import_onnx(model(nodes, (1, T, F)))


def test_layers_of_every_step_of_a_recurrent_network() -> None:
    nodes = [
        node("Transpose", "x", "t", perm=[1, 0, 2]),
        node("GRU", "t w r", "g", hidden_size=3),
        node("Transpose", "g", "u", perm=[2, 0, 1, 3]),
        node("Reshape", "u rows", "f"),
        node("Gemm", "f k b", "h"),
        node("Relu", "h", "a"),
        node("Reshape", "a steps", "y"),
    ]
    constants = {"w": floats(1, 9, F), "r": floats(1, 9, 3), "k": floats(3, 4), "b": floats(4)}
    targets = {"rows": np.array([-1, 3]), "steps": np.array([-1, T, 4])}
    of_batches(model(nodes, ("N", T, F), {**constants, **targets}))
