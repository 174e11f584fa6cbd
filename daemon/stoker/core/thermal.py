"""The decision of one tick: sensors, trust, power budget, frequency steps, headroom.

``decide(plan, state, seen) -> (state, Decision)``. Each controlled zone runs its own
fail-safe and power controller; a policy takes the lowest step any of its zones asks for.
Must not: read, write, log, or know the clock; the service does what the actions say.
"""

from __future__ import annotations

import math
from dataclasses import replace

from stoker.core import caps, failsafe, opp, pid, spending, step_table
from stoker.core.caps import CapState, SetCap
from stoker.core.failsafe import Level, Sample, Trust
from stoker.core.opp import StepState
from stoker.core.pid import PidInput
from stoker.core.spending import Spending
from stoker.core.thermal_plan import ThermalPlan, ZonePlan
from stoker.core.thermal_state import (
    Action,
    Decision,
    Observation,
    Pause,
    ThermalState,
    ZoneState,
)
from stoker.core.thermal_view import snapshot
from stoker.events.thermal import Reading
from stoker.units import Seconds, Watts

SAFE_BUDGET = 0.5
_LONG_AGO = Seconds(-1e9)
_UNSPENT = Spending()


def start(plan: ThermalPlan, now_s: Seconds) -> ThermalState:
    """Everything uncapped, every sensor trusted until it fails."""
    return adopt(plan, ThermalState(at_s=now_s), now_s)


def adopt(plan: ThermalPlan, state: ThermalState, now_s: Seconds) -> ThermalState:
    """The state under a new plan: what still exists goes on without a bump."""
    zones = {
        zone.sensor.name: state.zones.get(
            zone.sensor.name, ZoneState(Trust(seen_s=now_s), pid.start(zone.gains))
        )
        for zone in plan.zones
    }
    steps: dict[str, StepState] = {}
    for name, table in plan.tables.items():
        top = len(table.steps_khz) - 1
        old = state.steps.get(name, StepState(top, _LONG_AGO))
        steps[name] = replace(old, index=min(old.index, top))
    # Of a policy that is away too: it may come back with our cap in its slot.
    kept = {name: caps.away(cap) for name, cap in state.caps.items() if name not in plan.tables}
    kept |= {name: state.caps.get(name, CapState()) for name in plan.tables}
    return replace(state, zones=zones, steps=steps, caps=kept)


def decide(
    plan: ThermalPlan, state: ThermalState, seen: Observation
) -> tuple[ThermalState, Decision]:
    """One tick. ``seen.now_s`` never goes back; a long gap is one long step."""
    state = replace(state, caps=_observe_caps(plan, state, seen))
    if seen.sensed:
        dt_s = Seconds(max(0.0, seen.now_s - state.at_s))
        zones = {zone.sensor.name: _zone(zone, plan, state, seen, dt_s) for zone in plan.zones}
        left = opp.refill(state.rises_left, dt_s)
        state = replace(state, at_s=seen.now_s, zones=zones, rises_left=left)
    level, reason = _worst(plan, state)
    spent = _spending(plan, state, seen, level)
    if spent is not state.spending:
        state = replace(state, spending=spent)
    steps, rises_left = _steps(plan, state, seen, level)
    measured = seen.wanted_khz is not None
    moved = replace(state, steps=steps, rises_left=rises_left, measured=measured)
    state, writes = _caps(plan, moved, seen)
    actions: tuple[Action, ...] = writes
    if (level is Level.STOP) != state.paused:
        state = replace(state, paused=level is Level.STOP)
        actions = (Pause(state.paused, reason), *writes)
    return state, Decision(actions, snapshot(plan, state, seen, level, reason))


def follows_phase(plan: ThermalPlan, state: ThermalState) -> bool:
    """What a phase does differs now: there are operating points, and heat limits them. Else a
    change of phase is no reason for a tick."""
    return bool(state.spending.choices) and _limited(plan, state)


def _limited(plan: ThermalPlan, state: ThermalState) -> bool:
    """Some zone that sees the whole board leaves less than its full power."""
    return any(
        state.zones[zone.sensor.name].power.budget_w < zone.gains.power_max_w * (1 - 1e-9)
        for zone in plan.board_zones
    )


def _hot(plan: ThermalPlan, state: ThermalState, policy: str = "") -> bool:
    """At the wall: no rise, and others' caps may be the kernel's throttling."""
    for zone in plan.zones:
        measured = state.zones[zone.sensor.name].trust.median_c
        concerned = not policy or policy in zone.policies
        if concerned and measured is not None and measured >= zone.wall_c:
            return True
    return False


def _firmware_limits(seen: Observation) -> bool:
    """A Pi's firmware slows the clock behind the kernel's back: what a cap allows beyond
    that would come all at once when it lets go."""
    return seen.firmware is not None and seen.firmware.limits


