"""Models: load, plan, verify."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pronghorn import _check, _native, _torch
from pronghorn._arrays import Inputs, as_inputs, as_numbers, joined
from pronghorn._categories import NO_CATEGORIES, Categories
from pronghorn._columns import as_input, counted, frame_names, listed, of_model, unusable
from pronghorn._data import is_table_row
from pronghorn._float import run_float
from pronghorn._front import Front
from pronghorn._inputs import (
    BYTES,
    as_indices,
    as_labels,
    as_targets,
    names_of_labels,
    planned_bounds,
    warn_of_fractions,
    warn_of_pixels,
    warn_of_placeholders,
    warn_of_scale,
)
from pronghorn._model.comparison import compare
from pronghorn._model.core import Floats, Progress, Shaped, native_errors
from pronghorn._model.expected import ExpectedError
from pronghorn._model.made import WORTHWHILE, Rare, have_results, within_thresholds
from pronghorn._model.options import PlanOptions
from pronghorn._model.plan import Plan
from pronghorn._model.report import Report
from pronghorn._model.traffic import Traffic
from pronghorn._model.verification import Targets, Verification
from pronghorn._outputs import Classes, Predictions, classes_of, is_guess, kind_of, split
from pronghorn.errors import (
    ExportError,
    InputError,
    InputWarning,
    PlanError,
    PrecisionWarning,
    RoundingWarning,
    UnsupportedModelError,
)
from pronghorn.onnx import Begin, Fixed, ImportedModel, Output, ShapeOption, Source, import_onnx

if TYPE_CHECKING:
    import torch


def load(
    model: Source | torch.nn.Module,
    *,
    example: _torch.Example = None,
    samples: Inputs | None = None,
    input_range: tuple[float, float] | None = None,
    shape: ShapeOption = None,
    output: Output = None,
    fixed: Fixed = None,
    begin: Begin = None,
    weight_bits: int | None = None,
    input_bits: int | None = None,
    error: float | None = None,
    opening: str | None = None,
    name: str | None = None,
) -> Model:
    """Loads an ONNX model, or a PyTorch module.

    A module is exported in memory by `torch.onnx.export`, in eval mode and for any number of images. Its modes and
    weights stay as they are. `Model.exporter` says by which of torch's exporters: the newer one where onnxscript is
    installed and the module can be exported so, and else TorchScript.

    Args:
        model: a path, the bytes of a file, an `onnx.ModelProto`, or a `torch.nn.Module` of float32 weights.
        example: the inputs of a module as its `forward` takes them, the batch first: a tensor or an array, a tuple of
            several, or a dictionary by the names of forward's parameters. One image is enough. By default the first
            of the samples, or made-up numbers of the `shape`.
        samples: typical inputs `(images, *input_shape)`, which set range and precision of the fixed
            point; or a data frame of them, whose names of columns clients get; or for each input's name of a model of
            several such an array.
        input_range: the least and the largest input, used without samples. 0 to 1 by default, and 0
            to 255 for a model whose input is declared as integers.
        shape: the input's shape, batch first, for models that leave it open; by default that of the samples.
        output: the value to compute, for models with several outputs, or to cut the model there; or
            several, which become one row that `Model.split` takes apart.
        fixed: values of inputs that are no data but the same for all images, by name: numbers or arrays, such as
            `{"sr": 16000, "h0": np.zeros((2, 1, 64))}`. Not for modules.
        begin: a value within the model at which the network begins, or several, which become its inputs. Clients
            compute what is before it, in the clear: `Model.front`, which is no secret then. Samples and inputs are
            those of the network, and `shape` those of the file. Not for modules.
        weight_bits: bits of every layer's integer weights, 2 to 16 (`encrypted`: 2 to 15), as far
            as a modulus carries them. Chosen layer by layer by default.
        input_bits: bits of every layer's integer inputs, 2 to 24; likewise (not for `encrypted`).
        error: the error of results to aim at, as a part of the outputs' spread about their means on
            the samples, 0.0001 to 2. 0.05 by default, 0.02 under `two-party`, and 0.01 for tables whose features
            differ by powers of two. Less costs larger moduli; `verify` measures it.
        opening: what clients learn of a classifier: `class` (the index of the largest output, and under `two-party`
            nothing else; not for `encrypted`) or `values` (all outputs). By default `class` for models that end in
            ArgMax, as far as the trust level can, and else `values`.
        name: the model's name for clients, `model` by default. Of the file's names they get those of classes, of
            columns and of several outputs, and no other.

    Raises:
        ModelFileError: the file is missing, damaged, or not ONNX.
        UnsupportedModelError: something in the model cannot be run; the error names it.
        ExportError: the module cannot be exported, or not with what is installed.
        InputError: the example, samples or options do not fit the model.
    """
    options = PlanOptions(weight_bits=weight_bits, input_bits=input_bits, error=error, opening=opening, name=name)
    options = options.changed(input_range=input_range)
    if _torch.is_module(model):
        if begin:
            raise InputError("begin is for ONNX models: leave the first steps out of forward")
        if fixed:
            raise InputError("fixed is for ONNX models: call the module with these values in a forward of its own")
        bare = _load_module(_torch.cases(model, example, samples, shape), options, shape=shape, output=output)
        if example is None and isinstance(samples, Mapping):
            # Those that fit forward, less the inputs which the outputs do not need.
            samples = {name: part for name, part in samples.items() if name in bare.inputs}
    else:
        if example is not None:
            raise InputError(f"an example is for PyTorch modules alone: {type(model).__name__} is no torch.nn.Module")
        bare = load_with(
            model, options, shape=shape, output=output, of_samples=_shapes_of(samples), fixed=fixed, begin=begin
        )
    if input_range is None and bare.takes_bytes:
        bare = bare.changed(input_range=BYTES)
    return bare if samples is None else bare.calibrated(samples, stacklevel=3)


def _shapes_of(samples: Inputs | None) -> ShapeOption:
    """The shapes of samples, the batch being 1, as far as they are arrays of some dimensions."""

    def shape_of(part: object) -> tuple[int, ...]:
        sizes = getattr(part, "shape", None)
        if not isinstance(sizes, tuple) or not all(isinstance(size, int) for size in sizes):
            return ()
        return (1, *sizes[1:]) if len(sizes) > 1 else ()

    if isinstance(samples, Mapping):
        return {name: shape for name, part in samples.items() if (shape := shape_of(part))}
    return shape_of(samples) or None


def load_with(
    model: Source,
    options: PlanOptions,
    *,
    shape: ShapeOption = None,
    output: Output = None,
    of_samples: ShapeOption = None,
    fixed: Fixed = None,
    begin: Begin = None,
) -> Model:
    """Loads an ONNX model, to be planned with `options` where calls name no others.

    Raises: as `load`.
    """
    if output is not None:
        for name in output if isinstance(output, list | tuple) else [output]:
            _check.text("output", name, "logits")
    imported = import_onnx(model, shape=shape, output=output, of_samples=of_samples, fixed=fixed, begin=begin)
    try:
        native = _native.Model(imported.graph_json, imported.tensors)
    except _native.NativeError as error:
        advice = "change the model there, or end it before (--output NAME, output=NAME)"
        raise UnsupportedModelError(str(error), advice) from error
    if options.opening == "class":
        imported = imported.with_class()
        with native_errors(InputError):
            native = native.with_class()
    # A row of several is taken apart by its owner and by clients; one output needs no name.
    outputs = tuple(imported.outputs.items()) if len(imported.outputs) > 1 else ()
    named = dataclasses.replace(options, class_names=imported.class_names, outputs=outputs)
    if imported.encoded is not None:
        named = named.changed(categories=imported.encoded.categories.to_json())
    return Model(imported, native, named)


def _load_module(cases: Iterable[_torch.Case], options: PlanOptions, *, shape: ShapeOption, output: Output) -> Model:
    """Loads a PyTorch module by the first types of inputs, and the first exporter, whose model can be run.

    Raises: as `load`.
    """
    refusals, failures, tried = list[UnsupportedModelError](), list[ExportError](), list[_torch.Case]()
    for case in cases:
        tried.append(case)
        try:
            for exported in _exports(case, refusals):
                try:
                    model = load_with(exported.proto, options, shape=shape, output=output)
                except UnsupportedModelError as error:
                    refusals.append(error)
                    continue
                if exported.is_of_one:
                    case.refuse_mixing()
                model._exporter = exported.exporter
                if options.opening != "class":
                    case.check(model._run_by_name, exported.probabilities())
                return model
        except _torch.MixesImagesError:
            raise
        except ExportError as error:
            failures.append(error)
    for case in tried if refusals else []:
        case.refuse_mixing()  # It may be the reason why images together have no network.
    raise [*refusals, *failures][0]


def _exports(case: _torch.Case, refusals: Sequence[UnsupportedModelError]) -> Iterator[_torch.Exported]:
    """The module with any number of images; where shapes in it do not go together, as it counts the example's images,
    with one.

    Args:
        refusals: of the models so far.
    """
    before = len(refusals)
    yield from case.exports()
    if any(error.operator not in error.unsupported for error in refusals[before:]):
        yield from case.exports(alone=True)


def _with_made(options: PlanOptions, rows: Floats) -> PlanOptions:
    """The options with rows behind the samples that tell ranges alone."""
    return options.changed(samples=np.concatenate([options.samples, rows]), made=len(rows))


class Model(Shaped):
    """A model, ready to plan, verify and serve. Made by `load`."""

    def __init__(self, imported: ImportedModel, native: _native.Model, options: PlanOptions) -> None:
        """Use `load`."""
        self._imported = imported
        self._native = native
        self._options = options
        self._compiled: dict[PlanOptions, _native.Compiled] = {}
        self._exporter: str | None = None
        self._is_compared = False

    def __repr__(self) -> str:
        """Name and shapes, and of a PyTorch module the exporter."""
        exported = "" if self._exporter is None else f", exported by {self._exporter}"
        return f"<Model {self.name} {list(self.input_shape)} -> {list(self.output_shape)}{exported}>"

    @cached_property
    def front(self) -> Front | None:
        """What clients compute before the network, where it begins at a value within the model (`load(begin=)`)."""
        return None if self._imported.front is None else Front(self._imported.front)

    @property
    def exporter(self) -> str | None:
        """The exporter of torch that a PyTorch module came through; None for ONNX models."""
        return self._exporter

    @property
    def name(self) -> str:
        """The file's name, or the graph's."""
        return self._imported.name

    @property
    def finish(self) -> list[str]:
        """The operators that end the model, such as `softmax`."""
        return [*self._imported.finish, *(["arg_max"] if self._imported.takes_class else [])]

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the model's inputs, by name. The input of several is one row: see `join`. `verify`, `run_float`
        and samples take a dictionary by these names, too."""
        return dict(self._imported.inputs)

    @property
    def categories(self) -> Categories:
        """The values of a row that are categories, which clients send as indicators."""
        return NO_CATEGORIES if self._imported.encoded is None else self._imported.encoded.categories

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the outputs, by name. The output of several is one row: see `split`."""
        return dict(self._imported.outputs)

    def join(self, values: Mapping[str, npt.ArrayLike]) -> Floats:
        """The input of a model of several inputs.

        Args:
            values: for each input's name `(images, *shape)`; of an input of one number `(images,)`, too.

        Returns: `(images, *network_shape)`: the inputs flattened, one after the other, and indicators in place of
        categories.

        Raises:
            InputError: an input is absent, unknown, or of another shape or number of images.
        """
        if self.categories.each:
            return self._as_inputs(values, "the inputs")
        return joined(values, self.inputs, "the inputs").reshape(-1, *self.input_shape)

    def _as_inputs(self, given: Inputs, what: str = "inputs", columns: Sequence[str] = ()) -> Floats:
        return as_inputs(given, self.network_shape, what, columns, self.inputs, self.categories)

    def split(self, outputs: npt.ArrayLike) -> dict[str, Floats]:
        """Results of a model of several outputs, by name.

        Args:
            outputs: results `(images, *output_shape)`.

        Returns: for each output's name `(images, *shape)`.

        Raises:
            InputError: outputs of another shape.
        """
        return split(as_inputs(outputs, self.output_shape, "outputs"), self.outputs)

    @property
    def takes_integers(self) -> bool:
        """Whether the input is declared as integers: bytes are taken as they are."""
        return self._imported.takes_integers

    @property
    def takes_bytes(self) -> bool:
        """Whether bytes of pictures are taken as they are: the input is declared as integers, or the network begins by
        scaling it, as Keras' Rescaling does."""
        scales = self._imported.scales_bytes and len(self.input_shape) > 1
        return self.takes_integers or scales

    @property
    def _core(self) -> _native.Model:
        return self._native

    @property
    def parts(self) -> tuple[_native.Model, PlanOptions]:
        """The model and the options that its plans begin with, as the core takes them.

        Raises:
            UnsupportedModelError: the import is another network than the file.
        """
        self._compare(stacklevel=3)
        return self._native, self._options

    def _compare(self, stacklevel: int) -> None:
        """Compares the imported network with the file, once."""
        if not self._is_compared:
            compare(self._imported, self._native, self._options.samples, stacklevel + 1)
            self._is_compared = True

    def changed(self, **options: Any) -> Model:
        """The same model with other options of `PlanOptions`."""
        model = Model(self._imported, self._native, self._options.changed(**options))
        model._exporter = self._exporter
        model._is_compared = self._is_compared and "samples" not in options
        return model

    def named(self, name: str) -> Model:
        """The same model with a name for clients, where it has none yet."""
        if self._options.name is not None:
            return self
        named = self.changed(name=name)
        # Options of another name are others.
        named._compiled = self._compiled
        return named

    def _warn_of_fractions(self, inputs: Floats, stacklevel: int) -> None:
        if self.takes_integers:
            warn_of_fractions(inputs, stacklevel + 1)

    def calibrated(self, samples: Inputs, *, columns: Sequence[str] | None = None, stacklevel: int = 2) -> Model:
        """The same model with other samples.

        Args:
            samples: typical inputs `(images, *input_shape)`, preprocessed as the model wants its
                inputs; or such an array for each input's name.
            columns: the names of the features of a row, for clients; by default those of a data frame.
            stacklevel: the caller that an `InputWarning` points to; 2 is whoever calls this.

        Raises:
            InputError: the samples do not fit the model.
        """
        # An input for each column has its name.
        known = self.columns_of(list(samples) if isinstance(samples, Mapping) else frame_names(samples))
        prepared = self._as_inputs(samples, "samples", known)
        takes_bytes = self.takes_integers or self._imported.scales_bytes
        if not (self.categories.each or takes_bytes or is_table_row(self.network_shape)):
            warn_of_pixels(prepared, stacklevel)
        self._warn_of_fractions(prepared, stacklevel)
        names = tuple(columns or ()) or known or frame_names(samples)
        inputs = of_model([(name, math.prod(shape)) for name, shape in self.inputs.items()])
        if inputs and names and not (known or columns or counted(names)):
            text = (
                f"the samples' columns are taken in their order, since none has the name of an input: the model takes "
                f"{listed(inputs)}, and the samples have {listed(names)}"
            )
            warnings.warn(text, InputWarning, stacklevel=stacklevel)
        problem = unusable(names)
        if problem is not None and not counted(names):
            text = f"clients give columns by their place, as the samples' names do not tell them apart: {problem}"
            warnings.warn(text, InputWarning, stacklevel=stacklevel)
        is_row = problem is None and len(names) == math.prod(self.input_shape)
        warn_of_placeholders(prepared, self.categories.names_of(names) if is_row else (), stacklevel)
        return self.changed(samples=prepared, columns=names if is_row else ())

    def columns_of(self, found: Sequence[str]) -> tuple[str, ...]:
        """The names by which columns of a table or data frame are found, in the model's order, or none.

        They are those of the samples; or of a model with an input for each column, where the table has one of these.

        Args:
            found: the names of the table's columns.
        """
        inputs = of_model([(name, math.prod(shape)) for name, shape in self.inputs.items()])
        keys = {key.strip().casefold() for name in found for key in (name, as_input(name))}
        return self._options.columns or (inputs if any(name.casefold() in keys for name in inputs) else ())

    def run_float(self, inputs: Inputs) -> Floats:
        """The float model in the clear.

        Args:
            inputs: images `(images, *input_shape)`; or an array for each input's name.

        Returns: outputs `(images, *output_shape)`.

        Raises:
            InputError: `inputs` have another shape, or are no numbers.
        """
        columns = self.columns_of(frame_names(inputs))
        checked = self._as_inputs(inputs, columns=columns)
        self._warn_of_fractions(checked, stacklevel=2)
        return run_float(self._imported, self._native, checked)[0]

    def _run_by_name(self, values: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
        """The float model's outputs by name, for inputs by name, of which it needs not all."""
        named = {name: values[name] for name in self.inputs}
        inputs = self.join(named) if len(named) > 1 else self._as_inputs(next(iter(named.values())))
        # Of made-up inputs even good outputs may be infinite.
        return split(run_float(self._imported, self._native, inputs)[0], self.outputs)

    def plan(
        self,
        trust: str | None = None,
        objective: str | None = None,
        *,
        memory: int | None = None,
        without: Iterable[str] | None = None,
        engine: str | None = None,
        network: str | None = None,
        assume: str | None = None,
        rounding: str | None = None,
        key_checks: int | None = None,
        flood_bits: int | None = None,
    ) -> Plan:
        """Plans a secure run.

        Args:
            trust: the trust level; `two-party` by default.
            objective: the quantity that decides where there is a choice: `latency` (seconds of one
                image), `traffic` (bytes of one image) or `throughput` (images a second of full
                batches). Under `two-party` the default is `latency`. Under `client-aided` it is
                `throughput`, or `latency` for networks of which one image alone takes 256 MiB in a batch.
            memory: most bytes the server may use.
            without: passes over an encrypted network to leave out, to measure their use:
                `lazy-rescaling`, `lazy-relinearisation`.
            engine: the engine of linear layers: `coefficient`, `batch`, or under `two-party` `slot`;
                chosen by `objective` by default.
            network: the network that latency is judged on, under `two-party`: `loopback`, `lan` (1
                Gbit/s and 1 ms, the default), `wan` (100 Mbit/s and 40 ms), or milliseconds of a
                round trip and Mbit/s, as in `20,100`.
            assume: what many oblivious transfers may rest on, under `two-party`: `lpn` (AES and
                learning parity with noise, the default) or `aes` (AES alone, for more bytes).
            rounding: how values between layers lose bits, under `two-party`: to the `nearest` (the default), or
                `dithered`: comparisons then take some two thirds of the bytes. Results differ a little from run to
                run, and a client that asks again for one input learns more of the values within.
            key_checks: sets of keys that a client makes, under `encrypted`. The server opens all but
                one, so that false keys pass once in `key_checks` times. A power of two up to 256, 64 by
                default; 1 checks none.
            flood_bits: bits of the statistical distance that floods keep over all answers under a key, 40 (the
                default) to 128, under `encrypted`.

        Raises:
            TrustLevelRequired: there is no such trust level; the error lists all and what each
                reveals.
            InputError: an option that makes no sense; the error names it.
            PlanError: no parameters fit.
        """
        options: dict[str, Any] = {"memory": memory, "without": without, "engine": engine}
        options |= {"network": network, "assume": assume, "rounding": rounding}
        options |= {"key_checks": key_checks, "flood_bits": flood_bits}
        return Plan(self.compiled(trust, objective, **options))

    def compiled(self, trust: str | None = None, objective: str | None = None, **options: Any) -> _native.Compiled:
        """The core's form of a plan, with the server's half; made once for equal options.

        Args and errors are those of `plan`.
        """
        return self._compile(self._options.changed(trust=trust, objective=objective, **options), stacklevel=4)

    def _compile(self, options: PlanOptions, stacklevel: int) -> _native.Compiled:
        if options not in self._compiled:
            self._compare(stacklevel)
            with native_errors(PlanError):
                self._compiled[options] = self._planned(options, stacklevel + 1)
            ExpectedError.of(self._compiled[options]).warn(stacklevel)
            Traffic.of(self._compiled[options]).warn(stacklevel)
            if options.rounding == "dithered" and not self._compiled[options].is_dithered:
                warnings.warn(
                    "no value is rounded by a dither, as no plan with one costs less and is as precise. It is for "
                    "values right behind a layer and before another, of 5 bits or more, without a slope or square",
                    RoundingWarning,
                    stacklevel=stacklevel,
                )
        return self._compiled[options]

    def _planned(self, options: PlanOptions, stacklevel: int) -> _native.Compiled:
        """The plan, with room for values that samples lack as far as there is."""
        if options.samples is None:
            return self._native.compile(options)
        if self._imported.thresholds and not self.categories.each:
            samples, ends = within_thresholds(options.samples, self._imported.thresholds)
            return self._native.compile(_with_made(options.changed(samples=samples), ends))
        lacking = self.categories.lacking(options.samples)
        lacking = lacking[have_results(lacking, self._native)]
        found = self._with_categories(options, lacking, stacklevel + 1)
        classes = "arg_max" in self.finish
        rare = Rare.of(options.samples, self.categories, self._native, are_classes=classes)
        if not len(rare.rows):
            return found
        wanted = self._native.run_float(rare.rows, None)
        errors = rare.errors(wanted, found.run_oracle(rare.rows, None)[1])
        if rare.warning(errors, ExpectedError.of(found).aim, options.columns) is None:
            return found
        with suppress(_native.NativeError):
            other = self._native.compile(_with_made(options, np.concatenate([lacking, rare.rows])))
            of_other = rare.errors(wanted, other.run_oracle(rare.rows, None)[1])
            is_closer = max(of_other.values()) <= WORTHWHILE * max(errors.values())
            if is_closer and (ExpectedError.of(other).is_near or not ExpectedError.of(found).is_near):
                found, errors = other, of_other
        few = rare.warning(errors, ExpectedError.of(found).aim, options.columns)
        if few is not None:
            warnings.warn(few, PrecisionWarning, stacklevel=stacklevel)
        return found

    def _with_categories(self, options: PlanOptions, lacking: Floats, stacklevel: int) -> _native.Compiled:
        """The plan with room for categories that no sample has; without it where there is none that is near the aim."""
        if not len(lacking):
            return self._native.compile(options)
        failure, found = None, None
        try:
            found = self._native.compile(_with_made(options, lacking))
        except _native.NativeError as error:
            failure = error
        if found is not None and ExpectedError.of(found).is_near:
            return found
        try:
            without = self._native.compile(options)
        except _native.NativeError:
            without = None
        if without is not None and (found is None or ExpectedError.of(without).is_near):
            warnings.warn(
                "categories that no sample has lead to values far beyond those of the samples, and the plan has no "
                "room for them: results of inputs that have them may be wrong\n"
                "  what to do: give samples of all categories that inputs have",
                PrecisionWarning,
                stacklevel=stacklevel,
            )
            return without
        if found is None:
            assert failure is not None
            raise failure
        return found

    def verify(
        self,
        x: Inputs,
        labels: npt.ArrayLike | None = None,
        *,
        trust: str | None = None,
        samples: Inputs | None = None,
        outputs: str | None = None,
        memory: int | None = None,
        without: Iterable[str] | None = None,
        engine: str | None = None,
        objective: str | None = None,
        network: str | None = None,
        assume: str | None = None,
        rounding: str | None = None,
        flood_bits: int | None = None,
        secure: bool = True,
        threads: int | None = None,
        progress: Progress | None = None,
        phase: Callable[[str], None] | None = None,
    ) -> Report:
        """Runs float model, fixed-point oracle and the real protocol (both parties here) on the
        same images.

        Args:
            x: images `(images, *input_shape)`; or an array for each input's name.
            labels: the class of each, for accuracies; where outputs are values, those that they should
                be, `(images, outputs)`, for RMSE and R2.
            trust: the trust level; `two-party` by default.
            samples: images that set the fixed point, instead of the samples the model was loaded
                with.
            outputs: the kind of the outputs, where that is not clear: `classes`, `labels` or
                `values`.
            memory: most bytes the server may use.
            without: passes over an encrypted network to leave out, as in `plan`.
            engine: the engine of linear layers, as in `plan`.
            objective: the quantity that the plan is chosen by, as in `plan`.
            network: the network that latency is judged on, as in `plan`.
            assume: what oblivious transfers may rest on, as in `plan`.
            rounding: how values between layers lose bits, as in `plan`. The oracle takes the addends of the run, and
                without a secure run addends of its own.
            flood_bits: bits of the distance that floods keep, as in `plan`.
            secure: whether to run the protocol. Without it the oracle is scored alone, in a part of
                the time: a secure run gives the same.
            threads: threads to compute with; all cores by default.
            progress: called with images done and images in all, from 0 in each phase.
            phase: called with the name of each phase before it begins.

        Raises:
            TrustLevelRequired: there is no such trust level.
            InputError: `x`, `labels` or an option do not fit.
            PlanError: no parameters fit.
            RunError: the run failed.
        """
        model = self if samples is None else self.calibrated(samples, stacklevel=3)
        options = model._options.changed(
            trust=trust,
            objective=objective,
            memory=memory,
            without=without,
            engine=engine,
            network=network,
            assume=assume,
            rounding=rounding,
            flood_bits=flood_bits,
        )
        cores = _check.threads(threads)
        for name, function in (("progress", progress), ("phase", phase)):
            _check.callback(name, function)
        enter = phase if phase is not None else lambda name: None
        columns = model.columns_of(frame_names(x))
        inputs = self._as_inputs(x, columns=columns)
        self._warn_of_fractions(inputs, stacklevel=2)
        kind, truth = self._truth(outputs, labels, len(inputs))
        enter("planning")
        compiled = model._compile(options, stacklevel=3)
        warn_of_scale(inputs, planned_bounds(compiled.plan_json()), stacklevel=2)
        case = Verification(compiled, inputs, options.samples, truth, self.finish, kind, self._imported.is_quantised)
        report = case.report(case.run(self._imported, self._native, cores, progress, enter, secure))
        return dataclasses.replace(report, is_guess=self.guesses(outputs, truth))

    @property
    def class_names(self) -> tuple[str, ...]:
        """The model's own names of its classes, in the order of its outputs, as scikit-learn's classifiers have them;
        empty where they are 0, 1 and so on."""
        return self._imported.class_names

    def kind(self, asked: str | None = None, truth: npt.NDArray[Any] | None = None) -> str:
        """The kind of the outputs, as `kind_of` says it; a row of several outputs has values."""
        return kind_of(self.finish, self.output_shape, asked, truth, several=len(self.outputs) > 1)

    def guesses(self, asked: str | None, truth: npt.NDArray[Any] | None) -> bool:
        """Whether `kind` takes outputs for scores of classes by their shape alone."""
        return not self.class_names and is_guess(self.finish, self.kind(asked, truth), asked, truth)

    def _truth(
        self, outputs: str | None, labels: npt.ArrayLike | None, images: int
    ) -> tuple[str, Classes | Targets | None]:
        """The kind of the outputs, and what they should be: classes, or values."""
        names = names_of_labels(self.class_names, outputs)
        given = None if labels is None else as_numbers(as_indices(labels, names, stacklevel=4), "labels")
        kind = self.kind(outputs, given)
        if given is None:
            return kind, None
        if kind == "values":
            return kind, as_targets(given, images, math.prod(self.output_shape))
        if kind != "classes":
            raise InputError(
                f"labels are given, but the outputs are {kind}, not classes: "
                "leave the labels out, or say outputs='classes' (--outputs classes)"
            )
        return kind, as_labels(given, images, classes_of(self.finish, self.output_shape), stacklevel=4)

    def classes(self, outputs: Floats) -> Classes:
        """The class of each output.

        Args:
            outputs: results `(images, *output_shape)`.

        Returns: class indices `(images,)`.

        Raises:
            InputError: outputs of another shape, or a model that does not classify.
        """
        if outputs.shape[1:] != self.output_shape:
            raise InputError(
                f"outputs have shape {list(outputs.shape)}; the model gives (images, *{self.output_shape})"
            )
        found = Predictions.of(outputs, self.finish, self.kind())
        if found.classes is None:
            raise InputError(f"the outputs of {self.name} are {found.kind}, not classes: look at them themselves")
        return found.classes
