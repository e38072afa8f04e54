"""Models of several inputs and outputs, as models of one row each."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import pronghorn
from helpers import floats, model, node, run_native
from pronghorn._data import Preprocessing, load_images
from pronghorn.cli import app
from pronghorn.errors import InputError, UnsupportedModelError
from pronghorn.onnx import import_onnx


def two_inputs(batch: Any = "N", opset: int = 17) -> onnx.ModelProto:
    """An image and a row, to two outputs."""
    nodes = [
        node("Conv", "image w", "c"),
        node("Relu", "c", "r"),
        node("GlobalAveragePool", "r", "p"),
        node("Flatten", "p", "f"),
        node("Concat", "f row", "j", axis=1),
        node("MatMul", "j g", "scores"),
        node("Conv", "r v", "map"),
    ]
    constants = {"w": floats(3, 2, 3, 3) / 2, "g": floats(7, 5), "v": floats(1, 3, 1, 1)}
    proto = model(nodes, (batch, 2, 6, 6), constants, opset=opset, inputs=["image"], outputs=["scores", "map"])
    proto.graph.input.append(helper.make_tensor_value_info("row", TensorProto.FLOAT, [batch, 4]))
    return proto


def expected(proto: onnx.ModelProto, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [entry.name for entry in session.get_outputs()]
    rows = [session.run(None, {k: v[i : i + 1] for k, v in values.items()}) for i in range(len(values["row"]))]
    return {name: np.concatenate([row[at] for row in rows]) for at, name in enumerate(names)}


@pytest.mark.parametrize("batch", ["N", 1])
@pytest.mark.parametrize("opset", [8, 17])
def test_joined_models_equal_the_whole(batch: Any, opset: int) -> None:
    proto = two_inputs(batch, opset)
    network = pronghorn.load(proto, output=["scores", "map"])
    assert network.inputs == {"image": (2, 6, 6), "row": (4,)}
    assert network.outputs == {"scores": (5,), "map": (1, 4, 4)}
    assert (network.input_shape, network.output_shape) == ((76,), (21,))
    values = {"image": floats(3, 2, 6, 6), "row": floats(3, 4)}
    wanted, joined = expected(proto, values), network.join(values)
    found = network.split(run_native(import_onnx(proto, output=["scores", "map"]), joined))
    by_runtime = network.split(network.run_float(joined))
    for name in network.outputs:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(by_runtime[name], wanted[name], rtol=1e-4, atol=1e-5)


def test_only_the_inputs_that_matter_are_joined() -> None:
    proto = two_inputs()
    assert import_onnx(proto, output="map").input_shape == (2, 6, 6)
    assert pronghorn.load(proto, output=["map", "r"]).outputs == {"map": (1, 4, 4), "r": (3, 4, 4)}
    imported = import_onnx(proto, output="scores")
    assert (imported.input_shape, imported.output_shape) == ((76,), (5,))


def test_names_that_stand_for_others() -> None:
    nodes = [node("Relu", "x", "h"), node("Identity", "h", "a"), node("Flatten", "h", "b"), node("Dropout", "b", "c")]
    network = pronghorn.load(model(nodes, ("N", 2, 3), outputs=["a", "b", "c"]), output=["a", "b", "c"])
    rows = floats(4, 2, 3)
    found = network.split(network.run_float(rows))
    assert {name: array.shape for name, array in found.items()} == {"a": (4, 2, 3), "b": (4, 6), "c": (4, 6)}
    np.testing.assert_array_equal(found["a"], np.maximum(rows, 0))


def test_shapes_by_name() -> None:
    proto = two_inputs()
    for dim in list(proto.graph.input[0].type.tensor_type.shape.dim)[2:]:
        dim.Clear()
    with pytest.raises(UnsupportedModelError, match="dimension 2 of input 'image'"):
        import_onnx(proto, output="scores")
    with pytest.raises(InputError, match="by name: image, row"):
        import_onnx(proto, output="scores", shape=(1, 2, 6, 6))
    with pytest.raises(InputError, match="'x'"):
        import_onnx(proto, output="scores", shape={"x": (1, 2, 6, 6)})
    assert import_onnx(proto, output="scores", shape={"image": (1, 2, 7, 7)}).input_shape == (102,)


def test_what_is_refused() -> None:
    proto = two_inputs()
    with pytest.raises(UnsupportedModelError, match="2 outputs: scores, map"):
        import_onnx(proto)
    with pytest.raises(UnsupportedModelError, match="absent"):
        import_onnx(proto, output=["map", "absent"])
    for wrong in ([], ["map", "map"]):
        with pytest.raises(InputError, match="name each value once"):
            import_onnx(proto, output=wrong)
    network = pronghorn.load(proto, output=["scores", "map"])
    values = {"image": floats(3, 2, 6, 6), "row": floats(3, 4)}
    for other, says in (({}, "give each"), ({"row": floats(2, 4)}, "as many"), ({"row": floats(3, 5)}, "row")):
        with pytest.raises(InputError, match=says):
            network.join({**values, **other} if other else {"row": values["row"]})
    with pytest.raises(InputError):
        network.split(floats(3, 20))


def test_samples_of_one_input_are_told_of_the_others(tmp_path: Path) -> None:
    """Some exporters make inputs of constants."""
    says = r"its row holds 2 inputs, one after the other: image \[2, 6, 6\], row \[4\][\s\S]*export it as a constant"
    network = pronghorn.load(two_inputs(), output="scores")
    with pytest.raises(InputError, match=says):
        network.calibrated(floats(3, 4))
    with pytest.raises(InputError, match=says):
        network.run_float(floats(3, 4))
    onnx.save(two_inputs(), tmp_path / "model.onnx")
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n")
    np.save(tmp_path / "rows.npy", floats(3, 4))
    for name in ("rows.csv", "rows.npy"):
        call = ["verify", str(tmp_path / "model.onnx"), "--output", "scores", "--data", str(tmp_path / name)]
        assert "image [2, 6, 6], row [4]" in CliRunner().invoke(app, call).output
    with pytest.raises(InputError) as caught:
        pronghorn.load(model([node("Relu", "x", "y")], (1, 5))).run_float(floats(3, 4))
    assert "its row holds" not in str(caught.value)


def named_inputs(images: int) -> dict[str, np.ndarray]:
    return {"image": floats(images, 2, 6, 6), "row": floats(images, 4)}


WRONG_NAMES = [
    (lambda given: {"row": given["row"]}, "there is no array for image; the model takes image"),
    (lambda given: {**given, "more": given["row"]}, "no input has the name more"),
    (lambda given: {"picture": given["image"], "row": given["row"]}, "no array for image, and no input .* picture"),
    (lambda given: {**given, "row": given["row"][:2]}, "there are 40 of image, 2 of row"),
    (lambda given: {**given, "row": given["image"]}, "row"),
]


def test_inputs_are_given_by_name() -> None:
    """Without a call of `join`."""
    given, proto = named_inputs(40), two_inputs()
    network = pronghorn.load(proto, output="scores")
    rows = network.join(given)
    np.testing.assert_array_equal(network.run_float(given), network.run_float(rows))
    plans = [pronghorn.load(proto, output="scores", samples=samples).plan() for samples in (given, rows)]
    assert plans[0].hash == plans[1].hash
    by_name = network.verify(given, samples=dict(reversed(given.items())), secure=False)
    assert by_name.plan_hash == plans[1].hash
    for wrong, says in WRONG_NAMES:
        for use in (network.run_float, network.calibrated, network.verify, network.join):
            with pytest.raises(InputError, match=says):
                use(wrong(given))
    given["row"][1, 2] = np.nan
    with pytest.raises(InputError, match=r"samples\['row'\]\[1, 2\]"):
        network.calibrated(given)


def test_the_one_input_has_a_name_too() -> None:
    network = pronghorn.load(model([node("Relu", "x", "y")], ("N", 5)))
    rows = floats(3, 5)
    np.testing.assert_array_equal(network.run_float({"x": rows}), network.run_float(rows))
    with pytest.raises(InputError, match=r"no array for x, and no input has the name z; the model takes x \[5\]"):
        network.run_float({"z": rows})


def columns_model() -> onnx.ModelProto:
    """A column each to a sum."""
    proto = model([node("Add", "a b", "s"), node("Relu", "s", "y")], ("N", 1), inputs=["a"])
    proto.graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, ["N", 1]))
    return proto


def test_clients_give_columns_by_name() -> None:
    columns = {"b": floats(40).tolist(), "a": floats(40)}
    loaded = pronghorn.load(columns_model(), samples=columns)
    wanted = np.maximum(np.add(columns["a"], columns["b"]), 0)
    np.testing.assert_allclose(loaded.run_float(columns)[:, 0], wanted, rtol=1e-6)
    with (
        pronghorn.serve(loaded, listen="127.0.0.1:0", trust="two-party") as server,
        pronghorn.connect(server.address, "two-party") as client,
    ):
        assert client.columns == ("a", "b")
        found = client.predict({**columns, "more": floats(40)})
        np.testing.assert_allclose(found[:, 0], wanted, atol=0.1)
        with pytest.raises(InputError, match="lacks the columns b"):
            client.predict({"a": columns["a"]})


def test_clients_are_told_of_rows() -> None:
    given = named_inputs(40)
    loaded = pronghorn.load(two_inputs(), output="scores", samples=given)
    with (
        pronghorn.serve(loaded, listen="127.0.0.1:0", trust="two-party") as server,
        pronghorn.connect(server.address, "two-party") as client,
        pytest.raises(InputError, match=r"not known here[\s\S]*Model\.join"),
    ):
        client.predict(given)


def test_files_have_inputs_by_name(tmp_path: Path) -> None:
    network, given = pronghorn.load(two_inputs(), output="scores"), named_inputs(40)

    def load(**arrays: np.ndarray) -> Any:
        np.savez(tmp_path / "x.npz", **arrays)
        return load_images(tmp_path / "x.npz", network.input_shape, Preprocessing(), parts=network.inputs)

    found = load(**given, labels=np.arange(40))
    np.testing.assert_array_equal(found.images, network.join(given))
    assert found.labels.tolist() == list(range(40))
    assert not found.were_bytes
    # Channels are found, and bytes of one input divided.
    pixels = (255 * given["image"]).clip(0, 255).astype(np.uint8)
    found = load(row=given["row"], image=pixels.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(found.images, network.join({**given, "image": np.float32(pixels) / np.float32(255)}))
    assert found.were_bytes
    # The row, as ever.
    np.testing.assert_array_equal(load(x=network.join(given), row=given["row"]).images, network.join(given))
    for wrong, says in WRONG_NAMES[1:]:
        with pytest.raises(InputError, match=rf"x\.npz[\s\S]*{says}|{says} of .*x\.npz"):
            load(**wrong(given))
    with pytest.raises(InputError, match=r"image \[2, 6, 6\], row \[4\][\s\S]*npz"):
        load(row=given["row"])


def test_pictures_alone_are_scaled(tmp_path: Path) -> None:
    network, given = pronghorn.load(two_inputs(), output="scores"), named_inputs(5)
    scaled = Preprocessing(scale=65535.0, mean=(0.5, 0.25), std=(2.0, 4.0))

    def load(preprocessing: Preprocessing, parts: dict[str, Any], **arrays: np.ndarray) -> np.ndarray:
        np.savez(tmp_path / "x.npz", **arrays)
        shape = (sum(math.prod(size) for size in parts.values()),)
        return load_images(tmp_path / "x.npz", shape, preprocessing, parts=parts).images

    pixels = (65535 * given["image"]).clip(0, 65535).astype(np.uint16)
    channels = np.float32([[[0.5]], [[0.25]]]), np.float32([[[2]], [[4]]])
    wanted = {"image": (np.float32(pixels) / 65535 - channels[0]) / channels[1], "row": given["row"]}
    found = load(scaled, network.inputs, image=pixels, row=given["row"])
    np.testing.assert_allclose(found, network.join(wanted), rtol=1e-6)
    # What is no picture has no channels, and its integers need no scale once one is given.
    wide = np.arange(400, dtype=np.uint16).reshape(5, 80)
    found = load(scaled, {"image": (2, 6, 6), "row": (80,)}, image=pixels, row=wide)
    np.testing.assert_array_equal(found[:, 72:], wide)
    for option in (Preprocessing(scale=2.0), Preprocessing(mean=(0.5,)), Preprocessing(std=(0.5,))):
        with pytest.raises(InputError, match=r"no input is one[\s\S]*a \[4\], b \[4\]"):
            load(option, {"a": (4,), "b": (4,)}, a=given["row"], b=given["row"])
    rows = load(Preprocessing(scale=1.0), {"a": (4,), "b": (4,)}, a=given["row"], b=given["row"])
    np.testing.assert_array_equal(rows, np.hstack([given["row"]] * 2))


@pytest.mark.parametrize("key", ["labels", "label", "y"])
def test_labels_are_beside_inputs(tmp_path: Path, key: str) -> None:
    network, given, file = pronghorn.load(two_inputs(), output="scores"), named_inputs(5), tmp_path / "x.npz"
    np.savez(file, **given, **{key: np.arange(5)})
    found = load_images(file, network.input_shape, Preprocessing(), parts=network.inputs)
    assert found.labels is not None
    assert found.labels.tolist() == list(range(5))
    np.savez(file, x=network.join(given), **{key: np.arange(5)})
    found = load_images(file, network.input_shape, Preprocessing())
    assert found.labels is not None
    assert found.labels.tolist() == list(range(5))


def test_the_command_line_takes_inputs_by_name(tmp_path: Path) -> None:
    file, by_name, rows = (tmp_path / name for name in ("model.onnx", "named.npz", "rows.npy"))
    file.write_bytes(two_inputs().SerializeToString())
    given = named_inputs(40)
    np.savez(by_name, **given)
    np.save(rows, pronghorn.load(two_inputs(), output="scores").join(given))
    runs = CliRunner()
    for command in (["plan", "--json"], ["verify", "--no-secure", "--json"]):
        calls = [[command[0], str(file), "--output", "scores", "--data", str(x), *command[1:]] for x in (by_name, rows)]
        named, joined = (runs.invoke(app, call) for call in calls)
        assert named.exit_code == 0, named.output
        assert named.stdout == joined.stdout
    loaded = pronghorn.load(two_inputs(), output="scores", samples=given)
    with pronghorn.serve(loaded, listen="127.0.0.1:0", trust="two-party") as server:
        ask = ["--server", server.address, "--trust", "two-party"]
        assert runs.invoke(app, ["predict", str(rows), *ask]).exit_code == 0
        refused = runs.invoke(app, ["predict", str(by_name), *ask])
    assert refused.exit_code == 2
    assert "Model.join" in refused.output


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
def test_joined_models_equal_the_oracle(trust: str) -> None:
    network = pronghorn.load(two_inputs(), output=["scores", "map"])
    rows = network.join({"image": floats(40, 2, 6, 6), "row": floats(40, 4)})
    report = network.calibrated(rows).verify(rows[:3], trust=trust)
    assert report.disagreements == 0
    assert report.expected_error < 0.1


def test_the_command_line_takes_several_outputs(tmp_path: Path) -> None:
    file, rows = tmp_path / "model.onnx", tmp_path / "rows.npy"
    file.write_bytes(two_inputs().SerializeToString())
    np.save(rows, floats(8, 76))
    arguments = ["verify", str(file), "--data", str(rows), "--output", "scores", "--output", "map", "--no-secure"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    # Two outputs are no row of classes.
    assert "RMSE" in result.output
    assert "alike" not in result.output
