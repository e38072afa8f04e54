"""Models that cannot be run: the error names the node, operator, opset, shapes and what to do."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pronghorn
from helpers import check, floats, model, node
from pronghorn.errors import InputError, ModelFileError, PronghornError, UnsupportedModelError
from pronghorn.onnx import import_onnx
from pronghorn.onnx.cutting import Network

IMAGE = (1, 2, 6, 6)
GEMM = {"w": floats(5, 3)}


def refused(proto: onnx.ModelProto, **options: Any) -> UnsupportedModelError:
    with pytest.raises(UnsupportedModelError) as caught:
        import_onnx(proto, **options)
    return caught.value


def test_unsupported_operators_are_named_in_full() -> None:
    nodes = [node("Relu", "x", "h"), node("Round", "h", "y")]
    error = refused(model(nodes, ("N", 2, 6, 6)))
    assert (error.node, error.operator, error.opset, error.shapes) == ("node_y", "Round", 17, [(1, 2, 6, 6)])
    lines = str(error).splitlines()
    assert lines[1:4] == ["  node: node_y", "  operator: Round (opset 17)", "  input shapes: [1, 2, 6, 6]"]
    assert lines[4].startswith("  what to do: round or compare the result")


def test_constants_that_an_exporter_left_out_are_named() -> None:
    proto = model([node("Sub", "x net/normalization_1/Sub/y:0", "y")], ("N", 4))
    proto.graph.input.append(helper.make_tensor_value_info("net/normalization_1/Sub/y:0", TensorProto.FLOAT, (1, 4)))
    error = refused(proto)
    assert "'net/normalization_1/Sub/y:0'" in error.problem
    assert "layer.mean, layer.variance = layer.mean.numpy(), layer.variance.numpy()" in error.advice
    # The model's own input may be called so.
    proto = model([node("Neg", "net/Input/x:0", "y")], ("N", 4))
    proto.graph.input[0].name = "net/Input/x:0"
    import_onnx(proto)


@pytest.mark.parametrize(
    ("nodes", "shape", "constants", "says"),
    [
        ([node("Relu", "x", "r"), node("Gather", "w r", "y")], ("N", 4), GEMM, "private index"),
        ([node("LRN", "x", "y", size=3, bias=0.0)], IMAGE, {}, "bias above 0"),
        ([node("ConvTranspose", "x w", "y")], IMAGE, {"w": floats(3, 2, 3, 3)}, "do not fit 2 channels"),
        ([node("ConvTranspose", "x w", "y", pads=[5, 0, 4, 0])], IMAGE, {"w": floats(2, 2, 3, 3)}, "size -1"),
        ([node("ConvTranspose", "x w", "y", strides=[0, 1])], IMAGE, {"w": floats(2, 2, 3, 3)}, "strides"),
        ([node("ConvTranspose", "x h", "y")], IMAGE, {}, "not a constant"),
        ([node("MatMul", "x x", "y")], (1, 4, 3), {}, "do not fit"),
        ([node("MatMul", "x x", "y")], (1, 512, 512), {}, "134217728 products"),
        ([node("MatMul", "x w", "y")], (1, 4, 4), {"w": floats(3, 4, 4)}, "not supported"),
        ([node("ArgMax", "x", "s", axis=1), node("Relu", "s", "y")], IMAGE, {}, "after ArgMax"),
        ([node("Shrink", "x", "y", lambd=-0.5)], IMAGE, {}, "make it positive"),
        ([node("InstanceNormalization", "x s s", "y")], (1, 4), {"s": floats(4)}, "no places to normalise over"),
        ([node("GroupNormalization", "x s s", "y", num_groups=3)], IMAGE, {"s": floats(2)}, "no 3 groups"),
        ([node("Einsum", "x h", "y", equation="ij,kj->ik")], (1, 5), {}, "no product of two matrices with the batch"),
        ([node("Div", "x c", "y")], (1, 4), {"c": np.float32(0)}, "finite"),
        ([node("MaxPool", "x", "p", kernel_shape=[2, 2]), node("Add", "x p", "y")], IMAGE, {}, "broadcast"),
        ([node("Add", "x c", "y")], (1, 2, 1, 1), {"c": floats(4, 2, 3, 3)}, "does not fit"),
        ([node("Add", "x c", "y")], ("N", 3), {"c": floats(4, 1, 3)}, "does not fit"),
        ([node("Where", "b x c", "y")], (1, 3), {"b": np.ones(3), "c": floats(3)}, "booleans"),
        ([node("Mod", "x h", "b"), node("Where", "b x c", "y")], (1, 3), {"c": floats(3)}, "not supported"),
        ([node("Gemm", "x w", "y", transA=1)], (1, 5), {"w": floats(1, 3)}, "transA"),
        ([node("Gemm", "x w", "y")], (1, 4), GEMM, "does not fit"),
        ([node("Conv", "x w", "y")], (1, 2, 4, 4, 4, 4), {"w": floats(2, 2, 3, 3, 3, 3)}, "4 spatial dimensions"),
        ([node("Conv", "x w", "y")], IMAGE, {"w": floats(2, 3, 3, 3)}, "do not fit 2 channels"),
        ([node("Conv", "x w", "y")], IMAGE, {"w": floats(2, 2, 9, 9)}, "kernel spans 9"),
        ([node("Conv", "x w", "y", strides=[0, 1])], IMAGE, {"w": floats(2, 2, 3, 3)}, "strides"),
        ([node("Conv", "x w", "y", pads=[-1, 0, 0, 0])], IMAGE, {"w": floats(2, 2, 3, 3)}, "pads"),
        ([node("Conv", "x h", "y")], (1, 1, 6, 6), {}, "not a constant"),
        ([node("Pad", "x p", "y", mode="reflect")], IMAGE, {"p": np.array([0, 0, 6, 1, 0, 0, 1, 1])}, "reflect"),
        (
            [node("Pad", "x p v", "y")],
            IMAGE,
            {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "v": np.float32(np.inf)},
            "a number",
        ),
        (
            [node("Pad", "x p v", "y")],
            IMAGE,
            {"p": np.array([0, 0, 1, 0, 0, 0, 0, 0]), "v": np.float32(-1e4)},
            "no fixed point holds",
        ),
        ([node("Pad", "x p", "y")], IMAGE, {"p": np.array([0, 0, -6, 0, 0, 0, 0, 0])}, "every dimension"),
        ([node("Pad", "x p", "y")], IMAGE, {"p": np.array([1, 0, 0, 0, 0, 0, 0, 0])}, "batch"),
        ([node("Concat", "x x", "y", axis=0)], ("N", *IMAGE[1:]), {}, "batch"),
        ([node("Concat", "x c", "y", axis=1)], IMAGE, {"c": floats(1, 2, 6, 7)}, "another dimension"),
        ([node("Concat", "x c", "y", axis=0)], ("N", *IMAGE[1:]), {"c": floats(*IMAGE)}, "batch"),
        ([node("Transpose", "x", "y", perm=[1, 0, 2, 3])], ("N", *IMAGE[1:]), {}, "batch"),
        (
            [node("Transpose", "x", "t", perm=[1, 0, 2, 3]), node("DepthToSpace", "t", "y", blocksize=1)],
            IMAGE,
            {},
            "not the first",
        ),
        ([node("ReduceMean", "x", "y", axes=[0, 1])], IMAGE, {}, "batch"),
        ([node("ReduceMean", "x", "y")], IMAGE, {}, "batch"),
        ([node("Reshape", "x s", "y")], IMAGE, {"s": np.array([1, 71])}, "other elements"),
        ([node("Reshape", "x s", "y")], IMAGE, {"s": np.array([1, -1, 5])}, "other elements"),
        ([node("ArgMax", "x", "s", axis=1), node("Relu", "s", "y")], (1, 5), {}, "only at the end"),
        ([node("Cast", "x", "c", to=7), node("Cast", "c", "y", to=1)], (1, 5), {}, "INT64"),
        ([node("Clip", "x c", "y")], (1, 5), {"c": floats(5)}, "one number"),
        ([node("Max", "x c", "y")], (1, 5), {"c": floats(3, 5)}, "does not fit"),
        ([node("MaxPool", "x", "y i", kernel_shape=[2, 2]), node("Relu", "i", "z")], IMAGE, {}, "output 'i'"),
        ([node("BatchNormalization", "x c c c c", "y", training_mode=1)], IMAGE, {"c": floats(2)}, "training"),
        ([node("Squeeze", "x a", "y")], IMAGE, {"a": np.array([2])}, "size 1"),
        ([node("RandomUniformLike", "x", "r"), node("Add", "x r", "y")], IMAGE, {}, "not supported"),
    ],
)
def test_what_is_refused(nodes: list[onnx.NodeProto], shape: Any, constants: dict[str, np.ndarray], says: str) -> None:
    # h and pooled are values beside the input.
    before = [node("Relu", "x", "h")]
    if len(shape) == 4:
        before.append(node("GlobalAveragePool", "x", "pooled"))
    output = "z" if any("z" in entry.output for entry in nodes) else "y"
    outputs = [output]
    if output == "z":
        # Both outputs are needed: the second one is what cannot be had.
        nodes = [*nodes[:1], node("Cast", "i", "f", to=1), node("Add", "y f", "z")]
    opset = 21 if nodes[0].op_type == "GroupNormalization" else 17
    error = refused(model([*before, *nodes], shape, constants, outputs=outputs, opset=opset))
    assert says in str(error), error
    assert error.node
    assert error.operator
    assert error.advice


def test_weights_must_be_finite() -> None:
    bad = floats(5, 3)
    bad[2, 1] = np.nan
    error = refused(model([node("Gemm", "x w", "y")], (1, 5), {"w": bad}))
    assert "nan at [2, 1]" in str(error)
    error = refused(
        model([node("MatMul", "x w", "y")], (1, 5), {"w": np.full((5, 3), 1e300)}, dtype=TensorProto.DOUBLE)
    )
    assert "inf at [0, 0]" in str(error)


def test_samples_tell_dynamic_dimensions() -> None:
    proto = model([node("GlobalAveragePool", "x", "y")], ("N", 3, "height", "width"))
    for samples in (floats(20, 3, 5, 6), {"x": floats(20, 3, 5, 6)}):
        assert pronghorn.load(proto, samples=samples).input_shape == (3, 5, 6)
    assert pronghorn.load(proto, samples=floats(20, 3, 5, 6), shape=(1, 3, 5, 6)).input_shape == (3, 5, 6)
    # They do not fit, or a value is no array.
    for samples in (floats(20, 4, 5, 6), floats(20, 90), floats(20, 3, 5, 6).tolist()):
        with pytest.raises(UnsupportedModelError, match="dimension 2 of input 'x' is not fixed"):
            pronghorn.load(proto, samples=samples)
    # What is fixed stays.
    fixed = model([node("GlobalAveragePool", "x", "y")], ("N", 3, 4, 4))
    with pytest.raises(InputError):
        pronghorn.load(fixed, samples=floats(20, 3, 5, 6))


def test_dynamic_dimensions_say_how_to_fix_them() -> None:
    proto = model([node("GlobalAveragePool", "x", "y")], ("N", 3, "height", "width"))
    error = refused(proto)
    assert "dimension 2 of input 'x' is not fixed: (N, 3, height, width)" in str(error)
    assert "--shape x=1,3,224,224" in str(error)
    for shape in ((1, 3, 5, 6), {"x": (1, 3, 5, 6)}):
        assert check(proto, shape=shape).input_shape == (3, 5, 6)
    for shape in ((1, 4, 5, 6), (1, 3, 5), (2, 3, 5, 6), (1, 3, 0, 6), {"z": (1, 3, 5, 6)}):
        with pytest.raises(InputError):
            import_onnx(proto, shape=shape)


def test_input_without_a_shape() -> None:
    proto = model([node("Relu", "x", "y")], (1, 3))
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert "--shape x=" in str(refused(proto))
    assert check(proto, shape=(1, 3), run=model([node("Relu", "x", "y")], (1, 3))).input_shape == (3,)
    assert "batch dimension" in str(refused(model([node("Relu", "x", "y")], (3,))))


def test_an_input_of_one_dimension() -> None:
    error = refused(model([node("Relu", "x", "y")], (3,)))
    assert "--shape" not in error.advice
    assert "(batch, features)" in error.advice


def test_ends_beside_other_outputs() -> None:
    nodes = [node("Gemm", "x w", "h"), node("ArgMax", "h", "a", axis=1), node("Sigmoid", "h", "b")]
    proto = model(nodes, ("N", 5), {"w": floats(5, 3)}, outputs=("a", "b"))
    error = refused(proto, output=["a", "b"])
    assert "output 'a' comes after ArgMax" in str(error)
    assert error.node is None
    assert "a,b" not in str(error)
    assert "--output h --output b" in error.advice


def test_several_outputs_and_inputs() -> None:
    nodes = [node("Gemm", "x w", "a"), node("Relu", "a", "b")]
    proto = model(nodes, ("N", 5), GEMM, outputs=["a", "b"])
    error = refused(proto)
    assert "2 outputs: a, b" in str(error)
    assert "--output NAME" in str(error)
    for name in ("a", "b"):
        one = model(nodes, ("N", 5), GEMM, outputs=[name])
        assert check(proto, output=name, run=one).output_name == name
    assert "its outputs are a, b" in str(refused(proto, output="absent"))
    two = model([node("Add", "x z", "s"), node("Relu", "x", "y")], ("N", 5), inputs=["x", "z"], outputs=["s", "y"])
    assert import_onnx(two, output="s").inputs == {"x": (5,), "z": (5,)}
    assert import_onnx(two, output="y").input_name == "x"


def test_a_model_may_be_cut_at_any_value() -> None:
    nodes = [node("Gemm", "x w", "h"), node("Tanh", "h", "y")]
    one = model(nodes[:1], (1, 5), GEMM, outputs=["h"])
    assert check(model(nodes, (1, 5), GEMM), output="h", run=one).output_shape == (3,)


def test_the_output_must_depend_on_the_input() -> None:
    nodes = [node("Neg", "c", "k"), node("Relu", "x", "y")]
    error = refused(model(nodes, (1, 5), {"c": floats(5)}, outputs=["k", "y"]), output="k")
    assert "0 inputs" in str(error)


def test_string_inputs_are_refused() -> None:
    proto = model([node("Identity", "x", "y")], (1, 5), dtype=TensorProto.STRING, output_dtype=TensorProto.STRING)
    error = refused(proto)
    assert "no tensor of numbers" in str(error)
    assert error.advice.startswith("encode texts in the model")


@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN])
def test_narrow_floats_are_refused_by_name(kind: int) -> None:
    error = refused(model([node("Identity", "x", "y")], (1, 5), dtype=kind, output_dtype=kind))
    assert f"input 'x' has type {TensorProto.DataType.Name(kind).lower()}, which is not read" in str(error)
    assert error.advice == "export the model in float32"


def test_a_directory_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is a directory, which holds no"):
        import_onnx(tmp_path)
    for name in "fedcba":
        (tmp_path / f"{name}.onnx").touch()
    with pytest.raises(ModelFileError, match=r"holds a\.onnx, b\.onnx, .* and 1 more[\s\S]*such as .*a\.onnx"):
        import_onnx(tmp_path)
    with pytest.raises(ModelFileError, match="there is no file"):
        import_onnx(tmp_path / "absent.onnx")


@pytest.mark.parametrize(
    ("package", "says"),
    [
        ("sklearn.linear_model", r"skl2onnx\.to_onnx\(model, X\[:1\]\)"),
        ("keras.src.models", "format='onnx'"),
        ("xgboost.core", "convert_xgboost makes an ONNX model"),
        ("lightgbm.basic", "convert_lightgbm"),
    ],
)
def test_models_of_other_packages_are_told_their_exporter(package: str, says: str) -> None:
    base = type("Model", (), {"__module__": package})
    own = type("Own", (base,), {"__module__": "own"})
    for kind in (base, own):
        with pytest.raises(InputError, match=says):
            import_onnx(kind())
    with pytest.raises(InputError) as caught:
        import_onnx(3)
    assert "what to do" not in str(caught.value)


def test_indices_that_are_compared_first_look_up_rows() -> None:
    """Keras' Embedding takes negative indices as such from the end."""
    nodes = [
        node("Cast", "x", "i", to=TensorProto.FLOAT),
        node("Less", "i zero", "c"),
        node("Add", "i count", "n"),
        node("Where", "c n i", "w"),
        node("Cast", "w", "k", to=TensorProto.INT64),
        node("Gather", "table k", "y"),
    ]
    constants = {"zero": np.float32(0), "count": np.float32(5), "table": floats(5, 3)}
    error = refused(model(nodes, ("N", 4), constants, dtype=TensorProto.INT64))
    assert "looks up rows of a table" in str(error)
    assert error.advice.startswith("let the index be a value of an integer input")


