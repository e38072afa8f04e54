"""Recurrent networks, compared with onnxruntime, and in secret."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import pronghorn
from helpers import check, floats, model, node, run_native, run_onnx
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import import_onnx

STEPS, FEATURES, SIZE = 4, 3, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
KINDS = [("LSTM", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("RNN", {})]


def weights(kind: str, directions: int, features: int = FEATURES, name: str = "") -> dict[str, np.ndarray]:
    rows = GATES[kind] * SIZE
    return {
        f"w{name}": floats(directions, rows, features) / 2,
        f"r{name}": floats(directions, rows, SIZE) / 2,
        f"b{name}": floats(directions, 2 * rows),
    }


def recurrent(kind: str, inputs: str, output: str, direction: str = "forward", **attributes: object) -> onnx.NodeProto:
    outputs = f"{output} {output}h {output}c" if kind == "LSTM" else f"{output} {output}h"
    return node(kind, inputs, outputs, direction=direction, hidden_size=SIZE, **attributes)


def batch_first(
    middle: list[onnx.NodeProto], constants: dict[str, np.ndarray], batch: object = "N", **options: object
) -> onnx.ModelProto:
    """A model `(batch, steps, features)` whose nodes take the sequence `s`, and make `y`."""
    nodes = [node("Transpose", "x", "s", perm=[1, 0, 2]), *middle]
    return model(nodes, (batch, STEPS, FEATURES), constants, **options)


ALL_STEPS = [node("Transpose", "o", "q", perm=[1, 0, 2, 3]), node("Flatten", "q", "y")]


@pytest.mark.parametrize("batch", ["N", 1])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("kind", "attributes"), KINDS)
def test_all_steps(kind: str, attributes: dict, direction: str, batch: object) -> None:
    constants = weights(kind, 2 if direction == "bidirectional" else 1)
    check(batch_first([recurrent(kind, "s w r b", "o", direction, **attributes), *ALL_STEPS], constants, batch))
    without = {name: constants[name] for name in "wr"}
    check(batch_first([recurrent(kind, "s w r", "o", direction, **attributes), *ALL_STEPS], without, batch))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("kind", "attributes"), KINDS)
@pytest.mark.parametrize("end", ["h", "c"])
def test_last_states(kind: str, attributes: dict, direction: str, end: str) -> None:
    if end == "c" and kind != "LSTM":
        return
    directions = 2 if direction == "bidirectional" else 1
    constants = weights(kind, directions)
    back = [node("Transpose", f"o{end}", "q", perm=[1, 0, 2]), node("Flatten", "q", "y")]
    check(batch_first([recurrent(kind, "s w r b", "o", direction, **attributes), *back], constants))


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(("kind", "attributes"), KINDS)
def test_initial_states(kind: str, attributes: dict, direction: str) -> None:
    directions = 2 if direction == "bidirectional" else 1
    constants = weights(kind, directions) | {"h": floats(directions, 1, SIZE)}
    inputs = "s w r b - h"
    if kind == "LSTM":
        constants["c"] = floats(directions, 1, SIZE)
        inputs += " c"
    check(batch_first([recurrent(kind, inputs, "o", direction, **attributes), *ALL_STEPS], constants))
    for name in set(constants) & {"h", "c"}:
        constants[name] = np.zeros_like(constants[name])
    check(batch_first([recurrent(kind, inputs, "o", direction, **attributes), *ALL_STEPS], constants))
    # Computed from the input: the state of another one.
    before = recurrent(kind, "s w r b", "p", direction, **attributes)
    names = "s w r b - ph pc" if kind == "LSTM" else "s w r b - ph"
    after = recurrent(kind, names, "o", direction, **attributes)
    check(batch_first([before, after, *ALL_STEPS], {name: constants[name] for name in "wrb"}))


ROWS = 3


@pytest.mark.parametrize("state", ["none", "constant", "computed"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("kind", "attributes"), KINDS)
def test_rows_of_an_image_are_sequences(kind: str, attributes: dict, direction: str, state: str) -> None:
    """Several sequences of one image, as Sequencer and dual-path networks have them; first or second, of which
    onnxruntime runs the second alone."""
    directions = 2 if direction == "bidirectional" else 1
    constants = weights(kind, directions) | {
        "rows": np.array([ROWS, STEPS, FEATURES]),
        "shape": np.array([1, ROWS * STEPS * directions * SIZE]),
        "ends": np.array([1, ROWS * directions * SIZE]),
    }
    states = ("h", "c")[: 2 if kind == "LSTM" else 1]
    given = {name: floats(directions, ROWS, SIZE) for name in states if state == "constant"}

    def network(layout: int) -> onnx.ModelProto:
        made, inputs = [node("Reshape", "x rows", "t" if layout == 0 else "s")], "s w r b"
        if layout == 0:
            made.append(node("Transpose", "t", "s", perm=[1, 0, 2]))
        if state == "computed":
            made.append(recurrent(kind, inputs, "p", direction, layout=layout, **attributes))
        names = {"none": [], "constant": states, "computed": [f"p{name}" for name in states]}[state]
        inputs += "".join([" -" * bool(names), *(f" {name}" for name in names)])
        made.append(recurrent(kind, inputs, "o", direction, layout=layout, **attributes))
        order = {"perm": [2, 0, 1, 3]} if layout == 0 else {"perm": [0, 1, 2, 3]}
        of_ends = {"perm": [1, 0, 2]} if layout == 0 else {"perm": [0, 1, 2]}
        made += [node("Transpose", "o", "f", **order), node("Transpose", "oh", "e", **of_ends)]
        made += [node("Reshape", "f shape", "all"), node("Reshape", "e ends", "last")]
        own = given if layout == 0 else {name: array.transpose(1, 0, 2) for name, array in given.items()}
        joined = node("Concat", "all last", "y", axis=1)
        return model([*made, joined], (1, ROWS, STEPS, FEATURES), constants | own)

    check(network(0))
    inputs = floats(5, ROWS, STEPS, FEATURES)
    expected = run_onnx(network(0), inputs)[:, 0]
    np.testing.assert_allclose(run_native(import_onnx(network(1)), inputs), expected, atol=1e-5)


def test_rows_of_an_image_in_secret() -> None:
    """With a free batch, which is merged with the rows."""
    nodes = [
        node("Reshape", "x rows", "t"),
        node("Transpose", "t", "s", perm=[1, 0, 2]),
        recurrent("LSTM", "s w r b", "o"),
        node("Transpose", "o", "f", perm=[2, 0, 1, 3]),
        node("Reshape", "f shape", "y"),
    ]
    constants = weights("LSTM", 1) | {
        "rows": np.array([-1, STEPS, FEATURES]),
        "shape": np.array([-1, ROWS * STEPS * SIZE]),
    }
    proto = model(nodes, ("N", ROWS, STEPS, FEATURES), constants)
    inputs = floats(40, ROWS, STEPS, FEATURES)
    secure = pronghorn.load(proto, samples=inputs[:32])
    np.testing.assert_allclose(secure.run_float(inputs), secure.run_float(inputs[::-1])[::-1], atol=1e-5)
    report = secure.verify(inputs[32:34])
    assert report.disagreements == 0
    assert report.relative_error < 0.05


def test_what_pytorch_exports() -> None:
    """Two bidirectional layers, batch first, and the last step."""
    nodes = [
        recurrent("LSTM", "s w r b", "o", "bidirectional"),
        node("Transpose", "o", "ot", perm=[0, 2, 1, 3]),
        node("Reshape", "ot wide", "of"),
        recurrent("LSTM", "of w2 r2 b2", "p", "bidirectional"),
        node("Transpose", "p", "pt", perm=[0, 2, 1, 3]),
        node("Reshape", "pt wide", "pf"),
        node("Transpose", "pf", "back", perm=[1, 0, 2]),
        node("Gather", "back last", "z", axis=1),
        node("Gemm", "z g", "y"),
    ]
    constants = weights("LSTM", 2) | weights("LSTM", 2, 2 * SIZE, "2")
    constants |= {"wide": np.array([0, 0, -1]), "last": np.array(-1), "g": floats(2 * SIZE, 3)}
    assert check(batch_first(nodes, constants)).output_shape == (3,)


def test_states_of_both_directions() -> None:
    """`torch.cat((h[-2], h[-1]), 1)`, and slices of time-major values."""
    nodes = [
        recurrent("GRU", "s w r b", "o", "bidirectional"),
        node("Gather", "oh first", "f", axis=0),
        node("Gather", "oh second", "g", axis=0),
        node("Slice", "o start end axis", "e"),
        node("Transpose", "e", "et", perm=[2, 0, 1, 3]),
        node("Flatten", "et", "ef"),
        node("Concat", "f g ef", "y", axis=1),
    ]
    constants = {"first": np.array(-2), "second": np.array(-1)}
    constants |= {"start": np.array([1]), "end": np.array([3]), "axis": np.array([0])}
    check(batch_first(nodes, weights("GRU", 2) | constants))


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("pool", ["ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum"])
def test_pooling_over_a_sequence_before_the_batch(pool: str, direction: str, kept: int) -> None:
    """What TensorFlow's exporter makes of a pooling over the steps of an LSTM: it drops the transposition back."""
    axes = {"ReduceSum": ({}, "q first")}.get(pool, ({"axes": [0]}, "q"))
    nodes = [
        recurrent("LSTM", "s w r b", "o", direction),
        node("Transpose", "o", "t", perm=[0, 2, 1, 3]),
        node("Reshape", "t wide", "q"),
        node(pool, axes[1], "p", keepdims=kept, **axes[0]),
        node("Flatten", "p", "f", axis=2 if kept else 1),
        node("Gemm", "f g", "y"),
    ]
    directions = 2 if direction == "bidirectional" else 1
    constants = {"wide": np.array([0, 0, -1]), "first": np.array([0]), "g": floats(directions * SIZE, 3)}
    check(batch_first(nodes, weights("LSTM", directions) | constants))


