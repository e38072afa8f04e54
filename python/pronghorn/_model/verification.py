"""Float model, fixed-point oracle and secure run on the same images, compared."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn import _machine, _native
from pronghorn._float import run_float
from pronghorn._inputs import values_clamped
from pronghorn._model.core import Floats, Progress, native_errors
from pronghorn._model.expected import ExpectedError
from pronghorn._model.regression import Regression
from pronghorn._model.report import OutputDifference, Report, StepSeconds
from pronghorn._model.stats import Stats
from pronghorn._outputs import INDICES, OF_EACH, Classes, Predictions, names_of_values, shapes_of, split
from pronghorn.errors import InputWarning, RunError
from pronghorn.onnx import ImportedModel

Integers = npt.NDArray[np.int32]
Targets = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Runs:
    """The outputs of all three, an image a row; those of fixed point as integers too."""

    floating: Floats
    float_by: str
    """The evaluator of the float model."""
    oracle: Integers
    fixed: Floats
    """The oracle's outputs."""
    integers: Integers
    secure: Floats
    """The secure run's outputs."""
    costs: Mapping[str, Any] | None
    """Of the secure run, as `Stats.of` takes them; None where there was none, and the oracle stands
    for it."""


@dataclass(frozen=True)
class Verification:
    """A plan, and the images that it is verified on."""

    compiled: _native.Compiled
    inputs: Floats
    """`(images, *input_shape)`."""
    samples: Floats | None
    """The images that set the fixed point; None where an input range did."""
    truth: Classes | Targets | None
    """The class of each image, or its values where outputs are `values`; None where unknown."""
    finish: Sequence[str]
    """The operators that the client computes last."""
    kind: str
    """The kind of the outputs: `classes`, `labels` or `values`."""
    is_quantised: bool
    """Whether the model's file rounds values."""

    @cached_property
    def plan(self) -> Mapping[str, Any]:
        """The plan's JSON, which may have megabytes."""
        found: Mapping[str, Any] = json.loads(self.compiled.plan_json())
        return found

    def run(
        self,
        imported: ImportedModel,
        native: _native.Model,
        threads: int | None,
        progress: Progress | None,
        enter: Callable[[str], None],
        secure: bool,
    ) -> Runs:
        """Runs all three, or all but the secure run; `enter` is called with the name of each before
        it begins.

        Raises:
            RunError: the oracle or the secure run failed.
        """
        enter("float model")
        floating, float_by = run_float(imported, native, self.inputs, progress)
        with native_errors(RunError):
            # With a dither the oracle is that of the run.
            if not (secure and self.compiled.is_dithered):
                enter("fixed-point model")
                oracle, fixed = self.compiled.run_oracle(self.inputs, progress)
            if not secure:
                return Runs(floating, float_by, oracle, fixed, oracle, fixed, None)
            enter("secure run")
            integers, decoded, costs = self.compiled.run_secure(self.inputs, threads, progress)
            if costs["oracle"] is not None:
                oracle, fixed = costs["oracle"]
        return Runs(floating, float_by, oracle, fixed, integers, decoded, costs)

    def report(self, runs: Runs) -> Report:
        """Compares the runs."""
        runs = _finite(_alike(runs))
        outputs = (runs.floating, runs.fixed, runs.secure)
        floating, fixed, secure = (Predictions.of(values, self.finish, self.kind) for values in outputs)
        tolerance = self.compiled.tolerance
        expected = ExpectedError.of(self.compiled)
        classes, targets = (None, self.truth) if self.kind == "values" else (self.truth, None)
        is_map = "arg_max_along" in self.finish
        if is_map:
            floating, fixed, secure = (replace(each, classes=_flat(each.outputs)) for each in (floating, fixed, secure))
            classes, targets = (None if targets is None else _flat(targets)), None
        measured = _machine.kept()
        beyond = self.compiled.beyond_samples(self.inputs, runs.integers)
        predicted, *_ = self.compiled.predicted(len(self.inputs), _machine.speed_of(measured))
        return Report(
            images=len(self.inputs),
            trust=self.compiled.trust,
            plan_hash=self.compiled.plan_hash,
            disagreements=None if runs.costs is None else disagreements(runs.integers, runs.oracle, tolerance),
            is_dithered=self.compiled.is_dithered,
            tolerance=tolerance * _result_unit(self.plan),
            outputs=self.kind,
            is_quantised=self.is_quantised,
            is_finished=not set(self.finish) <= OF_EACH,
            are_indices=is_map or bool(INDICES & set(self.finish)),
            argmax_agreement=_agreement(secure, floating),
            max_abs_difference=float(np.abs(runs.secure - runs.floating).max()),
            relative_error=self._relative_error(runs),
            rmse=rms(runs.secure - runs.floating),
            differences=tuple(self._differences(runs)),
            expected_error=expected.error,
            expected_errors=expected.outputs,
            accuracy_float=_accuracy(floating, classes),
            accuracy_fixed=_accuracy(fixed, classes),
            accuracy_secure=None if runs.costs is None else _accuracy(secure, classes),
            regression=None if targets is None else self._regression(targets, *outputs),
            float_by=runs.float_by,
            samples=None if self.samples is None else len(self.samples),
            samples_scored=_shared(self.samples, self.inputs),
            beyond_samples=None if beyond is None else sum(beyond),
            clamped_inputs=values_clamped(self.inputs, self.compiled.plan_json()),
            stats=None if runs.costs is None else Stats.of(len(self.inputs), runs.costs),
            predicted_seconds=None if runs.costs is None else predicted,
            predicted_for=str(measured or _machine.NOMINAL),
            steps=None if runs.costs is None else self._steps(runs.costs["step_seconds"], measured),
        )

    def _relative_error(self, runs: Runs) -> float:
        """That of all outputs; where they have scales, of the output that is worst, as it is expected."""
        ends = [end["scale"]["exponents"] for end in self.plan["finish"] if isinstance(end, dict) and "scale" in end]
        if not ends:
            return relative_error(runs.secure, runs.floating)
        units = np.repeat(np.exp2(-np.array(ends[0], np.float32)), runs.secure[0].size // len(ends[0]))
        found, wanted = (each.reshape(len(each), -1) * units for each in (runs.secure, runs.floating))
        shapes = shapes_of(self.plan) or {"": found.shape[1:]}
        heads = zip(split(found, shapes).values(), split(wanted, shapes).values(), strict=True)
        return max(relative_error(*head) for head in heads)

    def _differences(self, runs: Runs) -> Iterator[OutputDifference]:
        """Those of each of several outputs."""
        shapes = shapes_of(self.plan)
        floating = split(runs.floating, shapes)
        for name, found in split(runs.secure, shapes).items():
            wanted = floating[name]
            yield OutputDifference(name, relative_error(found, wanted), rms(found - wanted))

    def _regression(self, targets: Classes | Targets, floating: Floats, fixed: Floats, secure: Floats) -> Regression:
        """The distances to the given values."""
        names = names_of_values(shapes_of(self.plan))
        return Regression.of(targets.astype(np.float64), floating, fixed, secure, names)

    def _steps(self, seconds: Sequence[float], measured: _machine.Measurement | None) -> tuple[StepSeconds, ...]:
        """The seconds of each step, beside those that were predicted."""
        names = json.loads(self.compiled.summary_json())["names"]["steps"]
        predicted = self.compiled.predicted_steps(len(self.inputs), _machine.speed_of(measured))
        return tuple(StepSeconds(*step) for step in zip(names, predicted, seconds, strict=True))


ROUNDING = 5e-7
"""A spread of less than this part of an output's values is that of single precision. The planner says so, too."""


def disagreements(found: Integers, oracle: Integers, tolerance: int) -> int:
    """How many integers differ by more than `tolerance`."""
    return int(np.count_nonzero(np.abs(found.astype(np.int64) - oracle) > tolerance))


def relative_error(found: Floats, wanted: Floats) -> float:
    """Root mean square of the differences, over that of `wanted` about the mean of each output; of
    one image, or where no output differs but for rounding, over that of `wanted`."""
    return rms(found - wanted) / (rms(spreads(wanted)) or rms(wanted) or 1.0)


def spreads(wanted: Floats) -> Targets:
    """The standard deviation of each output over the images; 0 of one image, and where it is that of rounding."""
    wide = wanted.astype(np.float64)
    variances = np.var(wide, axis=0) * (len(wide) / max(1, len(wide) - 1))
    return np.sqrt(np.where(variances > ROUNDING**2 * np.mean(wide**2, axis=0), variances, 0.0))


def rms(values: npt.NDArray[np.floating[Any]]) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def _result_unit(plan: Mapping[str, Any]) -> float:
    """The value of 1 in a result's integer."""
    return float(2.0 ** -plan["steps"][plan["output"]]["value"]["fraction_bits"])


def _alike(runs: Runs) -> Runs:
    """The same with outputs of one shape: classes have one number an image, or none beside the images."""
    fixed, secure = (each.reshape(runs.floating.shape) for each in (runs.fixed, runs.secure))
    return replace(runs, fixed=fixed, secure=secure)


def _finite(runs: Runs) -> Runs:
    """The same without what the float model gives that is no number."""
    is_number = np.isfinite(runs.floating)
    if is_number.all():
        return runs
    count = int(np.count_nonzero(~is_number))
    problem = f"{count} outputs of the float model are infinite or no numbers, as logarithms of 0 are"
    warnings.warn(f"{problem}: they are left out of the comparison", InputWarning, stacklevel=5)
    floating, fixed, secure = (np.where(is_number, each, 0) for each in (runs.floating, runs.fixed, runs.secure))
    return replace(runs, floating=floating, fixed=fixed, secure=secure)


def _flat(classes: Floats | Targets | Classes) -> Classes:
    """Classes at all places of all images."""
    return np.rint(classes).reshape(-1).astype(np.int64)


def _agreement(one: Predictions, other: Predictions) -> float | None:
    """The share of images with the same class, or of labels that are the same."""
    if one.classes is not None and other.classes is not None:
        return float(np.mean(one.classes == other.classes))
    if one.probabilities is None or other.probabilities is None:
        return None
    return float(np.mean((one.probabilities > 0.5) == (other.probabilities > 0.5)))


def _accuracy(found: Predictions, truth: Classes | Targets | None) -> float | None:
    return None if truth is None or found.classes is None else float(np.mean(found.classes == truth))


def _shared(samples: Floats | None, inputs: Floats) -> int:
    """How many inputs are among the samples."""
    if samples is None:
        return 0

    def digest(image: Floats) -> bytes:
        return hashlib.blake2b(image.tobytes(), digest_size=16).digest()

    known = {digest(sample) for sample in samples}
    return sum(digest(image) in known for image in inputs)
