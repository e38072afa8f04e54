"""PyTorch modules as ONNX models in memory, by torch's own exporters. Nothing is written to disk."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import io
import math
import sys
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, combinations, islice
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt
import onnx

from pronghorn._arrays import Inputs, as_numbers
from pronghorn.errors import ExportError, InputError
from pronghorn.onnx import ShapeOption
from pronghorn.onnx.reading import first_line

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[Any]
Example = Any
"""A tensor or an array, a tuple of several, or a dictionary of them by the names of forward's parameters."""

Results = dict[str, Array] | None
"""Outputs of a module by their names; None where they are no tensors."""

DYNAMO = "torch.onnx, torch.export"
TORCHSCRIPT = "torch.onnx, TorchScript"

NEAR = 1e-2
"""Differences of outputs are at most so large a part of the outputs, as root mean squares."""

ROUNDING = 1e-6
"""Or so large a part of the largest output on several inputs; and at most so large in each output."""

SINGLE = 10.0
"""Or so many times the module's own difference between single and double precision."""

MOST_SAMPLES = 4
"""Samples that an exported model is compared on."""

MOST_TOGETHER = 4
"""Images together that a module is compared with itself on."""

MOST_CASES = 2
"""Types of inputs that a module is exported with, where the first have no network."""

MOST_TRIED = 4
"""Inputs of whole numbers that may each be floats for forward."""

MOVES = ("Cast", "Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that leave numbers as they are."""


def is_module(model: object) -> TypeGuard[torch.nn.Module]:
    """Whether a model is a PyTorch module. Imports nothing."""
    kind = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)
    return isinstance(kind, type) and isinstance(model, kind)


@dataclass(frozen=True)
class Exported:
    """A module as an ONNX model."""

    proto: onnx.ModelProto
    exporter: str
    """The exporter: `DYNAMO` or `TORCHSCRIPT`."""
    is_of_one: bool
    """Whether it was exported with one image alone."""

    def probabilities(self) -> set[str]:
        """The outputs that are results of a Sigmoid. Runtimes round these to single precision's steps at 1."""
        makers = {name: node for node in self.proto.graph.node for name in node.output}
        return {entry.name for entry in self.proto.graph.output if _maker(makers, entry.name) == "Sigmoid"}


class MixesImagesError(ExportError):
    """A module has other results for images together than one by one."""


