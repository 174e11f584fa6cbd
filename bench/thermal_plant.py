"""The plants of ``stoker.drivers.plants`` in integer milliseconds, fast enough for a sweep.

The same Foster chain with its exact solution, but a step is as long as nothing changes. A test
holds it against the plant that the daemon simulates. Knows no law and no wall.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence
from typing import Final

from stoker.drivers.plants import LEAK_FROM_C, SENSOR_LAG_S, PlantSpec

SENSOR_DELAY_MS: Final = 30
ACTUATOR_DELAY_MS: Final = 20
AIR_MS: Final = 60_000.0
"""Time constant of another air: a board does not jump by ten kelvins."""


class FastPlant:
    """``step`` moves heat, ``sensed_c`` reads the zones. ``shares`` per cluster: busy CPUs over
    all CPUs, times the activity of what they run."""

    def __init__(self, spec: PlantSpec, seed: int = 1) -> None:
        self.spec = spec
        self.ambient_c = self.air_c = spec.ambient_c  # now, and where it goes within minutes
        self.slow_factor = 1.0  # of the slow resistances: above 1 = the fan stands still
        self.now_ms = 0
        self.watts = [[c.watts(i) for i in range(len(c.opps))] for c in spec.clusters]
        self.steps = [len(c.opps) - 1 for c in spec.clusters]
        self.fast = [0.0] * len(spec.clusters)
        self.slow = [0.0] * (len(spec.resistances) - 1)
        self.junction = [spec.ambient_c] * len(spec.clusters)
        self.hottest_c = spec.ambient_c
        self.dynamic_w = 0.0
        self._private = [spec.resistances[0] * spec.full_w / c.watts(-1) for c in spec.clusters]
        self._lag = list(self.junction)
        self._shown: deque[tuple[int, tuple[float, ...]]] = deque([(0, tuple(self._lag))])
        self._random = random.Random(seed)
        self._blends: dict[int, tuple[float, tuple[float, ...], float]] = {}
        policies = [c.policy for c in spec.clusters]
        self._zones = [policies.index(p) if p else -1 for p in spec.zones.values()]

    def settle(self, shares: Sequence[float], seconds: float = 6000.0) -> None:
        """Start warm: as after so long at this load, uncapped."""
        for _ in range(int(seconds / 20)):
            self.step(20_000, shares)
        self.restart()

    def restart(self) -> None:
        """Time from zero; the sensor shows what is."""
        self.now_ms = 0
        self._lag = list(self.junction)
        self._shown = deque([(0, tuple(self._lag))])

    def step(self, dt_ms: int, shares: Sequence[float]) -> None:
        blends = self._blends.get(dt_ms)
        if blends is None:
            blends = self._blend(dt_ms)
        fast_blend, slow_blends, lag_blend = blends
        spec, resistances = self.spec, self.spec.resistances
        base_w = spec.base_w + spec.leak_w_per_k * (self.hottest_c - LEAK_FROM_C)
        if base_w < 0:
            base_w = 0.0
        total_w = base_w
        fast, lag, junction = self.fast, self._lag, self.junction
        for i, table in enumerate(self.watts):
            watts = table[self.steps[i]] * shares[i]
            total_w += watts
            fast[i] += (self._private[i] * watts + resistances[0] * base_w - fast[i]) * fast_blend
        board_c, slow, factor = self.ambient_c, self.slow, self.slow_factor
        for i, blend in enumerate(slow_blends):
            slow[i] += (resistances[i + 1] * factor * total_w - slow[i]) * blend
            board_c += slow[i]
        hottest_c = -math.inf
        for i, own in enumerate(fast):
            value = board_c + own
            junction[i] = value
            lag[i] += (value - lag[i]) * lag_blend
            hottest_c = max(hottest_c, value)
        self.hottest_c = hottest_c
        self.dynamic_w = total_w - base_w
        if self.ambient_c != self.air_c:
            self.ambient_c += (self.air_c - self.ambient_c) * -math.expm1(-dt_ms / AIR_MS)
        self.now_ms += dt_ms
        self._shown.append((self.now_ms, tuple(lag)))

    def sensed_c(self) -> list[float]:
        """What each zone's file would say now: late, noisy and coarse."""
        shown, limit_ms = self._shown, self.now_ms - SENSOR_DELAY_MS
        while len(shown) > 1 and shown[1][0] <= limit_ms:
            shown.popleft()
        values = shown[0][1]
        lsb_c, hottest_c = self.spec.lsb_c, max(values)
        found = []
        for zone in self._zones:
            true_c = hottest_c if zone < 0 else values[zone]
            noisy_c = true_c + self._random.gauss(0.0, lsb_c / 4)
            found.append(math.floor(noisy_c / lsb_c) * lsb_c)
        return found

    def _blend(self, dt_ms: int) -> tuple[float, tuple[float, ...], float]:
        dt_s = dt_ms / 1000
        parts = tuple(-math.expm1(-dt_s / tau) for tau in self.spec.taus)
        found = parts[0], parts[1:], -math.expm1(-dt_s / SENSOR_LAG_S)
        self._blends[dt_ms] = found
        return found
