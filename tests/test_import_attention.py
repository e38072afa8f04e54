"""Attention: products of computed matrices, and models whose batch moves, which are found to keep images apart."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import pronghorn
from helpers import check, model, node, run_native, run_onnx
from pronghorn import UnsupportedModelError
from pronghorn.onnx import apart, import_onnx, importer
from pronghorn.onnx.apart import keeps_apart, mixes
from pronghorn.onnx.reading import read

SEED = 5


class Numbers:
    """Random numbers of one test alone: bounds of errors are to hold in any order of tests."""

    random = np.random.default_rng(SEED)


@pytest.fixture(autouse=True)
def own_numbers() -> None:
    """Each test begins with the same numbers."""
    Numbers.random = np.random.default_rng(SEED)


def floats(*shape: int) -> np.ndarray:
    """Random float32 numbers around zero."""
    return Numbers.random.standard_normal(shape).astype(np.float32)


STEPS, WIDTH, HEADS = 6, 8, 2
SIZES = {
    "heads": np.array([0, STEPS, HEADS, WIDTH // HEADS]),
    "back": np.array([0, STEPS, WIDTH]),
    # Steps first, and the batch merged with the heads, as torch.nn.MultiheadAttention has them.
    "merged": np.array([STEPS, -1, WIDTH // HEADS]),
    "joined": np.array([STEPS, -1, WIDTH]),
}
WEIGHTS = {name: floats(WIDTH, WIDTH) / np.float32(np.sqrt(WIDTH)) for name in ("wq", "wk", "wv", "wo")}
CONSTANTS = {**SIZES, **WEIGHTS, "half": np.float32(0.5), "last": floats(WIDTH, 3)}


def network(nodes: list[NodeProto], batch: str | int = "N") -> ModelProto:
    nodes = [*nodes, node("Add", "p x", "r"), node("ReduceMean", "r", "m", axes=[1], keepdims=0)]
    nodes.append(node("MatMul", "m last", "y"))
    used = {name for each in nodes for name in each.input}
    return model(nodes, (batch, STEPS, WIDTH), {name: array for name, array in CONSTANTS.items() if name in used})


def scored(proto: ModelProto) -> None:
    """Names a network's result `z`, and its last node after it, as each name is of one node alone."""
    proto.graph.node[-1].output[0], proto.graph.node[-1].name = "z", "node_z"


def batch_first(scores: str = "half") -> list[NodeProto]:
    """As scaled_dot_product_attention is exported."""
    made = []
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        made += [node("MatMul", f"x w{name}", f"{name}0"), node("Reshape", f"{name}0 heads", f"{name}1")]
        made.append(node("Transpose", f"{name}1", name, perm=perm))
    return [
        *made,
        node("MatMul", "q k", "s0"),
        node("Mul", f"s0 {scores}", "s"),
        node("Softmax", "s", "a", axis=-1),
        node("MatMul", "a v", "o1"),
        node("Transpose", "o1", "o2", perm=[0, 2, 1, 3]),
        node("Reshape", "o2 back", "o"),
        node("MatMul", "o wo", "p"),
    ]


def steps_first() -> list[NodeProto]:
    """As torch.nn.MultiheadAttention is exported: the batch moves behind the steps, and is merged with the heads."""
    made = [node("Transpose", "x", "t", perm=[1, 0, 2])]
    for name, perm in (("q", [1, 0, 2]), ("k", [1, 2, 0]), ("v", [1, 0, 2])):
        made += [node("MatMul", f"t w{name}", f"{name}0"), node("Reshape", f"{name}0 merged", f"{name}1")]
        made.append(node("Transpose", f"{name}1", name, perm=perm))
    return [
        *made,
        node("MatMul", "q k", "s0"),
        node("Mul", "s0 half", "s"),
        node("Softmax", "s", "a", axis=-1),
        node("MatMul", "a v", "o1"),
        node("Transpose", "o1", "o2", perm=[1, 0, 2]),
        node("Reshape", "o2 joined", "o"),
        node("MatMul", "o wo", "p0"),
        node("Transpose", "p0", "p", perm=[1, 0, 2]),
    ]


FORMS = {"batch first": batch_first(), "steps first": steps_first()}


