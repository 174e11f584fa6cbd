"""The judge of the soak: each kind of loss fails the run, and a clean one passes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from bench import soak, soak_report, soak_user
from bench.soak_report import Ending, Soak, growth_mb, jain, lines, runner_growth_mb, wrong

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


def lives(*peaks_mb: float) -> list[list[float]]:
    return [[20.0, peak - 1.0, peak, peak] for peak in peaks_mb]


def test_runners_that_grow_from_life_to_life_fail() -> None:
    steady = lives(*[30.0, 31.0, 29.0] * 4)
    assert wrong(replace(CLEAN, runners_mb=steady)) == []
    growing = lives(*(30.0 + 3 * life for life in range(12)))
    assert runner_growth_mb(growing) == pytest.approx(24.0)
    assert "memory of the runner grew" in "\n".join(wrong(replace(CLEAN, runners_mb=growing)))
    hardly_seen = [[500.0], *steady, [500.0]]
    assert runner_growth_mb(hardly_seen) == pytest.approx(0.0, abs=2.0)


def test_a_runner_that_lives_on_is_compared_with_itself() -> None:
    rising = [[40.0 + second for second in range(100)]]
    assert runner_growth_mb(rising) == pytest.approx(50.0)
    assert wrong(replace(CLEAN, runners_mb=rising))
    assert runner_growth_mb([]) == 0.0


def test_unfair_shares_of_real_users_fail_a_long_run() -> None:
    unfair = [{"whole": 9, "tokens": 900 if number < 3 else 90} for number in range(6)]
    long = replace(CLEAN, users=unfair, seconds=60.0, real_users=True)
    assert "Jain's index over 6 users is 0.59" in "\n".join(wrong(long))
    assert wrong(replace(long, seconds=59.0)) == []
    assert wrong(replace(long, real_users=False)) == []
    assert wrong(replace(long, users=CLEAN.users)) == []


def test_results_of_two_engines_stand_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "results" / "soak.json"
    for engine in ("echo", "llama", "echo"):
        soak.keep(path, soak_report.metrics(replace(CLEAN, seconds=600.0), engine))
    kept = json.loads(path.read_text(encoding="utf-8"))["metrics"]
    keys = {key.removeprefix("soak.echo.") for key in kept if key.startswith("soak.echo.")}
    assert kept.keys() == {f"soak.{engine}.{key}" for engine in ("echo", "llama") for key in keys}
    assert keys == {
        "whole_answers", "cut_answers", "kills", "diverged", "wrong", "jain",
        "stokerd_growth_mb", "runner_growth_mb", "files_left", "threads_left",
    }  # fmt: skip
    assert kept["soak.echo.whole_answers"] == {"value": 300, "unit": "in 600 s"}
    assert all(row.get("met", True) for row in kept.values())


def test_what_failed_stands_in_the_results_as_not_met() -> None:
    bad = replace(CLEAN, faults=["u1a2: said 'x'"], ending=Ending(files=(1, 3), free_slots=4))
    rows = soak_report.metrics(bad, "echo")
    assert rows["soak.echo.wrong"]["met"] is False
    assert rows["soak.echo.files_left"] == {"value": 2, "unit": "", "target": "≤ 0", "met": False}


class Pipe:
    def __init__(self) -> None:
        self.last: Counter[str] = Counter()

    def send(self, obj: object, /) -> None:
        assert isinstance(obj, tuple)
        self.last = Counter(obj[0])


def test_only_conversations_that_a_killed_app_had_open_may_stay() -> None:
    pipe = Pipe()
    seen = soak_user.Seen(report=pipe)
    user = soak.User(0, None, None)  # type: ignore[arg-type]
    for told, left in (("sessions begun", 1), ("sessions begun", 2), ("sessions gone", 1)):
        seen.tell(told)
        user.now = pipe.last  # at once: it may be killed now
        assert user.sessions_open == left


def test_the_fairness_index_is_one_for_equals_and_one_nth_for_a_monopoly() -> None:
    assert jain([5.0] * 6) == pytest.approx(1.0)
    assert jain([5.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([0.0, 0.0]) == 0.0
