"""Values of operating points: how fast and how hot a model runs at so many threads and such a
clock, as ``stokerctl calibrate`` measured it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stoker.units import Fraction, KiloHertz, Seconds, Watts

PREFILL: Final = "prefill"
DECODE: Final = "decode"
PHASES: Final = (PREFILL, DECODE)

Caps = tuple[tuple[str, KiloHertz], ...]
"""(policy, its highest clock), by name; () where no clock can be set."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What can be set for a phase. ``threads`` compute at once."""

    phase: str
    threads: int
    caps: Caps = ()


@dataclass(frozen=True, slots=True)
class Point:
    """``watts`` are those of the CPUs while nothing but this setting's work runs."""

    setting: Setting
    watts: Watts
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Choice:
    """``duty``: the part of the time that steps may take; below 1 the runner rests between
    them (token pacing)."""

    point: Point
    duty: Fraction = Fraction(1.0)

    @property
    def watts(self) -> Watts:
        return Watts(self.point.watts * self.duty)

    @property
    def tokens_per_s(self) -> float:
        return self.point.tokens_per_s * self.duty


@dataclass(frozen=True, slots=True)
class Measured:
    """``busy_cpus``: CPU seconds that the runner used per second; of a simulated board, its
    threads."""

    tokens: int
    wall_s: Seconds
    busy_cpus: float


@dataclass(frozen=True, slots=True)
class PointTable:
    """All that is known of one model file on one board. ``size``: settings of the whole grid;
    ``metered``: a power meter gave the watts; ``skipped`` could not be measured, and why."""

    board: str
    model: str
    fingerprint: str
    threads: int  # the most that were tried
    size: int
    metered: bool = False
    points: tuple[Point, ...] = ()
    skipped: tuple[tuple[Setting, str], ...] = ()

    @property
    def complete(self) -> bool:
        return self.size > 0 and len(self.points) >= self.size


@dataclass(frozen=True, slots=True)
class Calibration:
    """How the measuring is: ``state`` is idle | running | waiting | done | cancelled | failed."""

    state: str = "idle"
    done: int = 0
    total: int = 0
    reason: str = ""
    table: PointTable | None = None  # of the model that is loaded, complete or not

    @property
    def progress(self) -> float:
        return self.done / self.total if self.total else 0.0