@pytest.mark.parametrize("batch", ["N", 1])
@pytest.mark.parametrize("form", FORMS)
def test_attention_is_imported(form: str, batch: str | int) -> None:
    proto = network(FORMS[form], batch)
    imported = check(proto)
    assert imported.free_batch == (batch == "N")
    if batch == "N":
        images = floats(5, STEPS, WIDTH)
        wanted = run_onnx(proto, images).reshape(5, -1)
        np.testing.assert_allclose(run_native(imported, images).reshape(5, -1), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
@pytest.mark.parametrize("form", FORMS)
def test_attention_equals_the_oracle(form: str, trust: str) -> None:
    loaded = pronghorn.load(network(FORMS[form]), samples=floats(48, STEPS, WIDTH))
    held_out = floats(48, STEPS, WIDTH)
    assert loaded.verify(held_out[:2], trust=trust).disagreements == 0
    scored = loaded.verify(held_out, trust=trust, secure=False)
    aim = loaded.plan(trust).expected_error.aim
    assert max(scored.expected_error, scored.relative_error) < 1.5 * aim


def wide(steps: int = 32, width: int = 32) -> ModelProto:
    """Attention whose products take fewer bytes under encryption than by oblivious transfer."""
    nodes = [
        node("MatMul", "x wq", "q"),
        node("Transpose", "x", "k", perm=[0, 2, 1]),
        node("MatMul", "q k", "s"),
        node("Softmax", "s", "a", axis=-1),
        node("MatMul", "a x", "o"),
        node("ReduceMean", "o", "m", axes=[1], keepdims=0),
        node("MatMul", "m last", "y"),
    ]
    constants = {"wq": floats(width, width) / np.float32(width), "last": floats(width, 3)}
    return model(nodes, ("N", steps, width), constants)


def test_large_products_are_encrypted() -> None:
    loaded = pronghorn.load(wide(), samples=floats(32, 32, 32))
    plan = str(loaded.plan("two-party"))
    assert plan.count("product of matrices under encryption") == 2
    assert loaded.verify(floats(3, 32, 32), trust="two-party").disagreements == 0
    assert "product of matrices by the client" in str(loaded.plan("client-aided"))
    assert loaded.verify(floats(3, 32, 32), trust="client-aided").disagreements == 0


def test_prepared_products_are_encrypted() -> None:
    loaded = pronghorn.load(wide(), samples=floats(32, 32, 32))
    images = floats(2, 32, 32)
    with (
        pronghorn.serve(loaded, "127.0.0.1:0", "two-party") as server,
        pronghorn.connect(server.address, prepare=0) as client,
    ):
        wanted = client.predict(images)
        client.prepare(2)
        np.testing.assert_array_equal(client.predict(images), wanted)


KEPT = np.tril(np.ones((STEPS, STEPS), bool))
MASKS = {
    "added": ([node("Add", "s mask", "masked")], {"mask": np.where(KEPT, 0, -np.inf).astype(np.float32)}),
    "large": ([node("Add", "mask s", "masked")], {"mask": np.where(KEPT, 0, -1e9).astype(np.float32)}),
    "chosen": ([node("Where", "kept s low", "masked")], {"kept": KEPT, "low": np.float32(-np.inf)}),
    "two numbers": (
        [node("Where", "kept s lows", "masked")],
        {"kept": KEPT, "lows": np.where(np.arange(STEPS) == STEPS - 1, 0.5, -np.inf).astype(np.float32)},
    ),
    "left out": ([node("Where", "out low s", "masked")], {"out": ~KEPT, "low": np.float32(-1e9)}),
}


@pytest.mark.parametrize("form", MASKS)
def test_masked_attention(form: str) -> None:
    """As causal attention and a constant mask are exported: later steps tell nothing of earlier ones."""
    masking, constants = MASKS[form]
    nodes = []
    for each in batch_first():
        if each.output[0] == "a":
            nodes += [*masking, node("Softmax", "masked", "a", axis=-1)]
        else:
            nodes.append(each)
    proto = network(nodes)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    check(proto)
    loaded = pronghorn.load(proto, samples=floats(48, STEPS, WIDTH))
    report = loaded.verify(floats(48, STEPS, WIDTH), secure=False)
    assert max(report.expected_error, report.relative_error) < 0.03
    assert loaded.verify(floats(2, STEPS, WIDTH)).disagreements == 0


FAR = np.where(KEPT, 0, -np.inf).astype(np.float32)
LARGE = np.maximum(FAR, np.float32(-1e9))
EARLY = np.where(np.arange(STEPS) < 4, 0, -1e9).astype(np.float32)
SOFTMAX = node("Softmax", "m", "a", axis=-1)
LEAST = np.finfo(np.float32).min
Form = tuple[list[NodeProto], dict[str, np.ndarray]]
FORMS_OF_MASKS: dict[str, Form] = {
    "added": ([node("Add", "s mask", "m"), SOFTMAX], {"mask": FAR}),
    "subtracted": ([node("Sub", "s mask", "m"), SOFTMAX], {"mask": -LARGE}),
    "before the scaling": ([node("Add", "s mask", "u"), node("Mul", "u eighth", "m"), SOFTMAX], {"mask": FAR}),
    "before a division": ([node("Where", "kept s low", "u"), node("Div", "u eight", "m"), SOFTMAX], {}),
    "in two": ([node("Add", "s mask", "u"), node("Add", "u early", "m"), SOFTMAX], {"mask": FAR, "early": EARLY}),
    "in one sum": ([node("Sum", "s mask early eighth", "m"), SOFTMAX], {"mask": LARGE, "early": EARLY}),
    "of two values": (
        [node("Add", "s mask", "u"), node("Add", "s early", "w"), node("Add", "u w", "m"), SOFTMAX],
        {"mask": FAR, "early": EARLY},
    ),
    "bounded": (
        [node("Add", "s mask", "u"), node("Max", "u least", "m"), SOFTMAX],
        {"mask": np.where(KEPT, 0, LEAST).astype(np.float32), "least": LEAST},
    ),
    "clipped": ([node("Add", "s mask", "u"), node("Clip", "u low", "m"), SOFTMAX], {"mask": FAR}),
    "just a mask": ([node("Add", "s mask", "m"), SOFTMAX], {"mask": np.maximum(FAR, np.float32(-9984))}),
    "moved": (
        [
            node("Add", "s mask", "u"),
            node("Transpose", "u", "w", perm=[0, 2, 1]),
            node("Unsqueeze", "w one", "m"),
            node("Softmax", "m", "b", axis=2),
            node("Squeeze", "b one", "c"),
            node("Transpose", "c", "a", perm=[0, 2, 1]),
        ],
        {"mask": FAR, "one": np.array([1])},
    ),
    "sliced": (
        [node("Add", "s mask", "u"), node("Slice", "u back end_of last_axis back", "m"), SOFTMAX],
        {"mask": FAR, "back": np.array([-1]), "end_of": np.array([-STEPS - 1]), "last_axis": np.array([2])},
    ),
    "gathered": (
        [node("Add", "s mask", "u"), node("Gather", "u order", "m", axis=2), SOFTMAX],
        {"mask": LARGE, "order": np.array([3, 0, 5, 4, 1, 2])},
    ),
    "split": (
        [
            node("Add", "s mask", "u"),
            node("Split", "u", "u1 u2", axis=1),
            node("Softmax", "u1", "a1", axis=-1),
            node("Softmax", "u2", "a2", axis=-1),
            node("Concat", "a2 a1", "a", axis=1),
        ],
        {"mask": LARGE},
    ),
    "repeated": (
        [
            node("Slice", "s first second axis", "row_of"),
            node("Add", "row_of early", "u"),
            node("Expand", "u square", "w"),
            node("Tile", "w twice", "m"),
            node("Softmax", "m", "b", axis=-1),
            node("Slice", "b first steps axis2", "a"),
        ],
        {name: np.array([number]) for name, number in (("first", 0), ("second", 1), ("axis", 1), ("steps", STEPS))}
        | {"early": EARLY, "square": np.array([1, STEPS, STEPS]), "twice": np.array([1, 1, 2]), "axis2": np.array([2])},
    ),
    "behind one another": (
        [
            node("Add", "s mask", "u"),
            node("Concat", "u s fixed", "m", axis=2),
            node("Softmax", "m", "b", axis=-1),
            node("Slice", "b first steps last_axis", "a"),
        ],
        {
            **{name: np.array([number]) for name, number in (("first", 0), ("steps", STEPS), ("last_axis", 2))},
            **{"mask": FAR, "fixed": np.ones((1, STEPS, 1), np.float32)},
        },
    ),
    "by two": (
        [
            node("Add", "s mask", "m"),
            node("Softmax", "m", "b", axis=1),
            node("Softmax", "m", "c", axis=2),
            node("Add", "b c", "a"),
        ],
        {"mask": LARGE},
    ),
    "also read": (
        [
            node("Add", "s mask", "m"),
            node("Relu", "m", "r"),
            node("Softmax", "m", "b", axis=2),
            node("Add", "b r", "a"),
        ],
        {"mask": np.maximum(FAR, np.float32(-2e3))},
    ),
    "no numbers become zeros": (
        [
            node("Add", "s mask", "m"),
            node("Softmax", "m", "b", axis=-1),
            node("IsNaN", "b", "n"),
            node("Where", "n zero b", "a"),
        ],
        {"mask": np.where(np.arange(STEPS)[:, None] == 2, -np.inf, FAR).astype(np.float32), "zero": np.float32(0)},
    ),
    "written out": (
        [
            node("Add", "s mask", "m"),
            node("Exp", "m", "e"),
            node("ReduceSum", "e last_axis", "t", keepdims=1),
            node("Div", "e t", "a"),
        ],
        {"mask": LARGE, "last_axis": np.array([-1])},
    ),
    "written out below the largest": (
        [
            node("Add", "s mask", "m"),
            node("ReduceMax", "m", "l", axes=[-1]),
            node("Sub", "m l", "d"),
            node("Exp", "d", "e"),
            node("ReduceSum", "e last_axis", "t", keepdims=1),
            node("Div", "e t", "a"),
        ],
        {"mask": LARGE, "last_axis": np.array([-1])},
    ),
    "of a logarithm": (
        [node("Add", "s mask", "m"), node("LogSoftmax", "m", "b", axis=-1), node("Exp", "b", "a")],
        {"mask": FAR},
    ),
    "logarithms where they count": (
        [node("Add", "s mask", "m"), node("LogSoftmax", "m", "b", axis=-1), node("Where", "kept b zero", "a")],
        {"mask": FAR, "zero": np.float32(0)},
    ),
    "of a sum": (
        [node("Add", "s mask", "m"), node("ReduceLogSumExp", "m", "l", axes=[2]), node("Sub", "s l", "a")],
        {"mask": FAR},
    ),
    "one left": ([node("Add", "s mask", "m"), SOFTMAX], {"mask": np.where(np.eye(STEPS), 0, -1e9).astype(np.float32)}),
}


def with_scores(nodes: list[NodeProto], constants: dict[str, np.ndarray], gain: float = 1.0) -> ModelProto:
    """Attention of one head whose shares `a` some nodes make of scores `s`."""
    before = [node("MatMul", f"x w{name}", name) for name in "qkv"]
    before += [node("Transpose", "k", "kt", perm=[0, 2, 1]), node("MatMul", "q kt", "s0"), node("Mul", "s0 gain", "s")]
    nodes = [*before, *nodes, node("MatMul", "a v", "o"), node("Reshape", "o row", "f"), node("MatMul", "f all", "y")]
    known = {
        **WEIGHTS,
        "gain": np.float32(gain / np.sqrt(WIDTH)),
        "row": np.array([0, -1]),
        "all": floats(STEPS * WIDTH, 3) / np.float32(STEPS),
        "kept": KEPT,
        "low": np.float32(-1e9),
        "eight": np.float32(8),
        "eighth": np.float32(1 / 8),
        **constants,
    }
    used = {name for each in nodes for name in each.input}
    return model(nodes, ("N", STEPS, WIDTH), {name: array for name, array in known.items() if name in used})


@pytest.mark.parametrize("form", FORMS_OF_MASKS)
def test_masks_leave_places_out(form: str) -> None:
    """Also where scores of masked places are far above the others."""
    gain = 1.0 if form in ("also read", "of a sum", "logarithms where they count") else 12.0
    proto = with_scores(*FORMS_OF_MASKS[form], gain)
    check(proto, inputs=floats(200, STEPS, WIDTH))
    loaded = pronghorn.load(proto, samples=floats(48, STEPS, WIDTH))
    report = loaded.verify(floats(48, STEPS, WIDTH), secure=False)
    assert max(report.expected_error, report.relative_error) < 0.03


LOW = [-1e4, -65504.0, -1e9, np.finfo(np.float32).min, -np.inf]


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("biases", ["distances", "learned"])
def test_masks_with_biases_of_positions(biases: str, low: float) -> None:
    """One constant has both, as optimisers write it."""
    steps = np.arange(STEPS)
    apart = np.abs(steps[:, None] - steps[None]).astype(np.float32)
    added = -0.5 * apart if biases == "distances" else floats(STEPS, STEPS)
    with np.errstate(over="ignore"):
        mask = (added + np.where(steps[:, None] < steps[None], np.float32(low), np.float32(0))).astype(np.float32)
    proto = with_scores([node("Add", "s mask", "m"), node("Softmax", "m", "a", axis=-1)], {"mask": mask}, 1.0)
    check(proto, inputs=floats(100, STEPS, WIDTH))
    loaded = pronghorn.load(proto, samples=floats(48, STEPS, WIDTH))
    report = loaded.verify(floats(48, STEPS, WIDTH), secure=False)
    assert max(report.expected_error, report.relative_error) < 0.03


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("after", ["learned", "half", "padding"])
def test_masks_that_are_added_to(after: str, low: float) -> None:
    """By biases of positions, by a number, and by another mask."""
    steps = np.arange(STEPS)
    low32 = np.float32(low)
    mask = np.where(steps[:, None] < steps[None], low32, np.float32(0))
    padding = np.where(steps >= STEPS - 2, np.float32(max(low, -65504.0)), np.float32(0))
    second = {"learned": floats(STEPS, STEPS), "half": np.float32(0.5), "padding": padding}[after]
    nodes = [node("Add", "s mask", "u"), node("Add", "u second", "m"), node("Softmax", "m", "a", axis=-1)]
    proto = with_scores(nodes, {"mask": mask, "second": second}, 1.0)
    check(proto, inputs=floats(100, STEPS, WIDTH))
    loaded = pronghorn.load(proto, samples=floats(48, STEPS, WIDTH))
    report = loaded.verify(floats(48, STEPS, WIDTH), secure=False)
    assert max(report.expected_error, report.relative_error) < 0.03


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_masks_of_large_scores_equal_the_oracle(trust: str) -> None:
    proto = with_scores(*FORMS_OF_MASKS["added"], gain=12.0)
    loaded = pronghorn.load(proto, samples=floats(48, STEPS, WIDTH))
    assert loaded.verify(floats(2, STEPS, WIDTH), trust=trust).disagreements == 0


ROWS = {
    # Scores leave nothing in the last bit of -1e9.
    "wholly": np.where(np.arange(STEPS)[:, None] == 2, -1e9, LARGE),
    "by numbers that differ": np.where(
        np.arange(STEPS)[:, None] == 2, [-10002, -20000, -10000, -10001, -10003, -10004], 0
    ),
    "at each end": np.where(KEPT, 2000, -2000),
}


@pytest.mark.parametrize("rows", ROWS)
def test_rows_of_summands_far_below_zero(rows: str) -> None:
    """What the summands of a row differ by counts."""
    proto = with_scores([node("Add", "s mask", "m"), SOFTMAX], {"mask": ROWS[rows].astype(np.float32)})
    images = floats(50, STEPS, WIDTH)
    wanted = run_onnx(proto, images).reshape(50, -1)
    # Float32 rounds scores beside -10,000.
    np.testing.assert_allclose(run_native(import_onnx(proto), images), wanted, rtol=1e-3, atol=5e-3)


@pytest.mark.parametrize("form", ["added", "chosen"])
def test_logarithms_of_masked_places_are_their_own(form: str) -> None:
    """Beside -2,000 float32 keeps scores; a place that is chosen away has none."""
    added, chosen = node("Add", "s mask", "m"), node("Where", "kept s low", "m")
    nodes = [added if form == "added" else chosen, node("LogSoftmax", "m", "a", axis=-1)]
    constants = {"mask": np.maximum(FAR, np.float32(-2e3)), "low": np.float32(-2e3)}
    proto = with_scores(nodes, constants)
    images = floats(50, STEPS, WIDTH)
    wanted = run_onnx(proto, images).reshape(50, -1)
    np.testing.assert_allclose(run_native(import_onnx(proto), images), wanted, rtol=1e-5, atol=5e-3)


def test_rows_without_a_place_are_refused() -> None:
    mask = FAR.copy()
    mask[3] = -np.inf
    proto = with_scores([node("Add", "s mask", "m"), SOFTMAX], {"mask": mask})
    with pytest.raises(UnsupportedModelError, match=r"leaves no place of row \[3\][\s\S]*node: node_a"):
        import_onnx(proto)


@pytest.mark.parametrize("shape", [(), (1, 1, 1), (STEPS, 1), (1, 1, 1, 1), (2, 1, 1, 1), (2, 1, 1)])
def test_zeros_in_place_of_no_numbers_keep_the_shape(shape: tuple[int, ...]) -> None:
    nodes = [
        *[node("Add", "s mask", "m"), node("Softmax", "m", "b", axis=-1)],
        *[node("IsNaN", "b", "n"), node("Where", "n zeros b", "a")],
    ]
    proto = with_scores(nodes, {"mask": FAR, "zeros": np.zeros(shape, np.float32)})
    if shape in ((), (1, 1, 1), (STEPS, 1)):
        check(proto)
        return
    with pytest.raises(UnsupportedModelError, match=r"zeros of shape \[[\s\S]*node_a[\s\S]*one zero"):
        import_onnx(proto)


def test_infinite_summands_that_are_read_are_refused() -> None:
    for kind in ("LogSoftmax", "Softmax"):
        nodes = [node("Add", "s mask", "m"), node(kind, "m", "b", axis=-1), node("Add", "b m", "a")]
        with pytest.raises(UnsupportedModelError, match=r"mask holds -inf"):
            import_onnx(with_scores(nodes, {"mask": FAR}))


BEFORE_A_MASK = {
    "bounded": [node("Add", "s early", "u"), node("Neg", "u", "w"), node("Max", "w zero", "n")],
    "by Relu": [node("Sub", "s early", "u"), node("Relu", "u", "w"), node("Mul", "w eighth", "n")],
    "of another value": [node("Sub", "s early", "u"), node("Relu", "u", "w"), node("Add", "w s", "n")],
}


@pytest.mark.parametrize("form", BEFORE_A_MASK)
def test_masks_beside_large_summands_are_refused(form: str) -> None:
    """A place that lies 1e9 above its row would have been masked by the second mask."""
    nodes = [*BEFORE_A_MASK[form], node("Add", "n mask", "m"), SOFTMAX]
    constants = {"early": EARLY, "zero": np.float32(0), "mask": np.maximum(FAR, np.float32(-1e4))}
    with pytest.raises(UnsupportedModelError, match=r"its mask mask is beside \d[\s\S]*node_m[\s\S]*one constant"):
        import_onnx(with_scores(nodes, constants))
    # Without exceeding what a mask tells they are scores like others.
    constants["early"] = np.maximum(EARLY, np.float32(-20))
    check(with_scores(nodes, constants))


def test_masks_that_are_computed() -> None:
    """Of the last feature: 0 leaves a step out."""
    nodes = [
        node("Slice", "x first second last_axis", "counts"),
        node("Transpose", "counts", "row_of", perm=[0, 2, 1]),
        node("Sub", "one row_of", "left"),
        node("Mul", "left times", "mask"),
        node("Add", "s mask", "m"),
        SOFTMAX,
    ]
    places = {name: np.array([number]) for name, number in (("first", 0), ("second", 1), ("last_axis", 2))}
    constants = {**places, "one": np.float32(1)}
    images = floats(64, STEPS, WIDTH)
    images[:, :, 0] = Numbers.random.random((64, STEPS)) < 0.7
    gentle = with_scores(nodes, {**constants, "times": np.float32(-100)})
    report = pronghorn.load(gentle, samples=images).verify(images, secure=False)
    assert report.relative_error < 0.03
    with pytest.raises(UnsupportedModelError, match=r"computed from the model's input[\s\S]*multiply it by 100"):
        import_onnx(with_scores(nodes, {**constants, "times": np.float32(-1e9)}))


MIXING = [
    node("Transpose", "x", "t", perm=[1, 0, 2]),
    node("Transpose", "t", "k", perm=[0, 2, 1]),
    node("MatMul", "t k", "s"),
    node("Softmax", "s", "a", axis=-1),
    node("MatMul", "a t", "o"),
    node("Transpose", "o", "p", perm=[1, 0, 2]),
]
"""Attention among the images of a batch, the batch in the place of the steps."""


@pytest.mark.parametrize("end", ["ArgMax", "Softmax", "Sigmoid"])
@pytest.mark.parametrize("form", ["mixing", "steps first"])
def test_ends_do_not_hide_that_images_are_mixed(form: str, end: str) -> None:
    """Few classes change, and probabilities near 0 and 1 hardly do."""
    nodes = MIXING if form == "mixing" else steps_first()
    proto = network([*nodes])
    scored(proto)
    attributes = {} if end == "Sigmoid" else {"axis": 1}
    last = [node("Mul", "z many", "scores"), node(end, "scores", "y", **attributes)]
    proto.graph.node.extend(last)
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(20), "many"))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64 if end == "ArgMax" else TensorProto.FLOAT
    if form == "mixing":
        with pytest.raises(UnsupportedModelError, match="the batch"):
            import_onnx(proto)
    else:
        assert import_onnx(proto).free_batch