def test_sums_and_means_of_the_states_of_both_directions() -> None:
    """With constants behind them, while the batch is not first."""
    nodes = [
        recurrent("GRU", "s w r b", "o", "bidirectional"),
        node("ReduceSum", "o second", "q", keepdims=0),
        node("ReduceMean", "q", "p", axes=[2], keepdims=1),
        node("Transpose", "p", "t", perm=[1, 0, 2]),
        node("Flatten", "t", "y"),
    ]
    check(batch_first(nodes, weights("GRU", 2) | {"second": np.array([1])}))


@pytest.mark.parametrize("batch", ["N", 1])
def test_operators_of_each_value_before_the_batch(batch: object) -> None:
    """With constants of fewer dimensions and of as many, and with one value for all steps."""
    nodes = [
        recurrent("GRU", "s w r b", "o"),
        node("Squeeze", "o second", "q"),
        node("Mul", "q k", "m"),
        node("Add", "m l", "a"),
        node("Add", "a h", "c"),
        node("Squeeze", "oh first", "h"),
        node("Relu", "c", "d"),
        node("Tanh", "d", "e"),
        node("Max", "e q", "f"),
        node("Sub", "one f", "g"),
        node("ReduceMax", "g", "p", axes=[0], keepdims=0),
        node("Sigmoid", "p", "y"),
    ]
    nodes[4:6] = nodes[5:3:-1]
    constants = {"second": np.array([1]), "first": np.array([0]), "one": np.float32(1)}
    constants |= {"k": floats(SIZE), "l": floats(STEPS, 1, SIZE)}
    check(batch_first(nodes, weights("GRU", 1) | constants, batch))


