"""Operators that pick, repeat or move places, compared with onnxruntime, and refused along the batch."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pronghorn
from helpers import check, floats, model, node
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import ImportedModel, import_onnx

IMAGE = (1, 4, 6, 5)
FAR = np.iinfo(np.int64).max


def takes(imported: ImportedModel) -> list[tuple[int, list[int]]]:
    """Axes, batch not counted, and indices of all that is taken."""
    ops = [entry["op"] for entry in json.loads(imported.graph_json)["nodes"]]
    return [(op["axis"], op["indices"]) for op in ops if op["kind"] == "take"]


def integers(**arrays: Any) -> dict[str, np.ndarray]:
    return {name: np.array(array, np.int64) for name, array in arrays.items()}


def one(
    kind: str, inputs: str, constants: dict[str, np.ndarray], opset: int = 17, **attributes: Any
) -> onnx.ModelProto:
    """A model of one operator behind a ReLU."""
    nodes = [node("Relu", "x", "r"), node(kind, inputs, "y", **attributes)]
    return model(nodes, IMAGE, constants, opset=opset)


def refused(proto: onnx.ModelProto) -> str:
    with pytest.raises(UnsupportedModelError) as error:
        import_onnx(proto)
    return str(error.value)


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps", "expected"),
    [
        ([1], [3], [1], [1], [(0, [1, 2])]),
        ([-2], [FAR], [-1], [1], [(2, [3, 4])]),
        ([0, 1], [FAR, FAR], [2, 3], [2, 2], [(1, [0, 2, 4]), (2, [1, 3])]),
        ([-1], [-FAR], [2], [-1], [(1, [5, 4, 3, 2, 1, 0])]),
        ([4], [0], [3], [-3], [(2, [4, 1])]),
        ([0, 0], [FAR, 2], [0, 1], [1, 1], [(0, [0, 1])]),
        ([0, -9, 0], [FAR, 9, 6], [1, 2, 3], [1, 1, 1], []),
    ],
)
def test_slice(starts: list[int], ends: list[int], axes: list[int], steps: list[int], expected: list) -> None:
    constants = integers(s=starts, e=ends, a=axes, t=steps)
    imported = check(one("Slice", "r s e a t", constants))
    assert takes(imported) == expected
    if all(step == 1 for step in steps):
        old = one("Slice", "r", {}, opset=9, starts=starts, ends=ends, axes=axes)
        assert takes(check(old)) == expected


@pytest.mark.parametrize("end", [10**9, 2**31 - 1, FAR])
def test_all_of_a_batch(end: int) -> None:
    """Exporters name the batch's axis, too, with an end beyond all batches."""
    nodes = [node("Slice", "x s e a", "y")]
    constants = integers(s=[0, 0, 1], e=[end, end, 3], a=[0, 1, 2])
    check(model(nodes, ("N", 4, 6, 5), constants))


@given(st.data())
def test_random_slices(data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3, unique=True))
    number = st.integers(-8, 8)
    starts, ends = ([data.draw(number) for _ in axes] for _ in range(2))
    steps = [data.draw(number.filter(bool)) for _ in axes]
    proto = one("Slice", "r s e a t", integers(s=starts, e=ends, a=axes, t=steps))
    if all(range(IMAGE[axis])[s:e:t] for axis, s, e, t in zip(axes, starts, ends, steps, strict=True)):
        check(proto)
    else:
        assert "every dimension must be at least 1" in refused(proto)


