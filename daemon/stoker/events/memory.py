"""What the device says of its memory, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.units import Bytes


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """``available`` is the smaller of MemAvailable and what the tightest control group still
    allows; ``source`` names which of them it is."""

    total_bytes: Bytes
    available_bytes: Bytes
    source: str = "MemAvailable"


@dataclass(frozen=True, slots=True)
class Pressure:
    """Per cent of the last ten seconds in which some or all tasks waited for memory (PSI)."""

    some_pct: float
    full_pct: float
