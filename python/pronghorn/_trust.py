"""Trust levels: who learns what."""

from __future__ import annotations

from pronghorn import _native
from pronghorn.errors import TrustLevelRequired

AVAILABLE = ("encrypted", "client-aided")

REVEALS = (
    "client-aided: the server learns shapes only, never the images; "
    "the client learns its output AND EVERY WEIGHT of the model"
)
"""What this version's level gives away, in one line."""


def trust_levels() -> str:
    """The table of trust levels, a line each: what each reveals, and which this version has."""
    return _native.trust_levels()


def require(trust: str | None) -> str:
    """The level asked for.

    Raises:
        TrustLevelRequired: none was named, or one that this version does not have.
    """
    if trust in AVAILABLE:
        return str(trust)
    problem = "no trust level was named" if trust is None else f"trust level {trust!r} is not in this version"
    raise TrustLevelRequired(
        f"{problem}; there is no default, since it decides who learns what:\n{trust_levels()}\n"
        "  what to do: ask for it by name: --trust client-aided (trust='client-aided')"
    )