@pytest.mark.parametrize(
    ("opset", "attributes", "sizes", "parts"),
    [
        (11, {"axis": 1}, None, [2, 2]),
        (11, {"axis": 2, "split": [1, 5]}, None, [1, 5]),
        (13, {"axis": -1}, [2, 3], [2, 3]),
        (17, {"axis": 2}, None, [3, 3]),
        (18, {"axis": 3, "num_outputs": 2}, None, [3, 2]),
        (18, {"axis": 1}, [3, 1], [3, 1]),
    ],
)
def test_split(opset: int, attributes: dict[str, Any], sizes: list[int] | None, parts: list[int]) -> None:
    """Both parts are used, in the other order; and the second alone."""
    axis = attributes["axis"]
    split = node("Split", "x" if sizes is None else "x s", "a b", **attributes)
    constants = {} if sizes is None else integers(s=sizes)
    nodes = [split, node("Relu", "a", "r"), node("Concat", "b r", "y", axis=axis)]
    imported = check(model(nodes, IMAGE, constants, opset=opset))
    assert [len(indices) for _, indices in takes(imported)] == parts
    check(model([split, node("Relu", "b", "y")], IMAGE, constants, opset=opset))


@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("indices", [1, -1, [0], [3, 0, -2, 3], [[0, 1], [2, -1]], [[2]]])
def test_gather(axis: int, indices: Any) -> None:
    check(one("Gather", "r i", integers(i=indices), axis=axis))


@pytest.mark.parametrize("mode", [None, "DCR", "CRD"])
def test_depth_to_space(mode: str | None) -> None:
    attributes = {} if mode is None else {"mode": mode}
    nodes = [node("Relu", "x", "r"), node("DepthToSpace", "r", "y", blocksize=2, **attributes)]
    imported = check(model(nodes, (1, 12, 3, 2), opset=13))
    assert imported.output_shape == (3, 6, 4)
    assert not takes(imported)


def test_space_to_depth() -> None:
    nodes = [node("Relu", "x", "r"), node("SpaceToDepth", "r", "y", blocksize=3)]
    assert check(model(nodes, (1, 2, 3, 6), opset=13)).output_shape == (18, 1, 2)


COORDINATES = ["asymmetric", "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn"]
ROUNDINGS = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]


@pytest.mark.parametrize("coordinates", [*COORDINATES, "half_pixel_symmetric"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("factors", [(2, 2), (3, 1), (4, 5), (0.5, 2)])
def test_resize(coordinates: str, rounding: str, factors: tuple[float, float]) -> None:
    symmetric = coordinates == "half_pixel_symmetric"
    attributes = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding, "mode": "nearest"}
    opset = 19 if symmetric else 18 if coordinates != "tf_half_pixel_for_nn" else 11
    scales = {"s": np.float32([1, 1, *factors])}
    roi = {"o": np.zeros(0, np.float32)}
    inputs = "r o s" if opset == 11 else "r - s"
    check(one("Resize", inputs, scales | (roi if opset == 11 else {}), opset=opset, **attributes))
    sizes = integers(z=[1, 4, int(6 * factors[0]), int(5 * factors[1])])
    if opset > 11:
        check(one("Resize", "r - - z", sizes, opset=opset, **attributes))


@pytest.mark.parametrize("coordinates", COORDINATES[:3])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("sizes", [(7, 4), (9, 3), (14, 8), (13, 7), (4, 6), (1, 2)])
def test_resize_by_other_factors(coordinates: str, rounding: str, sizes: tuple[int, int]) -> None:
    """Equal to the runtime where no rounding decides a place. From 6 rows to 14 it may."""
    attributes = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    scales = {"s": np.float32([1, 1, sizes[0] / 6, sizes[1] / 5])}
    for resized in [
        one("Resize", "r - - z", integers(z=[1, 4, *sizes]), opset=18, **attributes),
        one("Resize", "r - s", scales, opset=18, **attributes),
    ]:
        refused = ""
        try:
            check(resized)
        except UnsupportedModelError as error:
            refused = str(error)
        assert not refused or "rounding decides" in refused
        assert not (refused and (sizes, rounding, coordinates) == ((7, 4), "floor", "asymmetric"))


def test_resize_of_other_versions() -> None:
    scales = {"s": np.float32([1, 1, 2, 3])}
    assert [len(indices) for _, indices in takes(check(one("Resize", "r s", scales, opset=10)))] == [12, 15]
    check(one("Upsample", "r s", scales, opset=9))
    check(one("Upsample", "r", {}, opset=8, scales=[1.0, 1.0, 2.0, 3.0]))
    axes = {"z": np.array([12], np.int64)}
    check(one("Resize", "r - - z", axes, opset=18, axes=[2]))


@pytest.mark.parametrize("repeats", [[1, 2, 1, 3], [1, 1, 1, 1], [1, 1, 2, 1]])
def test_tile(repeats: list[int]) -> None:
    check(one("Tile", "r t", integers(t=repeats)))


def test_expand() -> None:
    nodes = [node("GlobalAveragePool", "x", "p"), node("Expand", "p s", "y")]
    for shape in ([1, 4, 3, 5], [4, 1, 2], [1], [1, 1, 6, 1]):
        check(model(nodes, IMAGE, integers(s=shape)))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [[0, 0, 1, 2, 0, 0, 3, 0], [0, 2, 0, 0, 0, 3, 0, 4]])