def test_a_small_output_that_mixes_images_is_seen() -> None:
    proto = network([*MIXING])
    scored(proto)
    proto.graph.node.extend([node("Mul", "m big", "l"), node("Concat", "l z", "y", axis=1)])
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(1e5), "big"))
    # The large part keeps images apart.
    mean = next(each for each in proto.graph.node if each.output[0] == "m")
    proto.graph.node.insert(0, node("ReduceMean", "x", "own", axes=[1], keepdims=0))
    scaled = next(each for each in proto.graph.node if each.output[0] == "l")
    scaled.input[0] = "own"
    assert mean.output[0] == "m"
    with pytest.raises(UnsupportedModelError, match="the batch"):
        import_onnx(proto)


def test_models_that_mix_images_are_refused() -> None:
    nodes = MIXING
    with pytest.raises(UnsupportedModelError, match="moves the first dimension, the batch"):
        import_onnx(network(nodes))
    # Of one image alone there is nothing to mix.
    check(network(nodes, 1))


def mixed(source: str, result: str) -> list[NodeProto]:
    """Attention among the images of a batch, on a value of the form of `x`."""
    return [
        node("Transpose", source, f"{result}_t", perm=[1, 0, 2]),
        node("Transpose", f"{result}_t", f"{result}_k", perm=[0, 2, 1]),
        node("MatMul", f"{result}_t {result}_k", f"{result}_s"),
        node("Softmax", f"{result}_s", f"{result}_a", axis=-1),
        node("MatMul", f"{result}_a {result}_t", f"{result}_o"),
        node("Transpose", f"{result}_o", result, perm=[1, 0, 2]),
    ]


