"""The power controller: direction, slew, release, clamp, independence of the period."""

from __future__ import annotations

import pytest

from stoker.core.pid import PidGains, PidInput, PidState, hold, start, step
from stoker.units import Celsius, Kelvin, Seconds, Watts

GAINS = PidGains(gain_w_per_k=1 / 12.6, power_min_w=Watts(0.3), power_max_w=Watts(3.0))
WALL = Celsius(80.0)


def sample(
    temperature: float, dt: float = 0.1, ceiling: float = 9.0, rise: bool = True
) -> PidInput:
    return PidInput(Celsius(temperature), WALL, Seconds(dt), Watts(ceiling), rise)


def settled(temperature: float, budget: float) -> PidState:
    error = Kelvin(80.0 - 1.5 - temperature)
    return PidState(Watts(budget), Celsius(temperature), 0.0, error)


def test_starts_with_the_full_budget() -> None:
    assert start(GAINS).budget_w == 3.0


def test_the_first_sample_above_the_wall_does_not_kick() -> None:
    _, budget = step(GAINS, start(GAINS), sample(85.0))
    assert 2.9 < budget < 3.0


def test_above_the_wall_the_budget_falls_and_below_it_rises() -> None:
    assert step(GAINS, settled(82.0, 2.0), sample(82.0))[1] < 2.0
    assert step(GAINS, settled(77.0, 2.0), sample(77.0))[1] > 2.0


def test_a_rising_slope_lowers_the_budget_before_the_target_is_reached() -> None:
    state = settled(74.0, 2.0)
    for number in range(29):
        state, budget = step(GAINS, state, sample(74.0 + 0.15 * (number + 1)))
    assert state.filtered_c is not None
    assert state.filtered_c < 78.0
    assert state.error_k < 0
    assert step(GAINS, state, sample(78.5))[1] < budget  # long before 78.5 °C is filtered


def test_the_slope_of_a_quick_die_is_not_drawn_out_for_ever() -> None:
    state = settled(70.0, 2.0)
    for _ in range(3):
        state, _ = step(GAINS, state, sample(78.0))
    assert state.slope_k_per_s > 1.0
    assert state.filtered_c is not None
    assert state.error_k == pytest.approx(78.5 - state.filtered_c - 1.0)


def run(state: PidState, temperature: float, seconds: float) -> PidState:
    for _ in range(round(seconds / 0.1)):
        state, _ = step(GAINS, state, sample(temperature))
    return state


def test_the_margin_shrinks_while_the_temperature_stands_still_at_the_target() -> None:
    state = run(settled(78.5, 2.0), 78.5, 60.0)
    assert state.margin_k is not None
    assert 0.9 < state.margin_k < 1.2  # 1 / e of the way from 1.5 to 0.75 is left
    assert run(settled(60.0, 3.0), 60.0, 60.0).margin_k == 1.5, "nothing is limited there"


def test_the_margin_grows_again_when_the_wall_comes_near() -> None:
    near = run(settled(78.5, 2.0), 78.9, 300.0)
    assert near.margin_k is not None
    assert near.margin_k < 1.0
    scared = run(near, 79.6, 2.0)
    assert scared.margin_k is not None
    assert scared.margin_k > near.margin_k + 0.4


def test_a_new_load_after_a_cool_time_meets_the_whole_margin() -> None:
    settled_near = run(settled(78.5, 2.0), 78.9, 300.0)
    cooled = run(settled_near, 70.0, 2.0)
    assert cooled.margin_k == 1.5


def test_falls_at_most_twice_the_full_power_per_second() -> None:
    _, budget = step(GAINS, settled(70.0, 3.0), sample(125.0, dt=0.1))
    assert budget >= 3.0 - 2.0 * 3.0 * 0.1 - 1e-9


def test_rises_slowly_near_the_target_and_fast_when_clearly_cool() -> None:
    _, near = step(GAINS, settled(76.0, 1.0), sample(70.0, dt=0.1))
    assert near - 1.0 <= 0.1 * 3.0 * 0.1 + 1e-9
    _, cool = step(GAINS, settled(60.0, 1.0), sample(60.0, dt=0.1))
    assert cool - 1.0 == pytest.approx(1.0 * 3.0 * 0.1)


def test_does_not_rise_when_told_not_to() -> None:
    assert step(GAINS, settled(60.0, 1.0), sample(60.0, rise=False))[1] == 1.0


def test_follows_a_lower_cap_of_the_kernel_and_goes_on_from_there_without_a_bump() -> None:
    state, budget = step(GAINS, settled(77.5, 2.5), sample(77.5, ceiling=1.2))
    assert budget == 1.2
    state, budget = step(GAINS, state, sample(77.5))
    assert budget - 1.2 <= 0.1 * 3.0 * 0.1 + 1e-9


def test_long_saturation_does_not_wind_up() -> None:
    state = settled(95.0, 0.3)
    for _ in range(10_000):
        state, _ = step(GAINS, state, sample(95.0))
    rises = 0
    while step(GAINS, state, sample(70.0))[1] <= 0.31:
        state, _ = step(GAINS, state, sample(70.0))
        rises += 1
        assert rises < 30, "the budget must move within 3 s of cooling"


def test_the_period_does_not_change_the_law() -> None:
    budgets = []
    for dt in (0.05, 0.1, 0.25):
        state = settled(78.5, 2.0)
        for _ in range(round(10 / dt)):
            state, budget = step(GAINS, state, sample(79.5, dt=dt))
        budgets.append(budget)
    assert max(budgets) - min(budgets) < 0.02


def test_a_stalled_tick_integrates_no_more_than_two_seconds() -> None:
    _, stalled = step(GAINS, settled(80.0, 2.0), sample(80.0, dt=600.0))
    _, two = step(GAINS, settled(80.0, 2.0), sample(80.0, dt=2.0))
    assert stalled == pytest.approx(two)


def test_hold_sets_the_budget_within_limits() -> None:
    assert hold(settled(70, 2.0), GAINS, Watts(99.0)).budget_w == 3.0
    assert hold(settled(70, 2.0), GAINS, Watts(0.0)).budget_w == 0.3


def test_nan_changes_nothing() -> None:
    state = settled(70.0, 2.0)
    assert step(GAINS, state, sample(float("nan"))) == (state, 2.0)
