"""Values of the thermal loop: what sensors and policies say, and what we show of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from stoker.events.operating import Choice
from stoker.units import Celsius, Fraction, KiloHertz, Seconds, Watts


@dataclass(frozen=True, slots=True)
class Trip:
    """A trip point of a zone: ``kind`` as the kernel names it (passive, hot, critical, active)."""

    kind: str
    temperature_c: Celsius


@dataclass(frozen=True, slots=True)
class Sensor:
    """A thermal zone or hwmon input; ``name`` is stable (by type, never by index)."""

    name: str
    kind: str  # "zone" | "hwmon"
    path: str
    trips: tuple[Trip, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """One read: a temperature, or the reason why there is none (an errno name)."""

    sensor: str
    temperature_c: Celsius | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class FrequencyPolicy:
    """A cpufreq policy: ``cpus`` share one clock. ``steps_khz`` ascends and is never empty."""

    name: str
    cpus: tuple[int, ...]
    min_khz: KiloHertz
    max_khz: KiloHertz
    steps_khz: tuple[KiloHertz, ...]
    writable: bool


@dataclass(frozen=True, slots=True)
class CapRecord:
    """Journal line, written before the first write of a cap: what was there and what is ours.
    ``free``: nobody had limited the slot; then the top of the day goes back, be it higher."""

    policy: str
    original_khz: KiloHertz
    ours_khz: KiloHertz
    boot_id: str
    free: bool = False


@dataclass(frozen=True, slots=True)
class ThermalSnapshot:
    """What D-Bus, ``stokerctl thermal`` and metrics show.

    ``state`` is ok | degraded | safe | stop | watching (nothing to actuate) | blind
    (nothing to sense). ``cap_khz`` maps a policy to our cap; empty = uncapped.
    """

    state: str
    temperature_c: Celsius | None
    wall_c: Celsius
    headroom: Fraction
    board: str
    sensor: str = ""
    cap_khz: dict[str, KiloHertz] = field(default_factory=dict)
    actuator: str = "none"
    reason: str = ""
    period_s: Seconds = Seconds(1.0)
    power_w: Watts | None = None  # measured, where the board preset names a meter that reads
    firmware: tuple[str, ...] = ()  # what the firmware says it does now, e.g. "throttled"
    law: str = "pi"
    phase: str = ""  # prefill | decode | "": what inference does
    threads: int = 0  # of the runner while it writes; 0 = as configured
    threads_batch: int = 0  # … while it reads
    duty: Fraction = Fraction(1.0)  # the part of the time that its steps may take
    points: str = "none"  # operating points: in use | none | why those of the model are not used
    point: Choice | None = None  # of this phase (while idle: of writing)
