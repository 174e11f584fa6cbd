"""When a reading is believed, and how the level moves when it is not."""

from __future__ import annotations

import pytest

from stoker.core.failsafe import TABLE, Level, Limits, Sample, Signal, Trust, move, step
from stoker.units import Celsius, Seconds, Watts

LIMITS = Limits(stop_c=Celsius(105.0), power_change_w=Watts(0.5))


class Watcher:
    def __init__(self, start_c: float = 60.0, power: float = 2.0) -> None:
        self.now = 0.0
        self.trust = Trust(seen_s=Seconds(0.0))
        self.feed(start_c, 3, power=power)

    def feed(
        self,
        value: float | None,
        times: int = 1,
        dt: float = 0.1,
        power: float = 2.0,
        fault: str = "EIO",
    ) -> Level:
        for _ in range(times):
            self.now += dt
            reading = None if value is None else Celsius(value)
            sample = Sample(Seconds(self.now), reading, fault if value is None else "")
            sample = Sample(sample.now_s, reading, sample.fault, Watts(power))
            self.trust = step(LIMITS, self.trust, sample)
        return self.trust.level


def test_the_table_names_every_level_for_every_signal() -> None:
    assert set(TABLE) == set(Signal)
    for signal in Signal:
        for level in Level:
            assert isinstance(move(level, signal), Level)


def test_no_signal_but_good_or_proven_lowers_the_level() -> None:
    for signal in set(Signal) - {Signal.GOOD, Signal.PROVEN}:
        for level in Level:
            assert move(level, signal) >= level


def test_missing_holds_after_1_s_is_safe_after_3_s_and_stops_after_10_s() -> None:
    watch = Watcher()
    assert watch.feed(None, 9) is Level.OK
    assert watch.feed(None, 1) is Level.DEGRADED
    assert watch.feed(None, 19) is Level.DEGRADED
    assert watch.feed(None, 1) is Level.SAFE
    assert watch.feed(None, 69) is Level.SAFE
    assert watch.feed(None, 1) is Level.STOP
    assert "EIO" in watch.trust.reason


def test_a_gap_shorter_than_a_second_costs_nothing() -> None:
    watch = Watcher()
    watch.feed(None, 5)
    assert watch.feed(60.0) is Level.OK


def test_degraded_ends_with_the_first_reading_but_safe_needs_two_good_seconds() -> None:
    watch = Watcher()
    watch.feed(None, 15)
    assert watch.feed(60.0) is Level.OK
    watch.feed(None, 40)
    assert watch.feed(60.0, 15) is Level.SAFE
    assert watch.feed(60.0, 10) is Level.OK


@pytest.mark.parametrize("value", [0.0, -274.0, -256.0])
def test_sentinels_are_missing_values_not_temperatures(value: float) -> None:
    watch = Watcher()
    watch.feed(value, 12)
    assert watch.trust.level is Level.DEGRADED
    assert watch.trust.median_c == 60.0
    assert "no data" in watch.trust.reason


def test_one_spike_is_swallowed_by_the_median() -> None:
    watch = Watcher()
    for spike in (110.0, 126.0, -40.0, 20.0):
        assert watch.feed(spike) is Level.OK
        assert watch.feed(60.0, 5) is Level.OK
        assert watch.trust.median_c == 60.0


def test_values_out_of_range_are_implausible_when_they_stay() -> None:
    assert Watcher().feed(130.0, 2) is Level.SAFE
    assert Watcher().feed(-40.0, 2) is Level.SAFE


def test_a_jump_faster_than_heat_is_implausible() -> None:
    assert Watcher().feed(85.0, 2) is Level.SAFE


def test_a_coarse_sensor_that_steps_twice_is_not_a_jump() -> None:
    assert Watcher().feed(61.84, 2) is Level.OK


def test_fifteen_kelvin_in_one_second_is_believed_at_slow_sampling() -> None:
    watch = Watcher()
    watch.feed(60.0, 3, dt=1.0)
    assert watch.feed(75.0, 3, dt=1.0) is Level.OK


def test_near_the_critical_trip_everything_stops_until_it_is_clearly_cooler() -> None:
    watch = Watcher(104.0)
    assert watch.feed(106.0, 2) is Level.STOP
    assert watch.feed(102.0, 50) is Level.STOP
    assert watch.feed(99.5, 25) is Level.OK


def test_frozen_under_changing_power_is_suspect_and_ends_when_it_moves() -> None:
    watch = Watcher()
    watch.feed(60.0, 300, power=2.0)
    assert watch.feed(60.0, 400, power=3.0) is Level.OK
    assert watch.feed(60.0, 30, power=3.0) is Level.SAFE  # 42 s at twice the change that counts
    assert "frozen" in watch.trust.reason
    assert watch.feed(60.5, 15, power=3.0) is Level.SAFE
    assert watch.feed(60.5, 10, power=3.0) is Level.OK


