"""What Python users give as inputs, and what is said of what cannot be taken."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import pronghorn
from helpers import floats, model, node
from pronghorn._arrays import as_inputs, as_numbers
from pronghorn.errors import InputError


class Frame:
    """A data frame as far as it is asked."""

    def __init__(self, **columns: Any) -> None:
        self._values = columns
        self.columns = list(columns)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.stack([np.asarray(column, object) for column in self._values.values()], axis=1)


class Tensor:
    """A tensor with gradients, as torch has them."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> np.ndarray:
        return self._values


class LazyFrame:
    """A frame that is not computed yet, as polars has them."""

    columns = ("a", "b")

    def collect(self) -> None: ...

    def collect_schema(self) -> None: ...


def test_masked_entries_are_refused() -> None:
    values = np.ma.masked_equal([[1.0, 2], [3, -999]], -999)
    for given in (values, list(values)):
        with pytest.raises(InputError, match=r"inputs have masked entries, the first at inputs\[1, 1\]"):
            as_inputs(given, (2,))
    np.testing.assert_array_equal(as_inputs(values.filled(0), (2,)), [[1, 2], [3, 0]])
    np.testing.assert_array_equal(as_inputs(values[:1], (2,)), [[1, 2]])


def test_tensors_with_gradients_are_taken() -> None:
    np.testing.assert_array_equal(as_inputs(Tensor(np.ones((3, 2))), (2,)), np.ones((3, 2)))


@pytest.mark.parametrize("wrong", [np.nan, -np.inf, 1e39])
def test_values_that_are_not_finite_are_named(wrong: float) -> None:
    table = np.ones((4, 3))
    table[2, 1] = wrong
    with pytest.raises(
        InputError,
        match=r"hold infinite values or NaN: the first is \S+ at samples\[2, 1\](: fill in missing values first)?$",
    ):
        as_inputs(table, (3,), "samples")
    frame = Frame(**dict(zip("abc", table.T, strict=True)))
    with pytest.raises(InputError, match=r"inputs\[2, 1\], column 'b'"):
        as_inputs(frame, (3,))
    with pytest.raises(InputError, match=r"inputs\[2, 2\], column 'b'"):
        as_inputs(frame, (3,), columns=("c", "a", "b"))
    with pytest.raises(InputError, match=r"inputs\[0, 2, 0, 1\](: fill in missing values first)?$"):
        as_inputs(table.reshape(1, 4, 1, 3), (4, 1, 3))


def test_samples_that_are_not_finite_are_named() -> None:
    proto = model([node("MatMul", "x w", "y")], ("N", 2), {"w": floats(2, 2)})
    with pytest.raises(InputError, match=r"samples\[1, 0\], column 'age'"):
        pronghorn.load(proto, samples=Frame(age=[1.0, np.nan], size=[2.0, 3.0]))


@pytest.mark.parametrize("columns", [(), ("b", "a", "c")])
def test_objects_that_are_numbers_are_taken(columns: tuple[str, ...]) -> None:
    frame = Frame(
        a=np.array([1, Decimal("2.5")], object), b=np.array([True, False], object), c=np.array([0.5, np.float32(2)])
    )
    wanted = np.array([[1, 1, 0.5], [2.5, 0, 2]], np.float32)
    order = ["abc".index(name) for name in columns or "abc"]
    np.testing.assert_array_equal(as_inputs(frame, (3,), columns=columns), wanted[:, order])


@pytest.mark.parametrize("wrong", ["x", None])
def test_objects_that_are_no_numbers_are_named(wrong: object) -> None:
    frame = Frame(a=[1.0, 2.0], b=np.array([3, wrong], object))
    for columns in ((), ("a", "b")):
        with pytest.raises(InputError, match=r"inputs\[1, 1\], column 'b' is .*, which is no number"):
            as_inputs(frame, (2,), columns=columns)
    with pytest.raises(InputError, match="column 'b' of the data frame has type datetime64"):
        as_inputs(Frame(a=[1.0], b=np.array(["2020-01-01"], "M8[s]")), (2,), columns=("a", "b"))
    with pytest.raises(InputError, match="inputs are not an array"):
        as_numbers([[1], [1, 2]], "inputs")


def test_frames_without_values_are_refused() -> None:
    proto = model([node("MatMul", "x w", "y")], ("N", 2), {"w": floats(2, 2)})
    loaded = pronghorn.load(proto, samples=Frame(a=[1.0, 2.0], b=[2.0, 3.0]))
    for take in (loaded.run_float, loaded.verify, loaded.calibrated):
        with pytest.raises(InputError, match=r"a LazyFrame has no values yet: give frame\.collect\(\)"):
            take(LazyFrame())


def test_other_orders_of_dimensions_are_told() -> None:
    images = floats(2, 3, 4, 5)
    with pytest.raises(InputError, match=r"transpose to \(images, 3, 4, 5\), .* \(0, 3, 1, 2\)"):
        as_inputs(images.transpose(0, 2, 3, 1), (3, 4, 5))
    with pytest.raises(InputError, match=r"transpose to \(images, 4, 5, 3\), .* \(0, 2, 3, 1\)"):
        as_inputs(images, (4, 5, 3))
    with pytest.raises(InputError, match=r"at least one image$"):
        as_inputs(images, (3, 4, 6))


class Loader:
    """A loader of batches, or a sparse matrix, as far as it is asked."""

    batch_size = 2

    def __iter__(self) -> Any:
        yield floats(2, 3)

    def __len__(self) -> int:
        return 1


class Sparse:
    def toarray(self) -> np.ndarray:
        return floats(2, 3)


# As those of torch.
Loader.__module__ = "torch.utils.data.dataloader"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([floats(2, 3), floats(2, 3)], r"samples are a list of batches[\s\S]*numpy\.concatenate\(samples\)"),
        ([floats(2, 3), floats(1, 3)], r"list of batches[\s\S]*numpy\.concatenate\(samples\)"),
        ((floats(2, 3),), r"tuple of batches"),
        ([(floats(2, 3), floats(2))], r"numpy\.concatenate\(\[batch\[0\] for batch in samples\]\)"),
        ((each for each in [floats(2, 3)]), r"samples have type generator[\s\S]*numpy\.concatenate\(list\(samples\)\)"),
        (Loader(), r"samples have type Loader[\s\S]*torch\.cat\(\[each\[0\] for each in samples\]\)"),
        (Sparse(), r"samples have type Sparse[\s\S]*what to do: give samples\.toarray\(\)"),
        ({"x": floats(2, 3)}, r"samples are given by name, and the names of the model's inputs are not known here"),
        (object(), r"samples have type object; an array is needed$"),
    ],
)
def test_collections_are_told_how_to_become_arrays(given: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        as_inputs(given, (3,), "samples")


def test_lists_of_inputs_are_taken() -> None:
    rows = [floats(3) for _ in range(4)]
    np.testing.assert_array_equal(as_inputs(rows, (3,)), np.stack(rows))
    maps = [floats(2, 3) for _ in range(4)]
    np.testing.assert_array_equal(as_inputs(maps, (2, 3)), np.stack(maps))
    np.testing.assert_array_equal(as_numbers(maps, "x"), np.stack(maps))