def test_pad_with_places_of_the_image(mode: str, pads: list[int]) -> None:
    check(one("Pad", "r p", integers(p=pads), opset=19, mode=mode))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("pads", [[0, 0, -1, -2, 0, 0, -3, -1], [0, 0, 2, 1, 0, -1, 1, 0]])
def test_cropping_pad(mode: str, pads: list[int]) -> None:
    check(one("Pad", "r p", integers(p=pads), mode=mode))


def test_crop_behind_a_padded_convolution() -> None:
    """What a temporal network does: a causal convolution pads both sides and drops the end."""
    nodes = [
        node("Conv", "x w", "c", dilations=[2], pads=[4, 4]),
        node("Slice", "c s e a", "p"),
        node("Relu", "p", "r"),
        node("Gather", "r i", "y", axis=2),
    ]
    constants = integers(s=[0], e=[-4], a=[2], i=-1)
    imported = check(model(nodes, ("N", 2, 9), {"w": floats(3, 2, 3), **constants}))
    assert imported.output_shape == (3,)


@pytest.mark.parametrize("axes", [[2, 3], [-1], [1], [1, 2, 3]])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
def test_extremes(kind: str, axes: list[int], keep: int, opset: int) -> None:
    if opset < 18:
        check(model([node(kind, "x", "y", axes=axes, keepdims=keep)], IMAGE, opset=opset))
    else:
        check(model([node(kind, "x a", "y", keepdims=keep)], IMAGE, integers(a=axes), opset=opset))


def indexed(before: list[int], after: list[int], indices: np.ndarray) -> onnx.ModelProto:
    """What PyTorch makes of `x[:, :, rows, columns]`."""
    nodes = [
        node("Transpose", "x", "t", perm=before),
        node("GatherND", "t i", "g"),
        node("Transpose", "g", "y", perm=after),
    ]
    return model(nodes, ("N", *IMAGE[1:]), {"i": indices})


@pytest.mark.parametrize(
    ("before", "after", "shape"),
    [
        ([2, 3, 0, 1], [2, 3, 0, 1], (3, 5, 2)),
        ([2, 3, 0, 1], [4, 5, 0, 1, 2, 3], (2, 2, 3, 1, 2)),
        ([3, 2, 1, 0], [2, 0, 1], (4, 2)),
        ([1, 0, 2, 3], [1, 3, 0, 2], (4, 1)),
        ([3, 1, 2, 0], [2, 1, 0], (3, 2, 3)),
    ],
)
def test_several_axes_are_indexed_at_once(before: list[int], after: list[int], shape: tuple[int, ...]) -> None:
    sizes = np.array([IMAGE[axis] for axis in before[: shape[-1]]])
    indices = np.random.default_rng(3).integers(-sizes, sizes, shape)
    check(indexed(before, after, indices))


