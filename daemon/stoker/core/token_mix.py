"""Of the tokens of late, how many were read and how many written. Pure.

Operating points are chosen for this mix; old tokens fade away over some minutes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from stoker.units import Seconds

FADE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Work:
    """What inference does now: ``phase`` is prefill | decode | "" (nothing), ``busy`` the part
    of its CPUs that compute (0..1), the counters grow for ever."""

    phase: str = ""
    busy: float = 1.0
    tokens_read: int = 0
    tokens_written: int = 0


@dataclass(frozen=True, slots=True)
class Mix:
    read: float = 0.0
    written: float = 0.0
    at_s: Seconds = Seconds(0.0)
    counted: tuple[int, int] = (0, 0)

    @property
    def prefill_share(self) -> float:
        """0..1; 0 while nothing is known."""
        both = self.read + self.written
        return self.read / both if both >= 1.0 else 0.0


def step(mix: Mix, work: Work, now_s: Seconds) -> Mix:
    """Counters that went back (another runner counts anew) add nothing."""
    fade = math.exp(-max(0.0, now_s - mix.at_s) / FADE_S)
    counted = (work.tokens_read, work.tokens_written)
    new = [max(0, now - before) for now, before in zip(counted, mix.counted, strict=True)]
    return Mix(mix.read * fade + new[0], mix.written * fade + new[1], now_s, counted)
