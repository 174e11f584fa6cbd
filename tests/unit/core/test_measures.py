"""What is counted of answers and of heat."""

from __future__ import annotations

import pytest

from stoker.core.measures import MAX_KEYS, OTHER, Counted, Heat, Key, Work, fold
from stoker.events.inference import JobTimes, TokenTotals
from stoker.events.thermal import ThermalSnapshot
from stoker.units import Celsius, Fraction, Seconds, Watts

ANSWER = JobTimes(Seconds(0.5), Seconds(0.7), Seconds(2.0), Seconds(1.3), (0, 0, 3))


def _warm(temperature_c: float | None, power_w: float | None = None) -> ThermalSnapshot:
    return ThermalSnapshot(
        "ok",
        None if temperature_c is None else Celsius(temperature_c),
        Celsius(80.0),
        Fraction(1.0),
        "test",
        power_w=None if power_w is None else Watts(power_w),
    )


def test_an_answer_is_counted_once_in_each_histogram() -> None:
    found = Work().ended("stop", ANSWER, TokenTotals(10, 4, 4))
    assert dict(found.ends) == {"stop": 1}
    assert (found.duration.total, found.queue_wait.total, found.first_token.total) == (1, 1, 1)
    assert (found.between_tokens.total, found.between_tokens.sum_s) == (3, 1.3)
    assert found.tokens == TokenTotals(10, 4, 4)


def test_an_answer_that_never_spoke_has_no_first_token() -> None:
    found = Work().ended("cancelled", JobTimes(took_s=Seconds(9.0)), TokenTotals())
    assert found.first_token.total == 0
    assert found.duration.sum_s == 9.0


def test_more_models_than_there_is_room_for_are_counted_together() -> None:
    counted: dict[Key, Work] = {}
    for number in range(MAX_KEYS + 5):
        counted = fold(counted, Key(f"m{number}", "normal"), "stop", ANSWER, TokenTotals())
    assert len(counted) == MAX_KEYS + 1
    assert counted[Key(OTHER, "normal")].ends == {"stop": 5}


def test_time_above_the_wall_and_energy_hold_until_the_next_word() -> None:
    heat = Heat().heard(_warm(70.0, 2.0), Seconds(0.0)).working(True, Seconds(10.0))
    heat = heat.heard(_warm(81.0, 5.0), Seconds(20.0)).working(False, Seconds(22.0))
    heat = heat.heard(_warm(None), Seconds(24.0)).until(Seconds(1000.0))
    assert heat.above_wall_s == pytest.approx(4.0)
    assert heat.energy_j == pytest.approx(20 * 2.0 + 4 * 5.0)
    assert heat.busy_energy_j == pytest.approx(10 * 2.0 + 2 * 5.0)


def test_energy_a_token_needs_a_meter_and_a_token() -> None:
    work = {Key("m", "normal"): Work().ended("stop", ANSWER, TokenTotals(1, 0, 10))}
    assert Counted(work, Heat()).joules_per_token is None
    metered = Heat(busy_energy_j=30.0, metered=True)
    assert Counted({}, metered).joules_per_token is None
    assert Counted(work, metered).joules_per_token == pytest.approx(3.0)