@dataclass(frozen=True)
class Case:
    """A module with an example: one image."""

    module: torch.nn.Module
    inputs: dict[str, torch.Tensor]
    """One image each, by the names of forward's parameters."""
    outputs: list[str] | None
    """The names of its outputs; None where it gives no tensor, sequence or dictionary of tensors."""
    others: tuple[dict[str, torch.Tensor], ...] = ()
    """Other images that it is compared on."""

    @property
    def title(self) -> str:
        """The name of the module's class."""
        return type(self.module).__name__

    def exports(self, alone: bool = False) -> Iterator[Exported]:
        """The module by each exporter that is installed and can take it, the newer one first.

        Args:
            alone: with one image, whatever else it takes.

        Raises:
            ExportError: no exporter can.
        """
        failures = []
        for exporter, export in _exporters().items():
            try:
                proto, is_of_one = self._export(export, alone)
            except Exception as error:
                failures.append(f"{exporter}: {_cause(error)}")
                continue
            proto.graph.name = self.title
            yield Exported(proto, exporter, is_of_one)
        if len(failures) == len(_exporters()):
            raise ExportError(
                f"the module {self.title} cannot be exported\n  " + "\n  ".join(failures),
                "write forward with operations of torch on its inputs, whose shapes and branches do not depend on "
                "values; or export it to ONNX another way, and load the file"
                + ("" if DYNAMO in _exporters() else f"; or try torch's newer exporter: {_NEWER}"),
            )

    def _export(self, export: _Export, alone: bool) -> tuple[onnx.ModelProto, bool]:
        """The module with any number of images; where it takes one alone, with that; and whether it is with one."""
        with _evaluating(self.module):
            case = replace(self, module=_with_plain_bags(_with_plain_weights(self.module)))
            if not alone:
                with suppress(Exception):
                    return export(case, 2), False
            return export(case, 1), True

    def rows(self, images: int) -> tuple[torch.Tensor, ...]:
        """The inputs, repeated for a number of images."""
        return tuple(value.repeat(images, *[1] * (value.ndim - 1)) for value in self.inputs.values())

    def check(self, run: _Run, probabilities: Container[str] = ()) -> None:
        """Compares the exported model with the module, on the example and on inputs made of it.

        Args:
            run: the exported model's outputs by name, for inputs by name.
            probabilities: the names of outputs that are probabilities.

        Raises:
            ExportError: they differ, or the module's outputs on the example are not finite. Made-up inputs on which
                an output is not finite tell nothing of it.
        """
        results = self._results(run)
        for _, wanted, found in results:
            for name in set(wanted) & set(found):
                largest = max(_size(outputs[name]) for _, outputs, _ in results if name in outputs)
                scale = 1.0 if name in probabilities else largest
                alike = _alike(found[name], wanted[name], scale)
                if not alike and not self._are_roundings(name, found[name], wanted[name], results):
                    raise ExportError(
                        f"the exported model gives another {name} than the module {self.title}",
                        "write forward without branches, loops or shapes that depend on values; "
                        "or export it to ONNX another way, and load the file",
                    )

    def refuse_mixing(self) -> None:
        """Refuses a module that has other results for images together than one by one. What is exported with one image
        does not tell.

        Raises:
            MixesImagesError: it mixes images.
        """
        with _evaluating(self.module):
            apart, wanted = self._unlike()
            if not apart:
                return  # All its results are infinite or NaN, as with such weights.
            try:
                together = {name: _joined([inputs[name] for inputs in apart]) for name in self.inputs}
                found = _run(self.module, together) or {}
            except ExportError:
                return  # It takes one image alone.
        for name, mixed in found.items():
            each = [results[name] for results in wanted if name in results]
            if _differs_along_every_axis(each, mixed):
                raise MixesImagesError(
                    f"the module {self.title} mixes images: its {name} for {len(apart)} images together is another "
                    "than for each alone",
                    "compute each image by itself: keep the batch first (batch_first=True), and use no other images of "
                    "the batch",
                )

    def _unlike(self) -> tuple[list[dict[str, torch.Tensor]], list[Mapping[str, Array]]]:
        """Images that differ and that the module takes, and its outputs. Of equal ones even a mixture has the results
        of each alone."""
        apart: list[dict[str, torch.Tensor]] = []
        wanted: list[Mapping[str, Array]] = []
        for inputs in chain(self._probes(), self._moved()):
            if any(all(_are_equal(each[name], inputs[name]) for name in inputs) for each in apart):
                continue
            with suppress(ExportError):  # It may refuse such values.
                results = _run(self.module, inputs) or {}
                if all(np.isfinite(values).all() for values in results.values()):
                    apart.append(dict(inputs))
                    wanted.append(results)
            if len(apart) == MOST_TOGETHER:
                break
        return apart, wanted

    def _moved(self) -> Iterator[dict[str, torch.Tensor]]:
        """Images made of the example: its numbers in other places, halved, and one larger."""
        import torch

        arrays = {name: (value, _array(value)) for name, value in self.inputs.items()}
        for change in (partial(np.roll, shift=1, axis=-1), partial(np.multiply, 0.5), partial(np.add, 1)):
            yield {
                name: torch.tensor(change(array).astype(array.dtype) if array.ndim > 1 else array).to(value.device)
                for name, (value, array) in arrays.items()
            }

    def _results(self, run: _Run) -> list[_Result]:
        """Inputs, the module's outputs, and the exported model's.

        Raises:
            InputError: the exported model takes none of the inputs: made-up numbers are no categories.
        """
        results, refusal = list[_Result](), None
        for index, inputs in enumerate(self._probes()):
            try:
                with _evaluating(self.module):
                    wanted = _run(self.module, inputs) or {}
            except ExportError:
                if index > 0:
                    continue  # The module refuses such values.
                raise
            if index == 0:
                self._check_finite(wanted)
            try:
                found = run({name: _array(value) for name, value in inputs.items()})
            except InputError as error:
                refusal = refusal or error
                continue
            results.append((inputs, wanted, found))
        if not results and refusal is not None:
            raise refusal
        return results

    def _are_roundings(self, name: str, found: Array, wanted: Array, results: Sequence[_Result]) -> bool:
        """Whether roundings alone are left of an output, as of a difference of equal numbers."""
        return _alike(found, wanted, 1.0) and _distance(found, wanted) <= SINGLE * self._rounding(name, results)

    def _rounding(self, name: str, results: Sequence[_Result]) -> float:
        """The largest difference of an output to that of the module in double precision; 0 where it does not run so."""
        try:
            module = copy.deepcopy(self.module).double()
            with _evaluating(module):
                exact = [_run(module, _doubled(inputs)) or {} for inputs, _, _ in results]
            return max(_distance(one[name], wanted[name]) for one, (_, wanted, _) in zip(exact, results, strict=True))
        except Exception:
            return 0.0

    def _check_finite(self, outputs: Mapping[str, Array]) -> None:
        """Refuses an example whose outputs cannot be compared."""
        for name, values in outputs.items():
            if not np.isfinite(values).all():
                raise ExportError(
                    f"the module {self.title} gives infinite values or NaN on the example, in its output {name}",
                    "give an example on which all outputs are finite (example=); by default it is the first sample, or "
                    "made-up numbers from 0 to 1",
                )

    def _probes(self) -> Iterator[dict[str, torch.Tensor]]:
        """The example, and others; and, as branches may depend on values, the example in reverse, and its numbers with
        the other sign."""
        real = {name: value for name, value in self.inputs.items() if value.is_floating_point()}
        yield self.inputs
        yield from self.others
        yield {**self.inputs, **{name: -value for name, value in real.items()}}
        yield {
            name: value.flip(*range(1, value.ndim)) if value.ndim > 1 else value for name, value in self.inputs.items()
        }


_Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""The outputs of an exported model by name, for inputs by name."""

_Result = tuple[Mapping[str, "torch.Tensor"], Mapping[str, Array], Mapping[str, Array]]

_Export = Callable[[Case, int], onnx.ModelProto]
"""Exports a case for a number of images: for any number of them, or for one alone."""


def cases(module: torch.nn.Module, example: Example, samples: Inputs | None, shape: ShapeOption) -> Iterator[Case]:
    """A module with an example input; without one, the first of its samples, or made-up numbers of a shape. Whole
    numbers of samples are floats or stay whole: another case has other types.

    Raises:
        InputError: the example does not fit.
        ExportError: the module is no float32 network that may be used as it is.
    """
    module = getattr(module, "_orig_mod", module)  # of torch.compile
    _check_weights(module)
    for inputs, *others in islice(_inputs(module, example, samples, shape), MOST_CASES):
        with _evaluating(module):
            first, second = (_run(module, inputs) for _ in range(2))
        if not _are_alike(first, second):
            raise ExportError(
                f"the module {type(module).__name__} gives other outputs for the same input each time, in eval mode",
                "leave random numbers out of forward, and use nn.Dropout in place of functional.dropout, which "
                "eval mode does not switch off",
            )
        yield Case(module, inputs, None if first is None else list(first), tuple(others))


def _check_weights(module: torch.nn.Module) -> None:
    import torch

    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor) or tensor.is_meta:
            raise ExportError(f"the weight {name!r} has no values yet", "load the module's weights, or run it once")
        if tensor.dtype != torch.float32 and (tensor.is_floating_point() or tensor.is_complex()):
            raise ExportError(
                f"the weight {name!r} is {tensor.dtype}, and not torch.float32",
                "give a copy in float32: copy.deepcopy(module).float()",
            )
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.running_mean is None:
            raise ExportError(
                f"the batch norm {name!r} has no running statistics, and uses those of its batch in eval mode, too",
                "train it with track_running_stats=True, so that each image is computed by itself",
            )


def _inputs(
    module: torch.nn.Module, example: Example, samples: Inputs | None, shape: ShapeOption
) -> Iterator[list[dict[str, torch.Tensor]]]:
    """One image of each input, by the names of forward's parameters, and others like it behind it; the same in other
    types."""
    if example is not None:
        first = _by_parameter(module, example)
        yield [first, *_like(module, first, samples)]
    elif samples is not None:
        yield from _typed(module, [_by_parameter(module, each) for each in _chosen(samples)])
    elif isinstance(shape, Mapping):
        yield [_by_parameter(module, {name: _ramp(sizes) for name, sizes in shape.items()})]
    elif shape is not None:
        yield [_by_parameter(module, _ramp(shape))]
    else:
        raise InputError(
            f"an example is missing: torch runs the module {type(module).__name__} once to export it\n"
            "  what to do: give inputs as forward takes them, the batch first (example=), or samples (samples=)"
        )


def _like(
    module: torch.nn.Module, first: dict[str, torch.Tensor], samples: Inputs | None
) -> list[dict[str, torch.Tensor]]:
    """Samples as inputs of the types and shapes of the first; none where they are no such inputs."""
    try:
        others = [] if samples is None else [_by_parameter(module, each) for each in _chosen(samples)]
    except InputError:
        return []
    shapes = {name: value.shape for name, value in first.items()}
    alike = [each for each in others if {name: value.shape for name, value in each.items()} == shapes]
    return [{name: value.to(first[name].dtype) for name, value in each.items()} for each in alike]


def _by_parameter(module: torch.nn.Module, example: Example) -> dict[str, torch.Tensor]:
    if isinstance(example, Mapping):
        example = _by_position(module, example)
    values = list(example) if isinstance(example, tuple | list) else [example]
    if not values:
        raise InputError("the example is empty: give a tensor for each input")
    names = _names(module, len(values))
    return {name: _tensor(module, name, value) for name, value in zip(names, values, strict=True)}


def _chosen(samples: Inputs) -> list[Example]:
    """The first of the samples, and some of the others."""
    if isinstance(samples, Mapping):
        parts = {name: as_numbers(part, f"samples[{name!r}]") for name, part in samples.items()}
        images = min((len(part) for part in parts.values() if part.ndim), default=0)
        return [{name: _row(part, at) for name, part in parts.items()} for at in _places(images)]
    found = as_numbers(samples, "samples")
    return [_row(found, at) for at in _places(len(found) if found.ndim else 0)]


def _places(images: int) -> list[int]:
    return list(dict.fromkeys(np.linspace(0, max(images - 1, 0), MOST_SAMPLES).astype(int).tolist()))


def _row(part: Array, at: int) -> Array:
    """An image: whole numbers, truths, or numbers in float32."""
    kinds = {"b": np.dtype(bool), "f": np.dtype(np.float32)}
    return part[at : at + 1].astype(kinds.get(part.dtype.kind, np.dtype(np.int64)))


def _typed(module: torch.nn.Module, examples: list[dict[str, torch.Tensor]]) -> Iterator[list[dict[str, torch.Tensor]]]:
    """Examples whose whole numbers are floats, as far as forward takes them and gives the same; else as many as it
    takes are whole, such as rows of tables and masks. Truths stay what they are where it takes them: attention adds a
    mask of floats, and leaves out by one of truths. The examples as they are where it takes none."""
    import torch

    whole = [name for name, value in examples[0].items() if not value.is_floating_point()]
    numbers = [name for name in whole if examples[0][name].dtype != torch.bool]
    given, are_taken = _results(module, examples) if whole else None, False
    if given is None and len(numbers) < len(whole):
        # The numbers beside the truths may have to be floats.
        tried = (_results(module, _with_floats(examples, floats)) for floats in _floats_of(numbers))
        given = next((results for results in tried if results is not None), None)
    for floats in _floats_of(whole if given is None else numbers):
        found = _with_floats(examples, floats)
        results = _results(module, found)
        if results is not None and (given is None or all(map(_are_alike, results, given))):
            are_taken = True
            yield found
    if not are_taken:
        yield examples


def _floats_of(whole: Sequence[str]) -> Iterator[list[str]]:
    """Which whole numbers may be floats: all of them, none, and then more and more."""
    counts = [0, *range(len(whole), 0, -1)] if 0 < len(whole) <= MOST_TRIED else [0, len(whole)][: 1 + bool(whole)]
    for kept in chain.from_iterable(combinations(whole, count) for count in counts):
        yield [name for name in whole if name not in kept]


def _with_floats(examples: list[dict[str, torch.Tensor]], floats: Sequence[str]) -> list[dict[str, torch.Tensor]]:
    return [{**each, **{name: each[name].float() for name in floats}} for each in examples]


def _results(module: torch.nn.Module, examples: Iterable[Mapping[str, torch.Tensor]]) -> list[Results] | None:
    """A module's results; None where it does not run."""
    try:
        with _evaluating(module):
            return [_run(module, inputs) for inputs in examples]
    except ExportError:
        return None


