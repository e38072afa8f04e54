"""Values that are categories: encoders and embeddings within models, and the indicators that clients send for them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import pronghorn
from helpers import Frame, mixed, node, run_native
from pronghorn import _multikey_plan
from pronghorn._categories import Categories, Category
from pronghorn._tables import read_table
from pronghorn.cli import app
from pronghorn.errors import InputError, InputWarning, PlanError, PrecisionWarning, UnsupportedModelError
from pronghorn.onnx import ImportedModel, categories, import_onnx

RANDOM = np.random.default_rng(29)
"""Of this file alone: other tests keep their numbers."""

ML = "ai.onnx.ml"
INT64, FLOAT, TEXT, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.STRING, TensorProto.BOOL
JOBS, TOWNS = ["clerk", "nurse", "smith"], ["A", "B"]

Inputs = dict[str, np.ndarray]


def floats(*shape: int) -> np.ndarray:
    """Random float32 numbers around zero."""
    return RANDOM.standard_normal(shape).astype(np.float32)


def whole(high: int, *shape: int) -> np.ndarray:
    """Random whole numbers from 0."""
    return RANDOM.integers(0, high, shape)


def texts(names: list[str], *shape: int) -> np.ndarray:
    return np.array(names, object)[RANDOM.integers(0, len(names), shape)]


def by_file(proto: onnx.ModelProto, inputs: Inputs) -> np.ndarray:
    """The results of the file itself, one image at a time."""
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    count = len(next(iter(inputs.values())))
    rows = [{name: values[at : at + 1] for name, values in inputs.items()} for at in range(count)]
    return np.stack([np.asarray(session.run(None, row)[0]).ravel() for row in rows])


def encoded(imported: ImportedModel, inputs: Inputs) -> np.ndarray:
    assert imported.encoded is not None
    count = len(next(iter(inputs.values())))
    row = np.concatenate([values.reshape(count, -1).astype(object) for values in inputs.values()], axis=1)
    return imported.encoded.categories.encode(row, imported.input_shape, "x")


def check(proto: onnx.ModelProto, inputs: Inputs) -> ImportedModel:
    """Imports, and compares with the file on inputs as their owner has them."""
    imported = import_onnx(proto)
    found = run_native(imported, encoded(imported, inputs))
    np.testing.assert_allclose(found.reshape(len(found), -1), by_file(proto, inputs), rtol=2e-4, atol=2e-5)
    return imported


def values_of(imported: ImportedModel) -> dict[int, Any]:
    assert imported.encoded is not None
    return {category.place: category.values for category in imported.encoded.categories.each}


def pipeline() -> onnx.ModelProto:
    """Two texts, a number and a kind of 1 to 3, as scikit-learn's ColumnTransformer is exported."""
    nodes = [
        node("OneHotEncoder", "job", "j", cats_strings=JOBS, zeros=1, domain=ML),
        node("OneHotEncoder", "town", "t", cats_strings=TOWNS, zeros=0, domain=ML),
        node("LabelEncoder", "kind", "k", keys_int64s=[1, 2, 3], values_int64s=[0, 1, 2], domain=ML),
        node("Concat", "j t", "c", axis=-1),
        node("Reshape", "c cs", "r"),
        node("Cast", "k", "f", to=FLOAT),
        node("Concat", "age r f", "a", axis=1),
        node("Gemm", "a w b", "y"),
    ]
    inputs = {
        name: (kind, (None, 1)) for name, kind in {"job": TEXT, "age": FLOAT, "town": TEXT, "kind": INT64}.items()
    }
    return mixed(nodes, inputs, {"cs": [-1, 5], "w": floats(7, 2), "b": floats(2)})


def table(count: int) -> Inputs:
    return {
        "job": texts(JOBS, count, 1),
        "age": floats(count, 1),
        "town": texts(TOWNS, count, 1),
        "kind": 1 + whole(3, count, 1),
    }


def test_a_pipeline_of_columns() -> None:
    imported = check(pipeline(), table(40))
    assert values_of(imported) == {0: tuple(JOBS), 2: tuple(TOWNS), 3: (1, 2, 3)}
    assert imported.inputs == {"job": (1,), "age": (1,), "town": (1,), "kind": (1,)}
    assert imported.encoded is not None
    assert [each.others for each in imported.encoded.categories.each] == ["zeros", "refused", "refused"]
    # An indicator for each category, and a number.
    assert imported.input_shape == (9,)


def test_columns_of_one_input() -> None:
    nodes = [
        node("ArrayFeatureExtractor", "x numbers", "n", domain=ML),
        node("ArrayFeatureExtractor", "x kinds", "k", domain=ML),
        node("Cast", "k", "i", to=INT64),
        node("OneHotEncoder", "i", "o", cats_int64s=[2, 5, 7], domain=ML),
        node("Reshape", "o os", "r"),
        node("Concat", "r n", "c", axis=1),
        node("Gemm", "c w", "y"),
    ]
    constants = {"numbers": [0, 2], "kinds": [1], "os": [-1, 3], "w": floats(5, 2)}
    rows = np.stack([floats(20), np.array([2.0, 5, 7], np.float32)[whole(3, 20)], floats(20)], axis=1)
    imported = check(mixed(nodes, {"x": (FLOAT, (None, 3))}, constants), {"x": rows})
    assert values_of(imported) == {1: (2, 5, 7)}


def test_rows_of_tables_by_column() -> None:
    """As entity embeddings are exported."""
    nodes = [
        node("Gather", "x zero", "a", axis=1),
        node("Gather", "x one", "b", axis=1),
        node("Gather", "u a", "ea"),
        node("Gather", "v b", "eb"),
        node("Concat", "ea eb n", "c", axis=1),
        node("Gemm", "c w", "y"),
    ]
    constants = {"zero": 0, "one": 1, "u": floats(4, 3), "v": floats(7, 2), "w": floats(9, 2)}
    proto = mixed(nodes, {"x": (INT64, ("N", 2)), "n": (FLOAT, ("N", 4))}, constants)
    inputs = {"x": np.stack([whole(4, 20), whole(7, 20)], axis=1), "n": floats(20, 4)}
    imported = check(proto, inputs)
    assert values_of(imported) == {0: range(4), 1: range(7)}