HIDDEN = {
    "numbers above 50": [
        node("Sub", "x fifty", "c0"),
        node("Relu", "c0", "c1"),
        node("Mul", "c1 small", "c"),
        *mixed("c", "p"),
    ],
    "roots": [node("Sqrt", "x", "c"), *mixed("c", "p")],
    "logarithms": [node("Log", "x", "c"), *mixed("c", "p")],
    "cubes": [
        *mixed("x", "m"),
        node("Mul", "m tiny", "n"),
        node("Mul", "x x", "square"),
        node("Mul", "n square", "p"),
    ],
    "results above 20": [*mixed("x", "m"), node("Sub", "m twenty", "n"), node("Relu", "n", "p")],
}
"""Parts that mix images, on some inputs alone."""

NUMBERS = {"fifty": 50.0, "twenty": 20.0, "small": 1 / 64, "tiny": 1e-5}


def beside(hidden: list[NodeProto], dtype: int = TensorProto.FLOAT) -> ModelProto:
    """A part beside one that keeps images apart: two outputs, and both in a row."""
    nodes = [
        *hidden,
        node("ReduceMean", "p", "m2", axes=[1], keepdims=0),
        node("MatMul", "m2 last", "y2"),
        node("Cast", "x", "f", to=TensorProto.FLOAT),
        node("ReduceMean", "f", "m1", axes=[1], keepdims=0),
        node("MatMul", "m1 last", "y1"),
        node("Concat", "y1 y2", "y", axis=1),
    ]
    constants = {name: np.float32(number) for name, number in NUMBERS.items()} | {"last": CONSTANTS["last"]}
    return model(nodes, ("N", STEPS, WIDTH), constants, dtype=dtype, outputs=["y", "y1", "y2"])


