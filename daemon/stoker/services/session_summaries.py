"""Summaries of what a window leaves out, asked for in the background after a turn ended.

At most one a session, and only while no question is open there. Whatever goes wrong leaves
the conversation as it is; a later turn tries again. Session thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from stoker import errors
from stoker.core import summary
from stoker.events.inference import Ask, Delivery, JobClass, Owner
from stoker.events.prompt import Sampling
from stoker.events.sessions import Session
from stoker.ports.doors import InferenceDoor, JobView
from stoker.ports.sessions import SessionStore

_log = logging.getLogger(__name__)
_MOST_TURNS = 32  # in one task


@dataclass(frozen=True, slots=True)
class _Due:
    uid: int
    below: int  # turns from this number on still go to the model themselves
    model: str
    context_tokens: int


@dataclass(slots=True)
class _Running:
    seen: Session  # as it was when we asked
    upto: int
    job: str = ""  # "" until it is accepted


class Summaries:
    def __init__(
        self,
        store: SessionStore,
        inference: InferenceDoor,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        """``post`` brings work to the session thread."""
        self._store, self._inference, self._post = store, inference, post
        self._due: dict[str, _Due] = {}
        self._running: dict[str, _Running] = {}
        self._early: dict[str, JobView] = {}  # ended before we heard that it was accepted

    def __len__(self) -> int:
        return len(self._running)

    def note(self, session: str, uid: int, below: int, model: str, context_tokens: int) -> None:
        """Answered turns below this number did not go along with a question."""
        self._due[session] = _Due(uid, below, model, context_tokens)

    def drop(self, session: str, reason: str) -> None:
        """A new question comes first, and a session that is gone wants none."""
        self._due.pop(session, None)
        found = self._running.pop(session, None)
        if found is not None and found.job:
            self._inference.cancel(found.job, reason)
        self._tidy()

    def begin(self, session: str) -> None:
        """Its turn ended well: ask for what is due. StorageFailed."""
        due = self._due.pop(session, None)
        seen = self._store.get(session, due.uid) if due is not None else None
        if due is None or seen is None or session in self._running:
            return
        after, below = seen.summary_upto, due.below
        turns = self._store.between(session, due.uid, after, below, _MOST_TURNS)
        if not turns:
            return
        task = summary.task(seen.summary, turns, summary.room(due.context_tokens))
        ask = Ask(
            messages=task.messages,
            model=due.model,
            max_tokens=summary.ANSWER_TOKENS,
            sampling=Sampling(temperature=0.0),
            reasoning=False,
        )
        mine = self._running[session] = _Running(seen, task.upto)
        # No bus name: nobody's leaving ends it, and no signal tells of it.
        owner = Owner("", due.uid)
        delivery = Delivery(job_class=JobClass.BACKGROUND)
        accepted = self._inference.submit(ask, delivery, owner, -1)
        accepted.add_done_callback(
            lambda done: self._post(lambda: self._accepted(session, mine, done))
        )

    def ended(self, view: JobView) -> None:
        """A job's end; most are others'."""
        session = next((key for key, mine in self._running.items() if mine.job == view.id), "")
        if session:
            self._finish(session, self._running.pop(session), view)
        elif any(not mine.job for mine in self._running.values()):
            self._early[view.id] = view

    def _accepted(self, session: str, mine: _Running, done: Future[JobView]) -> None:
        error = done.exception()
        early = None if error else self._early.pop(done.result().id, None)
        if self._running.get(session) is not mine:
            if error is None and early is None:
                self._inference.cancel(done.result().id, "its summary is no longer wanted")
        elif error is not None:
            _log.info("no summary of session %s: %s", session, error)
            del self._running[session]
        else:
            mine.job = done.result().id
            if early is not None:
                self.ended(early)
        self._tidy()

    def _finish(self, session: str, mine: _Running, view: JobView) -> None:
        text = summary.clean(view.text)
        if view.error_code or not text:
            _log.info("no summary of session %s: %s", session, view.error_code or "no text")
            return
        try:
            if not self._store.summarize(mine.seen, text, mine.upto):
                _log.info("no summary of session %s: its turns changed meanwhile", session)
        except errors.StokerError as error:
            _log.warning("no summary of session %s: %s", session, error.message)

    def _tidy(self) -> None:
        """Ends that nobody can claim any more are others' jobs."""
        if all(mine.job for mine in self._running.values()):
            self._early.clear()
