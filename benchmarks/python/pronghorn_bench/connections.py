"""What a connection takes of a server's memory.

`python -m pronghorn_bench.connections MODEL` serves the model on random inputs. One client after the other makes two
images and stays connected. Prints the server's resident memory after each (Linux).
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import pronghorn
from pronghorn import _processes
from pronghorn._model import load
from pronghorn_bench.service import resident_bytes

TRUST = "two-party"
SAMPLES = 64


def main(
    model: Annotated[Path, typer.Argument(help="An ONNX file.")],
    network: Annotated[str, typer.Option(help="The network that the model is planned for.")] = "lan",
    clients: Annotated[int, typer.Option(help="Clients, one after the other.", min=2)] = 6,
) -> None:
    """Measures."""
    shape = load(model).input_shape
    inputs = np.random.default_rng(1).standard_normal((SAMPLES, *shape)).astype(np.float32)
    with tempfile.TemporaryDirectory(prefix="pronghorn-") as folder, ExitStack() as stack:
        samples = Path(folder) / "samples.npy"
        np.save(samples, inputs)
        options = ["--data", str(samples), "--network", network]
        server = stack.enter_context(_processes.served(model, TRUST, options))
        found = []
        for client in range(1, clients + 1):
            connection = stack.enter_context(pronghorn.connect(server.address, TRUST))
            for _ in range(2):
                connection.predict(inputs[:1])
            found.append(resident_bytes(server.pid) / 1e6)
            print(f"{client} clients: {found[-1]:.0f} MB")
        print(f"each client after the first: {(found[-1] - found[0]) / (clients - 1):.1f} MB")


if __name__ == "__main__":
    typer.run(main)
