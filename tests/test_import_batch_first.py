"""Models whose batch is not the first dimension, inputs that are the same for all images, and models of one image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import pronghorn
from helpers import floats, model, node, run_native
from pronghorn.errors import InputError, UnsupportedModelError
from pronghorn.onnx import ImportedModel, import_onnx
from test_import_recurrent import FEATURES, SIZE, STEPS, recurrent, weights

Shapes = dict[str, tuple[object, ...]]


def of_shapes(
    nodes: list[onnx.NodeProto], inputs: Shapes, outputs: Shapes, constants: dict[str, np.ndarray]
) -> onnx.ModelProto:
    """A model whose inputs and outputs have these shapes."""
    proto = model(nodes, (1,), constants, inputs=list(inputs), outputs=list(outputs))
    for entries, shapes in ((proto.graph.input, inputs), (proto.graph.output, outputs)):
        for entry, shape in zip(entries, shapes.values(), strict=True):
            entry.CopyFrom(helper.make_tensor_value_info(entry.name, TensorProto.FLOAT, shape))
    return proto


def as_written(proto: onnx.ModelProto, inputs: dict[str, np.ndarray], output: str = "y") -> np.ndarray:
    """An output for inputs as the file has them."""
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return session.run([output], inputs)[0]


def check_second(proto: onnx.ModelProto, imported: ImportedModel) -> None:
    """Compares images with the batch first with the file, whose batch is second."""
    images = floats(3, *imported.input_shape)
    found = run_native(imported, images)
    each = [as_written(proto, {"x": image[:, None]})[:, 0] for image in images]
    np.testing.assert_allclose(found, np.stack(each), rtol=2e-4, atol=2e-5)


CENTRED = [node("ReduceMean", "x", "m", axes=[0]), node("Sub", "x m", "c"), node("MatMul", "c w", "y")]
"""Less the mean over all steps."""


@pytest.mark.parametrize("batch", ["n", "batch_size", 1])
def test_the_batch_is_the_open_dimension_or_that_of_size_one(batch: object) -> None:
    proto = of_shapes(CENTRED, {"x": (5, batch, 6)}, {"y": (5, batch, 2)}, {"w": floats(6, 2)})
    imported = import_onnx(proto)
    assert (imported.input_shape, imported.output_shape) == ((5, 6), (5, 2))
    check_second(proto, imported)


@pytest.mark.parametrize("batch", ["n", 1])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_networks(kind: str, batch: object) -> None:
    nodes = [recurrent(kind, "x w r b", "o", "bidirectional"), node("Transpose", "o", "t", perm=[0, 2, 1, 3])]
    nodes.append(node("Reshape", "t sizes", "y"))
    constants = weights(kind, 2) | {"sizes": np.array([0, 0, 2 * SIZE])}
    proto = of_shapes(nodes, {"x": (STEPS, batch, FEATURES)}, {"y": (STEPS, batch, 2 * SIZE)}, constants)
    imported = import_onnx(proto)
    assert (imported.input_shape, imported.output_shape) == ((STEPS, FEATURES), (STEPS, 2 * SIZE))
    check_second(proto, imported)
    loaded = pronghorn.load(proto, samples=floats(24, STEPS, FEATURES))
    report = loaded.verify(floats(3, STEPS, FEATURES))
    assert report.disagreements == 0
    assert report.relative_error < 0.1


def test_batches_of_the_file_run_together() -> None:
    proto = of_shapes(CENTRED, {"x": (5, "n", 6)}, {"y": (5, "n", 2)}, {"w": floats(6, 2)})
    images = floats(4, 5, 6)
    wanted = as_written(proto, {"x": images.transpose(1, 0, 2)}).transpose(1, 0, 2)
    np.testing.assert_allclose(pronghorn.load(proto).run_float(images), wanted, rtol=1e-4, atol=1e-5)


def test_the_batch_has_the_name_of_another_inputs() -> None:
    nodes = [recurrent("LSTM", "x w r b - h c", "o"), node("Squeeze", "o one", "y")]
    shapes: Shapes = {"x": ("n", STEPS, FEATURES), "h": (1, "n", SIZE), "c": (1, "n", SIZE)}
    nodes.insert(0, node("Transpose", "x", "s", perm=[1, 0, 2]))
    nodes[1].input[0] = "s"
    outputs: Shapes = {"y": (STEPS, "n", SIZE), "oh": (1, "n", SIZE)}
    proto = of_shapes(nodes, shapes, outputs, weights("LSTM", 1) | {"one": np.array([1])})
    imported = import_onnx(proto, output=["y", "oh"])
    assert imported.inputs == {"x": (STEPS, FEATURES), "h": (1, SIZE), "c": (1, SIZE)}
    assert imported.outputs == {"y": (STEPS, SIZE), "oh": (1, SIZE)}
    x, h, c = floats(2, STEPS, FEATURES), floats(1, 2, SIZE), floats(1, 2, SIZE)
    row = np.concatenate([x.reshape(2, -1), h[0], c[0]], axis=1)
    found = run_native(imported, row)
    given = {"x": x, "h": h, "c": c}
    y, last = as_written(proto, given), as_written(proto, given, "oh")
    wanted = np.concatenate([y.transpose(1, 0, 2).reshape(2, -1), last[0]], axis=1)
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


def test_lengths_stay_open_beside_a_batch_by_its_name() -> None:
    proto = of_shapes(CENTRED, {"x": ("steps", "batch", 6)}, {"y": ("steps", "batch", 2)}, {"w": floats(6, 2)})
    with pytest.raises(UnsupportedModelError, match=r"dimension 1 .* \(batch, steps, 6\)"):
        import_onnx(proto)
    imported = import_onnx(proto, of_samples=(1, 7, 6))
    assert (imported.input_shape, imported.output_shape) == ((7, 6), (7, 2))
    check_second(proto, imported)


@pytest.mark.parametrize("outputs", [(5, "MatMuly_dim_1", 2), (None, None, 2)])
def test_the_batch_of_a_result_has_a_name_of_its_own(outputs: tuple[object, ...]) -> None:
    proto = of_shapes(CENTRED, {"x": (5, "n", 6)}, {"y": outputs}, {"w": floats(6, 2)})
    imported = import_onnx(proto)
    assert (imported.input_shape, imported.output_shape) == ((5, 6), (5, 2))
    check_second(proto, imported)


@pytest.mark.parametrize("batch", ["N", 1])
@pytest.mark.parametrize("result", [(5, "T"), (5, "anchors"), (5, "batch_frames")])
def test_results_stay_where_no_input_moves(result: tuple[object, ...], batch: object) -> None:
    """Exporters leave sizes of results open that they do not know: boxes, frames."""
    nodes = [node("Conv", "x w", "c"), node("Squeeze", "c zero", "y")] if batch == 1 else [node("Conv", "x w", "y")]
    shape = result if batch == 1 else ("N", *result)
    proto = of_shapes(nodes, {"x": (batch, 4, 7)}, {"y": shape}, {"w": floats(5, 4, 1), "zero": np.array([0])})
    imported, image = import_onnx(proto), floats(1, 4, 7)
    assert imported.output_shape == (5, 7)
    np.testing.assert_allclose(run_native(imported, image)[0], as_written(proto, {"x": image}).reshape(5, 7), 1e-4)


def test_shapes_of_any_kind() -> None:
    proto = of_shapes([node("Relu", "x", "y")], {"x": (4, 6, "L")}, {"y": (4, 6, "L")}, {})
    assert import_onnx(proto, shape=np.array([1, 6, 5])).input_shape == (6, 5)
    for wrong in (5, {"x": 5}):
        with pytest.raises(InputError, match="shape"):
            import_onnx(proto, shape=wrong)


def test_a_fixed_batch_before_an_open_length_stays_first() -> None:
    """By the shape that the user or samples say."""
    proto = of_shapes([node("Conv", "x w", "y")], {"x": (8, 3, "steps")}, {"y": (8, 2, None)}, {"w": floats(2, 3, 2)})
    assert import_onnx(proto, shape=(1, 3, 9)).input_shape == (3, 9)
    assert import_onnx(proto, of_samples=(1, 3, 9)).input_shape == (3, 9)


def test_a_batch_of_other_sizes_stays_first() -> None:
    """Pictures of one channel."""
    proto = of_shapes([node("Conv", "x w", "y")], {"x": (4, 1, 5, 5)}, {"y": (4, 2, 3, 3)}, {"w": floats(2, 1, 3, 3)})
    assert import_onnx(proto).input_shape == (1, 5, 5)


def test_a_shape_that_fits_one_reading_alone_decides() -> None:
    """Layers of each step, in a file of seven steps or seven images."""
    proto = of_shapes([node("MatMul", "x w", "y")], {"x": (7, 1, 6)}, {"y": (7, 1, 2)}, {"w": floats(6, 2)})
    assert import_onnx(proto).input_shape == (1, 6)
    for options in ({"shape": (1, 7, 6)}, {"of_samples": (1, 7, 6)}):
        imported = import_onnx(proto, **options)
        assert (imported.input_shape, imported.output_shape) == ((7, 6), (7, 2))
    open_length = of_shapes([node("Relu", "x", "y")], {"x": (8, 8, "n")}, {"y": (8, 8, "n")}, {})
    assert import_onnx(open_length, shape=(1, 8, 5)).input_shape == (8, 5)
    named = of_shapes([node("MatMul", "x w", "y")], {"x": (1, "batch", 6)}, {"y": (1, "batch", 2)}, {"w": floats(6, 2)})
    assert import_onnx(named, shape=(1, 5, 6)).input_shape == (5, 6)
    part = of_shapes([node("MatMul", "x w", "y")], {"x": ("n", "batched")}, {"y": ("n", 2)}, {"w": floats(6, 2)})
    assert import_onnx(part, shape=(1, 6)).input_shape == (6,)


@pytest.mark.parametrize("outputs", [["y"], ["oh"], ["y", "oh"]])
def test_steps_before_a_batch_of_one_with_a_state(outputs: list[str]) -> None:
    """They are no batch of several images, of one step each."""
    nodes = [recurrent("GRU", "x w r b - h", "o"), node("Squeeze", "o one", "y")]
    shapes: Shapes = {"x": (7, 1, FEATURES), "h": (1, 1, SIZE)}
    ends: Shapes = {"y": (7, 1, SIZE), "oh": (1, 1, SIZE)}
    proto = of_shapes(nodes, shapes, ends, weights("GRU", 1) | {"one": np.array([1])})
    imported = import_onnx(proto, output=outputs)
    assert imported.inputs == {"x": (7, FEATURES), "h": (1, SIZE)}
    x, h = floats(7, 1, FEATURES), floats(1, 1, SIZE)
    wanted = [as_written(proto, {"x": x, "h": h}, name).ravel() for name in outputs]
    found = run_native(imported, np.concatenate([x.ravel(), h.ravel()])[None])
    np.testing.assert_allclose(found.ravel(), np.concatenate(wanted), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("batch", ["n", 1])
def test_words_of_a_sequence_before_the_batch(batch: object) -> None:
    nodes = [node("Gather", "table x", "e"), recurrent("GRU", "e w r b", "o"), node("Squeeze", "o one", "y")]
    constants = weights("GRU", 1) | {"one": np.array([1]), "table": floats(20, FEATURES)}
    proto = of_shapes(nodes, {"x": (STEPS, batch)}, {"y": (STEPS, batch, SIZE)}, constants)
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    loaded = pronghorn.load(proto, shape=(1, STEPS))
    words = np.random.default_rng(0).integers(0, 20, (3, STEPS))
    found = loaded.run_float(words)
    wanted = np.concatenate([as_written(proto, {"x": each[:, None]}) for each in words], axis=1).transpose(1, 0, 2)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    samples = np.random.default_rng(1).integers(0, 20, (48, STEPS))
    report = pronghorn.load(proto, samples=samples).verify(words, secure=False)
    assert report.relative_error < 0.1


def test_one_step_of_a_recurrent_network() -> None:
    nodes = [
        node("Unsqueeze", "x zero", "s"),
        recurrent("GRU", "s w r b - h", "o"),
        node("Squeeze", "o both", "y"),
    ]
    constants = weights("GRU", 1) | {"zero": np.array([0]), "both": np.array([0, 1])}
    proto = of_shapes(nodes, {"x": ("n", FEATURES), "h": (1, "n", SIZE)}, {"y": ("n", SIZE)}, constants)
    imported = import_onnx(proto)
    x, h = floats(3, FEATURES), floats(1, 3, SIZE)
    found = run_native(imported, np.concatenate([x, h[0]], axis=1))
    np.testing.assert_allclose(found, as_written(proto, {"x": x, "h": h}), rtol=2e-4, atol=2e-5)


def test_the_only_layer_of_a_state() -> None:
    """Exporters cut it out by a Slice along the first dimension."""
    nodes = [
        node("Unsqueeze", "x zero", "s"),
        node("Slice", "h zero one zero", "first"),
        recurrent("GRU", "s w r b - first", "o"),
        node("Squeeze", "o both", "y"),
    ]
    constants = weights("GRU", 1) | {"zero": np.array([0]), "one": np.array([1]), "both": np.array([0, 1])}
    proto = of_shapes(nodes, {"x": ("n", FEATURES), "h": (1, "n", SIZE)}, {"y": ("n", SIZE)}, constants)
    x, h = floats(3, FEATURES), floats(1, 3, SIZE)
    found = run_native(import_onnx(proto), np.concatenate([x, h[0]], axis=1))
    np.testing.assert_allclose(found, as_written(proto, {"x": x, "h": h}), rtol=2e-4, atol=2e-5)


def test_the_first_image_alone_is_refused() -> None:
    nodes = [node("Slice", "x zero one zero", "first"), node("Sub", "x first", "y")]
    proto = of_shapes(nodes, {"x": ("n", 4)}, {"y": ("n", 4)}, {"zero": np.array([0]), "one": np.array([1])})
    with pytest.raises(UnsupportedModelError, match="batch"):
        import_onnx(proto)


def test_a_batch_in_the_place_of_steps_is_refused() -> None:
    """Each image would depend on those before it."""
    nodes = [recurrent("GRU", "x w r b", "o"), node("Squeeze", "o one", "y")]
    constants = weights("GRU", 1) | {"one": np.array([1])}
    proto = of_shapes(nodes, {"x": ("n", 1, FEATURES)}, {"y": ("n", 1, SIZE)}, constants)
    with pytest.raises(UnsupportedModelError, match="not sequences of several steps"):
        import_onnx(proto)


def with_state(batch: object) -> onnx.ModelProto:
    """A network whose first state has one place for a batch."""
    nodes = [
        node("Transpose", "x", "s", perm=[1, 0, 2]),
        recurrent("GRU", "s w r b - h", "o"),
        node("Squeeze", "oh zero", "y"),
    ]
    shapes: Shapes = {"x": (batch, STEPS, FEATURES), "h": (1, 1, SIZE)}
    return of_shapes(nodes, shapes, {"y": (batch, SIZE)}, weights("GRU", 1) | {"zero": np.array([0])})


@pytest.mark.parametrize("batch", ["n", 1])
def test_a_fixed_state_is_that_of_each_image(batch: object) -> None:
    """With several images the file fails: each runs by itself."""
    proto, state = with_state(batch), floats(1, 1, SIZE)
    loaded = pronghorn.load(proto, fixed={"h": state})
    assert loaded.inputs == {"x": (STEPS, FEATURES)}
    images = floats(3, STEPS, FEATURES)
    wanted = np.concatenate([as_written(proto, {"x": image[None], "h": state}) for image in images])
    np.testing.assert_allclose(loaded.run_float(images), wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run_native(loaded._imported, images), wanted, rtol=2e-4, atol=2e-5)


def test_a_number_fills_an_input() -> None:
    proto = with_state(1)
    filled = import_onnx(proto, fixed={"h": 0.5})
    images = floats(2, STEPS, FEATURES)
    wanted = import_onnx(proto, fixed={"h": np.full((1, 1, SIZE), 0.5)})
    np.testing.assert_array_equal(run_native(filled, images), run_native(wanted, images))


def by_rate() -> onnx.ModelProto:
    """A network that chooses by a whole number without dimensions."""
    then = helper.make_graph([node("MatMul", "x w", "a")], "then", [], [helper.make_tensor_value_info("a", 1, None)])
    other = helper.make_graph([node("MatMul", "x v", "b")], "else", [], [helper.make_tensor_value_info("b", 1, None)])
    nodes = [
        node("Equal", "rate wanted", "is_fast"),
        helper.make_node("If", ["is_fast"], ["y"], then_branch=then, else_branch=other),
    ]
    constants = {"wanted": np.int64(16000), "w": floats(4, 3), "v": floats(4, 3)}
    proto = of_shapes(nodes, {"x": ("n", 4), "rate": ()}, {"y": ("n", 3)}, constants)
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    return proto


@pytest.mark.parametrize("rate", [8000, 16000])
def test_a_fixed_number_chooses_a_branch(rate: int) -> None:
    proto, images = by_rate(), floats(3, 4)
    found = run_native(import_onnx(proto, fixed={"rate": rate}), images)
    np.testing.assert_allclose(found, as_written(proto, {"x": images, "rate": np.array(rate)}), rtol=1e-4)


@pytest.mark.parametrize(
    ("fixed", "problem"),
    [
        ({"speed": 1}, "there is no input 'speed' to fix: the model's are x, rate"),
        ({"rate": 16000.5}, "takes no"),
        ({"rate": "fast"}, "cannot be fixed"),
        ([1], "give values by the names of inputs"),
        ({"rate": 16000 + 5j}, "no values of type complex"),
        ({"rate": [16000]}, r"shape \[1\] does not fit input 'rate', of shape \(\)"),
        ({"x": np.full((1, 4), np.nan)}, "not finite"),
        ({"x": np.zeros((1, 5))}, r"shape \[1, 5\] does not fit input 'x', of shape \(n, 4\)"),
    ],
)
def test_values_that_do_not_fit_are_refused(fixed: object, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        import_onnx(by_rate(), fixed=fixed)


def test_values_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from pronghorn.cli import app

    onnx.save(by_rate(), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", floats(30, 4))
    np.save(tmp_path / "rate.npy", np.int64(8000))
    common = ["plan", str(tmp_path / "m.onnx"), "--data", str(tmp_path / "x.npy"), "--fixed"]
    for value in ("rate=16000", f"rate={tmp_path / 'rate.npy'}"):
        assert CliRunner().invoke(app, [*common, value]).exit_code == 0
    for value in ("16000", "rate=fast", "rate=absent.npy"):
        assert CliRunner().invoke(app, [*common, value]).exit_code != 0


def test_a_number_fills_no_huge_input() -> None:
    proto = by_rate()
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, (10**7, 10**7)))
    with pytest.raises(InputError, match="elements"):
        import_onnx(proto, fixed={"x": 1.0})
