"""What is printed and written of predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pronghorn import _native
from pronghorn._inputs import values_outside
from pronghorn._model import Stats, counted
from pronghorn._outputs import MARKS, Floats, Predictions, name_of
from pronghorn.cli.console import say, warn
from pronghorn.errors import InputError

SHOWN = 20
"""Most images whose result is printed one by one."""
SHOWN_VALUES = 10
"""Most values of an image that are printed; and most labels, where nobody says how many."""

Record = dict[str, Any]

DOUBTS = {
    "beyond_samples": " (beyond the samples: likely wrong)",
    "clamped": " (input beyond the plan's range: may be wrong)",
}
"""What is said of an image's result, by the mark that holds."""


class Results:
    """The result of each image."""

    def __init__(self, titles: list[str], found: Predictions, top: int | None, names: list[str] | None) -> None:
        """Results to show.

        Args:
            titles: the name of each image.
            found: the predictions, an image a row.
            top: how many classes or labels to show of each image; chosen by what the outputs are
                where None.
            names: the name of each class; None for the model's own.
        """
        self._titles = titles
        self._found = found
        self._names = names or list(found.class_names) or None
        self._parts = found.split()
        self._ranked = None
        if found.probabilities is not None:
            self._ranked = found.top(top or (1 if found.kind == "classes" else SHOWN_VALUES))

    @property
    def has_clamped(self) -> bool:
        """Whether inputs with values far beyond the plan's range are known, of which a warning has been given."""
        return self._found.clamped is not None and bool(self._found.clamped.any())

    def json(self) -> Record:
        """For programs."""
        classes = {} if self._found.classes is None else {"classes": self._found.classes.tolist()}
        results = [
            {"input": title, **self._entry(index), **self._marks(index)} for index, title in enumerate(self._titles)
        ]
        return {"outputs": self._found.kind, **classes, "results": results}

    def print(self, out: Path | None, shown: int) -> None:
        """For people: the first `shown` images; `out` is the file that has all."""
        count = len(self._titles)
        for index, title in enumerate(self._titles[:shown]):
            doubts = [DOUBTS[name] for name, holds in self._marks(index).items() if holds]
            print(f"{title}: {self._line(index)}{''.join(doubts[:1])}")
        if count > shown:
            print(f"and {count - shown} more" + (f", all in {out}" if out else " (--out FILE writes all)"))

    def _entry(self, index: int) -> Record:
        """One image's result: classes or labels with probabilities, a class, or values."""
        if self._ranked is not None:
            order, shares = (each[index].tolist() for each in self._ranked)
            ranked = zip(order, shares, strict=True)
            return {"top": [{**self._named(which), "probability": round(share, 6)} for which, share in ranked]}
        if self._found.classes is not None:
            return self._named(int(self._found.classes[index]))
        parts = {name: part[index].tolist() for name, part in self._parts.items()}
        return {"values": parts or self._found.outputs[index].tolist()}

    def _marks(self, index: int) -> Record:
        """Why one image's result may be wrong: each reason that is known to hold or not."""
        return {name: bool(known[index]) for name in MARKS if (known := getattr(self._found, name)) is not None}

    def _line(self, index: int) -> str:
        """One image's result in words."""
        if self._ranked is None and self._found.classes is None:
            return self._values(index)
        entry = self._entry(index)
        if "top" not in entry:
            return self._name(entry["class"])
        return ", ".join(f"{self._name(each['class'])} ({100 * each['probability']:.2f} %)" for each in entry["top"])

    def _values(self, index: int) -> str:
        """One image's values in words."""
        if self._parts:
            each = ((name, part[index]) for name, part in self._parts.items())
            return "; ".join(f"{name} {self._shown(values)}" for name, values in each)
        return self._shown(self._found.outputs[index])

    def _shown(self, values: Floats) -> str:
        """Values in words."""
        shape, values = values.shape, values.ravel()
        if values.size > SHOWN_VALUES:
            sizes = "x".join(map(str, shape))
            return f"{sizes} values from {values.min():.6g} to {values.max():.6g} (--out FILE writes them)"
        named = self._names is not None and len(self._names) == values.size
        return ", ".join(f"{self._name(i)} {value:.6g}" if named else f"{value:.6g}" for i, value in enumerate(values))

    def _named(self, index: int) -> Record:
        return {"class": index} if self._names is None else {"class": index, "name": self._name(index)}

    def _name(self, index: int) -> str:
        return name_of(self._names or (), index)


@dataclass(frozen=True)
class Outcome:
    """What predictions gave and cost."""

    trust: str
    plan_hash: str
    results: Results
    accuracy: float | None
    """None without labels."""
    runs: list[Stats]
    """The cost of each repetition."""
    prepared: Stats | None
    """The cost of the preparation; None where there was none."""

    def json(self) -> Record:
        """For programs."""
        last = self.runs[-1]
        return {
            "images": last.images,
            "trust": self.trust,
            "plan_hash": self.plan_hash,
            "accuracy": self.accuracy,
            "runs": [_costs(run) for run in self.runs],
            "prepared_batches": sum(run.prepared_batches for run in self.runs),
            "lost_preparations": sum(run.lost_preparations for run in self.runs),
            **({"prepared": _costs(self.prepared)} if self.prepared is not None else {}),
            "clamped_inputs": last.clamped_inputs,
            "clamped_activations": last.clamped_activations,
            "beyond_samples": last.beyond_samples,
            "peak_memory_bytes": _native.peak_memory_bytes(),
            **self.results.json(),
        }

    def print(self, out: Path | None, shown: int) -> None:
        """For people: results on standard output, the rest on standard error."""
        last = self.runs[-1]
        self._print_preparation(last)
        self.results.print(out, shown)
        if self.accuracy is not None:
            print(f"accuracy: {100 * self.accuracy:.2f} %")
        sent, received = last.bytes_sent / last.images, last.bytes_received / last.images
        print(
            f"{counted(last.images, 'image')} in {last.seconds:.2f} s ({last.speed}), "
            f"{sent:,.0f} bytes an image sent and {received:,.0f} received"
        )
        _warn_of_clamping(last, self.results.has_clamped)

    def _print_preparation(self, last: Stats) -> None:
        used, lost = last.prepared_batches, last.lost_preparations
        if used or lost:
            say(f"prepared batches used: {used}" + (f"; of no use any more: {lost}" if lost else ""))
        if self.prepared is not None:
            say(
                f"prepared in {self.prepared.seconds:.2f} s: {self.prepared.bytes_sent:,} bytes sent, "
                f"{self.prepared.bytes_received:,} received"
            )


def _costs(stats: Stats) -> dict[str, float]:
    return {"seconds": stats.seconds, "bytes_sent": stats.bytes_sent, "bytes_received": stats.bytes_received}


def _warn_of_clamping(stats: Stats, is_said: bool) -> None:
    """Warns of values that were clamped; `is_said`: that inputs were has been said, and of which."""
    if stats.clamped_inputs and not is_said:
        warn(
            f"{values_outside(stats.clamped_inputs)} the range the server planned for, and clamped: "
            "results may be wrong. Check --scale, --mean and --std here, and --data or --input-range at the server"
        )
    if stats.clamped_activations:
        say(
            f"{stats.clamped_activations / stats.images:.3g} activations an image were beyond the ranges of the "
            "server's samples and clamped: many mean that its samples do not represent these inputs"
        )


def write(path: Path, content: Callable[[], object]) -> None:
    """Calls `content`, which writes to `path`.

    Raises:
        InputError: it cannot be written.
    """
    try:
        content()
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from error