def _are_alike(found: Results, wanted: Results) -> bool:
    """Whether two runs gave the same results, as far as they are known."""
    if found is None or wanted is None:
        return found is wanted
    return found.keys() == wanted.keys() and all(_alike(found[name], wanted[name]) for name in found)


def _ramp(shape: Sequence[int]) -> Array:
    """Numbers from 0 to 1."""
    try:
        return np.linspace(0, 1, math.prod(shape), dtype=np.float32).reshape(tuple(shape))
    except (TypeError, ValueError):
        raise InputError(f"shape is {shape!r}: give whole numbers, such as (1, 3, 224, 224)") from None


def _by_position(module: torch.nn.Module, example: Mapping[str, Any]) -> list[Any]:
    """The inputs in the order of forward's parameters."""
    signature = _signature(module)
    try:
        bound = signature.bind(**example)
    except TypeError as error:
        names = ", ".join(signature.parameters)
        raise InputError(f"the example does not fit forward({names}): {error}") from None
    if bound.kwargs:
        raise InputError(
            f"forward takes {', '.join(bound.kwargs)} by name alone, or an input before is left out\n"
            "  what to do: give each input in its order, or a module whose forward takes them so"
        )
    return list(bound.args)


def _signature(module: torch.nn.Module) -> inspect.Signature:
    """The parameters of forward. A module that torch.jit.load has read has them in a schema alone."""
    try:
        return inspect.signature(module.forward)
    except ValueError:
        arguments = module.forward.schema.arguments[1:]
    kind, absent = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    defaults = [each.default_value if each.has_default_value() else absent for each in arguments]
    return inspect.Signature(
        [inspect.Parameter(each.name, kind, default=value) for each, value in zip(arguments, defaults, strict=True)]
    )


