"""SPU beside Pronghorn: networks in the operators of JAX, and SPU itself where an environment of it is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from helpers import floats, model, node, run_native
from pronghorn import _native
from pronghorn._demo import example
from pronghorn.cli import app
from pronghorn.errors import InputError
from pronghorn.onnx import ImportedModel, import_onnx
from pronghorn_bench import beside_spu, minionn
from pronghorn_bench.programs.spu_party import LINK, network

SPU = os.environ.get("PRONGHORN_SPU_PYTHON")


def check(imported: ImportedModel, images: np.ndarray) -> None:
    wanted = run_native(imported, images)
    for graph, tensors in ((json.loads(imported.graph_json), imported.tensors), beside_spu.folded(imported)):
        run = network(graph)
        outputs = np.concatenate([np.asarray(run(image[None], tensors)) for image in images])
        np.testing.assert_allclose(outputs.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["cryptonets_relu.onnx", "gazelle_mnist_d.onnx", "CIFAR-10"])
def test_translated_networks_are_the_float_networks(name: str) -> None:
    pytest.importorskip("jax")
    loaded = import_onnx(minionn.cifar10_network()) if name == "CIFAR-10" else import_onnx(example(name))
    check(loaded, floats(2, *loaded.input_shape))


def test_a_residual_network_is_translated() -> None:
    pytest.importorskip("jax")
    nodes = [
        node("Conv", "x w b", "c", kernel_shape=[3, 3], pads=[1, 0, 2, 1], strides=[2, 1], dilations=[1, 2]),
        node("BatchNormalization", "c scale shift mean variance", "n"),
        node("Relu", "n", "r"),
        node("Conv", "r grouped -", "g", kernel_shape=[1, 1], group=2),
        node("Add", "g r", "s"),
        node("GlobalAveragePool", "s", "p"),
        node("Flatten", "p", "f"),
        node("Gemm", "f dense bias", "y", transB=1),
    ]
    constants = {
        "w": floats(4, 2, 3, 3),
        "b": floats(4),
        "scale": floats(4),
        "shift": floats(4),
        "mean": floats(4),
        "variance": np.abs(floats(4)) + 1,
        "grouped": floats(4, 2, 1, 1),
        "dense": floats(3, 4),
        "bias": floats(3),
    }
    imported = import_onnx(model(nodes, (1, 2, 9, 8), constants))
    check(imported, floats(2, *imported.input_shape))


def test_scales_are_folded_where_one_node_alone_uses_the_layer() -> None:
    scale = [node("Conv", "x w", "c", kernel_shape=[3, 3]), node("Mul", "c scale", "m")]
    constants = {"w": floats(4, 2, 3, 3), "scale": floats(1, 4, 1, 1)}

    def kinds(*last: onnx.NodeProto) -> list[str]:
        imported = import_onnx(model([*scale, *last], (1, 2, 9, 8), constants))
        graph, tensors = beside_spu.folded(imported)
        images = floats(2, *imported.input_shape)
        found = _native.Model(json.dumps(graph), tensors).run_float(images)
        np.testing.assert_allclose(found, run_native(imported, images), rtol=1e-4, atol=1e-4)
        assert len(tensors) == sum(len(tensors.keys() & set(map(str, each["op"].values()))) for each in graph["nodes"])
        return [node["op"]["kind"] for node in graph["nodes"]]

    assert kinds(node("Relu", "m", "y")) == ["input", "conv", "reshape", "relu"]
    assert kinds(node("Add", "m c", "y")) == ["input", "conv", "affine", "add"]


def test_the_resnet_is_translated(shared: Path) -> None:
    pytest.importorskip("jax")
    imported = import_onnx(shared / "cifar10" / "resnet20.onnx")
    check(imported, floats(1, *imported.input_shape))


def graph(op: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": [{"name": "the node", "op": op, "inputs": [], "shape": []}], "output": 0}


@pytest.mark.parametrize(
    "op",
    [
        {"kind": "argmax"},
        {"kind": "max_pool", "window": {"padding": [0, 1, 0, 0]}},
        {"kind": "average_pool", "window": {"padding": [0, 0, 0, 1]}},
    ],
)
def test_what_is_not_translated_is_named(op: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^the node: .* is not translated"):
        network(graph(op))


def test_bytes_are_read_from_the_log() -> None:
    line = "[api.cc:233] Link details: total send bytes 1000970, recv bytes 656574, send actions 48, recv actions 46"
    assert LINK.findall(line) == [("1000970", "656574", "48")]


def test_an_environment_without_spu_is_refused() -> None:
    with pytest.raises(InputError, match="pip install spu=="):
        beside_spu.find(Path("no/such/python"))


@pytest.mark.skipif(SPU is None, reason=f"PRONGHORN_SPU_PYTHON names no environment of SPU: {beside_spu.INSTALL}")
def test_both_give_the_float_network_s_classes(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    result = CliRunner().invoke(app, ["bench", "peers", "--peer", "spu", "--quick", "--json", str(path)])
    assert result.exit_code == 0, result.output
    found = {(record["metric"], record["unit"]): record for record in json.loads(path.read_text())}
    classes = found["classes as the float network's, of 2", "share"]
    assert classes["value"] == classes["reference"]["value"] == 1
    assert found["not the oracle's, of 2", "images"]["value"] == 0
    assert found["an image", "MB"]["reference"]["value"] == pytest.approx(1.66, abs=0.05)
    assert found["once", "MB"]["reference"]["value"] > 1
