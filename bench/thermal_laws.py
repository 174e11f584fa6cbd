"""The laws that the thermal benchmark compares, each with the logic of its original.

``open-loop``: nothing reads the temperature. ``step-table``: the rule first described for
this product (every 10 ms; 3 K above the wall → −200 MHz, 1 K below → +100 MHz).
``step-wise``: the Linux kernel's governor. ``stoker``: the whole service on fake ports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from bench.plant_ports import plant_ports
from stoker.config.schema import ThermalConfig
from stoker.core.boards import BoardFacts, choose_board
from stoker.drivers.board_files import load_boards
from stoker.drivers.plants import Plant
from stoker.services.thermal import ThermalService
from stoker.units import Celsius

BOARDS = Path(__file__).resolve().parents[1] / "policies" / "boards"


class Law(Protocol):
    """``tick`` returns the caps in kHz and the seconds until the next tick."""

    def tick(self) -> tuple[dict[str, float], float]: ...


class OpenLoop:
    def tick(self) -> tuple[dict[str, float], float]:
        return {}, 1.0


class StepTable:
    """Sensor minus wall, every 10 ms, bang-bang with a dead band from −1 to +3 K."""

    def __init__(self, plant: Plant, wall_c: float) -> None:
        self._plant, self._wall_c = plant, wall_c
        self._caps = {c.policy: c.opps[-1][0] for c in plant.spec.clusters}

    def tick(self) -> tuple[dict[str, float], float]:
        above_k = (
            max(self._plant.sensed_mc(z) for z in self._plant.spec.zones) / 1000 - self._wall_c
        )
        change = -200.0 if above_k >= 3 else 100.0 if above_k <= -1 else 0.0
        for cluster in self._plant.spec.clusters:
            low, high = cluster.opps[0][0], cluster.opps[-1][0]
            cap = self._caps[cluster.policy] + change
            self._caps[cluster.policy] = min(max(cap, low), high)
        return {name: mhz * 1000 for name, mhz in self._caps.items()}, 0.01


class StepWise:
    """gov_step_wise as in Linux 6.1: at or above the trip and rising, one state deeper; below
    it and falling, one state back; polled every 100 ms while passive, else every second.
    (That kernel's governor ignores the hysteresis; so does this.)"""

    def __init__(self, plant: Plant, trip_c: float) -> None:
        self._plant, self._trip_c = plant, trip_c
        self._zones = {
            zone: [c for c in plant.spec.clusters if policy in ("", c.policy)]
            for zone, policy in plant.spec.zones.items()
        }
        self._last: dict[str, float] = {}
        self._state = {(z, c.policy): 0 for z, clusters in self._zones.items() for c in clusters}

    def tick(self) -> tuple[dict[str, float], float]:
        hot = False
        for zone, clusters in self._zones.items():
            now_c = self._plant.sensed_mc(zone) / 1000
            before_c = self._last.get(zone, now_c)
            self._last[zone] = now_c
            throttle = now_c >= self._trip_c
            hot = hot or throttle
            for cluster in clusters:
                key = (zone, cluster.policy)
                if throttle and now_c > before_c:
                    self._state[key] = min(self._state[key] + 1, len(cluster.opps) - 1)
                elif not throttle and now_c < before_c:
                    self._state[key] = max(self._state[key] - 1, 0)
        caps = {}
        for cluster in self._plant.spec.clusters:
            deepest = max(s for (_, p), s in self._state.items() if p == cluster.policy)
            caps[cluster.policy] = cluster.opps[len(cluster.opps) - 1 - deepest][0] * 1000
        return caps, 0.1 if hot or any(self._state.values()) else 1.0


class Stoker:
    """The real service, core and presets; only the drivers are replaced by the plant."""

    def __init__(self, plant: Plant, wall_c: float) -> None:
        self.ports, self.sensors, self.policies = plant_ports(plant)
        preset = choose_board(load_boards(BOARDS), BoardFacts(), plant.spec.board)
        config = ThermalConfig(wall_c=Celsius(wall_c))
        self.service = ThermalService(config, preset, self.ports)

    def tick(self) -> tuple[dict[str, float], float]:
        self.service.tick()
        return self.policies.effective(), self.service.snapshot().period_s
