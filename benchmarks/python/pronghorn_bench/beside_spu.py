"""SPU's CHEETAH protocol beside Pronghorn: the same networks and images, in turn, in two processes each.

SPU (SecretFlow) wants an older numpy than Pronghorn, so it has a Python environment of its own. CHEETAH is the protocol
of "Cheetah: Lean and Fast Secure Two-Party Deep Neural Network Inference" (USENIX Security 2022).
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pronghorn import _processes
from pronghorn._model import Floats
from pronghorn.errors import InputError
from pronghorn.onnx import ImportedModel
from pronghorn_bench import party
from pronghorn_bench.cases import Case, Choice
from pronghorn_bench.networks import PROCESSOR, Image, Images, Memory, name_of, ours
from pronghorn_bench.records import Report, Sheet, security_bits
from pronghorn_bench.shaper import Network, shaped

PACKAGE = "spu"
INSTALL = "python3.11 -m venv spu-venv && spu-venv/bin/pip install spu==0.9.5, then --spu spu-venv/bin/python"
"""How to get it."""
VERSION = "import importlib.metadata; print(importlib.metadata.version('spu'))"
CALLED = (
    "CHEETAH, FM64, 18 bits of fraction, Ferret OTs (SPU's defaults); each party keeps its values (colocated "
    "optimisation); bytes by the statistics of SPU's link; seconds at the client from the image to the output"
)
"""The peer's settings, and what is measured of it."""


class Spu(NamedTuple):
    """An environment that has SPU."""

    python: str
    version: str


