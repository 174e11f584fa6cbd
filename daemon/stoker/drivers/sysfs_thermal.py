"""Reads thermal zones and hwmon chips below a root (``/sys`` or a simulated tree).

Zones are named by ``type``, never by index: indexes change across boots. A sensor's own
fault (EAGAIN, ENODATA, EIO …) becomes the reading's ``fault``; nothing here is fatal.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stoker.drivers.attribute import ReadText, fault_name, numbered, read_attribute
from stoker.events.thermal import Reading, Sensor, Trip
from stoker.units import Celsius

HWMON_CHIPS = frozenset({"coretemp", "k10temp", "zenpower", "cpu_thermal", "scpi_sensors"})


class SysfsThermal:
    """Port ``ThermalSensors`` on class/thermal, with class/hwmon as the fallback."""

    def __init__(self, root: Path, read: ReadText = read_attribute) -> None:
        self._root = root
        self._read = read
        self._paths: dict[str, Path] = {}  # of sensors that were read: each tick needs them

    def discover(self) -> tuple[Sensor, ...]:
        zones = list(self._zones())
        known = {sensor.name for sensor in zones}
        chips = [chip for chip in self._chips() if chip.name not in known]
        return (*zones, *chips)

    def read(self, sensor: Sensor) -> Reading:
        path = self._paths.get(sensor.path)
        if path is None:
            path = self._paths[sensor.path] = Path(sensor.path)
        try:
            text = self._read(path)
        except OSError as error:
            return Reading(sensor.name, None, fault_name(error))
        try:
            return Reading(sensor.name, Celsius(int(text) / 1000.0))
        except ValueError:
            return Reading(sensor.name, None, "not a number")

    def _zones(self) -> Iterator[Sensor]:
        used: dict[str, int] = {}
        for directory in numbered(self._root / "class" / "thermal", "thermal_zone"):
            kind = self._text(directory / "type")
            if not kind:
                continue
            used[kind] = used.get(kind, 0) + 1
            # Two zones of one type exist (acpitz); the order of indexes tells them apart.
            name = kind if used[kind] == 1 else f"{kind}#{used[kind]}"
            yield Sensor(name, "zone", str(directory / "temp"), self._trips(directory))

    def _trips(self, directory: Path) -> tuple[Trip, ...]:
        trips: list[Trip] = []
        for path in numbered(directory, "trip_point_", "_type"):
            kind = self._text(path)
            value = self._milli(path.with_name(path.name.removesuffix("_type") + "_temp"))
            # 0 and below are "not set" on many boards; one of them once locked laptops
            # to their lowest frequency.
            if kind and value is not None and 0 < value <= 200:
                trips.append(Trip(kind, Celsius(value)))
        return tuple(trips)

    def _chips(self) -> Iterator[Sensor]:
        for directory in numbered(self._root / "class" / "hwmon", "hwmon"):
            chip = self._text(directory / "name")
            if chip not in HWMON_CHIPS:
                continue
            inputs = numbered(directory, "temp", "_input")
            for path in inputs:
                stem = path.name.removesuffix("_input")
                label = self._text(directory / f"{stem}_label") or stem
                name = chip if len(inputs) == 1 and label == stem else f"{chip}/{label}"
                trips = []
                for suffix, kind in (("crit", "critical"), ("max", "hot")):
                    value = self._milli(directory / f"{stem}_{suffix}")
                    if value is not None and 0 < value <= 200:
                        trips.append(Trip(kind, Celsius(value)))
                yield Sensor(name, "hwmon", str(path), tuple(trips))

    def _text(self, path: Path) -> str:
        try:
            return self._read(path)
        except OSError:
            return ""

    def _milli(self, path: Path) -> float | None:
        try:
            return int(self._text(path)) / 1000.0
        except ValueError:
            return None
