"""Heat as services see it: sensors, frequency policies and the cap journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stoker.events.heat_finds import Finding, FirmwareFlags, PowerMeter, PowerReading
from stoker.events.thermal import CapRecord, FrequencyPolicy, Reading, Sensor
from stoker.units import KiloHertz


class ThermalSensors(Protocol):
    def discover(self) -> tuple[Sensor, ...]: ...

    def read(self, sensor: Sensor) -> Reading:
        """Never raises for a sensor's own fault: EAGAIN, ENODATA, EIO … become ``fault``."""


class FrequencyPolicies(Protocol):
    def discover(self) -> tuple[FrequencyPolicy, ...]: ...

    def cap_khz(self, policy: FrequencyPolicy) -> KiloHertz | None:
        """Effective scaling_max_freq (the minimum over all requests); None = it cannot be read
        (offline, gone, or the read failed): what was written may well be there still."""

    def set_cap(self, policy: FrequencyPolicy, cap: KiloHertz) -> bool:
        """True if the kernel took the write; False = refused or gone (hotplug, read-only). A
        slow kernel thread follows it: the readback may be the old one for some milliseconds."""

    def fault(self, policy: FrequencyPolicy) -> str:
        """Why its last write was refused, with the file and the errno's name; "" = it was not."""


class CapJournal(Protocol):
    def load(self) -> tuple[CapRecord, ...]:
        """Empty where there is none or it is damaged; OSError where it cannot be read now."""

    def write(self, records: Sequence[CapRecord]) -> None:
        """Durable before it returns: the cap is written only afterwards."""

    def clear(self) -> None: ...


class PowerMeters(Protocol):
    def discover(self) -> tuple[PowerMeter, ...]: ...

    def read(self, meter: PowerMeter) -> PowerReading:
        """Never raises for a meter's own fault; a counter has no watts at its first reading."""


class ThrottleFlags(Protocol):
    def discover(self) -> None:
        """Look for the flags (again)."""

    def read(self) -> FirmwareFlags | None:
        """None where no firmware tells; never raises."""


class HeatInventory(Protocol):
    def findings(self) -> tuple[Finding, ...]:
        """All there is, read or refused. May take seconds: a sensor on a slow bus."""