def _observe_caps(plan: ThermalPlan, state: ThermalState, seen: Observation) -> dict[str, CapState]:
    hot = _hot(plan, state)
    known = dict(state.caps)
    for name, applied in seen.applied.items():
        if name not in known:
            continue
        if applied.fault:
            known[name] = caps.refuse(known[name], seen.now_s, applied.fault)
        elif applied.owner_khz is not None:
            owner_khz, foreign = applied.owner_khz, applied.foreign
            known[name] = caps.found(known[name], owner_khz, seen.now_s, foreign=foreign)
    for name, policy in plan.policies.items():
        granted, held = seen.granted_khz.get(name), seen.held.get(name)
        known[name] = caps.observe(known[name], granted, policy.max_khz, seen.now_s, hot, held)
    return known


def _zone(
    zone: ZonePlan, plan: ThermalPlan, state: ThermalState, seen: Observation, dt_s: Seconds
) -> ZoneState:
    before = state.zones[zone.sensor.name]
    reading = seen.readings.get(zone.sensor.name, Reading(zone.sensor.name, None, "vanished"))
    burning_w, ceiling_w = 0.0, 0.0
    for name in zone.policies:
        table, cap, granted = plan.tables[name], state.caps[name], seen.granted_khz.get(name)
        at = table.steps_khz[-1] if granted is None else granted
        burning_w += table.watts[table.floor_index(at)] * seen.activity
        ceiling_w += table.watts[caps.highest_index(cap, table, granted)]
    if not zone.policies:
        burning_w, ceiling_w = before.power.budget_w * seen.activity, zone.gains.power_max_w
    if seen.power_w is not None:
        burning_w = seen.power_w
    metered, power_w = seen.power_w is not None, Watts(burning_w)
    sample = Sample(seen.now_s, reading.temperature_c, reading.fault, power_w, metered=metered)
    trust = failsafe.step(zone.limits, before.trust, sample)
    fresh = trust.seen_s == seen.now_s
    if trust.median_c is None or not fresh or trust.level >= Level.SAFE:
        power = before.power
        if trust.level >= Level.SAFE:
            safe_w = Watts(min(power.budget_w, SAFE_BUDGET * zone.gains.power_max_w))
            power = pid.hold(power, zone.gains, safe_w)
        return ZoneState(trust, power, before.limits_khz)
    ceiling_w *= opp.RISE_MARGIN
    if state.rises_left < 1 and zone.policies:
        reach_w = opp.reach_w([plan.tables[name] for name in zone.policies], state.steps)
        ceiling_w = min(ceiling_w, reach_w * opp.RATIONED_REACH)
    may_rise = trust.level is Level.OK and not _firmware_limits(seen)
    if plan.law == "open-loop":
        return ZoneState(trust, pid.hold(before.power, zone.gains, zone.gains.power_max_w))
    if plan.law == "step-table" and zone.policies:
        above_k = trust.median_c - zone.wall_c
        return _step_table(zone, plan, replace(before, trust=trust), above_k, may_rise=may_rise)
    power, _ = pid.step(
        zone.gains,
        before.power,
        PidInput(
            temperature_c=trust.median_c,
            wall_c=zone.wall_c,
            dt_s=dt_s,
            ceiling_w=Watts(ceiling_w),
            may_rise=may_rise and trust.median_c < zone.wall_c,
        ),
    )
    return ZoneState(trust, power)


def _step_table(
    zone: ZonePlan, plan: ThermalPlan, before: ZoneState, above_k: float, *, may_rise: bool
) -> ZoneState:
    """Its limits, and as budget what they burn at most: the headroom for everybody else."""
    tables = {name: plan.tables[name] for name in zone.policies}
    limits = step_table.step(tables, before.limits_khz, above_k, may_rise=may_rise)
    watts = math.fsum(t.watts[t.floor_index(limits[name])] for name, t in tables.items())
    return ZoneState(before.trust, pid.hold(before.power, zone.gains, Watts(watts)), limits)


def _worst(plan: ThermalPlan, state: ThermalState) -> tuple[Level, str]:
    """The worst level of all zones. A lost sensor whose policies another healthy zone also
    watches counts as DEGRADED only: one dead zone must not stop the device."""
    worst, reason = Level.OK, ""
    for zone in plan.zones:
        trust = state.zones[zone.sensor.name].trust
        level = trust.level
        if level >= Level.SAFE and _covered(plan, state, zone):
            level = Level.DEGRADED
        if level > worst:
            worst, reason = level, f"{zone.sensor.name}: {trust.reason}"
    return worst, reason


def _covered(plan: ThermalPlan, state: ThermalState, lost: ZonePlan) -> bool:
    trust = state.zones[lost.sensor.name].trust
    if trust.median_c is not None and trust.median_c >= lost.limits.stop_c:
        return False  # it was last seen critically hot: that is no sensor fault
    return any(
        zone is not lost
        and state.zones[zone.sensor.name].trust.level is Level.OK
        and set(lost.policies) <= set(zone.policies)
        for zone in plan.zones
    )


