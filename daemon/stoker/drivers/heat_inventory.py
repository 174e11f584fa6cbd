"""Everything about heat that this machine shows: what was read, what was refused and why.

For the report of ``stokerctl thermal discover``. It reads each file once and writes nothing; that a
cap could be written is asked of the kernel, not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from stoker.drivers.attribute import (
    ReadText,
    fault_name,
    numbered,
    read_attribute,
    write_fault,
)
from stoker.drivers.firmware_flags import SysfsFirmware
from stoker.drivers.power_meters import SysfsPower
from stoker.drivers.sysfs_thermal import SysfsThermal
from stoker.events.heat_finds import Finding, PowerMeter
from stoker.units import Seconds

_REFUSED = frozenset({"EACCES", "EPERM", "EROFS"})


class SysfsInventory:
    """Port ``HeatInventory``. ``may_write`` names the fault of a write; tests replace it."""

    def __init__(
        self,
        root: Path,
        now_s: Callable[[], Seconds],
        read: ReadText = read_attribute,
        may_write: Callable[[Path], str] = write_fault,
    ) -> None:
        self._root = root
        self._read = read
        self._may_write = may_write
        self._thermal = SysfsThermal(root, read)
        self._power = SysfsPower(root, now_s, read)
        self._firmware = SysfsFirmware(root, read)

    def findings(self) -> tuple[Finding, ...]:
        return (
            *self._sensors(),
            *self._other_chips(),
            *(self._meter(meter) for meter in self._power.discover()),
            *self._policies(),
            *self._devfreq(),
            *self._flags(),
        )

    def _sensors(self) -> Iterator[Finding]:
        seen: set[str] = set()
        for sensor in self._thermal.discover():
            seen.add(sensor.path)
            reading = self._thermal.read(sensor)
            if reading.temperature_c is None:
                yield _refused(Finding(sensor.kind, sensor.name, sensor.path, "", reading.fault))
                continue
            words = [f"{reading.temperature_c:.1f} °C"]
            words += [f"{trip.kind} {trip.temperature_c:g} °C" for trip in sensor.trips]
            if sensor.kind == "zone":
                folder = Path(sensor.path).parent
                words += [f"{key} {text}" for key, text in self._words(folder, "policy", "mode")]
            yield Finding(sensor.kind, sensor.name, sensor.path, ", ".join(words))
        for folder in numbered(self._root / "class" / "thermal", "thermal_zone"):
            if str(folder / "temp") not in seen:  # its type cannot be read: it has no name
                yield self._look("zone", folder.name, folder / "type", lambda text: text)

    def _other_chips(self) -> Iterator[Finding]:
        """Disks, radios, boards: seen, and none of our business."""
        known = {sensor.path for sensor in self._thermal.discover()}
        for folder in numbered(self._root / "class" / "hwmon", "hwmon"):
            chip = dict(self._words(folder, "name")).get("name", folder.name)
            for path in numbered(folder, "temp", "_input"):
                if str(path) not in known:
                    yield self._look("hwmon", f"{chip}/{path.name[:-6]}", path, _degrees)

    def _meter(self, meter: PowerMeter) -> Finding:
        reading = self._power.read(meter)
        if reading.fault:
            return _refused(Finding("power", meter.name, meter.path, "", reading.fault))
        value = "energy counter" if reading.watts is None else f"{reading.watts:.2f} W"
        return Finding("power", meter.name, meter.path, value)

    def _policies(self) -> Iterator[Finding]:
        base = self._root / "devices/system/cpu/cpufreq"
        for folder in numbered(base, "policy"):
            path = folder / "scaling_max_freq"
            keys = ("cpuinfo_min_freq", "cpuinfo_max_freq", "scaling_driver", "scaling_governor")
            words = dict(self._words(folder, *keys))
            span = f"{_mhz(words.pop(keys[0], ''))}..{_mhz(words.pop(keys[1], ''))} MHz"
            found = self._look("cpufreq", folder.name, path, lambda text: f"cap {_mhz(text)} MHz")
            if found.fault:
                yield found
                continue
            value = ", ".join((span, found.value, *words.values()))
            fault = self._may_write(path)
            yield Finding("cpufreq", found.name, found.path, value, fault, "write" if fault else "")

    def _devfreq(self) -> Iterator[Finding]:
        base = self._root / "class" / "devfreq"
        try:
            folders = sorted(base.iterdir())
        except OSError:
            return
        for folder in folders:
            words = dict(self._words(folder, "min_freq", "max_freq", "governor"))
            span = f"{_mega(words.get('min_freq', ''))}..{_mega(words.get('max_freq', ''))} MHz"
            rest = f", {span}, {words.get('governor', 'no governor')}"
            found = self._look(
                "devfreq",
                folder.name,
                folder / "cur_freq",
                partial(_clock, rest=rest),
            )
            fault = "" if found.fault else self._may_write(folder / "max_freq")
            if fault:
                path = str(folder / "max_freq")
                found = replace(found, path=path, fault=fault, denied="write")
            yield found

    def _flags(self) -> Iterator[Finding]:
        path = self._firmware.find()
        if path is None:
            return
        self._firmware.discover()
        flags = self._firmware.read()
        if flags is None:
            yield self._look("firmware", "get_throttled", path, lambda _text: "not a number")
            return
        now, before = flags.now or ("nothing",), flags.since_boot or ("nothing",)
        value = f"now {' and '.join(now)}; since boot {' and '.join(before)}"
        yield Finding("firmware", "get_throttled", str(path), value)

    def _look(self, kind: str, name: str, path: Path, show: Callable[[str], str]) -> Finding:
        try:
            return Finding(kind, name, str(path), show(self._read(path)))
        except OSError as error:
            return _refused(Finding(kind, name, str(path), "", fault_name(error)))

    def _words(self, folder: Path, *keys: str) -> Iterator[tuple[str, str]]:
        for key in keys:
            try:
                yield key, self._read(folder / key)
            except OSError:
                continue


def _refused(finding: Finding) -> Finding:
    """The same, saying so where a permission is what is missing."""
    if finding.fault not in _REFUSED:
        return finding
    return Finding(
        finding.kind, finding.name, finding.path, finding.value, finding.fault, denied="read"
    )


def _degrees(text: str) -> str:
    try:
        return f"{int(text) / 1000:.1f} °C"
    except ValueError:
        return text[:32]


def _mhz(khz: str) -> str:
    return str(int(khz) // 1000) if khz.isdecimal() else "?"


def _clock(text: str, rest: str) -> str:
    return f"{_mega(text)} MHz{rest}"


def _mega(hertz: str) -> str:
    return str(int(hertz) // 1_000_000) if hertz.isdecimal() else "?"
