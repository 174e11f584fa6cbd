"""A plant behind the thermal ports, in memory and in simulated time: no files, no sleeping."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.drivers.plants import Plant
from stoker.events.thermal import CapRecord, FrequencyPolicy, Reading, Sensor, Trip
from stoker.services.caps import ThermalPorts
from stoker.units import Celsius, KiloHertz, Seconds


class PlantClock:
    def __init__(self, plant: Plant) -> None:
        self._plant = plant

    def monotonic_s(self) -> Seconds:
        return Seconds(self._plant.time_s)


class PlantSensors:
    """``fault`` makes every read fail with that name; ``frozen_c`` makes it repeat a value."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self.fault = ""
        self.frozen_c: Celsius | None = None

    def discover(self) -> tuple[Sensor, ...]:
        trips = tuple(Trip(kind, Celsius(at_c)) for kind, at_c in self._plant.spec.trips)
        return tuple(Sensor(zone, "zone", zone, trips) for zone in self._plant.spec.zones)

    def read(self, sensor: Sensor) -> Reading:
        if self.fault:
            return Reading(sensor.name, None, self.fault)
        if self.frozen_c is not None:
            return Reading(sensor.name, self.frozen_c)
        return Reading(sensor.name, Celsius(self._plant.sensed_mc(sensor.name) / 1000))


class PlantPolicies:
    """``kernel_khz`` limits below ours, as the kernel's own governor would."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self.slot_khz = {
            c.policy: KiloHertz(int(c.opps[-1][0] * 1000)) for c in plant.spec.clusters
        }
        self.kernel_khz: dict[str, KiloHertz] = {}
        self.refusals: dict[str, str] = {}  # policy -> why its writes fail
        self.writes = 0

    def discover(self) -> tuple[FrequencyPolicy, ...]:
        out = []
        for cluster in self._plant.spec.clusters:
            steps = tuple(KiloHertz(int(mhz * 1000)) for mhz, _ in cluster.opps)
            out.append(
                FrequencyPolicy(cluster.policy, cluster.cpus, steps[0], steps[-1], steps, True)
            )
        return tuple(out)

    def cap_khz(self, policy: FrequencyPolicy) -> KiloHertz | None:
        slot = self.slot_khz[policy.name]
        return min(slot, self.kernel_khz.get(policy.name, slot))

    def set_cap(self, policy: FrequencyPolicy, cap: KiloHertz) -> bool:
        self.writes += 1
        if policy.name in self.refusals:
            return False
        self.slot_khz[policy.name] = cap
        return True

    def fault(self, policy: FrequencyPolicy) -> str:
        return self.refusals.get(policy.name, "")

    def effective(self) -> dict[str, float]:
        return {p.name: float(self.cap_khz(p) or 0) for p in self.discover()}


class MemoryJournal:
    def __init__(self) -> None:
        self.records: tuple[CapRecord, ...] = ()

    def load(self) -> tuple[CapRecord, ...]:
        return self.records

    def write(self, records: Sequence[CapRecord]) -> None:
        self.records = tuple(records)

    def clear(self) -> None:
        self.records = ()


def plant_ports(plant: Plant) -> tuple[ThermalPorts, PlantSensors, PlantPolicies]:
    sensors, policies = PlantSensors(plant), PlantPolicies(plant)
    ports = ThermalPorts(sensors, policies, MemoryJournal(), PlantClock(plant), "boot")
    return ports, sensors, policies
