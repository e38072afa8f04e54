"""Recurrent networks, a layer for each step of the sequence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from pronghorn.onnx.advice import CUT
from pronghorn.onnx.lowering import Floats, Lowering, Value
from pronghorn.onnx.operators.matrices import mix
from pronghorn.onnx.registry import RECURRENT, operator
from pronghorn.onnx.site import Site
from pronghorn.onnx.window import Spatial

State = Value | Floats
"""A state `(H)`, or `(H, sequences)` where several run beside each other: computed, or a constant at the first step."""

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}

ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
"""The functions of a direction, where a node names none."""

MOST_STEPS = 1024
"""Most steps of a sequence: each adds layers to the network."""


@operator(*RECURRENT, unbatched=True)
def _recurrent(lowering: Lowering, site: Site) -> list[Value]:
    value, weight = lowering.value(site), lowering.required(site, 1)
    last = site.integer("layout", 0) == 1
    _check(lowering, site, value, weight, last)
    steps, sequences = _sizes(value, last)
    columns = _columns(lowering, site, value, last)
    runs = [_run(lowering, site, columns, number, sequences) for number in range(len(weight))]
    outputs = [[state[0] for state in run] for run in runs]
    made = [_joined(lowering, site, [states[step] for step in range(steps) for states in outputs], steps, last)]
    ends = [run[0 if _is_reverse(site, number) else -1] for number, run in enumerate(runs)]
    return made + [_joined(lowering, site, states, None, last) for states in zip(*ends, strict=True)]


def _sizes(value: Value, last: bool) -> tuple[int, int]:
    """Steps, and sequences of one image that run beside each other: `last` where these come first."""
    first, second, _ = value.shape
    return (second, first) if last else (first, second)


def _columns(lowering: Lowering, site: Site, value: Value, last: bool) -> Value:
    """The features of each step in a column, step by step; of several sequences one after the other."""
    (steps, sequences), features = _sizes(value, last), value.shape[2]
    if sequences == 1:
        return lowering.transpose(site, lowering.reshape(site, value, (steps, features)), [1, 0])
    if steps == 1:
        return lowering.transpose(site, lowering.reshape(site, value, (sequences, features)), [1, 0])
    columns = lowering.transpose(site, value, [2, 1, 0] if last else [2, 0, 1])
    return lowering.reshape(site, columns, (features, steps * sequences))


def _check(lowering: Lowering, site: Site, value: Value, weight: Floats, last: bool) -> None:
    """Refuses shapes that do not fit, and attributes that are not supported."""
    # A single step may also be a batch in the place of steps.
    if len(value.shape) != 3 or (not last and value.shape[0] == 1 and not lowering.is_apart):
        problem = f"its input has shape {list(value.shape)}: not sequences of several steps"
        site.fail(problem, "export with the batch first (batch_first=True) and a fixed number of steps (--shape)")
    steps, sequences = _sizes(value, last)
    if steps > MOST_STEPS:
        site.fail(f"its sequence has {steps} steps", f"at most {MOST_STEPS} are supported")
    recurrence, gates = lowering.required(site, 2), GATES[site.operator]
    size, directions = weight.shape[1] // gates if weight.ndim == 3 else 0, len(weight) if weight.ndim else 0
    known = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(site.text("direction", "forward"))
    fits = weight.shape == (known, gates * size, value.shape[2]) and site.integer("hidden_size", size) == size
    bias = lowering.weights(site, 3)
    if not fits or recurrence.shape != (directions, gates * size, size) or size < 1:
        site.fail(f"weights of shapes {list(weight.shape)} and {list(recurrence.shape)} do not fit", "repair the model")
    if bias is not None and bias.shape != (directions, 2 * gates * size):
        site.fail(f"its bias has shape {list(bias.shape)}", "repair the model")
    for position in range(5, 7):
        shape = lowering.shape_of(site.input(position))
        if shape is not None and math.prod(shape) != directions * sequences * size:
            site.fail(f"its initial state has shape {list(shape)}", "repair the model")
    lengths = lowering.integers(site, 4)
    if lengths is not None and lengths != [steps] * sequences:
        site.fail(f"sequence_lens {lengths} are not supported", f"give sequences of {steps} steps")
    if site.number("clip", 0.0) or site.integer("input_forget", 0) or site.input(7):
        site.fail("clip, input_forget and peepholes are not supported", f"train it without them, {CUT}")


def _is_reverse(site: Site, number: int) -> bool:
    return number == 1 or site.text("direction", "forward") == "reverse"


def _joined(lowering: Lowering, site: Site, parts: Iterable[Value], steps: int | None, last: bool) -> Value:
    """States one after the other, in their ONNX shape: those of all steps, or one of each direction."""
    values = list(parts)
    size, *rest = values[0].inner
    inner = (sum(value.inner[0] for value in values), *rest)
    joined = values[0] if len(values) == 1 else lowering.emit(site, {"kind": "concat", "axis": 0}, values, inner)
    of_steps = () if steps is None else (steps,)
    directions = len(values) // (steps or 1)
    sequences = rest[0] if rest else 1
    if rest:
        apart = lowering.reshape(site, joined, (*of_steps, directions, size, sequences))
        axes = list(range(len(apart.inner)))
        # Sequences go before the states, or where they are first before the steps.
        joined = lowering.transpose(site, apart, [axes[-1], *axes[:-1]] if last else [*axes[:-2], axes[-1], axes[-2]])
    shape = (sequences, *of_steps, directions, size) if last else (*of_steps, directions, sequences, size)
    return lowering.reshape_onnx(site, joined, shape)


def _run(lowering: Lowering, site: Site, columns: Value, number: int, sequences: int) -> list[tuple[Value, ...]]:
    """The states after each step, in the order of the sequence, of direction `number`."""
    cell = _cell(lowering, site, number)
    made = mix(lowering, site, columns, cell.weight, cell.input_bias)
    rows, steps = made.inner[0], made.inner[1] // sequences
    state: tuple[State, ...] = tuple(_initial(lowering, site, at, number, cell.size, sequences) for at in cell.states)
    found: list[tuple[Value, ...]] = []
    for step in range(steps)[:: -1 if _is_reverse(site, number) else 1]:
        places = range(step * sequences, (step + 1) * sequences)
        column = lowering.take(site, made, 1, sequences, places.__getitem__)
        column = lowering.reshape(site, column, (rows,) if sequences == 1 else (rows, sequences))
        after = STEPS[site.operator](cell, column, state)
        found.append(after)
        state = after
    return found[:: -1 if _is_reverse(site, number) else 1]


def _initial(lowering: Lowering, site: Site, position: int, number: int, size: int, sequences: int) -> State:
    """A direction's state before the first step: `(H)`, of several sequences `(H, sequences)`."""
    name, last = site.input(position), site.integer("layout", 0) == 1
    if not name:
        return np.zeros((size,) if sequences == 1 else (size, sequences), np.float32)
    if name in lowering.constants:
        array = lowering.required(site, position).reshape(*((sequences, -1) if last else (-1, sequences)), size)
        own = array[:, number] if last else array[number]
        return own[0] if sequences == 1 else np.ascontiguousarray(own.T)
    value = lowering.value(site, position)
    directions = math.prod(value.inner) // (size * sequences)
    flat = lowering.reshape(site, value, (math.prod(value.inner),))

    def place(state: int, sequence: int) -> int:
        return ((sequence * directions + number) if last else (number * sequences + sequence)) * size + state

    if sequences == 1:
        return lowering.take(site, flat, 0, size, lambda state: place(state, 0))
    taken = lowering.take(site, flat, 0, size * sequences, lambda at: place(*divmod(at, sequences)))
    return lowering.reshape(site, taken, (size, sequences))


