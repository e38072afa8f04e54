"""How many requests each of many may make: as many a minute as are allowed, and as many at once."""

from __future__ import annotations

import ipaddress
import math
import threading
import time

MINUTE = 60.0
MOST = 1 << 16
"""Of whom requests are counted at once. Beyond them nobody new is let through."""


class Rates:
    """Requests of late. Each minute takes as many away as are allowed in one."""

    def __init__(self, most: int, places: int = MOST) -> None:
        """So many a minute, for each of so many."""
        self._most, self._places = most, places
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, float]] = {}
        self._swept = -math.inf

    def take(self, who: str, now: float | None = None) -> bool:
        """Counts a request; whether it is let through."""
        now = time.monotonic() if now is None else now
        with self._lock:
            if who not in self._seen and len(self._seen) >= self._places:
                # Once a second: the table is large, and many may ask.
                if now - self._swept >= 1.0:
                    self._swept = now
                    self._seen = {each: found for each, found in self._seen.items() if now - found[1] < MINUTE}
                if len(self._seen) >= self._places:
                    return False
            level, seen = self._seen.get(who, (0.0, now))
            level = max(0.0, level - (now - seen) / MINUTE * self._most)
            if level + 1 > self._most:
                return False
            self._seen[who] = level + 1, now
            return True


class Amounts:
    """How much each of many has taken of late, where half is forgotten after a time."""

    def __init__(self, most: float, half: float, places: int = MOST) -> None:
        """So much for each of so many, with the seconds of a half."""
        self._most, self._half, self._places = most, half, places
        self._seen: dict[str, tuple[float, float]] = {}
        self._swept = -math.inf

    def take(self, who: str, wanted: float, now: float | None = None) -> float:
        """What is left for somebody of what is wanted, which is taken. Nothing where too many are counted."""
        now = time.monotonic() if now is None else now
        if who not in self._seen and len(self._seen) >= self._places:
            if now - self._swept >= self._half:
                self._swept = now
                self._seen = {each: found for each, found in self._seen.items() if now - found[1] < 10 * self._half}
            if len(self._seen) >= self._places:
                return 0.0
        before, seen = self._seen.get(who, (0.0, now))
        before *= math.exp2((seen - now) / self._half)
        taken = max(0.0, min(wanted, self._most - before))
        self._seen[who] = before + taken, now
        return taken


def network(address: str, bits: int = 64) -> str:
    """What counts as one address: an IPv4 address, and of IPv6 a network of so many bits."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, bits), strict=False))
