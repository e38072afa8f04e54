"""What users give as inputs, as arrays of numbers: NumPy arrays, tensors, data frames and nested lists."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn._categories import NO_CATEGORIES, Categories
from pronghorn._columns import frame_names, in_order, listed, places, refuse_lazy
from pronghorn._rounding import warn_of_rounding
from pronghorn.errors import InputError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Place = tuple[int, ...]
Inputs = npt.ArrayLike | Mapping[str, npt.ArrayLike]
"""Inputs of a model: an array of them, or for each input of several an array by its name."""

NUMBERS = (Real, Decimal, np.bool_)
"""Kinds of objects that are taken for numbers."""
CHANNELS_LAST = (0, 3, 1, 2)
CHANNELS_FIRST = (0, 2, 3, 1)
"""Orders of dimensions that bring the channels of images to the front, and to the end."""


def as_inputs(
    given: Inputs,
    shape: tuple[int, ...],
    what: str = "inputs",
    columns: Sequence[str] = (),
    parts: Mapping[str, Place] = MappingProxyType({}),
    categories: Categories = NO_CATEGORIES,
) -> Floats:
    """Inputs as contiguous float32 `(images, *shape)`.

    Args:
        given: an array, or a data frame; or by the names of the model's inputs one of each; or columns by their names.
            Of inputs of one number it may be a list of these.
        shape: of one input.
        what: the inputs' name in errors.
        columns: the names of the features that the model takes, by which columns of a data frame are found.
        parts: the shapes of the model's inputs by name, where they are known.
        categories: the values of a row that are categories. Numbers of the shape have indicators for them already.

    Raises:
        InputError: another shape, no images, values that are not finite numbers, or a category that the model does not
            know.
    """
    if categories.each and (isinstance(given, Mapping) or as_array(given, what).shape[1:] != shape):
        rows, names = _rows(given, what, columns, parts, categories)
        return categories.encode(rows, shape, what, names)
    if isinstance(given, Mapping):
        return joined(*_by_name(given, shape, what, columns, parts), what).reshape(-1, *shape)
    _refuse_batches(given, what, shape)
    frame = "the data frame" if what == "inputs" else f"the data frame of {what}"
    names = tuple(columns) or frame_names(given)
    names = names if shape == (len(names),) else ()
    found = np.asarray(as_column(as_numbers(in_order(given, columns, frame), what, names), shape))
    if found.shape[1:] != shape or found.ndim != len(shape) + 1 or len(found) == 0:
        raise _misfit(what, found.shape, shape, parts)
    with np.errstate(over="ignore"):
        inputs = np.ascontiguousarray(found, dtype=np.float32)
    finite = np.isfinite(inputs)
    if not finite.all():
        place = _first(~finite)
        where = f"the first is {found[place]} at {_where(what, place, names)}"
        advice = ": fill in missing values first" if np.isnan(found[place]) else ""
        raise InputError(f"{what} hold infinite values or NaN: {where}{advice}")
    warn_of_rounding(found, what, names)
    return inputs


def _rows(
    given: Inputs, what: str, columns: Sequence[str], parts: Mapping[str, Place], categories: Categories
) -> tuple[Array, Sequence[str]]:
    """Rows of numbers and categories `(images, *row_shape)`, and the names of their values, or none.

    Raises:
        InputError: another shape, or no images.
    """
    shape = categories.row_shape
    if isinstance(given, Mapping):
        given, parts = _by_name(given, shape, what, columns, parts)
        return named_rows(given, parts, what).reshape(-1, *shape), tuple(parts) if len(parts) > 1 else columns
    frame = "the data frame" if what == "inputs" else f"the data frame of {what}"
    found = np.asarray(as_column(as_array(in_order(given, columns, frame), what), shape))
    if found.shape[1:] != shape or found.ndim != len(shape) + 1 or len(found) == 0:
        raise _misfit(what, found.shape, shape, parts)
    return found, tuple(columns) or frame_names(given)


def _by_name(
    given: Mapping[str, Any], shape: Place, what: str, columns: Sequence[str], parts: Mapping[str, Place]
) -> tuple[Mapping[str, Any], Mapping[str, Place]]:
    """Values by the names of inputs, or of columns of a row in the model's order; and the shapes of all by name."""
    if not columns or shape != (len(columns),) or set(given) == set(parts):
        return given, parts
    found_at = places(columns, [str(name).strip() for name in given], what)
    return _ordered(given, columns, found_at), dict.fromkeys(columns, (1,))


