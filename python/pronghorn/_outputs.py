"""What outputs mean: one class of several, labels that each hold or not, or plain values."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn import _check
from pronghorn.errors import InputError, InputWarning

Floats = npt.NDArray[np.float32]
Classes = npt.NDArray[np.int64]

INDICES = {"arg_max", "class"}
"""Ends of a model or a plan whose result is the index of a class."""

MARKS = ("beyond_samples", "clamped")
"""Fields of `Predictions`: why results may be wrong, the worst first."""

OF_EACH = {"exp", "exp_m1", "log", "sqrt"}
"""Ends that are functions of each value. Errors of plans are those behind them, and before all other ends."""

PROBABILITIES = "probabilities"
"""An end that says what values are, and changes none."""

OFF = 0.05
"""Probabilities, and their sums, are off by this at most where plans are as precise as by default."""

LEAST_SCORES = 8
"""So many results from 0 to 1 are unlikely to be scores."""

KINDS = ("classes", "labels", "values")

PATHS = r"[/\\:.]"
"""Characters of a name that are more than a name in a path."""


def finish_of(plan: Mapping[str, Any]) -> list[str]:
    """The names of what the client does last by a plan's JSON, where an operation over a dimension has its sizes. A
    scale of each output is none of it: outputs keep their meaning."""
    ends: list[str | dict[str, dict[str, Any]]] = plan["finish"]
    return [end if isinstance(end, str) else f"{end['along']['of']}_along" for end in ends if "scale" not in end]


def shapes_of(plan: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's several outputs, by name, by a plan's JSON; empty where there is one."""
    return {each["name"]: tuple(each["shape"]) for each in plan["outputs"]}


