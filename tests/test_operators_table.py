"""The table of operators in the documents is what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_document_holds_the_table() -> None:
    script = ROOT / "scripts" / "operators.py"
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, encoding="utf-8")
    table = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    assert run.stdout == table, "print it again: scripts/operators.py > docs/operators.md"
