"""A token bucket as a value; ``core/pace.py`` fills and empties it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """``rate`` bytes a second, 0 = no limit; up to ``burst`` of them at once. ``tokens`` below
    zero are a debt: one message may be larger than the bucket.
    """

    rate: int
    burst: int
    tokens: float
    at_s: float
