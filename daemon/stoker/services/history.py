"""Keeps the device's past: one thread that wakes once a minute and writes every few minutes.

Listens to the other services; what it can't write it forgets after a while, with a word in
the log: the past is never worth a service's fault.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from stoker.config.schema import HistoryConfig
from stoker.core.history import SLICE_S, Event, Extremes, Slice, slice_of, widened
from stoker.errors import InvalidRequest, StokerError, Unavailable
from stoker.events.thermal import ThermalSnapshot
from stoker.events.updates import UpdateSnapshot
from stoker.ports.doors import (
    InferenceDoor,
    InferenceListener,
    InferenceSnapshot,
    ThermalDoor,
    ThermalListener,
)
from stoker.ports.history import HistoryStore, Past
from stoker.ports.updates import UpdateDoor, UpdateListener
from stoker.services.measures import Measures

_log = logging.getLogger(__name__)
_DAY_S: Final = 86_400.0
WRITE_AFTER: Final = 5
"""Slices gathered before one write: flash wears by the write."""
MAX_WAITING: Final = 120
"""Slices and events held while the disk refuses."""
MAX_COLUMNS: Final = 3000


class HistoryService:
    """See ``ports.history.HistoryDoor``. ``wall_s``: time of day as everybody knows it."""

    def __init__(
        self,
        config: HistoryConfig,
        store: HistoryStore,
        measures: Measures,
        wall_s: Callable[[], float],
    ) -> None:
        self._config, self._store, self._measures, self._wall_s = config, store, measures, wall_s
        self._work: queue.Queue[Callable[[], None]] = queue.Queue()
        self._lock = threading.Lock()
        self._seen, self._events = Extremes(), list[Event]()
        self._slices: list[Slice] = []
        self._begun_s, self._counted = wall_s(), measures.counted()
        self._restarts, self._model, self._heat, self._update = 0, "", "", UpdateSnapshot()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    def listen_to(
        self, inference: InferenceDoor, thermal: ThermalDoor, updates: UpdateDoor
    ) -> None:
        """Before they start."""
        self._note("started", "stokerd started")
        inference.listen(InferenceListener(changed=self._asked))
        thermal.listen(ThermalListener(changed=self._warmed))
        updates.listen(UpdateListener(changed=self._updated))

    def start(self) -> None:
        if self._config.enabled:
            self._thread.start()

    def stop(self) -> None:
        """What was seen until now is written. Safe without a start, and twice."""
        self._stop.set()
        if self._thread.is_alive():
            self._work.put(lambda: None)
            self._thread.join(5.0)

    def read(self, from_s: float, to_s: float, span_s: float) -> Future[Past]:
        future: Future[Past] = Future()

        def look() -> None:
            try:
                self._write()
                found, present = self._store.read(from_s, to_s), self._present()
                slices = (*found.slices, *([present] if from_s <= present.at_s < to_s else []))
                future.set_result(replace(found, slices=widened(slices, span_s)))
            except Exception as error:  # one call's fault must not end the thread
                future.set_exception(error)

        refusal = self._refusal(from_s, to_s, span_s)
        if refusal is not None:
            future.set_exception(refusal)
        else:
            self._work.put(look)
        return future

    def _refusal(self, from_s: float, to_s: float, span_s: float) -> StokerError | None:
        if not self._thread.is_alive() or self._stop.is_set():
            return Unavailable("cannot read the history: none is kept", hint="[history] enabled")
        if not span_s >= SLICE_S or not (to_s - from_s) / span_s <= MAX_COLUMNS:
            return InvalidRequest(
                f"cannot read the history: a column has at least {SLICE_S:.0f} s, and there are "
                f"at most {MAX_COLUMNS}"
            )
        return None

    # Other threads tell.

    def _warmed(self, seen: ThermalSnapshot) -> None:
        with self._lock:
            self._seen = self._seen.heard(seen)
        if seen.state != self._heat:
            if self._heat and {seen.state, self._heat} & {"degraded", "safe", "stop"}:
                self._note("heat", f"{self._heat} → {seen.state}: {seen.reason}".rstrip(": "))
            self._heat = seen.state

    def _asked(self, seen: InferenceSnapshot) -> None:
        with self._lock:
            self._seen = self._seen.queued(seen.queue_depth)
        if seen.runner_restarts > self._restarts:
            self._note("restart", seen.reason or "the runner was started again")
        self._restarts = max(self._restarts, seen.runner_restarts)
        if seen.state == "ready" and seen.model != self._model:
            self._note("model", f"{seen.model} serves")
            self._model = seen.model

    def _updated(self, seen: UpdateSnapshot) -> None:
        before, self._update = self._update, seen
        if seen.current != before.current:
            self._note("update", f"set {before.current} → {seen.current}")
        if seen.error_code and seen.error_code != before.error_code:
            self._note("update", f"{seen.error_code}: {seen.error_text}")

    def _note(self, kind: str, text: str) -> None:
        with self._lock:
            if len(self._events) < MAX_WAITING:
                self._events.append(Event(self._wall_s(), kind, text[:300]))

    # The thread.

    def _run(self) -> None:
        self._guard(self._store.open)
        while not self._stop.is_set():
            with contextlib.suppress(queue.Empty):
                self._work.get(timeout=self._rest_s())()
            if self._wall_s() - self._begun_s >= SLICE_S or self._wall_s() < self._begun_s:
                self._close_slice()
        self._close_slice()
        self._guard(self._write)
        self._guard(self._store.close)

    def _rest_s(self) -> float:
        return min(max(self._begun_s + SLICE_S - self._wall_s(), 0.05), SLICE_S)

    def _close_slice(self) -> None:
        """A clock that was set ends the slice too: its time is then of no meaning."""
        made = self._present()
        self._begun_s, self._counted = self._wall_s(), self._measures.counted()
        with self._lock:
            self._seen = Extremes()
        if not made.empty:
            self._slices.append(made)
        if len(self._slices) >= WRITE_AFTER:
            self._guard(self._write)

    def _present(self) -> Slice:
        """The slice that is not full yet, until now."""
        span_s = min(max(self._wall_s() - self._begun_s, 0.0), 2 * SLICE_S)
        counted = self._measures.counted()
        return slice_of(self._begun_s, span_s, self._counted, counted, self._seen)

    def _write(self) -> None:
        with self._lock:
            events, self._events = self._events, []
        slices, self._slices = self._slices, []
        if not slices and not events:
            return
        try:
            keep_from_s = self._wall_s() - self._config.keep_days * _DAY_S
            self._store.add(slices, events, keep_from_s)
        except Exception:
            self._slices = [*slices, *self._slices][-MAX_WAITING:]
            with self._lock:
                self._events = [*events, *self._events][-MAX_WAITING:]
            raise

    def _guard(self, act: Callable[[], None]) -> None:
        try:
            act()
        except StokerError as error:
            _log.warning("%s", error.message)
        except Exception:
            _log.exception("the history failed")
