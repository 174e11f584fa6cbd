"""The judge of the soak: each kind of loss fails the run, and a clean one passes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.soak_report import Ending, Soak, growth_mb, jain, lines, wrong

CLEAN = Soak(
    users=[{"whole": 50, "parts": 5, "tokens": 900}] * 6,
    faults=[],
    memory_mb=[40.0 + 0.01 * second for second in range(100)],
    ending=Ending(files=(17, 17), threads=(6, 6), free_slots=4, slots=4),
)


def test_a_clean_run_passes() -> None:
    assert wrong(CLEAN) == []
    assert any("Jain's index over 6 users 1.0000" in line for line in lines(CLEAN))


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ({"queue": 1}, "1 jobs wait"),
        ({"active": 2}, "2 run"),
        ({"files": (17, 18)}, "open files"),
        ({"threads": (6, 7)}, "threads"),
        ({"free_slots": 3}, "only 3 of 4 slots"),
        ({"sessions_left": 1}, "conversations"),
        ({"rows_left": 1}, "rows"),
        ({"log_faults": ("Traceback",)}, "log: Traceback"),
    ],
)
def test_whatever_is_left_behind_fails(left: dict[str, object], words: str) -> None:
    ending = replace(CLEAN.ending, **left)  # type: ignore[arg-type]
    assert words in "\n".join(wrong(replace(CLEAN, ending=ending)))


def test_lost_or_mixed_words_fail() -> None:
    assert wrong(replace(CLEAN, faults=["u1a2: said 'x', wanted 'y'"]))
    assert wrong(replace(CLEAN, users=[{"whole": 1, "faults": 1}]))
    assert wrong(replace(CLEAN, users=[{"parts": 9}]))
    assert wrong(replace(CLEAN, users=[{"whole": 10, "diverged": 3}]))


def test_memory_that_grows_fails_and_warming_up_does_not() -> None:
    rising = [40.0 + second for second in range(100)]
    assert growth_mb(rising) == pytest.approx(50.0)
    assert wrong(replace(CLEAN, memory_mb=rising))
    warming = [20.0 + min(second, 20) for second in range(100)]
    assert wrong(replace(CLEAN, memory_mb=warming)) == []
    assert growth_mb([1.0, 2.0]) == 0.0


def test_the_fairness_index_is_one_for_equals_and_one_nth_for_a_monopoly() -> None:
    assert jain([5.0] * 6) == pytest.approx(1.0)
    assert jain([5.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([0.0, 0.0]) == 0.0