@dataclass(frozen=True)
class _Cell:
    """One direction of a node. Gates are numbered as the node has them."""

    lowering: Lowering
    site: Site
    size: int
    weight: Floats
    """Of the input, `(gates * H, I)`."""
    input_bias: Floats
    recurrence: Floats
    """Of the state, `(gates * H, H)`."""
    bias: Floats
    """Of the product with the state, `(gates * H)`."""
    functions: list[str]
    states: tuple[int, ...]
    """The positions of the initial states among the node's inputs."""
    names: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    """The tensors of recurrences that all steps share, by their gates."""

    def product(self, state: State, first: int, last: int) -> State:
        """Gates `first` to `last - 1` of the recurrence."""
        rows = slice(first * self.size, last * self.size)
        weight, bias = self.recurrence[rows], self.bias[rows]
        if not isinstance(state, Value):
            return np.asarray(weight @ state + bias.reshape(-1, *(1 for _ in state.shape[1:])), np.float32)
        sequences = state.inner[1:]
        if (first, last) not in self.names:
            tensor = partial(self.lowering.tensor, self.site)
            kernel = weight[:, :, None, None] if sequences else weight
            self.names[first, last] = tensor("recurrence", kernel), tensor("bias", bias)
        names = dict(zip(("weight", "bias"), self.names[first, last], strict=True))
        if not sequences:
            return self.lowering.emit(self.site, {"kind": "dense", **names}, [state], (len(weight),))
        image = self.lowering.reshape(self.site, state, (self.size, 1, *sequences))
        window = Spatial.resolve(kernel=[1, 1], size=[1, *sequences]).window()
        op = {"kind": "conv", "window": window.json(), "groups": 1, **names}
        product = self.lowering.emit(self.site, op, [image], (len(weight), *window.output))
        return self.lowering.reshape(self.site, product, (len(weight), *sequences))

    def gates(self, value: Value, first: int, last: int) -> Value:
        """Gates `first` to `last - 1` of a value that has gates one after the other."""
        rows = range(first * self.size, last * self.size)
        return self.lowering.take(self.site, value, 0, len(rows), rows.__getitem__)

    def part(self, state: State, first: int, last: int) -> State:
        """As `gates`, of a constant too."""
        return self.gates(state, first, last) if isinstance(state, Value) else _rows(state, self.size, first, last)

    def plus(self, value: Value, other: State) -> Value:
        """The sum."""
        if isinstance(other, Value):
            return self.lowering.plus(self.site, value, other)
        return self.lowering.affine(self.site, value, add=other)

    def times(self, gate: Value, state: State) -> State:
        """The product; a constant where the state is zero."""
        if isinstance(state, Value):
            return self.lowering.times(self.site, gate, state)
        return self.lowering.affine(self.site, gate, mul=state) if state.any() else state

    def function(self, number: int, value: Value) -> Value:
        """A function of the cell's, by its number."""
        return FUNCTIONS[self.functions[number]](self.lowering, self.site, value)