@pytest.mark.parametrize(
    ("before", "after", "indices", "says"),
    [
        ([2, 3, 0, 1], [1, 2, 0], [[0, 5]], "do not all exist among [6, 5]"),
        ([2, 3, 0, 1], [1, 2, 0], [[0, -6]], "do not all exist among [6, 5]"),
        ([2, 3, 0, 1], [2, 1, 0], [[0, 0, 0]], "the batch"),
        ([2, 3, 0, 1], [0, 1, 2], [[0, 0]], "the batch at place 1"),
        ([2, 3, 0, 1], [1, 0, 2, 3], [[0, 0]], "the batch at place 1"),
    ],
)
def test_indices_that_do_not_fit(before: list[int], after: list[int], indices: list, says: str) -> None:
    assert says in refused(indexed(before, after, np.array(indices)))


def test_an_uneven_adaptive_pooling() -> None:
    """What PyTorch makes of `AdaptiveAvgPool2d((4, 2))` of 6 x 5 places: a mean over windows that overlap."""
    rows = np.array([[0, 1], [1, 2], [3, 4], [4, 5]])
    columns = np.array([[0, 1, 2], [2, 3, 4]])
    indices = np.stack(np.broadcast_arrays(rows[:, :, None, None], columns), -1)
    nodes = [
        node("Transpose", "x", "t", perm=[2, 3, 0, 1]),
        node("GatherND", "t i", "g"),
        node("Transpose", "g", "p", perm=[4, 5, 0, 1, 2, 3]),
        node("ReduceMean", "p", "y", axes=[-3, -1], keepdims=0),
    ]
    assert check(model(nodes, ("N", *IMAGE[1:]), {"i": indices})).output_shape == (IMAGE[1], 4, 2)


@pytest.mark.parametrize(
    ("shape", "axes"), [((1,), [1]), ((2,), [1]), ((5, 3), [2]), ((5, 4), [-1]), ((2, 5, 2), [1, 3])]
)
@pytest.mark.parametrize("keep", [0, 1])
def test_products_of_few_values(shape: tuple[int, ...], axes: list[int], keep: int) -> None:
    check(model([node("ReduceProd", "x", "y", axes=axes, keepdims=keep)], ("N", *shape)))


SCALES = {"s": np.float32([1, 1, 0.5, 2])}

