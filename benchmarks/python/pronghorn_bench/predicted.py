"""What a plan says of an image, beside which a run is put."""

from __future__ import annotations

import json
from typing import NamedTuple

from pronghorn._model import Plan
from pronghorn_bench.shaper import LAN, WAN, Network

PLANNED_FOR = {None: "loopback", LAN: "lan", WAN: "wan"}
"""The planner's name for each network between the parties; none: loopback."""
SOURCE = "predicted by the plan"
ON_ONE_CORE = f"{SOURCE}, on one core"


class Predicted(NamedTuple):
    """The cost of an image whose phases run at once."""

    seconds: float
    """On one core, both parties added, in a batch."""
    up: float
    """Bytes of an image alone."""
    down: float
    once: float
    """Bytes of publications and keys, once a client and model."""
    setup: float
    """Bytes of set-ups, once a connection."""
    rounds: int

    @classmethod
    def of(cls, plan: Plan) -> Predicted:
        """Of a plan; seconds are those of an image of its largest batch."""
        cost = json.loads(plan.to_json())["cost"]
        alone, batch, once = cost["one_image"], cost["full_batch"], cost["once"]
        kept = once["client_publication_down"] + once["client_keys_up"]
        setup = 2 * once["connection_ot_setup_each_way"] + once["connection_rows_down"]
        seconds = batch["seconds"] / batch["images"]
        return cls(seconds, alone["bytes_up"], alone["bytes_down"], kept, setup, alone["rounds"])

    @property
    def bytes(self) -> float:
        """Both ways."""
        return self.up + self.down

    def seconds_through(self, network: Network | None) -> float:
        """With the time that the messages of an image are under way."""
        if network is None:
            return self.seconds
        return self.seconds + network.transfer_seconds(self.bytes) + self.rounds * network.round_trip
