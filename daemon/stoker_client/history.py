"""The device's past as a program reads it: columns of time, answers by model, events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from stoker_client.bus import Bus

HISTORY: Final = "org.stoker.History1"
BOUNDS_S: Final[tuple[float, ...]] = tuple(2**power / 1000 for power in range(17))
"""Upper bounds of the buckets of ``gaps`` and ``durations``; beyond the last there is one more."""


@dataclass(frozen=True, slots=True)
class Answers:
    """One model in one column: counts by bucket and sums in seconds; tokens; failed answers."""

    at: float
    model: str
    gaps: Sequence[int]
    gaps_s: float
    durations: Sequence[int]
    durations_s: float
    prompt_tokens: int
    completion_tokens: int
    failed: int


@dataclass(frozen=True, slots=True)
class Event:
    at: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Past:
    """``columns`` have the keys of org.stoker.History1.xml; what was never seen is absent."""

    columns: list[dict[str, Any]]
    answers: list[Answers]
    events: list[Event]


def read(bus: Bus, start: float, end: float, span_s: float) -> Past:
    """Times are seconds since 1970; a column has ``span_s``, 60 or more."""
    args = (float(start), float(end), float(span_s))
    columns, answers, events = bus.call(HISTORY, "Read", *args)
    return Past(
        [dict(column) for column in columns],
        [Answers(*row) for row in answers],
        [Event(*row) for row in events],
    )
