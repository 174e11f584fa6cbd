"""Slices of the device's past: what changed in them, and how they add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.history import Answers, Extremes, Slice, slice_of, widened
from stoker.core.latency import Histogram
from stoker.core.measures import Counted, Heat, Key, fold
from stoker.events.inference import JobTimes, TokenTotals
from stoker.events.thermal import ThermalSnapshot
from stoker.units import Celsius, Fraction, KiloHertz, Seconds

TIMES = JobTimes(Seconds(0.1), Seconds(0.2), Seconds(1.0), Seconds(0.8), (0, 3))


def _look(temperature_c: float, headroom: float = 1.0, khz: int = 0) -> ThermalSnapshot:
    caps = {"p": KiloHertz(khz)} if khz else {}
    wall = Celsius(80.0)
    return ThermalSnapshot(
        "ok", Celsius(temperature_c), wall, Fraction(headroom), "b", cap_khz=caps
    )


def test_a_slice_has_what_changed_in_it_and_the_extremes() -> None:
    first = fold({}, Key("a", "normal"), "stop", TIMES, TokenTotals(10, 0, 4))
    later = fold(first, Key("a", "interactive"), "unavailable", TIMES, TokenTotals(5, 0, 1))
    before = Counted(first, Heat(energy_j=10.0, metered=True))
    now = Counted(later, Heat(energy_j=130.0, metered=True, above_wall_s=Seconds(3.0)))
    seen = Extremes().heard(_look(60.0, 0.9)).heard(_look(72.0, 0.4, 900_000)).queued(2)
    made = slice_of(0.0, 60.0, before, now, seen.heard(_look(65.0, 0.7)))
    assert (made.temperature_c, made.headroom, made.cap_khz, made.queue) == (72.0, 0.4, 900_000, 2)
    assert (made.power_w, made.above_wall_s) == (2.0, 3.0)
    assert made.answers == {
        "a": Answers(Histogram((0, 3), 0.8), made.answers["a"].duration, 5, 1, 1)
    }
    assert made.answers["a"].duration.total == 1


def test_a_minute_without_a_sensor_and_without_answers_is_not_kept() -> None:
    assert slice_of(0.0, 60.0, Counted(), Counted(), Extremes()).empty
    assert not slice_of(0.0, 60.0, Counted(), Counted(), Extremes().heard(_look(20.0))).empty


SLICES = st.lists(
    st.builds(
        Slice,
        at_s=st.integers(0, 500).map(lambda minute: minute * 60.0),
        temperature_c=st.none() | st.integers(20, 90).map(Celsius),
        power_w=st.none() | st.floats(0.5, 20.0),
        above_wall_s=st.floats(0.0, 60.0),
        queue=st.integers(0, 9),
        answers=st.dictionaries(
            st.sampled_from("ab"),
            st.builds(
                Answers,
                between_tokens=st.lists(st.integers(0, 9), max_size=4).map(
                    lambda counts: Histogram(tuple(counts))
                ),
                completion_tokens=st.integers(0, 100),
            ),
        ),
    ),
    max_size=30,
    unique_by=lambda one: one.at_s,
)


@given(SLICES, st.sampled_from([60.0, 300.0, 3600.0, 1e6]))
def test_wider_columns_lose_nothing(slices: list[Slice], span_s: float) -> None:
    columns = widened(slices, span_s)
    for pick in (
        lambda one: sum(found.between_tokens.total for found in one.answers.values()),
        lambda one: sum(found.completion_tokens for found in one.answers.values()),
        lambda one: one.span_s,
        lambda one: one.above_wall_s,
    ):
        assert sum(map(pick, columns)) == pytest.approx(sum(map(pick, slices)))
    hottest = [one.temperature_c for one in slices if one.temperature_c is not None]
    assert max(hottest, default=None) == max(
        (one.temperature_c for one in columns if one.temperature_c is not None), default=None
    )
    assert [one.at_s for one in columns] == sorted({one.at_s // span_s * span_s for one in slices})
    powers = [one.power_w for one in slices if one.power_w is not None]
    for column in columns:
        if column.power_w is not None:
            assert min(powers) - 1e-9 <= column.power_w <= max(powers) + 1e-9
