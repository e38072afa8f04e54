"""Models, plans, and verifying a secure run against the float model and the oracle."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn import _native
from pronghorn._float import run_float
from pronghorn._trust import require
from pronghorn.errors import InputError, PlanError, PronghornError, RunError, UnsupportedModelError
from pronghorn.onnx_import import ImportedModel, ShapeOption, Source, import_onnx

Floats = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]
"""Called with images done and images in all."""

OBJECTIVES = ("throughput",)


@contextmanager
def native_errors(kind: type[PronghornError]) -> Iterator[None]:
    """Turns the core's errors into `kind`."""
    try:
        yield
    except _native.NativeError as error:
        raise kind(str(error)) from error


def as_inputs(array: npt.ArrayLike, shape: tuple[int, ...], what: str = "inputs") -> Floats:
    """`array` as contiguous float32 `(images, *shape)`.

    Raises:
        InputError: another shape, no images, or values that are no numbers.
    """
    found = np.asarray(array)
    if found.dtype.kind not in "fiub":
        raise InputError(f"{what} have type {found.dtype}; numbers are needed")
    if found.shape[1:] != shape or found.ndim != len(shape) + 1 or len(found) == 0:
        wanted = ", ".join(map(str, ("images", *shape)))
        raise InputError(f"{what} have shape {list(found.shape)}; the model takes ({wanted}), at least one image")
    inputs = np.ascontiguousarray(found, dtype=np.float32)
    if not np.isfinite(inputs).all():
        raise InputError(f"{what} hold values that are infinite or no numbers")
    return inputs


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

    @classmethod
    def of(cls, images: int, found: Mapping[str, float]) -> Stats:
        """From the core's dictionary."""
        names = ("bytes_sent", "bytes_received", "clamped_inputs", "clamped_activations")
        return cls(images, float(found["seconds"]), *(int(found[name]) for name in names))

    @property
    def images_per_second(self) -> float:
        """Images a second."""
        return self.images / self.seconds if self.seconds > 0 else math.inf


class Plan:
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
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one image."""
        return tuple(self._compiled.input_shape)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of one result."""
        return tuple(self._compiled.output_shape)

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
    """Output integers in which the secure run differs from the oracle: must be 0."""
    argmax_agreement: float
    """Share of images that the secure run and the float model classify alike."""
    max_abs_difference: float
    """Largest difference between an output of the secure run and of the float model."""
    accuracy_float: float | None
    """Accuracy of the float model; None without labels, like the next two."""
    accuracy_fixed: float | None
    accuracy_secure: float | None
    float_by: str
    """What computed the float model: onnxruntime, or pronghorn."""
    stats: Stats

    @property
    def ok(self) -> bool:
        """Whether the secure run equals the oracle everywhere."""
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
        lines += [
            f"  secure run and float model classify alike: {100 * self.argmax_agreement:.2f} %",
            f"  largest difference of an output to the float model: {self.max_abs_difference:.4g}",
            f"  disagreements with the fixed-point oracle: {self.disagreements}" + ("" if self.ok else " - A BUG"),
            f"  {stats.images_per_second:,.0f} images/s; an image sends {stats.bytes_sent / self.images:,.0f} bytes "
            f"and receives {stats.bytes_received / self.images:,.0f}",
        ]
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


def load(
    model: Source,
    *,
    samples: npt.ArrayLike | None = None,
    input_range: tuple[float, float] = (0.0, 1.0),
    shape: ShapeOption = None,
    output: str | None = None,
    weight_bits: int | None = None,
    input_bits: int | None = None,
) -> Model:
    """Loads an ONNX model.

    Args:
        model: a path, the bytes of a file, or an `onnx.ModelProto`.
        samples: typical inputs `(images, *input_shape)`, which set range and precision of the fixed point.
        input_range: the least and the largest input, used without samples.
        shape: the input's shape, batch first, for models that leave it open.
        output: the value to compute, for models with several outputs, or to cut the model there.
        weight_bits: bits of every layer's integer weights, 2 to 16; chosen layer by layer where not given.
        input_bits: bits of every layer's integer inputs, 2 to 24; likewise.

    Raises:
        ModelFileError: the file is missing, damaged, or not ONNX.
        UnsupportedModelError: something in the model cannot be run; the error names it.
        InputError: samples or options do not fit the model.
    """
    imported = import_onnx(model, shape=shape, output=output)
    low, high = map(float, input_range)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"the input range {low}, {high} is no range: give the least and the largest input")
    try:
        native = _native.Model(imported.graph_json, imported.tensors)
    except _native.NativeError as error:
        advice = "change the model there, or end it before (--output NAME, output=NAME)"
        raise UnsupportedModelError(str(error), advice) from error
    prepared = None if samples is None else as_inputs(samples, imported.input_shape, "samples")
    for name, bits, most in (("weight_bits", weight_bits, 16), ("input_bits", input_bits, 24)):
        if bits is not None and not 2 <= bits <= most:
            raise InputError(f"{name} is {bits}, but must be 2 to {most}")
    return Model(imported, native, prepared, (low, high), (weight_bits, input_bits))


