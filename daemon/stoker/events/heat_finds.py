"""Values of the wider look around: power meters, the firmware's flags, and what a search of
the whole board found, read or not.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoker.units import Watts


@dataclass(frozen=True, slots=True)
class PowerMeter:
    """``kind``: energy (a counter in µJ) | power (µW) | rail (mV and mA). ``name`` is stable."""

    name: str
    kind: str
    path: str
    second: str = ""  # energy: its range in µJ; rail: the current


@dataclass(frozen=True, slots=True)
class PowerReading:
    """``watts`` None: not known yet, or ``fault`` says why."""

    meter: str
    watts: Watts | None
    fault: str = ""


_FLAGS = ("under-voltage", "frequency capped", "throttled", "soft temperature limit")
_SINCE_BOOT = 16


@dataclass(frozen=True, slots=True)
class FirmwareFlags:
    """A Raspberry Pi's ``get_throttled``: bits 0..3 are now, 16..19 since boot.

    Source: Raspberry Pi documentation of vcgencmd. The kernel's clocks ignore this.
    """

    bits: int

    @property
    def now(self) -> tuple[str, ...]:
        return tuple(word for bit, word in enumerate(_FLAGS) if self.bits >> bit & 1)

    @property
    def since_boot(self) -> tuple[str, ...]:
        return tuple(word for bit, word in enumerate(_FLAGS) if self.bits >> bit + _SINCE_BOOT & 1)

    @property
    def limits(self) -> bool:
        """The firmware holds the clock down below what cpufreq shows."""
        return bool(self.bits & 0b1110)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the search came upon.

    ``kind``: zone | hwmon | power | cpufreq | devfreq | firmware. ``fault`` is an errno name,
    and ``denied`` tells which access it stopped ("read" | "write" | "" = none was refused).
    """

    kind: str
    name: str
    path: str
    value: str = ""
    fault: str = ""
    denied: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A finding with what it is used for, why, and what would help where it is refused."""

    finding: Finding
    use: str
    grant: str = ""
