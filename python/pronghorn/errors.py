"""What can go wrong, in words for users: every message says what was found, where, and what to do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar


class PronghornError(Exception):
    """The base of every error Pronghorn raises on purpose."""

    exit_code: ClassVar[int] = 1
    """The command line's exit status: 2 for usage, models and data; 1 for runs that failed."""


class ModelFileError(PronghornError):
    """The file is not there, is not ONNX, or is damaged."""

    exit_code = 2


class ExportError(PronghornError):
    """A PyTorch module that cannot become an ONNX model, or not with what is installed.

    Attributes:
        problem: the cause.
        advice: what to do.
    """

    exit_code = 2

    def __init__(self, problem: str, advice: str) -> None:
        """Lays both out, a line each."""
        self.problem = problem
        self.advice = advice
        super().__init__(f"{problem}\n  what to do: {advice}")

    def __reduce__(self) -> tuple[type[ExportError], tuple[str, str]]:
        """Pickles both."""
        return type(self), (self.problem, self.advice)


class InputError(PronghornError):
    """Data or an option that does not fit the model."""

    exit_code = 2


class TrustLevelRequired(PronghornError):
    """A trust level that does not exist, or that this version does not have."""

    exit_code = 2


class PlanError(PronghornError):
    """No plan for this model with these options: a range that overflows, a budget that is too small."""

    exit_code = 2


class OutputError(PronghornError):
    """Results that could not be written where they were wanted; they are kept elsewhere or printed."""

    exit_code = 3


class RunError(PronghornError):
    """Connecting, or a secure run, failed.

    Attributes:
        code: what happened, for programs. With `retryable`: `busy`, `timeout`, `stopping`, `closed` (the connection
            ended), `idle` (it rested too long), `turn` (others wait), `damaged` (it changed what it carried),
            `unreachable`, `over` (an earlier error ended the session). Without: `limit`, `unknown-model`, `wrong-plan`,
            `wrong-trust`, `wrong-version`, `failed-check` (a decrypted value is outside its range; the server was told
            nothing, and to ask again tells it), `channel` (TLS), `unauthorised` (a certificate or token), `false-keys`,
            `protocol`, `engine`, `store`, `address`, `cancelled`, `forked`, `internal`, `other` (of a later version)
            and `failed` (no session was to blame).
        retryable: whether the same may succeed on a new connection, at once or later.
    """

    def __init__(self, message: str = "", *, code: str = "failed", retryable: bool = False) -> None:
        """Says what happened."""
        super().__init__(message)
        self.code = code
        self.retryable = retryable


def of_core(kind: type[PronghornError], error: Exception) -> PronghornError:
    """An error of the compiled core as `kind`; where it is about the caller's own options, an `InputError`."""
    if getattr(error, "code", None) == "option":
        return InputError(str(error))
    if issubclass(kind, RunError):
        found = {name: getattr(error, name) for name in ("code", "retryable") if hasattr(error, name)}
        return kind(str(error), **found)
    return kind(str(error))


class InputWarning(UserWarning):
    """Inputs that are unlikely to be what the model expects."""


class PrepareWarning(UserWarning):
    """Batches that are no longer kept prepared, and why; predictions go on without."""


class PrecisionWarning(UserWarning):
    """A plan whose expected error is more than 1.5 times what was aimed at, is measured on few samples, or is hidden
    by larger outputs; or a plan that keeps one value of a feature."""


class RangeWarning(UserWarning):
    """Results beyond those of the samples that a plan was made with: their inputs are likely unlike the samples, and
    the results wrong."""


class RoundingWarning(UserWarning):
    """A plan in which no value is rounded by a dither, though that was asked for."""


class TrafficWarning(UserWarning):
    """A plan in which an image costs more than 1 GB, and what costs less."""


class StoreWarning(UserWarning):
    """What the server published was not kept, and why; the results are good."""


class UnsupportedModelError(PronghornError):
    """A sound ONNX model that Pronghorn cannot run.

    Attributes:
        problem: what is not supported.
        advice: what to do.
        node: the ONNX node's name (its first output's where it has none).
        operator: the ONNX operator.
        opset: the version of the operator set.
        shapes: the shapes of its inputs, the batch dimension first; None for one that is absent.
        unsupported: the names of all nodes of the model whose operators are not supported, by operator.
    """

    exit_code = 2

    def __init__(
        self,
        problem: str,
        advice: str,
        *,
        node: str | None = None,
        operator: str | None = None,
        opset: int | None = None,
        shapes: Sequence[Sequence[int] | None] | None = None,
        unsupported: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Lays the fields out, a line each."""
        self.problem = problem
        self.advice = advice
        self.node = node
        self.operator = operator
        self.opset = opset
        self.shapes = shapes
        self.unsupported = dict(unsupported or {})
        lines = [problem]
        if node is not None:
            lines.append(f"  node: {node}")
        if operator is not None:
            lines.append(f"  operator: {operator}" + (f" (opset {opset})" if opset else ""))
        if shapes is not None:
            found = ", ".join("absent" if s is None else str(list(s)) for s in shapes)
            lines.append(f"  input shapes: {found or 'none'}")
        if set().union(*self.unsupported.values()) - {node}:
            lines.append(f"  in the whole model: {_listed(self.unsupported)}")
        super().__init__("\n".join([*lines, f"  what to do: {advice}"]))

    def listing(self, unsupported: Mapping[str, Sequence[str]], more: str | None = None) -> UnsupportedModelError:
        """This error with all nodes of the model whose operators are not supported, and more to do."""
        fields = {name: getattr(self, name) for name in ("node", "operator", "opset", "shapes")}
        advice = self.advice if more is None else f"{more}; and {self.advice}"
        return type(self)(self.problem, advice, **fields, unsupported=unsupported)

    def __reduce__(self) -> tuple[Callable[[], UnsupportedModelError], tuple[()], dict[str, Any]]:
        """Pickles the fields: the message is laid out again."""
        fields = {name: getattr(self, name) for name in ("node", "operator", "opset", "shapes", "unsupported")}
        return functools.partial(type(self), self.problem, self.advice, **fields), (), self.__dict__


def _listed(unsupported: Mapping[str, Sequence[str]]) -> str:
    """Operators that are not supported, each with the number of its nodes and the first of them."""
    nodes = {
        name: f"{len(found)} nodes, first {found[0]}" if len(found) > 1 else f"1 node, {found[0]}"
        for name, found in unsupported.items()
    }
    operators = "operator is" if len(nodes) == 1 else "operators are"
    return f"{len(nodes)} {operators} not supported: {', '.join(f'{name} ({nodes[name]})' for name in nodes)}"
