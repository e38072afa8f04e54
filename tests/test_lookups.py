"""Tables that are looked up by counts, and masks that follow from the input, as text encoders have them."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper

import pronghorn
from helpers import mixed, model, node, run_native, run_onnx
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import ImportedModel, import_onnx

INT64, FLOAT, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
WORDS, LENGTH, WIDTH = 9, 6, 4
PAD = 1


def random() -> np.random.Generator:
    return np.random.default_rng(37)


def floats(*shape: int) -> np.ndarray:
    return random().standard_normal(shape).astype(np.float32)


def texts(count: int) -> np.ndarray:
    """Words, and behind some of them, before or between them, padding."""
    words = random().integers(2, WORDS, (count, LENGTH))
    words[random().random((count, LENGTH)) < 0.3] = PAD
    words[:, 2] = 3
    return words


POSITIONS = [
    node("Equal", "ids pad", "is_pad"),
    node("Not", "is_pad", "is_word"),
    node("Cast", "is_word", "word", to=TensorProto.INT32),
    node("CumSum", "word one", "counted"),
    node("Mul", "counted word", "place"),
    node("Cast", "place", "longer", to=INT64),
    node("Add", "longer pad", "index"),
]
"""RoBERTa's: words are counted, and padding has a place of its own."""


def encoder(behind: list[NodeProto], **constants: np.ndarray) -> onnx.ModelProto:
    used = {name for each in [*POSITIONS, *behind] for name in each.input}
    known = {
        "pad": np.int64(PAD),
        "one": np.int64(1),
        "words": floats(WORDS, WIDTH),
        "table": floats(LENGTH + 2, WIDTH),
        "column": floats(LENGTH + 2),
        "zeros": np.zeros((1, 40), np.int64),
        "types": floats(2, WIDTH),
        "images": np.array([0]),
        "forty": np.array([40]),
        "axis": np.array([1]),
        "last": np.array([-1]),
        "w": floats(WIDTH, 3),
        **constants,
    }
    nodes = [*POSITIONS, *behind]
    return mixed(nodes, {"ids": (INT64, ("N", LENGTH))}, {name: each for name, each in known.items() if name in used})


def encoded(imported: ImportedModel, words: np.ndarray) -> np.ndarray:
    assert imported.encoded is not None
    return imported.encoded.categories.encode(words.astype(object), imported.input_shape, "x")


def by_file(proto: onnx.ModelProto, *inputs: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [each.name for each in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))[0]


LOOKED_UP = {
    "rows": [
        node("Gather", "words ids", "a"),
        node("Gather", "table index", "b"),
        node("Add", "a b", "c"),
        node("ReduceMean", "c", "m", axes=[1], keepdims=0),
        node("MatMul", "m w", "y"),
    ],
    "numbers": [
        node("Gather", "column index", "b"),
        node("Gather", "words ids", "a"),
        node("ReduceMean", "a", "m", axes=[2], keepdims=0),
        node("Add", "m b", "y"),
    ],
    "one number": [
        node("Shape", "index", "sizes"),
        node("Gather", "sizes images", "count"),
        node("Concat", "count forty", "size", axis=0),
        node("Expand", "zeros size", "wide"),
        node("GatherElements", "wide index", "kind", axis=1),
        node("Gather", "types kind", "k"),
        node("Gather", "words ids", "a"),
        node("Add", "a k", "c"),
        node("ReduceMean", "c", "m", axes=[1], keepdims=0),
        node("MatMul", "m w", "y"),
    ],
}


@pytest.mark.parametrize("name", LOOKED_UP)
@pytest.mark.parametrize("opset", [13, 17])
def test_tables_by_counts(name: str, opset: int) -> None:
    """As the file does, of several images at once, and securely."""
    proto, words = encoder(LOOKED_UP[name]), texts(40)
    proto.opset_import[0].version = opset
    expected = by_file(proto, words)
    imported = import_onnx(proto)
    found = run_native(imported, encoded(imported, words))
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=2e-4, atol=2e-5)
    report = pronghorn.load(proto, samples=words[:30]).verify(words[30:])
    assert report.disagreements == 0
    assert report.relative_error < 0.05


def test_counts_of_comparisons_look_up() -> None:
    nodes = [
        node("Greater", "x zero", "c"),
        node("Cast", "c", "d", to=INT64),
        node("ReduceSum", "d axis", "n", keepdims=0),
        node("Gather", "table n", "y"),
    ]
    constants = {"zero": np.float32(0), "axis": np.array([1]), "table": floats(7, 3)}
    proto, inputs = model(nodes, ("N", 6), constants), floats(60, 6)
    expected = run_onnx(proto, inputs)
    found = run_native(import_onnx(proto), inputs)
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=2e-4, atol=2e-5)
    report = pronghorn.load(proto, samples=inputs[:40]).verify(inputs[40:])
    assert report.disagreements == 0
    assert report.relative_error < 0.05


