"""Finds which stretch of the source resembles a window, by exact samples that vote on a shift.

The source is sampled at a regular distance; a window is searched for those samples. Memory is
bounded whatever the file's size. What it finds is a proposal: the maker measures it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from stoker_ota.core.pairing import ReadAt

SAMPLE_BYTES: Final = 32
MAX_SAMPLES: Final = 1 << 18
MIN_STRIDE: Final = 16
_LOOKUPS: Final = 1 << 16
_MIN_PROBES: Final = 16
_MAX_PROBES: Final = 512
_BLOCK: Final = 1 << 20


class Landmarks:
    """Samples of one stretch of the source: at most ``MAX_SAMPLES``, some 30 MiB of memory."""

    def __init__(self, read_old: ReadAt, start: int, end: int) -> None:
        self.start, self.end = start, end
        self._stride = max(MIN_STRIDE, -(-(end - start) // MAX_SAMPLES))
        self._places: dict[bytes, int] = {}
        self._sample(read_old)

    def _sample(self, read_old: ReadAt) -> None:
        step = max(1, _BLOCK // self._stride) * self._stride
        for base in range(self.start, self.end, step):
            block = read_old(base, min(step + SAMPLE_BYTES, self.end - base))
            for at in range(0, min(step, len(block) - SAMPLE_BYTES + 1), self._stride):
                sample = block[at : at + SAMPLE_BYTES]
                if sample.count(sample[:1]) < SAMPLE_BYTES // 2:
                    self._places.setdefault(sample, base + at)

    def shift(self, dst_off: int, window: bytes) -> int | None:
        """The commonest (source offset − target offset) of what is in both; None = nothing is."""
        last = len(window) - SAMPLE_BYTES
        if last < 0 or not self._places:
            return None
        reach = min(self._stride, 4096)
        probes = min(_MAX_PROBES, max(_MIN_PROBES, _LOOKUPS // reach))
        votes: Counter[int] = Counter()
        for begin in range(0, last + 1, max(1, last // probes)):
            for at in range(begin, min(begin + reach, last + 1)):
                place = self._places.get(window[at : at + SAMPLE_BYTES])
                if place is not None:
                    votes[place - dst_off - at] += 1
                    break
        if not votes:
            return None
        most = max(votes.values())
        return min((shift for shift, n in votes.items() if n == most), key=abs)

    def stretch(self, shift: int, dst_off: int, dst_len: int, most: int) -> tuple[int, int]:
        """(offset, length) of the source around the shifted window, at most ``most`` bytes."""
        margin = (most - dst_len) // 2
        low = max(self.start, dst_off + shift - margin)
        low = max(self.start, min(low, self.end - most))
        return low, min(most, self.end - low)