def find(python: Path | None) -> Spu | None:
    """SPU in the environment of this interpreter, or in one's own.

    Raises:
        InputError: it is not in the one that is given.
    """
    interpreter = sys.executable if python is None else str(python)
    try:
        found = subprocess.run([interpreter, "-c", VERSION], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        if python is None:
            return None
        raise InputError(f"{python} does not have SPU; to get it: {INSTALL}") from None
    return Spu(interpreter, found.stdout.strip())


class _Theirs:
    """Both parties of SPU on a case."""

    def __init__(self, client: party.Party, server: party.Party) -> None:
        """Use `_theirs`."""
        self._parties = (server, client)
        self.memory = Memory(0.0, 0.0)
        self.messages = 0

    def predict(self, number: int) -> Image:
        """An image of the case."""
        for each in self._parties:
            each.ask(number)
        server, client = (each.answer() for each in self._parties)
        self.memory = Memory(client["peak_memory_bytes"], server["peak_memory_bytes"])
        self.messages = client["messages"] + server["messages"]
        return Image.of(client, server["processor_seconds"])


@contextmanager
def _theirs(
    spu: Spu, case: Case, network: Network | None, client_cores: Sequence[int], server_cores: Sequence[int]
) -> Iterator[_Theirs]:
    """Both parties. Each reaches the other through a relay of its own: each listens for the other's messages."""
    graph, tensors = folded(case.model._imported)
    images, weights = (case.samples.with_name(f"spu_{owner}.npz") for owner in ("client", "server"))
    named: dict[str, Any] = {f"weights/{name}": tensor for name, tensor in tensors.items()}
    np.savez(images, images=case.images)
    np.savez(weights, **named)
    shapes = {"": (1, *case.images.shape[1:]), **{name: tensor.shape for name, tensor in tensors.items()}}
    own = [_free_address() for _ in range(2)]
    with ExitStack() as stack:
        relays = [stack.enter_context(shaped(address, network)) for address in own]
        parties = []
        for rank, (values, cores) in enumerate(((images, client_cores), (weights, server_cores))):
            settings: dict[str, Any] = {
                "rank": rank,
                "addresses": [own[each] if each == rank else relays[each] for each in range(2)],
                "graph": graph,
                "shapes": shapes,
                "values": str(values),
            }
            parties.append(stack.enter_context(party.started("spu_party.py", settings, cores, spu.python)))
        for each in parties:
            each.answer()
        yield _Theirs(*parties)


def folded(imported: ImportedModel) -> tuple[dict[str, Any], dict[str, Floats]]:
    """The network and its tensors, with factors and summands of channels (BatchNormalization) in the layers before."""
    graph, tensors = json.loads(imported.graph_json), dict(imported.tensors)
    nodes = graph["nodes"]
    uses = Counter(index for node in nodes for index in node["inputs"])
    for node in nodes:
        if node["op"]["kind"] != "affine" or uses[node["inputs"][0]] > 1:
            continue
        layer = nodes[node["inputs"][0]]["op"]
        if layer["kind"] in ("conv", "dense"):
            _fold(node, layer, tensors)
    used = {name for node in nodes for name in node["op"].values() if isinstance(name, str)}
    return graph, {name: tensor for name, tensor in tensors.items() if name in used}


def _fold(node: dict[str, Any], layer: dict[str, Any], tensors: dict[str, Floats]) -> None:
    """Gives a layer new weights, where they can have what the node does; the node keeps the shape alone."""
    weight = tensors[layer["weight"]]

    def each(name: str | None, absent: float) -> Floats:
        return np.full(1, absent, np.float32) if name is None else tensors[name].ravel()

    factors, summands, bias = each(node["op"]["mul"], 1), each(node["op"]["add"], 0), each(layer["bias"], 0)
    if max(factors.size, summands.size) > len(weight):
        return
    tensors[f"{node['name']}.folded weight"] = weight * factors.reshape(-1, *[1] * (weight.ndim - 1))
    tensors[f"{node['name']}.folded bias"] = np.broadcast_to(bias * factors + summands, len(weight)).copy()
    layer.update(weight=f"{node['name']}.folded weight", bias=f"{node['name']}.folded bias")
    node["op"] = {"kind": "reshape"}


def _free_address() -> str:
    """Where nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def bench_beside_spu(spu: Spu, choice: Choice, report: Report) -> None:
    """Each network through each network between the parties, image by image in turn; a core a party, where there
    are two."""
    for make in choice.makes():
        with make(choice.most) as case:
            for network in choice.networks:
                _run(spu, case, network, choice, report)


def _run(spu: Spu, case: Case, network: Network | None, choice: Choice, report: Report) -> None:
    available = _processes.available_cores()
    client_cores, server_cores = available[:1], available[:2][-1:]
    with (
        ours(case, network, client_cores, server_cores) as pronghorn,
        _theirs(spu, case, network, client_cores, server_cores) as peer,
    ):
        pairs = [(pronghorn.predict(number), peer.predict(number)) for number in choice.numbers(case)]
        memory = pronghorn.stop()
    mine, its = (Images(list(each)) for each in zip(*pairs, strict=True))
    count = len(pairs)
    source = f"spu {spu.version}, CHEETAH, the same run"
    case_name = f"{case.name}, {name_of(network)}, a core a party"
    parameters = {
        "model": case.path.name,
        "images": count,
        "plan_hash": pronghorn.plan.hash,
        "peer": CALLED,
        "peer's messages of an image": peer.messages,
    }
    sheet = Sheet(report, "peers", case_name, parameters, security_bits(pronghorn.plan.details()))
    sheet.add("an image, least", mine.least_seconds, "s", [(its.least_seconds, source)], headline=1)
    sheet.add("an image, median", mine.seconds, "s", [(its.seconds, source)])
    sheet.add(PROCESSOR, mine.processor_seconds, "s", [(its.processor_seconds, source)], headline=1)
    sheet.add("an image", mine.megabytes, "MB", [(its.megabytes, source)], headline=1)
    sheet.add("once", mine.once_seconds, "s", [(its.once_seconds, source)])
    sheet.add("once", mine.once_megabytes, "MB", [(its.once_megabytes, source)], headline=1)
    sheet.add("peak memory, client", memory.client / 1e6, "MB", [(peer.memory.client / 1e6, source)], headline=1)
    sheet.add("peak memory, server", memory.server / 1e6, "MB", [(peer.memory.server / 1e6, source)], headline=1)
    classes = f"classes as the float network's, of {count}"
    sheet.add(classes, mine.agreement(case), "share", [(its.agreement(case), source)], headline=1)
    sheet.add(f"not the oracle's, of {count}", pronghorn.wrong(mine), "images")
