"""Asking a server from an event loop: a thread does the work, and a cancelled task ends it."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from pronghorn import _native
from pronghorn._arrays import Inputs
from pronghorn._model import Stats
from pronghorn._network import Client, Quantised, connect_with
from pronghorn._outputs import Predictions
from pronghorn._tls import ClientTls, PathOption

Result = TypeVar("Result")


async def connect_async(
    address: str,
    trust: str | None = None,
    *,
    model: str | None = None,
    plan_hash: str | None = None,
    timeout: float = 60.0,
    threads: int | None = None,
    prepare: int = 0,
    store: str | os.PathLike[str] | None = None,
    tls: PathOption | ClientTls | None = None,
    token: str | os.PathLike[str] | None = None,
    ticket: bytes | Callable[[], bytes] | None = None,
    insecure_plain_tcp: bool = False,
) -> AsyncClient:
    """Connects to a server, as `connect`, while the event loop goes on.

    A task that is cancelled meanwhile ends at once, and the connection is given up.
    """
    cancel, thread = _native.Cancel(), _thread()
    work = functools.partial(
        connect_with,
        cancel,
        address,
        trust,
        model=model,
        plan_hash=plan_hash,
        timeout=timeout,
        threads=threads,
        prepare=prepare,
        store=store,
        tls=tls,
        token=token,
        insecure_plain_tcp=insecure_plain_tcp,
        ticket=ticket,
    )
    connecting = thread.submit(work)
    try:
        client = await asyncio.wrap_future(connecting)
    except BaseException:
        cancel.set()
        connecting.add_done_callback(_close)
        thread.shutdown(wait=False)
        raise
    return AsyncClient(client, thread)


def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="pronghorn client")


def _close(connecting: Future[Client]) -> None:
    """Ends a connection that nobody waits for any more."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()


class AsyncClient:
    """A connection to a server, for an event loop. An async context manager: closed at the end of `async with`.

    Calls run one after the other, each in the client's own thread. A task that is cancelled, such as by
    `asyncio.timeout`, ends the work of its call here and at the server, and with that the session: later calls raise a
    `RunError`, and `connect_async` makes another. A call that still waits for another one to end only leaves the queue.
    The child of `os.fork` cannot use it: a `RunError` of code `forked` says so.
    """

    def __init__(self, client: Client, thread: ThreadPoolExecutor) -> None:
        """Use `connect_async`."""
        self.client = client
        """The client that it calls, for all that asks no server: `plan_hash`, `input_shape`, `plan_json` and so on."""
        self._thread = thread
        self._process = os.getpid()
        self._calls: set[Future[Any]] = set()

    @property
    def last_stats(self) -> Stats | None:
        """What the last prediction cost."""
        return self.client.last_stats

    @property
    def last_beyond_samples(self) -> npt.NDArray[np.bool_] | None:
        """Which of the last prediction's results are beyond those of the server's samples."""
        return self.client.last_beyond_samples

    @property
    def last_clamped(self) -> npt.NDArray[np.bool_] | None:
        """Which of the last prediction's inputs have values far beyond the plan's range."""
        return self.client.last_clamped

    async def quantise(self, x: Inputs | Iterator[Inputs]) -> Quantised:
        """As `Client.quantise`."""
        return await self._call(self.client.quantise, x)

    async def predict(self, x: Inputs | Quantised) -> npt.NDArray[np.float32]:
        """As `Client.predict`. Leave the array as it is meanwhile."""
        return await self._call(self.client.predict, x)

    async def classify(self, x: Inputs | Quantised, *, outputs: str | None = None) -> Predictions:
        """As `Client.classify`."""
        return await self._call(self.client.classify, x, outputs=outputs)

    async def prepare(self, images: int) -> Stats:
        """As `Client.prepare`."""
        return await self._call(self.client.prepare, images)

    async def close(self) -> None:
        """Cancels what runs, and ends the session."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._calls:
            self.client.cancel()
        await asyncio.to_thread(self._thread.shutdown)
        await asyncio.to_thread(self.client.close)

    async def _call(self, act: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        if os.getpid() != self._process:
            # Its thread is the parent's. The core says so; the thread could not.
            return act(*arguments, **options)
        call = self._thread.submit(act, *arguments, **options)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            return await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            if not call.cancel() and not call.done():
                self.client.cancel()
                # Its error is the cancelling itself: `gather` takes it, and nobody complains that none did.
                await asyncio.gather(asyncio.wrap_future(call), return_exceptions=True)
            raise

    async def __aenter__(self) -> AsyncClient:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        await self.close()
