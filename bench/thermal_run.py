"""One law on one plant under one load: a run in simulated time, and what it is worth.

All temperatures are true junctions, not what a sensor says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from bench.thermal_law import Law, Order, Seen
from bench.thermal_loads import IDLE_LOAD, Load
from bench.thermal_plant import ACTUATOR_DELAY_MS, SENSOR_DELAY_MS, FastPlant
from stoker.drivers.plants import PlantSpec


@dataclass(frozen=True)
class Case:
    """A board with its wall. Cooled boards stand in a warm cabinet: in a cool room nothing
    ever limits them."""

    spec: PlantSpec
    wall_c: float


@dataclass(frozen=True, slots=True)
class Accident:
    """``happen`` changes the plant at a time; ``blind_ms`` takes the sensors away for so long;
    ``lifted_ms``: for so long another program writes the top into the shared slot each second."""

    at_ms: int
    happen: Callable[[FastPlant], None] = lambda _plant: None
    blind_ms: int = 0
    lifted_ms: int = 0


@dataclass(slots=True)
class Outcome:
    """``overshoot_ks``: kelvin-seconds above the wall. ``work_pct`` of what an unlimited run
    does. ``recovery_s``: from the accident to the last moment above the wall."""

    peak_c: float = 0.0
    above_s: float = 0.0
    overshoot_ks: float = 0.0
    work: float = 0.0
    full_work: float = 0.0
    changes: int = 0
    tokens: float = 0.0
    seconds: float = 0.0
    last_above_s: float = 0.0
    trace: list[tuple[float, float, float, float]] = field(default_factory=list)

    @property
    def work_pct(self) -> float:
        return 100 * self.work / self.full_work

    @property
    def changes_per_min(self) -> float:
        return self.changes / (self.seconds / 60)

    def settled_s(self, from_s: float, band_k: float = 1.0) -> float:
        """From the step of the load until the junction stays within ±band of its last value
        (the mean of the last fifth)."""
        tail = self.trace[-len(self.trace) // 5 :]
        final_c = sum(row[1] for row in tail) / len(tail)
        outside = [row[0] for row in self.trace if abs(row[1] - final_c) > band_k]
        return max(0.0, max(outside, default=from_s) - from_s)


class Run:
    """``trace_ms`` 0 = keep no curve. ``stop_above_s``: end with more time above the wall."""

    def __init__(
        self,
        case: Case,
        law: Law,
        load: Load,
        accident: Accident | None = None,
        *,
        seed: int = 1,
        trace_ms: int = 0,
    ) -> None:
        self.case, self.law, self.load, self.accident = case, law, load, accident
        self.plant = FastPlant(case.spec, seed)
        self.plant.settle((IDLE_LOAD,) * len(case.spec.clusters))
        self.found = Outcome()
        self._trace_ms, self._traced_ms = trace_ms, 0
        self._happened, self._lifted_ms = False, 0
        self._top = [len(c.opps) - 1 for c in case.spec.clusters]
        self._sizes = [len(c.cpus) * c.weight for c in case.spec.clusters]

    def go(self, seconds: float, *, stop_above_s: float | None = None) -> Outcome:
        plant, found, end_ms = self.plant, self.found, round(seconds * 1000)
        order = Order(tuple(self._top), 0)
        tick_ms, act_ms = 0, -1
        while plant.now_ms < end_ms:
            now_ms = plant.now_ms
            if self._accident(now_ms):
                order = replace(order, steps=tuple(self._top))
            demand = self.load.demand(now_ms, plant.steps, order.threads)
            if now_ms >= tick_ms:
                seen = Seen(now_ms, self._sensed(), demand.busy, demand.phase, self._top)
                before, order = order, self.law.tick(seen)
                tick_ms = now_ms + order.period_ms
                if before.steps != order.steps:
                    found.changes += before.period_ms > 0
                    act_ms = now_ms + ACTUATOR_DELAY_MS
                if before.threads != order.threads:
                    demand = self.load.demand(now_ms, plant.steps, order.threads)
            if 0 <= act_ms <= now_ms:
                plant.steps[:] = order.steps
                act_ms = -1
                demand = self.load.demand(now_ms, plant.steps, order.threads)
            next_ms = min(tick_ms, demand.until_ms, end_ms)
            if act_ms > now_ms:
                next_ms = min(next_ms, act_ms)
            if tick_ms - now_ms > SENSOR_DELAY_MS:
                next_ms = min(next_ms, tick_ms - SENSOR_DELAY_MS)
            self._advance(next_ms - now_ms, demand.shares)
            if stop_above_s is not None and found.above_s > stop_above_s:
                break
        found.seconds = plant.now_ms / 1000
        found.tokens = self.load.tokens
        return found

    def _advance(self, dt_ms: int, shares: Sequence[float]) -> None:
        plant, found, wall_c = self.plant, self.found, self.case.wall_c
        before_k = plant.hottest_c - wall_c
        plant.step(dt_ms, shares)
        self.load.passed(dt_ms)
        over_k = plant.hottest_c - wall_c
        dt_s = dt_ms / 1000
        found.peak_c = max(found.peak_c, plant.hottest_c)
        if over_k > 0 or before_k > 0:
            high_k, low_k = max(over_k, before_k), min(over_k, before_k)
            part = 1.0 if low_k >= 0 else high_k / (high_k - low_k)
            found.above_s += part * dt_s
            found.overshoot_ks += part * dt_s * (high_k + max(low_k, 0.0)) / 2
            found.last_above_s = plant.now_ms / 1000
        for i, size in enumerate(self._sizes):
            cluster = self.case.spec.clusters[i]
            found.work += size * shares[i] * dt_s * cluster.opps[plant.steps[i]][0]
            found.full_work += size * shares[i] * dt_s * cluster.opps[-1][0]
        if self._trace_ms and plant.now_ms >= self._traced_ms:
            self._traced_ms = plant.now_ms + self._trace_ms
            pairs = zip(self.case.spec.clusters, plant.steps, strict=True)
            mhz = max(c.opps[s][0] for c, s in pairs)
            found.trace.append((plant.now_ms / 1000, plant.hottest_c, mhz, self.load.tokens))

    def _sensed(self) -> Sequence[float | None]:
        values = self.plant.sensed_c()
        accident = self.accident
        if accident and 0 <= self.plant.now_ms - accident.at_ms < accident.blind_ms:
            return [None] * len(values)
        return values

    def _accident(self, now_ms: int) -> bool:
        """True when another program lifted the caps just now."""
        accident = self.accident
        if accident is None or now_ms < accident.at_ms:
            return False
        if not self._happened:
            self._happened = True
            self._lifted_ms = accident.at_ms
            accident.happen(self.plant)
        if now_ms < self._lifted_ms or now_ms >= accident.at_ms + accident.lifted_ms:
            return False
        self._lifted_ms += 1000
        if not self.law.overwrite():
            return False
        self.plant.steps[:] = self._top
        return True
