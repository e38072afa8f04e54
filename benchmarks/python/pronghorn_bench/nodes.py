"""One node and two on a local Ray cluster, behind the same admission service, and one of two that is killed.

`python -m pronghorn_bench.nodes` predicts the same digits by several clients at once with one node and with two, and
again while one of two is killed. Each node has a tenth of a core, as if it were a small machine of its own: on one
machine nodes and clients share the cores, and without that a second node would show nothing.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import pronghorn
from pronghorn import _processes
from pronghorn._data import Preprocessing, load_images
from pronghorn._model import Floats
from pronghorn.cli.config import Entry
from pronghorn.cli.kept import KeptPlans
from pronghorn.cli.options import ModelOptions, Preparation
from pronghorn.cli.serve import Planner
from pronghorn.errors import RunError
from pronghorn_bench.faults import EXAMPLES

PERIOD = 20_000
"""Microseconds over which a share of a core holds."""
START_SECONDS = 300.0
LOOK = 0.02
"""Seconds between two looks at what is done."""


@dataclass(frozen=True)
class Work:
    """What is predicted, and by how many."""

    model: Path
    data: Path
    trust: str
    clients: int
    images: int
    """Of each client."""
    piece: int
    """Images of a piece."""


@dataclass(frozen=True)
class Outcome:
    """What came of it on so many nodes."""

    nodes: int
    killed: int
    seconds: float
    images_per_second: float
    processor_seconds: list[float]
    """Of each node that was there at the end."""
    wrong: int
    """Results other than those of the fixed-point network in the clear, or missing."""


@contextmanager
def _share(process: int, share: float) -> Iterator[None]:
    """A process that gets so much of a core at most.

    Raises:
        RunError: the system does not let this user say so.
    """
    old, new = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    is_old = (old / "cgroup.procs").exists()
    group = (old if is_old else new) / f"pronghorn-{process}"
    try:
        group.mkdir()
        if is_old:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(int(share * PERIOD)))
        else:
            (group / "cpu.max").write_text(f"{int(share * PERIOD)} {PERIOD}")
        (group / "cgroup.procs").write_text(str(process))
    except OSError as error:
        raise RunError(f"no shares of a core ({error}): be root, or give --share 0") from error
    try:
        yield
    finally:
        # A group of a process that is there still cannot go.
        with suppress(OSError):
            (group.parent / "cgroup.procs").write_text(str(process))
        with suppress(OSError):
            group.rmdir()


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def run(work: Work, nodes: int, share: float, is_killed: bool, folder: Path, wanted: Floats) -> Outcome:
    """Predicts with so many nodes, of which one is killed at half the work.

    Raises:
        RunError: a client or the cluster has failed.
    """
    import ray
    from ray.cluster_utils import Cluster

    from pronghorn.on_ray import NAMESPACE, RayNodes

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    machines = [cluster.head_node, *(cluster.add_node(num_cpus=1) for _ in range(nodes - 1))]
    with ExitStack() as stack:
        stack.callback(cluster.shutdown)
        ray.init(address=cluster.address, namespace=NAMESPACE, log_to_driver=False)
        stack.callback(ray.shutdown)
        options = [str(work.model), "--data", str(work.data), "--trust", work.trust, "--threads", "1"]
        options += ["--plans", str(folder / "plans"), "--tickets", str(folder / "key.pub")]
        key = pronghorn.admission_key(folder / "key")
        on_ray = RayNodes(options, host="127.0.0.1")
        deadline = time.monotonic() + START_SECONDS
        while len(on_ray()) < nodes:
            if time.monotonic() > deadline:
                raise RunError(f"the nodes did not start in {START_SECONDS:g} s")
            time.sleep(LOOK)
        processes = [_process(each["NodeID"]) for each in ray.nodes() if each["Alive"]]
        if share:
            for process in processes:
                stack.enter_context(_share(process, share))
        stack.callback(on_ray.drain)
        admission = stack.enter_context(pronghorn.Admission("127.0.0.1:0", on_ray, key))
        began = time.monotonic()
        clients = [_client(work, admission.address, folder / f"{index}.npy") for index in range(work.clients)]
        for client in clients:
            stack.callback(client.kill)
        half = work.clients * -(-work.images // work.piece) // 2
        while is_killed and _done(folder) < half:
            _check(clients)
            time.sleep(LOOK)
        if is_killed:
            cluster.remove_node(machines[-1], allow_graceful=False)
        while any(client.poll() is None for client in clients):
            _check(clients)
            time.sleep(LOOK)
        _check(clients)
        took = time.monotonic() - began
        used = [_processor_seconds(process) for process in processes if Path(f"/proc/{process}").exists()]
    wrong = 0
    for index in range(work.clients):
        found = np.load(folder / f"{index}.npy")
        wrong += len(wanted) if found.shape != wanted.shape else int((found != wanted).any(axis=1).sum())
        (folder / f"{index}.npy").unlink()
    return Outcome(nodes, int(is_killed), took, work.clients * work.images / took, used, wrong)


def _process(machine: str) -> int:
    import ray

    from pronghorn.on_ray import NAMESPACE

    process: int = ray.get(ray.get_actor(f"server-{machine}", NAMESPACE).process.remote())
    return process


def _client(work: Work, address: str, out: Path) -> subprocess.Popen[str]:
    command = [*_processes.COMMAND, "predict", str(work.data), "--trust", work.trust, "--limit", str(work.images)]
    command += ["--batch", "--piece", str(work.piece), "--out", str(out), "--admission", f"http://{address}"]
    return subprocess.Popen([*command, "--threads", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _done(folder: Path) -> int:
    return len(list(folder.glob("*.npy.parts/*.npy")))


def _check(clients: Sequence[subprocess.Popen[str]]) -> None:
    for client in clients:
        if client.poll():
            raise RunError(f"a client ended with status {client.returncode}:\n{client.communicate()[1][-2000:]}")


def line_of(found: Outcome) -> str:
    """What is printed."""
    killed = ", one killed" if found.killed else ""
    used = ", ".join(f"{each:.1f}" for each in found.processor_seconds)
    return (
        f"nodes: {found.nodes}{killed}: {found.images_per_second:.1f} images/s, {found.seconds:.1f} s; processor "
        f"seconds of nodes: {used}; wrong or missing: {found.wrong}"
    )


def main(
    model: Annotated[Path, typer.Option(help="An ONNX file.")] = EXAMPLES / "cryptonets_relu.onnx",
    data: Annotated[Path, typer.Option(help="Its inputs.")] = EXAMPLES / "t10k-images-idx3-ubyte.gz",
    trust: Annotated[str, typer.Option(metavar="LEVEL", help="The trust level.")] = "two-party",
    clients: Annotated[int, typer.Option(min=1, help="Clients at once.")] = 4,
    images: Annotated[int, typer.Option(min=1, help="Images of each.")] = 500,
    piece: Annotated[int, typer.Option(min=1, help="Images of a piece.")] = 10,
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Of a core for each node; 0: no bound.")] = 0.1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict with one node, with two, and with two of which one is killed."""
    work = Work(model, data, trust, clients, images, piece)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="pronghorn-nodes-") as name:
        folder = Path(name)
        (folder / "plans").mkdir(mode=0o700)
        entry = Entry(None, model, data, None, ModelOptions(trust=trust), Preparation())
        [(_, plan)] = Planner(KeptPlans(folder / "plans")).plan([entry])
        shown: Any = load_images(data, tuple(plan.compiled.input_shape), Preprocessing()).images[:images]
        wanted = plan.compiled.run_fixed(shown)
        for nodes, is_killed in ((1, False), (2, False), (2, True)):
            outcomes.append(run(work, nodes, share, is_killed, folder, wanted.reshape(len(wanted), -1)))
            if not as_json:
                print(line_of(outcomes[-1]), flush=True)
    if as_json:
        print(json.dumps([asdict(outcome) for outcome in outcomes]))
    if any(outcome.wrong for outcome in outcomes):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