def _misfit(what: str, found: Place, shape: Place, parts: Mapping[str, Place]) -> InputError:
    """That inputs have another shape than the model takes."""
    wanted = ", ".join(map(str, ("images", *shape)))
    problem = f"{what} have shape {list(found)}; the model takes ({wanted}), at least one image"
    return InputError(problem + (_shape_advice(found, shape) or several(parts)))


def named_rows(values: Mapping[str, npt.ArrayLike], parts: Mapping[str, Place], what: str) -> Array:
    """Numbers and texts of inputs by name as one row each, `(images, values)`.

    Raises:
        InputError: as `joined`.
    """
    _refuse_unknown_names(what, parts)
    refuse_names(what, list(values), parts)
    found = dict[str, Array]()
    for name, shape in parts.items():
        part = as_array(as_column(values[name], shape), f"{what}[{name!r}]")
        if part.shape[1:] != shape or len(part) == 0:
            wanted = ", ".join(map(str, ("images", *shape)))
            raise InputError(f"{what}[{name!r}] has shape {list(part.shape)}; the model takes ({wanted})")
        found[name] = part.astype(object)
    return one_row(what, found)


def joined(values: Mapping[str, npt.ArrayLike], parts: Mapping[str, Place], what: str) -> Floats:
    """Inputs by name as one row each: flattened, one after the other.

    Args:
        values: for each input's name `(images, *shape)`; of an input of one number `(images,)`, too.
        parts: the shapes of the model's inputs by name, in the order of the row.
        what: the inputs' name in errors.

    Raises:
        InputError: an input is absent, unknown, or of another shape or number of images.
    """
    _refuse_unknown_names(what, parts)
    refuse_names(what, list(values), parts)
    named = [(name, as_column(values[name], shape), shape) for name, shape in parts.items()]
    found = [as_inputs(value, shape, f"{what}[{name!r}]") for name, value, shape in named]
    return one_row(what, dict(zip(parts, found, strict=True)))


def _refuse_unknown_names(what: str, parts: Mapping[str, Place]) -> None:
    """Refuses inputs by name where the model's names are not known."""
    if not parts:
        raise InputError(
            f"{what} are given by name, and the names of the model's inputs are not known here\n"
            "  what to do: give one array. Of several inputs its rows have each flattened, one after the other, in the "
            "order of the model's file (the owner's Model.join makes them); of columns make a data frame"
        )


def one_row(what: str, found: Mapping[str, Array]) -> Array:
    """The values of inputs by name, `(images, ...)` each, one after the other.

    Raises:
        InputError: their numbers of images differ.
    """
    if len({len(part) for part in found.values()}) != 1:
        counts = listed([f"{len(part)} of {name}" for name, part in found.items()])
        raise InputError(f"{what}: there are {counts}\n  what to do: give as many of each input")
    return np.concatenate([part.reshape(len(part), -1) for part in found.values()], axis=1)


def as_column(value: npt.ArrayLike, shape: Place) -> npt.ArrayLike:
    """A list of numbers as a column, for an input of one number; anything else as it is."""
    if math.prod(shape) != 1 or not shape:
        return value
    found = as_array(value, "inputs")
    return found.reshape(-1, *shape) if found.ndim == 1 else value


def refuse_names(what: str, found: Sequence[str], parts: Mapping[str, Place]) -> None:
    """Refuses arrays of other names than those of a model's inputs.

    Raises:
        InputError: one is missing, or one is no input.
    """
    missing = [name for name in parts if name not in found]
    unknown = [str(name) for name in found if name not in parts]
    problems = [f"there is no array for {listed(missing)}"] if missing else []
    problems += [f"no input has the name {listed(unknown)}"] if unknown else []
    if problems:
        shapes = [f"{name} {list(shape)}" for name, shape in parts.items()]
        raise InputError(
            f"{what}: {', and '.join(problems)}; the model takes {listed(shapes)}\n"
            "  what to do: give each input by its name, and no other"
        )


def _ordered(given: Mapping[str, Any], names: Sequence[str], found_at: Sequence[int]) -> dict[str, Any]:
    """The columns at these places, under the model's names."""
    values = list(given.values())
    return {name: values[place] for name, place in zip(names, found_at, strict=True)}


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
        "\n  what to do: give all by name (a dictionary, or npz with an array of each); where one is a constant, "
        "export it as a constant"
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
