"""From a power budget to a frequency step per policy.

Dynamic power of a step is c·f·V² per CPU where the board preset knows c and V, otherwise
f·V² on an assumed voltage line. The policies that one zone heats form a ladder: each rung
raises one policy by one step, the cheapest work first. Down at once, up one step per
policy with a dwell. Must not: read or write anything; a cap is always a value of the table.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from stoker.core.boards import ClusterPower
from stoker.events.thermal import FrequencyPolicy
from stoker.units import KiloHertz, Seconds, Watts

RISE_MARGIN = 1.02
"""A rung is entered from below only with 2 % of reserve: otherwise noise toggles it."""

DWELL_S = Seconds(1.0)

RATION, RATION_PER_S = 12.0, 0.2
"""Rises of all policies together: so many at once, then one in 5 s. Each is followed by a fall,
so the clocks change 24 times a minute at most, however near two rungs' powers are."""

RATIONED_REACH = 1.1
"""While no rise is left the budget stays within this part of the next step: it must not run
ahead of what can be spent, or all of it would come at once."""

_ASSUMED_LOW_V, _ASSUMED_HIGH_V = 0.75, 1.0
_ASSUMED_UW = 400.0  # µW/MHz/V² per CPU, between Cortex-A55 (228) and A72 (436)


@dataclass(frozen=True, slots=True)
class PowerTable:
    """Steps of one policy with the power of all its CPUs at full load; both ascend."""

    policy: str
    steps_khz: tuple[KiloHertz, ...]
    watts: tuple[Watts, ...]
    weight: float = 1.0  # work of one MHz·CPU compared with the board's fastest kind

    def floor_index(self, khz: KiloHertz) -> int:
        """Index of the highest step that is not above ``khz``; 0 when all are."""
        return max((i for i, step in enumerate(self.steps_khz) if step <= khz), default=0)


@dataclass(frozen=True, slots=True)
class Rung:
    watts: Watts
    index: Mapping[str, int]  # policy -> step


@dataclass(frozen=True, slots=True)
class Ladder:
    """All rungs of one zone, ascending in power; the first is every policy at its lowest."""

    rungs: tuple[Rung, ...]

    @property
    def power_min_w(self) -> Watts:
        return self.rungs[0].watts

    @property
    def power_max_w(self) -> Watts:
        return self.rungs[-1].watts

    def choose(self, budget_w: Watts, current: Mapping[str, int]) -> Rung:
        """The highest rung that the budget pays; above ``current`` only with the rise margin."""
        limit_w, last = budget_w * (1 + 1e-9), len(self.rungs) - 1

        def too_much(rung: Rung) -> bool:
            if rung.watts > limit_w or rung.watts * RISE_MARGIN <= limit_w:
                return rung.watts > limit_w
            return any(step > current.get(name, step) for name, step in rung.index.items())

        # Nested, so that what is too much for one rung is too much for all above it.
        fits = bisect_left(self.rungs, True, hi=last, key=too_much)
        # The top rung needs no reserve: there is nothing above it to toggle with.
        if fits == last and self.rungs[last].watts <= limit_w:
            return self.rungs[last]
        return self.rungs[max(0, fits - 1)]


@dataclass(frozen=True, slots=True)
class StepState:
    """Where a policy stands and since when it may not rise."""

    index: int
    raised_s: Seconds


def power_table(policy: FrequencyPolicy, cluster: ClusterPower | None) -> PowerTable:
    """Watts per step: c·f·V²·CPUs (µW/MHz/V²), voltages interpolated between known points."""
    points = cluster.opps if cluster is not None else ()
    coefficient = cluster.coefficient_uw if cluster is not None else _ASSUMED_UW
    cpus = max(1, len(policy.cpus))
    watts: list[Watts] = []
    for khz in policy.steps_khz:
        mhz = khz / 1000.0
        known = _interpolate(points, mhz) / 1000.0 if points else None
        volts = _assumed_volts(khz, policy) if known is None else known
        least = watts[-1] * (1 + 1e-6) if watts else 0.0
        watts.append(Watts(max(least, coefficient * 1e-6 * mhz * volts * volts * cpus)))
    weight = cluster.weight if cluster is not None else 1.0
    return PowerTable(policy.name, policy.steps_khz, tuple(watts), weight * cpus)


def ladder(tables: Sequence[PowerTable]) -> Ladder:
    """Greedy by work gained per watt; nested, so that more budget never lowers a policy."""
    index = {table.policy: 0 for table in tables}
    watts = math.fsum(table.watts[0] for table in tables)
    rungs = [Rung(Watts(watts), dict(index))]
    while True:
        open_ = [t for t in tables if index[t.policy] + 1 < len(t.steps_khz)]
        if not open_:
            return Ladder(tuple(rungs))
        best = max(open_, key=lambda table: _work_per_watt(table, index[table.policy]))
        at = index[best.policy]
        watts += best.watts[at + 1] - best.watts[at]
        index[best.policy] = at + 1
        rungs.append(Rung(Watts(watts), dict(index)))


def move(
    state: StepState, target: int, now_s: Seconds, *, may_rise: bool = True, rise: int = 1
) -> StepState:
    """Down at once; up at most ``rise`` steps and only DWELL_S after the last rise."""
    if target < state.index:
        return StepState(target, now_s)
    if target > state.index and may_rise and now_s - state.raised_s >= DWELL_S - 1e-6:
        return StepState(min(target, state.index + rise), now_s)
    return state


def refill(left: float, dt_s: Seconds) -> float:
    """Rises that may be made after ``dt_s`` more."""
    return min(RATION, left + RATION_PER_S * dt_s)


def reach_w(tables: Sequence[PowerTable], steps: Mapping[str, StepState]) -> Watts:
    """The most that can be spent with one more rise of each policy."""
    following = (min(steps[t.policy].index + 1, len(t.watts) - 1) for t in tables)
    return Watts(math.fsum(t.watts[at] for t, at in zip(tables, following, strict=True)))


def _work_per_watt(table: PowerTable, at: int) -> float:
    gained = (table.steps_khz[at + 1] - table.steps_khz[at]) * table.weight
    return gained / (table.watts[at + 1] - table.watts[at])


def _assumed_volts(khz: KiloHertz, policy: FrequencyPolicy) -> float:
    span = policy.steps_khz[-1] - policy.steps_khz[0]
    part = (khz - policy.steps_khz[0]) / span if span else 1.0
    return _ASSUMED_LOW_V + part * (_ASSUMED_HIGH_V - _ASSUMED_LOW_V)


def _interpolate(points: Sequence[tuple[float, float]], mhz: float) -> float:
    if mhz <= points[0][0]:
        return points[0][1]
    for (low, low_mv), (high, high_mv) in pairwise(points):
        if mhz <= high:
            return low_mv + (high_mv - low_mv) * (mhz - low) / (high - low)
    return points[-1][1]
