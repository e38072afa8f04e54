"""Servers of several models: their file, kept plans, other models while they run."""

from __future__ import annotations

import errno
import json
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import pronghorn
from helpers import Line, floats, model, node
from pronghorn import _processes
from pronghorn._outputs import Predictions
from pronghorn.cli import app, config, kept
from pronghorn.cli.pieces import Answer, Pieces
from pronghorn.errors import InputError, OutputError, RunError

TRUST = "client-aided"


def network() -> onnx.ModelProto:
    """6 -> 5, ReLU, -> 3; each has weights of its own."""
    nodes = [node("Gemm", "x w", "g"), node("Relu", "g", "r"), node("Gemm", "r v", "y")]
    return model(nodes, ("N", 6), {"w": floats(6, 5), "v": floats(5, 3)})


def inputs(count: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(0, 1, (count, 6)).astype(np.float32)


def expected(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return pronghorn.load(proto).run_float(x)


def asked(address: str, name: str | None, trust: str = TRUST) -> np.ndarray:
    with pronghorn.connect(address, trust, model=name) as client:
        return client.predict(inputs(4))


def test_several_models_by_name() -> None:
    first, second = network(), network()
    models = {"a": pronghorn.load(first), "b@2": pronghorn.load(second)}
    with pronghorn.serve(models, "127.0.0.1:0", TRUST) as server:
        np.testing.assert_allclose(asked(server.address, "a"), expected(first, inputs(4)), atol=0.2)
        np.testing.assert_allclose(asked(server.address, "b"), expected(second, inputs(4)), atol=0.2)
        listed = pronghorn.list_models(server.address)
        assert [(each.name, each.version, each.trust) for each in listed] == [("a", "1", TRUST), ("b", "2", TRUST)]
        with pronghorn.connect(server.address, TRUST, model="b@2", plan_hash=listed[1].plan_hash) as client:
            assert client.model == "b@2"
        for name in ("c", "b@3", None):
            with pytest.raises(RunError) as caught:
                asked(server.address, name)
            assert (caught.value.code, caught.value.retryable) == ("unknown-model", False)
        with pytest.raises(InputError, match="names no model"):
            asked(server.address, "two words")
        before = {each.name: each.plan_hash for each in listed}
        server.offer({**models, "c": models["a"]})
        after = {each.name: each.plan_hash for each in pronghorn.list_models(server.address)}
        # The same network under another name has another plan.
        assert before.items() < after.items()
        assert len(set(after.values())) == 3
        with pytest.raises(RunError, match="there are 0"):
            server.offer({})
        plan = models["a"].plan(TRUST)
        server.offer(pronghorn.Offer(plan))
        np.testing.assert_allclose(asked(server.address, None), expected(first, inputs(4)), atol=0.2)


class Process:
    """A process of `pronghorn serve`, which ends with its test."""

    def __init__(self, folder: Path, *options: str, listen: str = "127.0.0.1:0") -> None:
        self._errors = folder / "server.log"
        arguments = [*_processes.COMMAND, "serve", "--listen", listen, *options]
        self._process = subprocess.Popen(
            arguments, cwd=folder, stdout=subprocess.PIPE, stderr=self._errors.open("w"), text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening on "), self.log()
        self.address = line.removeprefix("listening on ").strip()

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        return self._errors.read_text()

    def wait_for(self, text: str, count: int = 1) -> None:
        deadline = time.monotonic() + 60
        while self.log().count(text) < count:
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(60)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two models and the file of a server of them."""
    for name in ("first", "second"):
        onnx.save(network(), tmp_path / f"{name}.onnx")
    (tmp_path / "server.toml").write_text(
        f"""
        [server]
        max-clients = 3
        plans = "plans"

        [[models]]
        name = "one"
        file = "first.onnx"
        trust = "{TRUST}"
        input-range = "0,1"

        [[models]]
        name = "two"
        version = "7"
        file = "second.onnx"
        trust = "{TRUST}"
        """
    )
    return tmp_path


def fetch(address: str, path: str) -> tuple[int, str]:
    """Status and body of an answer over HTTP."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def run(*arguments: str, status: int = 0) -> str:
    """What a command prints."""
    found = CliRunner().invoke(app, list(arguments))
    assert found.exit_code == status, found.output
    return found.output


def hashes(address: str) -> dict[str, str]:
    return {f"{each.name}@{each.version}": each.plan_hash for each in pronghorn.list_models(address)}


def test_a_file_of_models(folder: Path) -> None:
    np.save(folder / "x.npy", inputs(3))
    with Process(folder, "--config", "server.toml") as server:
        plans = hashes(server.address)
        assert list(plans) == ["one@1", "two@7"]
        assert f"plan of two@7 {plans['two@7']}" in server.log()
        listed = run("models", "--server", server.address)
        assert listed.splitlines() == [f"{name}  {TRUST}  {plan}" for name, plan in plans.items()]
        assert json.loads(run("models", "--server", server.address, "--json"))[1]["version"] == "7"
        ask = ("predict", str(folder / "x.npy"), "--scale", "1", "--server", server.address, "--trust", TRUST)
        for name in ("one", "two", "two@7"):
            assert "x.npy" in run(*ask, "--model", name)
        assert "no model three" in run(*ask, "--model", "three", status=1)
        assert "named no model" in run(*ask, status=1)
        kept_plans = sorted((folder / "plans").iterdir())
        assert len(kept_plans) == 2
        assert all(path.stat().st_mode & 0o77 == 0 for path in kept_plans)
        # Another model under one name, and one name less.
        text = (folder / "server.toml").read_text()
        (folder / "server.toml").write_text(text.replace("first.onnx", "absent.onnx"))
        server.send(signal.SIGHUP)
        server.wait_for("the models of before are served on")
        assert hashes(server.address) == plans
        (folder / "server.toml").write_text(text[: text.rindex("[[models]]")].replace("0,1", "0,2"))
        server.send(signal.SIGHUP)
        server.wait_for("again")
        again = hashes(server.address)
        assert list(again) == ["one@1"]
        assert again["one@1"] != plans["one@1"]
        (folder / "server.toml").write_text(text)
    # With the plans of the first time, the second is the same.
    before = {path: path.stat().st_mtime_ns for path in kept_plans}
    with Process(folder, "--config", "server.toml") as server:
        assert hashes(server.address) == plans
    assert {path: path.stat().st_mtime_ns for path in kept_plans} == before


def test_kept_plans_are_those_of_their_files(folder: Path) -> None:
    entries = config.entries(folder / "server.toml")
    plans = kept.KeptPlans(folder / "plans")
    made: list[str] = []

    def plan(entry: config.Entry) -> pronghorn.Plan:
        def make() -> pronghorn.Plan:
            made.append(str(entry.name))
            return pronghorn.load(entry.file, input_range=(0, 1), name=entry.name).plan(TRUST)

        return plans.plan(entry, make)

    first = plan(entries[0])
    again = plan(entries[0])
    assert made == ["one"]
    assert (again.hash, str(again), again.to_json()) == (first.hash, str(first), first.to_json())
    # What is kept is served with its weights.
    with pronghorn.serve(again, "127.0.0.1:0") as server:
        wanted = pronghorn.load(entries[0].file).run_float(inputs(4))
        np.testing.assert_allclose(asked(server.address, None), wanted, atol=0.2)
    plan(entries[1])
    onnx.save(network(), entries[0].file)
    plan(entries[0])
    assert made == ["one", "two@7", "one"]
    for path in (folder / "plans").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    plan(entries[1])
    assert made[-1] == "two@7"
    assert len(made) == 4
    (folder / "plans").chmod(0o755)
    with pytest.raises(InputError, match="chmod 700"):
        kept.KeptPlans(folder / "plans")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no models"),
        ("[server", "cannot be read"),
        ("[models]\nname = 'a'", "has no models"),
        ("[[models]]\nfile = 'a.onnx'", "model 1: give it a name"),
        ("[[models]]\nname = 'a'", "model a: Missing"),
        ("[[models]]\nname = 'a'\nfile = 'a.onnx'\ncolour = 1", "model a: there is no colour"),
        ("[[models]]\nname = 'a'\nfile = ['a.onnx']", "file is ['a.onnx']: give one value"),
        ("[[models]]\nname = 'a'\nfile = 'a.onnx'\nkey-checks = 'many'", "model a: Invalid value for '--key-checks'"),
        ("[[models]]\nname = 'a'\nfile = 'a.onnx'\nresize = 1", "resize is 1: give true or false"),
        ("[server]\ntrust = 'two-party'\n[[models]]\nname = 'a'\nfile = 'a.onnx'", "[server]: there is no trust"),
        ("[server]\nmax_clients = 0\n[[models]]\nname = 'a'\nfile = 'a.onnx'", "--max-clients"),
        ("[[models]]\nname = 'a'\nfile = 'a.onnx'\n" * 2, "a@1 is there twice: give versions"),
        ("[[models]]\nname = 'a@1'\nfile = 'a'\n[[models]]\nname = 'a'\nfile = 'b'", "a@1 is there twice"),
        ("[other]", "has other"),
    ],
)
def test_files_that_make_no_sense(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(text)
    assert said in " ".join(run("serve", "--config", str(path), status=2).split())


@pytest.mark.parametrize(
    ("line", "subject", "said"),
    [
        ("max-images = 'ten'", "options", "Invalid value for '--max-images'"),
        ("prepare-bytes = 99999999999999999999", "options", "prepare_bytes is 99999999999999999999, but must be"),
        ("idle-timeout = 1e300", "options", "idle_timeout is 1e+300: give seconds"),
        ("store = '/proc/x'", "store", "/proc/x is not there, and cannot be made in /proc"),
        ("listen = 7741", "tls", "give HOST:PORT"),
        ("metrics = 'here'", "metrics port", "give HOST:PORT"),
    ],
)
def test_the_doctor_finds_what_serve_refuses(line: str, subject: str, said: str, folder: Path) -> None:
    path = folder / "server.toml"
    path.write_text(path.read_text().replace("[server]", f"[server]\n{line}"))
    other = () if "listen" in line else ("--listen", "127.0.0.1:0")
    assert CliRunner().invoke(app, ["serve", "--config", str(path), *other]).exit_code in (1, 2)
    found = found_by_doctor("--config", str(path), status=1)[subject]
    assert (found[0], said in found[1]) == ("error", True), found


def test_the_doctor_finds_a_model_that_is_there_twice(folder: Path) -> None:
    path = folder / "server.toml"
    path.write_text(path.read_text().replace('"two"', '"one"').replace('"7"', '"1"'))
    status, said = found_by_doctor("--config", str(path), "--listen", "127.0.0.1:0", status=1)["models"]
    assert (status, "one@1 is there twice: give versions" in said) == ("error", True)


def test_what_goes_before_what(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line, the environment, the file."""
    seen: list[dict[str, Any]] = []

    def serve(models: Any, listen: str, **options: Any) -> None:
        seen.append({"listen": listen, **options})
        raise InputError("enough")

    monkeypatch.setattr(pronghorn, "serve", serve)
    path = folder / "server.toml"
    path.write_text(path.read_text().replace("[server]", "[server]\nlisten = ':1'\nstore = 's'\nidle-timeout = 7"))
    run("serve", "--config", str(path), status=2)
    monkeypatch.setenv("PRONGHORN_SERVE_MAX_CLIENTS", "5")
    run("serve", "--config", str(path), "--listen", ":2", status=2)
    monkeypatch.setenv("PRONGHORN_SERVE_MAX_CLIENTS", "none")
    assert "--max-clients" in run("serve", "--config", str(path), status=2)
    monkeypatch.delenv("PRONGHORN_SERVE_MAX_CLIENTS")
    found = [(each["listen"], each["limits"]["max-clients"], each["idle_timeout"], each["store"]) for each in seen]
    assert found == [(":1", 3, 7.0, folder / "s"), (":2", 5, 7.0, folder / "s")]
    assert "leave MODEL out" in run("serve", str(folder / "first.onnx"), "--config", str(path), status=2)
    assert "--config FILE" in run("serve", status=2)


# Limits.


def test_limits_are_documented_options() -> None:
    """Each limit of the core's table is an option of `serve`, and a row of the documents with its default and code."""
    rows = pronghorn.limits()
    assert len({row.name for row in rows}) == len(rows)
    text = (Path(__file__).parents[1] / "docs" / "serving.md").read_text()
    shown = run("serve", "--help")
    for row in rows:
        assert f"--{row.name} " in shown
        default = "no limit" if row.default is None else f"{row.default:,}"
        if row.name.startswith("max-connections") or row.name == "max-memory-share-per-client":
            default = "see below"
        wanted = f"| `--{row.name}` | {default} | {row.unit} {row.period} | {row.key} | `{row.code}` |"
        assert wanted in text, wanted
        assert row.retryable == (row.code == "busy")


def test_limits_by_file_environment_and_flag(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, int | None]] = []

    def serve(models: Any, listen: str, **options: Any) -> None:
        seen.append({name: value for name, value in options["limits"].items() if value is not None})
        raise InputError("enough")

    monkeypatch.setattr(pronghorn, "serve", serve)
    path = folder / "server.toml"
    path.write_text(path.read_text().replace("[server]", "[server]\nmax-setups-per-address = 7\nproxy-from = ['::1']"))
    monkeypatch.setenv("PRONGHORN_SERVE_MAX_DAILY_BYTES_IN_ALL", "1000")
    run("serve", "--config", str(path), "--max-requests-per-client", "5", status=2)
    wanted = {"max-clients": 3, "max-setups-per-address": 7, "max-daily-bytes-in-all": 1000}
    assert seen == [wanted | {"max-requests-per-client": 5}]
    said = run("serve", str(folder / "first.onnx"), "--max-memory-share-per-client", "101", status=2)
    assert "--max-memory-share-per-client" in said


def test_limits_that_make_no_sense() -> None:
    for options, said in (
        ({"limits": {"max-guests": 1}}, 'no limit "max-guests"'),
        ({"limits": {"max-setups-in-all": 0}}, "max-setups-in-all is 0"),
        ({"limits": {"max-memory-share-per-client": 101}}, "give 1 to 100"),
        ({"proxies": ["10.0.0.0/40"]}, "no address and no network"),
    ):
        with pytest.raises(InputError, match=said):
            pronghorn.serve(pronghorn.load(network()), "127.0.0.1:0", TRUST, **options)  # type: ignore[arg-type]


def test_refusals_have_codes() -> None:
    """Each kind of limit, at its first client too many."""
    net = pronghorn.load(network())

    def refused(limit: str, most: int, act: Any) -> tuple[str, bool]:
        limits = {limit: most}
        with pronghorn.serve(net, "127.0.0.1:0", TRUST, limits=limits, queue_timeout=0.2, max_waiting=1) as server:
            with pytest.raises(RunError) as caught:
                act(server.address)
            assert limit in str(caught.value)
            return caught.value.code, caught.value.retryable

    def two_clients(address: str) -> None:
        with pronghorn.connect(address, TRUST), pronghorn.connect(address, TRUST):
            pass

    def two_predictions(address: str) -> None:
        with pronghorn.connect(address, TRUST) as client:
            client.predict(inputs(2))
            client.predict(inputs(2))

    def two_set_ups(address: str) -> None:
        for _ in range(2):
            asked(address, None)

    busy, limit = ("busy", True), ("limit", False)
    for name in ("max-sessions-per-client", "max-sessions-per-address", "max-connections-per-client"):
        assert refused(name, 1, two_clients) == busy
    for name in ("max-connections", "max-connections-in-all"):
        assert refused(name, 1, two_clients) == busy
    for name in ("max-requests-per-client", "max-requests-per-address", "max-requests-in-all"):
        assert refused(name, 2, two_predictions) == busy
    for name in ("max-setups-per-client", "max-setups-per-address", "max-setups-in-all"):
        assert refused(name, 1, two_set_ups) == limit
    for name in ("max-daily-bytes-per-client", "max-daily-bytes-per-address", "max-daily-bytes-in-all"):
        assert refused(name, 1, two_predictions) == limit


def test_daily_images_end_like_all_images() -> None:
    net = pronghorn.load(network())
    with (
        pronghorn.serve(net, "127.0.0.1:0", TRUST, limits={"max-daily-images-in-all": 5}) as server,
        pronghorn.connect(server.address, TRUST) as client,
    ):
        client.predict(inputs(4))
        with pytest.raises(RunError, match="has 1 left") as caught:
            client.predict(inputs(2))
        assert (caught.value.code, caught.value.retryable) == ("limit", False)


def test_use_survives_a_kill(folder: Path) -> None:
    """Killed between batches, and with a batch that runs: what was begun is counted, by address and by day."""
    options = ("first.onnx", "--trust", TRUST, "--store", "store", "--max-daily-images-per-address", "100")
    with Process(folder, *options) as server, pronghorn.connect(server.address, TRUST) as client:
        client.predict(inputs(30))
        server.send(signal.SIGKILL)
        server.wait()
    with Process(folder, *options) as server:
        line = Line(server.address, 1000)

        def predict() -> None:
            with suppress(RunError), pronghorn.connect(line.address, TRUST) as client:
                client.predict(inputs(50))

        thread = threading.Thread(target=predict)
        thread.start()
        assert line.held.wait(60)
        server.send(signal.SIGKILL)
        server.wait()
        line.go_on.set()
        thread.join()
    with (
        Process(folder, *options) as server,
        pronghorn.connect(server.address, TRUST) as client,
        pytest.raises(RunError, match="has 20 left"),
    ):
        client.predict(inputs(21))


def test_a_full_disk_of_the_server_ends_a_batch_alone(folder: Path) -> None:
    """What cannot be counted is not served. Once there is room the server goes on, with the counts of before."""
    options = ("first.onnx", "--trust", TRUST, "--store", "store", "--max-daily-images-in-all", "100")
    with Process(folder, *options) as server:
        client = pronghorn.connect(server.address, TRUST)
        client.predict(inputs(30))
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        # The log is not longer than that, and the database is.
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1 << 14, hard))
        with pytest.raises(RunError, match="cannot use its store"):
            client.predict(inputs(10))
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))
        with pronghorn.connect(server.address, TRUST) as again:
            again.predict(inputs(60))
            with pytest.raises(RunError, match="has 10 left"):
                again.predict(inputs(11))


