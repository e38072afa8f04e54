"""Models, plans, and verifying a secure run against the float model and the oracle."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pronghorn import _check, _native
from pronghorn._float import run_float
from pronghorn._inputs import as_inputs, as_labels, planned_range, warn_of_pixels, warn_of_scale
from pronghorn._lower import FINISH
from pronghorn._outputs import Classes, Predictions, kind_of
from pronghorn._trust import require
from pronghorn.errors import InputError, PlanError, PronghornError, RunError, UnsupportedModelError, of_core
from pronghorn.onnx_import import ImportedModel, ShapeOption, Source, import_onnx

Floats = npt.NDArray[np.float32]
Progress = Callable[[float, int], None]
"""Called with images done and images in all, about 20 times a second, on the thread that waits. All images of a batch
go through a layer together, so `done` grows by fractions of an image. An exception in it cancels the run."""

OBJECTIVES = tuple(name for name, _ in _native.objectives())
OBJECTIVE = "latency"


@contextmanager
def native_errors(kind: type[PronghornError]) -> Iterator[None]:
    """Turns the core's errors into `kind`."""
    try:
        yield
    except _native.NativeError as error:
        raise of_core(kind, error) from error


@dataclass(frozen=True)
class Stats:
    """What a run cost, seen from the client."""

    images: int
    seconds: float
    bytes_sent: int
    bytes_received: int
    clamped_inputs: int
    """Input values outside the planned range, which were moved to its ends."""
    clamped_activations: int
    """Activations beyond the ranges of the samples, likewise; many mean that the samples do not represent the data."""
    prepared_batches: int = 0
    """Batches that used what was prepared."""
    lost_preparations: int = 0
    """Preparations that were of no use: damaged, or the server had its half no more."""

    @classmethod
    def of(cls, images: int, found: Mapping[str, float]) -> Stats:
        """From the core's dictionary."""
        names = ("bytes_sent", "bytes_received", "clamped_inputs", "clamped_activations")
        ahead = (int(found.get(name, 0)) for name in ("prepared_batches", "lost_preparations"))
        return cls(images, float(found["seconds"]), *(int(found[name]) for name in names), *ahead)

    @property
    def images_per_second(self) -> float:
        """Images a second."""
        return self.images / self.seconds if self.seconds > 0 else math.inf

    @property
    def speed(self) -> str:
        """The same for people."""
        return speed(self.images_per_second)


def speed(rate: float) -> str:
    """Images a second, for people."""
    return f"{rate:,.0f} images/s" if rate >= 10 else f"{rate:.2g} images/s"


class Shaped(ABC):
    """What has the shapes of one image and one result."""

    @property
    @abstractmethod
    def _core(self) -> _native.Model | _native.Compiled | _native.Client: ...

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one image."""
        return tuple(self._core.input_shape)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of one result."""
        return tuple(self._core.output_shape)