def names_of_values(shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """The name of each value of a row of several outputs, such as `scores[1]`; of an output of one value, its own."""
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    return tuple(name if size == 1 else f"{name}[{index}]" for name, size in sizes.items() for index in range(size))


def _simplified(finish: Sequence[str]) -> list[str]:
    """The same with softmaxes and their logarithms in one name each."""
    ends: list[str] = []
    for end in finish:
        if end == "log" and ends[-1:] in (["softmax"], ["softmax_along"]):
            ends[-1] = "log_softmax_along"
        elif end == "exp" and ends[-1:] == ["log_softmax_along"]:
            ends[-1] = "softmax_along"
        else:
            ends.append(end)
    return ends


def kind_of(
    finish: Sequence[str],
    shape: Sequence[int],
    asked: str | None = None,
    truth: npt.NDArray[Any] | None = None,
    *,
    several: bool = False,
) -> str:
    """What the outputs of a model are.

    * `classes`: one of several. The model ends in Softmax or ArgMax, in one number through a
      Sigmoid (yes or no), or in one row of several numbers, which are then taken for the logits of
      a classifier.
    * `labels`: any number of several, each with a probability of its own: several numbers through a
      Sigmoid.
    * `values`: all else: one number, a map, several outputs, or what ends in Exp, Log or Sqrt.

    Args:
        finish: what the client does last: `softmax`, `sigmoid`, `arg_max`, `exp`, `exp_m1`, `log`, `sqrt`, or one with
            `_along` for a part of the values; or `class`, for the index of a class that it is told.
        shape: of one image's output.
        asked: what the user says, which wins: a regression with several results looks like a
            classifier.
        truth: true labels, where known: zeros and ones make one number a yes or no. Fractions, and numbers of no
            class, make several numbers values.
        several: whether the numbers are those of several outputs.

    Raises:
        InputError: there is no such kind, or classes are asked of outputs that are no row of scores.
    """
    if asked == "classes" and "arg_max_along" in finish:
        raise InputError("the outputs are a class for each place, and none of an image: leave --outputs out")
    if asked == "classes" and several:
        raise InputError(
            "the model gives several outputs, and the classes of one of them are no classes of their row: leave "
            "--outputs classes (outputs=) out and read each output by its name; or load the model with the one that "
            "has the classes (--output NAME, output=NAME)"
        )
    count, finish = math.prod(shape), [end for end in _simplified(finish) if end != PROBABILITIES]
    ends = sorted(OF_EACH & set(finish))
    if ends and (asked == "labels" or (asked == "classes" and count == 1)):
        raise InputError(
            f"the model ends in {ends[0]}, whose results are neither scores nor probabilities: take the values "
            "(outputs values), and compare them with a bound of your own"
        )
    if asked is not None:
        return _check.one_of("outputs", asked, KINDS)
    if several or (OF_EACH | {"arg_max_along"}) & set(finish):
        return "values"
    if (INDICES | {"softmax", "shares_along"}) & set(finish):
        return "classes"
    if "sigmoid" in finish:
        return "classes" if count == 1 else "labels"
    if count == 1:
        binary = truth is not None and truth.dtype.kind in "iub" and bool(np.isin(truth, (0, 1)).all())
        return "classes" if binary else "values"
    # Truth that is no number of one of so many classes.
    others = truth is not None and (
        bool((truth % 1 != 0).any())
        if truth.dtype.kind == "f"
        else truth.dtype.kind in "iu" and truth.size > 0 and not -1 <= truth.min() <= truth.max() <= 2 * count
    )
    others = others and not finish
    return "classes" if max(shape) == count and not others else "values"


def classes_of(finish: Sequence[str], shape: Sequence[int]) -> int:
    """How many classes there are, where outputs are classes; 0 where their index alone is known. Arguments are those of
    `kind_of`."""
    count = math.prod(shape)
    return count if count > 1 else 0 if INDICES & set(finish) else 2


def is_guess(finish: Sequence[str], kind: str, asked: str | None, truth: npt.NDArray[Any] | None) -> bool:
    """Whether outputs are taken for scores of classes by their shape alone; arguments are those of `kind_of`, and the
    kind that it gives."""
    return kind == "classes" and asked is None and truth is None and set(finish) <= {PROBABILITIES}


def beyond_samples(count: int, images: int) -> str:
    """That so many of the results are beyond those of samples, and what to do."""
    found = "1 result is" if count == 1 else f"{count} results are"
    return (
        f"{found} beyond those of the samples that the plan was made with, or of inputs with another deviation "
        f"({images} in all): likely wrong, as the inputs are unlike the samples\n"
        "  what to do: do not rely on them; the model's owner can plan with samples like them"
    )


@dataclass(frozen=True)
class Predictions:
    """A model's outputs and what they mean."""

    outputs: Floats
    """As the model gives them: `(images, *output_shape)`."""
    kind: str
    """`classes`, `labels` or `values`; see `kind_of`."""
    classes: Classes | None
    """The class of each image; None unless `kind` is `classes`."""
    probabilities: Floats | None
    """`(images, classes)`, each row adding up to 1, or `(images, labels)`, each from 0 to 1. None
    for values, and where the result is a class alone. A softmax over logits where the model itself
    has none: as good as its calibration. Rows that are probabilities already stay as they are."""
    beyond_samples: npt.NDArray[np.bool_] | None = None
    """For each image, whether its result is beyond those of the server's samples, and so likely wrong. None where the
    plan does not say."""
    clamped: npt.NDArray[np.bool_] | None = None
    """For each image, whether it has values far beyond the range that the plan is for. These were clamped, so that its
    result may be wrong. None where inputs are not clamped."""
    class_names: tuple[str, ...] = ()
    """The model's own names of its classes; empty where they are the indices."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The shapes of the outputs of a model of several, by name; empty where there is one."""

    @classmethod
    def of(cls, outputs: Floats, finish: Sequence[str], kind: str) -> Predictions:
        """Reads outputs as `kind`."""
        flat, finish = outputs.reshape(len(outputs), -1), _simplified(finish)
        are_known = not {"sigmoid", PROBABILITIES}.isdisjoint(finish)
        if kind == "values":
            return cls(outputs, kind, None, None)
        if kind == "labels":
            are_known |= not {"softmax", "softmax_along", "shares_along"}.isdisjoint(finish)
            _warn_of_shares(flat, are_known)
            return cls(outputs, kind, None, flat if are_known else _sigmoid(flat))
        if INDICES & set(finish):
            return cls(outputs, kind, flat[:, 0].astype(np.int64), None)
        if flat.shape[1] == 1 and not any("softmax" in end for end in finish):
            _warn_of_shares(flat, are_known)
            yes = flat if are_known else _sigmoid(flat)
            classes = np.greater(flat[:, 0], 0.5 if are_known else 0.0).astype(np.int64)
            return cls(outputs, kind, classes, np.concatenate([1 - yes, yes], axis=1))
        classes = np.argmax(flat, axis=1).astype(np.int64)
        are_shares = {"softmax", "softmax_along", "shares_along", "sigmoid"} & set(finish) and not OF_EACH & set(finish)
        known = _are_shares(flat) if set(finish) <= {PROBABILITIES} else np.full(len(flat), bool(are_shares))
        return cls(outputs, kind, classes, np.where(known[:, None], flat, _softmax(flat)))

    def __len__(self) -> int:
        """The number of images."""
        return len(self.outputs)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What is known, by name, for files."""
        names = ("outputs", "classes", "probabilities", *MARKS)
        found = {name: found for name in names if (found := getattr(self, name)) is not None}
        parts = self.split()
        # Names of entries in an archive are paths.
        keys = [re.sub(PATHS, "_", name) for name in parts]
        if len(set(keys)) < len(keys):
            keys = list(map(str, range(len(keys))))
        return found | {f"outputs.{key}": part for key, part in zip(keys, parts.values(), strict=True)}

    def split(self) -> dict[str, Floats]:
        """The outputs of a model of several: by name `(images, *shape)`. Empty where there is one."""
        return split(self.outputs, self.shapes)

    def named(self) -> list[str]:
        """The name of each image's class; its index where the model has no names.

        Raises:
            InputError: the outputs are no classes.
        """
        if self.classes is None:
            raise InputError(f"outputs of kind {self.kind!r} have no classes: look at outputs")
        return [name_of(self.class_names, index) for index in self.classes.tolist()]

    def top(self, count: int) -> tuple[Classes, Floats]:
        """The `count` most probable classes or labels of each image, and their probabilities, most
        probable first.

        Raises:
            InputError: there are no probabilities, or `count` is less than 1.
        """
        _check.whole("count", count, 1)
        if self.probabilities is None:
            raise InputError(f"outputs of kind {self.kind!r} have no probabilities here: look at outputs")
        order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, :count].astype(np.int64)
        return order, np.take_along_axis(self.probabilities, order, axis=1)


def reader(
    finish: Sequence[str],
    kind: str,
    class_names: Sequence[str] = (),
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Callable[[Floats], Predictions]:
    """What reads outputs as `kind`, with the names of their classes and the shapes of several."""
    names, shapes = tuple(class_names), shapes or {}
    return lambda outputs: replace(Predictions.of(outputs, finish, kind), class_names=names, shapes=shapes)


def split(outputs: Floats, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Floats]:
    """Results of a model of several outputs, whose values follow each other, by the name of each."""
    if not shapes:
        return {}
    ends = list(accumulate(math.prod(shape) for shape in shapes.values()))
    parts = np.split(outputs.reshape(len(outputs), -1), ends[:-1], axis=1)
    named = zip(shapes.items(), parts, strict=True)
    return {name: part.reshape(len(outputs), *shape) for (name, shape), part in named}


def name_of(names: Sequence[str], index: int) -> str:
    """The name of a class; its index where there is none."""
    return names[index] if 0 <= index < len(names) else str(index)


def _warn_of_shares(scores: Floats, are_known: bool) -> None:
    """Warns where what is taken for scores may well be probabilities, whose half would be the bound."""
    if are_known or len(scores) < LEAST_SCORES or scores.min() < 0 or scores.max() > 1:
        return
    warnings.warn(
        "all results are from 0 to 1, and are taken for scores, whose classes part at 0: if they are probabilities, "
        "these classes are wrong\n"
        "  what to do: take the values (outputs values), and compare them with 0.5; a model that ends in its Sigmoid "
        "says what it gives",
        InputWarning,
        stacklevel=3,
    )


def _are_shares(rows: Floats) -> npt.NDArray[np.bool_]:
    """Whether each row has probabilities already, within the precision of plans, as those of an ensemble are whose
    networks each end in a Softmax."""
    are_within = ((rows >= -OFF) & (rows <= 1 + OFF)).all(axis=1)
    return np.asarray(are_within & (np.abs(rows.sum(axis=1) - 1) <= OFF))


def _softmax(logits: Floats) -> Floats:
    shifted = np.exp((logits - logits.max(axis=1, keepdims=True)).astype(np.float64))
    shares: Floats = (shifted / shifted.sum(axis=1, keepdims=True)).astype(np.float32)
    return shares


def _sigmoid(logits: Floats) -> Floats:
    # Neither branch overflows.
    small = np.exp(-np.abs(logits.astype(np.float64)))
    return np.where(logits >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)
