"""If whose condition follows from shapes, as PyTorch's exporter of scripts writes it, compared with onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

import pronghorn
from helpers import check, floats, model, node
from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx import import_onnx


def graph(nodes: list[NodeProto], output: str, **stored: np.ndarray) -> GraphProto:
    result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    return helper.make_graph(nodes, "branch", [], [result], tensors)


def chosen(condition: str, then: GraphProto, other: GraphProto, output: str) -> NodeProto:
    return helper.make_node("If", [condition], [output], name=f"if_{output}", then_branch=then, else_branch=other)


def squeezed(source: str, output: str, axis: str = "one") -> list[NodeProto]:
    """`squeeze(axis)`: as it is where the dimension is no 1."""
    return [
        node("Shape", source, f"{output}_shape"),
        node("Gather", f"{output}_shape {axis}", f"{output}_size"),
        node("Equal", f"{output}_size one", f"{output}_is_one"),
        chosen(
            f"{output}_is_one",
            graph([node("Squeeze", f"{source} places", "squeezed")], "squeezed", places=np.array([1])),
            graph([node("Identity", source, "same")], "same"),
            output,
        ),
    ]


ONE = {"one": np.int64(1), "zero": np.int64(0)}


def test_a_dimension_that_is_one_goes() -> None:
    nodes = [
        node("MatMul", "x w", "p"),
        *squeezed("p", "s"),
        node("Flatten", "s", "f"),
        node("MatMul", "f v", "y"),
    ]
    check(model(nodes, ("N", 1, 5), {**ONE, "w": floats(5, 4), "v": floats(4, 2)}))


def test_choices_behind_each_other() -> None:
    """The second follows from the first's shape."""
    nodes = [
        node("Unsqueeze", "x places", "u"),
        *squeezed("u", "s"),
        *squeezed("s", "t"),
        node("Relu", "t", "y"),
    ]
    check(model(nodes, ("N", 1, 5), {**ONE, "places": np.array([1])}))


def test_a_choice_within_a_choice() -> None:
    """What the inner one reads of the outer has another name."""
    inner = chosen("is_one", graph([node("Neg", "own", "n")], "n"), graph([node("Relu", "own", "r")], "r"), "of_inner")
    outer = graph(
        [node("Mul", "x two", "own"), node("Equal", "size one", "is_one"), inner], "of_inner", two=np.float32(2)
    )
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape one", "size"),
        node("Equal", "size five", "is_five"),
        chosen("is_five", outer, graph([node("Identity", "x", "same")], "same"), "c"),
        node("Add", "c x", "y"),
    ]
    check(model(nodes, ("N", 5), {**ONE, "five": np.int64(5)}))


def test_names_within_a_choice_within_a_choice() -> None:
    """The inner one has a value of the name that the outer one's would get."""
    own = graph([node("Relu", "x", "outer/v"), node("Sub", "v outer/v", "n")], "n")
    inner = chosen("is_one", own, graph([node("Identity", "v", "same")], "same"), "of_inner")
    outer = graph([node("Mul", "x two", "v"), node("Equal", "size five", "is_one"), inner], "of_inner")
    choice = chosen("is_five", outer, graph([node("Identity", "x", "same")], "same"), "c")
    choice.name = "outer"
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape one", "size"),
        node("Equal", "size five", "is_five"),
        choice,
        node("Add", "c x", "y"),
    ]
    check(model(nodes, ("N", 5), {"one": np.int64(1), "five": np.int64(5), "two": np.float32(2)}))


def test_choices_by_more_than_a_few_images_are_refused() -> None:
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "count"),
        node("Greater", "count ten", "is_large"),
        chosen("is_large", graph([node("Neg", "x", "n")], "n"), graph([node("Relu", "x", "r")], "r"), "y"),
    ]
    with pytest.raises(UnsupportedModelError, match="number of images"):
        import_onnx(model(nodes, ("N", 5), {"zero": np.int64(0), "ten": np.int64(10)}))


