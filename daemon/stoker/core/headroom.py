"""When local programs are told that the headroom changed: at a few thresholds, with hysteresis.

Pure: how many thresholds the headroom is below, and which of them it has just crossed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

THRESHOLDS: Final = (0.75, 0.5, 0.25, 0.1)
"""Descending. Below the first a program may lower its quality, below the last it should stop."""

HYSTERESIS: Final = 0.05
"""A threshold counts as crossed upwards only so far above it: noise would toggle it."""


@dataclass(frozen=True, slots=True)
class Crossing:
    threshold: float
    above: bool


def crossed(below: int, headroom: float) -> tuple[int, tuple[Crossing, ...]]:
    """``below``: of how many thresholds the headroom was below. (that number now, what was
    crossed, in order). Not a number changes nothing."""
    if math.isnan(headroom):
        return below, ()
    news: list[Crossing] = []
    while below < len(THRESHOLDS) and headroom < THRESHOLDS[below]:
        news.append(Crossing(THRESHOLDS[below], above=False))
        below += 1
    while below > 0 and headroom >= THRESHOLDS[below - 1] + HYSTERESIS:
        below -= 1
        news.append(Crossing(THRESHOLDS[below], above=True))
    return below, tuple(news)
