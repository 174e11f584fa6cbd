"""Sensors that no controlled zone has (a disk's, a radio's): read for those who ask, not in a tick.

One of them may take a second to answer, or hang. A thread of its own reads them, only when
somebody asked, and one at a time: what hangs there holds up nobody and is not asked twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from stoker.events.thermal import Reading, Sensor
from stoker.ports.doors import ThermalDetails
from stoker.ports.system import Clock
from stoker.units import Seconds

FRESH_S: Final = 5.0
STALE_S: Final = 60.0
WAIT_S: Final = 0.05
"""So long whoever asks may wait for them: usually they answer within a millisecond."""
NO_ANSWER: Final = "no answer yet"


class OtherSensors:
    def __init__(self, read: Callable[[Sensor], Reading], clock: Clock) -> None:
        """``read`` never raises."""
        self._read, self._clock = read, clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Reading, Seconds]] = {}
        self._thread: threading.Thread | None = None
        self._began_s = Seconds(-1e9)

    def fill(
        self, details: ThermalDetails, sensors: Sequence[Sensor], read: Mapping[str, Reading]
    ) -> ThermalDetails:
        """The details with all sensors: what the tick ``read``, and what is known of the others.
        Any thread; waits ``WAIT_S`` at most, and that at most every ``FRESH_S``."""
        others = [sensor for sensor in sensors if sensor.name not in read]
        if others:
            self._look(others)
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._known = {k: v for k, v in self._known.items() if now_s - v[1] < STALE_S}
            known = {name: reading for name, (reading, _at_s) in self._known.items()}
        shown = {**known, **read}
        return replace(
            details,
            sensors=tuple(
                (sensor, shown.get(sensor.name, Reading(sensor.name, None, NO_ANSWER)))
                for sensor in sensors
            ),
        )

    def _look(self, sensors: Sequence[Sensor]) -> None:
        with self._lock:
            now_s = self._clock.monotonic_s()
            running = self._thread is not None and self._thread.is_alive()
            if running or now_s - self._began_s < FRESH_S:
                return
            self._began_s = now_s
            self._thread = thread = threading.Thread(
                target=self._run, args=(tuple(sensors),), name="other-sensors", daemon=True
            )
            thread.start()
        thread.join(WAIT_S)

    def _run(self, sensors: Sequence[Sensor]) -> None:
        for sensor in sensors:
            reading = self._read(sensor)
            with self._lock:
                self._known[sensor.name] = (reading, self._clock.monotonic_s())
