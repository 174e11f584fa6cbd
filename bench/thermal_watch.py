"""stokerd itself with a stop-watch around its thermal loop: the child of bench.thermal_lateness.

    python -m bench.thermal_watch REPORT [stokerd's words]

Nothing else of the bench is loaded here. What it counts is told in ``StopWatch``.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stoker.main import entry
from stoker.services.thermal import ThermalService

LOOP: Final = "thermal"  # the thread's name
PAUSE_S: Final = 1e-3


@dataclass
class StopWatch:
    """``looks``: [when, how late, CPU until then], in seconds. When: CLOCK_MONOTONIC at the start
    of a tick that reads sensors; late: after the start of the last one plus the period that is in
    force (and never before that period was known). CPU: user and system time
    (CLOCK_THREAD_CPUTIME_ID) of the loop's whole thread: sensing, deciding, writing, logging,
    listeners as far as they run on it, and the calls that it waits in. Not in it: the simulated
    board and all other threads, and time without a CPU or without Python's lock. ``ticks``: when
    any began, those that somebody woke too. ``pauses``: [when, wall seconds, CPU seconds] of
    Python's collector, while no other thread runs Python; those from ``PAUSE_S`` on."""

    looks: list[tuple[float, float, float]] = field(default_factory=list)
    ticks: list[float] = field(default_factory=list)
    pauses: list[tuple[float, float, float]] = field(default_factory=list)
    _looked_s: float = 0.0
    _known_s: float = 0.0
    _pause: tuple[float, float] = (0.0, 0.0)

    def around(self, tick: Any) -> Any:
        def timed(service: ThermalService, *, look: bool = True) -> None:
            if threading.current_thread().name != LOOP:  # the first one, at the start
                tick(service, look=look)
                return
            now_s = time.monotonic()
            if look:
                due_s = max(self._looked_s + service.snapshot().period_s, self._known_s)
                if self._looked_s:
                    self.looks.append((now_s, now_s - due_s, time.thread_time()))
                self._looked_s = now_s
            tick(service, look=look)
            self.ticks.append(now_s)
            self._known_s = time.monotonic()

        return timed

    def collector(self, phase: str, _info: Mapping[str, int]) -> None:
        """For ``gc.callbacks``."""
        now = (time.monotonic(), time.thread_time())
        if phase == "start":
            self._pause = now
        elif now[0] - self._pause[0] >= PAUSE_S:
            began_s, cpu_s = self._pause
            self.pauses.append((began_s, now[0] - began_s, now[1] - cpu_s))

    def told(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if not key.startswith("_")}


def main(argv: Sequence[str] | None = None) -> int:
    """stokerd's exit status; the report is there when it has ended."""
    report, *words = list(sys.argv[1:] if argv is None else argv)
    watch = StopWatch()
    ThermalService.tick = watch.around(ThermalService.tick)  # type: ignore[method-assign]
    gc.callbacks.append(watch.collector)
    try:
        return entry(words)
    finally:
        Path(report).write_text(json.dumps(watch.told()), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