def attention(kind: str, after: list[onnx.NodeProto]) -> onnx.ModelProto:
    """A softmax or the largest over two parts of the channels, in another shape where that axis is none."""
    nodes = [
        node("Reshape", "x parts", "p"),
        node("Transpose", "p", "t", perm=[0, 2, 1]),
        node(kind, "t", "s", axis=1),
        node("Reshape", "s flat", "f"),
    ]
    constants = {"parts": np.array([0, 3, 2]), "flat": np.array([0, -1]), "w": floats(6, 2)}
    return model([*nodes, *after], ("N", 6), constants, outputs=["y" if after else "f"])


@pytest.mark.parametrize("after", [[node("Relu", "f", "y")], [node("Identity", "f", "g"), node("Relu", "g", "y")]])
def test_a_class_in_the_middle_is_named(after: list[onnx.NodeProto]) -> None:
    error = refused(attention("ArgMax", after))
    assert "after ArgMax, which is supported only at the end" in str(error)
    assert "1 operator is not supported: ArgMax" in str(error)
    check(attention("Softmax", after))


def test_a_softmax_at_the_end_keeps_its_axis() -> None:
    assert "where its axis is none" in str(refused(attention("Softmax", [])))


def test_opsets_out_of_range() -> None:
    assert "opset 6" in str(refused(model([node("Relu", "x", "y")], (1, 5), opset=6)))
    proto = model([node("Relu", "x", "y")], (1, 5))
    proto.opset_import[0].version = 999
    assert "update onnx" in str(refused(proto))