@pytest.mark.parametrize("output", ["y", ["y1", "y2"]])
@pytest.mark.parametrize("form", HIDDEN)
def test_images_mixed_on_some_inputs_alone(form: str, output: str | list[str]) -> None:
    with pytest.raises(UnsupportedModelError, match="the batch"):
        import_onnx(beside(HIDDEN[form]), output=output)


def test_large_whole_numbers_are_tried() -> None:
    """Beyond those of bytes."""
    scaled = [node("Cast", "x", "g", to=TensorProto.FLOAT), node("Mul", "g small", "g1"), node("Sub", "g1 four", "g2")]
    proto = beside([*scaled, node("Relu", "g2", "c"), *mixed("c", "p")], TensorProto.INT64)
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(4), "four"))
    with pytest.raises(UnsupportedModelError, match="the batch"):
        import_onnx(proto, output="y")


@pytest.mark.parametrize(("last", "output"), [("Sqrt", "y"), ("Relu", ["y1", "y2"])])
def test_outputs_that_tell_nothing_are_refused(last: str, output: str | list[str]) -> None:
    """No numbers on any inputs that are tried, beside others; or zero on all, in an output of its own."""
    proto = beside([*mixed("x", "n"), node("Sub", "n far", "negative"), node(last, "negative", "p")])
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(1e6), "far"))
    with pytest.raises(UnsupportedModelError, match="the batch"):
        import_onnx(proto, output=output)