def test_choices_by_the_number_of_images_are_refused() -> None:
    """One image alone would be another network."""
    nodes = [*squeezed("x", "s", "zero"), node("Relu", "s", "y")]
    with pytest.raises(UnsupportedModelError, match="number of images"):
        import_onnx(model(nodes, ("N", 1, 5), ONE))


@pytest.mark.parametrize("batch", [1, "N"])
def test_choices_by_values_compute_both(batch: object) -> None:
    """With several images the file cannot choose: each image runs by itself."""
    nodes = [
        node("Slice", "x none one one", "m"),
        node("Greater", "m bound", "is_large"),
        chosen("is_large", graph([node("MatMul", "x w", "n")], "n"), graph([node("Relu", "x", "r")], "r"), "y"),
    ]
    constants = {"bound": np.float32(0), "none": np.array([0]), "one": np.array([1]), "w": floats(5, 5)}
    inputs = floats(6, 5)
    inputs[:3, 0], inputs[3:, 0] = 1.0, -1.0
    check(model(nodes, (batch, 5), constants), inputs=inputs)


def test_a_choice_by_values_that_mixes_images_is_refused() -> None:
    nodes = [
        node("ReduceMax", "x", "m", keepdims=0),
        node("Greater", "m bound", "is_large"),
        chosen("is_large", graph([node("MatMul", "x w", "n")], "n"), graph([node("Relu", "x", "r")], "r"), "y"),
    ]
    with pytest.raises(UnsupportedModelError):
        import_onnx(model(nodes, ("N", 5), {"bound": np.float32(1), "w": floats(5, 5)}))


def test_branches_of_other_shapes_are_refused() -> None:
    """A choice of values would repeat those of one."""
    nodes = [
        node("Slice", "x none one one", "m"),
        node("Greater", "m bound", "is_large"),
        chosen("is_large", graph([node("MatMul", "x w", "n")], "n"), graph([node("MatMul", "x v", "r")], "r"), "c"),
        node("ReduceSum", "c one", "y"),
    ]
    constants = {"bound": np.float32(0), "none": np.array([0]), "one": np.array([1]), "w": floats(5, 1)}
    for batch in (1, "N"):
        with pytest.raises(UnsupportedModelError, match=r"have the shapes \[1, 1\] and \[1, 3\]"):
            import_onnx(model(nodes, (batch, 5), constants | {"v": floats(5, 3)}))


def test_a_choice_by_one_element() -> None:
    """A condition without dimensions."""
    nodes = [
        node("Slice", "x none one one", "m"),
        node("Reshape", "m scalar", "s"),
        node("Greater", "s bound", "is_large"),
        chosen("is_large", graph([node("MatMul", "x w", "n")], "n"), graph([node("Relu", "x", "r")], "r"), "y"),
    ]
    constants = {"bound": np.float32(0), "none": np.array([0]), "one": np.array([1]), "w": floats(5, 5)}
    inputs = floats(6, 5)
    inputs[:3, 0], inputs[3:, 0] = 1.0, -1.0
    check(model(nodes, (1, 5), constants | {"scalar": np.array([], np.int64)}), inputs=inputs)


def test_a_branch_that_is_no_number_where_it_is_not_taken() -> None:
    nodes = [
        node("ReduceMin", "x", "m", axes=[1], keepdims=1),
        node("Greater", "m bound", "is_large"),
        chosen("is_large", graph([node("Log", "x", "n")], "n"), graph([node("Neg", "x", "r")], "r"), "c"),
        node("MatMul", "c w", "y"),
    ]
    proto = model(nodes, (1, 5), {"bound": np.float32(0.5), "w": floats(5, 3)})
    samples = np.concatenate([floats(8, 5), 1 + np.abs(floats(8, 5))])
    with pytest.raises(UnsupportedModelError, match="does not choose"):
        pronghorn.load(proto, samples=samples).plan()