def test_custom_domains_are_refused() -> None:
    entry = helper.make_node("Thing", ["x"], ["y"], domain="com.example")
    proto = model([entry], (1, 5))
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    assert "com.example" in str(refused(proto))


def test_huge_constants_are_refused_before_they_are_made() -> None:
    value = numpy_helper.from_array(np.float32([1]))
    nodes = [node("ConstantOfShape", "s", "c", value=value), node("Add", "x c", "y")]
    error = refused(model(nodes, (1, 5), {"s": np.array([1 << 20, 1 << 20])}))
    assert "elements" in str(error)


def test_huge_inputs_are_refused() -> None:
    assert "elements" in str(refused(model([node("Relu", "x", "y")], (1, 1 << 20, 1 << 20))))


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07", bytes(range(256)) * 10])
def test_broken_bytes(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError):
        import_onnx(content)
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelFileError):
        import_onnx(path)


def test_missing_files() -> None:
    with pytest.raises(ModelFileError, match="no file"):
        import_onnx("absent.onnx")
    with pytest.raises(ModelFileError, match="is a directory"):
        import_onnx(Path("/"))


def external(folder: Path) -> Path:
    """A model with two tensors in a file beside it, and one in a node of its own."""
    constant = node("Constant", "", "c", value=numpy_helper.from_array(floats(1, 3), "value"))
    nodes = [constant, node("Gemm", "x w b", "h"), node("Add", "h c", "y")]
    proto = model(nodes, ("N", 5), {"w": floats(5, 3), "b": floats(3)})
    path = folder / "m.onnx"
    options = {"all_tensors_to_one_file": False, "size_threshold": 0, "convert_attribute": True}
    onnx.save_model(proto, path, save_as_external_data=True, **options)
    return path