COUNTED = [
    node("Greater", "x zero", "c"),
    node("Cast", "c", "d", to=INT64),
    node("ReduceSum", "d axis", "n", keepdims=1),
]


@pytest.mark.parametrize(
    "behind",
    [
        # Numbers below zero count rows from the end.
        [node("Sub", "n two", "i"), node("Gather", "table i", "r"), node("Flatten", "r", "y")],
        # A Clip keeps them from that.
        [
            node("Sub", "n two", "i"),
            node("Clip", "i none", "j"),
            node("Gather", "table j", "r"),
            node("Flatten", "r", "y"),
        ],
        # Beyond the places there is none.
        [node("Squeeze", "n axis", "i"), node("OneHot", "i three ends", "h"), node("MatMul", "h w", "y")],
        # A table of whole numbers gives such.
        [node("Gather", "numbers n", "r"), node("Add", "r two", "s"), node("Cast", "s", "y", to=FLOAT)],
        # A Scaler's results are no whole numbers, and comparisons take them as they are.
        [
            node("Scaler", "d", "s", offset=[0.0] * 6, scale=[0.3] * 6, domain="ai.onnx.ml"),
            node("Greater", "s tenth", "g"),
            node("Cast", "g", "y", to=FLOAT),
        ],
    ],
    ids=["from the end", "clipped", "one hot", "numbers", "scaled"],
)
def test_what_counts_become(behind: list[NodeProto]) -> None:
    nodes, random_ = [*COUNTED, *behind], random()
    constants = {
        "zero": np.float32(0),
        "axis": np.array([1]),
        "two": np.int64(2),
        "tenth": np.float32(0.1),
        "none": np.int64(0),
        "three": np.int64(3),
        "ends": np.array([0, 1], np.float32),
        "w": floats(3, 2),
        "table": floats(7, 3),
        "numbers": np.array([3, 1, 4, 1, 5, 9, 2]),
    }
    used = {name for each in nodes for name in each.input}
    proto = model(nodes, ("N", 6), {name: each for name, each in constants.items() if name in used})
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    inputs = random_.standard_normal((60, 6)).astype(np.float32) - 1
    expected, found = run_onnx(proto, inputs), run_native(import_onnx(proto), inputs)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("behind", "says"),
    [
        ([node("Gather", "numbers n", "r"), node("Div", "r two", "s"), node("Cast", "s", "y", to=FLOAT)], "cuts off"),
        ([node("Cast", "c", "e", to=TensorProto.UINT8), node("Sub", "e one8", "s"), node("Cast", "s", "y", to=FLOAT)],
         "may overflow"),
        ([node("Cast", "n", "e", to=TensorProto.INT8), node("Cast", "e", "y", to=FLOAT)], "cast of a value to INT8"),
        ([node("ReduceLogSum", "n", "s", axes=[1]), node("Cast", "s", "y", to=FLOAT)], "cuts off"),
    ],
)  # fmt: skip
def test_what_whole_numbers_do_otherwise_is_refused(behind: list[NodeProto], says: str) -> None:
    nodes = [*COUNTED, *behind]
    constants = {
        "zero": np.float32(0),
        "axis": np.array([1]),
        "two": np.int64(2),
        "one8": np.uint8(1),
        "numbers": np.array([3, 1, 4, 1, 5, 9, 2]),
    }
    used = {name for each in nodes for name in each.input}
    with pytest.raises(UnsupportedModelError, match=says):
        import_onnx(model(nodes, ("N", 6), {name: each for name, each in constants.items() if name in used}))


@pytest.mark.parametrize("name", ["r/differences", "r/bounds", "table/rows/differences"])
def test_names_of_a_look_up_are_its_own(name: str) -> None:
    """A tensor of the file may have the name that the look-up's would get."""
    nodes = [*COUNTED, node("Gather", "table n", "r"), node("Flatten", "r", "f"), node("Add", f"f {name}", "y")]
    constants = {"zero": np.float32(0), "axis": np.array([1]), "table": floats(7, 3), name: floats(6, 3)[:1]}
    proto, inputs = model(nodes, ("N", 6), constants), floats(60, 6)
    expected, found = run_onnx(proto, inputs), run_native(import_onnx(proto), inputs)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("table", ["table", "large"])
def test_other_indices_are_refused(table: str) -> None:
    """Of numbers that are no counts, and in large tables."""
    nodes = [node("MatMul", "x w", "h"), node("Cast", "h", "n", to=INT64), node("Gather", "table n", "y")]
    if table == "large":
        nodes = [
            node("Greater", "x zero", "c"),
            node("Cast", "c", "n", to=INT64),
            node("Gather", "large n", "y"),
        ]
    constants = {"zero": np.float32(0), "w": floats(6, 6), "table": floats(7, 3), "large": floats(4000, 2)}
    used = {name for each in nodes for name in each.input}
    with pytest.raises(UnsupportedModelError, match=r"looks up rows|INT64"):
        import_onnx(model(nodes, ("N", 6), {name: each for name, each in constants.items() if name in used}))


