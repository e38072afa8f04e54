"""What users give as inputs, as arrays of numbers: NumPy arrays, tensors, data frames and nested lists."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn._columns import frame_names, in_order, listed, refuse_lazy
from pronghorn.errors import InputError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Place = tuple[int, ...]

NUMBERS = (Real, Decimal, np.bool_)
"""Kinds of objects that are taken for numbers."""
CHANNELS_LAST = (0, 3, 1, 2)
CHANNELS_FIRST = (0, 2, 3, 1)
"""Orders of dimensions that bring the channels of images to the front, and to the end."""


def as_inputs(
    given: npt.ArrayLike,
    shape: tuple[int, ...],
    what: str = "inputs",
    columns: Sequence[str] = (),
    parts: Mapping[str, Place] = MappingProxyType({}),
) -> Floats:
    """Inputs as contiguous float32 `(images, *shape)`.

    Args:
        given: an array, or a data frame.
        shape: of one input.
        what: the inputs' name in errors.
        columns: the names of the features that the model takes, by which columns of a data frame are found.
        parts: the shapes of the model's inputs, which a refusal lists where there are several.

    Raises:
        InputError: another shape, no images, or values that are not finite numbers.
    """
    _refuse_batches(given, what, shape)
    frame = "the data frame" if what == "inputs" else f"the data frame of {what}"
    names = tuple(columns) or frame_names(given)
    names = names if shape == (len(names),) else ()
    found = as_numbers(in_order(given, columns, frame), what, names)
    if found.shape[1:] != shape or found.ndim != len(shape) + 1 or len(found) == 0:
        wanted = ", ".join(map(str, ("images", *shape)))
        problem = f"{what} have shape {list(found.shape)}; the model takes ({wanted}), at least one image"
        raise InputError(problem + (_shape_advice(found.shape, shape) or several(parts)))
    with np.errstate(over="ignore"):
        inputs = np.ascontiguousarray(found, dtype=np.float32)
    finite = np.isfinite(inputs)
    if not finite.all():
        place = _first(~finite)
        where = f"the first is {found[place]} at {_where(what, place, names)}"
        raise InputError(f"{what} hold infinite values or NaN: {where}")
    return inputs


def as_numbers(given: npt.ArrayLike, what: str, names: Sequence[str] = ()) -> Array:
    """An array as numbers of any type; `names`: those of its columns, for errors.

    Raises:
        InputError: it is no array, or holds something else.
    """
    found = as_array(given, what)
    if found.dtype.kind == "O" and found.ndim > 0:
        found = _of_objects(found, what, names)
    if found.dtype.kind not in "fiub":
        raise InputError(f"{what} have type {found.dtype}; numbers are needed")
    return found


def as_array(given: npt.ArrayLike, what: str) -> Array:
    """An array, or a tensor on any device and with or without gradients.

    Raises:
        InputError: it is neither, or entries are masked.
    """
    refuse_lazy(given)
    _refuse_masked(given, what)
    _refuse_data_set(given, what)
    try:
        if callable(getattr(given, "detach", None)):
            # NumPy takes no tensor that has gradients or is on another device.
            return np.asarray(given.detach().cpu())  # type: ignore[union-attr]
        found = np.asarray(given)
    except (RuntimeError, TypeError, ValueError) as error:
        # Batches of several sizes.
        _refuse_batches(given, what)
        raise InputError(f"{what} are not an array: {error}") from None
    if found.dtype.kind == "O" and found.ndim == 0:
        raise InputError(f"{what} have type {type(given).__name__}; an array is needed{_object_advice(given, what)}")
    return found


def channel_order(found: Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The order of dimensions that makes images `(images, *shape)` of arrays of a shape whose channels are elsewhere;
    None where there is none."""
    if len(shape) != 3 or len(found) != 4:
        return None
    orders = (CHANNELS_LAST, CHANNELS_FIRST)
    return next((order for order in orders if tuple(found[axis] for axis in order[1:]) == shape), None)


def several(parts: Mapping[str, Place]) -> str:
    """A line that lists a model's inputs, where there are several: exporters make some of constants."""
    if len(parts) < 2:
        return ""
    shapes = [f"{name} {list(shape)}" for name, shape in parts.items()]
    return (
        f"\n  its row holds {len(parts)} inputs, one after the other: {listed(shapes)}"
        "\n  what to do: give the values of all (Model.join); where one is a constant, export it as a constant"
    )


