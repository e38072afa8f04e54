"""Clients for event loops, and clients that are cancelled."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pronghorn
from helpers import Line, floats, model, node
from pronghorn.errors import RunError

TRUST = "client-aided"


@pytest.fixture(scope="module")
def net() -> pronghorn.Model:
    """6 -> 5, ReLU, -> 3."""
    nodes = [node("Gemm", "x w", "g"), node("Relu", "g", "r"), node("Gemm", "r v", "y")]
    return pronghorn.load(model(nodes, ("N", 6), {"w": floats(6, 5), "v": floats(5, 3)}), input_range=(0, 1))


class Served:
    """A server with its log, and a line to it that stops after a kilobyte of a prediction."""

    def __init__(self, server: pronghorn.Server, log: list[pronghorn.LogLine]) -> None:
        self.address, self.log = server.address, log

    def line(self) -> Line:
        return Line(self.address, 1000)

    def wait_for(self, text: str) -> None:
        for _ in range(600):
            if text in "\n".join(self.log):
                return
            threading.Event().wait(0.05)
        raise AssertionError(self.log)


@pytest.fixture
def served(net: pronghorn.Model) -> Iterator[Served]:
    log: list[pronghorn.LogLine] = []
    with pronghorn.serve(net, "127.0.0.1:0", TRUST, log=log.append) as server:
        yield Served(server, log)


def inputs(count: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(0, 1, (count, 6)).astype(np.float32)


def test_predictions_of_an_event_loop(net: pronghorn.Model, served: Served) -> None:
    wanted = net.compiled(TRUST).run_fixed(inputs(40))

    async def predict() -> tuple[list[np.ndarray], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        async with await pronghorn.connect_async(served.address, TRUST) as client:
            found = await asyncio.gather(*(client.predict(inputs(40)[10 * part :][:10]) for part in range(4)))
            quantised = await client.quantise(iter([inputs(40)]))
            np.testing.assert_array_equal(await client.predict(quantised), wanted)
            classes = (await client.classify(inputs(40))).classes
            assert client.last_stats is not None
            assert client.last_stats.images == 40
            assert classes is not None
            np.testing.assert_array_equal(classes, wanted.argmax(axis=1))
            with pytest.raises(pronghorn.InputError):
                await client.predict(np.zeros((1, 7)))
        ticking.cancel()
        with pytest.raises(RunError, match="closed"):
            client.client.predict(inputs(1))
        return list(found), ticks

    found, ticks = asyncio.run(predict())
    np.testing.assert_array_equal(np.concatenate(found), wanted)
    assert ticks > 10


def test_a_cancelled_task_ends_the_work_of_both_parties(served: Served) -> None:
    async def predict() -> None:
        line = served.line()
        client = await pronghorn.connect_async(line.address, TRUST)
        running = asyncio.create_task(client.predict(inputs(300)))
        queued = asyncio.create_task(client.predict(inputs(1)))
        await asyncio.to_thread(line.held.wait, 60)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        # Only the call that waited is gone.
        assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        line.go_on.set()
        with pytest.raises(RunError):
            await client.predict(inputs(1))
        await client.close()
        async with await pronghorn.connect_async(served.address, TRUST) as again:
            assert len(await again.predict(inputs(2))) == 2

    asyncio.run(predict())
    served.wait_for("the client's user cancelled")


def test_a_cancelled_task_leaves_no_error_behind(served: Served) -> None:
    """`asyncio` complains of errors that nobody retrieves when their futures go."""
    complaints: list[dict[str, Any]] = []

    async def predict(cancels: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        line = served.line()
        client = await pronghorn.connect_async(line.address, TRUST)
        running = asyncio.create_task(client.predict(inputs(300)))
        await asyncio.to_thread(line.held.wait, 60)
        for _ in range(cancels):
            running.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await running
        line.go_on.set()
        await client.close()
        await asyncio.sleep(0)
        del running
        gc.collect()

    for cancels in (1, 2):
        asyncio.run(predict(cancels))
    assert not complaints


def test_closing_ends_what_runs(served: Served) -> None:
    async def close() -> None:
        line = served.line()
        async with await pronghorn.connect_async(line.address, TRUST) as client:
            running = asyncio.create_task(client.predict(inputs(300)))
            await asyncio.to_thread(line.held.wait, 60)
        with pytest.raises(RunError) as caught:
            await running
        assert caught.value.code == "cancelled"

    asyncio.run(close())


def test_connecting_is_cancelled(served: Served) -> None:
    async def connect() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = "{}:{}".format(*silent.getsockname())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await pronghorn.connect_async(address, TRUST, timeout=1000)

    asyncio.run(connect())


def test_a_client_is_cancelled_from_any_thread(served: Served) -> None:
    line = served.line()
    client = pronghorn.connect(line.address, TRUST)
    raised: list[RunError] = []

    def predict() -> None:
        try:
            client.predict(inputs(300))
        except RunError as error:
            raised.append(error)

    thread = threading.Thread(target=predict)
    thread.start()
    assert line.held.wait(60)
    client.cancel()
    thread.join(60)
    assert [(error.code, error.retryable) for error in raised] == [("cancelled", False)]
    line.go_on.set()
    with pytest.raises(RunError):
        client.predict(inputs(1))
    client.close()
    served.wait_for("the client's user cancelled")


def test_the_child_of_a_fork_is_refused(served: Served) -> None:
    """It has the client, and not its thread."""

    async def connect() -> pronghorn.AsyncClient:
        client = await pronghorn.connect_async(served.address, TRUST)
        await client.predict(inputs(1))
        return client

    client = asyncio.run(connect())
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(client.predict(inputs(1)))
        except RunError as error:
            code = 0 if error.code == "forked" else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(asyncio.run(client.predict(inputs(2)))) == 2
    asyncio.run(client.close())
