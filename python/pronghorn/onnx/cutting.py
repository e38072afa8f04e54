"""Advice on where to end a network whose last operators are left to the client."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace

from onnx import NodeProto

from pronghorn.onnx.reading import names_read
from pronghorn.onnx.registry import RECURRENT, name_of

LAYERS = (
    "Conv",
    "ConvTranspose",
    "Gemm",
    "MatMul",
    *RECURRENT,
    "ai.onnx.ml.LinearClassifier",
    "ai.onnx.ml.LinearRegressor",
    "ai.onnx.ml.SVMRegressor",
)
"""Operators with weights."""

CLASSES = ("ArgMax", "ArgMin")
"""Operators that run at the end of a model alone."""

ENDS = (*CLASSES, "Exp", "Log", "LogSoftmax", "ReduceL2", "Softmax", "Sqrt")
"""Operators that the client computes at the end of a model."""

RESHAPING = ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators whose results are their input in another shape."""

MOVING = (*RESHAPING, "Slice", "Transpose")
"""Operators whose results are values of their input."""

SIZES = ("Shape", "Size")
"""Operators whose results follow from the sizes of their input."""

WITH_CONSTANT = {
    "Add": "add {} to it",
    "Sub": "subtract {} from it",
    "Mul": "multiply it by {}",
    "Div": "divide it by {}",
}
"""Operators that a user applies to a result."""

BEFORE_SENDING = "let clients do this step before sending: begin the network behind it (--begin NAME, begin=NAME)"

REPLACE = "train the network with operators in its place that run within one (docs/operators.md)"


@dataclass(frozen=True)
class Network:
    """The nodes of a network."""

    nodes: list[NodeProto]
    source: str
    """The name of its input."""
    number: Callable[[str], float | None]
    """A constant of one number, by its name; None for all else."""
    is_end: Callable[[str], bool]
    """Whether the client computes a value, which may then be no part of a row of several."""

    def advice(self, last: str) -> str:
        """What to do where the client computes the value `last`, and operators behind it run in no network."""
        rest = self._behind({last})
        later, before = self._layers(rest), self._layers(self._ahead(last))
        if 2 * later > self._layers(self.nodes):
            return REPLACE if before else BEFORE_SENDING
        others = self._read_by(rest) - {last}
        if not others:
            return f"end the model there (--output {last}, output={last!r}), and {self._described(rest)}"
        names = sorted({last} | others, key=[name for node in self.nodes for name in node.output].index)
        # A row of several outputs has them in another shape, by names that no user knows.
        names = [self._moved_from(name, RESHAPING) for name in names]
        found = [self._before_end(name) for name in names]
        cuts = list(dict.fromkeys(name for name in found if name is not None))
        if None in found:
            return f"load the model once for each of {', '.join(names)} as its output, and compute the rest of it"
        flags = " ".join(f"--output {name}" for name in cuts)
        return f"end the model before it ({flags}, output={cuts!r}), and compute the rest of it from these"

    def _behind(self, names: set[str]) -> list[NodeProto]:
        """The nodes that depend on values."""
        found, reached = [], set(names)
        for node in self.nodes:
            if reached & names_read(node):
                found.append(node)
                reached.update(node.output)
        return found

    def _ahead(self, name: str) -> list[NodeProto]:
        """The nodes that a value depends on."""
        found, needed = [], {name}
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                found.append(node)
                needed |= names_read(node)
        return found

    def _layers(self, nodes: Iterable[NodeProto]) -> int:
        return sum(name_of(node) in LAYERS for node in nodes)

    def _read_by(self, rest: list[NodeProto]) -> set[str]:
        """The values from other nodes that some nodes read, but for those of the input itself."""
        made = {name for node in rest for name in node.output}
        # What follows from sizes alone is no value of a network.
        nodes = [node for node in self.nodes if name_of(node) not in SIZES]
        computed = {name for node in replace(self, nodes=nodes)._behind({self.source}) for name in node.output}
        read = set[str]().union(*map(names_read, rest)) & computed - made
        return {name for name in read if self._moved_from(name) != self.source}

    def _moved_from(self, name: str, kinds: Container[str] = MOVING) -> str:
        """The value that another one has the numbers of."""
        makers = self._makers()
        while name in makers and name_of(makers[name]) in kinds:
            name = makers[name].input[0]
        return name

    def _before_end(self, name: str) -> str | None:
        """The value itself, or that before operators of the client; None where there is none between nodes."""
        makers = self._makers()
        # Behind the node that is refused nothing is lowered yet.
        while self.is_end(name) or (name in makers and name_of(makers[name]) in ENDS):
            maker = makers.get(self._moved_from(name))
            if maker is None or name_of(maker) in LAYERS:
                return None
            name = maker.input[0]
        return name

    def _makers(self) -> Mapping[str, NodeProto]:
        return {name: node for node in self.nodes for name in node.output}

    def _described(self, rest: list[NodeProto]) -> str:
        """What the nodes do, where each takes the result of the one before and a number."""
        steps = [self._step(node) for node in rest]
        described = [step for step in steps if step is not None]
        if not steps or len(described) < len(steps):
            return "compute the rest of it"
        return f"{', '.join(described)} yourself"

    def _step(self, node: NodeProto) -> str | None:
        """The words for a node of a value and a number."""
        if name_of(node) not in WITH_CONSTANT or len(node.input) != 2:
            return None
        first, second = map(self.number, node.input)
        if second is not None:
            return WITH_CONSTANT[name_of(node)].format(f"{second:g}")
        if first is None or name_of(node) == "Div":
            return None
        return (
            f"subtract it from {first:g}"
            if name_of(node) == "Sub"
            else WITH_CONSTANT[name_of(node)].format(f"{first:g}")
        )
