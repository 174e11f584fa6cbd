"""The laws that the thermal benchmark compares ours with, each with the logic of its original.

``open-loop``: nothing reads the temperature. ``step-table``: the rule first described for
this product (every 10 ms; 3 K above the wall → −200 MHz, 1 K below → +100 MHz).
``step-wise``: the Linux kernel's governor of that name. power_allocator is thermal_ipa.py,
ours is thermal_ours.py.
"""

from __future__ import annotations

from typing import Final

from bench.thermal_law import Order, Seen
from stoker.drivers.plants import PlantSpec

PASSIVE_MS: Final = 100
TABLE_MS: Final = 10


def top_steps(spec: PlantSpec) -> tuple[int, ...]:
    return tuple(len(c.opps) - 1 for c in spec.clusters)


class OpenLoop:
    def __init__(self, spec: PlantSpec) -> None:
        self._order = Order(top_steps(spec), 1000)

    def tick(self, _seen: Seen) -> Order:
        return self._order

    def overwrite(self) -> bool:
        return False


class StepTable:
    """Sensor minus wall, every 10 ms, bang-bang with a dead band from −1 to +3 K."""

    def __init__(self, spec: PlantSpec, wall_c: float) -> None:
        self._spec, self._wall_c = spec, wall_c
        self._mhz = [c.opps[-1][0] for c in spec.clusters]
        self._order = Order(top_steps(spec), TABLE_MS)

    def tick(self, seen: Seen) -> Order:
        known = [c for c in seen.sensed_c if c is not None]
        above_k = max(known) - self._wall_c if known else 0.0
        change = -200.0 if above_k >= 3 else 100.0 if above_k <= -1 else 0.0
        if change:
            for i, cluster in enumerate(self._spec.clusters):
                low, high = cluster.opps[0][0], cluster.opps[-1][0]
                self._mhz[i] = min(max(self._mhz[i] + change, low), high)
            pairs = zip(self._spec.clusters, self._mhz, strict=True)
            self._order = Order(tuple(c.step_at(mhz * 1000) for c, mhz in pairs), TABLE_MS)
        return self._order

    def overwrite(self) -> bool:
        """It writes again only when its rule says so."""
        self._order = Order(top_steps(self._spec), TABLE_MS)
        return True


class StepWise:
    """gov_step_wise as in Linux 6.1: at or above the trip and rising, one state deeper; below
    it and falling, one state back; 100 ms while passive. (That kernel's governor ignores the
    hysteresis; so does this.) An interrupt at the trip is granted to it: it never polls slower.
    """

    def __init__(self, spec: PlantSpec, trip_c: float) -> None:
        self._spec, self._trip_c = spec, trip_c
        self._zones = [
            [i for i, c in enumerate(spec.clusters) if policy in ("", c.policy)]
            for policy in spec.zones.values()
        ]
        self._last: list[float | None] = [None] * len(self._zones)
        self._state = {(z, i): 0 for z, members in enumerate(self._zones) for i in members}

    def tick(self, seen: Seen) -> Order:
        for zone, members in enumerate(self._zones):
            now_c, before_c = seen.sensed_c[zone], self._last[zone]
            if now_c is None:
                continue
            self._last[zone] = now_c
            before_c = now_c if before_c is None else before_c
            throttle = now_c >= self._trip_c
            for i in members:
                key = (zone, i)
                if throttle and now_c > before_c:
                    deepest = len(self._spec.clusters[i].opps) - 1
                    self._state[key] = min(self._state[key] + 1, deepest)
                elif not throttle and now_c < before_c:
                    self._state[key] = max(self._state[key] - 1, 0)
        steps = []
        for i, cluster in enumerate(self._spec.clusters):
            state = max(s for (_, member), s in self._state.items() if member == i)
            steps.append(len(cluster.opps) - 1 - state)
        return Order(tuple(steps), PASSIVE_MS)

    def overwrite(self) -> bool:
        return False
