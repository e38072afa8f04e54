"""The command line, within this process and as real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from PIL import Image
from typer.testing import CliRunner

import pronghorn
from conftest import EXAMPLE
from helpers import floats, model, node
from pronghorn import _processes
from pronghorn._streams import Images
from pronghorn.cli import app, wanted
from pronghorn.cli.values import parse_shape, parse_size
from pronghorn.errors import InputError, RunError
from pronghorn_bench import machine

MODEL = str(EXAMPLE / "cryptonets_relu.onnx")
DATA = str(EXAMPLE / "t10k-images-idx3-ubyte.gz")
TRUST = ("--trust", "client-aided")


def run(*arguments: str, status: int = 0) -> str:
    """The output of a command that must end with `status`."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == status, f"{result.output}\n{result.exception!r}"
    return result.output


def test_plan(tmp_path: Path) -> None:
    out = tmp_path / "plan"
    text = run("plan", MODEL, *TRUST, "--out", str(out))
    assert "EVERY WEIGHT" in text
    assert max(map(len, text.splitlines()[1:])) <= 120
    # Both forms of client-aided are told.
    assert "in slots of CKKS with complex packing" in run("plan", MODEL, *TRUST, "--verbose")
    assert out.stat().st_size > 100
    found = json.loads(run("plan", MODEL, *TRUST, "--data", DATA, "--json"))
    assert found["trust"] == "client-aided"
    assert "EVERY WEIGHT" in found["learns"]["client"]
    assert found["plan_hash"] in run("plan", MODEL, *TRUST, "--data", DATA)
    assert found["cost"]["full_batch"]["images"] == found["max_batch"]
    assert found["cost"]["one_image"]["bytes_down"] > 1000
    assert found["cost"]["memory"]["server"] > 1 << 20
    assert run("plan", MODEL, *TRUST, "--input-range", "0,2", "--memory", "4G") != text


def test_trust_levels() -> None:
    assert "trust level two-party" in run("plan", MODEL)
    for arguments in (("plan", MODEL), ("verify", MODEL, "--data", DATA), ("serve", MODEL)):
        text = run(*arguments, "--trust", "none", status=2)
        assert "multi-key" in text
        assert "two-party" in text
        assert "Traceback" not in text
    assert "three parties, not two" in run("predict", "x.png", "--server", "h:1", "--trust", "multi-key", status=2)


def test_errors_are_one_message_and_debug_shows_the_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRONGHORN_DEBUG", raising=False)
    path = tmp_path / "m.onnx"
    path.write_bytes(model([node("Round", "x", "y")], (1, 5, 4, 4)).SerializeToString())
    text = run("plan", str(path), *TRUST, status=2)
    assert "node: node_y" in text
    assert "Traceback" not in text
    assert "no file" in run("plan", "absent.onnx", *TRUST, status=2)
    # A run that fails is another status than a wrong model.
    run("predict", DATA, "--server", "127.0.0.1:1", *TRUST, "--timeout", "2", status=1)
    command = [sys.executable, "-m", "pronghorn", "plan", str(path), *TRUST]
    plain = subprocess.run(command, capture_output=True, text=True, check=False)
    debug = subprocess.run([*command, "--debug"], capture_output=True, text=True, check=False)
    assert plain.returncode == 2
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:x", "7700"])
def test_addresses_without_a_port_are_wrong_usage(address: str) -> None:
    assert "give HOST:PORT" in run("predict", DATA, "--server", address, *TRUST, status=2)
    assert "give HOST:PORT" in run("serve", MODEL, "--data", DATA, "--listen", address, *TRUST, status=2)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", MODEL, *TRUST, "--data", DATA),
        ("plan", MODEL, *TRUST, "--data", DATA, "--json"),
        ("doctor", "--listen", "127.0.0.1:x"),
        ("predict", "--help"),
    ],
)
def test_a_full_standard_output_is_one_line(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "pronghorn", *arguments]
    with open("/dev/full", "w") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    said = [line for line in found.stderr.splitlines() if not line.startswith("warning")]
    assert (found.returncode, said) == (3, ["error: standard output cannot be written: No space left on device"])


