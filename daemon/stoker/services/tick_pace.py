"""When the thermal loop looks next, how late it was then, and who wakes it earlier, how often.

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

POKE_GAP_S: Final = Seconds(0.05)
"""A poke is answered no sooner after the tick before it: phases of short jobs change faster than
any clock or heat follows, and every answer costs a tick."""

_EARLY_S: Final = 1e-3


class TickPace:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake = threading.Event()
        self._end = threading.Event()
        self._looked_s = self._woke_s = Seconds(-1e9)
        self._late = [0] * (len(EDGES_MS) + 1)
        self._asking = threading.Lock()
        self._asked: list[threading.Event] = []
        self._answering: list[threading.Event] = []

    def looked(self, now_s: Seconds) -> None:
        """The sensors were read."""
        self._looked_s = now_s

    def poke(self) -> None:
        """End the wait, within ``POKE_GAP_S``: there is something to act on."""
        self._wake.set()

    def ask(self) -> threading.Event:
        """As ``poke``; it is set when a tick that began after this call is over."""
        over = threading.Event()
        with self._asking:
            self._asked.append(over)
        self.poke()
        return over

    def stop(self) -> None:
        self._end.set()
        self._wake.set()

    def wait(self, period_s: Seconds) -> bool | None:
        """True: it is time to look; False: somebody poked before that; None: it is the end."""
        while self._answering:
            self._answering.pop().set()
        due_s = self._looked_s + period_s
        if self._wake.wait(max(0.0, due_s - self._clock.monotonic_s())):
            rest_s = min(due_s, self._woke_s + POKE_GAP_S) - self._clock.monotonic_s()
            if rest_s > 0:
                self._end.wait(rest_s)
            self._wake.clear()
        if self._end.is_set():
            return None
        with self._asking:
            self._answering, self._asked = self._asked, []
        self._woke_s = self._clock.monotonic_s()
        late_s = self._woke_s - due_s
        if late_s < -_EARLY_S:
            return False
        self._late[bisect_left(EDGES_MS, 1000.0 * late_s)] += 1
        return True

    def lateness(self) -> dict[int, int]:
        """Looks by how late they were: upper end in ms (0 = later than all of them) -> count."""
        return dict(zip((*EDGES_MS, 0), self._late, strict=True))
