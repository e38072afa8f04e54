"""The log of servers."""

from __future__ import annotations

import json
import os
import threading

from pronghorn.cli.log import MOST_WAITING, Log


def test_nobody_waits_for_who_reads_the_log() -> None:
    """A pipe that nobody reads for a while: entries are lost, and counted."""
    reading, writing = os.pipe()
    log = Log(True, 0, os.fdopen(writing, "w"))
    count = 3 * MOST_WAITING
    for index in range(count):
        log("info", "tick", "x" * 100, {"index": index})
    lines: list[dict[str, object]] = []

    def read() -> None:
        with os.fdopen(reading) as file:
            lines.extend(json.loads(line) for line in file)

    reader = threading.Thread(target=read)
    reader.start()
    log("info", "last", "the pipe is read again")
    log.close()
    log._file.close()
    reader.join()
    lost = sum(int(str(line["lines"])) for line in lines if line["event"] == "lost")
    ticks = [line["index"] for line in lines if line["event"] == "tick"]
    assert ticks == sorted(ticks)  # type: ignore[type-var]
    assert 0 < lost == count + 1 - len(ticks) - sum(line["event"] == "last" for line in lines)