def test_one_table_of_several_columns() -> None:
    nodes = [
        node("Add", "x offsets", "i"),
        node("Gather", "t i", "e"),
        node("Flatten", "e", "f"),
        node("Gemm", "f w", "y"),
    ]
    constants = {"offsets": [0, 3, 5], "t": floats(9, 4), "w": floats(12, 2)}
    inputs = {"x": np.stack([whole(3, 20), whole(2, 20), whole(4, 20)], axis=1)}
    imported = check(mixed(nodes, {"x": (INT64, ("N", 3))}, constants), inputs)
    assert values_of(imported) == {0: range(9), 1: range(6), 2: range(4)}


@pytest.mark.parametrize("batch", ["N", 1])
def test_words(batch: Any) -> None:
    nodes = [node("Gather", "t x", "e"), node("Add", "e p", "a"), node("ReduceMean", "a", "y", axes=[1], keepdims=0)]
    proto = mixed(nodes, {"x": (INT64, (batch, 6))}, {"t": floats(11, 4), "p": floats(6, 4)})
    imported = check(proto, {"x": whole(11, 20, 6)})
    # A series stays one: each position has the indicators of all words.
    assert imported.input_shape == (6, 11)


def test_one_index_for_each_image() -> None:
    proto = mixed(
        [node("Gather", "t x", "e"), node("Gemm", "e w", "y")],
        {"x": (INT64, ("N",))},
        {"t": floats(5, 3), "w": floats(3, 2)},
    )
    assert check(proto, {"x": whole(5, 20)}).inputs == {"x": (1,)}


def test_keras_moves_indices_below_zero() -> None:
    nodes = [
        node("Cast", "x", "f", to=FLOAT),
        node("Less", "f zero", "l"),
        node("Add", "x rows", "a"),
        node("Where", "l a x", "i"),
        node("Gather", "t i", "e"),
        node("Flatten", "e", "d"),
        node("Gemm", "d w", "y"),
    ]
    constants = {"zero": np.float32(0), "rows": np.int64(5), "t": floats(5, 2), "w": floats(6, 2)}
    check(mixed(nodes, {"x": (INT64, ("N", 3))}, constants), {"x": whole(5, 20, 3)})


@pytest.mark.parametrize("depth", [np.int64(4), np.array([4]), np.array([4], np.int32)])
@pytest.mark.parametrize("opset", [11, 17])
def test_one_hot(opset: int, depth: Any) -> None:
    nodes = [node("OneHot", "x depth values", "o", axis=-1), node("Flatten", "o", "f"), node("Gemm", "f w", "y")]
    constants = {"depth": depth, "values": np.array([0, 1], np.float32), "w": floats(8, 2)}
    imported = check(mixed(nodes, {"x": (INT64, ("N", 2))}, constants, opset), {"x": whole(4, 20, 2)})
    # Others are from the end, or nowhere.
    for other in (4, -1):
        with pytest.raises(InputError, match=f"is {other} in row 0"):
            encoded(imported, {"x": np.array([[other, 1]])})


def test_one_hot_as_jax_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes follow from the batch, and a table of zeros and ones may be larger than others."""
    monkeypatch.setattr(categories, "MOST_TABLE", 20)
    monkeypatch.setattr(categories, "MOST_AT_ONCE", 16)
    nodes = [
        node("Reshape", "x column", "r"),
        node("Shape", "x", "s"),
        node("Cast", "s", "s32", to=TensorProto.INT32),
        node("Slice", "s32 zero one zero", "n"),
        node("Concat", "n sizes", "m", axis=0),
        node("Cast", "m", "shape", to=INT64),
        node("Expand", "r shape", "u"),
        node("Equal", "u range", "e"),
        node("Cast", "e", "c", to=FLOAT),
        node("Flatten", "c", "f"),
        node("Gemm", "f w", "y"),
    ]
    constants = {
        "column": np.array([-1, 2, 1]),
        "zero": np.array([0]),
        "one": np.array([1]),
        "sizes": np.array([2, 4], np.int32),
        "range": np.arange(4).reshape(1, 1, 4),
        "w": floats(8, 2),
    }
    proto = mixed(nodes, {"x": (INT64, ("N", 2))}, constants)
    check(proto, {"x": whole(4, 20, 2)})
    monkeypatch.setattr(categories, "MOST_INDICATORS", 20)
    with pytest.raises(UnsupportedModelError, match="takes a table of 4 x 8 numbers"):
        import_onnx(proto)


def test_one_hot_by_comparison() -> None:
    """As PyTorch's newer exporter writes it."""
    nodes = [
        node("Unsqueeze", "x last", "u"),
        node("Equal", "u range", "e"),
        node("Cast", "e", "c", to=FLOAT),
        node("Flatten", "c", "f"),
        node("Gemm", "f w", "y"),
    ]
    constants = {"last": [-1], "range": [0, 1, 2, 3], "w": floats(8, 2)}
    check(mixed(nodes, {"x": (INT64, ("N", 2))}, constants), {"x": whole(4, 20, 2)})