def test_a_closed_pipe_is_quiet() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "pronghorn", "plan", MODEL, *TRUST, "--json"]
    with os.fdopen(writing, "w") as pipe:
        found = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert found.returncode == 1
    assert "Traceback" not in found.stderr


def test_a_wrong_trust_level_is_said_in_short_lines() -> None:
    text = run("plan", MODEL, "--trust", "foo", status=2)
    assert "there is no trust level 'foo'" in text
    assert "give --trust (trust=) one of two-party, encrypted, client-aided" in text


def test_an_interrupt_of_the_imports_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("import time; print('importing', flush=True); time.sleep(60)")
    paths = os.pathsep.join([str(tmp_path), str(Path(pronghorn.__file__).parents[1])])
    command = [sys.executable, "-m", "pronghorn", "--help"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, env={**os.environ, "PYTHONPATH": paths}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")


def test_pictures_in_colour_are_made_grey_with_one_warning(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (28, 28, 3), dtype=np.uint8)
    for name in ("a.png", "b.png"):
        Image.fromarray(pixels).save(tmp_path / name)
    text = run("plan", MODEL, "--data", str(tmp_path))
    assert text.count("pictures in colour are made grey") == 1
    for name in ("a.png", "b.png"):
        Image.fromarray(pixels[..., :1].repeat(3, axis=-1)).save(tmp_path / name)
    assert "colour" not in run("plan", MODEL, "--data", str(tmp_path))


@pytest.mark.parametrize(
    "options",
    [
        ("--input-range", "1"),
        ("--input-range", "a,b"),
        ("--shape", "x=a"),
        ("--memory", "lots"),
        ("--mean", "x"),
        ("--data", "absent.npy"),
        ("--output", "absent"),
        ("--out", "/absent/folder/plan"),
        ("--objective", "beauty"),
        ("--engine", "slot"),
        ("--scale", "0"),
    ],
)
def test_options_that_make_no_sense(options: tuple[str, str]) -> None:
    assert "error:" in run("plan", MODEL, *TRUST, *options, status=2)


def test_options_that_exclude_each_other() -> None:
    both = ("--data", DATA, "--input-range", "0,1")
    assert "leave --input-range out" in run("plan", MODEL, *TRUST, *both, status=2)
    verify = ("verify", MODEL, *TRUST, "--data", DATA)
    assert "leave --input-range out" in run(*verify, "--samples", DATA, "--input-range", "0,1", status=2)
    assert "one of the two" in run("plan", MODEL, *TRUST, "--resize", "--short-side", "32", status=2)
    assert "classes, labels, values" in run(*verify, "--outputs", "numbers", status=2)


def test_values_of_options() -> None:
    assert parse_size("8G") == 8 << 30
    assert parse_size("1.5MiB") == 3 << 19
    assert parse_size("1000") == 1000
    assert parse_shape("x=1,2,3") == {"x": [1, 2, 3]}
    assert parse_shape("1,2") == [1, 2]
    with pytest.raises(InputError):
        parse_size("")


def test_dynamic_shapes_by_option(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    nodes = [node("Conv", "x w", "c"), node("GlobalAveragePool", "c", "g"), node("Flatten", "g", "y")]
    path.write_bytes(model(nodes, ("N", 1, "h", "w"), {"w": floats(2, 1, 3, 3)}).SerializeToString())
    assert "--shape x=1,1,224,224" in run("plan", str(path), *TRUST, status=2)
    assert "1x8x8" in run("plan", str(path), *TRUST, "--shape", "x=1,1,8,8")
    data = tmp_path / "d.npy"
    np.save(data, floats(20, 1, 7, 9))
    assert "1x7x9" in run("plan", str(path), *TRUST, "--data", str(data), "--scale", "1")
    text = run("verify", str(path), *TRUST, "--data", str(data), "--scale", "1", "--outputs", "values", "--no-secure")
    assert text.startswith("20 images")
    data.write_bytes(b"no array")
    assert "--shape x=1,1,224,224" in run("plan", str(path), *TRUST, "--data", str(data), status=2)


def test_verify(tmp_path: Path) -> None:
    text = run("verify", MODEL, "--data", DATA, *TRUST, "--limit", "200")
    assert "disagreements with the fixed-point oracle: 0" in text
    report = json.loads(run("verify", MODEL, "--data", DATA, *TRUST, "--limit", "200", "--json"))
    assert report["images"] == 200
    assert report["accuracy_secure"] > 0.95
    # The plan that `serve` and `plan` make of the same file, whatever the limit.
    assert report["plan_hash"] in run("plan", MODEL, *TRUST, "--data", DATA)
    # The samples are drawn from the whole file.
    scored = report["samples_scored"]
    assert report["samples"] == 256
    assert 0 < scored < 30
    assert f"calibrated on 256 images, and scored on the same ({scored} of 200)" in text
    images = np.random.default_rng(0).random((3, 28, 28, 1), dtype=np.float32)
    np.savez(tmp_path / "d.npz", inputs=images, Y=[1, 2, 3])
    text = run("verify", MODEL, "--data", str(tmp_path / "d.npz"), *TRUST, "--input-range", "0,1", "--mean", "0.1")
    assert text.startswith("3 images")
    np.save(tmp_path / "s.npy", np.random.default_rng(1).random((30, 28, 28), dtype=np.float32))
    samples = str(tmp_path / "s.npy")
    text = run("verify", MODEL, "--data", DATA, *TRUST, "--limit", "20", "--samples", samples)
    assert "calibrated on 30 other images" in text
    assert f"serve with --data {samples}" in text
    (tmp_path / "l.npy").write_bytes(b"")
    assert "cannot be read" in run(
        "verify", MODEL, "--data", DATA, *TRUST, "--labels", str(tmp_path / "l.npy"), status=2
    )


def test_samples_that_look_like_pixels(tmp_path: Path, mnist: tuple[np.ndarray, np.ndarray]) -> None:
    np.save(tmp_path / "p.npy", np.round(mnist[0][:40] * 255))
    plan = ("plan", MODEL, *TRUST, "--data", str(tmp_path / "p.npy"))
    assert "warning: the samples are whole numbers up to 255" in run(*plan)
    # A scale says what they are.
    for scale in ("1", "255"):
        assert "warning" not in run(*plan, "--scale", scale)
    np.save(tmp_path / "p.npy", np.int32(mnist[0][:40] * 255))
    assert "--scale 255" in run(*plan, status=2)


FLAT = node("Flatten", "x", "f")
HEADS = {
    "number": ([FLAT, node("Gemm", "f w", "y")], floats(16, 1)),
    "labels": ([FLAT, node("Gemm", "f w", "g"), node("Sigmoid", "g", "y")], floats(16, 3)),
    "map": ([node("Conv", "x w", "y")], floats(2, 1, 1, 1)),
    "class": ([FLAT, node("Gemm", "f w", "g"), node("ArgMax", "g", "y", axis=1)], floats(16, 3)),
}
NAME = "(cat|dog|bird)"
SHARE = r"\(\d+\.\d\d %\)"


@pytest.mark.parametrize(
    ("head", "kind", "line", "keys"),
    [
        ("number", "values", r"-?\d+\.?\d*", {"outputs"}),
        ("labels", "labels", f"{NAME} {SHARE}, {NAME} {SHARE}, {NAME} {SHARE}", {"outputs", "probabilities"}),
        ("map", "values", "2x4x4 values from .* to .*", {"outputs"}),
        ("class", "classes", NAME, {"outputs", "classes"}),
    ],
)
def test_outputs_of_every_kind(head: str, kind: str, line: str, keys: set[str], tmp_path: Path) -> None:
    """Printed, as JSON and saved; labels that are no classes are left out."""
    x = np.random.default_rng(3).random((2, 1, 4, 4), dtype=np.float32)
    np.savez(tmp_path / "x.npz", images=x, labels=np.float32([0.5, 1.5]))
    np.save(tmp_path / "l.npy", [3, 4])
    (tmp_path / "names").write_text("cat\ndog\nbird")
    nodes, weights = HEADS[head]
    dtype = TensorProto.INT64 if head == "class" else TensorProto.FLOAT
    path, images, out = tmp_path / "m.onnx", str(tmp_path / "x.npz"), tmp_path / "o.npz"
    path.write_bytes(model(nodes, ("N", 1, 4, 4), {"w": weights}, output_dtype=dtype).SerializeToString())
    assert "oracle: 0\n" in run("verify", str(path), "--data", images, *TRUST)
    with _processes.served(path, "client-aided") as server:
        ask = ("predict", images, "--server", server.address, *TRUST)
        text = run(*ask, "--names", str(tmp_path / "names"), "--out", str(out))
        assert all(re.search(rf"x\.npz\[{index}\]: {line}\n", text) for index in range(2))
        found = json.loads(run(*ask, "--json"))
        with np.load(out) as arrays:
            saved = dict(arrays)
        assert set(saved) == keys | {"clamped"}
        assert found["outputs"] == kind
        if kind == "values":
            assert [result["values"] for result in found["results"]] == saved["outputs"].tolist()
            assert "outputs are values" in run(*ask, "--labels", str(tmp_path / "l.npy"), status=2)
            assert "accuracy" in run(*ask, "--labels", str(tmp_path / "l.npy"), "--outputs", "classes")
        if kind == "labels":
            (tmp_path / "names").write_text("cat\ndog\nbird\nfish")
            assert "has 4 names, but there are 3 labels" in run(*ask, "--names", str(tmp_path / "names"), status=2)
            assert run(*ask, "--top", "1").count("%") == 2


def test_two_processes_end_to_end(tmp_path: Path, mnist: tuple[np.ndarray, np.ndarray]) -> None:
    """`serve` and `predict` over TCP: files in, classes out; the server goes when it is no longer needed."""
    images, labels = mnist
    for index in range(2):
        pixels = np.uint8(np.round(images[index, 0] * 255))
        Image.fromarray(pixels).save(tmp_path / f"digit{index}.png")
    Image.fromarray(pixels).resize((40, 40)).save(tmp_path / "large.png")
    (tmp_path / "names").write_text("\n".join(f"digit {digit}" for digit in range(10)))
    with _processes.served(Path(MODEL), "client-aided", ["--data", DATA]) as server:
        ask = ("--server", server.address, *TRUST)
        found = _processes.predict(server.address, "client-aided", Path(DATA), ["--limit", "2500", "--repeat", "2"])
        assert found["accuracy"] > 0.97
        assert len(found["runs"]) == 2
        assert found["peak_memory_bytes"] > 1 << 20
        pictures = [str(tmp_path / f"digit{index}.png") for index in range(2)]
        text = run("predict", *pictures, *ask, "--names", str(tmp_path / "names"), "--out", str(tmp_path / "o.npz"))
        for index in range(2):
            assert re.search(rf"digit{index}\.png: digit {labels[index]} \(\d+\.\d\d %\)\n", text)
        assert "bytes an image sent" in text
        (tmp_path / "few").write_text("zero\none")
        text = run("predict", pictures[0], *ask, "--names", str(tmp_path / "few"), status=2)
        assert "has 2 names, but there are 10 classes" in text
        with np.load(tmp_path / "o.npz") as saved:
            assert saved["outputs"].shape == saved["probabilities"].shape == (2, 10)
            assert saved["classes"].tolist() == labels[:2].tolist()
        assert run("predict", pictures[0], *ask, "--top", "3").count("%") == 3
        answer = json.loads(run("predict", *pictures, *ask, "--top", "2", "--json"))
        assert answer["classes"] == labels[:2].tolist()
        assert [len(result["top"]) for result in answer["results"]] == [2, 2]
        assert answer["results"][1]["input"] == "digit1.png"
        assert answer["results"][1]["top"][0]["class"] == labels[1]
        text = run("predict", DATA, *ask, "--limit", "30", "--labels", DATA.replace("images-idx3", "labels-idx1"))
        assert re.search(r"accuracy: \d+\.\d+ %", text)
        assert "and 10 more" in text
        assert "--resize" in run("predict", str(tmp_path / "large.png"), *ask, status=2)
        run("predict", str(tmp_path / "large.png"), *ask, "--resize")
        run("predict", str(tmp_path / "large.png"), *ask, "--short-side", "30")
        run("predict", DATA, *ask, "--plan-hash", "11" * 32, status=1)
        assert "all 64" in run("predict", DATA, *ask, "--plan-hash", "11" * 8, status=2)
        check_parts(tmp_path, ask)
        check_scales(tmp_path, images, ask)
        check_full_output(tmp_path, pictures[0], ask)
        run("predict", pictures[0], *ask, "--out", str(tmp_path / "o.txt"), status=2)
        report = server.stop()
    assert report["peak_memory_bytes"] > 1 << 20
    run("predict", pictures[0], *ask, "--timeout", "2", status=1)


def check_parts(folder: Path, ask: tuple[str, ...]) -> None:
    """Large files are read in parts: with the results, names and accuracy of small ones, and their errors."""
    pictures = folder / "pictures"
    pictures.mkdir()
    for index in range(2):
        (folder / f"digit{index}.png").rename(pictures / f"digit{index}.png")
    asked = [
        ("predict", DATA, *ask, "--limit", "50", "--labels", DATA.replace("images-idx3", "labels-idx1"), "--json"),
        ("predict", str(pictures), *ask, "--json"),
    ]
    whole = [json.loads(run(*each)) for each in asked]
    values = np.zeros((9, 1, 28, 28), np.float32)
    values[7, 0, 3, 4] = np.inf
    np.save(folder / "infinite.npy", values)
    sizes: list[int] = []
    checked = Images.checked

    def counted(images: Images, first: int, last: int) -> np.ndarray:
        sizes.append(len(part := checked(images, first, last)))
        return part

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "LARGE", 1000)
        patch.setattr(wanted, "PART", 7 * 4 * 28 * 28)
        patch.setattr(Images, "checked", counted)
        parts = [json.loads(run(*each)) for each in asked]
        assert sizes == [7] * 7 + [1, 2]
        text = run("predict", str(folder / "infinite.npy"), *ask, status=2)
        values[:] = 0.5
        values[7:] = 1000
        np.save(folder / "far.npy", values)
        assert "RangeWarning" not in run("predict", str(folder / "far.npy"), *ask, "--json")
        # The scale is that of all parts, not of one.
        values[2:] = 1000
        np.save(folder / "far.npy", values)
        refused = run("predict", str(folder / "far.npy"), *ask, status=2)
    assert "infinite.npy[7] holds infinite values" in text
    assert "the inputs reach from 0.5 to 1000" in refused
    for one, other in zip(whole, parts, strict=True):
        assert {**one, "runs": []} == {**other, "runs": []}
    for index in range(2):
        (pictures / f"digit{index}.png").rename(folder / f"digit{index}.png")


def test_models_of_bytes_get_bytes(tmp_path: Path) -> None:
    """A declared input of bytes: nothing is divided, by either party."""
    weights = np.random.default_rng(1).standard_normal((16, 3)).astype(np.float32)
    nodes = [node("Cast", "x", "f", to=TensorProto.FLOAT), node("MatMul", "f w", "y")]
    proto = model(nodes, ("N", 16), {"w": weights}, dtype=TensorProto.UINT8)
    path, data, out = tmp_path / "m.onnx", tmp_path / "x.npy", tmp_path / "o.npy"
    path.write_bytes(proto.SerializeToString())
    rows = np.random.default_rng(2).integers(0, 256, (40, 16), np.uint8)
    np.save(data, rows)
    report = json.loads(run("verify", str(path), "--data", str(data), *TRUST, "--json"))
    assert report["disagreements"] == 0
    assert "made-up inputs in 0..255" in run("plan", str(path), *TRUST)
    for samples in (["--data", str(data)], []):
        with _processes.served(path, "client-aided", samples) as server:
            text = run("predict", str(data), "--server", server.address, *TRUST, "--out", str(out))
        assert "warning" not in text
        expected = rows @ weights
        assert np.sqrt(np.mean((np.load(out) - expected) ** 2) / np.mean(expected**2)) < 0.1


def test_two_party_by_two_processes() -> None:
    """What nobody sees is null, and the server's limit of prepared batches is said."""
    with _processes.served(Path(MODEL), "two-party", ["--data", DATA]) as server:
        text = run("predict", DATA, "--server", server.address, "--limit", "1", "--prepare", "40", "--json")
    assert "--prepare 40 is more than the server keeps for a client: at most 16 batches" in text
    assert json.loads(text[text.index("{") :])["clamped_activations"] is None
    report = run("verify", MODEL, "--data", DATA, "--limit", "1", "--json")
    assert json.loads(report[report.index("{") :])["stats"]["clamped_activations"] is None
    assert run("verify", MODEL, "--data", DATA, "--limit", "1").startswith("1 image, ")


def check_scales(folder: Path, images: np.ndarray, ask: tuple[str, ...]) -> None:
    """Inputs that were scaled otherwise than the samples are refused or warned of."""
    values = str(folder / "values.npy")
    np.save(values, np.round(images[:3] * 255))
    assert "they look like pixels" in run("predict", values, *ask, status=2)
    assert "warning" in run("predict", values, *ask, "--scale", "1")
    assert "warning" not in run("predict", values, *ask, "--scale", "255")
    np.save(values, images[:3] / 255)
    assert "reach only from 0" in run("predict", values, *ask)
    assert "bytes become 0 to 0.003922, but" in run("predict", DATA, *ask, "--limit", "1", "--scale", "65025")


def check_full_output(folder: Path, picture: str, ask: tuple[str, ...]) -> None:
    """Results that are written are there, though they cannot be printed."""
    if not Path("/dev/full").exists():
        return
    for index, more in enumerate([(), ("--json",)]):
        out = folder / f"full{index}.npz"
        command = [sys.executable, "-m", "pronghorn", "predict", picture, *ask, "--out", str(out), *more]
        with open("/dev/full", "w") as full:
            found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
        assert found.returncode == 3
        assert found.stderr.splitlines()[-1] == "error: standard output cannot be written: No space left on device"
        assert out.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "pronghorn", "serve", MODEL, *TRUST, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on 127.0.0.1:")
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "EVERY WEIGHT" in errors
    assert "Traceback" not in errors


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no file"), _processes.served(tmp_path / "absent.onnx", "client-aided"):
        pass


def test_the_server_process_goes_when_the_body_fails() -> None:
    seen: list[int] = []

    def fail() -> None:
        with _processes.served(Path(MODEL), "client-aided") as server:
            seen.append(server._process.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0], 0)