@pytest.mark.parametrize("dt", [0.1, 1.0, 5.0])
def test_a_step_to_four_times_the_change_that_counts_is_enough_after_17_s(dt: float) -> None:
    watch = Watcher()
    watch.feed(60.0, 60, dt=dt, power=2.0)
    began_s = watch.now
    while watch.feed(60.0, dt=dt, power=4.0) is Level.OK:
        assert watch.now - began_s < 30.0
    assert 17.0 <= watch.now - began_s <= 17.3 + dt


@pytest.mark.parametrize("power", [0.0, 0.4, 2.0])
def test_frozen_under_steady_power_is_fine(power: float) -> None:
    watch = Watcher(power=power)
    assert watch.feed(60.0, 20_000, power=power) is Level.OK


def test_a_coarse_sensor_of_an_idle_board_may_stand_still_through_short_questions() -> None:
    watch = Watcher(power=0.5)
    for _ in range(60):
        assert watch.feed(60.0, 550, power=0.5) is Level.OK
        assert watch.feed(60.0, 50, power=2.5) is Level.OK


def test_a_step_of_the_sensor_in_the_middle_of_a_burst_is_not_held_against_it() -> None:
    watch = Watcher(power=0.5)
    watch.feed(60.0, 600, power=0.5)
    watch.feed(60.0, 20, power=2.5)
    watch.feed(61.0, 20, power=2.5)
    assert watch.feed(61.0, 20_000, power=0.5) is Level.OK


def test_a_die_that_is_as_hot_as_it_gets_at_once_may_stand_still_there() -> None:
    watch = Watcher(power=0.5)
    watch.feed(60.0, 600, power=0.5)
    watch.feed(66.0, 3, power=2.5, dt=1.0)
    assert watch.feed(66.0, 20_000, power=2.5) is Level.OK


def test_a_sensor_that_froze_as_the_load_began_is_found_out_when_it_ends() -> None:
    watch = Watcher(power=0.5)
    watch.feed(60.0, 600, power=0.5)
    watch.feed(61.0, 2, power=2.5)
    assert watch.feed(61.0, 3000, power=2.5) is Level.OK
    assert watch.feed(61.0, 900, power=0.5) is Level.SAFE


def test_a_frozen_sensor_is_not_believed_again_once_the_power_is_usual() -> None:
    watch = Watcher(power=0.5)
    watch.feed(60.0, 600, power=0.5)
    assert watch.feed(60.0, 300, power=2.5) is Level.SAFE
    assert watch.feed(60.0, 20_000, power=2.5) is Level.SAFE
    assert watch.feed(60.0, 20_000, power=0.5) is Level.SAFE
    assert watch.feed(59.9, 25, power=0.5) is Level.OK


def test_a_meter_that_comes_or_goes_is_no_change_of_power() -> None:
    watch = Watcher(power=0.0)
    for metered in (True, False) * 20:
        for _ in range(600):
            watch.now += 0.1
            power = Watts(8.0 if metered else 0.0)
            sample = Sample(Seconds(watch.now), Celsius(60.0), "", power, metered=metered)
            watch.trust = step(LIMITS, watch.trust, sample)
            assert watch.trust.level is Level.OK


def test_after_a_jump_a_constant_value_proves_nothing() -> None:
    watch = Watcher(78.0)
    assert watch.feed(45.0, 1000) is Level.SAFE
    assert "at once" in watch.trust.reason
    assert watch.feed(45.1, 25) is Level.OK


def test_after_values_out_of_range_the_old_constant_proves_nothing() -> None:
    watch = Watcher()
    assert watch.feed(130.0, 2) is Level.SAFE
    assert watch.feed(60.0, 1000) is Level.SAFE
    assert watch.feed(60.5, 25) is Level.OK


def test_out_of_a_stop_it_need_not_move_as_nothing_heats_it_there() -> None:
    watch = Watcher()
    assert watch.feed(130.0, 110) is Level.STOP
    assert watch.feed(60.0, 1000) is Level.SAFE
    assert watch.feed(60.5, 25) is Level.OK


def test_a_reading_after_a_long_sleep_is_not_compared_with_the_old_ones() -> None:
    watch = Watcher(80.0)
    assert watch.feed(30.0, 1, dt=600.0) is Level.OK
    assert watch.trust.median_c == 30.0


def test_a_sensor_that_stays_out_of_range_stops_after_ten_seconds() -> None:
    watch = Watcher()
    assert watch.feed(130.0, 98) is Level.SAFE
    assert watch.feed(130.0, 3) is Level.STOP


def test_a_spike_right_after_a_long_gap_is_never_the_median() -> None:
    watch = Watcher()
    watch.feed(None, 40)
    watch.feed(-40.0)
    watch.feed(61.0)
    assert watch.trust.median_c == 61.0