def _spending(plan: ThermalPlan, state: ThermalState, seen: Observation, worst: Level) -> Spending:
    """The strictest zone's part of the budget, spent on the operating points of the model."""
    if (
        plan.fronts is None
        or plan.law != "pi"
        or worst >= Level.SAFE
        or seen.wanted_khz is not None
    ):
        return _UNSPENT
    # Not rationed: the phases change the clock more often than any budget does.
    sure = worst is Level.OK and not _hot(plan, state)
    parts = [
        state.zones[zone.sensor.name].power.budget_w / zone.gains.power_max_w
        for zone in plan.board_zones
        if state.zones[zone.sensor.name].trust.level < Level.SAFE  # else another covers it
    ]
    return spending.step(
        plan.fronts,
        state.spending,
        min(parts, default=1.0),
        seen.prefill_share,
        seen.now_s,
        may_rise=sure,
        paces=not plan.sets_clocks,
    )


def _steps(
    plan: ThermalPlan, state: ThermalState, seen: Observation, worst: Level
) -> tuple[dict[str, StepState], float]:
    """Where each policy goes, and how many rises are left after it."""
    chosen = _chosen(plan, state, seen)
    targets, may_rise = _targets(plan, state, chosen, worst)
    # A calibration, the end of one and an operating point are not crept up to.
    at_once = seen.wanted_khz is not None or state.measured or chosen is not None
    moved: dict[str, StepState] = {}
    left = state.rises_left
    for name, table in plan.tables.items():
        target = targets[name]
        if seen.wanted_khz is not None and name in seen.wanted_khz:
            target = min(target, table.floor_index(seen.wanted_khz[name]))
        if worst is Level.SAFE:
            target = min(target, len(table.steps_khz) // 2)
        elif worst is Level.STOP:
            target = 0
        step = state.steps[name]
        if plan.law == "pi" and not at_once:
            rises = may_rise[name] and left >= 1
            moved[name] = opp.move(step, target, seen.now_s, may_rise=rises)
            left -= moved[name].index > step.index
        elif may_rise[name] or target < step.index:
            moved[name] = StepState(target, seen.now_s)
        else:
            moved[name] = step
    return moved, left


def _targets(
    plan: ThermalPlan, state: ThermalState, chosen: dict[str, int] | None, worst: Level
) -> tuple[dict[str, int], dict[str, bool]]:
    """Steps that the zones allow, and where one may be gone up to."""
    current = {name: step.index for name, step in state.steps.items()}
    targets = (
        dict(chosen) if chosen else {name: len(t.steps_khz) - 1 for name, t in plan.tables.items()}
    )
    may_rise = dict.fromkeys(targets, worst < Level.SAFE)
    for zone in plan.zones:
        trust, power = state.zones[zone.sensor.name].trust, state.zones[zone.sensor.name].power
        if trust.level >= Level.SAFE and _covered(plan, state, zone):
            continue
        limits = state.zones[zone.sensor.name].limits_khz
        rung = zone.ladder.choose(power.budget_w, current)
        for name in zone.policies:
            at = plan.tables[name].floor_index(limits[name]) if limits else rung.index[name]
            # A point may have a higher clock than the board's ladder, with fewer threads.
            if chosen is None or zone not in plan.board_zones:
                targets[name] = min(targets[name], at)
            hot = plan.law == "pi" and chosen is None and _hot(plan, state, name)
            if trust.level is not Level.OK or hot:
                may_rise[name] = False
    return targets, may_rise


def _chosen(plan: ThermalPlan, state: ThermalState, seen: Observation) -> dict[str, int] | None:
    """Steps of the phase's operating point; None where the ladder decides: nothing runs, or
    nothing limits (then the whole clock is everybody's)."""
    found = state.spending.caps_khz(seen.phase)
    if not found or not _limited(plan, state):
        return None
    return {name: table.floor_index(found[name]) for name, table in plan.tables.items()}


def _caps(
    plan: ThermalPlan, state: ThermalState, seen: Observation
) -> tuple[ThermalState, tuple[SetCap, ...]]:
    writes: list[SetCap] = []
    known = dict(state.caps)
    for name, table in sorted(plan.tables.items()):
        granted, hot = seen.granted_khz.get(name), _hot(plan, state, name)
        index = state.steps[name].index
        if name not in plan.actuated:
            if known[name].ours_khz is None:
                continue
            index = len(table.steps_khz) - 1  # no longer wanted: what is ours goes
        known[name], action = caps.want(known[name], table, index, granted, seen.now_s, hot)
        if action is not None:
            writes.append(action)
    return replace(state, caps=known), tuple(writes)
