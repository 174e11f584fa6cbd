"""Operating points: never above the budget, never slower for more watts, nothing dominated kept."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.core import operating_points, spending
from stoker.core.operating_points import (
    MIX_POINTS,
    Front,
    Fronts,
    choose,
    front,
    fronts,
    mean_watts,
    spend,
    thinned,
)
from stoker.core.opp import RISE_MARGIN
from stoker.core.spending import Spending
from stoker.events.operating import PHASES, Choice, Point, Setting
from stoker.units import Seconds, Watts

CALM = settings(deadline=None)  # a busy machine is no fault
watts = st.floats(0.05, 20.0)
rates = st.floats(0.1, 500.0)
phases = st.sampled_from(PHASES)


@st.composite
def measured(draw: st.DrawFn) -> list[Point]:
    """Any points, at least one of each phase."""
    wanted = [*PHASES, *draw(st.lists(phases, max_size=14))]
    return [
        Point(Setting(phase, threads + 1), Watts(draw(watts)), draw(rates))
        for threads, phase in enumerate(wanted)
    ]


def known(points: list[Point]) -> Fronts:
    found = fronts(points)
    assert found is not None
    return found


def mix_rate(fast: dict[str, Choice], share: float) -> float:
    prefill, decode = (fast[phase].tokens_per_s for phase in PHASES)
    return 1.0 / (share / prefill + (1 - share) / decode)


@CALM
@given(measured(), phases)
def test_nothing_dominated_is_kept_and_nothing_better_is_left_out(
    points: list[Point], phase: str
) -> None:
    kept = front(points, phase)
    assert kept
    for low, high in pairwise(kept):
        assert low.watts < high.watts
        assert low.tokens_per_s < high.tokens_per_s
    for point in points:
        if point.setting.phase == phase:
            better = [
                k for k in kept if k.watts <= point.watts and k.tokens_per_s >= point.tokens_per_s
            ]
            assert better


@CALM
@given(measured(), phases, st.floats(0.0, 25.0), st.booleans(), st.data())
def test_a_phase_alone_never_burns_more_than_its_budget(
    points: list[Point], phase: str, budget: float, paces: bool, data: st.DataObject
) -> None:
    kept = front(points, phase)
    held = data.draw(st.none() | st.sampled_from(kept))
    found = choose(kept, Watts(budget), held=held, paces=paces)
    assert found.watts <= budget * (1 + 1e-9)
    assert 0.0 <= found.duty <= 1.0


@CALM
@given(measured(), phases, st.floats(0.0, 25.0), st.data())
def test_a_phase_has_the_fastest_point_that_its_budget_and_the_reserve_allow(
    points: list[Point], phase: str, budget: float, data: st.DataObject
) -> None:
    kept = front(points, phase)
    held = data.draw(st.none() | st.sampled_from(kept))
    best = None
    for point in kept:
        rises = held is not None and point.watts > held.watts and point is not kept[-1]
        if point.watts * (RISE_MARGIN if rises else 1.0) <= budget:
            best = point
    found = choose(kept, Watts(budget), held=held)
    assert found.point == (best or kept[0])
    assert best is None or found.duty == 1.0


long_fronts = st.lists(st.tuples(watts, rates), min_size=2, max_size=300).map(
    lambda found: front([Point(Setting("decode", 1), Watts(w), r) for w, r in found], "decode")
)


@CALM
@given(long_fronts, st.integers(3, 32))
def test_a_thinned_front_keeps_its_ends_and_loses_little(kept: Front, most: int) -> None:
    few = thinned(kept, most)
    assert len(few) <= max(most, 2)
    assert (few[0], few[-1]) == (kept[0], kept[-1])
    assert set(few) <= set(kept)
    span = kept[-1].tokens_per_s / kept[0].tokens_per_s
    loss = span ** (1 / (most - 2)) * (1 + 1e-6)
    for point in kept:
        below = [p for p in few if p.watts <= point.watts]
        assert below[-1].tokens_per_s * loss >= point.tokens_per_s


@CALM
@given(long_fronts, long_fronts, st.sampled_from([0.2, 0.5, 0.8]), st.floats(0.05, 25.0))
def test_a_mix_of_long_fronts_stays_within_its_budget_too(
    one: Front, other: Front, share: float, budget: float
) -> None:
    points = [Point(Setting("prefill", 1), p.watts, p.tokens_per_s) for p in one]
    both = known([*points, *other])
    assert max(len(both.few_prefill), len(both.few_decode)) <= MIX_POINTS
    found = spend(both, share, Watts(budget))
    assert mean_watts(found, share) <= budget * (1 + 1e-9)


@CALM
@given(measured(), phases, st.floats(0.0, 25.0), st.floats(0.0, 25.0), st.booleans())
def test_more_watts_are_never_slower(
    points: list[Point], phase: str, one: float, other: float, paces: bool
) -> None:
    kept = front(points, phase)
    low, high = (choose(kept, Watts(w), paces=paces) for w in sorted((one, other)))
    assert low.tokens_per_s <= high.tokens_per_s * (1 + 1e-9)


@CALM
@given(measured(), st.floats(0.0, 1.0), st.floats(0.0, 25.0), st.booleans())
def test_a_mix_stays_within_the_mean_budget_and_beats_each_phase_by_itself(
    points: list[Point], share: float, budget: float, paces: bool
) -> None:
    both = known(points)
    found = spend(both, share, Watts(budget), paces=paces)
    assert set(found) == set(PHASES)
    assert mean_watts(found, share) <= budget * (1 + 1e-9)
    rounded = operating_points.rounded(share)
    alone = {p: choose(both.of(p), Watts(budget), paces=paces) for p in PHASES}
    if all(choice.duty > 0 for choice in (*found.values(), *alone.values())):
        assert mix_rate(found, rounded) >= mix_rate(alone, rounded) * (1 - 1e-9)


@CALM
@given(measured(), st.floats(0.0, 1.0), st.floats(0.1, 25.0), st.floats(0.1, 25.0))
def test_a_mix_is_never_slower_for_more_watts(
    points: list[Point], share: float, one: float, other: float
) -> None:
    both, rounded = known(points), operating_points.rounded(share)
    low, high = (spend(both, share, Watts(w)) for w in sorted((one, other)))
    assert mix_rate(low, rounded) <= mix_rate(high, rounded) * (1 + 1e-9)


@CALM
@given(measured(), st.sampled_from([0.2, 0.5, 0.8]))
def test_no_rung_of_a_mix_is_beaten_by_any_pair(points: list[Point], share: float) -> None:
    both = known(points)
    ladder = operating_points.rungs(both, share)
    for low, high in pairwise(ladder):
        assert low.watts < high.watts
        assert low.tokens_per_s < high.tokens_per_s
    for prefill in both.prefill:
        for decode in both.decode:
            pair = operating_points._pair(prefill, decode, share)
            assert any(
                rung.watts <= pair.watts and rung.tokens_per_s >= pair.tokens_per_s
                for rung in ladder
            )
            assert min(prefill.watts, decode.watts) <= pair.watts + 1e-9


@CALM
@given(
    measured(),
    st.lists(
        st.tuples(st.floats(0.0, 1.0), st.floats(0.01, 3.0), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    st.floats(0.0, 1.0),
)
def test_from_tick_to_tick_it_falls_at_once_and_rises_only_when_it_may(
    points: list[Point], ticks: list[tuple[float, float, bool]], share: float
) -> None:
    both, state, now = known(points), Spending(), 0.0
    fastest = {phase: Choice(both.of(phase)[-1]) for phase in PHASES}
    shares = {0.0: "decode", 1.0: "prefill"}
    alone = shares.get(operating_points.rounded(share))
    for part, dt, sure in ticks:
        now += dt
        before = state
        state = spending.step(both, state, part, share, Seconds(now), may_rise=sure, paces=False)
        burnt = mean_watts(state.choices, share)
        full = fastest[alone].watts if alone else mean_watts(fastest, share)
        assert burnt <= part * full * (1 + 1e-6) + 1e-12
        if before.choices and not sure:
            assert burnt <= mean_watts(before.choices, share) * (1 + 1e-6)


def test_the_whole_budget_is_the_fastest_there_is_in_any_mix() -> None:
    points = [Point(Setting(p, n), Watts(float(n)), 10.0 * n) for p in PHASES for n in (1, 2, 3)]
    for share in (0.0, 0.3, 1.0):
        found = spending.step(
            known(points), Spending(), 1.0, share, Seconds(0.0), may_rise=True, paces=False
        )
        assert [found.threads(phase) for phase in PHASES] == [3, 3]


def test_an_endless_budget_is_the_fastest_of_each_phase() -> None:
    points = [Point(Setting(p, n), Watts(float(n)), 10.0 - (n - 2) ** 2)
              for p in PHASES for n in (1, 2, 3)]  # fmt: skip
    found = spend(known(points), 0.4, Watts(math.inf))
    assert {phase: choice.point.setting.threads for phase, choice in found.items()} == {
        "prefill": 2,
        "decode": 2,
    }


def test_in_a_mix_decoding_saves_for_the_prompt_what_it_gains_little_from() -> None:
    """Decode gains 2 % for 2 W, prefill 60 %: at 3.2 W for both prefill gets them."""
    points = [
        Point(Setting("decode", 1), Watts(1.0), 10.0),
        Point(Setting("decode", 2), Watts(3.0), 10.2),
        Point(Setting("prefill", 1), Watts(3.0), 100.0),
        Point(Setting("prefill", 2), Watts(5.0), 160.0),
    ]
    alone = spend(known(points), 0.0, Watts(3.2))
    mixed = spend(known(points), 0.9, Watts(3.2))
    assert alone["decode"].point.watts == 3.0
    assert mixed["decode"].point.watts == 1.0
    assert mixed["prefill"].point.watts == 5.0