def test_what_others_have_is_added() -> None:
    """Of a value that is compared with one alone, all others are alike."""
    nodes = [
        node("Equal", "x two", "e"),
        node("Not", "e", "n"),
        node("Cast", "n", "c", to=FLOAT),
        node("Mul", "c weights", "m"),
        node("Gemm", "m w", "y"),
    ]
    constants = {"two": np.int64(2), "weights": floats(3), "w": floats(3, 2)}
    imported = check(mixed(nodes, {"x": (INT64, ("N", 3))}, constants), {"x": whole(5, 30, 3)})
    assert imported.encoded is not None
    assert {each.others for each in imported.encoded.categories.each} == {"alike"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoded(imported, {"x": whole(5, 30, 3)})


def attention(number: float = -np.inf, *, is_filled: bool = False, factor: float = 1.0) -> onnx.ModelProto:
    """Attention over words, of which 0 stands for none and is left out: its scores are a mask's number more, or that
    number (`is_filled`, as `masked_fill` writes it), and multiplied by a factor then."""
    added = [node("Where", "n none some", "m"), node("Unsqueeze", "m one", "u"), node("Add", "s u", "a")]
    filled = [node("Unsqueeze", "n one", "u"), node("Where", "u none s", "a")]
    nodes = [
        node("Gather", "t x", "e"),
        node("Equal", "x zero", "n"),
        node("Transpose", "e", "et", perm=[0, 2, 1]),
        node("MatMul", "e et", "g"),
        node("Div", "g factor", "s"),
        *(filled if is_filled else added),
        node("Mul", "a factor", "f"),
        node("Softmax", "f", "p", axis=-1),
        node("MatMul", "p e", "v"),
        node("ReduceMean", "v", "y", axes=[1], keepdims=0),
    ]
    constants = {
        "t": floats(9, 4),
        "zero": np.int64(0),
        "none": np.float32(number),
        "some": np.float32(0),
        "one": [1],
        "factor": np.float32(factor),
    }
    return mixed(nodes, {"x": (INT64, ("N", 6))}, constants)


def padded(count: int) -> np.ndarray:
    words = 1 + whole(8, count, 6)
    words[np.arange(6) >= RANDOM.integers(2, 7, count)[:, None]] = 0
    return words


def test_padding_is_left_out() -> None:
    imported = check(attention(), {"x": padded(20)})
    assert imported.input_shape == (6, 9)


@pytest.mark.parametrize("number", [-np.inf, -1e9, -1e4])
def test_padding_that_is_filled_is_left_out(number: float) -> None:
    check(attention(number, is_filled=True), {"x": padded(20)})


@pytest.mark.parametrize("is_filled", [False, True])
@pytest.mark.parametrize("factor", [1 / 8, 1 / 30, 8.0])
def test_masks_before_a_factor_leave_out(factor: float, is_filled: bool) -> None:
    check(attention(-1e9, is_filled=is_filled, factor=factor), {"x": padded(20)})


def test_masks_whose_shape_is_read_leave_out() -> None:
    """Exporters read the sizes of scores."""
    proto = attention(-1e9, is_filled=True)
    place = next(at for at, each in enumerate(proto.graph.node) if "p" in each.output) + 1
    more = [node("Shape", "a", "sizes"), node("Reshape", "p sizes", "q")]
    nodes = [*proto.graph.node[:place], *more, *proto.graph.node[place:]]
    for each in nodes:
        if each.op_type == "MatMul" and each.input[0] == "p":
            each.input[0] = "q"
    copies = [onnx.NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del proto.graph.node[:]
    proto.graph.node.extend(copies)
    check(proto, {"x": padded(20)})


def test_masks_that_others_read_too_stay_as_they_are() -> None:
    """A number far below zero is one where no Softmax alone reads it."""
    nodes = [
        node("Equal", "x zero", "n"),
        node("Where", "n none some", "m"),
        node("Gather", "t x", "e"),
        node("Flatten", "e", "f"),
        node("Gemm", "f v", "s"),
        node("Add", "s m", "a"),
        node("Softmax", "a", "p", axis=-1),
        node("Gemm", "a w", "g"),
        node("Add", "p g", "y"),
    ]
    constants = {"zero": np.int64(0), "none": np.float32(-2000), "some": np.float32(0), "t": floats(5, 2)}
    constants |= {"v": floats(4, 2), "w": floats(2, 2) / 1000}
    check(mixed(nodes, {"x": (INT64, ("N", 2))}, constants), {"x": whole(5, 30, 2)})


def test_a_mask_that_is_a_number_too() -> None:
    """As of sentences: means of words by the mask that their attention has."""
    nodes = [
        node("Gather", "t x", "e"),
        node("ReduceSum", "e last", "scores", keepdims=0),
        node("Cast", "mask", "truths", to=BOOL),
        node("Where", "truths some none", "m"),
        node("Add", "scores m", "a"),
        node("Softmax", "a", "p", axis=-1),
        node("Cast", "mask", "numbers", to=FLOAT),
        node("ReduceSum", "numbers last", "count"),
        node("Mul", "p numbers", "weighted"),
        node("Concat", "weighted count", "y", axis=1),
    ]
    constants = {"t": floats(9, 4), "last": [-1], "none": np.float32(-1e9), "some": np.float32(0)}
    proto = mixed(nodes, {"x": (INT64, ("N", 6)), "mask": (INT64, ("N", 6))}, constants)
    words = padded(20)
    imported = check(proto, {"x": words, "mask": (words > 0).astype(np.int64)})
    with pytest.raises(InputError, match=r"x\[:, 6\] is"):
        encoded(imported, {"x": words, "mask": words})


def test_inputs_of_truths() -> None:
    nodes = [
        node("Not", "flag", "n"),
        node("Where", "n some none", "m"),
        node("Add", "scores m", "a"),
        node("Softmax", "a", "p", axis=-1),
        node("Cast", "flag", "numbers", to=FLOAT),
        node("Mul", "p numbers", "y"),
    ]
    constants = {"none": np.float32(-1e9), "some": np.float32(0)}
    proto = mixed(nodes, {"scores": (FLOAT, ("N", 4)), "flag": (BOOL, ("N", 4))}, constants)
    rng = np.random.default_rng(7)
    flags = rng.integers(0, 2, (20, 4)) > 0
    flags[:, 0] = False
    check(proto, {"scores": rng.standard_normal((20, 4)).astype(np.float32), "flag": flags})


def test_masks_of_a_network_whose_batch_moves() -> None:
    """torch.nn.MultiheadAttention has the batch second."""
    nodes = [
        node("Transpose", "x", "xt", perm=[1, 0, 2]),
        node("MatMul", "xt w", "q"),
        node("Transpose", "q", "qb", perm=[1, 0, 2]),
        node("Transpose", "q", "kb", perm=[1, 2, 0]),
        node("MatMul", "qb kb", "s"),
        node("Where", "mask none some", "m"),
        node("Unsqueeze", "m one", "u"),
        node("Add", "s u", "a"),
        node("Softmax", "a", "p", axis=-1),
        node("MatMul", "p qb", "v"),
        node("ReduceMean", "v", "y", axes=[1], keepdims=0),
    ]
    rng = np.random.default_rng(3)
    constants = {
        "w": 0.3 * rng.standard_normal((4, 4)).astype(np.float32),
        "none": np.float32(-np.inf),
        "some": np.float32(0),
        "one": [1],
    }
    proto = mixed(nodes, {"x": (FLOAT, ("N", 5, 4)), "mask": (BOOL, ("N", 5))}, constants)
    masks = rng.integers(0, 2, (20, 5)) > 0
    masks[:, 0] = False
    check(proto, {"x": rng.standard_normal((20, 5, 4)).astype(np.float32), "mask": masks})


def test_masks_before_a_last_logarithm_are_refused() -> None:
    """Logarithms of masked places are results."""
    nodes = [
        node("Where", "mask none scores", "s"),
        node("LogSoftmax", "s", "l", axis=-1),
        node("Neg", "l", "y"),
    ]
    proto = mixed(nodes, {"scores": (FLOAT, ("N", 4)), "mask": (BOOL, ("N", 4))}, {"none": np.float32(-1e9)})
    with pytest.raises(UnsupportedModelError, match="Where"):
        import_onnx(proto)


def test_texts_of_truths(tmp_path: Path) -> None:
    """As pandas writes them."""
    nodes = [node("Cast", "b", "f", to=FLOAT), node("Concat", "a f", "c", axis=1), node("Gemm", "c w", "y")]
    proto = mixed(nodes, {"a": (FLOAT, ("N", 1)), "b": (BOOL, ("N", 1))}, {"w": floats(2, 1)})
    truths = [True, False, True]
    (tmp_path / "rows.csv").write_text("a,b\n" + "".join(f"0.5,{truth}\n" for truth in truths))
    table = read_table(tmp_path / "rows.csv", categories=[1]).values
    wanted = by_file(proto, {"a": np.full((3, 1), 0.5, np.float32), "b": np.array(truths)[:, None]})
    np.testing.assert_allclose(pronghorn.load(proto).run_float(table), wanted, rtol=1e-5)


# What is no category, beside those that are.

BESIDE = {
    "clip": [node("Clip", "n low high", "c")],
    "least": [node("Min", "n high", "c")],
    "square": [node("Mul", "n n", "c")],
    "shift": [node("Sub", "n high", "c")],
}


@pytest.mark.parametrize("name", BESIDE)
def test_numbers_beside_categories_are_computed_with(name: str) -> None:
    """Operators of whole numbers that leave some of them as they are."""
    nodes = [
        node("Gather", "x first", "k", axis=1),
        node("Gather", "x second", "n", axis=1),
        node("Gather", "t k", "e"),
        *BESIDE[name],
        node("Cast", "c", "f", to=FLOAT),
        node("Unsqueeze", "f second2", "u"),
        node("Concat", "e u", "a", axis=1),
        node("Gemm", "a w", "y"),
    ]
    constants = {"first": np.int64(0), "second": np.int64(1), "second2": [1], "t": floats(4, 3), "w": floats(4, 2)}
    constants |= {"low": np.int64(0), "high": np.int64(5)}
    imported = check(
        mixed(nodes, {"x": (INT64, ("N", 2))}, constants), {"x": np.stack([whole(4, 40), whole(60, 40)], 1)}
    )
    assert list(values_of(imported)) == [0]


@pytest.mark.parametrize("sparse", ["Equal", "OneHotEncoder"])
@pytest.mark.parametrize("kind", ["Greater", "Mod", "Clip", "int8"])
def test_others_that_are_told_apart_are_refused(sparse: str, kind: str) -> None:
    """Values beyond the categories have no end: no trial of some tells that all are alike."""
    told = {
        "Greater": [node("Greater", "x twelve", "t")],
        "Mod": [node("Mod", "x twelve", "m"), node("Equal", "m six", "t")],
        "Clip": [node("Clip", "x six twelve", "m"), node("Equal", "m twelve", "t")],
        "int8": [node("Cast", "x", "m", to=TensorProto.INT8), node("Cast", "six", "s", to=TensorProto.INT8),
                 node("Equal", "m s", "t")],
    }  # fmt: skip
    compared = [node("Equal", "x zero", "q"), node("Cast", "q", "o", to=FLOAT)]
    listed = [
        node("OneHotEncoder", "x", "h", cats_int64s=[0, 6], zeros=1, domain=ML),
        node("Reshape", "h row", "o"),
    ]
    nodes = [
        *(compared if sparse == "Equal" else listed),
        *told[kind],
        node("Cast", "t", "f", to=FLOAT),
        node("Concat", "o f", "a", axis=1),
        node("ReduceSum", "a axis", "y", keepdims=0),
    ]
    constants = {"zero": np.int64(0), "six": np.int64(6), "twelve": np.int64(12), "row": [-1, 4], "axis": [1]}
    with pytest.raises(UnsupportedModelError):
        import_onnx(mixed(nodes, {"x": (INT64, ("N", 2))}, constants))


def test_others_of_narrow_inputs_are_what_they_are() -> None:
    """No value of a byte stands beyond it."""
    nodes = [
        node("Equal", "x last", "q"),
        node("Equal", "x first", "r"),
        node("Or", "q r", "t"),
        node("Cast", "t", "f", to=FLOAT),
        node("Gemm", "f w", "y"),
    ]
    constants = {"last": np.uint8(255), "first": np.uint8(0), "w": floats(3, 2)}
    kind = TensorProto.UINT8
    values = np.array([[255, 0, 1], [3, 255, 255], [0, 7, 254]], np.uint8)
    check(mixed(nodes, {"x": (kind, ("N", 3))}, constants), {"x": values})


def test_quotients_of_whole_numbers_beside_categories_are_refused() -> None:
    """The file cuts them off."""
    nodes = [
        node("Gather", "t k", "e"),
        node("Flatten", "e", "f"),
        node("Div", "n ten", "q"),
        node("Cast", "q", "c", to=FLOAT),
        node("Concat", "f c", "a", axis=1),
        node("Gemm", "a w", "y"),
    ]
    constants = {"t": floats(4, 2), "ten": np.int64(10), "w": floats(3, 2)}
    with pytest.raises(UnsupportedModelError, match="Div"):
        import_onnx(mixed(nodes, {"k": (INT64, ("N", 1)), "n": (INT64, ("N", 1))}, constants))
    # So they are beside other inputs.
    del nodes[:2]
    nodes[2] = node("Concat", "k c", "a", axis=1)
    constants["w"] = floats(2, 2)
    with pytest.raises(UnsupportedModelError, match="Div"):
        import_onnx(mixed(nodes, {"k": (FLOAT, ("N", 1)), "n": (INT64, ("N", 1))}, constants))


def test_a_text_that_is_compared_beside_its_encoder() -> None:
    nodes = [
        node("OneHotEncoder", "x", "o", cats_strings=["a", "b"], zeros=1, domain=ML),
        node("Equal", "x mark", "e"),
        node("Cast", "e", "f", to=FLOAT),
        node("Reshape", "o row", "r"),
        node("Concat", "r f", "c", axis=1),
        node("Gemm", "c w", "y"),
    ]
    constants = {"mark": np.array("?", object), "row": [-1, 2], "w": floats(3, 2)}
    check(mixed(nodes, {"x": (TEXT, (None, 1))}, constants, 19), {"x": texts(["a", "b", "?"], 20, 1)})


@pytest.mark.parametrize("default", [{"default_int64": -1}, {"default_int64": 7}, {}])
def test_others_have_the_default_of_an_encoder_that_says_one(default: dict[str, int]) -> None:
    """As `OrdinalEncoder(handle_unknown="use_encoded_value")` of scikit-learn is exported."""
    nodes = [
        node("LabelEncoder", "x", "k", keys_strings=["a", "b", "c"], values_int64s=[0, 1, 2], domain=ML, **default),
        node("Cast", "k", "f", to=FLOAT),
        node("Gemm", "f w", "y"),
    ]
    proto = mixed(nodes, {"x": (TEXT, (None, 2))}, {"w": floats(2, 2)})
    rows = {"x": texts(["a", "b", "c", "?"], 20, 2)}
    if default:
        with pytest.warns(InputWarning, match="no category that the model knows: a, b, c"):
            check(proto, rows)
        return
    with pytest.raises(InputError, match="no category that the model knows"):
        check(proto, rows)


def test_texts_that_are_filled_in_before_their_encoder() -> None:
    """As a SimpleImputer of texts is exported."""
    nodes = [
        node("Equal", "x none", "e"),
        node("Where", "e fill x", "z"),
        node("OneHotEncoder", "z", "o", cats_strings=["?", "a", "b"], zeros=1, domain=ML),
        node("Reshape", "o row", "r"),
        node("Gemm", "r w", "y"),
    ]
    constants = {"none": np.array("", object), "fill": np.array("?", object), "row": [-1, 3], "w": floats(3, 2)}
    rows = {"x": texts(["a", "b", "?", "", "zzz"], 30, 1)}
    with pytest.warns(InputWarning, match="no category that the model knows"):
        check(mixed(nodes, {"x": (TEXT, (None, 1))}, constants, 19), rows)


@pytest.mark.parametrize("opset", [17, 18])
def test_sums_of_indicators_of_one_value(opset: int) -> None:
    """As `OneHotEncoder(min_frequency=)` is exported: what is rare has one indicator."""
    nodes = [
        node("OneHotEncoder", "x", "o", cats_strings=["a", "b", "c", "d"], zeros=1, domain=ML),
        node("Reshape", "o row", "r"),
        node("Gather", "r often", "f", axis=1),
        node("Gather", "r rarely", "g", axis=1),
        node("ReduceSum", "g axis", "s"),
        node("Concat", "f s", "c", axis=1),
        node("Gemm", "c w", "y"),
    ]
    constants = {"row": [-1, 4], "often": [0, 2], "rarely": [1, 3], "axis": [1], "w": floats(3, 2)}
    imported = check(mixed(nodes, {"x": (TEXT, (None, 1))}, constants, opset), {"x": texts(list("abcd"), 20, 1)})
    assert {each["op"]["kind"] for each in json.loads(imported.graph_json)["nodes"]} == {"input", "dense"}


def test_tables_of_few_nodes_may_be_too_large() -> None:
    nodes = [node("OneHot", "x depth values", "o", axis=-1), node("Flatten", "o", "f"), node("ReduceSum", "f", "y")]
    constants = {"depth": np.int64(20_000), "values": np.array([0, 1], np.float32)}
    with pytest.raises(UnsupportedModelError, match="20000 x 20000"):
        import_onnx(mixed(nodes, {"x": (INT64, ("N", 1))}, constants))


def test_numbers_of_64_bits_are_exact() -> None:
    large = (2**53 + 1, 6148914691236517205)
    category = Category(0, large, "refused")
    assert category.find(np.array(large), "x").tolist() == [0, 1]
    assert category.find(np.array(large, object), "x").tolist() == [0, 1]
    assert category.find(np.array([f"{number}.0" for number in large], object), "x").tolist() == [0, 1]
    with pytest.raises(InputError):
        category.find(np.array(["12e3456789"], object), "x")
    with pytest.raises(InputError):
        category.find(np.array([2**53]), "x")


def test_long_numbers_of_tables_are_exact(tmp_path: Path) -> None:
    """Account numbers beyond those that floats hold, beside floats and alone, as numbers and as texts."""
    accounts = [10**17 + count for count in range(4)]
    nodes = [
        node("OneHotEncoder", "account", "o", cats_int64s=accounts, zeros=0, domain=ML),
        node("Reshape", "o row", "r"),
        node("Concat", "r amount", "a", axis=1),
        node("Gemm", "a w", "y"),
    ]
    proto = mixed(
        nodes, {"account": (INT64, (None, 1)), "amount": (FLOAT, (None, 1))}, {"row": [-1, 4], "w": floats(5, 2)}
    )
    rows = {"account": np.array(accounts)[whole(4, 30)], "amount": floats(30)}
    loaded = pronghorn.load(proto)
    wanted = by_file(proto, {name: values[:, None] for name, values in rows.items()})
    with (tmp_path / "rows.csv").open("w") as file:
        file.write("account,amount\n" + "".join(f"{a},{b}\n" for a, b in zip(*rows.values(), strict=True)))
    table = read_table(tmp_path / "rows.csv", categories=[0]).values
    as_texts = {name: values.astype(str) for name, values in rows.items()}
    for given in (Frame(rows), Frame(as_texts), Frame({**rows, "other": rows["amount"]}), rows, table):
        np.testing.assert_allclose(loaded.run_float(given), wanted, rtol=1e-4, atol=1e-5)


def test_other_models_are_as_they_were() -> None:
    nodes = [node("Gather", "x places", "g", axis=1), node("Gemm", "g w", "y")]
    proto = mixed(nodes, {"x": (FLOAT, ("N", 4))}, {"places": [2, 0], "w": floats(2, 2)})
    imported = import_onnx(proto)
    assert imported.encoded is None
    assert imported.input_shape == (4,)


def test_whole_numbers_beside_categories_stay_numbers() -> None:
    """A column that is shifted is no category, and a layer shifts it."""
    nodes = [
        node("Gather", "t k", "e"),
        node("Flatten", "e", "f"),
        node("Add", "n three", "s"),
        node("Cast", "s", "c", to=FLOAT),
        node("Concat", "f c", "a", axis=1),
        node("Gemm", "a w", "y"),
    ]
    constants = {"t": floats(4, 2), "three": np.int64(3), "w": floats(3, 2)}
    proto = mixed(nodes, {"k": (INT64, ("N", 1)), "n": (INT64, ("N", 1))}, constants)
    imported = check(proto, {"k": whole(4, 20, 1), "n": whole(9, 20, 1)})
    assert list(values_of(imported)) == [0]


@pytest.mark.parametrize("encoder", ["Equal", "OneHotEncoder"])
def test_numbers_that_are_categories_too_are_refused(encoder: str) -> None:
    """A value that is no category would have no number."""
    compared = node("Equal", "x two", "e"), node("Cast", "e", "o", to=FLOAT)
    one_hot = node("OneHotEncoder", "x", "h", cats_int64s=[1, 2], domain=ML), node("Reshape", "h row", "o")
    nodes = [
        *(compared if encoder == "Equal" else one_hot),
        node("Cast", "x", "c", to=FLOAT),
        node("Concat", "o c", "a", axis=1),
        node("Gemm", "a w", "y"),
    ]
    constants = {"two": np.int64(2), "row": [-1, 2], "w": floats(2 if encoder == "Equal" else 3, 2)}
    with pytest.raises(UnsupportedModelError):
        import_onnx(mixed(nodes, {"x": (INT64, ("N", 1))}, constants))
    if encoder == "OneHotEncoder":
        # Where others are refused there is a number for each.
        nodes[0].attribute.append(helper.make_attribute("zeros", 0))
        check(mixed(nodes, {"x": (INT64, ("N", 1))}, constants), {"x": 1 + whole(2, 20, 1)})


@pytest.mark.parametrize(
    ("nodes", "constants", "says"),
    [
        # Texts that nothing encodes.
        ([node("Gather", "x zero", "a", axis=1), node("OneHotEncoder", "a", "y", cats_strings=["u"], domain=ML)],
         {"zero": [0]}, "holds texts that the model does not encode"),
        ([node("Identity", "x", "y")], {}, "no tensor of numbers"),
    ],
)  # fmt: skip
def test_texts_are_refused(nodes: list[onnx.NodeProto], constants: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedModelError, match=says):
        import_onnx(mixed(nodes, {"x": (TEXT, (None, 2))}, constants))


def test_images_that_are_mixed_are_refused() -> None:
    nodes = [
        node("Transpose", "x", "s", perm=[1, 0]),
        node("Gather", "t s", "e"),
        node("ReduceMean", "e", "y", axes=[0]),
    ]
    with pytest.raises(UnsupportedModelError, match="moves the first dimension, the batch"):
        import_onnx(mixed(nodes, {"x": (INT64, ("N", 3))}, {"t": floats(4, 2)}))


def test_large_tables_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pronghorn.onnx.categories.MOST_TABLE", 50)
    nodes = [node("Gather", "t x", "e"), node("Flatten", "e", "f"), node("Gemm", "f w", "y")]
    constants = {"t": floats(20, 2), "w": floats(6, 2)}
    with pytest.raises(UnsupportedModelError, match="take 60 indicators"):
        import_onnx(mixed(nodes, {"x": (INT64, ("N", 3))}, constants))


# Rows of a client.

ROWS = Categories(
    (Category(0, ("a", "b"), "refused"), Category(2, (3, 1), "zeros"), Category(3, range(2), "refused")), (4,)
)


def test_rows_are_encoded_and_decoded() -> None:
    rows = np.array([["b", 0.5, 1, 0], ["a", -2, 3, 1]], object)
    found = ROWS.encode(rows, (7,), "x")
    np.testing.assert_array_equal(found, [[0, 1, 0.5, 0, 1, 1, 0], [1, 0, -2, 1, 0, 0, 1]])
    decoded = ROWS.decode(found)
    assert decoded is not None
    assert decoded.tolist() == rows.tolist()
    assert ROWS.names_of(["k", "n", "g", "i"]) == ("k=a", "k=b", "n", "g=3", "g=1", "i=0", "i=1")
    plan = {"categories": json.loads(ROWS.to_json()), "steps": [{"value": {"shape": [7]}}]}
    assert Categories.of_plan(plan) == ROWS


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (["c", 0, 3, 0], r"'k' of x is 'c' in row 1, which is no category that the model knows: a, b"),
        ([None, 0, 3, 0], r"'k' of x is None in row 1"),
        (["a", "tall", 3, 0], r"'n' of x is 'tall' in row 1, which is no number"),
        (["a", np.nan, 3, 0], r"'n' of x is nan in row 1: fill in missing values first"),
        (["a", 0, "x", 0], r"'g' of x is 'x' in row 1, which is no number"),
        (["a", 0, 3, 2], r"'i' of x is 2 in row 1, which is no category that the model knows: 0 to 1"),
        (["a", 0, 3, 0.5], r"'i' of x is 0.5 in row 1, and categories there are whole numbers"),
        (["a", 0, 2.5, 0], r"'g' of x is 2.5 in row 1, and categories there are whole numbers"),
    ],
)
def test_what_is_no_category_is_named(row: list[Any], says: str) -> None:
    rows = np.array([["a", 0, 3, 0], row], object)
    with pytest.raises(InputError, match=says):
        ROWS.encode(rows, (7,), "x", ["k", "n", "g", "i"])


