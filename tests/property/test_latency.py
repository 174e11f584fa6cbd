"""Histograms of waiting times keep what they were told, and their quantiles lie in the bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.latency import BOUNDS_S, Histogram, together
from stoker.runner import gaps

WAITS = st.lists(st.floats(0.0, 200.0), max_size=60)


def _of(waits: list[float]) -> Histogram:
    out = Histogram()
    for wait in waits:
        out = out.seen(wait)
    return out


@given(WAITS)
def test_every_wait_is_counted_at_its_bound_and_above(waits: list[float]) -> None:
    cumulated = _of(waits).cumulated()
    for bound, count in zip(BOUNDS_S, cumulated, strict=False):
        assert count == sum(1 for wait in waits if wait <= bound)
    assert cumulated[-1] == len(waits) == _of(waits).total


@given(WAITS, WAITS)
def test_what_is_taken_away_again_leaves_the_rest(first: list[float], second: list[float]) -> None:
    both = _of(first).plus(_of(second))
    assert together([_of(first), _of(second)]) == both
    assert both.minus(_of(first)).cumulated() == _of(second).cumulated()
    assert both.sum_s == pytest.approx(sum(first) + sum(second))


@given(st.lists(st.floats(0.0, 65.0), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_a_quantile_is_within_a_factor_of_two_of_the_true_one(
    waits: list[float], part: float
) -> None:
    found = _of(waits).quantile_s(part)
    exact = sorted(waits)[min(len(waits) - 1, max(0, -int(-part * len(waits) // 1) - 1))]
    assert found is not None
    assert found <= max(exact * 2, BOUNDS_S[0]) + 1e-9
    assert found >= exact / 2 - 1e-9


def test_without_observations_there_is_no_quantile() -> None:
    assert Histogram().quantile_s(0.99) is None


@given(st.lists(st.floats(0.0, 300.0), max_size=40))
def test_the_runner_counts_in_the_same_buckets(found: list[float]) -> None:
    """It may not import the core, so that its buckets are written down twice."""
    counted = gaps.Gaps()
    for gap in found:
        counted.add(gap)
    ours = Histogram(tuple(counted.counts()))
    assert len(BOUNDS_S) + 1 == gaps.SIZE
    assert ours.total == len(found)
    for part in (0.5, 0.99):
        wanted = (ours.quantile_s(part) or 0.0) * 1e3
        assert counted.quantile_ms(part) == pytest.approx(wanted)
    # whole milliseconds: a gap at a bound may count as just above it, none goes below its own
    for bound, ours_below, exact_below in zip(
        BOUNDS_S, ours.cumulated(), _of(found).cumulated(), strict=False
    ):
        exact_at = sum(1 for gap in found if bound <= gap < bound + 1e-3)
        assert exact_below - exact_at - len([g for g in found if g == bound]) <= ours_below
        assert ours_below <= exact_below
