"""How long something will take that is counted in bytes. Pure.

The rate is that of the whole phase since its first report: what was there before it is no work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNKNOWN_S: Final = -1
_SOON_S: Final = 1.0  # before, a rate means nothing


@dataclass(frozen=True, slots=True)
class Pace:
    """Where and when a phase was first heard of."""

    done: int
    at_s: float


def left_s(begun: Pace, done: int, total: int, now_s: float) -> int:
    """Whole seconds until ``total``; -1 = nobody can say yet."""
    if total and done >= total:
        return 0
    came, passed = done - begun.done, now_s - begun.at_s
    if came <= 0 or passed < _SOON_S:
        return UNKNOWN_S
    return round((total - done) * passed / came)
