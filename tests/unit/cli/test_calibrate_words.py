"""What ``calibrate show`` and ``thermal`` say of operating points."""

from __future__ import annotations

from typing import Any

from stoker.cli import heat_screens, screens
from stoker.cli.terminal import Terminal

PLAIN = Terminal(colour=False)
POINT: dict[str, Any] = {
    "phase": "decode", "threads": 2, "caps_khz": {"policy0": 1_500_000}, "watts": 2.0,
    "tokens_per_s": 9.0, "best": True,
}  # fmt: skip
TABLE: dict[str, Any] = {"board": "pi", "model": "tiny", "size": 3, "metered": False}


def test_without_points_it_says_how_to_get_them() -> None:
    assert "stokerctl calibrate" in heat_screens.operating_points({}, PLAIN)[0]


def test_a_table_marks_the_best_and_names_what_is_missing_once() -> None:
    other = {**POINT, "threads": 1, "caps_khz": {}, "watts": 2.5, "best": False}
    table = {**TABLE, "points": [POINT, other], "skipped": ["too hot for it: 80 °C"] * 2}
    lines = heat_screens.operating_points(table, PLAIN)
    assert lines[0] == "tiny on pi: 2 of 3 points, watts estimated"
    assert lines[3].split() == ["decode", "1", "any", "2.50", "9.0", "3.60"]
    assert lines[4].split() == ["*", "decode", "2", "1.50", "GHz", "2.00", "9.0", "4.50"]
    assert lines.count("too hot for it: 80 °C") == 1


def test_the_thermal_screen_tells_the_point_in_use() -> None:
    facts = {
        "points": "in use", "point_watts": 2.4, "point_tokens_per_s": 24.9, "threads": 3,
        "threads_batch": 4, "duty": 0.5,
    }  # fmt: skip
    assert screens.point(facts, PLAIN) == (
        "in use, 24.9 tokens/s for 2.4 W, 3 threads writing, 4 reading, steps take 50 % of the time"
    )
    assert screens.point({}, PLAIN) == "none"
