"""Holds bytes back to a rate: the token bucket of ``core/pace.py`` with a clock and a sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from stoker_ota.core import pace

LEAST_BURST: Final = 64 << 10


class Brake:
    """``rate`` bytes a second, 0 = none. ``taken`` counts what came, for the report."""

    def __init__(
        self,
        rate: int,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rate = rate
        self.taken = 0
        self._now_s, self._sleep = now_s, sleep
        self._pace = pace.begin(rate, now_s(), least_burst=LEAST_BURST)

    def count(self, count: int) -> None:
        """Bytes that another brake held back."""
        self.taken += count

    def __call__(self, count: int) -> None:
        """``count`` bytes came; returns when more may."""
        self.taken += count
        self._pace = pace.take(self._pace, count, self._now_s())
        wait_s = pace.wait_s(self._pace, self._now_s())
        if wait_s > 0:
            self._sleep(wait_s)
