"""A party of SPU's CHEETAH protocol as a process of its own, which predicts one image at a time.

It runs where SPU is installed, which wants another numpy than Pronghorn does: so it imports nothing of Pronghorn.

The first line of its input has the settings as JSON:

* `rank`: 0 is the client, which has the images; 1 is the server, which has the weights.
* `addresses`: of both parties, as this one reaches them.
* `graph`: the network as Pronghorn imports it.
* `shapes`: of each tensor of weights, and of the image under the empty name.
* `values`: an npz file of what this party has: `images`, or the tensors as `weights/NAME`.

Each further line is the number of an image. The answer to each line is a line of JSON.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter, process_time
from typing import IO, Any

import numpy as np

CLIENT, SERVER = 0, 1
TIMEOUT_MS = 600_000
LINK = re.compile(r"Link details: total send bytes (\d+), recv bytes (\d+), send actions (\d+)")
"""What SPU's profile says of its link after each run."""
Values = Mapping[str, Any]


def network(graph: dict[str, Any]) -> Callable[[Any, Values], Any]:
    """The network as a function of an image `(1, *shape)` and its tensors, in the operators of JAX.

    Raises:
        ValueError: an operator or a window that is not translated; it names the node.
    """
    for node in graph["nodes"]:
        _check(node)

    def run(image: Any, tensors: Values) -> Any:
        found: list[Any] = []
        for node in graph["nodes"]:
            inputs = [found[index] for index in node["inputs"]] or [image]
            found.append(_OPERATORS[node["op"]["kind"]](node, inputs, tensors))
        return found[graph["output"]]

    return run


def _check(node: dict[str, Any]) -> None:
    op = node["op"]
    if op["kind"] not in _OPERATORS:
        raise ValueError(f"{node['name']}: the operator {op['kind']} is not translated for SPU")
    if op["kind"] in ("max_pool", "average_pool") and any(op["window"]["padding"]):
        raise ValueError(f"{node['name']}: a pool with padding is not translated for SPU")


def _padding(window: dict[str, Any]) -> list[tuple[int, int]]:
    top, left, bottom, right = window["padding"]
    return [(top, bottom), (left, right)]


def _biased(found: Any, op: dict[str, Any], tensors: Values) -> Any:
    if op["bias"] is None:
        return found
    return found + _by_channel(tensors[op["bias"]], found)


def _conv(node: dict[str, Any], inputs: list[Any], tensors: Values) -> Any:
    from jax import lax

    op, window = node["op"], node["op"]["window"]
    found = lax.conv_general_dilated(
        inputs[0],
        tensors[op["weight"]],
        window["stride"],
        _padding(window),
        rhs_dilation=window["dilation"],
        feature_group_count=op["groups"],
    )
    return _biased(found, op, tensors)


def _dense(node: dict[str, Any], inputs: list[Any], tensors: Values) -> Any:
    op = node["op"]
    return _biased(inputs[0] @ tensors[op["weight"]].T, op, tensors)


def _pool(node: dict[str, Any], value: Any, initial: float, combine: Any) -> Any:
    from jax import lax

    window = node["op"]["window"]
    sizes, strides, dilations = ((1, 1, *window[name]) for name in ("kernel", "stride", "dilation"))
    return lax.reduce_window(value, initial, combine, sizes, strides, "VALID", window_dilation=dilations)


def _max_pool(node: dict[str, Any], inputs: list[Any], tensors: Values) -> Any:
    from jax import lax

    return _pool(node, inputs[0], -np.inf, lax.max)


def _average_pool(node: dict[str, Any], inputs: list[Any], tensors: Values) -> Any:
    from jax import lax

    return _pool(node, inputs[0], 0.0, lax.add) * float(1 / np.prod(node["op"]["window"]["kernel"]))


def _affine(node: dict[str, Any], inputs: list[Any], tensors: Values) -> Any:
    found = inputs[0]
    factor, summand = (node["op"][name] for name in ("mul", "add"))
    if factor is not None:
        found = found * _by_channel(tensors[factor], found)
    return found if summand is None else found + _by_channel(tensors[summand], found)


def _by_channel(tensor: Any, value: Any) -> Any:
    """One number, one a channel or one an element of an image, in the shape that numpy spreads over the value."""
    return tensor.reshape(1, -1, *[1] * (value.ndim - 2)) if tensor.ndim < 2 else tensor[None]


def _relu(node: dict[str, Any], inputs: list[Any], tensors: Values) -> Any:
    import jax.numpy as jnp

    return jnp.maximum(inputs[0], 0)


_OPERATORS: dict[str, Callable[[dict[str, Any], list[Any], Values], Any]] = {
    "input": lambda node, inputs, tensors: inputs[0],
    "conv": _conv,
    "dense": _dense,
    "relu": _relu,
    "affine": _affine,
    "add": lambda node, inputs, tensors: inputs[0] + inputs[1],
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "global_average_pool": lambda node, inputs, tensors: inputs[0].mean(axis=(2, 3), keepdims=True),
    "reshape": lambda node, inputs, tensors: inputs[0].reshape(1, *node["shape"]),
}


