"""Plans and verification at trust level `multi-key`."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn import _check, _native
from pronghorn._arrays import as_inputs
from pronghorn._columns import frame_names
from pronghorn._model import Floats, Model, Progress, native_errors
from pronghorn._outputs import PROBABILITIES
from pronghorn.errors import InputError, PlanError, PrecisionWarning, RunError

LEVEL = "multi-key"
ERROR = 2.0**-10
"""The largest error of an output, where none is named."""
RESULTS = 1 << 10
"""The results that a key decrypts, where no number is named."""
MAX_UPLOAD = 2 << 30
"""Most bytes of a publication, and of a party's public keys, that a cloud takes by default."""
SPREAD_SAMPLES = 256
"""Samples that tell the spread of outputs."""
FINE = 64
"""The default error is at most this part of the outputs' spread."""
COARSE = 8
"""And a warning names an output whose error is more than this part of its spread."""


def aim_of(spreads: Floats, error: float | None) -> float:
    """The error to plan for: the one that is asked for, or the default for outputs of these spreads."""
    if error is not None:
        return _check.number("error", error, 2.0**-60, 1e6)
    return max(2.0**-60, min(ERROR, float(np.median(spreads)) / FINE)) if spreads.size else ERROR


def warn_of_error(spreads: Floats, error: float, stacklevel: int) -> None:
    """Warns where an output differs between samples by little more than the stated error."""
    if spreads.size and error > spreads.min() / COARSE:
        warnings.warn(
            f"outputs are within {error:.3g}, but an output differs between the samples by {spreads.min():.3g} alone "
            f"(standard deviation): it has little meaning; take a smaller error (--error {spreads.min() / FINE:.1g}, "
            "error=)",
            PrecisionWarning,
            stacklevel=stacklevel + 1,
        )


def spreads_of(model: Model) -> Floats:
    """The standard deviation of each output on the samples, but of those that are one for all. None behind operations
    of the client, whose inputs are not known here."""
    samples = model.parts[1].samples
    if samples is None or len(samples) < 2 or set(model.finish) - {PROBABILITIES}:
        return np.zeros(0, np.float32)
    outputs = model.run_float(samples[:SPREAD_SAMPLES])
    spreads = outputs.reshape(len(outputs), -1).std(axis=0)
    differing: Floats = spreads[spreads > 1e-6 * np.abs(outputs).max()]
    return differing


def in_range(values: Floats, bounds: Sequence[float], first: int = 0) -> Floats:
    """`values`, which must be in a range. The number of the first image is `first`.

    Raises:
        InputError: one is not; the error names the image and the element.
    """
    low, high = bounds
    rows = values.reshape(len(values), -1)
    wrong = np.argwhere((rows < low) | (rows > high))
    if len(wrong):
        image, element = (int(place) for place in wrong[0])
        others = np.unique(wrong[:, 0]).size - 1
        raise InputError(
            f"image {first + image} (counted from 0) has {rows[image, element]:.7g} at x[{element}]"
            f"{f', and {others} more are out of range' if others else ''}; inputs must be from {low:.6g} to "
            f"{high:.6g}, which the model owner's samples set: leave such images out, or ask the owner for a key with "
            "a wider range (other samples, or --input-range)"
        )
    return values