class Plan(Shaped):
    """What a secure run will do and cost, and what each party learns. Printable, and hashed."""

    def __init__(self, compiled: _native.Compiled) -> None:
        """Wraps a compiled plan; use `Model.plan`."""
        self._compiled = compiled

    def __str__(self) -> str:
        """The plan as a table: each step with engine, parameters, security, bytes and predicted time."""
        return self._compiled.plan_text()

    def __repr__(self) -> str:
        """Trust level and hash."""
        return f"<Plan {self.trust} {self.hash[:16]}>"

    @property
    def trust(self) -> str:
        """The trust level."""
        return self._compiled.trust

    @property
    def hash(self) -> str:
        """BLAKE3 of the plan in hexadecimal; client and server compare it."""
        return self._compiled.plan_hash

    @property
    def _core(self) -> _native.Compiled:
        return self._compiled

    def to_json(self) -> str:
        """The plan as JSON, everything the table says and more."""
        return self._compiled.plan_json()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan in the form that is hashed and sent; it holds no weights."""
        Path(path).write_bytes(self._compiled.plan_bytes())


@dataclass(frozen=True)
class Report:
    """Float model, fixed-point oracle and secure run on the same images."""

    images: int
    trust: str
    plan_hash: str
    disagreements: int
    """Output integers in which the secure run differs from the oracle by more than `tolerance`: must be 0."""
    tolerance: float
    """0, unless ciphertexts are approximate: then what the plan allows each output, before a Softmax or the like."""
    outputs: str
    """What the outputs are: `classes`, `labels` or `values`."""
    argmax_agreement: float | None
    """Share of images to which the secure run and the float model give the same class, or the same labels; None where
    outputs are values."""
    max_abs_difference: float
    relative_error: float
    """Root mean square of the differences to the float model, over that of its outputs: what `error` aims at."""
    """Largest difference between an output of the secure run and of the float model."""
    accuracy_float: float | None
    """Accuracy of the float model; None without labels, like the next two."""
    accuracy_fixed: float | None
    accuracy_secure: float | None
    float_by: str
    """What computed the float model: onnxruntime, or pronghorn."""
    samples: int | None
    """Images that set the fixed point; None where an input range did."""
    samples_scored: int
    """How many of these images are among those samples."""
    stats: Stats

    @property
    def ok(self) -> bool:
        """Whether the secure run equals the oracle everywhere, or within the plan's tolerance."""
        return self.disagreements == 0

    def to_json(self) -> str:
        """All fields as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    def __str__(self) -> str:
        """A few lines for people."""
        stats = self.stats
        lines = [f"{self.images} images, trust level {self.trust}, plan {self.plan_hash}"]
        if self.accuracy_float is not None:
            accuracies = (self.accuracy_float, self.accuracy_fixed, self.accuracy_secure)
            shown = [f"{100 * accuracy:.2f} %" for accuracy in accuracies if accuracy is not None]
            named = zip((f"float model ({self.float_by})", "fixed-point oracle", "secure run"), shown, strict=True)
            lines += [f"  accuracy, {name}: {value}" for name, value in named]
        within = f" beyond the {self.tolerance:.4g} that the plan allows" if self.tolerance else ""
        if self.argmax_agreement is not None:
            alike = "classify alike" if self.outputs == "classes" else "give the same labels"
            lines.append(f"  secure run and float model {alike}: {100 * self.argmax_agreement:.2f} %")
        lines += [
            f"  outputs and those of the float model: error {self.relative_error:.2g} of their root mean square, "
            f"largest difference {self.max_abs_difference:.4g}",
            f"  disagreements with the fixed-point oracle{within}: {self.disagreements}"
            + ("" if self.ok else " - A BUG"),
            f"  {stats.speed}; an image sends {stats.bytes_sent / self.images:,.0f} bytes "
            f"and receives {stats.bytes_received / self.images:,.0f}",
            f"  {self._calibration()}",
        ]
        if self.trust == "two-party":
            lines.append(
                "  activations beyond the ranges of the samples are clamped, and at this level nobody sees how many"
            )
        if stats.clamped_activations:
            lines.append(
                f"  {stats.clamped_activations / self.images:.3g} activations an image were beyond the ranges of the "
                "samples and clamped: many mean that the samples do not represent this data"
            )
        if stats.clamped_inputs:
            lines.append(
                f"  {stats.clamped_inputs} input values were outside the planned range and clamped: "
                "give samples or an input range that cover the data"
            )
        return "\n".join(lines)

    def _calibration(self) -> str:
        """What the ranges were set by."""
        if self.samples is None:
            return "calibrated on made-up inputs: samples (--samples FILE, samples=) make the fixed point more precise"
        if self.samples_scored == 0:
            return f"calibrated on {self.samples} other images"
        which = "all" if self.samples_scored == self.images else f"{self.samples_scored} of them"
        return (
            f"calibrated on the images it is scored on ({which}): new ones may do worse; "
            "calibrate on others (--samples FILE, samples=) to see"
        )


def load(
    model: Source,
    *,
    samples: npt.ArrayLike | None = None,
    input_range: tuple[float, float] = (0.0, 1.0),
    shape: ShapeOption = None,
    output: str | None = None,
    weight_bits: int | None = None,
    input_bits: int | None = None,
    error: float | None = None,
) -> Model:
    """Loads an ONNX model.

    Args:
        model: a path, the bytes of a file, or an `onnx.ModelProto`.
        samples: typical inputs `(images, *input_shape)`, which set range and precision of the fixed point.
        input_range: the least and the largest input, used without samples.
        shape: the input's shape, batch first, for models that leave it open.
        output: the value to compute, for models with several outputs, or to cut the model there.
        weight_bits: bits of every layer's integer weights, 2 to 16 (`encrypted`: 2 to 15), as far as a modulus carries
            them; chosen layer by layer where not given.
        input_bits: bits of every layer's integer inputs, 2 to 24; likewise (not for `encrypted`).
        error: the error of results to aim at, as a part of their root mean square on the samples, 0.0001 to 0.5
            (0.05 where not given, 0.02 under `two-party`). Less costs larger moduli; `verify` says what is reached.

    Raises:
        ModelFileError: the file is missing, damaged, or not ONNX.
        UnsupportedModelError: something in the model cannot be run; the error names it.
        InputError: samples or options do not fit the model.
    """
    if output is not None:
        _check.text("output", output, "logits")
    bounds = _bounds(input_range)
    precision = _Precision(
        _check.optional("weight_bits", weight_bits, 2, 16),
        _check.optional("input_bits", input_bits, 2, 24),
        None if error is None else _check.number("error", error, 1e-4, 0.5),
    )
    imported = import_onnx(model, shape=shape, output=output)
    try:
        native = _native.Model(imported.graph_json, imported.tensors)
    except _native.NativeError as error:
        advice = "change the model there, or end it before (--output NAME, output=NAME)"
        raise UnsupportedModelError(str(error), advice) from error
    bare = Model(imported, native, None, bounds, precision)
    return bare if samples is None else bare.calibrated(samples, stacklevel=3)


def _bounds(input_range: Any) -> tuple[float, float]:
    try:
        low, high = map(float, input_range)
    except (TypeError, ValueError):
        raise InputError(f"input_range is {input_range!r}: give the least and the largest input") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"input_range is no range from {low} to {high}: give the least and the largest input")
    return low, high


class _Precision(NamedTuple):
    """What of a plan's precision is given; None: the planner's choice."""

    weight_bits: int | None
    input_bits: int | None
    error: float | None


class Model(Shaped):
    """A model, ready to plan, verify and serve. Made by `load`."""

    def __init__(
        self,
        imported: ImportedModel,
        native: _native.Model,
        samples: Floats | None,
        input_range: tuple[float, float],
        precision: _Precision,
    ) -> None:
        """Use `load`."""
        self._imported = imported
        self._native = native
        self._samples = samples
        self._input_range = input_range
        self._precision = precision
        self._compiled: dict[tuple[Any, ...], _native.Compiled] = {}

    def __repr__(self) -> str:
        """Name and shapes."""
        return f"<Model {self.name} {list(self.input_shape)} -> {list(self.output_shape)}>"

    @property
    def name(self) -> str:
        """The file's name, or the graph's."""
        return self._imported.name

    @property
    def _core(self) -> _native.Model:
        return self._native

    def calibrated(self, samples: npt.ArrayLike, *, stacklevel: int = 2) -> Model:
        """The same model with other samples, which are taken as they are: preprocessed as the model wants its inputs.

        Raises:
            InputError: the samples do not fit the model.
        """
        prepared = as_inputs(samples, self.input_shape, "samples")
        if not self._imported.takes_integers:
            warn_of_pixels(prepared, stacklevel)
        return Model(self._imported, self._native, prepared, self._input_range, self._precision)

    def run_float(self, inputs: npt.ArrayLike) -> Floats:
        """The float model in the clear: `(images, *input_shape)` to `(images, *output_shape)`."""
        return run_float(self._imported, self._native, as_inputs(inputs, self.input_shape))[0]

    def plan(
        self,
        trust: str | None = None,
        objective: str = "latency",
        *,
        memory: int | None = None,
        without: Iterable[str] = (),
        engine: str | None = None,
    ) -> Plan:
        """Plans a secure run.

        Args:
            trust: the trust level; `two-party` where none is named.
            objective: what to choose the plan for, where there is a choice: `latency` (seconds of one image), `traffic`
                (its bytes) or `throughput` (images a second of full batches).
            memory: most bytes the server may use.
            without: passes over an encrypted network to leave out, to see what they bring: `lazy-rescaling`,
                `lazy-relinearisation`.
            engine: what linear layers on shares run in: `coefficient`, `slot` or `batch`; what `objective` makes best
                where none is named.

        Raises:
            TrustLevelRequired: no level of this version was named; the error lists what each reveals.
            InputError: an option that makes no sense.
            PlanError: no parameters fit.
        """
        return Plan(self.compiled(trust, objective, memory=memory, without=without, engine=engine))

    def compiled(
        self,
        trust: str | None,
        objective: str = "latency",
        *,
        memory: int | None = None,
        without: Iterable[str] = (),
        engine: str | None = None,
    ) -> _native.Compiled:
        """The compiled plan with the server's half; made once for the same options."""
        level = require(trust)
        if objective not in OBJECTIVES:
            raise InputError(f"there is no objective {objective!r}; there are {', '.join(OBJECTIVES)}")
        if objective != OBJECTIVE and level != _check.ENGINES_OF:
            raise InputError(
                f"there is a choice at trust level {_check.ENGINES_OF} only, not at {level}: "
                "leave --objective (objective=) away"
            )
        left_out = _check.passes(without, level)
        named = _check.engine(engine, level)
        if level == "encrypted" and self._precision.input_bits is not None:
            raise InputError(
                "inputs of encrypted networks are not quantised: leave --input-bits (input_bits=) away; "
                "--weight-bits (weight_bits=) sets the precision there"
            )
        options = (level, _check.memory(memory), left_out, named, objective)
        if options not in self._compiled:
            with native_errors(PlanError):
                self._compiled[options] = self._native.compile(
                    level, self._samples, self._input_range, memory, *self._precision, list(left_out), named, objective
                )
        return self._compiled[options]

    def verify(
        self,
        x: npt.ArrayLike,
        labels: npt.ArrayLike | None = None,
        *,
        trust: str | None = None,
        samples: npt.ArrayLike | None = None,
        outputs: str | None = None,
        memory: int | None = None,
        without: Iterable[str] = (),
        engine: str | None = None,
        objective: str = "latency",
        threads: int | None = None,
        progress: Progress | None = None,
        phase: Callable[[str], None] | None = None,
    ) -> Report:
        """Runs float model, fixed-point oracle and the real protocol (both parties here) on the same images.

        Args:
            x: images `(images, *input_shape)`.
            labels: the class of each, for accuracies.
            trust: the trust level; `two-party` where none is named.
            samples: what sets the fixed point, instead of the samples the model was loaded with.
            outputs: what the outputs are, where that is not clear: `classes`, `labels` or `values`.
            memory: most bytes the server may use.
            without: passes over an encrypted network to leave out, as in `plan`.
            engine: what linear layers on shares run in, as in `plan`.
            objective: what to choose the plan for, as in `plan`.
            threads: threads to compute with; all cores where not given.
            progress: called with images done and images in all, from 0 in each phase.
            phase: called with the name of each phase before it begins.

        Raises:
            InputError: `x` or `labels` do not fit.
            RunError: the run failed.
        """
        if samples is not None:
            calibrated = self.calibrated(samples, stacklevel=3)
            return calibrated.verify(
                x,
                labels,
                trust=trust,
                outputs=outputs,
                memory=memory,
                without=without,
                engine=engine,
                objective=objective,
                threads=threads,
                progress=progress,
                phase=phase,
            )
        require(trust)
        threads = _check.threads(threads)
        for name, function in (("progress", progress), ("phase", phase)):
            _check.callback(name, function)
        enter = phase if phase is not None else lambda name: None
        inputs = as_inputs(x, self.input_shape)
        truth = None if labels is None else as_labels(labels, len(inputs))
        kind = kind_of(self.finish, self.output_shape, outputs, truth)
        if truth is not None and kind != "classes":
            raise InputError(
                f"labels are given, but the outputs are {kind}, not classes: "
                "leave the labels out, or say outputs='classes' (--outputs classes)"
            )
        enter("planning")
        compiled = self.compiled(trust, objective, memory=memory, without=without, engine=engine)
        warn_of_scale(inputs, planned_range(compiled.plan_json()), stacklevel=2)
        enter("float model")
        expected, float_by = run_float(self._imported, self._native, inputs, progress)
        with native_errors(RunError):
            enter("fixed-point model")
            oracle, fixed = compiled.run_oracle(inputs, progress)
            enter("secure run")
            integers, secure, found = compiled.run_secure(inputs, threads, progress)
        floating, exact, run = (Predictions.of(values, self.finish, kind) for values in (expected, fixed, secure))
        return Report(
            images=len(inputs),
            trust=compiled.trust,
            plan_hash=compiled.plan_hash,
            disagreements=_disagreements(integers, oracle, compiled.tolerance),
            tolerance=compiled.tolerance * _result_unit(compiled.plan_json()),
            outputs=kind,
            argmax_agreement=_agreement(run, floating),
            max_abs_difference=float(np.abs(secure - expected).max()),
            relative_error=_relative_error(secure, expected),
            accuracy_float=_accuracy(floating, truth),
            accuracy_fixed=_accuracy(exact, truth),
            accuracy_secure=_accuracy(run, truth),
            float_by=float_by,
            samples=None if self._samples is None else len(self._samples),
            samples_scored=_shared(self._samples, inputs),
            stats=Stats.of(len(inputs), found),
        )

    def classes(self, outputs: Floats) -> Classes:
        """The class of each output.

        Raises:
            InputError: outputs of another shape, or a model that does not classify.
        """
        if outputs.shape[1:] != self.output_shape:
            raise InputError(
                f"outputs have shape {list(outputs.shape)}; the model gives (images, *{self.output_shape})"
            )
        found = Predictions.of(outputs, self.finish, kind_of(self.finish, self.output_shape))
        if found.classes is None:
            raise InputError(f"the outputs of {self.name} are {found.kind}, not classes: look at them themselves")
        return found.classes

    @property
    def finish(self) -> list[str]:
        """What the client does last; by their place in the graph, these operators are nothing else."""
        kinds = [node["op"]["kind"] for node in json.loads(self._imported.graph_json)["nodes"]]
        return [kind for kind in kinds if kind in FINISH]