def _names(module: torch.nn.Module, count: int) -> list[str]:
    """The names of forward's first parameters."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = _signature(module).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind in kinds]
    if len(names) >= count:
        return names[:count]
    if all(parameter.kind is not inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        raise InputError(f"the example has {count} inputs, and forward takes {len(names)}: {', '.join(names)}")
    return [*names, *(f"input_{index}" for index in range(len(names), count))]


def _tensor(module: torch.nn.Module, name: str, value: Any) -> torch.Tensor:
    """The first image of an input, where the module is: contiguous, and float32 where it is a real number."""
    import torch

    try:
        tensor = value.detach() if isinstance(value, torch.Tensor) else torch.tensor(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise InputError(f"the example's {name} is no tensor of numbers: {first_line(error)}") from None
    if tensor.ndim < 1 or tensor.shape[0] < 1:
        raise InputError(f"the example's {name} has shape {list(tensor.shape)}: give the batch first, and one at least")
    if tensor.is_floating_point():
        tensor = tensor.to(torch.float32)
    weight = next(chain(module.parameters(), module.buffers()), tensor)
    # Exporters write what an example in another order of memory does as operators.
    return tensor[:1].to(weight.device).contiguous()


@contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Eval mode and no gradients; the modes of the module and of its parts are as before at the end. Attention is of
    several operators, as TorchScript knows none that does all."""
    import torch

    # Modules that torch.jit.freeze has made have no modes, and are in eval mode for good.
    modes = [(part, part.training) for part in module.modules() if hasattr(part, "training")]
    if modes:
        module.eval()
    fused = getattr(getattr(torch, "backends", None), "mha", None)
    is_fused = fused is not None and fused.get_fastpath_enabled()
    if fused is not None:
        fused.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            # Exporters warn of themselves, and of much that the comparison with the module decides.
            warnings.simplefilter("ignore")
            yield
    finally:
        if fused is not None:
            fused.set_fastpath_enabled(is_fused)
        for part, training in modes:
            part.training = training


