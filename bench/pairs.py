"""Arithmetic of paired measurements: median of ratios and its interval. Pure."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Pair = tuple[float, float]
"""(ours, the peer's), measured one right after the other."""


@dataclass(frozen=True, slots=True)
class Summary:
    value: float
    peer: float
    ratio: float
    low: float
    high: float
    pairs: int


def summarize(
    pairs: Sequence[Pair], *, difference: bool = False, resamples: int = 4000, seed: int = 1
) -> Summary:
    """Medians and the 95 % percentile bootstrap interval of the median (Efron 1979).

    The interval is that of the ratios, or of the differences where the question is what
    is added: then ``ratio`` holds the median difference.
    """
    compared = [ours - theirs if difference else ours / theirs for ours, theirs in pairs]
    draw = random.Random(seed)
    medians = sorted(
        statistics.median(draw.choices(compared, k=len(compared))) for _ in range(resamples)
    )
    return Summary(
        value=statistics.median(ours for ours, _ in pairs),
        peer=statistics.median(theirs for _, theirs in pairs),
        ratio=statistics.median(compared),
        low=medians[int(0.025 * resamples)],
        high=medians[int(0.975 * resamples)],
        pairs=len(pairs),
    )