def test_weights_in_files_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = external(tmp_path)
    imported = check(onnx.load(path), run=onnx.load(path))
    found = import_onnx(path)
    assert found.graph_json.replace('"m"', '"test"') == imported.graph_json
    for name, values in imported.tensors.items():
        np.testing.assert_array_equal(found.tensors[name], values)
    # From another folder, by a relative path.
    monkeypatch.chdir(tmp_path.parent)
    assert import_onnx(f"{tmp_path.name}/m.onnx").output_shape == (3,)


@pytest.mark.parametrize("missing", ["w", "value"])
def test_missing_weight_files_are_named(tmp_path: Path, missing: str) -> None:
    path = external(tmp_path)
    weights = onnx.load(path, load_external_data=False).graph.initializer
    locations = {tensor.name: tensor.external_data[0].value for tensor in weights}
    name = locations.get(missing) or next(
        file.name for file in tmp_path.iterdir() if file.name not in (*locations.values(), "m.onnx")
    )
    (tmp_path / name).unlink()
    with pytest.raises(ModelFileError) as caught:
        import_onnx(path)
    text = str(caught.value)
    assert repr(name) in text
    assert f"looked for: {tmp_path / name} (tensor '{missing}')" in text
    assert "put them there" in text


def test_weight_files_of_models_in_memory(tmp_path: Path) -> None:
    path = external(tmp_path)
    for source in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with pytest.raises(ModelFileError, match="give the path"):
            import_onnx(source)