def _shape_advice(found: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """The way to the model's shape, where there is a likely one."""
    rest = shape[next((at for at, size in enumerate(shape) if size > 1), len(shape)) :]
    if found in (shape, rest) and 0 not in found:
        return f"\n  what to do: for one input reshape it to {[1, *shape]}"
    order = channel_order(found, shape)
    if order is None:
        return ""
    wanted = ", ".join(map(str, ("images", *shape)))
    return f"\n  what to do: transpose to ({wanted}), such as by numpy.transpose(x, {order})"


def _refuse_batches(given: Any, what: str, shape: tuple[int, ...] | None = None) -> None:
    """Refuses a list of batches, or of batches with labels; `shape`: of one input, where it is known."""
    if not isinstance(given, list | tuple) or not given:
        return
    are_pairs = isinstance(given[0], list | tuple) and len(given[0]) > 0
    first = given[0][0] if are_pairs else given[0]
    size = getattr(first, "shape", None)
    if not isinstance(size, tuple) or len(size) < 2 or shape not in (None, tuple(size[1:])):
        return
    join = "torch.cat" if _is_of(first, "torch") else "numpy.concatenate"
    parts = f"[batch[0] for batch in {what}]" if are_pairs else what
    raise InputError(
        f"{what} are a {type(given).__name__} of batches\n  what to do: join them, such as {join}({parts})"
    )


def _refuse_data_set(given: Any, what: str) -> None:
    """Refuses a data set or loader of PyTorch: NumPy would read a data set whole, labels included."""
    if not _is_of(given, "torch.utils.data"):
        return
    join = "cat" if hasattr(given, "batch_size") or hasattr(given, "__next__") else "stack"
    raise InputError(
        f"{what} have type {type(given).__name__}; an array is needed\n"
        f"  what to do: join its inputs, such as torch.{join}([each[0] for each in {what}]) where labels follow them"
    )


def _object_advice(given: Any, what: str) -> str:
    """The way from an object to an array, where there is a likely one."""
    if callable(getattr(given, "toarray", None)):
        return f"\n  what to do: give {what}.toarray()"
    if isinstance(given, Mapping):
        return "\n  what to do: give the array within; of columns make a data frame (pandas.DataFrame)"
    if callable(getattr(given, "__iter__", None)):
        return (
            f"\n  what to do: of batches make one array, numpy.concatenate(list({what})); of single inputs use "
            "numpy.stack"
        )
    return ""


def _is_of(given: Any, package: str) -> bool:
    """Whether an object is of a class of a package, or of one derived from it."""
    modules = (kind.__module__ for kind in type(given).__mro__)
    return any(f"{module}.".startswith(f"{package}.") for module in modules)


def _refuse_masked(given: Any, what: str) -> None:
    """Refuses arrays of which entries are masked: NumPy takes the values under the mask."""
    parts = given if isinstance(given, list | tuple) else [given]
    masked = next((at for at, part in enumerate(parts) if np.ma.is_masked(part)), None)
    if masked is None:
        return
    within = _first(np.ma.getmaskarray(parts[masked]))
    place = (masked, *within) if parts is given else within
    raise InputError(
        f"{what} have masked entries, the first at {_where(what, place)}\n"
        "  what to do: fill them (x.filled(value)), or leave such inputs out"
    )


def _of_objects(found: Array, what: str, names: Sequence[str]) -> Array:
    """The numbers that objects are, as columns of mixed data frames have them."""
    flat = found.ravel().tolist()
    wrong = next((at for at, value in enumerate(flat) if not isinstance(value, NUMBERS)), None)
    if wrong is not None:
        where = _where(what, _place(wrong, found.shape), names)
        raise InputError(f"{where} is {reprlib.repr(flat[wrong])}, which is no number; numbers are needed")
    numbers = np.array(flat).reshape(found.shape)
    return numbers if numbers.dtype.kind in "fiub" else found.astype(np.float64)


def _first(wrong: npt.NDArray[np.bool_]) -> Place:
    """The place of the first True."""
    return _place(int(wrong.argmax()), wrong.shape)


def _place(at: int, shape: tuple[int, ...]) -> Place:
    """The place of value `at` of an array of a shape."""
    return tuple(int(index) for index in np.unravel_index(at, shape))


def _where(what: str, place: Place, names: Sequence[str] = ()) -> str:
    """A value of an array, with the name of its column where it has one."""
    column = f", column {names[place[1]]!r}" if len(place) == 2 and place[1] < len(names) else ""
    return f"{what}[{', '.join(map(str, place))}]{column}"