def test_clients_behind_a_balancer_have_their_own_addresses() -> None:
    """A balancer that sends the PROXY protocol: clients count one by one, and it must say who they are."""
    lines: list[pronghorn.LogLine] = []
    options: dict[str, Any] = {"limits": {"max-connections": 1}, "proxies": ["127.0.0.1"], "log": lines.append}
    with pronghorn.serve(pronghorn.load(network()), "127.0.0.1:0", TRUST, **options) as server:
        v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes([192, 0, 2, 9, 127, 0, 0, 1, 1, 0, 2, 0])
        first = Line(server.address, 1 << 62, b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 7700\r\n")
        second, same = Line(server.address, 1 << 62, v2), Line(server.address, 1 << 62, v2)
        with pronghorn.connect(first.address, TRUST), pronghorn.connect(second.address, TRUST) as client:
            assert client.predict(inputs(3)).shape == (3, 3)
            with pytest.raises(RunError, match="1 connections of one address") as caught:
                pronghorn.connect(same.address, TRUST)
            assert caught.value.code == "busy"
        with pytest.raises(RunError):
            pronghorn.connect(server.address, TRUST)
    text = "\n".join(lines)
    assert "(192.0.2.7:4711) connected" in text
    assert "(192.0.2.9:256) left: 1 batch" in text
    assert "does not begin with a PROXY header" in text


# Operation.


def samples(text: str) -> dict[str, float]:
    """The samples of Prometheus' text format, which has its types and meanings too."""
    lines = text.splitlines()
    families = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert all(line.startswith(("# HELP pronghorn_", "# TYPE pronghorn_", "pronghorn_")) for line in lines)
    assert {name.partition("{")[0] for name in found} <= families
    return {name: float(value) for name, value in found.items()}


def test_metrics(cryptonets: pronghorn.Model, mnist: tuple[np.ndarray, np.ndarray]) -> None:
    images = mnist[0][:5]
    with (
        pronghorn.serve({"digits@2": cryptonets}, "127.0.0.1:0", "two-party", max_waiting=0, max_clients=1) as server,
        pronghorn.Monitor("127.0.0.1:0", server.metrics) as monitor,
    ):
        with pronghorn.connect(server.address, prepare=0) as client:
            # A server that is asked before its thread runs is not ready yet.
            assert [fetch(monitor.address, path)[0] for path in ("/healthz", "/readyz", "/other")] == [200, 200, 404]
            client.prepare(5)
            client.predict(images)
            assert client.last_stats is not None
            with pytest.raises(RunError):
                pronghorn.connect(server.address)
            status, text = fetch(monitor.address, "/metrics")
            assert status == 200
            found = samples(text)
            model = '{model="digits",version="2"}'
            phase = '{model="digits",version="2",phase="%s"}'
            assert found["pronghorn_ready"] == found["pronghorn_places_used"] == 1
            assert found[f"pronghorn_images_total{model}"] == 5
            assert found[f"pronghorn_batches_total{model}"] == found[f"pronghorn_prepared_batches_total{model}"] == 1
            assert found[f"pronghorn_sessions{model}"] == 1
            assert found["pronghorn_seconds_total" + phase % "preparing"] > 0
            assert found["pronghorn_seconds_total" + phase % "predicting"] > 0
            assert found[f"pronghorn_predicted_seconds_total{model}"] > 0
            received = 'pronghorn_bytes_total{model="digits",version="2",direction="received",phase="%s"}'
            assert found[received % "predicting"] == client.last_stats.bytes_sent
            assert found[received % "preparing"] > 0 < found[received % "opening"]
            assert found['pronghorn_failures_total{reason="busy"}'] == 1
            assert found['pronghorn_refusals_total{reason="busy"}'] == 1
            assert found[f"pronghorn_stock_batches{model}"] == 0
            client.prepare(5)
            assert samples(fetch(monitor.address, "/metrics")[1])[f"pronghorn_stock_batches{model}"] == 1
            assert found["pronghorn_resident_memory_bytes"] > 1e7
            assert 0 == found["pronghorn_memory_used_bytes"] < found["pronghorn_memory_limit_bytes"]
        assert server.drain(30)
        assert fetch(monitor.address, "/readyz") == (503, "stopping\n")
        assert fetch(monitor.address, "/healthz")[0] == 200
    with pytest.raises(RunError, match="for metrics"), pronghorn.serve(cryptonets, "127.0.0.1:0") as server:
        pronghorn.Monitor(server.address, server.metrics)


def test_a_server_that_drains_ends_batches(folder: Path) -> None:
    """SIGTERM while batches run: they come to their end, new clients are refused, the exit status is 0."""
    options = ("first.onnx", "--trust", TRUST, "--log-format", "json", "--log-level", "debug", "--metrics", "0")
    with Process(folder, *options) as server:
        server.wait_for('"event": "metrics"')
        entries = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
        address = next(entry["address"] for entry in entries if entry["event"] == "metrics")
        # The first line of the log is a moment before the server takes clients.
        deadline = time.monotonic() + 10
        while fetch(address, "/readyz")[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        line, outcomes = Line(server.address, 1000), list[np.ndarray]()

        def predict() -> None:
            with pronghorn.connect(line.address, TRUST) as client:
                outcomes.append(client.predict(inputs(300)))

        thread = threading.Thread(target=predict)
        thread.start()
        assert line.held.wait(60)
        server.send(signal.SIGTERM)
        server.wait_for('"event": "draining"')
        assert fetch(address, "/readyz")[0] == 503
        with pytest.raises(RunError) as caught:
            pronghorn.connect(server.address, TRUST)
        assert (caught.value.code, caught.value.retryable) == ("stopping", True)
        line.go_on.set()
        thread.join()
        assert len(outcomes[0]) == 300
        assert server.wait() == 0
        lines = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
        assert all({"time", "level", "event", "message"} <= set(line) for line in lines)
        left = next(line for line in lines if line["event"] == "left" and line.get("images"))
        assert left["model"] == "model@1"
        assert lines[-1]["event"] == "stopped"
        assert "all batches" in lines[-1]["message"]


SLOW_TO_PLAN = """
import time
from pronghorn import cli
cli.serve._plan = lambda entry, bar: (print("planning", flush=True), time.sleep(60))
cli.app()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_still_plans_ends_well(number: signal.Signals, folder: Path) -> None:
    command = [sys.executable, "-c", SLOW_TO_PLAN, "serve", "first.onnx", "--listen", "127.0.0.1:0", "--trust", TRUST]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, **pipes, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "planning\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "stopping: no client was served" in errors


SLOW_TO_STOP = """
import time
from pronghorn import cli, _network
stop = _network.Server.stop
_network.Server.stop = lambda server: (stop(server), time.sleep(1))
cli.app()
"""
"""A server of which a session takes a while to notice that it is cut."""


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_server_that_cuts_batches_says_so(form: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_processes, "COMMAND", (sys.executable, "-c", SLOW_TO_STOP))
    options = ("first.onnx", "--trust", TRUST, "--log-format", form, "--drain-timeout", "0.2")
    with Process(folder, *options) as server:
        line, codes = Line(server.address, 1000), list[str]()

        def predict() -> None:
            with pronghorn.connect(line.address, TRUST) as client:
                try:
                    client.predict(inputs(300))
                except RunError as error:
                    codes.append(error.code)

        thread = threading.Thread(target=predict)
        thread.start()
        assert line.held.wait(60)
        server.send(signal.SIGTERM)
        assert server.wait() == 0
        line.go_on.set()
        thread.join()
        assert codes
        *_, left, stopped = server.log().splitlines()
        if form == "json":
            assert json.loads(left)["event"] == "left"
            assert (json.loads(stopped)["event"], json.loads(stopped)["level"]) == ("stopped", "warning")
        assert "client 1 (127.0.0.1:" in left
        assert "left" in left
        assert "batches were cut" in stopped


def test_a_second_signal_ends_at_once(folder: Path) -> None:
    with Process(folder, "first.onnx", "--trust", TRUST, "--drain-timeout", "1000") as server:
        with pronghorn.connect(server.address, TRUST):
            pass
        server.wait_for("left")
        assert "info    client 1 (127.0.0.1:" in server.log()
        server.send(signal.SIGTERM)
        server.send(signal.SIGINT)
        assert server.wait() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--log-format", "xml"), "--log-format is xml"),
        (("--log-level", "loud"), "--log-level is loud"),
        (("--metrics", "nowhere"), "--metrics is '127.0.0.1:nowhere'"),
    ],
)
def test_options_of_operation_that_make_no_sense(options: tuple[str, ...], said: str, folder: Path) -> None:
    arguments = ["serve", str(folder / "first.onnx"), "--listen", "127.0.0.1:0", "--trust", TRUST, *options]
    assert said in " ".join(run(*arguments, status=2).split())


def test_lines_of_the_log_have_parts() -> None:
    lines: list[pronghorn.LogLine] = []
    with pronghorn.serve(pronghorn.load(network()), "127.0.0.1:0", TRUST, log=lines.append) as server:
        asked(server.address, None)
    left = lines[-1]
    assert (left.level, left.event, left.fields["images"]) == ("info", "left", 4)
    assert left.startswith("client 1 (127.0.0.1:")


# Long work.


@pytest.fixture
def long(folder: Path) -> tuple[Path, np.ndarray]:
    """A folder with a model, 2,000 inputs, and the results that they have."""
    np.save(folder / "x.npy", inputs(2000))
    net = pronghorn.load(folder / "first.onnx", input_range=(0, 1))
    return folder, net.compiled(TRUST).run_fixed(inputs(2000))


def predict_long(folder: Path, address: str, *options: str, out: str = "out.npy") -> list[str]:
    ask = ["predict", str(folder / "x.npy"), "--scale", "1", "--server", address, "--trust", TRUST, "--batch"]
    return [*ask, "--out", str(folder / out), *options]


def test_work_in_pieces(long: tuple[Path, np.ndarray]) -> None:
    folder, wanted = long
    with Process(folder, "first.onnx", "--trust", TRUST, "--input-range", "0,1") as server:
        said = json.loads(run(*predict_long(folder, server.address, "--piece", "300", "--json")))
        assert (said["images"], said["pieces"], said["failures"]) == (2000, 7, 0)
        np.testing.assert_array_equal(np.load(folder / "out.npy"), wanted)
        assert not (folder / "out.npy.parts").exists()
        run(*predict_long(folder, server.address, out="out.csv"))
        lines = (folder / "out.csv").read_text().splitlines()
        assert lines[0] == "index,input,class,probability,clamped,output 0,output 1,output 2"
        rows = [line.split(",") for line in lines[1:]]
        assert [int(row[0]) for row in rows] == list(range(2000))
        np.testing.assert_allclose([list(map(float, row[5:])) for row in rows], wanted, rtol=1e-6)
        assert [int(row[2]) for row in rows] == wanted.argmax(axis=1).tolist()
        run(*predict_long(folder, server.address, out="out.npz"))
        np.testing.assert_array_equal(np.load(folder / "out.npz")["outputs"], wanted)
        ask = predict_long(folder, server.address)
        assert "none of .parquet" in run(*predict_long(folder, server.address, out="out.txt"), status=2)
        assert "--resume is for --batch" in run(*(each for each in ask if each != "--batch"), "--resume", status=2)
        assert "give --out" in run(*ask[:-2], status=2)
        for option, said in (("--prepare", "nothing ahead"), ("--repeat", "each input once"), ("--top", "all outputs")):
            refused = " ".join(run(*ask, option, "2", status=2).split())
            assert said in refused
            assert f"leave {option} out, or --batch" in refused


def test_names_of_classes_in_pieces(long: tuple[Path, np.ndarray]) -> None:
    folder, wanted = long
    names = folder / "names"
    names.write_text("no\nyes\nperhaps\n\n")
    with Process(folder, "first.onnx", "--trust", TRUST, "--input-range", "0,1") as server:
        run(*predict_long(folder, server.address, "--names", str(names), out="out.csv"))
        rows = [line.split(",") for line in (folder / "out.csv").read_text().splitlines()]
        assert rows[0][2:4] == ["class", "name"]
        assert [row[3] for row in rows[1:]] == [["no", "yes", "perhaps"][index] for index in wanted.argmax(axis=1)]
        ask = predict_long(folder, server.address, "--names", str(names))
        assert "leave --names out, or write .csv or .parquet" in run(*ask, status=2)
        names.write_text("no\nyes")
        ask = predict_long(folder, server.address, "--names", str(names), out="out.csv")
        assert "has 2 names, but there are 3 classes" in run(*ask, status=2)


def test_parquet(long: tuple[Path, np.ndarray]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    folder, wanted = long
    with Process(folder, "first.onnx", "--trust", TRUST, "--input-range", "0,1") as server:
        run(*predict_long(folder, server.address, "--piece", "700", out="out.parquet"))
    table = parquet.read_table(folder / "out.parquet")
    assert table.column_names == ["index", "input", "class", "probability", "clamped", "outputs"]
    assert table["index"].to_pylist() == list(range(2000))
    np.testing.assert_array_equal(np.array(table["outputs"].to_pylist(), np.float32), wanted)
    assert parquet.ParquetFile(folder / "out.parquet").num_row_groups == 3


def test_work_that_is_another(long: tuple[Path, np.ndarray]) -> None:
    folder, wanted = long
    work = {"images": 2000, "inputs": "a", "plan": "b", "piece": 500}
    pieces = Pieces(folder / "out.npy", work, resume=False)
    pieces.add(range(500, 1000), Answer(wanted[500:1000]))
    with pytest.raises(InputError, match="another process"):
        Pieces(folder / "out.npy", work, resume=True)
    del pieces
    with pytest.raises(InputError, match="--resume goes on"):
        Pieces(folder / "out.npy", work, resume=False)
    with pytest.raises(InputError, match="of other inputs, plan"):
        Pieces(folder / "out.npy", {**work, "inputs": "c", "plan": "d"}, resume=True)
    again = Pieces(folder / "out.npy", work, resume=True)
    assert again.missing() == [range(500), range(1000, 1500), range(1500, 2000)]
    assert Pieces.size_of(folder / "out.npy") == 500
    assert Pieces.size_of(folder / "other.npy") is None


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def without_checksum(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-16])


def with_zeros(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:200] + bytes(400) + content[600:])


def of_others(path: Path) -> None:
    np.save(path, np.zeros((500, 3), np.float32))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, without_checksum, with_zeros, of_others, emptied])
def test_damaged_pieces_are_predicted_again(damage: Any, long: tuple[Path, np.ndarray]) -> None:
    folder, wanted = long
    options = ("--trust", TRUST, "--input-range", "0,1", "--max-images")
    with Process(folder, "first.onnx", *options, "1600") as server:
        run(*predict_long(folder, server.address, "--piece", "500"), status=1)
    damaged = folder / "out.npy.parts" / "000000500.npy"
    damage(damaged)
    # Room for the damaged piece and the missing one.
    with Process(folder, "first.onnx", *options, "1000") as server:
        said = run(*predict_long(folder, server.address, "--resume"))
    assert f"warning: {damaged} is damaged: inputs 500 to 999 are predicted again" in said
    np.testing.assert_array_equal(np.load(folder / "out.npy"), wanted)


def test_damage_that_comes_late_is_no_result(tmp_path: Path) -> None:
    work = {"images": 2, "inputs": "a", "plan": "b", "piece": 1}
    pieces = Pieces(tmp_path / "out.npy", work, resume=False)
    for piece in pieces.all():
        pieces.add(piece, Answer(np.ones((1, 300), np.float32)))
    assert [found.tolist() for found in pieces.outputs()] == [[[1.0] * 300]] * 2
    with_zeros(pieces.folder / "000000001.npy")
    for read in (pieces.outputs(), pieces.found(lambda outputs: Predictions(outputs, "values", None, None))):
        with pytest.raises(OutputError, match=r"000000001\.npy is damaged"):
            list(read)
    pieces.release()
    for text in ("", "[1]", "3"):
        (pieces.folder / "work.json").write_text(text)
        assert Pieces.size_of(tmp_path / "out.npy") is None
        with pytest.raises(InputError, match=r"work\.json cannot be read"):
            Pieces(tmp_path / "out.npy", work, resume=True)


def test_full_disks_keep_what_is_done(long: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, wanted = long
    # A piece is an array of outputs and one of flags.
    save, room = np.save, [2 * 3]

    def full(file: Any, array: np.ndarray) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(file, array)

    with Process(folder, "first.onnx", "--trust", TRUST, "--input-range", "0,1") as server:
        monkeypatch.setattr(np, "save", full)
        said = run(*predict_long(folder, server.address, "--piece", "400"), status=3)
        assert "--resume" in said
        assert len(list((folder / "out.npy.parts").glob("*.npy"))) == 3
        # Room for all pieces, and none for the file of all.
        room[0] = 2 * 2
        monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)
        run(*predict_long(folder, server.address, "--resume"), status=3)
        assert len(list((folder / "out.npy.parts").glob("*.npy"))) == 5
        monkeypatch.undo()
        run(*predict_long(folder, server.address, "--resume"))
    np.testing.assert_array_equal(np.load(folder / "out.npy"), wanted)


def test_failed_checks_end_nothing(long: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """All pieces are asked for on one connection, whatever the checks say; what failed is said at the end."""
    folder, wanted = long
    predict, failing = pronghorn.Client.predict, {2, 5}

    def doubted(client: pronghorn.Client, x: np.ndarray) -> np.ndarray:
        outputs = predict(client, x)
        calls.append(len(x))
        if len(calls) in failing:
            raise RunError("a value lies outside its range", code="failed-check")
        return outputs

    monkeypatch.setattr(pronghorn.Client, "predict", doubted)
    calls: list[int] = []
    with Process(folder, "first.onnx", "--trust", TRUST, "--input-range", "0,1") as server:
        said = " ".join(run(*predict_long(folder, server.address, "--piece", "300"), status=1).split())
        assert "2 of 7 pieces are not there" in said
        assert "inputs 300 to 599, 1200 to 1499" in said
        assert "which tells the server" in said
        assert calls == [300] * 6 + [200]
        server.wait_for("left: 7 batches, 2000 images")
        assert server.log().count(" connected") == 1
        assert not (folder / "out.npy").exists()
        # The files of failed pieces are like the others.
        sizes = {path.stat().st_size for path in (folder / "out.npy.parts").glob("000000[036]*")}
        assert len(sizes) == 1
        calls.clear()
        failing.clear()
        run(*predict_long(folder, server.address, "--resume"))
        assert calls == [300, 300]
    np.testing.assert_array_equal(np.load(folder / "out.npy"), wanted)


def test_failures_that_do_not_pass_end_the_work(long: tuple[Path, np.ndarray]) -> None:
    folder, _ = long
    with Process(folder, "first.onnx", "--trust", TRUST, "--input-range", "0,1", "--max-images", "700") as server:
        said = run(*predict_long(folder, server.address, "--piece", "300"), status=1)
        assert "has 100 left" in said
        assert len(list((folder / "out.npy.parts").glob("*.npy"))) == 2
    said = run(*predict_long(folder, "127.0.0.1:1", "--give-up", "0.1", out="other.npy"), status=1)
    assert "cannot connect" in said


# The doctor.


def found_by_doctor(*options: str, status: int = 0) -> dict[str, tuple[str, str]]:
    found = json.loads(run("doctor", "--json", *options, status=status).splitlines()[-1])
    return {each["subject"]: (each["status"], each["text"]) for each in found}


def test_the_doctor(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = found_by_doctor("--listen", f"127.0.0.1:{port}", status=1)
        assert found["port"][0] == "error"
        assert "cannot be bound" in found["port"][1]
    assert {found[each][0] for each in ("clock", "tls", "open files")} == {"ok"}
    path = folder / "server.toml"
    path.write_text(path.read_text().replace("[server]", f"[server]\nlisten = '127.0.0.1:{port}'\nmetrics = '0'"))
    found = found_by_doctor("--config", str(path))
    assert found["options"] == ("ok", "listen, max-clients, metrics, plans")
    assert found["models"] == ("ok", "one, two@7")
    assert found["plans"] == ("ok", f"{folder / 'plans'} will be made")
    assert found["port"] == ("ok", f"127.0.0.1:{port} is free")
    (folder / "second.onnx").unlink()
    (folder / "plans").mkdir(mode=0o755)
    found = found_by_doctor("--config", str(path), "--max-clients", "100000000", status=1)
    assert found["models"] == ("error", f"two@7: there is no {folder / 'second.onnx'}")
    assert "chmod 700" in found["plans"][1]
    assert "LimitNOFILE" in found["open files"][1]
    # Beyond loopback.
    found = found_by_doctor("--listen", "0.0.0.0:0", status=1)
    assert "give --tls DIR" in found["tls"][1]
    assert found_by_doctor("--listen", "0.0.0.0:0", "--insecure-plain-tcp")["tls"][0] == "warning"
    run("keys", str(folder / "keys"), "--host", "localhost", "--token", "bob")
    assert found_by_doctor("--tls", str(folder / "keys" / "server"))["tls"][0] == "ok"
    (folder / "keys" / "server" / "server.key").write_text("no key")
    assert found_by_doctor("--tls", str(folder / "keys" / "server"), status=1)["tls"][0] == "error"
    assert "error" in run("doctor", "--listen", "0.0.0.0:0", status=1)


def test_the_examples_file() -> None:
    entries = config.entries(Path(__file__).parents[1] / "examples" / "server.toml")
    assert [entry.name for entry in entries] == ["digits", "digits-open"]
    assert all(entry.file.exists() for entry in entries)
