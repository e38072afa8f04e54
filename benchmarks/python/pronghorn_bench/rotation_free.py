"""`pronghorn bench rotation-free`: Tables I to IV and Figure 7 of the rotation-free paper, on one core."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pronghorn import _processes
from pronghorn._model import load
from pronghorn_bench import _core
from pronghorn_bench.compiled import compile_in_core
from pronghorn_bench.records import Reference, Report, Sheet, security_bits

SUITE = "rotation-free"
PAPER = "Akherati, Zhang, Efficient Homomorphically Encrypted CNN Without Rotation, "
TRUST = "two-party"

ROUNDS = 5
QUICK_ROUNDS = 1

PAPER_DEGREE = 1 << 13
HARDENED_DEGREE = 1 << 12

OURS = "coefficient engine"
HARDENED = "paper's protocol with masking coefficients"
INSECURE = "paper's protocol and parameters (insecure)"

TRAFFIC: dict[tuple[int, int], float] = {(7, 256): 0.3, (15, 128): 0.62, (31, 64): 1.27, (63, 32): 2.58}
"""Table II: MB by width and channels."""

CHANNELS = (4, 16, 64, 256)
"""Figure 7: channels of images with 2^16 values."""

FIGURE_VALUES = 1 << 16
KERNELS = (3, 5, 7)


@dataclass(frozen=True)
class Plain:
    """A plain-20 network: filter size, layers and wideness, on images of 3 x 32 x 32."""

    kernel: int
    depth: int
    width: int

    def __str__(self) -> str:
        """As the paper names it."""
        return f"f{self.kernel}-d{self.depth}-w{self.width}"

    def convolutions(self) -> list[tuple[int, int, int, int, int]]:
        """Input and output channels, width of the input, kernel and stride of each."""
        found = [(3, 16 * self.width, 32, self.kernel, 1)]
        for stage in range(3):
            for layer in range((self.depth - 2) // 3):
                channels = (16 * self.width) << stage
                first = stage > 0 and layer == 0
                size = (64 if first else 32) >> stage
                found.append((channels // 2 if first else channels, channels, size, self.kernel, 2 if first else 1))
        return found

    def dense(self) -> tuple[int, int]:
        """Inputs and outputs of the last layer, for ten classes."""
        return 64 * self.width, 10

    def network(self) -> onnx.ModelProto:
        """With made-up weights: what a layer costs depends on none."""
        network = _Network((3, 32, 32))
        for layer in self.convolutions():
            network.conv(layer)
            network.add("Relu")
        network.add("GlobalAveragePool")
        network.add("Flatten")
        inputs, outputs = self.dense()
        network.dense(inputs, outputs)
        return network.model(str(self), (outputs,))


NETWORKS: dict[Plain, tuple[float, float, float]] = {
    Plain(3, 20, 1): (3.7, 2.8, 3.14),
    Plain(5, 8, 3): (4.5, 3.8, 4.4),
    Plain(3, 14, 3): (7.4, 6.9, 7.67),
    Plain(3, 20, 3): (11.1, 10.3, 10.67),
}
"""Table IV: seconds of the server and of the client, MB."""

GOALS: dict[Plain, float] = {Plain(3, 20, 1): 0.1, Plain(3, 20, 3): 0.5}
"""Seconds of each party."""


class _Network:
    """An ONNX network in the making."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(1)
        self.value = "x"

    def add(self, kind: str, *tensors: str, **attributes: Any) -> None:
        """An operator on the last value."""
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [self.value, *tensors], [output], name=output, **attributes))
        self.value = output

    def conv(self, layer: tuple[int, ...]) -> None:
        """A convolution that keeps the size of images but for the stride."""
        inputs, outputs, _, kernel, stride = layer
        names = self._weights((outputs, inputs, kernel, kernel))
        pad = kernel // 2
        self.add("Conv", *names, kernel_shape=[kernel] * 2, pads=[pad] * 4, strides=[stride] * 2)

    def dense(self, inputs: int, outputs: int) -> None:
        """A fully connected layer."""
        self.add("Gemm", *self._weights((outputs, inputs)), transB=1)

    def _weights(self, shape: tuple[int, ...]) -> list[str]:
        scale = np.sqrt(2 / np.prod(shape[1:]))
        values = {
            f"w{len(self.tensors)}": self.random.normal(0, scale, shape),
            f"b{len(self.tensors)}": self.random.normal(0, 0.1, shape[:1]),
        }
        self.tensors += [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()]
        return list(values)

    def model(self, name: str, output: tuple[int, ...]) -> onnx.ModelProto:
        """The network, with a result of this shape."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, *self.shape])],
            [helper.make_tensor_value_info(self.value, TensorProto.FLOAT, [1, *output])],
            self.tensors,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@dataclass(frozen=True)
class _Costs:
    """One image, both parties, all layers; the least time of each layer."""

    protocol: str
    server: float
    client: float
    megabytes: float
    layers: list[dict[str, Any]]
    parameters: dict[str, object]
    security_bits: int | None
    published_megabytes: float | None = None

    def sum(self, key: str) -> float:
        """Over all layers."""
        return float(sum(layer[key] for layer in self.layers))


def bench_rotation_free(report: Report, quick: bool, insecure: bool = False) -> None:
    """All tables; the paper's own protocol, which gives weights away, only where that is asked for."""
    bench = _Bench(report, QUICK_ROUNDS if quick else ROUNDS, insecure)
    with _processes.pinned(_processes.available_cores()[:1]):
        bench.table_1()
        bench.table_2(list(TRAFFIC)[:1] if quick else TRAFFIC)
        bench.table_3()
        bench.figure_7(CHANNELS[1:2] if quick else CHANNELS, KERNELS[:1] if quick else KERNELS)
        bench.table_4(list(NETWORKS)[:1] if quick else NETWORKS)


