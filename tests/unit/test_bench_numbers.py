"""The page of numbers: a section for each file of results that is there, goals as they were met."""

from __future__ import annotations

import json
from pathlib import Path

from bench import fleet, numbers


def test_a_fleets_results_have_a_section_with_their_goals(tmp_path: Path) -> None:
    assert "## Fleet" not in numbers.page(tmp_path)
    metrics = {
        "pull_0ms_mb_s": (123.4, "MB/s"), "pull_ratio_0ms": (0.91, "of raw"),
        "pull_line_40ms": (0.5, "of W·C/RTT"), "campaign_wrong": (0.0, "devices"),
    }  # fmt: skip
    rows = {"metrics": fleet.judged(metrics)}
    (tmp_path / "fleet.json").write_text(json.dumps(rows), encoding="utf-8")
    page = numbers.page(tmp_path)
    assert "## Fleet" in page
    assert "make bench NAME=fleet" in page
    assert "| `pull_0ms_mb_s` | 123.4 MB/s |  |  |" in page
    assert "| `pull_ratio_0ms` | 0.91 of raw | ≥ 0.8 of raw | yes |" in page
    assert "| `pull_line_40ms` | 0.5 of W·C/RTT | ≥ 0.9 of W·C/RTT | **no** |" in page
    assert "| `campaign_wrong` | 0 devices | ≤ 0 devices | yes |" in page
