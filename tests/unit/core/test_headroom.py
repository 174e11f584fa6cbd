"""Thresholds of the headroom: crossed once each way, never toggled by noise."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from stoker.core.headroom import HYSTERESIS, THRESHOLDS, Crossing, crossed


def test_falling_crosses_each_threshold_once_in_order() -> None:
    below, news = crossed(0, 0.2)
    assert below == 3
    assert news == (Crossing(0.75, False), Crossing(0.5, False), Crossing(0.25, False))
    assert crossed(below, 0.2) == (3, ())


def test_noise_around_a_threshold_says_nothing_again() -> None:
    below, _ = crossed(0, 0.749)
    assert crossed(below, 0.76) == (below, ())
    assert crossed(below, 0.75 + HYSTERESIS) == (0, (Crossing(0.75, True),))


def test_not_a_number_changes_nothing() -> None:
    assert crossed(2, math.nan) == (2, ())


@given(st.lists(st.floats(0, 1), max_size=40))
def test_what_was_said_always_adds_up_to_where_we_are(course: list[float]) -> None:
    below, standing = 0, set[float]()
    for headroom in course:
        below, news = crossed(below, headroom)
        for crossing in news:
            if crossing.above:
                standing.remove(crossing.threshold)
            else:
                assert crossing.threshold not in standing
                standing.add(crossing.threshold)
        assert standing == set(THRESHOLDS[:below])
        assert all(headroom < t + HYSTERESIS for t in standing)
        assert all(headroom >= t for t in THRESHOLDS[below:])
