"""Wake-up latencies summed up: percentiles, a histogram, and cyclictest's output read. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

EDGES_US: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000)
"""Upper edges of the histogram, in microseconds; the last bucket has none."""

Counts = Mapping[int, int]
"""Whole microseconds (rounded up) -> how many wake-ups were so late."""

_LINE: Final = re.compile(r"^(\d+)\s+(\d+)\s*$")
_MAX: Final = re.compile(r"^# Max Latencies:\s*(\d+)")
_OVER: Final = re.compile(r"^# Histogram Overflows:\s*(\d+)")


def counts_of(late_ns: Sequence[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for value in late_ns:
        late_us = -(-max(value, 0) // 1000)
        found[late_us] = found.get(late_us, 0) + 1
    return found


def percentile(counts: Counts, share: float) -> int:
    """The smallest latency that at least ``share`` of all wake-ups do not exceed; 0 if none."""
    total = sum(counts.values())
    seen = 0
    for late_us in sorted(counts):
        seen += counts[late_us]
        if seen >= share * total:
            return late_us
    return 0


def summary(counts: Counts) -> dict[str, object]:
    """As ``--json`` prints it. Percentiles need samples: their number stands beside them."""
    return {
        "samples": sum(counts.values()),
        "p50_us": percentile(counts, 0.5),
        "p99_9_us": percentile(counts, 0.999),
        "max_us": max(counts, default=0),
        "histogram": histogram(counts),
    }


def histogram(counts: Counts) -> list[dict[str, int]]:
    """Only buckets that hold something: {"up_to_us": edge (0 = beyond the last), "count": n}."""
    buckets = dict.fromkeys((*EDGES_US, 0), 0)
    for late_us, count in counts.items():
        edge = next((edge for edge in EDGES_US if late_us <= edge), 0)
        buckets[edge] += count
    return [{"up_to_us": edge, "count": count} for edge, count in buckets.items() if count]


def read_cyclictest(text: str) -> dict[int, int]:
    """The counts of ``cyclictest -h … -q`` with one thread. What overflowed its histogram is
    counted at the maximum."""
    counts: dict[int, int] = {}
    highest = over = 0
    for row in text.splitlines():
        if (line := _LINE.match(row)) and int(line[2]):
            counts[int(line[1])] = counts.get(int(line[1]), 0) + int(line[2])
        elif found := _MAX.match(row):
            highest = int(found[1])
        elif found := _OVER.match(row):
            over = int(found[1])
    if over:
        counts[highest] = counts.get(highest, 0) + over
    return counts
