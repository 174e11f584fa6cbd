"""Stoker's law on a plant, by the daemon's own pure parts: ``core.pid``, ``core.opp``, the presets.

It leaves out what never acts on a healthy machine (fail-safe, journal, snapshot), which makes
a sweep affordable; a test holds it against the whole service, tick by tick.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.thermal_law import Order, Seen
from stoker.config.schema import ThermalConfig
from stoker.core import opp, pid
from stoker.core.boards import BoardFacts, choose_board
from stoker.core.opp import StepState
from stoker.core.thermal_plan import ThermalPlan, ZonePlan, make_plan
from stoker.core.thermal_view import (
    FAR_K,
    FAST_K_PER_S,
    MIDDLE_PERIOD_S,
    NEAR_K,
    USUAL_SLEW_K_PER_S,
)
from stoker.drivers.board_files import load_boards
from stoker.drivers.plants import PlantSpec
from stoker.events.thermal import FrequencyPolicy, Sensor, Trip
from stoker.units import Celsius, Kelvin, KiloHertz, Seconds, Watts

BOARDS: Final = Path(__file__).resolve().parents[1] / "policies" / "boards"


@dataclass(frozen=True, slots=True)
class Tuning:
    """Changes to the shipped law. ``margin_k`` None = the board preset's."""

    margin_k: float | None = None
    gain: float = 1.0
    reset_s: float | None = None
    look_ahead_s: float | None = None
    settled_part: float | None = None


def plan_of(spec: PlantSpec, wall_c: float, tuning: Tuning) -> ThermalPlan:
    preset = choose_board(load_boards(BOARDS), BoardFacts(), spec.board)
    config = ThermalConfig(wall_c=Celsius(wall_c))
    trips = tuple(Trip(kind, Celsius(at_c)) for kind, at_c in spec.trips)
    sensors = [Sensor(zone, "zone", zone, trips) for zone in spec.zones]
    policies = []
    for cluster in spec.clusters:
        steps = tuple(KiloHertz(int(mhz * 1000)) for mhz, _ in cluster.opps)
        policies.append(
            FrequencyPolicy(cluster.policy, cluster.cpus, steps[0], steps[-1], steps, True)
        )
    plan = make_plan(preset, config, sensors, policies)
    zones = []
    for zone in plan.zones:
        gains = replace(zone.gains, gain_w_per_k=zone.gains.gain_w_per_k * tuning.gain)
        if tuning.margin_k is not None:
            gains = replace(gains, margin_k=Kelvin(tuning.margin_k))
        if tuning.reset_s is not None:
            gains = replace(gains, reset_s=Seconds(tuning.reset_s))
        if tuning.look_ahead_s is not None:
            gains = replace(gains, look_ahead_s=Seconds(tuning.look_ahead_s))
        if tuning.settled_part is not None:
            gains = replace(gains, settled_part=tuning.settled_part)
        zones.append(replace(zone, gains=gains))
    return replace(plan, zones=tuple(zones))


class Ours:
    """Frequencies only; thermal_decide.py adds operating points."""

    def __init__(self, spec: PlantSpec, wall_c: float, tuning: Tuning) -> None:
        self._plan = plan_of(spec, wall_c, tuning)
        self._names = [c.policy for c in spec.clusters]
        self._zone_index = {zone: i for i, zone in enumerate(spec.zones)}
        self._power = {z.sensor.name: pid.start(z.gains) for z in self._plan.zones}
        self._windows: dict[str, tuple[float, ...]] = {}
        self._tops = {n: len(self._plan.tables[n].steps_khz) - 1 for n in self._names}
        self._steps = {n: StepState(top, Seconds(-1e9)) for n, top in self._tops.items()}
        self._at_s: float | None = None
        self._rises_left = opp.RATION

    def tick(self, seen: Seen) -> Order:
        now_s = seen.now_ms / 1000
        dt_s = Seconds(0.0 if self._at_s is None else now_s - self._at_s)
        self._at_s = now_s
        measured = {z.sensor.name: self._median(z.sensor.name, seen) for z in self._plan.zones}
        hot = {p for z in self._plan.zones if measured[z.sensor.name] >= z.wall_c
               for p in z.policies}  # fmt: skip
        for zone in self._plan.zones:
            self._budget(zone, measured[zone.sensor.name], dt_s)
        self._rises_left = opp.refill(self._rises_left, dt_s)
        self._ladders(hot, Seconds(now_s))
        steps = tuple(self._steps[n].index for n in self._names)
        return Order(steps, round(self._period_s(measured) * 1000))

    def overwrite(self) -> bool:
        raise NotImplementedError("accidents are for the whole service")

    def _budget(self, zone: ZonePlan, measured_c: float, dt_s: Seconds) -> None:
        name, ceiling_w = zone.sensor.name, zone.gains.power_max_w * opp.RISE_MARGIN
        if self._rises_left < 1:
            tables = [self._plan.tables[policy] for policy in zone.policies]
            ceiling_w = min(ceiling_w, opp.reach_w(tables, self._steps) * opp.RATIONED_REACH)
        sample = pid.PidInput(
            Celsius(measured_c), zone.wall_c, dt_s, Watts(ceiling_w), measured_c < zone.wall_c
        )
        self._power[name], _ = pid.step(zone.gains, self._power[name], sample)

    def _ladders(self, hot: set[str], now_s: Seconds) -> None:
        current = {n: s.index for n, s in self._steps.items()}
        targets = dict(self._tops)
        for zone in self._plan.zones:
            rung = zone.ladder.choose(self._power[zone.sensor.name].budget_w, current)
            for policy in zone.policies:
                targets[policy] = min(targets[policy], rung.index[policy])
        for name in self._names:
            before, rises = self._steps[name], name not in hot and self._rises_left >= 1
            self._steps[name] = opp.move(before, targets[name], now_s, may_rise=rises)
            self._rises_left -= self._steps[name].index > before.index

    def _period_s(self, measured: dict[str, float]) -> float:
        period_s: float = self._plan.period_max_s
        for zone in self._plan.zones:
            quick = zone.limits.slew_k_per_s / USUAL_SLEW_K_PER_S
            distance_k = (zone.wall_c - measured[zone.sensor.name]) / quick
            slope = self._power[zone.sensor.name].slope_k_per_s
            if distance_k < NEAR_K:
                return self._plan.period_min_s
            if distance_k < FAR_K or abs(slope) > FAST_K_PER_S:
                period_s = min(period_s, MIDDLE_PERIOD_S)
        return max(period_s, self._plan.period_min_s)

    def _median(self, name: str, seen: Seen) -> float:
        value = seen.sensed_c[self._zone_index[name]]
        assert value is not None  # dropouts are for the whole service
        window = (*self._windows.get(name, ()), value)[-3:]
        self._windows[name] = window
        return window[0] if len(window) < 3 else sorted(window)[1]
