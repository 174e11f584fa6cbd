"""What we show of a tick (snapshot, headroom, the reason) and when the next one is due."""

from __future__ import annotations

from stoker.core import caps, step_table
from stoker.core.failsafe import Level
from stoker.core.thermal_plan import ThermalPlan, ZonePlan
from stoker.core.thermal_state import Observation, ThermalState
from stoker.events.operating import DECODE, PREFILL
from stoker.events.thermal import ThermalSnapshot
from stoker.units import Fraction, Seconds

MIDDLE_PERIOD_S = 0.25
FAR_K, NEAR_K, FAST_K_PER_S = 10.0, 2.0, 0.5
USUAL_SLEW_K_PER_S = 15.0  # those distances are for such a board; a quicker one is nearer
SAFE_HEADROOM = 0.5


def snapshot(
    plan: ThermalPlan, state: ThermalState, seen: Observation, level: Level, reason: str
) -> ThermalSnapshot:
    """The published view; ``temperature_c`` is that of the zone nearest to its wall."""
    nearest = _nearest(plan, state)
    temperature_c = None
    if nearest is not None:
        temperature_c = state.zones[nearest.sensor.name].trust.median_c
    here = {name: cap for name, cap in state.caps.items() if name in plan.tables}
    capped = {name: cap.ours_khz for name, cap in here.items() if cap.ours_khz is not None}
    known = [state.caps[name] for name in plan.actuated]
    working = any(not cap.refused(seen.now_s) and not cap.unread(seen.now_s) for cap in known)
    headroom = _headroom(plan, state, level)
    actuator = _actuator(plan, state, seen, working)
    return ThermalSnapshot(
        state=_state(plan, level, working),
        temperature_c=temperature_c,
        wall_c=plan.wall_c if nearest is None else nearest.wall_c,
        headroom=headroom,
        board=plan.board,
        sensor="" if nearest is None else nearest.sensor.name,
        cap_khz=capped,
        actuator=actuator,
        reason=reason or _why(plan, state, seen, nearest, working),
        period_s=next_period(plan, state),
        power_w=seen.power_w,
        law=plan.law,
        firmware=() if seen.firmware is None else seen.firmware.now,
        phase=seen.phase,
        threads=state.spending.threads(DECODE),
        threads_batch=state.spending.threads(PREFILL),
        duty=_duty(state, seen, level, actuator, headroom),
        points=plan.points or ("in use" if plan.fronts is not None else "none"),
        point=state.spending.choices.get(seen.phase or DECODE),
    )


def next_period(plan: ThermalPlan, state: ThermalState) -> Seconds:
    """Slow while far from the wall, fast near it or while a sensor is in doubt (1 s, 250 ms,
    100 ms as configured); faster gained nothing in simulation."""
    if plan.law == "step-table" and plan.zones:
        return step_table.PERIOD_S
    low_s, high_s = plan.period_min_s, plan.period_max_s
    period_s: float = high_s
    for zone in plan.zones:
        known = state.zones[zone.sensor.name]
        measured = known.trust.median_c
        doubted = known.trust.level is not Level.OK or known.trust.good_since_s is None
        if measured is None or doubted:
            period_s = min(period_s, MIDDLE_PERIOD_S)
            continue
        distance_k = (zone.wall_c - measured) * USUAL_SLEW_K_PER_S / zone.limits.slew_k_per_s
        if distance_k < NEAR_K:
            period_s = low_s
        elif distance_k < FAR_K or abs(known.power.slope_k_per_s) > FAST_K_PER_S:
            period_s = min(period_s, MIDDLE_PERIOD_S)
    return Seconds(min(max(period_s, low_s), high_s))


def _nearest(plan: ThermalPlan, state: ThermalState) -> ZonePlan | None:
    def distance_k(zone: ZonePlan) -> float:
        measured = state.zones[zone.sensor.name].trust.median_c
        return 1e9 if measured is None else zone.wall_c - measured

    return min(plan.zones, key=distance_k, default=None)


def _headroom(plan: ThermalPlan, state: ThermalState, level: Level) -> Fraction:
    """The strictest zone's budget as a part of what the owner's settings allow it."""
    if level is Level.STOP:
        return Fraction(0.0)
    best = SAFE_HEADROOM if level is Level.SAFE else 1.0
    for zone in plan.zones:
        known = state.zones[zone.sensor.name]
        if known.trust.level > level:
            continue  # a lost zone that another one covers
        full_w: float = zone.gains.power_max_w
        if zone.policies:
            full_w = sum(
                plan.tables[n].watts[caps.owner_index(state.caps[n], plan.tables[n])]
                for n in zone.policies
            )
        best = min(best, known.power.budget_w / full_w)
    return Fraction(best)


def _state(plan: ThermalPlan, level: Level, working: bool) -> str:
    if not plan.zones:
        return "blind"
    if level is Level.OK and not working:
        return "watching"
    return level.name.lower()


def _actuator(plan: ThermalPlan, state: ThermalState, seen: Observation, working: bool) -> str:
    """What holds the wall: cpufreq where a clock may be set, threads where operating points are
    known, pacing where those do not do; none without a sensor."""
    if not plan.zones:
        return "none"
    if plan.fronts is not None and plan.law == "pi":
        paced = state.spending.duty(seen.phase) < 1.0
        words = ("cpufreq" if working else "", "threads", "pacing" if paced else "")
        return "+".join(filter(None, words))
    below = any(
        state.zones[zone.sensor.name].power.budget_w < zone.ladder.power_min_w
        for zone in plan.zones
    )
    if not working:
        return "pacing"
    return "cpufreq+pacing" if below else "cpufreq"


def _duty(
    state: ThermalState, seen: Observation, level: Level, actuator: str, headroom: Fraction
) -> Fraction:
    """Of the runner's steps. Without operating points the headroom is all that is known."""
    if state.spending.choices and level < Level.SAFE:
        return state.spending.duty(seen.phase)
    return headroom if level >= Level.SAFE or "pacing" in actuator else Fraction(1.0)


def _why(
    plan: ThermalPlan,
    state: ThermalState,
    seen: Observation,
    nearest: ZonePlan | None,
    working: bool,
) -> str:
    for name in plan.tables:
        cap = state.caps[name]
        if cap.foreign_khz is not None:
            where = "below" if cap.foreign_below else "over"
            return f"another program set {name} to {cap.foreign_khz} kHz {where} our cap"
    for name in sorted(plan.actuated):
        if state.caps[name].refused(seen.now_s):
            return f"cannot cap {name}: {state.caps[name].fault}; see stokerctl thermal discover"
        if state.caps[name].unread(seen.now_s):
            return f"cannot cap {name}: scaling_max_freq cannot be read back"
    if seen.firmware is not None and seen.firmware.limits:
        return f"the firmware limits the clock: {', '.join(seen.firmware.now)}"
    if not working and plan.notice:
        return plan.notice
    if nearest is not None and any(cap.ours_khz is not None for cap in state.caps.values()):
        return f"held below {nearest.wall_c:g} °C ({nearest.wall_rule})"
    return plan.notice