def test_a_sequence_in_reverse_order() -> None:
    """What Keras makes of a bidirectional GRU."""
    nodes = [
        node("ReverseSequence", "s lengths", "v"),
        recurrent("GRU", "v w r b", "o"),
        node("Squeeze", "o second", "q"),
        node("ReverseSequence", "q three", "u", batch_axis=1, time_axis=0),
        node("Transpose", "u", "t", perm=[1, 0, 2]),
        node("Flatten", "t", "y"),
    ]
    constants = {"lengths": np.array([STEPS]), "three": np.array([3]), "second": np.array([1])}
    check(batch_first(nodes, weights("GRU", 1) | constants))


@pytest.mark.parametrize("axes", [[2], [0, 2], [-2], [1, 2]])
def test_a_pooling_over_the_batch_is_refused(axes: list[int]) -> None:
    nodes = [recurrent("GRU", "s w r b", "o", "bidirectional"), node("ReduceMax", "o", "y", axes=axes)]
    with pytest.raises(UnsupportedModelError, match="the batch is not the first dimension") as caught:
        import_onnx(batch_first(nodes, weights("GRU", 2)))
    assert caught.value.operator == "ReduceMax"


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_states_of_two_layers(direction: str) -> None:
    """`h[-1]` of PyTorch, whose exporter puts the states of all layers into one value."""
    directions = 2 if direction == "bidirectional" else 1
    nodes = [
        recurrent("LSTM", "s w r b", "o", direction),
        node("Transpose", "o", "ot", perm=[0, 2, 1, 3]),
        node("Reshape", "ot wide", "of"),
        recurrent("LSTM", "of w2 r2 b2", "p", direction),
        node("Concat", "oh ph k", "states", axis=0),
        node("Gather", "states last", "q", axis=0),
        node("Slice", "states start end axis", "t"),
        node("Transpose", "t", "tt", perm=[1, 0, 2]),
        node("Flatten", "tt", "f"),
        node("Concat", "q f", "y", axis=1),
    ]
    constants = weights("LSTM", directions) | weights("LSTM", directions, directions * SIZE, "2")
    constants |= {"wide": np.array([0, 0, -1]), "last": np.array(2 * directions - 1), "k": floats(1, 1, SIZE)}
    constants |= {"start": np.array([-2]), "end": np.array([np.iinfo(np.int64).max]), "axis": np.array([0])}
    check(batch_first(nodes, constants, 1))