def _with_plain_weights(module: torch.nn.Module) -> torch.nn.Module:
    """The module, in eval mode; if some of its weights are computed from others, a copy in which they are constants.

    No exporter translates some of these computations, as of orthogonal matrices.
    """
    # Whoever gave a module such weights has imported it.
    parametrize = sys.modules.get("torch.nn.utils.parametrize")
    if parametrize is None or not any(map(parametrize.is_parametrized, module.modules())):
        return module
    try:
        copied = copy.deepcopy(module)
        for part in filter(parametrize.is_parametrized, list(copied.modules())):
            # The copy shares its class with the original, from which torch's own function would take the weight.
            weights = {name: getattr(part, name).detach().clone() for name in part.parametrizations}
            part.__class__ = type(part).__bases__[0]
            del part.parametrizations
            for name, weight in weights.items():
                part.register_buffer(name, weight)
    except Exception:
        return module  # The exporters say what they cannot do.
    return copied


def _with_plain_bags(module: torch.nn.Module) -> torch.nn.Module:
    """The module; if it has EmbeddingBags, a copy in which those of rows of indices look these up one by one, and sum
    up what they find. Exporters write loops over all images."""
    import torch

    kind = getattr(torch.nn, "EmbeddingBag", None)

    def is_plain(part: torch.nn.Module) -> bool:
        return type(part) is kind and part.max_norm is None and part.padding_idx is None

    if not any(map(is_plain, module.modules())):
        return module
    try:
        copied = copy.deepcopy(module)
    except Exception:
        return module  # The exporters say what they cannot do.
    for part in filter(is_plain, list(copied.modules())):
        part.forward = partial(_bag, part)
    return copied