class MultiKeyPlan:
    """What a model costs between model owner, cloud and client, and what it computes."""

    def __init__(self, model: Model, *, error: float | None = None, results: int = RESULTS) -> None:
        """Chooses primes and levels.

        Args:
            model: a polynomial network. Its samples set the range of inputs.
            error: the largest absolute error of an output. 2^-10 by default, or a 64th of the outputs' spread on the
                samples where that is less.
            results: results of a key.

        Raises:
            PlanError: the model is no polynomial, too deep, or its values do not lie as an operator needs them; the
                error names the node and the way out.
        """
        if model.categories.each:
            raise PlanError(
                "plans between three parties take numbers alone, and the model takes categories\n"
                "  what to do: export it without its encoder or embedding, or plan for another trust level"
            )
        (native, options), spreads = model.parts, spreads_of(model)
        arguments = (aim_of(spreads, error), _check.whole("results", results, 1, 1 << 40))
        with native_errors(PlanError):
            self._native = _native.MultiKeyPlan(native, options, *arguments)
            self._summary = self._native.summary()
        self._model = model
        warn_of_error(spreads, self._summary["error"], stacklevel=2)

    def summary(self) -> dict[str, Any]:
        """Counts, bytes and bounds, by name."""
        return {"model": self._model.name, "trust": LEVEL, **self._summary}

    def to_json(self) -> str:
        """For programs."""
        return json.dumps(self.summary())

    def __str__(self) -> str:
        """A line for each kind of cost."""
        found = self._summary
        sent = found["image_bytes"]
        received = found["outcome_bytes"] + found["answer_bytes"]
        owner = [found["answer_bytes"], found["outcome_bytes"]]
        keys = 2 * (found["owner_key_bytes"] + found["client_key_bytes"]) + found["pair_key_bytes"]
        rows = [
            ("trust level", f"{LEVEL}: cloud learns shapes, counts and timing; model owner the number of requests; "
             "client its output and the architecture"),
            (
                "ring",
                f"N = {found['degree']:,}, {found['levels']} levels, {found['primes']} primes of "
                f"{found['log_modulus']:.0f} bits, {found['log_modulus_with_special']:.0f} bits with "
                f"{found['special_primes']} special ones: {found['security_bits']} bits of security (2024 table)",
            ),
            (
                "precision",
                f"outputs are within {found['error']:.3g}, for any input from {found['input_range'][0]:.6g} to "
                f"{found['input_range'][1]:.6g}",
            ),
            ("floods", f"2^{found['log_flood']} of each party: 2^-40 over {found['results']:,} results of a key"),
            (
                "an image",
                f"{found['inputs']} ciphertexts; {found['products']} products, {found['relinearisations']} "
                f"relinearisations, {found['hoisted_rotations']} hoisted rotations and {found['rotations']} others",
            ),
            ("client", f"{_size(sent)} sent an image, {_size(received)} received; {_size(found['client_key_bytes'])} "
             "of keys once"),
            ("model owner", f"{_size(owner[0])} sent an image, {_size(owner[1])} received; "
             f"{_size(found['owner_key_bytes'])} of keys and {_size(found['model_bytes'])} of the model "
             f"({found['weights']} ciphertexts) once; {_size(found['pair_key_bytes'])} a client"),
            ("cloud", f"about {_size(keys)} of memory for keys of the owner and a client"),
        ]  # fmt: skip
        most = max(found["model_bytes"] + found["owner_key_bytes"], found["client_key_bytes"])
        if most > MAX_UPLOAD:
            rows.append(("upload", f"{_size(most)} at once, more than the cloud takes by default: --max-upload"))
        width = max(len(name) for name, _ in rows) + 2
        return "\n".join([f"{self._model.name} between three parties", *(f"  {f'{n}:':<{width}}{t}" for n, t in rows)])

    def verify(
        self,
        inputs: npt.ArrayLike,
        classes: npt.NDArray[np.int64] | None = None,
        *,
        kind: str = "classes",
        progress: Progress | None = None,
    ) -> MultiKeyReport:
        """Runs all roles in this process, and compares with the oracle and the float model.

        Args:
            inputs: `(images, *input_shape)`.
            classes: the true class of each image, where known.
            kind: what outputs are: `classes`, `labels` or `values`.
            progress: called with images done and images in all.

        Raises:
            InputError: inputs of another shape or out of range, or more than the results of a key.
            RunError: the run fails.
        """
        columns = self._model.columns_of(frame_names(inputs))
        checked = as_inputs(inputs, self._model.network_shape, columns=columns, parts=self._model.inputs)
        images = in_range(checked, self._summary["input_range"])
        if len(images) > self._summary["results"]:
            raise InputError(
                f"{len(images)} images are more than the {self._summary['results']} results of a key: "
                "use fewer (--limit N)"
            )
        with native_errors(RunError):
            oracle = self._native.run_oracle(images)
            found, outputs, seconds = self._native.run_secure(images, progress)
        plain = self._model.run_float(images)
        agreement = accuracy = plain_accuracy = None
        if kind == "classes":
            secure_classes, float_classes = self._model.classes(outputs), self._model.classes(plain)
            agreement = float((secure_classes == float_classes).mean())
            if classes is not None:
                accuracy, plain_accuracy = (float((x == classes).mean()) for x in (secure_classes, float_classes))
        return MultiKeyReport(
            images=len(images),
            stated_error=self._summary["error"],
            largest_error=float(np.abs(found - oracle).max()),
            float_difference=float(np.abs(outputs - plain).max()),
            agreement=agreement,
            accuracy=accuracy,
            float_accuracy=plain_accuracy,
            setup_seconds=seconds[0],
            seconds=seconds[1],
        )


@dataclass(frozen=True)
class MultiKeyReport:
    """What a run of all roles in one process gave."""

    images: int
    stated_error: float
    """Of any output from the oracle's."""
    largest_error: float
    """Seen."""
    float_difference: float
    """The largest from an output of the float model."""
    agreement: float | None
    """Images that get the float model's class; None for outputs of other kinds."""
    accuracy: float | None
    float_accuracy: float | None
    setup_seconds: float
    """Keys of both parties, and the model's encryption."""
    seconds: float
    """All images, all roles."""

    @property
    def ok(self) -> bool:
        """Whether every output is within the stated error of the oracle's."""
        return self.largest_error <= self.stated_error

    def to_json(self) -> str:
        """For programs."""
        return json.dumps({**asdict(self), "trust": LEVEL, "ok": self.ok})

    def __str__(self) -> str:
        """A line for each figure."""
        rows: list[tuple[str, str]] = [
            ("oracle", f"outputs are within {self.largest_error:.3g}; {self.stated_error:.3g} is stated"
             f"{'' if self.ok else ': THIS IS A BUG'}"),
            ("float model", f"outputs are within {self.float_difference:.3g}"),
        ]  # fmt: skip
        rows += _shares([("same class", self.agreement), ("accuracy", self.accuracy), ("float", self.float_accuracy)])
        rows.append(
            ("time", f"{self.setup_seconds:.1f} s for keys and model, {self.seconds / self.images:.2f} s an image")
        )
        title = f"{self.images:,} images through all roles of {LEVEL} in one process"
        return "\n".join([title, *(f"  {name + ':':<13}{text}" for name, text in rows)])


def _shares(found: Sequence[tuple[str, float | None]]) -> list[tuple[str, str]]:
    return [(name, f"{100 * share:.2f} %") for name, share in found if share is not None]


def _size(count: int) -> str:
    """Bytes for people."""
    units = ("bytes", "kB", "MB", "GB")
    power = min(int(math.log10(max(count, 1)) // 3), len(units) - 1)
    return f"{count / 1000**power:.3g} {units[power]}"