@pytest.mark.parametrize("location", ["/etc/hostname", "../w", "", "x" * 5000, "a\0b", "."])
def test_hostile_places_of_weight_files(tmp_path: Path, location: str) -> None:
    path = external(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = location
    path.write_bytes(proto.SerializeToString())
    (tmp_path.parent / "w").write_bytes(bytes(1000))
    with pytest.raises(ModelFileError):
        import_onnx(path)


def test_damaged_weights() -> None:
    proto = model([node("Gemm", "x w", "y")], (1, 5), GEMM)
    proto.graph.initializer[0].raw_data = b"123"
    with pytest.raises(ModelFileError):
        import_onnx(proto)


def test_names_that_are_no_text() -> None:
    content = model([node("Gemm", "x weight", "y")], (1, 5), {"weight": GEMM["w"]}).SerializeToString()
    for name in (b"Gemm", b"weight"):
        damaged = content.replace(name, name[:-1] + b"\xe3")
        assert damaged != content
        with pytest.raises(ModelFileError, match="not UTF-8"):
            import_onnx(damaged)


def test_every_truncation_of_a_file_is_an_error_or_a_model() -> None:
    content = model([node("Gemm", "x w", "h"), node("Relu", "h", "y")], ("N", 5), GEMM).SerializeToString()
    failures = 0
    for length in range(len(content)):
        try:
            import_onnx(content[:length])
        except PronghornError:
            failures += 1
    assert failures > len(content) // 2
    # The whole file is a model.
    import_onnx(content)


def test_the_callers_model_is_not_changed() -> None:
    proto = model([node("Gemm", "x w", "y")], ("N", 5), GEMM)
    before = proto.SerializeToString()
    import_onnx(proto)
    assert proto.SerializeToString() == before


def test_steps_that_prepare_features_belong_to_the_data_owner() -> None:
    """Also where the first refusal is about another node."""
    nodes = [
        node("Relu", "x", "r"),
        node("Cast", "r", "i", to=7),
        node("OneHotEncoder", "i", "y", cats_int64s=[0, 1], domain="ai.onnx.ml"),
    ]
    proto = model(nodes, ("N", 5))
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    error = refused(proto)
    assert error.operator == "Cast"
    assert error.advice.startswith("ai.onnx.ml.OneHotEncoder: apply such steps before sending")


def test_categories_within_a_graph() -> None:
    """The inference of onnx ends the process at a LabelEncoder behind a Slice, which joined inputs have."""
    domain, codes = "ai.onnx.ml", {"keys_int64s": [0, 1], "values_int64s": [0, 1]}
    nodes = [node("LabelEncoder", "b", "c", domain=domain, **codes), node("Cast", "c", "d", to=TensorProto.FLOAT)]
    result = helper.make_tensor_value_info("d", TensorProto.FLOAT, None)
    graphs = {f"{name}_branch": helper.make_graph(nodes, name, [], [result]) for name in ("then", "else")}
    nodes = [node("If", "yes", "d", **graphs), node("Concat", "a d", "y", axis=1)]
    proto = model(nodes, ("N", 1), {"yes": np.array(True)}, inputs=("a", "b"))
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    proto.opset_import.append(helper.make_opsetid(domain, 2))
    assert import_onnx(proto).encoded is not None


def test_all_unsupported_operators_are_listed() -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Transpose", "a", "t", perm=[1, 0]),
        node("Log", "t", "b"),
        node("Round", "b", "c"),
        node("Log", "c", "d"),
        helper.make_node("Gelu", ["d"], ["e"], name="fused", domain="com.microsoft"),
        # Constants are folded, whatever makes them.
        node("Exp", "k", "f"),
        node("Add", "e f", "y"),
    ]
    proto = model(nodes, ("N", 5), {"k": floats(5)})
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    error = refused(proto)
    # The batch might move, but for the first operator that is not supported.
    assert error.operator == "Round"
    assert error.unsupported == {
        "Round": ["node_c"],
        "com.microsoft.Gelu": ["fused"],
    }
    says = "Round (1 node, node_c), com.microsoft.Gelu (1 node, fused)"
    assert f"  in the whole model: 2 operators are not supported: {says}\n" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    # One node alone is named already.
    assert "in the whole model" not in str(refused(model([node("LRN", "x", "y", size=3)], ("N", 5))))


