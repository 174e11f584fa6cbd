"""The kernel's power_allocator governor ("IPA") from its documented logic, in its own integers.

Source of the rules: Documentation/driver-api/thermal/power_allocator.rst and the governor's
published parameters: milliwatts, millidegrees, gains in 1/1024. One zone (the hottest) and
one power actor per cluster, whose energy model is exact: better than real boards have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.thermal_law import Order, Seen
from bench.thermal_laws import top_steps
from stoker.drivers.plants import PlantSpec

FRAC_BITS: Final = 10
ONE: Final = 1 << FRAC_BITS


@dataclass(frozen=True, slots=True)
class IpaParameters:
    """What sysfs and the device tree let one set. ``k_*`` in 1/1024 mW per m°C; 0 = estimated
    from ``sustainable_mw`` as the kernel does; that one 0 = the sum of the least powers."""

    sustainable_mw: int = 0
    k_po: int = 0
    k_pu: int = 0
    k_i: int = 0
    integral_cutoff_mc: int = 0
    switch_on_below_mc: int = 10_000  # the first passive trip lies so far below the last
    polling_ms: int = 100
    weights: tuple[int, ...] = ()  # per actor in 1/1024; () = all alike


@dataclass(slots=True)
class Pid:
    """err_integral and what the governor derives once from the parameters."""

    parameters: IpaParameters
    sustainable_mw: int
    err_integral: int = 0

    def __post_init__(self) -> None:
        p, below_mc = self.parameters, self.parameters.switch_on_below_mc
        self.k_po = p.k_po or (self.sustainable_mw << FRAC_BITS) // below_mc
        self.k_pu = p.k_pu or (2 * self.sustainable_mw << FRAC_BITS) // below_mc
        self.k_i = p.k_i or self.k_pu // 10

    k_po: int = 0
    k_pu: int = 0
    k_i: int = 0

    def budget_mw(self, control_mc: int, now_mc: int, max_mw: int) -> int:
        """The power that all actors together may draw. k_d is 0, as by default."""
        error = (control_mc - now_mc) << FRAC_BITS
        proportional = (self.k_po if error < 0 else self.k_pu) * error >> FRAC_BITS
        integral = self.k_i * self.err_integral >> FRAC_BITS
        if error < self.parameters.integral_cutoff_mc << FRAC_BITS:
            following = integral + (self.k_i * error >> FRAC_BITS)
            if abs(following) < max_mw << FRAC_BITS:
                integral = following
                self.err_integral += error
        power = self.sustainable_mw + ((proportional + integral) >> FRAC_BITS)
        return min(max(power, 0), max_mw)


def divide(weighted: Sequence[int], most: Sequence[int], budget_mw: int) -> list[int]:
    """Each actor's share by weighted request; what is above an actor's maximum goes to the
    others, by the room that they have left."""
    total = max(1, sum(weighted))
    granted, room, spare = [], [], 0
    for i, request in enumerate(weighted):
        share = (request * budget_mw + total // 2) // total
        if share > most[i]:
            spare += share - most[i]
            share = most[i]
        granted.append(share)
        room.append(most[i] - share)
    all_room = sum(room)
    spare = min(spare, all_room)
    if spare > 0:
        granted = [g + r * spare // all_room for g, r in zip(granted, room, strict=True)]
    return granted


class PowerAllocator:
    def __init__(self, spec: PlantSpec, control_c: float, parameters: IpaParameters) -> None:
        self._spec, self._p = spec, parameters
        self._control_mc = round(control_c * 1000)
        # The energy model counts one CPU; a cluster's power is that times its load in CPUs.
        self._model = [
            [round(c.watts(i) * 1000 / len(c.cpus)) for i in range(len(c.opps))]
            for c in spec.clusters
        ]
        least = sum(m[0] * len(c.cpus) for m, c in zip(self._model, spec.clusters, strict=True))
        self.pid = Pid(parameters, parameters.sustainable_mw or least)
        self._steps = top_steps(spec)

    def tick(self, seen: Seen) -> Order:
        known = [c for c in seen.sensed_c if c is not None]
        if not known:
            return Order(self._steps, self._p.polling_ms)
        now_mc = round(max(known) * 1000)
        if now_mc < self._control_mc - self._p.switch_on_below_mc:
            self.pid.err_integral = 0
            self._steps = top_steps(self._spec)
        else:
            self._allocate(now_mc, seen)
        return Order(self._steps, self._p.polling_ms)

    def overwrite(self) -> bool:
        return False

    def _allocate(self, now_mc: int, seen: Seen) -> None:
        loads = [max(1, round(100 * busy)) for busy in seen.busy]
        weights = self._p.weights or (ONE,) * len(loads)
        most, weighted = [], []
        for i, model in enumerate(self._model):
            running = min(self._steps[i], seen.granted[i])
            most.append(model[-1] * loads[i] // 100)
            weighted.append(weights[i] * (model[running] * loads[i] // 100) >> FRAC_BITS)
        budget_mw = self.pid.budget_mw(self._control_mc, now_mc, sum(most))
        granted = divide(weighted, most, budget_mw)
        self._steps = tuple(
            self._step(self._model[i], granted[i] * 100 // loads[i]) for i in range(len(loads))
        )

    @staticmethod
    def _step(model: Sequence[int], per_cpu_mw: int) -> int:
        """The highest step that the power pays for, else the lowest."""
        return max((i for i, mw in enumerate(model) if mw <= per_cpu_mw), default=0)
