"""TenSEAL's tutorial network on one image, encrypted: TenSEAL's CKKS beside Pronghorn's layers on slots."""

from __future__ import annotations

import importlib.metadata
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

from pronghorn_bench import _core
from pronghorn_bench.records import Report, Sheet, cores

NETWORK = "convolution 7x7 stride 3 with 4 maps, square, dense 64, square, dense 10, on 28x28"
# Channels in and out, height and width, kernel, stride.
LAYERS: dict[str, tuple[tuple[int, int], int, int, int]] = {
    "convolution": ((1, 4), 28, 7, 3),
    "dense 64": ((256, 64), 1, 1, 1),
    "dense 10": ((64, 10), 1, 1, 1),
}
SQUARES = (256, 64)
BITS = 20
ROUNDS, QUICK_ROUNDS = 10, 2
GOAL = 100
"""How many times less of time and of keys."""


def bench_tutorial(report: Report, tenseal: ModuleType, quick: bool) -> None:
    """Both on this core, in turn."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    theirs = _Theirs(tenseal)
    seconds = min(theirs.seconds() for _ in range(QUICK_ROUNDS))
    source = f"tenseal {importlib.metadata.version('tenseal')}, the same run"
    found = {name: _run(*layer, rounds) for name, layer in LAYERS.items()}
    activations = _core.ActivationBench()
    squares = [_square(activations, outputs, rounds) for outputs in SQUARES]
    bits = min(layer["security_bits"] for layer in found.values())
    parameters = {
        "network": NETWORK,
        "peer": "from the encryption of an image to its decryption; encoded weights and keys made before",
        "ours": "layers on slots with values of 20 bits, squares by two parties; both parties added up",
        "layers": {name: layer["described"] for name, layer in found.items()},
    }
    sheet = Sheet(report, "peers", f"TenSEAL's tutorial network, two-party, {cores(1)}", parameters, bits)
    for name, layer in found.items():
        sheet.add(f"{name}, server", 1e3 * _server(layer), "ms")
        sheet.add(f"{name}, client", 1e3 * _client(layer), "ms")
    for outputs, (time, _) in zip(SQUARES, squares, strict=True):
        sheet.add(f"{outputs} squares, both", 1e3 * time, "ms")
    linear = sum(_server(layer) + _client(layer) for layer in found.values())
    total = linear + sum(time for time, _ in squares)
    goal = f"goal: {GOAL} times less than {source}"
    sheet.add("linear layers, both parties", 1e3 * linear, "ms")
    sheet.add(
        "whole network, both parties",
        1e3 * total,
        "ms",
        [(1e3 * seconds, source), (1e3 * seconds / GOAL, goal)],
        headline=1,
    )
    keys = sum(layer["keys"] for layer in found.values()) / 1e6
    sheet.add(
        "keys, once",
        keys,
        "MB",
        [(theirs.key_bytes / 1e6, source), (theirs.key_bytes / 1e6 / GOAL, goal)],
        headline=1,
    )
    traffic = sum(layer["up"] + layer["down"] for layer in found.values()) + sum(size for _, size in squares)
    sheet.add("traffic of an image", traffic / 1e6, "MB")


def _run(channels: tuple[int, int], size: int, kernel: int, stride: int, rounds: int) -> dict[str, Any]:
    pads = (0, 0, 0, 0)
    sizes = ((size, size), (kernel, kernel), (stride, stride))
    return _core.bench_slot_layer(channels, *sizes, pads, "chosen", BITS, rounds, 1)


def _server(layer: dict[str, Any]) -> float:
    return float(layer["expand"] + layer["evaluate"] + layer["hide"])


def _client(layer: dict[str, Any]) -> float:
    return float(layer["encrypt"] + layer["decrypt"])


def _square(activations: _core.ActivationBench, outputs: int, rounds: int) -> tuple[float, float]:
    """Seconds of both parties, and bytes."""
    runs = [activations.run("square", outputs, 1)["at once"] for _ in range(rounds)]
    seconds = min(run["client_seconds"] + run["server_seconds"] for run in runs)
    return seconds, runs[0]["bytes_up"] + runs[0]["bytes_down"]


class _Theirs:
    """The tutorial's parameters and steps, with made-up weights."""

    def __init__(self, tenseal: ModuleType) -> None:
        """Makes keys."""
        self._tenseal = tenseal
        sizes = [31, 26, 26, 26, 26, 26, 26, 31]
        context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=sizes, n_threads=1)
        context.global_scale = 2.0**26
        context.generate_galois_keys()
        self._context = context
        random = np.random.default_rng(1)
        self._image = random.random((28, 28)).tolist()
        self._kernels = (0.1 * random.standard_normal((4, 7, 7))).tolist()
        self._dense = [(0.05 * random.standard_normal(shape)).tolist() for shape in ((256, 64), (64, 10))]

    @property
    def key_bytes(self) -> int:
        """Of everything that the server is sent once."""
        whole = self._context.serialize(save_public_key=True, save_secret_key=False, save_galois_keys=True)
        return len(whole)

    def seconds(self) -> float:
        """One image."""
        started = perf_counter()
        image, windows = self._tenseal.im2col_encoding(self._context, self._image, 7, 7, 3)
        maps = [image.conv2d_im2col(kernel, windows) for kernel in self._kernels]
        x = self._tenseal.CKKSVector.pack_vectors(maps)
        for weights in self._dense:
            x.square_()
            x = x.mm(weights)
        x.decrypt()
        return perf_counter() - started