def words(nodes: list[NodeProto]) -> ModelProto:
    """A model of places in a table of few rows."""
    nodes = [node("Gather", "table x", "e"), *nodes, node("ReduceMean", "p", "m", axes=[1], keepdims=0)]
    constants = {"table": floats(20, WIDTH), "last": CONSTANTS["last"]}
    return model([*nodes, node("MatMul", "m last", "y")], (1, STEPS), constants, dtype=TensorProto.INT64)


def test_places_beyond_a_table_tell_nothing() -> None:
    assert keeps_apart(words([node("Identity", "e", "p")]), {"y": (3,)})
    assert not keeps_apart(words(mixed("e", "p")), {"y": (3,)})


def test_rounding_in_a_batch_mixes_no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of other sizes may round to other results, and far where large numbers cancel."""
    made, offset = apart._runner, 1e6

    def rounding(proto: ModelProto, as_written: bool) -> apart.Run:
        run = made(proto, as_written)
        return lambda images: run(apart.nearby(images) if len(images) > 1 else images)

    monkeypatch.setattr(apart, "_runner", rounding)
    weight = floats(64, 3)
    constants = {"w": weight, "b": (-np.full(64, offset) @ weight).astype(np.float32)}
    images = offset + floats(8, 64)
    scores = [node("Gemm", "x w b", "y")]
    assert not mixes(model(scores, (1, 64), constants), images)
    mean = [node("ReduceMean", "x", "c", axes=[0], keepdims=1), node("Sub", "x c", "d"), node("Gemm", "d w", "y")]
    assert mixes(model(mean, (1, 64), {"w": weight}), images)


def test_inputs_that_run_with_their_last_bits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none beside them can be run, no rounding is known that excuses a difference."""
    made, images = apart._runner, np.rint(8 * floats(8, STEPS, WIDTH))

    def whole(proto: ModelProto, as_written: bool) -> apart.Run:
        run = made(proto, as_written)

        def of_whole(given: apart.Images) -> Sequence[np.ndarray]:
            if (given % 1).any():
                raise ValueError("no place of a table")
            return run(given)

        return of_whole

    monkeypatch.setattr(apart, "_runner", whole)
    assert mixes(network(MIXING), images)
    assert not mixes(network(steps_first()), images)