@pytest.mark.parametrize("kind", GATES)
def test_layout_with_the_batch_first(kind: str) -> None:
    """onnxruntime does not run it, but the same with transpositions."""
    constants = weights(kind, 2)
    plain = [recurrent(kind, "x w r b", "o", "bidirectional", layout=1), node("Flatten", "o", "y")]
    there = recurrent(kind, "s w r b", "o", "bidirectional")
    back = [node("Transpose", "o", "q", perm=[2, 0, 1, 3]), node("Flatten", "q", "y")]
    run = batch_first([there, *back], constants)
    check(model(plain, ("N", STEPS, FEATURES), constants), run=run)


def test_other_functions() -> None:
    constants = weights("LSTM", 2)
    functions = ["HardSigmoid", "Softsign", "Relu", "Sigmoid", "Relu", "Tanh"]
    other = recurrent("LSTM", "s w r b", "o", "bidirectional", activations=functions)
    check(batch_first([other, *ALL_STEPS], constants))


@pytest.mark.parametrize(
    ("inputs", "attributes", "says"),
    [
        ("s w r b", {"clip": 1.0}, "clip"),
        ("s w r b", {"input_forget": 1}, "input_forget"),
        ("s w r b - - - p", {}, "peepholes"),
        ("s w r b n", {}, "sequence_lens"),
        ("s w r b", {"activations": ["Sigmoid", "Elu", "Tanh"]}, "activations"),
        ("s w r b", {"direction": "bidirectional"}, "do not fit"),
        ("s w2 r b", {}, "do not fit"),
        ("x w r b", {}, "not sequences"),
    ],
)
def test_what_is_refused(inputs: str, attributes: dict, says: str) -> None:
    constants = weights("LSTM", 1) | {"p": floats(1, 3 * SIZE), "n": np.array([2], np.int32), "w2": floats(1, 9, 3)}
    constants = {name: constants[name] for name in constants if name in inputs.split()}
    attributes = {"direction": "forward"} | attributes
    made = node("LSTM", inputs, "o", hidden_size=SIZE, **attributes)
    with pytest.raises(UnsupportedModelError, match=says) as error:
        import_onnx(batch_first([made, *ALL_STEPS], constants))
    assert error.value.operator == "LSTM"


def test_a_sequence_before_a_batch_of_one() -> None:
    proto = model([recurrent("GRU", "x w r b", "o"), node("Flatten", "o", "y")], (7, 1, FEATURES), weights("GRU", 1))
    image, imported = floats(7, FEATURES), import_onnx(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    wanted = session.run(None, {"x": image[:, None]})[0]
    np.testing.assert_allclose(run_native(imported, image[None])[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sequences", [1, 3])
def test_one_step_of_sequences(sequences: int) -> None:
    """In one image, whose first dimension is fixed."""
    nodes = [recurrent("GRU", "x w r b", "o", "bidirectional"), node("Flatten", "o", "y")]
    check(model(nodes, (1, sequences, FEATURES), weights("GRU", 2)))


@pytest.mark.parametrize("trust", ["two-party", "client-aided"])
@pytest.mark.parametrize(("kind", "attributes"), KINDS)
def test_a_network_equals_the_oracle(kind: str, attributes: dict, trust: str) -> None:
    nodes = [
        recurrent(kind, "s w r b", "o", **attributes),
        node("Transpose", "oh", "q", perm=[1, 0, 2]),
        node("Flatten", "q", "f"),
        node("Gemm", "f g", "y"),
    ]
    rows = floats(48, STEPS, FEATURES)
    network = pronghorn.load(batch_first(nodes, weights(kind, 1) | {"g": floats(SIZE, 2)}), samples=rows)
    report = network.verify(rows[:2], trust=trust)
    assert report.disagreements == 0
    assert report.expected_error < 0.15
