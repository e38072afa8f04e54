"""The bytes of an image: a warning where they are many."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass

from pronghorn import _native
from pronghorn.errors import TrafficWarning

MOST_BYTES = 10**9
"""Users are warned of an image that costs more bytes, both ways."""

_ADVICE = {
    "two-party": "--trust client-aided (trust=), if clients may know the weights",
    "encrypted": "--trust client-aided (trust=), if clients may know the weights",
}
"""The trust level that costs less, by the plan's own."""


@dataclass(frozen=True)
class Traffic:
    """The bytes of an image in a full batch. What comes once for a connection or client is not in them."""

    trust: str
    """The trust level."""
    up: float
    """Bytes from client to server."""
    down: float
    """Bytes from server to client."""
    aim: float
    """The error that the planner aimed at."""

    @classmethod
    def of(cls, compiled: _native.Compiled) -> Traffic:
        """That of a compiled plan."""
        batch = json.loads(compiled.summary_json())["cost"]["full_batch"]
        up, down = (batch[name] / batch["images"] for name in ("bytes_up", "bytes_down"))
        return cls(compiled.trust, up, down, compiled.fidelity["aim"])

    def warning(self) -> str | None:
        """The warning, with what would cost less."""
        if self.up + self.down <= MOST_BYTES:
            return None
        ways = [
            *([_ADVICE[self.trust]] if self.trust in _ADVICE else []),
            f"--error above {self.aim:g} (error=), if results may be less precise",
            "a model with a smaller input",
        ]
        return (
            f"an image costs {(self.up + self.down) / 1e9:.3g} GB: {self.up / 1e9:.3g} GB up and "
            f"{self.down / 1e9:.3g} GB down\n  what costs less: {'; '.join(ways)}"
        )

    def warn(self, stacklevel: int) -> None:
        """Warns where an image costs more than `MOST_BYTES`."""
        text = self.warning()
        if text is not None:
            warnings.warn(text, TrafficWarning, stacklevel=stacklevel + 1)