@pytest.mark.parametrize(("metric", "width", "says"), [("cosine", 5, "its metric is cosine"), ("euclidean", 4, "fit")])
def test_distances_to_stored_rows(metric: str, width: int, says: str) -> None:
    nodes = [helper.make_node("CDist", ["x", "rows"], ["y"], domain="com.microsoft", metric=metric)]
    proto = model(nodes, ("N", 5), {"rows": floats(3, width)})
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert says in str(refused(proto))


def test_the_model_ends_at_no_value_of_sizes_alone() -> None:
    """As GPT-2 picks the scores of a text's last word: `z[arange(len(z)), argmax(a)]`."""
    nodes = [
        node("MatMul", "x v", "a"),
        node("MatMul", "x w", "z"),
        node("ArgMax", "a", "i", axis=1, keepdims=1),
        node("Shape", "x", "sizes"),
        node("Gather", "sizes zero", "n"),
        node("Range", "zero n one", "r"),
        node("Unsqueeze", "r last", "u"),
        node("Concat", "u i", "places", axis=1),
        node("GatherND", "z places", "y"),
    ]
    network = Network(nodes, "x", number=lambda _: None, is_end=lambda _: False)
    assert "(--output a --output z, output=['a', 'z'])" in network.advice("a")


def test_tensors_of_too_many_dimensions_are_refused() -> None:
    """numpy has arrays of 64 dimensions, and reads numbers one by one of 32 alone."""
    nodes = [node("Slice", "x starts ends", "y")]
    starts = np.zeros((2, *(1,) * 32), np.int64)
    constants = {"starts": starts, "ends": np.array([1, 2])}
    with pytest.raises(ModelFileError, match="'starts' has 33 dimensions"):
        import_onnx(model(nodes, ("N", 6), constants).SerializeToString())


def test_operators_that_the_exporter_did_not_translate() -> None:
    error = refused(model([node("Erfc", "x", "y")], ("N", 4)))
    assert (error.operator, error.node) == ("Erfc", "node_y")
    assert "the exporter did not translate it" in str(error)
    assert "approximate=True" in error.advice


def test_nodes_may_stand_in_any_order() -> None:
    first, last = node("MatMul", "x w", "h"), node("Relu", "h", "y")
    check(model([last, first], ("N", 5), GEMM), run=model([first, last], ("N", 5), GEMM))
    with pytest.raises(ModelFileError, match="topologically sorted"):
        import_onnx(model([last, node("Relu", "y", "h")], ("N", 5)))
