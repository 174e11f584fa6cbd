"""Turns being answered: which job belongs to which, and its end written down.

A turn whose end the disk refused is held and tried again, so that a full disk loses no
answer; its session takes no new question until then. Session thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from stoker import errors
from stoker.config.schema import SessionsConfig
from stoker.core import conversation
from stoker.events.sessions import Turn
from stoker.ports.doors import JobView
from stoker.ports.sessions import SessionStore

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Open:
    uid: int
    turn: Turn
    job: str = ""  # "" until it is accepted
    saved: Turn | None = None  # its end, when only the disk is in the way


class Turns:
    def __init__(
        self, config: SessionsConfig, store: SessionStore, wall_s: Callable[[], float]
    ) -> None:
        self.config = config
        self._store, self._wall_s = store, wall_s
        self._open: dict[str, _Open] = {}
        self._sessions: dict[str, str] = {}  # by job
        self._early: dict[str, JobView] = {}  # ended before we heard that it was accepted

    def __len__(self) -> int:
        return len(self._open)

    def check_free(self, session: str) -> None:
        """One question at a time: the next one needs this one's answer. Busy, StorageFailed."""
        found = self._open.get(session)
        if found is None:
            return
        if found.saved is None:
            raise errors.Busy(
                f"cannot ask in session {session}: its last question is being answered",
                hint="wait for the end of the answer, or cancel its job",
            )
        self._save(session, found)

    def begin(self, session: str, uid: int, turn: Turn) -> None:
        self._open[session] = _Open(uid, turn)

    def accepted(self, session: str, number: int, view: JobView) -> bool:
        """False when the session was deleted meanwhile: nobody wants this job."""
        found = self._find(session, number)
        early = self._early.pop(view.id, None)
        self._tidy()
        if found is None:
            return False
        found.job = view.id
        self._sessions[view.id] = session
        if early is not None:
            self.ended(early)
        return True

    def refused(self, session: str, number: int) -> None:
        """No job came of it: as if it had not been asked."""
        found = self._find(session, number)
        if found is not None:
            del self._open[session]
            self._store.drop_turn(session, found.uid, number)
        self._tidy()

    def ended(self, view: JobView) -> str:
        """The session whose turn this ends; "" when it is not ours (yet)."""
        session = self._sessions.pop(view.id, "")
        found = self._open.get(session)
        if found is None:
            if any(not turn.job for turn in self._open.values()):
                self._early[view.id] = view
            return ""
        found.saved = conversation.ended(
            found.turn,
            view.text,
            finish_reason=view.finish_reason,
            error_code=view.error_code,
            truncated=view.truncated,
            tokens=(view.prompt_tokens, view.completion_tokens),
            now_s=self._wall_s(),
        )
        try:
            self._save(session, found)
        except errors.StokerError as error:
            _log.error("%s; an answer is held in memory", error.message)
        return session

    def save_held(self) -> None:
        """Try again what the disk refused."""
        for session, found in list(self._open.items()):
            if found.saved is not None:
                try:
                    self._save(session, found)
                except errors.StokerError:
                    return

    def abandon(self, session: str) -> str:
        """The session goes; the job that was answering it, if it is known."""
        found = self._open.pop(session, None)
        if found is None:
            return ""
        self._sessions.pop(found.job, None)
        return found.job if found.saved is None else ""

    def _save(self, session: str, found: _Open) -> None:
        turn = found.saved
        assert turn is not None
        if turn.error_code and not self.config.keep_partial:
            self._store.drop_turn(session, found.uid, turn.number)
        else:
            self._store.finish_turn(session, found.uid, turn)
            self._store.trim(session, found.uid, self.config.max_bytes_per_session)
        self._open.pop(session, None)

    def _find(self, session: str, number: int) -> _Open | None:
        found = self._open.get(session)
        return found if found is not None and found.turn.number == number else None

    def _tidy(self) -> None:
        """Ends that nobody can claim any more are others' jobs."""
        if all(turn.job for turn in self._open.values()):
            self._early.clear()