def test_unknown_categories_count_as_none() -> None:
    with pytest.warns(
        InputWarning, match=r"'g' of x has in 2 rows a value that is no category .*: 3, 1; the first is 8"
    ):
        found = ROWS.encode(np.array([["a", 0, 8, 0], ["a", 0, 9, 0]], object), (7,), "x", ["k", "n", "g", "i"])
    assert not found[:, 3:5].any()


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of a hostile server, whose categories would take all memory."""
    monkeypatch.setattr("pronghorn._categories.MOST_ENCODED", 100)
    with pytest.raises(InputError, match="at most 14 rows at once"):
        ROWS.encode(np.array([["a", 1, 3, 0]] * 20, object), (7,), "x")


def test_spaces_beside_texts_do_not_matter() -> None:
    category = Category(0, (" Private", "State"), "refused")
    found = category.find(np.array(["Private", " Private", "State ", "State"], object), "x")
    assert found.tolist() == [0, 0, 1, 1]
    # Where they tell two apart, they do.
    two = Category(0, ("a", " a"), "refused")
    assert two.find(np.array(["a", " a"], object), "x").tolist() == [0, 1]
    with pytest.raises(InputError):
        two.find(np.array(["a "], object), "x")


# From a file to the result.


@pytest.mark.parametrize("trust", ["two-party", "client-aided", "encrypted"])
def test_clients_send_rows_of_categories(trust: str) -> None:
    samples = table(200)
    loaded = pronghorn.load(pipeline(), samples=samples)
    assert loaded.input_shape == (4,)
    plan = loaded.plan(trust)
    assert plan.input_shape == (4,)
    assert "categories: 3 of job, 2 of town, 3 of kind" in str(plan)
    inputs = table(6)
    with (
        pronghorn.serve(loaded, listen="127.0.0.1:0", trust=trust) as server,
        pronghorn.connect(server.address, trust) as client,
    ):
        assert client.categories == loaded.categories
        assert client.input_shape == (4,)
        found = client.predict({name: values[:, 0] for name, values in reversed(inputs.items())})
        with pytest.raises(InputError, match="'town' of inputs is 'C' in row 0"):
            client.predict({**inputs, "town": np.full((6, 1), "C", object)})
    wanted = by_file(pipeline_of(loaded), inputs)
    assert np.sqrt(np.square(found - wanted).mean()) < 0.05 * wanted.std()
    report = loaded.verify(inputs, trust=trust, secure=False)
    assert report.images == 6


def pipeline_of(loaded: pronghorn.Model) -> onnx.ModelProto:
    encoded = loaded._imported.encoded
    assert encoded is not None
    return encoded.original


def test_a_wrong_table_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import is compared with the file on rows as their owner has them."""
    # Its weights tell the categories well apart.
    monkeypatch.setitem(globals(), "RANDOM", np.random.default_rng(4))
    one_of = categories._one_of
    monkeypatch.setattr(categories, "_one_of", lambda found: None if one_of(found) is None else 0)
    loaded = pronghorn.load(pipeline(), samples=table(60))
    with pytest.raises(UnsupportedModelError, match="differs from onnxruntime's"):
        loaded.plan()


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_words_are_predicted(trust: str) -> None:
    loaded = pronghorn.load(attention(), samples=padded(64))
    inputs = padded(40)
    report = loaded.verify(inputs, trust=trust, secure=False)
    assert report.relative_error < 0.1
    secure = loaded.verify(inputs[:4], trust=trust)
    assert secure.disagreements == 0