class _Bench:
    def __init__(self, report: Report, rounds: int, insecure: bool) -> None:
        self.report = report
        self.rounds = rounds
        self.insecure = insecure

    def table_1(self) -> None:
        """A convolution whose values fill a polynomial: operations, which are counted, not timed."""
        channels, width, kernel = 8, 32, 3
        layer = (channels, channels, width, kernel, 1)
        case = f"Table I, {channels} channels of {width} x {width}, {kernel} x {kernel} filters"
        self._operations(case, layer, PAPER_DEGREE * 1.0, PAPER + "Table I: N c_o / c_i")

    def table_3(self) -> None:
        """A fully connected layer, likewise."""
        for layer in ((64, 10), (192, 100)):
            case = f"Table III, {layer[0]} inputs, {layer[1]} outputs"
            self._operations(case, layer, float(layer[1]), PAPER + "Table III: n_o")

    def _operations(self, case: str, layer: tuple[int, ...], coefficients: float, source: str) -> None:
        for costs in self._all([layer]):
            sheet = self._sheet(case, costs)
            for party in ("server", "client"):
                references = [(coefficients, source)]
                computed = costs.sum("coefficients")
                metric, shown = f"{party}, coefficients of products made use of", party == "server"
                sheet.add(metric, computed, "coefficients", references, headline=int(shown))
                sheet.add(f"{party}, products modulo q", costs.sum(f"{party}_products"), "products")
            if costs.protocol == OURS:
                sheet.add("server, products of a residue by a weight", costs.sum("server_small_products"), "products")
            sheet.add("rotations", 0, "rotations")
            kept = 0 if costs.protocol == OURS else costs.sum("published")
            sheet.add("server, polynomials kept", kept, "polynomials")
            sheet.add("client, polynomials kept", costs.sum("published"), "polynomials")

    def table_2(self, rows: Iterable[tuple[int, int]]) -> None:
        """Traffic of a convolution, and its time."""
        for width, channels in rows:
            case = f"Table II, {channels} channels of {width} x {width}, 3 x 3 filters"
            references = [(TRAFFIC[width, channels], PAPER + "Table II")]
            for costs in self._all([(channels, channels, width, 3, 1)]):
                self._times(case, costs, references)

    def figure_7(self, channels: Iterable[int], kernels: Iterable[int]) -> None:
        """A convolution of as many values as N = 2^16; the figure's times are in no table."""
        for count in channels:
            width = int(np.sqrt(FIGURE_VALUES // count))
            for kernel in kernels:
                case = f"Figure 7, {count} channels of {width} x {width}, {kernel} x {kernel} filters"
                for costs in self._all([(count, count, width, kernel, 1)], FIGURE_VALUES):
                    self._times(case, costs)

    def table_4(self, networks: Iterable[Plain]) -> None:
        """Convolutions and fully connected layers of whole networks."""
        for plain in networks:
            server, client, megabytes = NETWORKS[plain]
            goal = [] if plain not in GOALS else [(GOALS[plain], "goal")]
            source = PAPER + "Table IV"
            for costs in self._all([*plain.convolutions(), plain.dense()], network=plain):
                sheet = self._times(f"Table IV, {plain}", costs, [(megabytes, source)], (server, client, goal))
                for layer in costs.layers:
                    sheet.add(f"server, {layer['name']}", 1e3 * layer["server_seconds"], "ms")
                    sheet.add(f"client, {layer['name']}", 1e3 * layer["client_seconds"], "ms")

    def _times(
        self,
        case: str,
        costs: _Costs,
        traffic: Iterable[Reference] = (),
        seconds: tuple[float, float, list[Reference]] | None = None,
    ) -> Sheet:
        sheet = self._sheet(case, costs)
        of = {key: list[Reference]() for key in ("server", "client", "both")}
        if seconds is not None:
            server, client, goal = seconds
            source = PAPER + "Table IV"
            of["server"], of["client"] = [(server, source), *goal], [(client, source), *goal]
            of["both"] = [(server + client, source)]
        sheet.add("server", costs.server, "s", of["server"])
        sheet.add("client", costs.client, "s", of["client"])
        sheet.add("server and client", costs.server + costs.client, "s", of["both"], headline=1)
        sheet.add("online traffic", costs.megabytes, "MB", traffic, headline=1 if traffic else 0)
        if costs.published_megabytes is not None:
            sheet.add("published, once a client", costs.published_megabytes, "MB")
        return sheet

    def _sheet(self, case: str, costs: _Costs) -> Sheet:
        timing = f"least of {self.rounds} runs of each layer; both parties in one process, in turns"
        parameters = {**costs.parameters, "timing": timing}
        return Sheet(self.report, SUITE, f"{case}, {costs.protocol}, 1 core", parameters, costs.security_bits)

    def _all(
        self, layers: list[tuple[int, ...]], degree: int = PAPER_DEGREE, network: Plain | None = None
    ) -> Iterable[_Costs]:
        """What the layers cost in each protocol."""
        if self.insecure:
            yield self._paper(layers, True, degree)
        yield self._paper(layers, False, HARDENED_DEGREE)
        yield self._ours(layers, network)

    def _paper(self, layers: list[tuple[int, ...]], insecure: bool, degree: int) -> _Costs:
        found = []
        for index, layer in enumerate(layers):
            sizes = _padded(layer)
            # A polynomial holds a channel at least.
            least = degree if insecure or len(sizes) == 2 else max(degree, 2 * sizes[2] ** 2)
            cost = _core.bench_rotation_free_paper(insecure, sizes, least, self.rounds)
            found.append({**cost, "name": f"layer {index}"})
        parameters: dict[str, object] = {
            "degree": degree,
            "log2 Q": 104 if insecure else 50,
            "scale of filters": "2^40" if insecure else "2^14",
            "masks": "within the scale" if insecure else "uniform",
            "images": "kernel / 2 columns and rows of the width are zeros",
            "largest error": max(cost["error"] for cost in found),
        }
        protocol, bits = (INSECURE, None) if insecure else (HARDENED, 128)
        return _Costs(protocol, *_sums(found), found, parameters, bits)

    def _ours(self, layers: list[tuple[int, ...]], network: Plain | None) -> _Costs:
        proto = _one(layers[0]) if network is None else network.network()
        shape = [dimension.dim_value for dimension in proto.graph.input[0].type.tensor_type.shape.dim[1:]]
        samples = np.random.default_rng(2).random((4, *shape), dtype=np.float32)
        compiled = compile_in_core(load(proto, samples=samples), TRUST, engine="coefficient")
        bench = _core.RotationFreeBench(compiled, 1)
        runs = [bench.run(1, index == 0) for index in range(self.rounds)]
        found = [_least(layer) for layer in zip(*runs, strict=True)]
        parameters: dict[str, object] = {
            "plan_hash": compiled.plan_hash,
            "degree": sorted({layer["degree"] for layer in found}),
            "bits of q": sorted({layer["modulus_bits"] for layer in found}),
        }
        published = bench.publication["bytes_down"] / 1e6
        bits = security_bits(compiled.plan_text(True))
        return _Costs(OURS, *_sums(found), found, parameters, bits, published)


def _padded(layer: tuple[int, ...]) -> list[int]:
    """A convolution on the power of two that holds its width and padding, as the paper packs it."""
    if len(layer) == 2:
        return list(layer)
    inputs, outputs, width, kernel, stride = layer
    return [inputs, outputs, 1 << (width - 1).bit_length(), kernel, stride]


def _one(layer: tuple[int, ...]) -> onnx.ModelProto:
    """A network of one layer."""
    if len(layer) == 2:
        inputs, outputs = layer
        network = _Network((inputs,))
        network.dense(inputs, outputs)
        return network.model("dense", (outputs,))
    inputs, outputs, width, _, stride = layer
    network = _Network((inputs, width, width))
    network.conv(layer)
    return network.model("convolution", (outputs, width // stride, width // stride))


def _least(runs: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """One layer's runs as one."""
    times = {key: min(run[key] for run in runs) for key in ("client_seconds", "server_seconds")}
    return {**runs[0], **times}


def _sums(layers: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Seconds of server and client, MB."""
    total = {key: sum(layer[key] for layer in layers) for key in layers[0] if key != "name"}
    return total["server_seconds"], total["client_seconds"], (total["bytes_up"] + total["bytes_down"]) / 1e6
