"""Categories of inputs' values: whoever owns the data sends an indicator for each category in place of such a value."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pronghorn._columns import MOST_WHOLE, is_name
from pronghorn._headers import TRUTHS
from pronghorn._rounding import warn_of_rounding
from pronghorn.errors import InputError, InputWarning

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Shape = tuple[int, ...]
Values = range | tuple[int, ...] | tuple[str, ...]

Others = Literal["refused", "zeros", "alike"]

MOST_ENCODED = 1 << 30
"""Numbers that rows are encoded as at once, at most: 4 GiB."""
MOST_ABSENT, MOST_MADE = 256, 1 << 22
"""Samples that are made of others with categories that none has, at most, and numbers in them."""
FIRST = 2
"""Categories of a vocabulary that may be padding."""
SHOWN = 10
"""Categories in a message, at most."""
MOST_DIGITS = 30
"""Of whole numbers as texts."""

WHOLE = re.compile(r"\s*[+-]?\d{1,30}\s*", re.ASCII)
"""A text that is a whole number."""


@dataclass(frozen=True)
class Category:
    """A value of a row that is one of several categories."""

    place: int
    """In the row as its owner has it."""
    values: Values
    """The categories that the model knows, in the order of their indicators."""
    others: Others
    """What becomes of another value: it is refused; or its indicators are all 0, with a warning; or without one, where
    the model tells no others apart."""

    @property
    def are_texts(self) -> bool:
        """Whether the categories are texts, and not whole numbers."""
        return not isinstance(self.values, range) and isinstance(self.values[0], str)

    @property
    def other(self) -> int | str:
        """A value that is none of them."""
        if self.are_texts:
            return max(map(str, self.values), key=len) + "'"
        # The smallest: bytes hold it, unless there is a category for each.
        known = set(map(int, self.values))
        return next(value for value in range(len(known) + 1) if value not in known)

    def find(self, column: Array, what: str) -> npt.NDArray[np.int64]:
        """The index of each value's category; -1 for another, where the model has indicators of 0 for it.

        Raises:
            InputError: another, where the model has none.
        """
        comparable = _comparable(column, self.are_texts, what)
        if not self.are_texts and (comparable % 1 != 0).any():
            at = int(np.argmax(comparable % 1 != 0))
            raise InputError(f"{what} is {_plain(column[at])!r} in row {at}, and categories there are whole numbers")
        different, places = np.unique(comparable, return_inverse=True)
        index = self._index()
        found = np.array([index(value) for value in different.tolist()], np.int64)[places.ravel()]
        others = np.flatnonzero(found < 0)
        if others.size:
            first = f"{_plain(column[others[0]])!r} in row {others[0]}"
            known = f"no category that the model knows: {self.shown()}"
            if self.others == "refused":
                raise InputError(f"{what} is {first}, which is {known}")
            if self.others == "zeros":
                rows = "1 row" if others.size == 1 else f"{others.size} rows"
                text = f"{what} has in {rows} a value that is {known}; the first is {first}. They count as none"
                warnings.warn(text, InputWarning, stacklevel=2)
        return found

    def absent(self, indicators: Floats) -> npt.NDArray[np.int64]:
        """The indices of categories that no row has; their number stands for a value that is none."""
        absent = np.flatnonzero(~indicators.any(axis=0))
        has_others = self.others == "refused" or not indicators.any(axis=1).all()
        return absent if has_others else np.append(absent, len(self.values))

    def _index(self) -> Callable[[Any], int]:
        """The index of a category; -1 of another value."""
        values = self.values
        if isinstance(values, range):
            return lambda value: int(value) if 0 <= value < len(values) else -1
        known: dict[Any, int] = {value: index for index, value in enumerate(values)}
        if not self.are_texts:
            return lambda value: known.get(value, -1)
        # Tables may have spaces beside texts, where no category differs by them.
        bare = {str(value).strip(): index for index, value in enumerate(values)}
        bare = bare if len(bare) == len(known) else {}
        return lambda value: known.get(value, bare.get(value.strip(), -1))

    def shown(self) -> str:
        """The categories, as many as a line takes."""
        if isinstance(self.values, range):
            return f"0 to {len(self.values) - 1}"
        listed = ", ".join(map(str, self.values[:SHOWN]))
        return listed + (", ..." if len(self.values) > SHOWN else "")


@dataclass(frozen=True)
class Categories:
    """The values of a row that are categories, and the row of numbers and indicators that stands for it."""

    each: tuple[Category, ...] = ()
    """By ascending place."""
    row_shape: Shape = ()
    """The shape of the row as its owner has it."""

    @classmethod
    def of_plan(cls, plan: dict[str, Any]) -> Categories:
        """Those of a plan's JSON."""
        shape = tuple(plan["steps"][0]["value"]["shape"])
        each = tuple(map(_of_json, plan["categories"]))
        if not each:
            return cls((), shape)
        values = int(np.prod(shape)) - sum(len(category.values) for category in each) + len(each)
        return cls(each, (values,) if len(shape) == 1 else shape[:-1])

    def to_json(self) -> str:
        """As a plan has them."""
        return json.dumps([_to_json(category) for category in self.each])

    def encode(self, rows: Array, shape: Shape, what: str, names: Sequence[str] = ()) -> Floats:
        """Rows as the network takes them.

        Args:
            rows: `(images, *row_shape)`, numbers and texts.
            shape: of the network's input.
            what: the rows' name in errors.
            names: of their values, or none.

        Returns: `(images, *shape)`.

        Raises:
            InputError: a category that the model does not know, a text where numbers are needed, or too many rows.
        """
        flat = rows.reshape(len(rows), -1)
        categories = {category.place: category for category in self.each}
        width = int(np.prod(shape))
        if len(flat) * width > MOST_ENCODED:
            raise InputError(
                f"{what} are {len(flat)} rows, and each takes {width} numbers and indicators of categories: give at "
                f"most {MOST_ENCODED // width} rows at once"
            )
        found = np.zeros((len(flat), width), np.float32)
        column = 0
        for place in range(flat.shape[1]):
            name = f"{names[place]!r} of {what}" if len(names) == flat.shape[1] else f"{what}[:, {place}]"
            category = categories.get(place)
            if category is None:
                numbers = _numbers(flat[:, place], name)
                warn_of_rounding(numbers.reshape(-1, 1), name)
                found[:, column] = numbers
                column += 1
                continue
            indices = category.find(flat[:, place], name)
            known = np.flatnonzero(indices >= 0)
            found[known, column + indices[known]] = 1.0
            column += len(category.values)
        return found.reshape(len(rows), *shape)

    def names_of(self, names: Sequence[str]) -> tuple[str, ...]:
        """Names of what the network takes, for those of a row's values; none for none."""
        categories = {category.place: category for category in self.each}
        return tuple(
            f"{name}={value}" if place in categories else name
            for place, name in enumerate(names)
            for value in (categories[place].values if place in categories else (None,))
        )

    def lacking(self, samples: Floats) -> Floats:
        """Encoded samples again, some of them, with categories that none has, and with values that are none where the
        model has results for these. Also with one such category in several places, as padding has it. Ranges of a plan
        are to hold what the model makes of them.
        """
        flat, columns = samples.reshape(len(samples), -1), self.columns()
        absent = {category.place: category.absent(flat[:, columns[category.place]]) for category in self.each}
        most = min(MOST_ABSENT, max(1, MOST_MADE // flat.shape[1]))
        several = self._in_several(absent)[: most // 2]
        each = [(place, at) for place, indices in absent.items() for at in _some(indices, most)]
        changes = [{place: int(at)} for place, at in _some(each, most - len(several))] + several
        made: Floats = flat[np.linspace(0, len(flat) - 1, len(changes)).astype(int)]
        for row, change in zip(made, changes, strict=True):
            for place, index in change.items():
                part = row[columns[place]]
                part[:] = 0.0
                if index < len(part):
                    part[index] = 1.0
        return np.reshape(made, (-1, *samples.shape[1:]))

    def columns(self) -> dict[int, slice]:
        """The columns of each category's indicators in an encoded row."""
        counts = {category.place: len(category.values) for category in self.each}
        sizes = [counts.get(place, 1) for place in range(int(np.prod(self.row_shape)))]
        ends = np.cumsum(sizes).tolist()
        return {place: slice(ends[place] - count, ends[place]) for place, count in counts.items()}

    def _in_several(self, absent: Mapping[int, npt.NDArray[np.int64]]) -> list[dict[int, int]]:
        """One of the first categories, which padding is mostly, at the end or the start of places of one vocabulary."""
        groups: dict[Values, list[int]] = {}
        for category in self.each:
            groups.setdefault(category.values, []).append(category.place)
        found = []
        for places in groups.values():
            for index in range(FIRST):
                having = [place for place in places if index in absent[place]]
                ends = (having[len(having) // 2 :], having[1:], having[:-1])
                found += [dict.fromkeys(some, index) for some in ends if len(some) > 1]
        return found

    def decode(self, encoded: Floats) -> Array | None:
        """The rows that `encode` made these of, `(images, values)`; None where a value is of no category."""
        flat, column = encoded.reshape(len(encoded), -1), 0
        categories = {category.place: category for category in self.each}
        columns = []
        for place in range(int(np.prod(self.row_shape))):
            category = categories.get(place)
            if category is None:
                columns.append(flat[:, column].astype(object))
                column += 1
                continue
            part = flat[:, column : column + len(category.values)]
            values = np.array([*category.values, category.other], object)
            is_known = part.max(axis=1) == 1
            is_row = np.count_nonzero(part, axis=1) == is_known
            if not is_row.all() or (category.others == "refused" and not is_known.all()):
                return None
            columns.append(values[np.where(is_known, part.argmax(axis=1), len(category.values))])
            column += len(category.values)
        return np.stack(columns, axis=1)

    def random(self, images: int, shape: Shape) -> Floats:
        """Made-up rows as the network takes them: numbers from 0 to 3, and any categories."""
        rng = np.random.default_rng(0)
        # Whole, since inputs may be.
        rows = rng.integers(0, 4, (images, int(np.prod(self.row_shape)))).astype(object)
        for category in self.each:
            others = [category.other] if category.others == "alike" else []
            values = np.array([*category.values, *others], object)
            rows[:, category.place] = values[rng.integers(len(values), size=images)]
        return self.encode(rows, shape, "rows")


NO_CATEGORIES = Categories()
"""Those of a model that takes numbers alone."""


def _some(items: Any, most: int) -> list[Any]:
    """So many of some items, evenly spaced."""
    places = np.linspace(0, len(items) - 1, min(len(items), most)).astype(int)
    return [items[place] for place in places]


def _of_json(found: dict[str, Any]) -> Category:
    ((kind, values),) = found["known"].items()
    known: Values = range(values) if kind == "indices" else tuple(values)
    return Category(found["place"], known, found["others"])


def _to_json(category: Category) -> dict[str, Any]:
    known: dict[str, Any] = {"names" if category.are_texts else "numbers": list(category.values)}
    if isinstance(category.values, range):
        known = {"indices": len(category.values)}
    return {"place": category.place, "known": known, "others": category.others}


def _comparable(column: Array, are_texts: bool, what: str) -> Array:
    """A column as texts, or as numbers."""
    if are_texts:
        return np.array([_text(value) for value in column.tolist()], np.str_)
    # Floats do not hold all numbers of 64 bits.
    exact = [_whole(value) for value in column.tolist()]
    if None in exact:
        return _numbers(column, what)
    is_long = all(-(2**63) <= number < 2**63 for number in exact if number is not None)
    return np.array(exact, np.int64 if is_long else object)


def _whole(value: Any) -> int | None:
    """A whole number, a truth, or a text that is one; None of anything else."""
    if isinstance(value, int | np.integer) or (isinstance(value, str) and WHOLE.fullmatch(value)):
        return int(value)
    if isinstance(value, str) and value.strip().lower() in TRUTHS:
        return int(TRUTHS[value.strip().lower()])
    if isinstance(value, str) and is_name(value):
        return None
    try:
        # Exact, as a text of a long number may have a fraction of zeros.
        number = Decimal(value) if isinstance(value, str | Decimal) else Decimal(float(value))
    except (ArithmeticError, TypeError, ValueError):
        return None
    is_whole = number.is_finite() and number.adjusted() < MOST_DIGITS and number == number.to_integral_value()
    return int(number) if is_whole else None


def _text(value: Any) -> str:
    """A category as a model's file has it: whole numbers without a fraction."""
    is_whole = isinstance(value, float) and value % 1 == 0 and abs(value) < MOST_WHOLE
    return str(int(value)) if is_whole else str(value)


def _numbers(column: Array, what: str) -> Array:
    """A column of numbers, or of texts that are.

    Raises:
        InputError: one is no finite number.
    """
    try:
        # In single precision, as networks take them: what is too large for it is infinite.
        with np.errstate(over="ignore"):
            numbers = column.astype(np.float64)
            is_finite = np.isfinite(numbers.astype(np.float32))
    except (OverflowError, TypeError, ValueError):
        wrong = next(at for at, value in enumerate(column.tolist()) if not _is_number(value))
        raise InputError(f"{what} is {_plain(column[wrong])!r} in row {wrong}, which is no number") from None
    if not is_finite.all():
        at = int(np.argmax(~is_finite))
        advice = ": fill in missing values first" if np.isnan(numbers[at]) else ", which is infinite in float32"
        raise InputError(f"{what} is {numbers[at]} in row {at}{advice}")
    return np.asarray(numbers)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (OverflowError, TypeError, ValueError):
        return False
    return True


def _plain(value: Any) -> Any:
    """A NumPy value as Python's."""
    return value.item() if isinstance(value, np.generic) else value
