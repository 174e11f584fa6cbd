"""Properties of the thermal loop: limits, tables, monotony, journal, and the wall on plants."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest
from bench.thermal_service import Stoker
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tests.fakes.thermal import preset

from stoker.config.schema import ThermalConfig
from stoker.core.caps import Applied, SetCap
from stoker.core.failsafe import Level, Limits, Sample, Trust
from stoker.core.failsafe import step as trust_step
from stoker.core.opp import RISE_MARGIN, ladder, power_table
from stoker.core.pid import PidGains, PidInput, start, step
from stoker.core.thermal import decide
from stoker.core.thermal import start as start_loop
from stoker.core.thermal_plan import make_plan
from stoker.core.thermal_state import Observation
from stoker.drivers.cap_journal import FileCapJournal
from stoker.drivers.plants import PLANTS, Plant, warmer
from stoker.events.thermal import CapRecord, FrequencyPolicy, Reading, Sensor, Trip
from stoker.units import Celsius, Fraction, KiloHertz, Seconds, Watts

GAINS = PidGains(gain_w_per_k=0.08, power_min_w=Watts(0.3), power_max_w=Watts(3.0))
any_float = st.floats(allow_nan=True, allow_infinity=True)
periods = st.floats(0.0, 100.0)


@given(st.lists(st.tuples(any_float, periods, st.floats(0, 5), st.booleans()), max_size=50))
def test_the_budget_is_always_finite_and_within_limits(
    samples: list[tuple[float, float, float, bool]],
) -> None:
    state = start(GAINS)
    for value, dt, ceiling, rise in samples:
        sample = PidInput(Celsius(value), Celsius(80), Seconds(dt), Watts(ceiling), rise)
        state, budget = step(GAINS, state, sample)
        assert math.isfinite(budget)
        assert GAINS.power_min_w <= budget <= GAINS.power_max_w


@given(st.lists(st.floats(20, 120), min_size=2, max_size=30), st.floats(0.5, 20))
def test_a_hotter_course_never_gets_more_power(course: list[float], hotter: float) -> None:
    """The same course, but warmer from the second sample on by a constant."""
    budgets = []
    for extra in (0.0, hotter):
        state, budget = start(GAINS), Watts(0.0)
        for value in course:
            sample = PidInput(Celsius(value + extra), Celsius(80), Seconds(0.25), Watts(9))
            state, budget = step(GAINS, state, sample)
        budgets.append(budget)
    # Clamps at both ends may forgive a step; more than one rise of one tick is a fault.
    assert budgets[1] <= budgets[0] + GAINS.power_max_w * 0.25 + 1e-9


tables = st.lists(st.integers(100, 5000), min_size=1, max_size=20, unique=True)


@given(st.lists(tables, min_size=1, max_size=4), st.lists(st.floats(0, 200), max_size=20))
def test_more_budget_never_lowers_a_policy(lists: list[list[int]], budgets: list[float]) -> None:
    found = []
    for number, mhz in enumerate(lists):
        steps = tuple(KiloHertz(m * 1000) for m in sorted(mhz))
        cpus = tuple(range(number + 1))
        found.append(FrequencyPolicy(f"policy{number}", cpus, steps[0], steps[-1], steps, True))
    rungs = ladder([power_table(policy, None) for policy in found])
    lowest = {p.name: 0 for p in found}
    chosen = [rungs.choose(Watts(b), lowest) for b in sorted(budgets)]
    for low, high in zip(chosen, chosen[1:], strict=False):  # noqa: RUF007
        assert all(high.index[name] >= low.index[name] for name in low.index)
    for budget, rung in zip(sorted(budgets), chosen, strict=True):
        assert rung is rungs.rungs[0] or rung.watts <= budget * (1 + 1e-6)


@given(
    st.lists(tables, min_size=1, max_size=4), st.lists(st.floats(0, 200), max_size=10), st.data()
)
def test_the_rung_is_the_last_before_the_first_that_is_too_much(
    lists: list[list[int]], budgets: list[float], data: st.DataObject
) -> None:
    found = []
    for number, mhz in enumerate(lists):
        steps = tuple(KiloHertz(m * 1000) for m in sorted(mhz))
        found.append(FrequencyPolicy(f"policy{number}", (0,), steps[0], steps[-1], steps, True))
    rungs = ladder([power_table(policy, None) for policy in found])
    now = {p.name: data.draw(st.integers(0, len(p.steps_khz) - 1)) for p in found}
    for budget in (*budgets, *(rung.watts for rung in rungs.rungs)):
        best = rungs.rungs[0]
        for rung in rungs.rungs:
            rises = any(step > now[name] for name, step in rung.index.items())
            reserve = RISE_MARGIN if rises and rung is not rungs.rungs[-1] else 1.0
            if rung.watts * reserve > budget * (1 + 1e-9):
                break
            best = rung
        assert rungs.choose(Watts(budget), now) is best


readings = st.one_of(st.none(), st.floats(-300, 200), st.sampled_from([0.0, -274.0, -256.0]))


@given(st.lists(st.tuples(readings, st.floats(0.01, 5.0)), max_size=60))
def test_what_is_not_plausible_is_never_believed(
    samples: list[tuple[float | None, float]],
) -> None:
    trust, now = Trust(seen_s=Seconds(0)), 0.0
    for value, dt in samples:
        now += dt
        reading = None if value is None else Celsius(value)
        trust = trust_step(Limits(Celsius(105)), trust, Sample(Seconds(now), reading, "EIO"))
        if trust.median_c is not None:
            assert -20 <= trust.median_c <= 125
        if now - trust.seen_s >= 10:
            assert trust.level is Level.STOP
        elif now - trust.seen_s >= 3:
            assert trust.level >= Level.SAFE


ticks = st.lists(
    st.tuples(
        st.floats(0.05, 5.0),
        st.one_of(st.none(), st.floats(20, 130)),
        st.one_of(st.none(), st.integers(300_000, 3_000_000)),
        st.booleans(),
        st.floats(0, 1),
    ),
    max_size=40,
)


@given(ticks)
@settings(max_examples=200, deadline=None)
def test_whatever_happens_caps_come_from_the_table_and_headroom_is_a_fraction(
    course: list[tuple[float, float | None, int | None, bool, float]],
) -> None:
    steps = tuple(KiloHertz(khz) for khz in range(1_500_000, 2_400_001, 100_000))
    policy = FrequencyPolicy("policy0", (0, 1, 2, 3), steps[0], steps[-1], steps, True)
    sensor = Sensor("cpu-thermal", "zone", "", (Trip("critical", Celsius(110)),))
    plan = make_plan(preset("raspberrypi-5"), ThermalConfig(), [sensor], [policy])
    state, now = start_loop(plan, Seconds(0)), 0.0
    for dt, value, granted, refused, activity in course:
        now += dt
        reading = None if value is None else Celsius(value)
        seen = Observation(
            Seconds(now),
            {"cpu-thermal": Reading("cpu-thermal", reading, "" if reading else "EIO")},
            {"policy0": None if granted is None else KiloHertz(granted)},
            {"policy0": Applied("EIO")} if refused else {},
            Fraction(activity),
        )
        state, decision = decide(plan, state, seen)
        assert 0.0 <= decision.snapshot.headroom <= 1.0
        assert decision.snapshot.period_s > 0
        for action in decision.actions:
            if isinstance(action, SetCap):
                assert action.release or action.cap_khz in steps
                assert action.cap_khz <= action.original_khz


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
khz = st.integers(1, 10**8).map(KiloHertz)


@given(st.lists(st.builds(CapRecord, names, khz, khz, names), max_size=8))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_journal_gives_back_what_was_written(records: list[CapRecord]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        journal = FileCapJournal(Path(directory) / "caps.json")
        journal.write(records)
        assert journal.load() == tuple(records)


@pytest.mark.parametrize("name", sorted(PLANTS))
@given(
    seed=st.integers(0, 10_000),
    ambient=st.floats(10, 40),
    idle=st.floats(0.0, 0.3),
    busy_s=st.integers(5, 60),
    rest_s=st.integers(0, 20),
)
@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])  # no shrinking
def test_no_board_and_no_load_gets_more_than_a_little_over_the_wall(
    name: str, seed: int, ambient: float, idle: float, busy_s: int, rest_s: int
) -> None:
    """2 K, for the first seconds of full load on a board that is already warm. Where the
    lowest steps are reached the run ends: the loop has no authority left there."""
    plant = Plant(warmer(PLANTS[name], ambient), seed)
    plant.settle(idle)
    law = Stoker(plant, 0.0)
    caps, period = law.tick()
    wall = law.service.snapshot().wall_c
    assume(plant.junction_c < wall - 5)  # idle alone must not be too hot already
    peak = next_s = 0.0
    while plant.time_s < 300:
        if plant.time_s >= next_s:
            caps, period = law.tick()
            next_s = plant.time_s + period
        busy = plant.time_s % (busy_s + rest_s) < busy_s
        plant.advance(0.05, caps, 1.0 if busy else idle)
        peak = max(peak, plant.junction_c)
        lowest = {c.policy: c.opps[0][0] * 1000 for c in plant.spec.clusters}
        if all(caps[p] == khz for p, khz in lowest.items()):
            break  # no authority left: below the lowest step only pacing helps
    assert peak <= wall + 2.0
