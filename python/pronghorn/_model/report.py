"""The report of a verification."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass

from pronghorn._inputs import values_outside
from pronghorn._model.expected import OutputError
from pronghorn._model.regression import Regression
from pronghorn._model.stats import Stats, counted

FAR = 3.0
"""Differences of so many times what the plan expects say that the images are unlike its samples,"""
LEAST_FAR = 0.01
"""where they are this part of the outputs' spread, too: smaller ones harm nobody."""
MOST_LINES = 10
"""Outputs that have a line each, at most."""


@dataclass(frozen=True)
class StepSeconds:
    """The seconds of a step of the secure run, both parties together."""

    name: str
    """The step's name."""
    predicted: float
    """Seconds of one core."""
    measured: float
    """Seconds on all threads of the run. Set-ups count as those of the first step."""


@dataclass(frozen=True)
class OutputDifference:
    """The difference of one of several outputs to the float model's."""

    name: str
    """The output's name."""
    relative_error: float
    """As `Report.relative_error`, of this output: a part of its own spread."""
    rmse: float
    """Root mean square of the differences, in the output's unit."""

    def __str__(self) -> str:
        """For people."""
        return f"{self.name}: {self.relative_error:.2g} of its own spread, RMSE {self.rmse:.4g}"


@dataclass(frozen=True)
class Report:
    """Float model, fixed-point oracle and secure run on the same images."""

    images: int
    trust: str
    """The trust level."""
    plan_hash: str
    """BLAKE3 of the plan, 64 hexadecimal digits."""
    disagreements: int | None
    """Output integers in which the secure run differs from the oracle by more than `tolerance`:
    must be 0. None where there was no secure run."""
    tolerance: float
    """0, unless ciphertexts are approximate: then the difference that the plan allows each output,
    before a Softmax or the like."""
    outputs: str
    """The kind of the outputs: `classes`, `labels` or `values`."""
    is_quantised: bool
    """Whether the file rounds values: the expected error is that of the plan's own rounding."""
    is_finished: bool
    """Whether a Softmax or the like ends the model: the expected error is that before or after it, the larger one."""
    are_indices: bool
    """Whether the outputs are indices of classes: differences are those of indices, and no errors of values."""
    argmax_agreement: float | None
    """The share of images to which the secure run and the float model give the same class. Of labels, and of classes
    at each place, the share of these. None where outputs are values."""
    max_abs_difference: float
    """The largest difference between an output of the secure run and of the float model."""
    relative_error: float
    """Root mean square of the differences to the float model, over that of its outputs about the
    mean of each. `1 - relative_error**2` is R2 against the float model. Where the plan gives outputs scales it is that
    of the worst output, of those with names."""
    rmse: float
    """Root mean square of the differences to the float model."""
    expected_error: float
    """What the plan expected of the samples."""
    expected_errors: tuple[OutputError, ...]
    """What the plan expected of each output."""
    accuracy_float: float | None
    """Accuracy of the float model, 0 to 1; None without labels."""
    accuracy_fixed: float | None
    """Accuracy of the fixed-point oracle; None without labels."""
    accuracy_secure: float | None
    """Accuracy of the secure run; None without labels, or without a secure run."""
    regression: Regression | None
    """Distances to the given values; None without labels, or where outputs are no values."""
    float_by: str
    """The evaluator of the float model: onnxruntime, or pronghorn."""
    samples: int | None
    """Images that set the fixed point; None where an input range did."""
    samples_scored: int
    """How many of these images are among those samples."""
    beyond_samples: int | None
    """Images whose result is beyond those of the samples, and so likely wrong; None where the plan does not say."""
    clamped_inputs: int
    """Input values outside the planned range, which were moved to its ends."""
    stats: Stats | None
    """The cost of the secure run; None where there was none."""
    predicted_seconds: float | None
    """Seconds of one core that the plan predicts for the run, both parties together; None where there was none."""
    predicted_for: str
    """The machine whose seconds these are."""
    steps: tuple[StepSeconds, ...] | None
    """The seconds of each step; None where there was no secure run."""
    is_dithered: bool = False
    """Whether values are rounded by a dither: the oracle has the random numbers of the secure run, or its own."""
    is_guess: bool = False
    """Whether the outputs are taken for scores of classes by their shape alone: a regression has such rows, too."""
    differences: tuple[OutputDifference, ...] = ()
    """The difference of each of several outputs; empty where there is one. Larger outputs hide those of smaller ones in
    `relative_error`."""

    @property
    def ok(self) -> bool | None:
        """Whether the secure run equals the oracle everywhere, or within the plan's tolerance; None
        where there was none."""
        return None if self.disagreements is None else self.disagreements == 0

    @property
    def remark(self) -> str | None:
        """That the images look unlike the samples, or that the model may be overfitted to these, where differences are
        far beyond what the plan expects of them. None elsewhere, where the images are the samples, and where the
        expected error leaves out rounding in the file or is of values behind classes."""
        if self.is_quantised or self.are_indices or self.samples_scored == self.images:
            return None
        if self.relative_error < max(LEAST_FAR, FAR * self.expected_error):
            return None
        others = "the made-up inputs of the plan" if self.samples is None else "the samples"
        return (
            f"the differences are {self.relative_error:.2g} of the outputs' spread, and {self.expected_error:.2g} was "
            f"expected: the images, or a few of them, look unlike {others}. Compare scale and normalisation of both "
            "(--scale, --mean, --std), and give more samples where rare values are far larger; where the model was "
            "trained on the samples and is overfitted, give held-out ones"
        )

    def to_json(self) -> str:
        """All fields and the remark as JSON."""
        return json.dumps({**dataclasses.asdict(self), "remark": self.remark}, indent=2)

    def __str__(self) -> str:
        """A few lines for people."""
        title = f"{counted(self.images, 'image')}, trust level {self.trust}, plan {self.plan_hash}"
        if self.stats is None:
            title += "; no secure run, the oracle stands for it"
        compared = (self._accuracies(), self._agreement())
        doubts = (self._beyond(), self._activations(), self._clamping())
        parts = (*compared, self._costs(), self._calibration(), *doubts)
        return "\n".join([title, *(f"  {line}" for part in parts for line in part)])

    def _accuracies(self) -> Iterator[str]:
        named = {
            f"float model ({self.float_by})": self.accuracy_float,
            "fixed-point oracle": self.accuracy_fixed,
            **({} if self.stats is None else {"secure run": self.accuracy_secure}),
        }
        for name, accuracy in named.items():
            if accuracy is not None:
                yield f"accuracy, {name}: {100 * accuracy:.2f} %"
        if self.regression is not None:
            yield from self.regression.lines(self.float_by, self.stats is not None)

    def _agreement(self) -> Iterator[str]:
        if self.argmax_agreement is not None:
            alike, of_labels = {"classes": ("classify alike", ""), "labels": ("give the same label", " of labels")}.get(
                self.outputs, ("give the same class at each place", "")
            )
            found = "oracle" if self.stats is None else "secure run"
            yield f"{found} and float model {alike}: {100 * self.argmax_agreement:.2f} %{of_labels}"
        if self.is_guess:
            yield "outputs taken for scores of classes; for a regression say --outputs values (outputs='values')"
        if self.are_indices:
            yield f"expected error of the values behind the classes: {self.expected_error:.2g} of their spread"
        else:
            yield self._difference()
            yield from self._differences()
        if self.outputs == "values" and not self.are_indices:
            yield f"R2 against the float model: {1 - self.relative_error**2:.4f}"
        if self.stats is None:
            return
        within = f" beyond the {self.tolerance:.4g} that the plan allows" if self.tolerance else ""
        verdict = "" if self.ok else " - A BUG"
        within += ", with the run's own dither" if self.is_dithered else ""
        yield f"disagreements with the fixed-point oracle{within}: {self.disagreements}{verdict}"

    def _difference(self) -> str:
        before = ", before or after the last operator" if self.is_finished else ""
        if self.is_quantised:
            before += ", without the rounding in the file"
        return (
            f"differences to the float model: {self.relative_error:.2g} of its outputs' spread "
            f"({self.expected_error:.2g} expected{before}), RMSE {self.rmse:.4g}, largest {self.max_abs_difference:.4g}"
        )

    def _differences(self) -> Iterator[str]:
        if len(self.differences) <= MOST_LINES:
            yield from (f"  {each}" for each in self.differences)
            return
        worst = max(self.differences, key=lambda each: each.relative_error)
        yield f"  the worst of {len(self.differences)} outputs is {worst}; --json has all"

    def _costs(self) -> Iterator[str]:
        if self.stats is None:
            return
        sent, received = self.stats.bytes_sent / self.images, self.stats.bytes_received / self.images
        yield f"{self.stats.speed}; an image sends {sent:,.0f} bytes and receives {received:,.0f}"
        yield (
            f"predicted: {self.predicted_seconds:.3g} s of one core, both parties together; measured: "
            f"{self.stats.seconds:.3g} s; {self.predicted_for}"
        )

    def _calibration(self) -> Iterator[str]:
        if self.samples is None:
            yield "calibrated on made-up inputs: samples (--samples FILE, samples=) make the fixed point more precise"
        elif self.samples_scored == 0:
            yield f"calibrated on {self.samples} other images"
        else:
            which = "all" if self.samples_scored == self.images else f"{self.samples_scored:,} of {self.images:,}"
            yield (
                f"calibrated on {self.samples} images, and scored on the same ({which}): new ones may do worse; "
                "calibrate on others (--samples FILE, samples=) to see"
            )

    def _beyond(self) -> Iterator[str]:
        if self.beyond_samples is not None:
            likely = ": likely wrong, as these inputs are unlike the samples" if self.beyond_samples else ""
            yield f"results beyond those of the samples: {self.beyond_samples} of {self.images}{likely}"

    def _activations(self) -> Iterator[str]:
        if self.stats is None:
            return
        if self.trust == "two-party":
            yield "activations beyond the ranges of the samples are clamped, and at this level nobody sees how many"
        if self.stats.clamped_activations:
            yield (
                f"{self.stats.clamped_activations / self.images:.3g} activations an image were beyond the ranges of "
                "the samples and clamped: many mean that the samples do not represent this data"
            )

    def _clamping(self) -> Iterator[str]:
        if self.clamped_inputs:
            yield (
                f"{values_outside(self.clamped_inputs)} the planned range and clamped: "
                "give samples or an input range that cover the data"
            )
        if self.remark is not None:
            yield self.remark