class Party:
    """A party with its link and its values; weights are SPU's once, images one by one."""

    def __init__(self, settings: dict[str, Any], log: IO[str]) -> None:
        """Waits for the other party. `log`: where SPU writes what it tells."""
        import spu
        from spu import libspu

        self._spu, self._rank, self._log = libspu, settings["rank"], log
        self._own = np.load(settings["values"])
        shapes = settings["shapes"]
        self._image = np.zeros(shapes.pop(""), np.float32)
        names = sorted(shapes)
        config = _configuration(libspu)
        self._io = spu.Io(2, config)
        self._executable = _compiled(libspu, network(settings["graph"]), self._image, {n: shapes[n] for n in names})
        self._link = libspu.link.create_brpc(_link(libspu, settings["addresses"]), self._rank)
        self._runtime = spu.Runtime(self._link, config)
        for name in names:
            # The client's share of what the server has says no more than its shape.
            tensor = self._own[f"weights/{name}"] if self._rank == SERVER else np.zeros(shapes[name], np.float32)
            self._set(name, tensor, SERVER)

    def _set(self, name: str, values: Any, owner: int) -> None:
        made = self._io.make_shares(np.ascontiguousarray(values), self._spu.Visibility.VIS_SECRET, owner)
        self._runtime.set_var(name, made[self._rank])

    def predict(self, index: int) -> dict[str, Any]:
        """The cost of an image, and its outputs at the client."""
        image = self._own["images"][index : index + 1] if self._rank == CLIENT else self._image
        started = perf_counter()
        self._set("image", image, CLIENT)
        self._runtime.run(self._executable)
        outputs, opened = self._open(self._runtime.get_var("output"))
        seconds = perf_counter() - started
        sent, received, messages = self._statistics()
        is_client = self._rank == CLIENT
        return {
            "seconds": seconds,
            "sent": sent + opened * (not is_client),
            "received": received + opened * is_client,
            "messages": messages,
            "processor_seconds": process_time(),
            "peak_memory_bytes": _peak_memory_bytes(),
            "outputs": outputs,
        }

    def _open(self, share: Any) -> tuple[list[float] | None, int]:
        """Gives the client the output: the values there, and the bytes that this took."""
        if self._rank == SERVER:
            parts = [share.meta, *share.share_chunks]
            for part in parts:
                self._link.send(CLIENT, part)
            return None, sum(map(len, parts))
        other = self._spu.Share()
        other.meta = self._link.recv(SERVER)
        other.share_chunks = [self._link.recv(SERVER) for _ in share.share_chunks]
        outputs = self._io.reconstruct([share, other])
        return np.asarray(outputs, np.float64).ravel().tolist(), sum(map(len, [other.meta, *other.share_chunks]))

    def _statistics(self) -> tuple[int, ...]:
        """Bytes sent, bytes received and messages sent of the last run."""
        found = LINK.findall(self._log.read())
        if not found:
            raise RuntimeError("SPU did not say what its link has sent")
        return tuple(map(int, found[-1]))


def _configuration(libspu: Any) -> Any:
    """CHEETAH on words of 64 bits with SPU's own choices. Values stay with the party that has them, in the clear."""
    config = libspu.RuntimeConfig()
    config.protocol = libspu.ProtocolKind.CHEETAH
    config.field = libspu.FieldType.FM64
    config.experimental_enable_colocated_optimization = True
    # This prints the statistics of the link after each run.
    config.enable_pphlo_profile = True
    return config


def _compiled(libspu: Any, run: Callable[[Any, Values], Any], image: Any, shapes: dict[str, list[int]]) -> Any:
    from spu.utils import frontend

    tensors = [np.zeros(shape, np.float32) for shape in shapes.values()]
    inputs = ["image", *shapes]

    def flat(image: Any, *values: Any) -> Any:
        return run(image, dict(zip(shapes, values, strict=True)))

    secret = [libspu.Visibility.VIS_SECRET] * len(inputs)
    executable, _ = frontend.compile(
        frontend.Kind.JAX, flat, [image, *tensors], {}, inputs, secret, lambda outputs: ["output"]
    )
    return executable


def _link(libspu: Any, addresses: list[str]) -> Any:
    described = libspu.link.Desc()
    described.recv_timeout_ms = described.http_timeout_ms = TIMEOUT_MS
    for rank, address in enumerate(addresses):
        described.add_party(str(rank), address)
    return described


def _peak_memory_bytes() -> int:
    """Of Linux; else 0."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return 1024 * int(found[1]) if found else 0


def main() -> None:
    """Answers until the input ends."""
    with os.fdopen(os.dup(1), "w") as answers, tempfile.NamedTemporaryFile("r") as log:
        # SPU logs to standard output.
        writer = os.open(log.name, os.O_WRONLY | os.O_APPEND)
        os.dup2(writer, 1)

        def answer(found: dict[str, Any]) -> None:
            print(json.dumps(found), file=answers, flush=True)

        party = Party(json.loads(sys.stdin.readline()), log)
        answer({})
        for line in sys.stdin:
            answer(party.predict(int(line)))


if __name__ == "__main__":
    main()
