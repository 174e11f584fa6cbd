"""What a law is to the bench: it sees the sensors, and orders steps, threads and its next tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Phase = Literal["prefill", "decode", "other"]


@dataclass(frozen=True, slots=True)
class Seen:
    """``sensed_c`` per zone, None = it cannot be read. ``busy``: per cluster, the load of its
    CPUs added up. ``granted``: the highest step per cluster that others leave."""

    now_ms: int
    sensed_c: Sequence[float | None]
    busy: Sequence[float]
    phase: Phase
    granted: Sequence[int]


@dataclass(frozen=True, slots=True)
class Order:
    """``steps``: highest OPP index per cluster. ``threads``: 0 = all CPUs."""

    steps: tuple[int, ...]
    period_ms: int
    threads: int = 0


class Law(Protocol):
    def tick(self, seen: Seen, /) -> Order: ...

    def overwrite(self) -> bool:
        """Another program wrote the top into ``scaling_max_freq``. False = the law does not use
        that slot (the kernel's governors have requests of their own)."""
