"""Stoker's law with operating points: the daemon's whole decision, tick by tick.

Slower than thermal_ours.py, but nothing of how points are chosen is written twice.
"""

from __future__ import annotations

from dataclasses import replace

from bench.thermal_law import Order, Seen
from bench.thermal_ours import Tuning, plan_of
from stoker.core import thermal
from stoker.core.caps import SetCap
from stoker.core.operating_points import Fronts
from stoker.core.thermal_state import Observation
from stoker.drivers.plants import PlantSpec
from stoker.events.thermal import Reading
from stoker.units import Celsius, KiloHertz, Seconds


class OursWithPoints:
    """``share``: of a request's tokens, those that are read."""

    def __init__(
        self, spec: PlantSpec, wall_c: float, tuning: Tuning, fronts: Fronts, share: float
    ) -> None:
        self._spec, self._share = spec, share
        self._plan = replace(plan_of(spec, wall_c, tuning), fronts=fronts)
        self._state = thermal.start(self._plan, Seconds(0.0))
        self._slot = {name: policy.max_khz for name, policy in self._plan.policies.items()}

    def tick(self, seen: Seen) -> Order:
        readings = {
            zone: Reading(zone, None if value is None else Celsius(value))
            for zone, value in zip(self._spec.zones, seen.sensed_c, strict=True)
        }
        granted: dict[str, KiloHertz | None] = dict(self._slot)
        phase = "" if seen.phase == "other" else seen.phase
        observed = Observation(
            Seconds(seen.now_ms / 1000), readings, granted, phase=phase, prefill_share=self._share
        )
        self._state, decision = thermal.decide(self._plan, self._state, observed)
        for action in decision.actions:
            if isinstance(action, SetCap):
                self._slot[action.policy] = action.cap_khz
        steps = tuple(c.step_at(self._slot[c.policy]) for c in self._spec.clusters)
        threads = self._state.spending.threads(phase)
        return Order(steps, round(decision.snapshot.period_s * 1000), threads)

    def overwrite(self) -> bool:
        self._slot = {name: policy.max_khz for name, policy in self._plan.policies.items()}
        return True
