"""Listens to the other services and keeps their counts (``core.measures``). Any thread."""

from __future__ import annotations

import threading
from dataclasses import replace

from stoker.core.measures import Counted, Key, fold
from stoker.events.inference import TokenTotals
from stoker.events.thermal import ThermalSnapshot
from stoker.ports.doors import (
    InferenceDoor,
    InferenceListener,
    InferenceSnapshot,
    JobView,
    ThermalDoor,
    ThermalListener,
)
from stoker.ports.system import Clock


class Measures:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counted = Counted()
        self._serves = ""

    def listen_to(self, inference: InferenceDoor, thermal: ThermalDoor) -> None:
        """Before they start, so that nothing is missed."""
        inference.listen(InferenceListener(job_finished=self.finished, changed=self.changed))
        self.heat(thermal.snapshot())
        thermal.listen(ThermalListener(changed=self.heat))

    def counted(self) -> Counted:
        """Until now."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._counted = replace(self._counted, heat=self._counted.heat.until(now_s))
            return self._counted

    def finished(self, job: JobView) -> None:
        how = job.error_code or job.finish_reason or "unknown"
        tokens = TokenTotals(job.prompt_tokens, job.cached_tokens, job.completion_tokens)
        model = job.model or self._serves or "none"  # who names none means whichever serves
        key = Key(model, job.job_class)
        with self._lock:
            work = fold(self._counted.work, key, how, job.times, tokens)
            self._counted = replace(self._counted, work=work)

    def changed(self, snapshot: InferenceSnapshot) -> None:
        busy = snapshot.decoding_jobs > 0
        with self._lock:
            self._serves = snapshot.model or self._serves
            heat = self._counted.heat
            if busy != heat.busy:
                heat = heat.working(busy, self._clock.monotonic_s())
                self._counted = replace(self._counted, heat=heat)

    def heat(self, snapshot: ThermalSnapshot) -> None:
        with self._lock:
            heat = self._counted.heat.heard(snapshot, self._clock.monotonic_s())
            self._counted = replace(self._counted, heat=heat)
