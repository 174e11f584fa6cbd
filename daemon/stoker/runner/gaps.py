"""How long one answer's tokens let their reader wait, counted in buckets of a power of two.

Counting is an addition to a list, because it is done for every token.
"""

from __future__ import annotations

from typing import Final

SIZE: Final = 18
"""Up to 1, 2, 4 … 65,536 ms, and more; the bounds are ``core.latency.BOUNDS_S``."""


class Gaps:
    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = [0] * SIZE

    def add(self, gap_s: float) -> None:
        """One token after the one before. A whole power of two counts as just above it."""
        self._counts[min(int(gap_s * 1e3).bit_length(), SIZE - 1)] += 1

    def quantile_ms(self, part: float) -> float:
        """As ``core.latency.Histogram.quantile_s``, in ms; 0 before the second token."""
        below, wanted = 0, part * sum(self._counts)
        for bucket, count in enumerate(self._counts):
            if count and below + count >= wanted:
                low = float(1 << bucket - 1) if bucket else 0.0
                high = low if bucket == SIZE - 1 else float(1 << bucket)
                return low + (high - low) * (wanted - below) / count
            below += count
        return 0.0

    def counts(self) -> list[int]:
        """Without the zeros at the end: most answers need eight numbers."""
        out = list(self._counts)
        while out and not out[-1]:
            out.pop()
        return out
