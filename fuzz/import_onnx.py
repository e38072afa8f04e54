"""Fuzzes the ONNX importer: whatever the bytes, only a PronghornError may come out.

With atheris installed it is guided by coverage; without, valid models are mutated at random.

    python fuzz/import_onnx.py --seconds 60
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from pronghorn import _native
from pronghorn.errors import PronghornError
from pronghorn.onnx import import_onnx

MEMORY = 8 << 30


def seed() -> bytes:
    """A small model with many operators."""
    weights = np.random.default_rng(0).standard_normal
    constants = {
        "w": weights((2, 1, 3, 3)),
        "s": np.ones(2),
        "g": weights((3, 18)),
        "h": weights(3),
        "two": np.float64(2),
        "scales": np.array([1, 1, 2, 2]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "s", "s", "s"], ["n"]),
        helper.make_node("LeakyRelu", ["n"], ["l"], alpha=0.1),
        helper.make_node("Clip", ["c", "", "two"], ["k"]),
        helper.make_node("Concat", ["l", "k"], ["j"], axis=1),
        helper.make_node("Split", ["j"], ["j1", "j2"], axis=1),
        helper.make_node("Pad", ["j2", "around"], ["d"], mode="reflect"),
        helper.make_node("Slice", ["d", "starts", "ends"], ["e"]),
        helper.make_node("Concat", ["j1", "e"], ["j3"], axis=1),
        helper.make_node("Gather", ["j3", "places"], ["j4"], axis=1),
        helper.make_node("Tile", ["j4", "times"], ["j5"]),
        helper.make_node("SpaceToDepth", ["j5"], ["j6"], blocksize=2),
        helper.make_node("Resize", ["j6", "", "scales"], ["j7"], mode="nearest"),
        helper.make_node("DepthToSpace", ["j7"], ["j8"], blocksize=2),
        helper.make_node("AveragePool", ["j8"], ["a"], kernel_shape=[4, 4], strides=[4, 4], ceil_mode=1),
        helper.make_node("Transpose", ["a"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("Shape", ["t"], ["f"]),
        helper.make_node("Gather", ["f", "zero"], ["b"], axis=0),
        helper.make_node("Concat", ["b", "half"], ["r"], axis=0),
        helper.make_node("Reshape", ["t", "r"], ["v"]),
        helper.make_node("ReduceMean", ["v"], ["m"], axes=[1], keepdims=0),
        helper.make_node("Gemm", ["m", "g", "h"], ["o"], transB=1),
        helper.make_node("Mul", ["o", "o"], ["q"]),
        helper.make_node("Softmax", ["q"], ["y"], axis=1),
    ]
    tensors = [numpy_helper.from_array(np.float32(array), name) for name, array in constants.items()]
    integers = {
        "zero": [0],
        "half": [2, 18],
        "around": [0, 0, 1, -1, 0, 0, 1, 1],
        "starts": [0, 0, 1, 0],
        "ends": [np.iinfo(np.int64).max, 2, 7, 9],
        "places": [3, 0],
        "times": [1, 2, 1, 1],
    }
    tensors += [numpy_helper.from_array(np.array(numbers), name) for name, numbers in integers.items()]
    graph = helper.make_graph(
        nodes,
        "seed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def table_seed() -> bytes:
    """A small model as skl2onnx makes them, after a pair of QuantizeLinear and DequantizeLinear."""
    row = [0.5, -1.0, 2.0]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["i"]),
        helper.make_node("DequantizeLinear", ["i", "scale", "zero"], ["d"]),
        helper.make_node("Scaler", ["d"], ["s"], domain="ai.onnx.ml", offset=row, scale=[2.0]),
        helper.make_node("PRelu", ["s", "slopes"], ["p"]),
        helper.make_node("Abs", ["p"], ["a"]),
        helper.make_node("LinearRegressor", ["a"], ["r"], domain="ai.onnx.ml", coefficients=2 * row, targets=2),
        helper.make_node("ArrayFeatureExtractor", ["r", "one"], ["e"], domain="ai.onnx.ml"),
        helper.make_node("Reshape", ["e", "all"], ["f"]),
        helper.make_node("Gather", ["f", "first"], ["g"]),
        helper.make_node("Sigmoid", ["g"], ["yes"]),
        helper.make_node("Sub", ["unity", "yes"], ["no"]),
        helper.make_node("Concat", ["no", "yes"], ["b"], axis=1),
        helper.make_node("Normalizer", ["b"], ["n"], domain="ai.onnx.ml", norm="L1"),
        helper.make_node("ZipMap", ["n"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
    ]
    constants = {
        "scale": np.float32(0.5),
        "zero": np.uint8(0),
        "slopes": np.float32(row),
        "one": np.array([1]),
        "all": np.array([-1]),
        "first": np.array([[0]]),
        "unity": np.float32([1]),
    }
    graph = helper.make_graph(
        nodes,
        "table",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def check(content: bytes) -> bool:
    """Whether the bytes are a model; anything but a PronghornError or NativeError is a finding."""
    try:
        imported = import_onnx(content)
        _native.Model(imported.graph_json, imported.tensors)
    except (PronghornError, _native.NativeError):
        return False
    return True


def mutate(content: bytes, random_source: random.Random) -> bytes:
    """Flips, overwrites, removes, doubles or moves a few bytes."""
    data = bytearray(content)
    for _ in range(random_source.choice((1, 1, 2, 4, 8))):
        at = random_source.randrange(len(data))
        length = random_source.choice((1, 2, 4, 16))
        match random_source.randrange(5):
            case 0:
                data[at] ^= 1 << random_source.randrange(8)
            case 1:
                data[at] = random_source.choice((0, 1, 0x7F, 0x80, 0xFF, random_source.randrange(256)))
            case 2 if len(data) > 2 * length:
                del data[at : at + length]
            case 3:
                data[at:at] = data[at : at + length]
            case _:
                other = random_source.randrange(len(data))
                data[at : at + length] = data[other : other + length]
    return bytes(data)


def run_mutations(seconds: float, random_seed: int) -> None:
    """Random mutations until the time is over."""
    models, source = [seed(), table_seed()], random.Random(random_seed)
    if not all(map(check, models)):
        sys.exit("a seed model itself is refused")
    end, runs, valid = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        candidate = mutate(source.choice(models), source)
        try:
            good = check(candidate)
        except BaseException:
            finding = Path("fuzz-import-finding.onnx")
            finding.write_bytes(candidate)
            print(f"finding after {runs} runs (seed {random_seed}), written to {finding}", file=sys.stderr)
            raise
        runs, valid = runs + 1, valid + good
        if good and len(models) < 1000:
            models.append(candidate)
    print(f"{runs} mutations without a finding, {valid} of them still models (seed {random_seed})")


def main() -> None:
    """Fuzzes for `--seconds`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        import atheris
    except ImportError:
        chosen = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
        run_mutations(arguments.seconds, chosen)
        return
    corpus = Path("fuzz/corpus/import_onnx")
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "seed.onnx").write_bytes(seed())
    (corpus / "table.onnx").write_bytes(table_seed())
    atheris.instrument_all()
    atheris.Setup([sys.argv[0], f"-max_total_time={int(arguments.seconds)}", str(corpus)], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
