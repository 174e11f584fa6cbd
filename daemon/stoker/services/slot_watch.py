"""The watchdog over slots: the runner's list of jobs and the book must agree.

A slot's owner is a job in the book; it ends with its caller, its reader or its deadline, and
the runner frees the slot at our Cancel. Here it is checked that it did: a job that only the
runner has is cancelled again, one that only the book has ends. Owned by the loop's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from stoker import errors
from stoker.events import runner as wire
from stoker.ports.system import Clock
from stoker.services.job_desk import JobDesk
from stoker.services.runner_queries import Answered
from stoker.units import Seconds

CHECK_S: Final = Seconds(30.0)
DOUBTS: Final = 3  # beats in a row with other numbers than ours: then at once
_log = logging.getLogger(__name__)

Ask = Callable[[Callable[[str], wire.Request]], Answered]
"""Puts a query of our own to the runner that serves."""


class SlotWatch:
    def __init__(self, desk: JobDesk, clock: Clock, ask: Ask) -> None:
        self._desk, self._clock, self._ask = desk, clock, ask
        self._checked_s = clock.monotonic_s()
        self._doubts = 0
        self._asking = False

    def beat(self, beat: wire.Beat) -> None:
        """Once a second: the numbers tell whether a look at the names is worth it."""
        now, ours = self._clock.monotonic_s(), self._desk.running()
        theirs = beat.active + beat.waiting
        self._doubts = self._doubts + 1 if theirs != ours else 0
        due = now - self._checked_s >= CHECK_S and (theirs or ours)
        if not self._asking and (due or self._doubts >= DOUBTS):
            self._check(now)

    def _check(self, now: Seconds) -> None:
        self._checked_s, self._doubts, self._asking = now, 0, True
        before = self._desk.in_runner()

        def done(answer: Answered) -> None:
            self._asking = False
            if answer.exception() is None:
                self._compare(before, answer.result().get("jobs"))

        self._ask(wire.Stats).add_done_callback(done)

    def _compare(self, before: frozenset[str], told: object) -> None:
        """``before``: ours when the question left. What we cancelled or sent meanwhile is no
        difference: the runner had not heard of it when it answered.
        """
        if not isinstance(told, list):
            return
        theirs = {job for job in told if isinstance(job, str)}
        now = self._desk.in_runner()
        for wire_id in sorted(theirs - before - now):
            _log.warning("the runner has a job %s that nobody owns: cancelled", wire_id)
            self._desk.send(wire.Cancel(wire_id))
        for wire_id in sorted((before & now) - theirs):
            _log.error("the runner has forgotten job %s", wire_id)
            lost = errors.EngineFailed("cannot finish job: the runner lost it", hint="ask again")
            self._desk.cancel(self._desk.book.in_runner(wire_id), lost)
