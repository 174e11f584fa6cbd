"""Watts as the board measures them: RAPL energy counters (powercap) and hwmon chips (INA…).

A counter gives watts only from its second reading on. Faults of a meter become the reading's
``fault``; nothing here is fatal, and nothing is ever written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.drivers.attribute import ReadText, fault_name, numbered, read_attribute
from stoker.events.heat_finds import PowerMeter, PowerReading
from stoker.units import Seconds, Watts

_MICRO, _MILLI = 1e-6, 1e-3
_SHORTEST_S = 0.02
"""The counter moves every millisecond or so: a shorter step would be mostly rounding."""


@dataclass(frozen=True, slots=True)
class _Count:
    at_s: Seconds
    energy_uj: int
    watts: Watts | None = None


class SysfsPower:
    """Port ``PowerMeters`` on class/powercap and class/hwmon below ``root``."""

    def __init__(
        self, root: Path, now_s: Callable[[], Seconds], read: ReadText = read_attribute
    ) -> None:
        self._root = root
        self._now_s = now_s
        self._read = read
        self._counts: dict[str, _Count] = {}

    def discover(self) -> tuple[PowerMeter, ...]:
        """Also meters that may not be read: the report tells what would grant it."""
        found: dict[str, PowerMeter] = {}
        for meter in (*self._zones(), *self._chips()):
            found.setdefault(meter.name, meter)
        return tuple(found.values())

    def read(self, meter: PowerMeter) -> PowerReading:
        try:
            if meter.kind == "energy":
                return PowerReading(meter.name, self._from_energy(meter))
            value = int(self._read(Path(meter.path)))
            if meter.kind == "power":
                return PowerReading(meter.name, Watts(value * _MICRO))
            current_ma = int(self._read(Path(meter.second)))
            return PowerReading(meter.name, Watts(value * _MILLI * current_ma * _MILLI))
        except OSError as error:
            self._counts.pop(meter.name, None)
            return PowerReading(meter.name, None, fault_name(error))
        except ValueError:
            return PowerReading(meter.name, None, "not a number")

    def _from_energy(self, meter: PowerMeter) -> Watts | None:
        energy_uj, now_s = int(self._read(Path(meter.path))), self._now_s()
        before = self._counts.get(meter.name)
        if before is not None and now_s - before.at_s < _SHORTEST_S:
            return before.watts
        watts = None
        if before is not None:
            moved = energy_uj - before.energy_uj
            if moved < 0 and meter.second.isdecimal():
                moved += int(meter.second)  # it wrapped round at its range
            if moved >= 0:
                watts = Watts(moved * _MICRO / (now_s - before.at_s))
        self._counts[meter.name] = _Count(now_s, energy_uj, watts)
        return watts

    def _zones(self) -> Iterator[PowerMeter]:
        base = self._root / "class" / "powercap"
        try:
            folders = sorted(path for path in base.iterdir() if ":" in path.name)
        except OSError:
            return
        for folder in folders:
            name = self._text(folder / "name")
            if name and (folder / "energy_uj").exists():
                limit = self._text(folder / "max_energy_range_uj")
                yield PowerMeter(name, "energy", str(folder / "energy_uj"), limit)

    def _chips(self) -> Iterator[PowerMeter]:
        for folder in numbered(self._root / "class" / "hwmon", "hwmon"):
            chip = self._text(folder / "name")
            if not chip:
                continue
            for path in numbered(folder, "power", "_input"):
                stem = path.name.removesuffix("_input")
                yield PowerMeter(self._name(folder, chip, stem), "power", str(path))
            for path in numbered(folder, "curr", "_input"):
                number = path.name.removeprefix("curr").removesuffix("_input")
                volts = folder / f"in{number}_input"
                if volts.exists() and not (folder / f"power{number}_input").exists():
                    name = self._name(folder, chip, f"in{number}")
                    yield PowerMeter(name, "rail", str(volts), str(path))

    def _name(self, folder: Path, chip: str, stem: str) -> str:
        return f"{chip}/{self._text(folder / f'{stem}_label') or stem}"

    def _text(self, path: Path) -> str:
        try:
            return self._read(path)
        except OSError:
            return ""