def test_steps_of_quantised_models_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a batch a value may be rounded up, and alone down."""
    made = apart._runner

    def rounding(proto: ModelProto, as_written: bool) -> apart.Run:
        run = made(proto, as_written)
        return lambda images: run(images + np.float32(3e-3) if len(images) > 1 else images)

    monkeypatch.setattr(apart, "_runner", rounding)
    images = floats(8, STEPS, WIDTH)
    for nodes, is_mixed in ((steps_first(), False), (MIXING, True)):
        rounded = [node("QuantizeLinear", "x0 scale zero", "q8"), node("DequantizeLinear", "q8 scale zero", "x")]
        proto = network([*rounded, *nodes])
        proto.graph.input[0].name = "x0"
        constants = {"scale": np.float32(0.05), "zero": np.int8(0)}
        proto.graph.initializer.extend(
            numpy_helper.from_array(np.array(each), name) for name, each in constants.items()
        )
        assert mixes(proto, images) == is_mixed


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_other_types_need_no_slow_evaluator(dtype: int) -> None:
    """Also before an end of the client's. In a process of its own: onnxruntime may end it."""
    proto = network(steps_first())
    scored(proto)
    proto.graph.node.append(node("Softmax", "z", "y", axis=1))
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(array.astype(kind) if array.dtype.kind == "f" else array, tensor.name))
    for value in (proto.graph.input[0], proto.graph.output[0]):
        value.type.tensor_type.elem_type = dtype
    script = (
        "import sys; from pronghorn.onnx import apart, import_onnx; apart.ReferenceEvaluator = None; "
        "print(import_onnx(sys.stdin.buffer.read()).free_batch)"
    )
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, input=proto.SerializeToString(), capture_output=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, b"True"), run.stderr


