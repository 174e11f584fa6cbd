"""When the thermal loop looks next, how late it was then, and who wakes it earlier.

``wait`` belongs to the loop's thread; the rest is for any. Keeps no history but fixed counts.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import Final

from stoker.ports.system import Clock
from stoker.units import Seconds

EDGES_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)
"""Upper ends of the lateness histogram; one more count is for what is later still."""

_EARLY_S: Final = 1e-3


class TickPace:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake = threading.Event()
        self._looked_s = Seconds(-1e9)
        self._stopping = False
        self._late = [0] * (len(EDGES_MS) + 1)

    def looked(self, now_s: Seconds) -> None:
        """The sensors were read."""
        self._looked_s = now_s

    def poke(self) -> None:
        """End the wait: there is something to act on."""
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def wait(self, period_s: Seconds) -> bool | None:
        """True: it is time to look; False: somebody poked before that; None: it is the end."""
        due_s = self._looked_s + period_s
        self._wake.wait(max(0.0, due_s - self._clock.monotonic_s()))
        self._wake.clear()
        if self._stopping:
            return None
        late_s = self._clock.monotonic_s() - due_s
        if late_s < -_EARLY_S:
            return False
        self._late[bisect_left(EDGES_MS, 1000.0 * late_s)] += 1
        return True

    def lateness(self) -> dict[int, int]:
        """Looks by how late they were: upper end in ms (0 = later than all of them) -> count."""
        return dict(zip((*EDGES_MS, 0), self._late, strict=True))
