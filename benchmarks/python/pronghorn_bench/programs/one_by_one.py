"""A client of Pronghorn as a process of its own, which predicts one image at a time.

The first line of its input has the settings as JSON: `server`, `trust`, `plan_hash`, `images` (an npy file), `timeout`.
Each further line is the number of an image. The answer to each line is a line of JSON.
"""

from __future__ import annotations

import json
import sys
from time import process_time
from typing import Any

import numpy as np

import pronghorn
from pronghorn import _native


def main() -> None:
    """Answers until the input ends."""
    settings = json.loads(sys.stdin.readline())
    images = np.load(settings["images"])
    with pronghorn.connect(
        settings["server"], settings["trust"], plan_hash=settings["plan_hash"], timeout=settings["timeout"]
    ) as client:
        _answer({"version": pronghorn.__version__})
        for line in sys.stdin:
            outputs = client.predict(images[int(line) :][:1])
            stats = client.last_stats
            assert stats is not None
            _answer(
                {
                    "seconds": stats.seconds,
                    "sent": stats.bytes_sent,
                    "received": stats.bytes_received,
                    "processor_seconds": process_time(),
                    "peak_memory_bytes": _native.peak_memory_bytes(),
                    "outputs": np.asarray(outputs, np.float64).ravel().tolist(),
                }
            )


def _answer(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
