"""Power per step, the ladder of several policies, down at once and up with a dwell."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.fakes.thermal import preset

from stoker.core.opp import RATION, StepState, ladder, move, power_table, reach_w, refill
from stoker.events.thermal import FrequencyPolicy
from stoker.units import KiloHertz, Seconds, Watts


def policy(name: str, cpus: int, *mhz: int) -> FrequencyPolicy:
    steps = tuple(KiloHertz(m * 1000) for m in mhz)
    return FrequencyPolicy(name, tuple(range(cpus)), steps[0], steps[-1], steps, True)


PI5 = policy("policy0", 4, *range(1500, 2401, 100))
LITTLE = policy("policy0", 4, 1008, 1200, 1416, 1608, 1800)
BIG = policy("policy4", 2, 1200, 1416, 1608, 1800, 2016, 2208, 2400)


def test_the_preset_of_a_pi_5_gives_the_measured_watts() -> None:
    table = power_table(PI5, preset("raspberrypi-5").cluster("policy0"))
    assert table.watts[-1] == pytest.approx(3.0, abs=0.1)  # 5.6 W loaded − 2.6 W idle


def test_without_a_preset_power_still_rises_faster_than_frequency() -> None:
    table = power_table(PI5, None)
    assert table.watts[-1] / table.watts[0] > 2400 / 1500


def test_a_ladder_rises_from_all_lowest_to_all_highest_one_step_at_a_time() -> None:
    board = preset("rk3588")
    tables = [power_table(p, board.cluster(p.name)) for p in (LITTLE, BIG)]
    rungs = ladder(tables).rungs
    assert dict(rungs[0].index) == {"policy0": 0, "policy4": 0}
    assert dict(rungs[-1].index) == {"policy0": 4, "policy4": 6}
    for low, high in pairwise(rungs):
        assert high.watts > low.watts
        assert sum(high.index.values()) == sum(low.index.values()) + 1
        assert all(high.index[n] >= low.index[n] for n in low.index)


def test_a_step_up_needs_two_percent_of_reserve_and_a_step_down_does_not() -> None:
    table = power_table(PI5, None)
    rungs = ladder([table])
    exactly = table.watts[5]
    assert rungs.choose(exactly, {"policy0": 5}).index["policy0"] == 5
    assert rungs.choose(exactly, {"policy0": 4}).index["policy0"] == 4
    assert rungs.choose(Watts(exactly * 1.03), {"policy0": 4}).index["policy0"] == 5


def test_the_full_budget_reaches_the_top_from_below() -> None:
    table = power_table(PI5, None)
    assert ladder([table]).choose(table.watts[-1], {"policy0": 0}).index["policy0"] == 9


def test_down_at_once_and_up_one_step_per_second() -> None:
    state = StepState(9, Seconds(0.0))
    state = move(state, 2, Seconds(10.0))
    assert state.index == 2
    assert move(state, 9, Seconds(10.5)).index == 2
    state = move(state, 9, Seconds(11.0))
    assert state.index == 3
    assert move(state, 9, Seconds(11.9)).index == 3
    assert move(state, 9, Seconds(12.0), may_rise=False).index == 3


def test_floor_index_of_a_value_between_steps() -> None:
    table = power_table(PI5, None)
    assert table.floor_index(KiloHertz(1_750_000)) == 2
    assert table.floor_index(KiloHertz(1)) == 0


def test_rises_are_rationed_to_twelve_a_minute_after_a_reserve() -> None:
    left, rises = RATION, 0
    for _ in range(3000):  # five minutes, asked for ten times a second
        left = refill(left, Seconds(0.1))
        if left >= 1:
            left, rises = left - 1, rises + 1
    assert rises == pytest.approx(RATION + 5 * 12, abs=1)
    assert refill(0.0, Seconds(3600.0)) == RATION, "an idle hour does not save up a storm"


def test_the_reach_is_one_step_more_of_each_policy_and_never_past_the_top() -> None:
    board = preset("rk3588")
    tables = [power_table(p, board.cluster(p.name)) for p in (LITTLE, BIG)]
    now = {"policy0": StepState(4, Seconds(0.0)), "policy4": StepState(2, Seconds(0.0))}
    assert reach_w(tables, now) == pytest.approx(tables[0].watts[4] + tables[1].watts[3])
