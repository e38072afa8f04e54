"""How processes of the command line end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable


def interrupt_on_signals() -> None:
    """Makes SIGINT and SIGTERM a KeyboardInterrupt; a shell starts background jobs with SIGINT
    ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def end_gently(act: Callable[[], None]) -> Callable[[], None]:
    """Does this at the first SIGTERM, on a thread of its own; the second one is a KeyboardInterrupt.

    Returns: what waits until it is done, where it has begun.
    """
    begun: list[threading.Thread] = []

    def handle(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        begun.append(threading.Thread(target=act, name="pronghorn drain", daemon=True))
        begun[0].start()

    def wait() -> None:
        for thread in begun:
            thread.join()

    signal.signal(signal.SIGTERM, handle)
    return wait


def on_hangup(act: Callable[[], None]) -> None:
    """Does this at each SIGHUP, on a thread of its own; one that comes meanwhile is served after it."""
    wanted = threading.Event()

    def work() -> None:
        while True:
            wanted.wait()
            wanted.clear()
            act()

    threading.Thread(target=work, name="pronghorn reload", daemon=True).start()
    signal.signal(signal.SIGHUP, lambda number, frame: wanted.set())


def end_with_stdin() -> None:
    """Ends this process when whoever started it is gone."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):  # Not a buffered read: it holds a lock at exit.
            pass
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=wait, daemon=True).start()
