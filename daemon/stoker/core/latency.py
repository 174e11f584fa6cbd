"""Histograms of waiting times: fixed exponential buckets, sums and quantiles. Pure values.

The bounds are powers of two from 1 ms to 65.536 s: fine for a mini PC's tokens, wide enough
for a slow board's prefill, and few enough for a device to keep a day of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from stoker.units import Seconds

BOUNDS_S: Final = tuple(Seconds(2**power / 1000.0) for power in range(17))
"""Upper bounds; beyond the last there is one bucket more."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """``counts`` by bucket, not added up; shorter than BOUNDS_S + 1 = zeros follow."""

    counts: tuple[int, ...] = ()
    sum_s: float = 0.0

    @property
    def total(self) -> int:
        return sum(self.counts)

    def seen(self, wait_s: float) -> Histogram:
        """With one observation more."""
        bucket = sum(1 for bound in BOUNDS_S if wait_s > bound)
        return self.plus(Histogram((0,) * bucket + (1,), wait_s))

    def plus(self, other: Histogram) -> Histogram:
        """Of both."""
        pairs = zip_longest(self.counts, other.counts, fillvalue=0)
        return Histogram(tuple(a + b for a, b in pairs), self.sum_s + other.sum_s)

    def minus(self, earlier: Histogram) -> Histogram:
        """What came since ``earlier``, which is a part of this."""
        pairs = zip_longest(self.counts, earlier.counts, fillvalue=0)
        counts = tuple(max(0, a - b) for a, b in pairs)
        return Histogram(counts, max(0.0, self.sum_s - earlier.sum_s))

    def cumulated(self) -> tuple[int, ...]:
        """Observations up to each of BOUNDS_S and, at last, all: as Prometheus counts."""
        out, so_far = [], 0
        for index in range(len(BOUNDS_S) + 1):
            so_far += self.counts[index] if index < len(self.counts) else 0
            out.append(so_far)
        return tuple(out)

    def quantile_s(self, part: float) -> Seconds | None:
        """The wait that ``part`` (0..1) of the observations do not exceed; None without any.

        Straight between a bucket's bounds, as PromQL's ``histogram_quantile``; in the last,
        open bucket its lower bound.
        """
        wanted = part * self.total
        if not self.total:
            return None
        below = 0
        for index, count in enumerate(self.counts):
            if count and below + count >= wanted:
                if index >= len(BOUNDS_S):
                    break
                low_s = BOUNDS_S[index - 1] if index else 0.0
                return Seconds(low_s + (BOUNDS_S[index] - low_s) * (wanted - below) / count)
            below += count
        return BOUNDS_S[-1]


def together(histograms: Iterable[Histogram]) -> Histogram:
    """The sum of all."""
    out = Histogram()
    for one in histograms:
        out = out.plus(one)
    return out


def counts_of(found: object) -> tuple[int, ...]:
    """What a runner says its buckets hold is checked: it may be anything."""
    if not isinstance(found, list) or len(found) > len(BOUNDS_S) + 1:
        return ()
    return tuple(count for count in found if isinstance(count, int) and count >= 0)