def test_the_command_line_reads_categories(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(pipeline().SerializeToString())
    rows = table(80)
    names = ["kind", "job", "extra", "town", "age"]
    columns = {**rows, "extra": floats(80, 1)}
    lines = [",".join(str(columns[name][at, 0]) for name in names) for at in range(80)]
    (tmp_path / "t.csv").write_text("\n".join([",".join(names), *lines]))
    np.savez(
        tmp_path / "t.npz",
        **{name: values.astype(str) if values.dtype == object else values for name, values in rows.items()},
    )
    found = {}
    for name in ("t.csv", "t.npz"):
        ask = ["verify", str(tmp_path / "m.onnx"), "--data", str(tmp_path / name), "--no-secure", "--json"]
        result = CliRunner().invoke(app, ask)
        assert result.exit_code == 0, result.output
        found[name] = json.loads(result.stdout)
    assert found["t.csv"]["relative_error"] == pytest.approx(found["t.npz"]["relative_error"], abs=1e-4)
    ask = ["verify", str(tmp_path / "m.onnx"), "--data", str(tmp_path / "t.csv"), "--no-secure", "--scale", "255"]
    assert "are for pictures, and the model takes categories" in CliRunner().invoke(app, ask).output


def test_three_parties_take_numbers_alone() -> None:
    loaded = pronghorn.load(pipeline(), samples=table(40))
    with pytest.raises(PlanError, match="take numbers alone"):
        _multikey_plan.MultiKeyPlan(loaded)


def coded(default: float) -> onnx.ModelProto:
    """As scikit-learn exports an OrdinalEncoder beside a number, before a logistic regression."""
    codes: dict[str, Any] = {"keys_strings": ["a", "b", "c", "d"], "values_floats": [0.0, 1.0, 2.0, 3.0]}
    nodes = [
        node("LabelEncoder", "k", "e", **codes, default_float=default, domain=ML),
        node("Concat", "e x", "j", axis=1),
        node("Gemm", "j w b", "s"),
        node("Sigmoid", "s", "y"),
    ]
    constants = {"w": np.array([[0.5], [1.0]], np.float32), "b": np.array([-0.7], np.float32)}
    return mixed(nodes, {"k": (TEXT, ("N", 1)), "x": (FLOAT, ("N", 1))}, constants)


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
@pytest.mark.parametrize("default", [-1.0, 9.0])
def test_categories_that_no_sample_has_are_within_ranges(default: float, trust: str) -> None:
    """Others, too, where the encoder has a code for them: no layer clamps what it makes of them."""
    network = pronghorn.load(coded(default), samples={"k": texts(["a", "b"], 200, 1), "x": floats(200, 1)})
    rows = {"k": np.array([["a"], ["c"], ["d"], ["?"]], object), "x": np.zeros((4, 1), np.float32)}
    wanted = 1 / (1 + np.exp(0.7 - 0.5 * np.array([0, 2, 3, default])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        with pronghorn.serve(network, "127.0.0.1:0", trust) as server:
            found = pronghorn.connect(server.address, trust).classify(rows).outputs
    np.testing.assert_allclose(found[:, -1], wanted, atol=0.01)


def test_samples_are_made_of_few_with_many_categories() -> None:
    categories = Categories((Category(0, range(1000), "refused"), Category(1, (5, 7), "zeros")), (3,))
    samples = categories.encode(np.array([[3, 5, 1.5], [4, 5, 2.5]], object), (1003,), "x")
    made = categories.lacking(samples)
    assert len(made) == 256
    # Each has a number of a sample, and one category more.
    assert set(made[:, -1].tolist()) == {1.5, 2.5}
    assert (made[:, :1000].sum(axis=1) == 1).all()
    assert not made[-1, 1000:1002].any()
    assert made[-2, 1000:1002].tolist() in ([0.0, 1.0], [1.0, 0.0])


def test_padding_that_no_sample_has_is_made() -> None:
    """At the end of a text, or at its start."""
    categories = Categories(tuple(Category(place, range(6), "refused") for place in range(4)), (4,))
    samples = categories.encode(2 + whole(4, 30, 4), (24,), "x")
    words = categories.lacking(samples).reshape(-1, 4, 6).argmax(axis=2)
    padded = {tuple(row) for row in (words == 0).tolist()}
    assert {(False, False, True, True), (False, True, True, True), (True, True, True, False)} <= padded


def embedded(draw: np.random.Generator, words: int, used: float, others: float) -> pronghorn.Model:
    """A network on an embedding, of which samples have the first five words: sizes of these and of all others."""
    embedding = draw.standard_normal((words, 6)).astype(np.float32)
    embedding[:5] *= used
    embedding[5:] *= others
    nodes = [
        node("Gather", "t x", "e", axis=0),
        node("Squeeze", "e one", "v"),
        node("Gemm", "v w", "h"),
        node("Relu", "h", "r"),
        node("Gemm", "r last", "y"),
    ]
    weights = {"w": draw.standard_normal((6, 16)), "last": draw.standard_normal((16, 2))}
    constants = {name: weight.astype(np.float32) for name, weight in weights.items()}
    proto = mixed(nodes, {"x": (INT64, ("N", 1))}, {"t": embedding, "one": [1], **constants})
    return pronghorn.load(proto, samples=draw.integers(0, 5, (100, 1)))


def test_made_samples_tell_no_errors() -> None:
    """Embeddings of words that nobody uses are large: errors are those of the words that samples have."""
    draw = np.random.default_rng(8)
    loaded = embedded(draw, 200, 0.1, 20)
    expected = loaded.plan("two-party").expected_error
    assert expected.images <= 100
    found = loaded.verify(draw.integers(0, 5, (60, 1)), trust="two-party", secure=False, outputs="values")
    assert found.relative_error < 1.5 * expected.aim


def test_categories_that_are_far_beyond_the_others_are_told() -> None:
    """The plan is for those that samples have, and says so."""
    loaded = embedded(np.random.default_rng(9), 50, 1, 1e5)
    with pytest.warns(PrecisionWarning, match="no sample has lead to values far beyond"):
        expected = loaded.plan("two-party").expected_error
    assert expected.is_near


def test_categories_that_no_sample_has_leave_numbers_their_margin() -> None:
    """Rows that are made for them are no samples: that the largest number is in several of these says nothing."""
    draw = np.random.default_rng(1)
    nodes = [
        node("OneHotEncoder", "k", "h", domain=ML, cats_int64s=list(range(60)), zeros=1),
        node("Reshape", "h flat", "hot"),
        node("Concat", "x hot", "joined", axis=1),
        node("MatMul", "joined w", "y"),
    ]
    weights = draw.standard_normal((63, 1)) * np.repeat([1, 0.2], [3, 60])[:, None]
    constants = {"flat": np.array([-1, 60]), "w": weights.astype(np.float32)}
    proto = mixed(nodes, {"k": (INT64, ("N", 1)), "x": (FLOAT, ("N", 3))}, constants)

    def rows(count: int) -> Inputs:
        return {"k": draw.integers(0, 20, (count, 1)), "x": draw.exponential(size=(count, 3)).astype(np.float32)}

    loaded = pronghorn.load(proto, samples=rows(40))
    found = loaded.verify(rows(2000), trust="two-party", secure=False, outputs="values")
    assert found.relative_error < 0.04


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_the_mean_of_a_texts_words_is_one_of_their_counts(trust: str) -> None:
    """Clients encrypt a count of each word, in place of an indicator for each place: whole numbers, and exact."""
    draw = np.random.default_rng(13)
    nodes = [
        node("Gather", "t x", "e", axis=0),
        node("ReduceMean", "e", "m", axes=[1], keepdims=0),
        node("Gemm", "m w", "h"),
        node("Relu", "h", "r"),
        node("MatMul", "r last", "y"),
    ]
    shapes = {"t": (500, 8), "w": (8, 8), "last": (8, 1)}
    constants = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    proto = mixed(nodes, {"x": (INT64, ("N", 32))}, constants)
    texts = np.minimum(draw.zipf(1.3, (200, 32)), 499)
    loaded = pronghorn.load(proto, samples=texts[:100])
    plan = loaded.plan(trust)
    before, *_ = str(plan).partition("dense 500 to 8")
    assert "sum-pool, locally" in before, before
    assert json.loads(plan.to_json())["steps"][0]["value"]["fraction_bits"] == 0
    found = loaded.verify(texts[100:], trust=trust, secure=False, outputs="values")
    assert found.relative_error < 0.1