REFUSALS = [
    (one("Slice", "r s e a", integers(s=[2], e=[2], a=[1])), "every dimension"),
    (one("Slice", "r s e a t", integers(s=[2], e=[3], a=[1], t=[0])), "do not fit each other"),
    (one("Slice", "r s e a", integers(s=[2], e=[3], a=[7])), "axis 7"),
    (one("Split", "r z", integers(z=[3]), axis=1), "splits 4 places into"),
    (one("Gather", "r i", integers(i=[0, 0])), "the batch"),
    (one("Gather", "r i", integers(i=4), axis=1), "index 4 does not exist among 4 places"),
    (one("Gather", "r i", {"i": np.float32(1)}, axis=1), "type float32"),
    (one("Tile", "r t", integers(t=[2, 1, 1, 1])), "the batch"),
    (one("Tile", "r t", integers(t=[1, 0, 1, 1])), "every dimension"),
    (one("Expand", "r s", integers(s=[2, 4, 6, 5])), "the batch"),
    (one("Expand", "r s", integers(s=[1, 1, 4, 6, 5])), "behind the batch"),
    (one("Expand", "r s", integers(s=[1, 3, 6, 5])), "does not fit"),
    (
        one(
            "Resize",
            "r - - z",
            integers(z=[1, 4, 14, 5]),
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        "scale 2.33333 along axis 2, rounding decides what place 7 reads",
    ),
    (one("Resize", "r s", SCALES, opset=10), "in several ways"),
    (one("Resize", "r - - z", integers(z=[2, 4, 6, 5])), "the batch"),
    (one("Resize", "r - - z", integers(z=[1, 4, 12, 5]), mode="wide"), "mode wide"),
    (one("Resize", "r - - z", integers(z=[1, 4, 3, 5]), opset=18, mode="linear", antialias=1), "antialias"),
    (one("Resize", "r - - z", integers(z=[1, 8, 12, 5]), mode="linear"), "interpolates along axis 1"),
    (one("Resize", "r - - z", integers(z=[1, 4, 6 << 20, 5]), mode="linear"), "too large"),
    (
        one("Resize", "r - - z", integers(z=[1, 4, 12, 5]), coordinate_transformation_mode="align_corners"),
        "align_corners",
    ),
    (one("DepthToSpace", "r", {}, blocksize=3), "multiple of 3 x 3"),
    (one("SpaceToDepth", "r", {}, blocksize=4), "multiple of 4"),
    (one("Pad", "r p", integers(p=[0, 0, 6, 0, 0, 0, 0, 0]), mode="reflect"), "reflects 6 of 6"),
    (one("Pad", "r p", integers(p=[0, 0, -6, 0, 0, 0, 0, 0])), "every dimension"),
    (one("Pad", "r p", integers(p=[1, 0, 0, 0, 0, 0, 0, 0]), mode="edge"), "the batch"),
    (one("ReduceMax", "r", {}), "the batch"),
    (one("GatherND", "r i", integers(i=[[0, 0]])), "the batch"),
    (one("GatherND", "r i", integers(i=[[0]]), batch_dims=1), "differ between images"),
    (one("ReduceProd", "r", {}, axes=[2, 3]), "multiplies 30 values"),
]


def test_the_only_image_may_be_cut_out() -> None:
    """Where the file fixes the batch at 1."""
    check(one("Slice", "r s e a", integers(s=[0], e=[1], a=[0])))
    check(one("Split", "r", {}))


@pytest.mark.parametrize(("proto", "word"), REFUSALS)
def test_refusals(proto: onnx.ModelProto, word: str) -> None:
    error = refused(proto)
    assert word in error
    assert "node_y" in error


def test_large_results_are_refused_before_they_are_made() -> None:
    for proto in (
        one("Tile", "r t", integers(t=[1, 1 << 40, 1, 1])),
        one("Resize", "r - - z", integers(z=[1, 4, 6 << 40, 5])),
        one("Pad", "r p", integers(p=[0, 0, 1 << 40, 0, 0, 0, 0, 0]), mode="edge"),
    ):
        assert "elements" in refused(proto)


@pytest.mark.parametrize(
    "before",
    [
        node("Conv", "x w", "h"),
        node("Pad", "x p", "h"),
        node("Split", "x q", "h g", axis=3),
    ],
)
def test_slices_of_sizes_below_zero_are_refused(before: onnx.NodeProto) -> None:
    """onnx would end the process."""
    constants = integers(p=[0, 0, 0, -9, 0, 0, 0, 0], q=[-5, 10], s=[1], e=[4], a=[3]) | {"w": floats(4, 4, 9, 9)}
    used = {"s", "e", "a", *before.input}
    chosen = {name: array for name, array in constants.items() if name in used}
    assert "would have shape" in refused(model([before, node("Slice", "h s e a", "y")], IMAGE, chosen))
    nodes = [node("Slice", "x s e a", "f"), node("Pad", "f o", "k"), node("Slice", "k s e a", "y")]
    far = integers(o=[0, 0, 0, -9, 0, 0, 0, 0], s=[1], e=[4], a=[3])
    assert "would have shape" in refused(model(nodes, IMAGE, far))


def shuffle_unit(source: str, number: int) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """A unit of ShuffleNetV2 on 8 channels: half of them through layers, then both interleaved."""

    def name(part: str) -> str:
        return f"{part}{number}"

    nodes = [
        node("Split", source, f"{name('a')} {name('b')}", axis=1),
        node("Conv", f"{name('b')} {name('p')}", name("c")),
        node("Relu", name("c"), name("d")),
        node("Conv", f"{name('d')} {name('w')}", name("e"), pads=[1, 1, 1, 1], group=4),
        node("Conv", f"{name('e')} {name('q')}", name("f")),
        node("Relu", name("f"), name("g")),
        node("Concat", f"{name('a')} {name('g')}", name("h"), axis=1),
        node("Reshape", f"{name('h')} apart", name("i")),
        node("Transpose", name("i"), name("j"), perm=[0, 2, 1, 3, 4]),
        node("Reshape", f"{name('j')} together", name("y")),
    ]
    weights = {name("p"): floats(4, 4, 1, 1) / 2, name("w"): floats(4, 1, 3, 3) / 3, name("q"): floats(4, 4, 1, 1) / 2}
    return nodes, weights


def test_shuffle_net() -> None:
    """Two units between a first convolution and a classifier: equal to the oracle under two-party."""
    first, weights = shuffle_unit("r", 1)
    second, more = shuffle_unit("y1", 2)
    nodes = [
        node("Conv", "x v", "c", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", "c", "r"),
        *first,
        *second,
        node("GlobalAveragePool", "y2", "m"),
        node("Flatten", "m", "n"),
        node("Gemm", "n g", "y"),
    ]
    weights |= more | integers(apart=[1, 2, 4, 5, 5], together=[1, 8, 5, 5])
    weights |= {"v": floats(8, 2, 3, 3) / 4, "g": floats(8, 3)}
    proto = model(nodes, (1, 2, 9, 9), weights)
    check(proto)
    report = pronghorn.load(proto, samples=floats(60, 2, 9, 9)).verify(floats(4, 2, 9, 9))
    assert report.trust == "two-party"
    assert report.disagreements == 0


BETWEEN = {
    "slice": [node("Slice", "r s e a t", "d")],
    "gather": [node("Gather", "r i", "d", axis=1)],
    "resize": [node("Resize", "r - f", "d", mode="nearest")],
    "depth to space": [node("DepthToSpace", "r", "d", blocksize=2)],
    "space to depth": [node("SpaceToDepth", "r", "d", blocksize=2)],
    "tile": [node("Tile", "r m", "d")],
    "expand": [node("AveragePool", "r", "h", kernel_shape=[6, 1]), node("Expand", "h n", "d")],
    "reflect": [node("Pad", "r p", "d", mode="reflect")],
    "crop": [node("Pad", "r q", "d")],
    "split": [node("Split", "r", "k l", axis=1), node("Add", "k l", "d")],
    "maximum": [node("ReduceMax", "r", "d", axes=[2, 3])],
    "focus": [
        node("Slice", "x b e a t", "h"),
        node("Slice", "x s e a t", "k"),
        node("Concat", "h k", "d", axis=1),
    ],
}


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
@pytest.mark.parametrize("kind", BETWEEN)
def test_equals_the_oracle(kind: str, trust: str) -> None:
    """Each between two layers."""
    nodes = [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r"), *BETWEEN[kind]]
    constants = integers(
        s=[1, 1], b=[0, 0], e=[FAR, FAR], a=[2, 3], t=[2, 2], i=[3, 0, 0], m=[1, 1, 2, 1], n=[1, 4, 3, 6]
    )
    constants |= integers(p=[0, 0, 1, 2, 0, 0, 0, 1], q=[0, 0, -1, 0, 0, 0, 0, -2])
    constants |= {"w": floats(4, 2, 3, 3) / 4, "f": np.float32([1, 1, 2, 2])}
    used = {name for each in nodes for name in each.input}
    constants = {name: array for name, array in constants.items() if name in used}
    size = int(np.prod(import_onnx(model(nodes, (1, 2, 6, 6), constants, outputs=["d"])).output_shape))
    nodes += [node("Flatten", "d", "flat"), node("Gemm", "flat g", "y")]
    proto = model(nodes, (1, 2, 6, 6), constants | {"g": floats(size, 3) / 8})
    report = pronghorn.load(proto, samples=floats(40, 2, 6, 6)).verify(floats(4, 2, 6, 6), trust=trust)
    assert report.disagreements == 0