def _rows(array: Floats, size: int, first: int, last: int) -> Floats:
    return array[first * size : last * size]


def _cell(lowering: Lowering, site: Site, number: int) -> _Cell:
    kind, weight, recurrence = site.operator, lowering.required(site, 1)[number], lowering.required(site, 2)[number]
    rows, size = recurrence.shape
    both = lowering.weights(site, 3)
    first, second = np.zeros((2, rows), np.float32) if both is None else both[number].reshape(2, rows)
    # Only the bias of a GRU's last gate stays with the state, where the reset gate comes behind it.
    inside = np.zeros(rows, np.float32)
    if _resets_late(site):
        inside[2 * size :] = second[2 * size :]
    return _Cell(
        lowering=lowering,
        site=site,
        size=size,
        weight=weight,
        input_bias=first + second - inside,
        recurrence=recurrence,
        bias=inside,
        functions=_functions(site, number),
        states=(5, 6) if kind == "LSTM" else (5,),
    )


def _functions(site: Site, number: int) -> list[str]:
    """The names of a direction's functions."""
    usual = ACTIVATIONS[site.operator]
    given = site.attributes.get("activations") or [name.encode() for name in usual * 2]
    named = [name.decode("utf-8", "replace") if isinstance(name, bytes) else repr(name) for name in given]
    own = named[number * len(usual) :][: len(usual)]
    parameters = site.attributes.get("activation_alpha") or site.attributes.get("activation_beta")
    if len(own) < len(usual) or not set(own) <= set(FUNCTIONS) or parameters:
        site.fail(f"its activations are {', '.join(named)}", f"use {', '.join(FUNCTIONS)}, without parameters")
    return own