BY_IMAGE = [
    node("Flatten", "told", "flat", axis=2),
    node("Shape", "a", "shape"),
    node("Gather", "shape first", "images"),
    node("Range", "none images step", "batch"),
    node("Unsqueeze", "batch behind", "batches"),
    node("Mul", "batches length", "starts"),
    node("Add", "starts within", "places"),
    node("Gather", "flat places", "found"),
    node("Reshape", "found row", "mask"),
    node("Cast", "mask", "kept", to=BOOL),
]
"""`mask[batch, place]`, as PyTorch's exporter writes it: of the flat mask of all images."""

SHARES = [
    node("Softmax", "scores", "shares", axis=-1),
    node("MatMul", "shares a", "v"),
    node("ReduceMean", "v", "m", axes=[1], keepdims=0),
    node("MatMul", "m w", "y"),
]

MASKED = {
    "added": [
        node("Where", "kept zero_score infinite", "added"),
        node("Add", "raw added", "scores"),
    ],
    "filled": [
        node("Where", "kept raw lowest", "scores"),
    ],
}


@pytest.mark.parametrize("name", MASKED)
def test_masks_of_images(name: str) -> None:
    """A mask that is looked up by image and place, and what it leaves of attention."""
    nodes = [
        node("Cast", "mask_in", "told", to=BOOL),
        node("Gather", "words ids", "a"),
        node("Transpose", "a", "t", perm=[0, 2, 1]),
        node("MatMul", "a t", "raw"),
        *BY_IMAGE,
        *MASKED[name],
        *SHARES,
    ]
    constants = {
        "words": floats(WORDS, WIDTH),
        "first": np.int64(0),
        "none": np.int64(0),
        "step": np.int64(1),
        "behind": np.array([1]),
        "length": np.int64(LENGTH),
        "within": np.arange(LENGTH),
        "row": np.array([-1, 1, LENGTH]),
        "zero_score": np.float32(0),
        "infinite": np.float32(-np.inf),
        "lowest": np.float32(np.finfo(np.float32).min),
        "w": floats(WIDTH, 3),
    }
    used = {each for one in nodes for each in one.input}
    known = {name: each for name, each in constants.items() if name in used}
    inputs = {"ids": (INT64, ("N", LENGTH)), "mask_in": (INT64, ("N", LENGTH))}
    proto = mixed(nodes, inputs, known)
    words = texts(40)
    mask = (words != PAD).astype(np.int64)
    expected = by_file(proto, words, mask)
    loaded = pronghorn.load(proto, samples={"ids": words[:30], "mask_in": mask[:30]})
    rest = {"ids": words[30:], "mask_in": mask[30:]}
    np.testing.assert_allclose(loaded.run_float(rest), expected[30:], rtol=2e-4, atol=2e-5)
    report = loaded.verify(rest)
    assert report.disagreements == 0
    assert report.relative_error < 0.05
    assert any(each["op"]["kind"] == "step" for each in json.loads(import_onnx(proto).graph_json)["nodes"]) is False


@pytest.mark.parametrize("shift", [0, -1])
def test_places_from_the_end_are_those_of_other_images(shift: int) -> None:
    """`flat[T * image + shift]`: below zero it is a place of the last image."""
    nodes = [
        node("Relu", "x", "r"),
        node("Flatten", "r", "flat", axis=2),
        node("Shape", "x", "shape"),
        node("Gather", "shape first", "images"),
        node("Range", "first images step", "batch"),
        node("Mul", "batch length", "starts"),
        node("Add", "starts shift", "places"),
        node("Gather", "flat places", "found"),
        node("MatMul", "found w", "y"),
    ]
    constants = {
        "first": np.int64(0),
        "step": np.int64(1),
        "length": np.int64(LENGTH),
        "shift": np.int64(shift),
        "w": floats(1, 2),
    }
    proto = model(nodes, ("N", LENGTH), constants)
    if shift < 0:
        with pytest.raises(UnsupportedModelError, match="batch"):
            import_onnx(proto)
    else:
        inputs = floats(5, LENGTH)
        expected, found = run_onnx(proto, inputs), run_native(import_onnx(proto), inputs)
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


def test_places_of_other_images_are_refused() -> None:
    """Each image has places of its own: those of the first for all are none."""
    nodes = [
        node("Greater", "x zero", "c"),
        node("Flatten", "c", "flat", axis=2),
        node("Gather", "flat within", "found"),
        node("Reshape", "found row", "kept"),
        node("Cast", "kept", "y", to=FLOAT),
    ]
    constants = {"zero": np.float32(0), "within": np.arange(LENGTH), "row": np.array([-1, LENGTH])}
    with pytest.raises(UnsupportedModelError, match="batch"):
        import_onnx(model(nodes, ("N", LENGTH), constants))
