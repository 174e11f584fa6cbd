"""The whole thermal service on a plant in memory: fake ports, simulated time, no files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.plant_ports import MemoryJournal, PlantPolicies, plant_ports
from bench.thermal_law import Order, Seen
from stoker.config.schema import ThermalConfig
from stoker.core.boards import BoardFacts, choose_board
from stoker.drivers.board_files import load_boards
from stoker.drivers.plants import Plant, PlantSpec
from stoker.events.thermal import Reading, Sensor, Trip
from stoker.services.caps import ThermalPorts
from stoker.services.thermal import ThermalService
from stoker.units import Celsius, Kelvin, KiloHertz, Seconds

BOARDS: Final = Path(__file__).resolve().parents[1] / "policies" / "boards"


class Stoker:
    """The real service, core and presets; only the drivers are replaced by the plant."""

    def __init__(self, plant: Plant, wall_c: float) -> None:
        self.ports, self.sensors, self.policies = plant_ports(plant)
        preset = choose_board(load_boards(BOARDS), BoardFacts(), plant.spec.board)
        config = ThermalConfig(wall_c=Celsius(wall_c))
        self.service = ThermalService(config, preset, self.ports)

    def tick(self) -> tuple[dict[str, float], float]:
        """The caps in kHz and the seconds until the next tick."""
        self.service.tick()
        return self.policies.effective(), self.service.snapshot().period_s


class _SeenSensors:
    """Sensors that show what the run lets the law see."""

    def __init__(self, spec: PlantSpec) -> None:
        self._spec = spec
        self.values: dict[str, float | None] = {}

    def discover(self) -> tuple[Sensor, ...]:
        trips = tuple(Trip(kind, Celsius(at_c)) for kind, at_c in self._spec.trips)
        return tuple(Sensor(zone, "zone", zone, trips) for zone in self._spec.zones)

    def read(self, sensor: Sensor) -> Reading:
        value = self.values.get(sensor.name)
        if value is None:
            return Reading(sensor.name, None, "EAGAIN")
        return Reading(sensor.name, Celsius(value))


class _SeenClock:
    now_s = 0.0

    def monotonic_s(self) -> Seconds:
        return Seconds(self.now_s)


class WholeService:
    """The service as a ``Law``: fail-safe, shared slot and all. For accidents, and to hold
    ``thermal_ours`` against."""

    def __init__(self, spec: PlantSpec, wall_c: float, margin_k: float = 0.0) -> None:
        self._spec = spec
        self._clock, self._sensors = _SeenClock(), _SeenSensors(spec)
        self._policies = PlantPolicies(Plant(spec))
        ports = ThermalPorts(self._sensors, self._policies, MemoryJournal(), self._clock, "boot")
        preset = choose_board(load_boards(BOARDS), BoardFacts(), spec.board)
        config = ThermalConfig(wall_c=Celsius(wall_c), margin_k=Kelvin(margin_k))
        self._service = ThermalService(config, preset, ports)

    def tick(self, seen: Seen) -> Order:
        self._clock.now_s = seen.now_ms / 1000
        self._sensors.values = dict(zip(self._spec.zones, seen.sensed_c, strict=True))
        self._service.tick()
        caps = self._policies.effective()
        steps = tuple(c.step_at(caps[c.policy]) for c in self._spec.clusters)
        return Order(steps, round(self._service.snapshot().period_s * 1000))

    def overwrite(self) -> bool:
        for cluster in self._spec.clusters:
            self._policies.slot_khz[cluster.policy] = KiloHertz(int(cluster.opps[-1][0] * 1000))
        return True
