"""Trust levels: who learns what."""

from __future__ import annotations

from pronghorn import _native
from pronghorn.errors import TrustLevelRequired

REVEALS = dict(_native.available_trust_levels())
"""The levels of this version, and what each gives away, in one line."""

DEFAULT = "two-party"
"""The level where none is named: both the data and the model stay secret."""


def trust_levels() -> str:
    """The table of trust levels, a line each: what each reveals, and which this version has."""
    return _native.trust_levels()


def require(trust: str | None) -> str:
    """The level asked for; where none is, the default.

    Raises:
        TrustLevelRequired: one that this version does not have.
    """
    if trust is None:
        return DEFAULT
    if isinstance(trust, str) and trust in REVEALS:
        return trust
    problem, more = f"there is no trust level {trust!r}", ""
    if trust == "multi-key":
        problem, more = "trust level multi-key has three parties, not two", ", or run `pronghorn multikey`"
    raise TrustLevelRequired(
        f"{problem}; the levels are:\n{trust_levels()}\n"
        f"  what to do: give --trust (trust=) one of {', '.join(REVEALS)}{more}"
    )