def _relative_error(found: Floats, wanted: Floats) -> float:
    """Root mean square of the differences, over that of what is wanted."""
    difference, size = (float(np.sqrt(np.mean(np.square(x, dtype=np.float64)))) for x in (found - wanted, wanted))
    return difference / size if size else difference


def _result_unit(plan_json: str) -> float:
    """What 1 in a result's integer stands for."""
    plan = json.loads(plan_json)
    return float(2.0 ** -plan["steps"][plan["output"]]["value"]["fraction_bits"])


def _disagreements(found: npt.NDArray[np.int32], oracle: npt.NDArray[np.int32], tolerance: int) -> int:
    return int(np.count_nonzero(np.abs(found.astype(np.int64) - oracle) > tolerance))


def _agreement(one: Predictions, other: Predictions) -> float | None:
    """The share of images with the same class, or the same labels."""
    if one.classes is not None and other.classes is not None:
        return float(np.mean(one.classes == other.classes))
    if one.probabilities is None or other.probabilities is None:
        return None
    return float(np.mean(np.all((one.probabilities > 0.5) == (other.probabilities > 0.5), axis=1)))


def _accuracy(found: Predictions, truth: Classes | None) -> float | None:
    return None if truth is None or found.classes is None else float(np.mean(found.classes == truth))


def _shared(samples: Floats | None, inputs: Floats) -> int:
    """How many inputs are among the samples."""
    if samples is None:
        return 0

    def digest(image: Floats) -> bytes:
        return hashlib.blake2b(image.tobytes(), digest_size=16).digest()

    known = {digest(sample) for sample in samples}
    return sum(digest(image) in known for image in inputs)