def test_samples_tell_that_images_are_mixed() -> None:
    """Also where no made-up inputs do."""
    hidden = [node("Sub", "x far", "c0"), node("Relu", "c0", "c1"), node("Mul", "c1 tiny", "c"), *mixed("c", "p0")]
    proto = network([*hidden, node("Add", "p0 x", "p")])
    numbers = {"far": 1e4, "tiny": 0.1}
    proto.graph.initializer.extend(numpy_helper.from_array(np.float32(value), name) for name, value in numbers.items())
    samples = floats(32, STEPS, WIDTH)
    pronghorn.load(proto, samples=samples).plan(trust="client-aided")
    with pytest.raises(UnsupportedModelError, match="batch of 16 inputs has other results"):
        pronghorn.load(proto, samples=1e4 * (1 + samples)).plan(trust="client-aided")
    # Neither class nor size spares a model that.
    with pytest.raises(UnsupportedModelError, match="mixes images"):
        pronghorn.load(proto, samples=1e4 * (1 + samples), opening="class").plan()


def test_recurrent_networks_that_mix_images_are_refused() -> None:
    """Their batch moves anyway."""
    steps_before = mixed("x", "p")[:-1]
    nodes = [*steps_before, node("RNN", "p_o w r", "o h", hidden_size=WIDTH), node("Squeeze", "h axis", "q")]
    constants = {"w": floats(1, WIDTH, WIDTH), "r": 0.3 * floats(1, WIDTH, WIDTH), "axis": np.array([0])}
    proto = model([*nodes, node("MatMul", "q last", "y")], ("N", STEPS, WIDTH), constants | {"last": CONSTANTS["last"]})
    with pytest.raises(UnsupportedModelError, match="mixes images"):
        pronghorn.load(proto, samples=floats(20, STEPS, WIDTH)).plan()


def test_what_no_batch_is_a_cause_of_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    monkeypatch.setattr(importer, "read", lambda model: (reads.append(model), read(model))[1])
    with pytest.raises(UnsupportedModelError):
        import_onnx(model([node("Det", "x", "y")], ("N", 4, 4)))
    assert len(reads) == 1


def test_images_are_apart_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX's own evaluator tells, too."""
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    assert import_onnx(network(steps_first())).free_batch
    mixing = [node("ReduceMean", "x", "c", axes=[0], keepdims=1), node("Sub", "x c", "p")]
    with pytest.raises(UnsupportedModelError, match="batch"):
        import_onnx(network(mixing))


def test_products_of_other_shapes() -> None:
    """A matrix of one part, and sums of no power of two."""
    check(model([node("Transpose", "x", "t", perm=[0, 2, 1]), node("MatMul", "x t", "y")], ("N", 3, 5)))
    check(model([node("Transpose", "x", "t", perm=[0, 1, 3, 2]), node("MatMul", "t x", "y")], ("N", 2, 3, 5)))
    with pytest.raises(UnsupportedModelError, match="one number of dimensions"):
        import_onnx(
            model([node("ReduceMean", "x", "m", axes=[1], keepdims=0), node("MatMul", "x m", "y")], ("N", 5, 5))
        )


@pytest.mark.parametrize("left_out", [-1e4, -65504, -1e6, -1e9, -np.inf])
def test_one_row_of_attention_has_a_mask(left_out: float) -> None:
    """One query weighs the places that a constant mask keeps."""
    rng = np.random.default_rng(3)
    mask = np.zeros((1, 1, 6), np.float32)
    mask[..., 4:] = left_out
    nodes = [
        node("MatMul", "x q", "c"),
        node("Transpose", "c", "t", perm=[0, 2, 1]),
        node("Add", "t m", "s"),
        node("Softmax", "s", "p", axis=-1),
        node("MatMul", "p x", "y"),
    ]
    constants = {"q": 3 * rng.standard_normal((5, 1)).astype(np.float32), "m": mask}
    samples = rng.standard_normal((64, 6, 5)).astype(np.float32)
    loaded = pronghorn.load(model(nodes, ("N", 6, 5), constants), samples=samples)
    held_out = rng.standard_normal((64, 6, 5)).astype(np.float32)
    assert loaded.verify(held_out, secure=False).relative_error < 0.05
