"""Conversations as their owners use them: every method runs on the session thread.

It reads and writes through the store, lets core.conversation and core.retention decide,
and hands turns to inference. It never waits for an answer: jobs report their end.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace

from stoker import errors
from stoker.config.schema import Config
from stoker.core import conversation, records, summary
from stoker.events.inference import Ask, Delivery, Owner
from stoker.events.sessions import Session, Settings, Turn
from stoker.ports.doors import InferenceDoor, JobView
from stoker.ports.sessions import SessionStore
from stoker.ports.system import Authority
from stoker.services.session_keeping import Keeping
from stoker.services.session_summaries import Summaries
from stoker.services.session_turns import Turns

_log = logging.getLogger(__name__)
_EXPORT_TURNS = 1 << 30


class SessionDesk:
    """See ``ports.sessions.SessionDoor`` for what each method promises."""

    def __init__(
        self,
        config: Config,
        *,
        store: SessionStore,
        inference: InferenceDoor,
        authority: Authority,
        wall_s: Callable[[], float],
        new_id: Callable[[], str],
        forgotten: Callable[[str], None],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self.config = config
        self._store, self._inference, self._authority = store, inference, authority
        self._wall_s, self._new_id, self._forgotten = wall_s, new_id, forgotten
        self.keeping = Keeping(config.sessions, store, self._forget)
        self.turns_now = Turns(config.sessions, store, wall_s)
        self.summaries = Summaries(store, inference, post)
        self._opened = False

    def configure(self, config: Config) -> None:
        """Take over new limits."""
        self.config = config
        self.keeping.config = self.turns_now.config = config.sessions

    def open(self) -> None:
        """Before every use, cheap when done. Raises what the store raises."""
        if self._opened:
            return
        self._store.open()
        hurt = self._store.settle(self.config.sessions.keep_partial, self._wall_s())
        if hurt:
            _log.warning("%d turns were cut off when the agent ended", hurt)
        self._opened = True

    def create(self, owner: Owner, settings: Settings) -> Session:
        self.keeping.admit(owner.uid, newcomer=True)
        now = self._wall_s()
        session = Session(self._new_id(), owner.uid, settings, now, now)
        self._store.create(session)
        self.keeping.make_room(protect=session.id)
        return self.get(session.id, owner)

    def sessions(self, owner: Owner) -> tuple[Session, ...]:
        if not self._authority.may_manage(owner.uid):
            return self._store.of_user(owner.uid)
        # Title and summary say what a conversation is about: administrators see that it is there.
        return tuple(
            item if item.uid == owner.uid else replace(item, settings=Settings(), summary="")
            for item in self._store.everyone()
        )

    def get(self, session: str, owner: Owner) -> Session:
        found = self._store.get(session, owner.uid)
        if found is None:
            raise errors.NotFound(f"cannot find session {session}: no such session of yours")
        return found

    def find(self, session: str, owner: Owner) -> Session:
        found = self._store.get(session, owner.uid)
        if found is None and self._authority.may_manage(owner.uid):
            others = (item for item in self._store.everyone() if item.id == session)
            found = next(others, None)
        return found or self.get(session, owner)

    def change(self, session: str, owner: Owner, change: Callable[[Settings], Settings]) -> Session:
        settings = change(self.get(session, owner).settings)
        self._store.configure(session, owner.uid, settings)
        return self.get(session, owner)

    def turns(self, session: str, owner: Owner, offset: int, limit: int) -> tuple[Turn, ...]:
        self.get(session, owner)
        return self._store.turns(session, owner.uid, offset, limit)

    def fork(self, session: str, owner: Owner) -> Session:
        self.get(session, owner)
        self.keeping.admit(owner.uid, newcomer=True)
        copy = self._new_id()
        self._store.fork(session, owner.uid, copy, self._wall_s())
        self.keeping.make_room(protect=copy)
        return self.get(copy, owner)

    def close(self, session: str, owner: Owner) -> None:
        self.get(session, owner)
        self._inference.forget(owner.uid, session)

    def export(self, session: str, owner: Owner) -> str:
        found = self.get(session, owner)
        return conversation.export(found, self._store.turns(session, owner.uid, 0, _EXPORT_TURNS))

    def delete(self, session: str, owner: Owner) -> None:
        found = self.find(session, owner)
        job = self.turns_now.abandon(session)
        if job:
            self._inference.cancel(job, "its session was deleted")
        self._store.delete(session, found.uid)
        self.keeping.scrub()
        self._forget(session, found.uid)

    def append(
        self, session: str, owner: Owner, ask: Ask, delivery: Delivery, fd: int
    ) -> tuple[int, Future[JobView]]:
        """(number of the turn, the accepted job); ``fd`` is closed when this raises."""
        try:
            found = self.get(session, owner)
            self.turns_now.check_free(session)
            self.keeping.admit(owner.uid, newcomer=False)
            plan = self._plan(found, ask)
            self._name(found, owner, ask.prompt)
            question = Turn(0, ask.prompt, omitted_turns=plan.omitted_turns, asked_s=self._wall_s())
            turn = self._store.begin_turn(session, owner.uid, question)
        except BaseException:
            self.refuse(fd)
            raise
        self.turns_now.begin(session, owner.uid, turn)
        self.summaries.drop(session, "a new question comes first")
        if fd >= 0 and delivery.format == "ndjson":
            told = {"turn": turn.number, "sent_turns": plan.sent_turns}
            told["omitted_turns"] = plan.omitted_turns
            # An empty pipe takes a line at once; a reader that is gone is inference's to find.
            with contextlib.suppress(OSError):
                os.write(fd, records.line({"session": told}))
        model = ask.model or found.settings.model
        if plan.omitted_turns and summary.wanted(found.settings, self.config.sessions.summary):
            below, context = plan.first_turn or turn.number, self._context_tokens(model)
            self.summaries.note(session, owner.uid, below, model, context)
        whole = replace(ask, prompt="", messages=plan.messages, model=model, keep=session)
        return turn.number, self._inference.submit(whole, delivery, owner, fd)

    def refuse(self, fd: int) -> None:
        """Close the stream of a question that was not taken."""
        if fd >= 0:
            os.close(fd)

    def _plan(self, session: Session, ask: Ask) -> conversation.Plan:
        settings, limits = session.settings, self.config.inference
        if summary.wanted(settings, self.config.sessions.summary):
            told = summary.head(settings.system, session.summary)
            settings = replace(settings, system=told)
        answered, history = self._store.answered(session.id, session.uid, settings.window_turns)
        context = 0
        if self.config.sessions.overflow == "drop-oldest":
            context = self._context_tokens(ask.model or settings.model)
        answer = min(ask.max_tokens or limits.max_tokens, context // 2)
        window = conversation.Window(
            settings.window_turns,
            conversation.budget(settings.window_tokens, context, answer),
            limits.max_request_bytes,
        )
        return conversation.plan(settings, history, answered, ask.prompt, window)

    def _context_tokens(self, model: str) -> int:
        """Of the loaded model; 0 while none is loaded, and then its runner has the word."""
        sizes = (
            found.context_tokens
            for found in self._inference.models()
            if not model or model in (found.name, *found.aliases)
        )
        return next(filter(None, sizes), 0)

    def _name(self, session: Session, owner: Owner, question: str) -> None:
        if self.config.sessions.title == "question" and not session.settings.title:
            title = conversation.title_of(question)
            self._store.configure(session.id, owner.uid, replace(session.settings, title=title))

    def forget_strangers(self, saved: Mapping[str, object]) -> None:
        """A runner has states of these conversations: drop those that are no more."""
        for uid, conversations in saved.items():
            for session in conversations if isinstance(conversations, list) else ():
                if uid.isdecimal() and self._store.get(str(session), int(uid)) is None:
                    self._inference.forget(int(uid), str(session))

    def _forget(self, session: str, uid: int) -> None:
        self.turns_now.abandon(session)
        self.summaries.drop(session, "its session was deleted")
        self._inference.forget(uid, session)
        self._forgotten(session)
