"""Trust levels: who learns what."""

from __future__ import annotations

from pronghorn import _native
from pronghorn.errors import TrustLevelRequired

REVEALS = dict(_native.available_trust_levels())
"""The levels of this version, and what each gives away, in one line."""


def trust_levels() -> str:
    """The table of trust levels, a line each: what each reveals, and which this version has."""
    return _native.trust_levels()


def require(trust: str | None) -> str:
    """The level asked for.

    Raises:
        TrustLevelRequired: none was named, or one that this version does not have.
    """
    if isinstance(trust, str) and trust in REVEALS:
        return trust
    problem = "no trust level was named" if trust is None else f"trust level {trust!r} is not in this version"
    raise TrustLevelRequired(
        f"{problem}; there is no default, since it decides who learns what:\n{trust_levels()}\n"
        f"  what to do: ask for it by name: {' or '.join(f'--trust {level} (trust={level!r})' for level in REVEALS)}"
    )
