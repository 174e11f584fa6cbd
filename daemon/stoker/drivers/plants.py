"""Thermal models of published boards: Foster chains, power per frequency step, coarse sensors.

A plant knows nothing of Stoker: it takes frequency limits and load, and gives junction and
sensor temperatures. Fits and their sources are in docs/thermal.md. Seeded, no clock.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

SENSOR_LAG_S: Final = 0.030
SENSOR_DELAY_S: Final = 0.030
ACTUATOR_DELAY_S: Final = 0.020
LEAK_FROM_C: Final = 50.0


@dataclass(frozen=True)
class Cluster:
    """CPUs that share a clock. ``coefficient_uw`` in µW/MHz/V² per CPU, activity included."""

    policy: str
    cpus: tuple[int, ...]
    opps: tuple[tuple[float, float], ...]  # (MHz, mV)
    coefficient_uw: float
    weight: float = 1.0  # work per MHz

    def watts(self, index: int) -> float:
        mhz, mv = self.opps[index]
        return self.coefficient_uw * 1e-6 * mhz * (mv / 1000) ** 2 * len(self.cpus)

    def step_at(self, cap_khz: float) -> int:
        """The highest step that is not above the cap, as hardware rounds."""
        return max((i for i, (mhz, _) in enumerate(self.opps) if mhz * 1000 <= cap_khz), default=0)


@dataclass(frozen=True)
class PlantSpec:
    """``resistances`` K/W and ``taus`` s, fast to slow; the first pair is private to each
    cluster where there are several. ``zones``: sensor type -> policy it sits on ("" = hottest).
    """

    name: str
    board: str
    compatible: tuple[str, ...]
    ambient_c: float
    base_w: float
    leak_w_per_k: float
    resistances: tuple[float, ...]
    taus: tuple[float, ...]
    clusters: tuple[Cluster, ...]
    zones: Mapping[str, str]
    lsb_c: float
    trips: tuple[tuple[str, float], ...] = field(default=(("critical", 110.0),))

    @property
    def full_w(self) -> float:
        return sum(cluster.watts(-1) for cluster in self.clusters)


def _line(
    low: int, high: int, step: int, points: dict[int, float]
) -> tuple[tuple[float, float], ...]:
    """A table of steps with voltages interpolated between the known points."""
    known = sorted(points.items())
    out: list[tuple[float, float]] = []
    for mhz in range(low, high + 1, step):
        below = max((p for p in known if p[0] <= mhz), default=known[0])
        above = min((p for p in known if p[0] >= mhz), default=known[-1])
        part = (mhz - below[0]) / (above[0] - below[0]) if above[0] != below[0] else 0.0
        out.append((float(mhz), below[1] + part * (above[1] - below[1])))
    return tuple(out)


_PI4: Final = Cluster(
    "policy0", (0, 1, 2, 3), _line(600, 1500, 100, {600: 720.0, 1500: 859.0}), 436 * 1.55
)
_PI5_MV: Final = (720, 760, 770, 785, 800, 815, 825, 840, 855, 870)
_PI5: Final = Cluster(
    "policy0",
    (0, 1, 2, 3),
    tuple((1500.0 + 100 * i, float(mv)) for i, mv in enumerate(_PI5_MV)),
    416,
)
_LITTLE_OPPS: Final = ((1008.0, 675.0), (1200, 712.5), (1416, 762.5), (1608, 850), (1800, 950))
_BIG_OPPS: Final = (
    (1200.0, 675.0), (1416, 725), (1608, 762.5), (1800, 850), (2016, 925), (2208, 987.5),
    (2400, 1000),
)  # fmt: skip
_RK3588: Final = (
    Cluster("policy0", (0, 1, 2, 3), _LITTLE_OPPS, 228, weight=0.52),
    Cluster("policy4", (4, 5), _BIG_OPPS, 416),
    Cluster("policy6", (6, 7), _BIG_OPPS, 416),
)


# A 60 W processor whose heatsink is held at 60 °C: only the die's own node is left. R and τ are
# assumed after HotSpot's example chip; no published trace samples fast enough to show them.
_DIE: Final = Cluster(
    "policy0", tuple(range(8)), _line(800, 4000, 100, {800: 700.0, 4000: 1100.0}), 1550
)


def _pi(name: str, model: int, r: tuple[float, ...], tau: tuple[float, ...], base_w: float,
        ambient_c: float = 23.0) -> PlantSpec:  # fmt: skip
    chip = {4: "brcm,bcm2711", 5: "brcm,bcm2712"}[model]
    return PlantSpec(
        name=name,
        board=f"raspberrypi-{model}",
        compatible=(f"raspberrypi,{model}-model-b", chip),
        ambient_c=ambient_c,
        base_w=base_w,
        leak_w_per_k=0.011,
        resistances=r,
        taus=tau,
        clusters=(_PI4 if model == 4 else _PI5,),
        zones={"cpu-thermal": "policy0"},
        lsb_c=0.487 if model == 4 else 0.55,
    )


PLANTS: Final[dict[str, PlantSpec]] = {
    spec.name: spec
    for spec in (
        _pi("pi4-bare", 4, (2.5, 4.0, 6.1), (1.0, 44.0, 600.0), 2.3),
        _pi("pi4-cooler", 4, (2.6, 4.5), (7.3, 218.0), 2.0, 22.0),
        _pi("pi5-passive", 5, (0.7, 6.0), (5.8, 300.0), 2.6),
        _pi("pi5-bare", 5, (1.4, 4.0, 7.2), (2.0, 40.0, 600.0), 2.6),
        PlantSpec(
            name="rk3588-small-heatsink",
            board="rk3588",
            compatible=("radxa,rock-5a", "rockchip,rk3588s"),
            ambient_c=23.0,
            base_w=2.6,
            leak_w_per_k=0.0125,
            resistances=(2.0, 2.5, 7.0),
            taus=(2.5, 45.0, 500.0),
            clusters=_RK3588,
            zones={
                "package-thermal": "",
                "bigcore0-thermal": "policy4",
                "bigcore2-thermal": "policy6",
                "littlecore-thermal": "policy0",
            },
            lsb_c=0.92,
            trips=(("passive", 85.0), ("critical", 115.0)),
        ),
        PlantSpec(
            name="die-only",
            board="x86-generic",
            compatible=(),
            ambient_c=60.0,
            base_w=5.0,
            leak_w_per_k=0.0,
            resistances=(0.5,),
            taus=(0.05,),
            clusters=(_DIE,),
            zones={"x86_pkg_temp": "policy0"},
            lsb_c=1.0,
            trips=(("critical", 105.0),),
        ),
    )
}


def warmer(spec: PlantSpec, ambient_c: float) -> PlantSpec:
    """The same board in a warmer place (a closed cabinet)."""
    return replace(spec, name=f"{spec.name}@{ambient_c:g}C", ambient_c=ambient_c)


class Plant:
    """State of one board. ``advance`` uses the exact solution, so any step gives one curve."""

    def __init__(self, spec: PlantSpec, seed: int = 1) -> None:
        self.spec = spec
        self.ambient_c = spec.ambient_c
        self.time_s = 0.0
        self.work = 0.0  # MHz·CPU·s, weighted
        self.full_work = 0.0
        self._random = random.Random(seed)
        self._fast = [0.0] * len(spec.clusters)
        self._slow = [0.0] * (len(spec.resistances) - 1)
        self._junction = [spec.ambient_c] * len(spec.clusters)
        full_w = spec.full_w
        # A small cluster has a larger resistance to the spreader; all-core load then gives
        # the fitted chain again.
        self._private = [spec.resistances[0] * full_w / c.watts(-1) for c in spec.clusters]
        self._steps = [len(c.opps) - 1 for c in spec.clusters]
        self._pending: deque[tuple[float, list[int]]] = deque()
        self._lag: dict[str, float] = dict.fromkeys(spec.zones, spec.ambient_c)
        self._delayed: dict[str, deque[tuple[float, float]]] = {z: deque() for z in spec.zones}
        self._shown: dict[str, float] = dict.fromkeys(spec.zones, spec.ambient_c)

    @property
    def junction_c(self) -> float:
        """The true hottest spot, without the sensor's faults."""
        return max(self._junction)

    @property
    def mhz(self) -> dict[str, float]:
        return {
            c.policy: c.opps[i][0] for c, i in zip(self.spec.clusters, self._steps, strict=True)
        }

    @property
    def power_w(self) -> float:
        return self._power(1.0)[0]

    def settle(self, load: float, seconds: float | None = None) -> None:
        """Start warm: as after ``seconds`` (default: for ever) at this load, uncapped."""
        step_s = 20.0
        for _ in range(int((seconds or 6000.0) / step_s)):
            self.advance(step_s, {}, load)
        self._restart()

    def warm_to(self, junction_c: float, load: float = 1.0) -> None:
        """Start warm: run uncapped until the junction is at this temperature (or settles)."""
        for _ in range(6000):
            if self.junction_c >= junction_c:
                break
            self.advance(1.0, {}, load)
        self._restart()

    def _restart(self) -> None:
        """Time and work from zero; the delay lines hold times of the warm-up."""
        self.time_s = self.work = self.full_work = 0.0
        self._pending.clear()
        for zone, queue in self._delayed.items():
            queue.clear()
            self._shown[zone] = self._lag[zone]

    def advance(self, dt_s: float, caps_khz: Mapping[str, float], load: float) -> None:
        """``caps_khz`` limits policies (absent = unlimited); ``load`` 0..1 on every CPU."""
        self._actuate(caps_khz)
        base_w, dynamic = self._power(load)
        total_w = base_w + sum(dynamic)
        r, tau = self.spec.resistances, self.spec.taus
        for i, watts in enumerate(dynamic):
            fast = self._private[i] * watts + r[0] * base_w
            self._fast[i] += (fast - self._fast[i]) * -math.expm1(-dt_s / tau[0])
        for i in range(len(self._slow)):
            slow = r[i + 1] * total_w
            self._slow[i] += (slow - self._slow[i]) * -math.expm1(-dt_s / tau[i + 1])
        board_c = self.ambient_c + sum(self._slow)
        self._junction = [board_c + fast for fast in self._fast]
        self.time_s += dt_s
        self._count(dt_s, load)
        self._sense(dt_s)

    def sensed_mc(self, zone: str) -> int:
        """What the zone's ``temp`` file would say, in millidegrees."""
        noisy = self._shown[zone] + self._random.gauss(0.0, self.spec.lsb_c / 4)
        return int(math.floor(noisy / self.spec.lsb_c) * self.spec.lsb_c * 1000)

    def _power(self, load: float) -> tuple[float, list[float]]:
        base_w = self.spec.base_w + self.spec.leak_w_per_k * (self.junction_c - LEAK_FROM_C)
        pairs = zip(self.spec.clusters, self._steps, strict=True)
        return max(0.0, base_w), [cluster.watts(step) * load for cluster, step in pairs]

    def _actuate(self, caps_khz: Mapping[str, float]) -> None:
        wanted = [c.step_at(caps_khz.get(c.policy, math.inf)) for c in self.spec.clusters]
        self._pending.append((self.time_s + ACTUATOR_DELAY_S, wanted))
        while self._pending and self._pending[0][0] <= self.time_s + 1e-9:
            self._steps = self._pending.popleft()[1]

    def _count(self, dt_s: float, load: float) -> None:
        for cluster, step in zip(self.spec.clusters, self._steps, strict=True):
            size = len(cluster.cpus) * cluster.weight * load * dt_s
            self.work += size * cluster.opps[step][0]
            self.full_work += size * cluster.opps[-1][0]

    def _sense(self, dt_s: float) -> None:
        by_policy = {c.policy: t for c, t in zip(self.spec.clusters, self._junction, strict=True)}
        blend = -math.expm1(-dt_s / SENSOR_LAG_S)
        for zone, policy in self.spec.zones.items():
            true_c = by_policy[policy] if policy else self.junction_c
            self._lag[zone] += (true_c - self._lag[zone]) * blend
            queue = self._delayed[zone]
            queue.append((self.time_s + SENSOR_DELAY_S, self._lag[zone]))
            while len(queue) > 1 and queue[0][0] <= self.time_s + 1e-9:
                self._shown[zone] = queue.popleft()[1]
