"""Networks that begin at a value within a model, and their fronts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from typer.testing import CliRunner

import pronghorn
from helpers import floats, model, node, run_native
from pronghorn import _front
from pronghorn.cli import app
from pronghorn.errors import InputError, ModelFileError, OutputError, UnsupportedModelError
from test_import_batch_first import of_shapes

STEPS = [
    node("Abs", "x", "a"),
    node("Add", "a tiny", "b"),
    node("Log", "b", "features"),
    node("MatMul", "features w", "h"),
    node("Relu", "h", "r"),
    node("MatMul", "r v", "y"),
]
"""A logarithm over many decades, before a network."""

CONSTANTS = {"tiny": np.float32(1e-9), "w": floats(6, 8), "v": floats(8, 3)}


def decades(count: int) -> np.ndarray:
    """Inputs of very different sizes."""
    rng = np.random.default_rng(count)
    return (rng.normal(size=(count, 6)) * 10.0 ** rng.uniform(-6, 2, (count, 6))).astype(np.float32)


def whole() -> onnx.ModelProto:
    return of_shapes(STEPS, {"x": ("n", 6)}, {"y": ("n", 3)}, CONSTANTS)


def as_written(proto: onnx.ModelProto, inputs: dict[str, np.ndarray], *names: str) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(list(names), inputs)


def test_a_network_behind_its_front_is_the_model() -> None:
    images = decades(5)
    bare = pronghorn.load(whole(), begin="features")
    assert bare.front is not None
    assert (bare.front.inputs, bare.front.outputs, bare.inputs) == ({"x": (6,)}, ["features"], {"features": (6,)})
    features = bare.front(images)
    np.testing.assert_allclose(run_native(bare._imported, features), as_written(whole(), {"x": images}, "y")[0], 1e-4)
    np.testing.assert_allclose(bare.run_float(features), as_written(whole(), {"x": images}, "y")[0], rtol=1e-5)


def test_precision_is_that_of_the_network_alone() -> None:
    """In one network such logarithms are refused."""
    samples, others = decades(64), decades(16)
    with pytest.raises(pronghorn.PlanError, match="expected error"):
        pronghorn.load(whole(), samples=samples).plan()
    front = pronghorn.load(whole(), begin="features").front
    assert front is not None
    report = pronghorn.load(whole(), begin="features", samples=front(samples)).verify(front(others))
    assert report.disagreements == 0
    assert report.relative_error < 0.05


def test_only_the_front_has_its_constants_and_only_the_network_its_weights() -> None:
    loaded = pronghorn.load(whole(), begin="features")
    assert loaded.front is not None
    proto = onnx.load_model_from_string(bytes(loaded.front))
    assert [tensor.name for tensor in proto.graph.initializer] == ["tiny"]
    assert [each.op_type for each in proto.graph.node] == ["Abs", "Add", "Log"]
    assert not any(np.isclose(array, 1e-9).any() for array in loaded._imported.tensors.values())


def test_a_front_has_nothing_else_of_the_model() -> None:
    """No texts of exporters, no training graph, and of graphs within nodes what is needed."""
    secret = onnx.numpy_helper.from_array(floats(3, 3), "secretweight")
    proto = whole()
    proto.doc_string = proto.producer_name = proto.domain = "secret"
    proto.metadata_props.add(key="secret", value="secret")
    proto.training_info.add().initialization.CopyFrom(
        onnx.helper.make_graph([], "secret", [], [onnx.helper.make_tensor_value_info("s", 1, None)], [secret])
    )
    graph = proto.graph
    graph.doc_string = "secret"
    for part in (graph.node[0], graph.input[0], graph.initializer[0]):
        part.doc_string = "secret"
        part.metadata_props.add(key="secret", value="secret")
    front = pronghorn.load(proto, begin="features").front
    assert front is not None
    assert b"secret" not in bytes(front)
    assert secret.raw_data not in bytes(front)


def test_the_sizes_of_an_input_do_not_need_it() -> None:
    """As exporters take the number of images for a first state."""
    nodes = [
        *STEPS[:-1],
        node("Shape", "x", "shape"),
        node("Shape", "x", "last", start=-1),
        node("Gather", "shape places", "count"),
        node("Concat", "count five", "wanted", axis=0),
        node("Expand", "zero wanted", "zeros"),
        node("Concat", "r zeros", "both", axis=1),
        node("Cast", "last", "width", to=1),
        node("Mul", "both width", "scaled"),
        node("MatMul", "scaled u", "y"),
    ]
    constants = {**CONSTANTS, "places": np.array([0]), "five": np.array([5]), "zero": np.float32(1), "u": floats(13, 2)}
    proto = of_shapes(nodes, {"x": ("n", 6)}, {"y": ("n", 2)}, constants)
    loaded, images = pronghorn.load(proto, begin="features"), decades(4)
    assert loaded.front is not None
    assert loaded.inputs == {"features": (6,)}
    found = run_native(loaded._imported, np.asarray(loaded.front(images)))
    np.testing.assert_allclose(found, as_written(proto, {"x": images}, "y")[0], rtol=1e-4)


def test_an_input_of_a_number_a_row() -> None:
    """Its sizes are not those that the front has."""
    nodes = [
        node("Unsqueeze", "x one", "u"),
        node("Abs", "u", "a"),
        node("Shape", "x", "shape"),
        node("Expand", "half shape", "halves"),
        node("Unsqueeze", "halves one", "h"),
        node("Concat", "a h", "c", axis=1),
        node("MatMul", "c w", "y"),
    ]
    constants = {"one": np.array([1]), "half": np.float32(0.5), "w": floats(2, 3)}
    proto, rows = of_shapes(nodes, {"x": ("n",)}, {"y": ("n", 3)}, constants), floats(4)
    loaded = pronghorn.load(proto, begin="a")
    assert loaded.front is not None
    made = np.asarray(loaded.front(rows[:, None]))
    given = loaded.join({"a": made, "x": rows}) if len(loaded.inputs) > 1 else made
    found = run_native(loaded._imported, given)
    np.testing.assert_allclose(found, as_written(proto, {"x": rows}, "y")[0], rtol=1e-5)


def test_types_are_those_of_the_file() -> None:
    """Times in seconds, which single precision rounds to two minutes."""
    nodes = [
        node("Sub", "x start", "d"),
        node("Cast", "d", "features", to=TensorProto.FLOAT),
        node("MatMul", "features w", "y"),
    ]
    constants = {"start": np.int64(1_700_000_000), "w": floats(2, 2)}
    proto = model(nodes, ("n", 2), constants, dtype=TensorProto.INT64)
    front = pronghorn.load(proto, begin="features").front
    assert front is not None
    np.testing.assert_array_equal(front(np.array([[1_700_000_001, 1_700_000_007]])), [[1, 7]])
    for wrong in (np.array([[0.5, 1]]), np.array([[np.nan, 1]])):
        with pytest.raises(InputError, match="int64"):
            front(wrong)


def test_values_that_are_no_numbers_of_one_image() -> None:
    cases = {
        "not numbers with the batch": [node("ReduceSum", "x", "y", keepdims=0)],
        "infinite values or NaN": [node("Log", "x", "y")],
        "of other sizes": [node("NonZero", "x", "z"), node("Transpose", "z", "t"), node("Unsqueeze", "t first", "y")],
    }
    for says, nodes in cases.items():
        kind = TensorProto.INT64 if len(nodes) > 1 else TensorProto.FLOAT
        front = pronghorn.Front(model(nodes, ("n", 3), {"first": np.array([0])}, output_dtype=kind))
        with pytest.raises(InputError, match=says):
            front(np.array([[1, 0, 2], [0, 0, 1]], np.float32))


def test_several_values_and_an_input_that_the_network_reads_itself() -> None:
    nodes = [
        node("Exp", "x", "e"),
        node("Sqrt", "e", "s"),
        node("Concat", "e s z", "c", axis=1),
        node("MatMul", "c w", "y"),
    ]
    proto = of_shapes(nodes, {"x": ("n", 2), "z": ("n", 1)}, {"y": ("n", 3)}, {"w": floats(5, 3)})
    loaded = pronghorn.load(proto, begin=["e", "s"])
    assert loaded.front is not None
    assert (loaded.front.inputs, loaded.inputs) == ({"x": (2,)}, {"z": (1,), "e": (2,), "s": (2,)})
    x, z = floats(4, 2), floats(4, 1)
    made = loaded.front({"x": x})
    assert isinstance(made, dict)
    found = run_native(loaded._imported, loaded.join({**made, "z": z}))
    np.testing.assert_allclose(found, as_written(proto, {"x": x, "z": z}, "y")[0], rtol=1e-4, atol=1e-5)


def test_images_run_by_themselves() -> None:
    """A front that takes the largest of all images is that of each."""
    nodes = [node("ReduceMax", "x", "m", keepdims=1), node("Sub", "x m", "f"), node("MatMul", "f w", "y")]
    proto = of_shapes(nodes, {"x": ("n", 4)}, {"y": ("n", 2)}, {"w": floats(4, 2)})
    front = pronghorn.load(proto, begin="f").front
    assert front is not None
    images = floats(3, 4)
    np.testing.assert_allclose(front(images), images - images.max(axis=1, keepdims=True), rtol=1e-6)


def test_shapes_are_those_of_the_file() -> None:
    nodes = [node("ReduceMean", "x", "m", axes=[2], keepdims=0), node("MatMul", "m w", "y")]
    proto = of_shapes(nodes, {"x": ("n", 4, "length")}, {"y": ("n", 2)}, {"w": floats(4, 2)})
    with pytest.raises(UnsupportedModelError, match="dimension 2 of input 'x' is not fixed"):
        pronghorn.load(proto, begin="m")
    for shape in ((1, 4, 9), {"x": (1, 4, 9)}):
        loaded = pronghorn.load(proto, begin="m", shape=shape)
        assert loaded.front is not None
        assert (loaded.front.inputs, loaded.input_shape) == ({"x": (4, 9)}, (4,))


def test_whole_numbers_and_words() -> None:
    """A front that looks words up: of all that clients send it hides which words they are."""
    nodes = [node("Gather", "table x", "e"), node("Flatten", "e", "f"), node("MatMul", "f w", "y")]
    constants = {"table": floats(50, 4), "w": floats(12, 2)}
    proto = model(nodes, ("n", 3), constants, dtype=TensorProto.INT64)
    loaded = pronghorn.load(proto, begin="e")
    assert loaded.front is not None
    words = np.array([[0, 7, 49], [3, 3, 1]])
    np.testing.assert_array_equal(loaded.front(words), constants["table"][words])
    with pytest.raises(InputError, match="cannot be run on these inputs"):
        loaded.front(np.array([[0, 0, 50]]))


@pytest.mark.parametrize(
    ("begin", "error", "says"),
    [
        (5, InputError, "give the name of a value"),
        (["features", "unread"], UnsupportedModelError, "does not depend on 'unread'"),
        ("absent", UnsupportedModelError, "no node of the model makes 'absent'"),
        (["features", "features"], InputError, "name each value once"),
        ("flat", UnsupportedModelError, "the first dimension is not the batch"),
        ("truth", UnsupportedModelError, "these are no numbers"),
        ("k", UnsupportedModelError, "does not depend on the input"),
        ("y", UnsupportedModelError, "no node of the model makes 'y'|depends on no input"),
    ],
)
def test_values_that_are_no_beginning(begin: object, error: type, says: str) -> None:
    nodes = [
        *STEPS,
        node("Reshape", "features sizes", "flat"),
        node("Greater", "features tiny", "truth"),
        node("Neg", "tiny", "k"),
        node("Exp", "x", "unread"),
    ]
    proto = of_shapes(nodes, {"x": ("n", 6)}, {"y": ("n", 3)}, {**CONSTANTS, "sizes": np.array([-1])})
    with pytest.raises(error, match=says):
        pronghorn.load(proto, begin=begin)


def test_a_front_by_file(tmp_path: Path) -> None:
    front = pronghorn.load(whole(), begin="features").front
    assert front is not None
    front.save(tmp_path / "front.onnx")
    again, images = pronghorn.Front(tmp_path / "front.onnx"), decades(3)
    np.testing.assert_array_equal(again(images), front(images))
    with pytest.raises(OutputError, match="cannot be written"):
        front.save(tmp_path / "absent" / "front.onnx")
    (tmp_path / "front.onnx").write_bytes(bytes(front)[:-9])
    with pytest.raises(ModelFileError):
        pronghorn.Front(tmp_path / "front.onnx")


def test_a_front_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    images = decades(3)
    wanted = pronghorn.Front(bytes(_made()))(images)

    def absent(*_: object) -> None:
        raise ImportError

    monkeypatch.setattr(pronghorn._runtime, "session", absent)
    np.testing.assert_allclose(pronghorn.Front(bytes(_made()))(images), wanted, rtol=1e-6)


def _made() -> _front.Front:
    front = pronghorn.load(whole(), begin="features").front
    assert front is not None
    return front


def test_the_command_line(tmp_path: Path) -> None:
    """The owner writes a front, a client runs it, and both take the network's inputs."""
    onnx.save(whole(), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", decades(40))
    run = CliRunner().invoke
    m, x, front, f = (str(tmp_path / name) for name in ("m.onnx", "x.npy", "front.onnx", "f.npy"))
    assert run(app, ["front", m, "--begin", "features", "--save", front]).exit_code == 0
    assert run(app, ["front", front, "--data", x, "--out", f]).exit_code == 0
    np.testing.assert_array_equal(np.load(f), _made()(decades(40)))
    verified = run(app, ["verify", m, "--begin", "features", "--samples", f, "--data", f, "--no-secure", "--json"])
    assert verified.exit_code == 0, verified.output
    assert run(app, ["plan", m, "--begin", "features", "--data", f]).exit_code == 0
    for wrong in ([m], [m, "--data", x], [front, "--data", x, "--out", str(tmp_path / "f.npz")]):
        assert run(app, ["front", *wrong]).exit_code != 0


def test_modules_have_none() -> None:
    torch = pytest.importorskip("torch")
    for options in ({"begin": "features"}, {"fixed": {"h": 0}}):
        with pytest.raises(InputError, match="for ONNX models"):
            pronghorn.load(torch.nn.Linear(3, 2), example=torch.zeros(1, 3), **options)