class Model:
    """A model, ready to plan, verify and serve. Made by `load`."""

    def __init__(
        self,
        imported: ImportedModel,
        native: _native.Model,
        samples: Floats | None,
        input_range: tuple[float, float],
        bits: tuple[int | None, int | None],
    ) -> None:
        """Use `load`."""
        self._imported = imported
        self._native = native
        self._samples = samples
        self._input_range = input_range
        self._bits = bits
        self._compiled: dict[tuple[Any, ...], _native.Compiled] = {}

    def __repr__(self) -> str:
        """Name and shapes."""
        return f"<Model {self.name} {list(self.input_shape)} -> {list(self.output_shape)}>"

    @property
    def name(self) -> str:
        """The file's name, or the graph's."""
        return self._imported.name

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one image."""
        return tuple(self._native.input_shape)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of one result."""
        return tuple(self._native.output_shape)

    def run_float(self, inputs: npt.ArrayLike) -> Floats:
        """The float model in the clear: `(images, *input_shape)` to `(images, *output_shape)`."""
        return run_float(self._imported, self._native, as_inputs(inputs, self.input_shape))[0]

    def plan(
        self,
        trust: str | None = None,
        objective: str = "throughput",
        *,
        memory: int | None = None,
    ) -> Plan:
        """Plans a secure run.

        Args:
            trust: the trust level; must be named.
            objective: what to optimise; this version has `throughput`.
            memory: most bytes the server may use.

        Raises:
            TrustLevelRequired: no level of this version was named; the error lists what each reveals.
            PlanError: no parameters fit.
        """
        return Plan(self.compiled(trust, objective, memory=memory))

    def compiled(
        self,
        trust: str | None,
        objective: str = "throughput",
        *,
        memory: int | None = None,
    ) -> _native.Compiled:
        """The compiled plan with the server's half; made once for the same options."""
        level = require(trust)
        if objective not in OBJECTIVES:
            raise InputError(f"objective {objective!r} is not in this version; it has {', '.join(OBJECTIVES)}")
        options = (level, memory)
        if options not in self._compiled:
            with native_errors(PlanError):
                self._compiled[options] = self._native.compile(
                    level, self._samples, self._input_range, memory, *self._bits
                )
        return self._compiled[options]

    def verify(
        self,
        x: npt.ArrayLike,
        labels: npt.ArrayLike | None = None,
        *,
        trust: str | None = None,
        memory: int | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Runs float model, fixed-point oracle and the real protocol (both parties here) on the same images.

        Args:
            x: images `(images, *input_shape)`.
            labels: the class of each, for accuracies.
            trust: the trust level; must be named.
            memory: most bytes the server may use.
            threads: threads to compute with; all cores where not given.
            progress: called with images done and images in all.

        Raises:
            InputError: `x` or `labels` do not fit.
            RunError: the run failed.
        """
        compiled = self.compiled(trust, memory=memory)
        inputs = as_inputs(x, self.input_shape)
        truth = None if labels is None else as_labels(labels, len(inputs))
        expected, float_by = run_float(self._imported, self._native, inputs)
        with native_errors(RunError):
            oracle = compiled.run_fixed_integers(inputs)
            fixed = compiled.run_fixed(inputs)
            integers, secure, found = compiled.run_secure(inputs, threads, progress)
        return Report(
            images=len(inputs),
            trust=compiled.trust,
            plan_hash=compiled.plan_hash,
            disagreements=int(np.count_nonzero(integers != oracle)),
            argmax_agreement=float(np.mean(self.classes(secure) == self.classes(expected))),
            max_abs_difference=float(np.abs(secure - expected).max()),
            accuracy_float=self._accuracy(expected, truth),
            accuracy_fixed=self._accuracy(fixed, truth),
            accuracy_secure=self._accuracy(secure, truth),
            float_by=float_by,
            stats=Stats.of(len(inputs), found),
        )

    def classes(self, outputs: Floats) -> npt.NDArray[np.int64]:
        """The class of each output."""
        kinds = [node["op"]["kind"] for node in json.loads(self._imported.graph_json)["nodes"]]
        return classes(outputs, is_class="arg_max" in kinds, is_probability="sigmoid" in kinds)

    def _accuracy(self, outputs: Floats, labels: npt.NDArray[np.int64] | None) -> float | None:
        return None if labels is None else float(np.mean(self.classes(outputs) == labels))


def classes(outputs: Floats, *, is_class: bool = False, is_probability: bool = False) -> npt.NDArray[np.int64]:
    """The class of each output: the index of the largest; for one number, whether it says yes.

    `is_class`: the output is the class already. `is_probability`: one number says yes above 0.5, not above 0.
    """
    flat = outputs.reshape(len(outputs), -1)
    if is_class:
        return flat[:, 0].astype(np.int64)
    if flat.shape[1] == 1:
        return np.greater(flat[:, 0], 0.5 if is_probability else 0.0).astype(np.int64)
    found: npt.NDArray[np.int64] = np.argmax(flat, axis=1).astype(np.int64)
    return found


def as_labels(labels: npt.ArrayLike, images: int) -> npt.NDArray[np.int64]:
    """One class for each image."""
    found = np.asarray(labels)
    if found.size != images or found.dtype.kind not in "iub":
        raise InputError(
            f"labels have shape {list(found.shape)} and type {found.dtype}; "
            f"one integer for each of {images} images is needed"
        )
    return found.reshape(-1).astype(np.int64)
