"""The decision of one tick: sensors, trust, power budget, frequency steps, headroom.

``decide(plan, state, seen) -> (state, Decision)``. Each controlled zone runs its own
fail-safe and power controller; a policy takes the lowest step any of its zones asks for.
Must not: read, write, log, or know the clock; the service does what the actions say.
"""

from __future__ import annotations

import math
from dataclasses import replace

from stoker.core import caps, failsafe, opp, pid, step_table
from stoker.core.caps import CapState, SetCap
from stoker.core.failsafe import Level, Sample, Trust
from stoker.core.opp import StepState
from stoker.core.pid import PidInput
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
    kept = {name: state.caps.get(name, CapState()) for name in plan.tables}
    return replace(state, zones=zones, steps=steps, caps=kept)


def decide(
    plan: ThermalPlan, state: ThermalState, seen: Observation
) -> tuple[ThermalState, Decision]:
    """One tick. ``seen.now_s`` never goes back; a long gap is one long step."""
    dt_s = Seconds(max(0.0, seen.now_s - state.at_s))
    known = _observe_caps(plan, state, seen)
    zones = {
        zone.sensor.name: _zone(zone, plan, replace(state, caps=known), seen, dt_s)
        for zone in plan.zones
    }
    state = replace(state, at_s=seen.now_s, zones=zones, caps=known)
    level, reason = _worst(plan, state)
    steps = _steps(plan, state, seen.now_s, level)
    state, writes = _caps(plan, replace(state, steps=steps), seen)
    actions: tuple[Action, ...] = writes
    if (level is Level.STOP) != state.paused:
        state = replace(state, paused=level is Level.STOP)
        actions = (Pause(state.paused, reason), *writes)
    return state, Decision(actions, snapshot(plan, state, seen, level, reason))


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
    known: dict[str, CapState] = {}
    for name, policy in plan.policies.items():
        cap = state.caps[name]
        if name in seen.refused:
            cap = caps.refuse(cap, seen.now_s)
        granted = seen.granted_khz.get(name)
        known[name] = caps.observe(cap, granted, policy.max_khz, seen.now_s, hot)
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
    trust = failsafe.step(
        zone.limits,
        before.trust,
        Sample(seen.now_s, reading.temperature_c, reading.fault, Watts(burning_w)),
    )
    fresh = trust.seen_s == seen.now_s
    if trust.median_c is None or not fresh or trust.level >= Level.SAFE:
        power = before.power
        if trust.level >= Level.SAFE:
            safe_w = Watts(min(power.budget_w, SAFE_BUDGET * zone.gains.power_max_w))
            power = pid.hold(power, zone.gains, safe_w)
        return ZoneState(trust, power, before.limits_khz)
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
            ceiling_w=Watts(ceiling_w * opp.RISE_MARGIN),
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


def _steps(
    plan: ThermalPlan, state: ThermalState, now_s: Seconds, worst: Level
) -> dict[str, StepState]:
    current = {name: step.index for name, step in state.steps.items()}
    targets = {name: len(table.steps_khz) - 1 for name, table in plan.tables.items()}
    may_rise = dict.fromkeys(targets, worst < Level.SAFE)
    for zone in plan.zones:
        trust, power = state.zones[zone.sensor.name].trust, state.zones[zone.sensor.name].power
        if trust.level >= Level.SAFE and _covered(plan, state, zone):
            continue
        limits = state.zones[zone.sensor.name].limits_khz
        rung = zone.ladder.choose(power.budget_w, current)
        for name in zone.policies:
            at = plan.tables[name].floor_index(limits[name]) if limits else rung.index[name]
            targets[name] = min(targets[name], at)
            hot = plan.law == "pi" and _hot(plan, state, name)
            if trust.level is not Level.OK or hot:
                may_rise[name] = False
    moved: dict[str, StepState] = {}
    for name, table in plan.tables.items():
        target = targets[name]
        if worst is Level.SAFE:
            target = min(target, len(table.steps_khz) // 2)
        elif worst is Level.STOP:
            target = 0
        if plan.law == "pi":
            moved[name] = opp.move(state.steps[name], target, now_s, may_rise=may_rise[name])
        elif may_rise[name] or target < state.steps[name].index:
            moved[name] = StepState(target, now_s)
        else:
            moved[name] = state.steps[name]
    return moved


def _caps(
    plan: ThermalPlan, state: ThermalState, seen: Observation
) -> tuple[ThermalState, tuple[SetCap, ...]]:
    writes: list[SetCap] = []
    known = dict(state.caps)
    for name in sorted(plan.actuated):
        table, granted = plan.tables[name], seen.granted_khz.get(name)
        hot = _hot(plan, state, name)
        index = state.steps[name].index
        known[name], action = caps.want(known[name], table, index, granted, seen.now_s, hot)
        if action is not None:
            writes.append(action)
    return replace(state, caps=known), tuple(writes)
