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
from typer.testing import CliRunner

from conftest import EXAMPLE
from helpers import floats, model, node
from pronghorn import _bench, _processes
from pronghorn.cli import _shape, _size, app
from pronghorn.errors import InputError, RunError

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
    assert out.stat().st_size > 100
    assert json.loads(run("plan", MODEL, *TRUST, "--data", DATA, "--json"))["trust"] == "client-aided"
    assert run("plan", MODEL, *TRUST, "--input-range", "0,2", "--memory", "4G") != text


def test_trust_must_be_asked_for() -> None:
    for arguments in (("plan", MODEL), ("verify", MODEL, "--data", DATA), ("serve", MODEL)):
        text = run(*arguments, status=2)
        assert "multi-key" in text
        assert "two-party" in text
        assert "Traceback" not in text
    assert "not in this version" in run("predict", "x.png", "--server", "h:1", "--trust", "encrypted", status=2)


def test_errors_are_one_message_and_debug_shows_the_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRONGHORN_DEBUG", raising=False)
    path = tmp_path / "m.onnx"
    path.write_bytes(model([node("Tanh", "x", "y")], (1, 5)).SerializeToString())
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
        ("--objective", "latency"),
    ],
)
def test_options_that_make_no_sense(options: tuple[str, str]) -> None:
    assert "error:" in run("plan", MODEL, *TRUST, *options, status=2)


def test_values_of_options() -> None:
    assert _size("8G") == 8 << 30
    assert _size("1.5MiB") == 3 << 19
    assert _size("1000") == 1000
    assert _shape("x=1,2,3") == {"x": [1, 2, 3]}
    assert _shape("1,2") == [1, 2]
    with pytest.raises(InputError):
        _size("")


def test_dynamic_shapes_by_option(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    nodes = [node("Conv", "x w", "c"), node("GlobalAveragePool", "c", "g"), node("Flatten", "g", "y")]
    path.write_bytes(model(nodes, ("N", 1, "h", "w"), {"w": floats(2, 1, 3, 3)}).SerializeToString())
    assert "--shape x=1,1,224,224" in run("plan", str(path), *TRUST, status=2)
    assert "1x8x8" in run("plan", str(path), *TRUST, "--shape", "x=1,1,8,8")


def test_verify(tmp_path: Path) -> None:
    text = run("verify", MODEL, "--data", DATA, *TRUST, "--limit", "200")
    assert "disagreements with the fixed-point oracle: 0" in text
    report = json.loads(run("verify", MODEL, "--data", DATA, *TRUST, "--limit", "200", "--json"))
    assert report["images"] == 200
    assert report["accuracy_secure"] > 0.95
    images = np.random.default_rng(0).random((3, 28, 28, 1), dtype=np.float32)
    np.savez(tmp_path / "d.npz", inputs=images, Y=[1, 2, 3])
    text = run("verify", MODEL, "--data", str(tmp_path / "d.npz"), *TRUST, "--input-range", "0,1", "--mean", "0.1")
    assert text.startswith("3 images")
    (tmp_path / "l.npy").write_bytes(b"")
    assert "cannot be read" in run(
        "verify", MODEL, "--data", DATA, *TRUST, "--labels", str(tmp_path / "l.npy"), status=2
    )


def test_two_processes_end_to_end(tmp_path: Path, mnist: tuple[np.ndarray, np.ndarray]) -> None:
    """`serve` and `predict` over TCP: files in, classes out; the server goes when it is no longer needed."""
    from PIL import Image

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
        assert f"digit0.png: digit {labels[0]}" in text
        assert f"digit1.png: digit {labels[1]}" in text
        assert "bytes an image sent" in text
        with np.load(tmp_path / "o.npz") as saved:
            assert saved["outputs"].shape == (2, 10)
            assert saved["classes"].tolist() == labels[:2].tolist()
        text = run("predict", DATA, *ask, "--limit", "30", "--labels", DATA.replace("images-idx3", "labels-idx1"))
        assert re.search(r"accuracy: \d+\.\d+ %", text)
        assert "and 10 more" in text
        assert "--resize" in run("predict", str(tmp_path / "large.png"), *ask, status=2)
        run("predict", str(tmp_path / "large.png"), *ask, "--resize")
        run("predict", DATA, *ask, "--plan-hash", "11" * 32, status=1)
        run("predict", pictures[0], *ask, "--out", str(tmp_path / "o.txt"), status=2)
        report = server.stop()
    assert report["peak_memory_bytes"] > 1 << 20
    run("predict", pictures[0], *ask, "--timeout", "2", status=1)


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
    text = run("demo", "--images", "300")
    for words in ("EVERY WEIGHT", "accuracy", "images/s", "bytes to the server", "peak memory"):
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
    assert "there are batch" in run("bench", "nothing", status=2)


def test_pinning_is_undone() -> None:
    before = _processes.available_cores()
    with _processes.pinned(before[:1]):
        assert _processes.available_cores() == before[:1]
    assert _processes.available_cores() == before
    assert _bench.machine()["cores"] == len(before)


def test_version_and_help() -> None:
    assert run("--version").startswith("pronghorn ")
    for command in ("plan", "verify", "serve", "predict", "demo", "bench"):
        assert "--debug" not in run(command, "--help")
        assert command in run("--help")
