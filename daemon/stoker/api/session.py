"""org.stoker.Session1, and the three methods of Inference1 that lead to it.

An object is published when its owner asks for it (create, open, fork), so that thousands
of kept conversations cost the bus nothing; each user's longest unused ones give way.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from stoker.api import contract, handover, session_requests
from stoker.api.exports import Answer, Door, Exports, Later, Method, bus_text, vardict
from stoker.api.inference import stream_pipe
from stoker.api.job import Jobs
from stoker.api.requests import Limits, parse_delivery
from stoker.config.schema import Config
from stoker.core import summary
from stoker.errors import NotFound
from stoker.events.inference import Owner
from stoker.events.sessions import Session, Turn
from stoker.ports.sessions import SessionDoor

MAX_OBJECTS_PER_USER: Final = 128
MAX_TURNS: Final = 1000  # of one GetTurns
_ID_CHARACTERS: Final = frozenset("0123456789abcdef")


class Sessions:
    """The published objects. ``publish`` runs in any thread, calls come in the main loop."""

    def __init__(self, exports: Exports, service: SessionDoor, jobs: Jobs, config: Config) -> None:
        self.config = config
        self._exports, self._service, self._jobs = exports, service, jobs
        self._lock = threading.Lock()
        self._held: dict[int, OrderedDict[str, int]] = {}  # user → session → registration

    def methods(self) -> dict[str, Method]:
        return {
            "CreateSession": self.create_session,
            "OpenSession": self.open_session,
            "ListSessions": self.list_sessions,
        }

    def create_session(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        base = session_requests.defaults(self.config)
        future = self._service.create(owner, session_requests.parse_settings(args[0], base))
        return Later(future, lambda session: Answer((self.publish(session.id, owner.uid),)))

    def open_session(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        key = args[0]
        if not 1 <= len(key) <= 64 or not _ID_CHARACTERS.issuperset(key):
            raise NotFound("cannot find session: that is no id of a session")
        future = self._service.find(key, owner)
        return Later(future, lambda session: Answer((self.publish(session.id, owner.uid),)))

    def list_sessions(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        future = self._service.sessions(owner)
        return Later(future, lambda found: Answer(([_facts(item) for item in found],)))

    def publish(self, session: str, uid: int) -> str:
        """Its path; the object serves whoever the service lets use it."""
        path = contract.session_path(session)
        with self._lock:
            mine = self._held.setdefault(uid, OrderedDict())
            if session in mine:
                mine.move_to_end(session)
            elif not any(session in held for held in self._held.values()):
                room = SessionRoom(session, self._service, self._jobs, self)
                mine[session] = self._exports.add_rare(path, contract.SESSION, room)
            if len(mine) > MAX_OBJECTS_PER_USER:
                self._exports.remove(mine.popitem(last=False)[1])
        return path

    def touch(self, session: str, uid: int) -> None:
        """It was used: others give way before it."""
        with self._lock:
            mine = self._held.get(uid)
            if mine is not None and session in mine:
                mine.move_to_end(session)

    def withdraw(self, session: str) -> None:
        """Take the object away, if there is one; any thread."""
        with self._lock:
            for uid, held in list(self._held.items()):
                number = held.pop(session, None)
                if number is not None:
                    self._exports.remove(number)
                if not held:
                    del self._held[uid]


class SessionRoom:
    """One conversation. Whose it is, the service knows."""

    def __init__(self, key: str, service: SessionDoor, jobs: Jobs, sessions: Sessions) -> None:
        self._key = key
        self._service, self._jobs, self._sessions = service, jobs, sessions

    def door(self) -> Door:
        return Door(
            contract.SESSION,
            {
                "Append": self.append,
                "AppendFd": self.append_fd,
                "Fork": self.fork,
                "Configure": self.configure,
                "Close": self.close,
                "Export": self.export,
                "Delete": self.delete,
                "GetTurns": self.get_turns,
            },
            lambda owner: Later(self._service.get(self._key, owner), self._properties),
        )

    def append(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        return self._append(owner, args[0], args[1], Limits.of(self._sessions.config))

    def append_fd(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        limits = Limits.of(self._sessions.config).of_files()
        request = handover.read_request(args[0], limits.max_request_bytes)
        return self._append(owner, request, args[1], limits)

    def _append(
        self,
        owner: Owner,
        request: Mapping[str, object],
        options: Mapping[str, object],
        limits: Limits,
    ) -> Later:
        ask = session_requests.parse_append(request, limits)
        delivery = parse_delivery(options)
        self._sessions.touch(self._key, owner.uid)
        reader, writer = stream_pipe()
        try:  # the service owns ``writer`` from here on, whatever happens
            future = self._service.append(self._key, owner, ask, delivery, writer)
        except BaseException:
            os.close(reader)
            raise
        accept = self._jobs.accept
        return Later(future, lambda v: Answer((accept(v), 0), (reader,)), lambda: os.close(reader))

    def fork(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        publish = self._sessions.publish
        future = self._service.fork(self._key, owner)
        return Later(future, lambda session: Answer((publish(session.id, owner.uid),)))

    def configure(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        parse = session_requests.parse_settings
        future = self._service.configure(self._key, owner, lambda now: parse(args[0], now))
        return Later(future, lambda _session: Answer())

    def close(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        return Later(self._service.close(self._key, owner), self._gone)

    def export(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        return Later(self._service.export(self._key, owner), lambda text: Answer((text,)))

    def delete(self, owner: Owner, _args: tuple[Any, ...]) -> Later:
        return Later(self._service.delete(self._key, owner), self._gone)

    def get_turns(self, owner: Owner, args: tuple[Any, ...]) -> Later:
        future = self._service.turns(self._key, owner, args[0], min(args[1], MAX_TURNS))
        return Later(future, lambda turns: Answer(([_turn(turn) for turn in turns],)))

    def _properties(self, session: Session) -> dict[str, Any]:
        return properties(session, self._sessions.config.sessions.summary)

    def _gone(self, _done: None) -> Answer:
        self._sessions.withdraw(self._key)
        return Answer()


def properties(session: Session, configured_summary: str) -> dict[str, Any]:
    settings = session.settings
    return {
        "Id": session.id,
        "Title": bus_text(settings.title),
        "System": bus_text(settings.system),
        "Model": bus_text(settings.model),
        "Turns": session.turns,
        "TrimmedTurns": session.trimmed_turns,
        "Bytes": session.size_bytes,
        "Created": _seconds(session.created_s),
        "LastUsed": _seconds(session.used_s),
        "Window": settings.window_turns,
        "WindowTokens": settings.window_tokens,
        "Summaries": summary.wanted(settings, configured_summary),
        "Summary": bus_text(session.summary),
        "SummaryUpTo": session.summary_upto,
    }


def _facts(session: Session) -> dict[str, Any]:
    return vardict(
        id=("s", session.id),
        path=("o", contract.session_path(session.id)),
        uid=("u", session.uid),
        title=("s", session.settings.title),
        turns=("u", session.turns),
        bytes=("t", session.size_bytes),
        created=("t", _seconds(session.created_s)),
        last_used=("t", _seconds(session.used_s)),
    )


def _turn(turn: Turn) -> dict[str, Any]:
    return vardict(
        number=("u", turn.number),
        question=("s", turn.question),
        answer=("s", turn.answer),
        state=("s", turn.state),
        finish_reason=("s", turn.finish_reason),
        error_code=("s", turn.error_code),
        truncated=("b", turn.truncated),
        prompt_tokens=("u", turn.prompt_tokens),
        completion_tokens=("u", turn.completion_tokens),
        omitted_turns=("u", turn.omitted_turns),
        asked=("t", _seconds(turn.asked_s)),
        ended=("t", _seconds(turn.ended_s)),
    )


def _seconds(when_s: float) -> int:
    return max(0, int(when_s))
