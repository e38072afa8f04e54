"""What the text of a plan says of its security."""

from __future__ import annotations

import re


def security_bits(plan_text: str) -> int | None:
    """The least security of a plan's steps, as its text says."""
    return min(map(int, re.findall(r"(\d+)-bit security", plan_text)), default=None)