def _resets_late(site: Site) -> bool:
    """Whether a GRU's reset gate comes behind the product with the state, as in PyTorch."""
    return site.operator == "GRU" and bool(site.integer("linear_before_reset", 0))


FUNCTIONS: dict[str, Callable[[Lowering, Site, Value], Value]] = {
    "Sigmoid": lambda lowering, site, value: lowering.function(site, value, "sigmoid"),
    "Tanh": lambda lowering, site, value: lowering.function(site, value, "tanh"),
    "Softsign": lambda lowering, site, value: lowering.function(site, value, "softsign"),
    "Relu": lambda lowering, site, value: lowering.rectified(site, value),
    "HardSigmoid": lambda lowering, site, value: lowering.clip(site, lowering.affine(site, value, 0.2, 0.5), 0.0, 1.0),
}
"""The functions of cells."""


def _lstm(cell: _Cell, column: Value, state: tuple[State, ...]) -> tuple[Value, ...]:
    """Gates input, output, forget, cell."""
    hidden, memory = state
    every = cell.plus(column, cell.product(hidden, 0, 4))
    forgets = isinstance(memory, Value) or bool(memory.any())
    gates = cell.function(0, cell.gates(every, 0, 3 if forgets else 2))
    made = cell.function(1, cell.gates(every, 3, 4))
    after = cell.lowering.times(cell.site, cell.gates(gates, 0, 1), made)
    if forgets:
        after = cell.plus(after, cell.times(cell.gates(gates, 2, 3), memory))
    return cell.lowering.times(cell.site, cell.gates(gates, 1, 2), cell.function(2, after)), after


def _gru(cell: _Cell, column: Value, state: tuple[State, ...]) -> tuple[Value, ...]:
    """Gates update, reset, hidden."""
    (hidden,) = state
    late = _resets_late(cell.site)
    every = cell.product(hidden, 0, 3 if late else 2)
    gates = cell.function(0, cell.plus(cell.gates(column, 0, 2), cell.part(every, 0, 2)))
    update, reset = cell.gates(gates, 0, 1), cell.gates(gates, 1, 2)
    inside = cell.times(reset, cell.part(every, 2, 3)) if late else cell.product(cell.times(reset, hidden), 2, 3)
    made = cell.function(1, cell.plus(cell.gates(column, 2, 3), inside))
    lowering, site = cell.lowering, cell.site
    if isinstance(hidden, Value):
        return (lowering.plus(site, made, lowering.times(site, update, lowering.minus(site, hidden, made))),)
    kept = lowering.times(site, lowering.affine(site, update, -1.0, 1.0), made)
    return (cell.plus(kept, cell.times(update, hidden)),)


def _rnn(cell: _Cell, column: Value, state: tuple[State, ...]) -> tuple[Value, ...]:
    return (cell.function(0, cell.plus(column, cell.product(state[0], 0, 1))),)


STEPS: dict[str, Callable[[_Cell, Value, tuple[State, ...]], tuple[Value, ...]]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN": _rnn,
}
"""The states after a step, of its share of the layer on the input and the states before it."""
