"""What is measured, what it means in watts, and when a table no longer fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker.core import calibration, point_records
from stoker.core.opp import ladder, power_table
from stoker.events.operating import Point, PointTable, Setting
from stoker.events.thermal import FrequencyPolicy
from stoker.units import KiloHertz, Watts

STEPS = tuple(KiloHertz(khz) for khz in range(1_500_000, 2_500_000, 100_000))
POLICY = FrequencyPolicy("policy0", (0, 1, 2, 3), STEPS[0], STEPS[-1], STEPS, writable=True)
TABLES = {"policy0": power_table(POLICY, None)}
RUNGS = ladder(list(TABLES.values()))
SIZES = {"policy0": 4}
FULL = (RUNGS.power_max_w, 4)


def point(threads: int, khz: int, rate: float, watts: float = 1.0, phase: str = "decode") -> Point:
    caps = (("policy0", KiloHertz(khz)),) if khz else ()
    return Point(Setting(phase, threads, caps), Watts(watts), rate)


def table(*points: Point, size: int = 0, threads: int = 4) -> PointTable:
    return PointTable("pi", "tiny", "abc", threads, size or len(points), points=points)


def test_the_grid_has_every_thread_count_at_some_clocks_the_hottest_first() -> None:
    grid = calibration.grid(RUNGS, TABLES, 4)
    assert len(grid) == 5 * 4 * 2
    assert grid[0] == Setting("prefill", 4, (("policy0", STEPS[-1]),))
    assert {dict(s.caps)["policy0"] for s in grid} >= {STEPS[0], STEPS[-1]}


def test_without_a_clock_the_grid_is_threads_alone() -> None:
    grid = calibration.grid(None, {}, 2)
    assert [(s.phase, s.threads, s.caps) for s in grid] == [
        ("prefill", 2, ()), ("decode", 2, ()), ("prefill", 1, ()), ("decode", 1, ()),
    ]  # fmt: skip


@pytest.mark.parametrize("most", [1, 2, 4, 8, 32, 128])
def test_thread_counts_end_at_the_most_and_do_not_take_an_hour(most: int) -> None:
    counts = calibration.thread_counts(most)
    assert counts[0] == 1
    assert counts[-1] == most
    assert len(counts) <= 16


def test_estimated_watts_grow_with_busy_cpus_and_clock_and_decode_takes_less() -> None:
    def at(threads: float, khz: int, phase: str = "prefill") -> float:
        setting = Setting(phase, round(threads), (("policy0", KiloHertz(khz)),))
        return calibration.estimate_w(TABLES, SIZES, setting, threads, FULL)

    assert at(4, STEPS[-1]) == pytest.approx(FULL[0])
    assert at(2, STEPS[-1]) == pytest.approx(FULL[0] / 2)
    assert at(4, STEPS[0]) < at(4, STEPS[-1])
    assert at(4, STEPS[-1], "decode") == pytest.approx(0.8 * FULL[0])
    assert calibration.estimate_w({}, {}, Setting("prefill", 1), 1.0, FULL) == FULL[0] / 4


def test_clocks_between_two_measured_ones_are_filled_in() -> None:
    low, high = point(4, STEPS[0], 15.0, 1.0), point(4, STEPS[-1], 24.0, 3.0)
    full = calibration.filled([low, high, point(1, STEPS[-1], 8.0)], RUNGS, TABLES)
    four = sorted((p for p in full if p.setting.threads == 4), key=lambda p: p.watts)
    assert [dict(p.setting.caps)["policy0"] for p in four] == list(STEPS)
    assert [p.tokens_per_s for p in four] == sorted(p.tokens_per_s for p in four)
    assert four[5].tokens_per_s == pytest.approx(20.0)
    assert 1.0 < four[5].watts < 2.2  # V² rises late
    assert sum(p.setting.threads == 1 for p in full) == 1


def test_metered_watts_are_scaled_to_those_of_the_budget() -> None:
    found = table(point(4, STEPS[0], 15.0, 2.0), point(4, STEPS[-1], 24.0, 8.0))
    assert calibration.scaled(found, Watts(4.0)) == found.points
    scaled = calibration.scaled(replace(found, metered=True), Watts(4.0))
    assert [p.watts for p in scaled] == [1.0, 4.0]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (table(point(4, STEPS[0], 1.0), size=2), "1 of 2 points"),
        (table(point(2, STEPS[0], 1.0), threads=2), "2 threads, not 4"),
        (table(point(4, 1_550_000, 1.0)), "other frequency steps"),
        (table(point(4, 0, 1.0)), "other rights"),
        (table(point(4, STEPS[0], 1.0)), ""),
    ],
)
def test_a_table_that_does_not_fit_says_why(found: PointTable, why: str) -> None:
    reason = calibration.usable(found, TABLES, 4, clocks=True)
    assert (why in reason) if why else reason == ""


def test_a_table_survives_the_disk_and_a_damaged_one_is_left_out() -> None:
    good = table(point(4, STEPS[0], 1.0), point(1, 0, 2.0, phase="prefill"))
    state = point_records.to_state([good])
    assert point_records.from_state(state) == (good,)
    entries = state["tables"]
    assert isinstance(entries, list)
    for damage in ({"threads": 0}, {"points": [{"phase": "x"}]}, {"more": 1}):
        broken = {**state, "tables": [{**entries[0], **damage}, entries[0]]}
        assert point_records.from_state(broken) == (good,)
    assert point_records.from_state({"version": 1, "tables": [7, None]}) == ()
    assert point_records.from_state({"version": 99, "tables": entries}) == ()


def test_tables_are_kept_by_board_and_model_and_the_oldest_goes() -> None:
    many = [replace(table(point(1, 0, 1.0)), fingerprint=str(n)) for n in range(20)]
    kept: tuple[PointTable, ...] = ()
    for one in many:
        kept = point_records.put(kept, one)
    assert len(kept) == point_records.MOST_TABLES
    assert point_records.find(kept, "pi", "19") is not None
    assert point_records.find(kept, "pi", "0") is None
    assert len(point_records.put(kept, kept[3])) == len(kept)
