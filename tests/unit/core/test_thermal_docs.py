"""docs/thermal.md shows the fail-safe table of the code."""

from __future__ import annotations

from pathlib import Path

from stoker.core.failsafe import TABLE, Signal


def test_the_table_in_the_docs_is_the_table_of_the_code(root: Path) -> None:
    text = (root / "docs" / "thermal.md").read_text()
    for signal in Signal:
        levels = " | ".join(level.name for level in TABLE[signal])
        assert f"| {signal.value} | {levels} |" in text