def test_demo() -> None:
    text = run("demo", "--images", "60")
    for words in (
        "two-party",
        "shapes, counts and timing",
        "accuracy",
        "images/s",
        "bytes to the server",
        "peak memory",
    ):
        assert words in text


def test_bench_records(tmp_path: Path) -> None:
    path = tmp_path / "records.json"
    run("bench", "cryptonets-relu", "--quick", "--json", str(path))
    records = json.loads(path.read_text())
    fields = {
        "suite",
        "case",
        "metric",
        "value",
        "unit",
        "parameters",
        "security_bits",
        "machine",
        "reference",
        "ratio",
    }
    assert all(set(record) == fields for record in records)
    assert all(record["security_bits"] >= 128 for record in records)
    speed = next(record for record in records if record["metric"] == "images/s")
    assert speed["ratio"] == pytest.approx(speed["value"] / speed["reference"]["value"])
    assert "there are activations, batch" in run("bench", "nothing", status=2)


def test_pinning_is_undone() -> None:
    before = _processes.available_cores()
    with _processes.pinned(before[:1]):
        assert _processes.available_cores() == before[:1]
    assert _processes.available_cores() == before
    assert machine()["cores"] == len(before)


def test_version_and_help() -> None:
    assert run("--version").startswith("pronghorn ")
    for command in ("plan", "verify", "serve", "predict", "demo", "bench"):
        assert "--debug" not in run(command, "--help")
        assert command in run("--help")