def _bag(
    part: Any,
    input: torch.Tensor,
    offsets: torch.Tensor | None = None,
    per_sample_weights: torch.Tensor | None = None,
) -> Any:
    """What an EmbeddingBag makes of rows of indices."""
    import torch

    if input.ndim != 2:
        return type(part).forward(part, input, offsets, per_sample_weights)
    rows = torch.nn.functional.embedding(input, part.weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    return {"sum": rows.sum, "mean": rows.mean, "max": rows.amax}[part.mode](1)


def _run(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> Results:
    try:
        return _outputs(module(*inputs.values()))
    except Exception as error:
        shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in inputs.items())
        raise ExportError(
            f"the module {type(module).__name__} does not run in eval mode on the example ({shapes}): {_cause(error)}",
            "give an example as forward takes it in eval mode (example=), the batch first: one image of it is used. "
            "Where forward needs targets or batches, give a module that computes the result alone",
        ) from error


def _outputs(result: Any) -> Results:
    import torch

    if isinstance(result, torch.Tensor):
        return {"output": _array(result)}
    named: dict[str, Any] = {}
    if isinstance(result, Mapping):
        named = {str(name): value for name, value in result.items()}
    elif isinstance(result, tuple | list):
        # Attention without its weights has none in their place, and exporters write what there is.
        named = {f"output_{index}": value for index, value in enumerate(each for each in result if each is not None)}
    if not named or not all(isinstance(value, torch.Tensor) for value in named.values()):
        return None
    return {name: _array(value) for name, value in named.items()}


def _array(tensor: torch.Tensor) -> Array:
    return np.array(tensor.detach().cpu().numpy())


def _doubled(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Inputs in double precision, integers as they are."""
    return {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}


def _alike(found: Array, wanted: Array, scale: float = 0.0) -> bool:
    """Whether arrays have the same numbers, but for rounding; of numbers beyond any bound nothing is known.

    Args:
        found: those of the exported model, or of another run.
        wanted: those of the module.
        scale: the size of the module's numbers on other inputs, whose rounding may be all that is left on these.
    """
    return _distance(found, wanted) <= max(NEAR * _size(wanted), ROUNDING * min(scale, 1.0))


def _distance(found: Array, wanted: Array) -> float:
    """The root mean square of the differences where the wanted numbers are finite."""
    if found.size != wanted.size:
        return math.inf
    known = np.isfinite(wanted)
    return _mean(found.reshape(wanted.shape)[known].astype(np.float64) - wanted[known])


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return np.array_equal(_array(one), _array(other))


def _joined(images: Sequence[torch.Tensor]) -> torch.Tensor:
    """Images as one batch, where they are."""
    import torch

    return torch.tensor(np.concatenate([_array(image) for image in images])).to(images[0].device)


def _differs_along_every_axis(each: Sequence[Array], together: Array) -> bool:
    """Whether results of images together are not those of each, one after the other along an axis. Those of other
    shapes tell nothing."""
    axes = [
        axis
        for axis in range(together.ndim)
        if each
        and all(one.ndim == together.ndim for one in each)
        and together.shape[axis] == sum(one.shape[axis] for one in each)
        and all(
            one.shape[:axis] + one.shape[axis + 1 :] == together.shape[:axis] + together.shape[axis + 1 :]
            for one in each
        )
    ]
    return len(axes) > 0 and not any(_alike(together, np.concatenate(each, axis)) for axis in axes)


def _size(array: Array) -> float:
    """The root mean square of the finite numbers."""
    return _mean(array[np.isfinite(array)].astype(np.float64))


def _mean(numbers: Array) -> float:
    return float(np.linalg.norm(numbers) / math.sqrt(max(numbers.size, 1)))


def _maker(makers: Mapping[str, onnx.NodeProto], name: str) -> str | None:
    """The operator that computes a value, those left out that leave numbers as they are."""
    node = makers.get(name)
    while node is not None and node.op_type in MOVES:
        node = makers.get(node.input[0])
    return None if node is None else str(node.op_type)


def _cause(error: Exception) -> str:
    """The kind and the first line of the error that is behind another one."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    said = str(error).strip()
    return f"{type(error).__name__}: {said.splitlines()[0]}" if said else type(error).__name__


_NEWER = "pip install onnxscript, with torch 2.6 or later"


def _exporters() -> dict[str, _Export]:
    """The exporters that are installed, the newer one first.

    Raises:
        ExportError: none is installed.
    """
    import torch

    options = inspect.signature(torch.onnx.export).parameters
    found: dict[str, _Export] = {}
    if {"dynamo", "dynamic_shapes"} <= set(options) and importlib.util.find_spec("onnxscript") is not None:
        found[DYNAMO] = _by_dynamo
    if "dynamic_axes" in options:
        found[TORCHSCRIPT] = _by_torchscript
    if not found:
        raise ExportError("torch has no exporter to ONNX that can be used here", _NEWER)
    return found


def _by_dynamo(case: Case, images: int) -> onnx.ModelProto:
    import torch

    options: dict[str, Any] = {}
    if images > 1:
        options["dynamic_shapes"] = tuple({0: torch.export.Dim("batch")} for _ in case.inputs)
    program = torch.onnx.export(
        case.module,
        case.rows(images),
        dynamo=True,
        verbose=False,
        input_names=list(case.inputs),
        output_names=case.outputs,
        **options,
    )
    if program is None:
        raise RuntimeError("this version of torch gives no program")
    proto: onnx.ModelProto = program.model_proto
    return proto


def _by_torchscript(case: Case, images: int) -> onnx.ModelProto:
    import torch

    options: dict[str, Any] = {}
    if images > 1:
        options["dynamic_axes"] = {name: {0: "batch"} for name in case.inputs}
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        options["dynamo"] = False
    file = io.BytesIO()
    with _without_dumps(torch):
        torch.onnx.export(
            case.module,
            case.rows(images),
            file,
            verbose=False,
            input_names=list(case.inputs),
            output_names=case.outputs,
            **options,
        )
    return onnx.load_model_from_string(file.getvalue())


@contextmanager
def _without_dumps(torch: Any) -> Iterator[None]:
    """Keeps torch's log off. Torch switches it on for each export, asked or not, and then prints the whole graph where
    an operator cannot be exported."""
    core, name = getattr(torch, "_C", None), "_jit_set_onnx_log_enabled"
    switch = getattr(core, name, None)
    if switch is None:
        yield
        return
    # An export of the user's own may have switched it on.
    switch(False)
    setattr(core, name, lambda enabled: None)
    try:
        yield
    finally:
        setattr(core, name, switch)
