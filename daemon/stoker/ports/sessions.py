"""Conversations: where they are kept (``SessionStore``), and what doors may ask (``SessionDoor``).

The store belongs to one thread and may block on a disk. Every method but those for the
house (``holdings``, ``everyone``, ``settle``) takes the owner's UID and sees nothing of
others: a session of another user is one that is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from stoker.events.inference import Ask, Delivery, Owner
from stoker.events.sessions import Holding, Session, Settings, Turn
from stoker.ports.doors import JobView


class SessionStore(Protocol):
    """Raises StorageFailed when the disk refuses; then nothing has changed."""

    def open(self) -> None:
        """Idempotent. A file that cannot be read is set aside; StorageFailed, Unavailable."""

    def close(self) -> None:
        """Leaves one file, with everything in it. Safe to call twice."""

    def create(self, session: Session) -> None: ...

    def get(self, session: str, uid: int) -> Session | None: ...

    def of_user(self, uid: int) -> tuple[Session, ...]:
        """Newest use first."""

    def everyone(self) -> tuple[Session, ...]:
        """All users', for administrators; newest use first."""

    def holdings(self) -> tuple[Holding, ...]:
        """All users', for eviction."""

    def configure(self, session: str, uid: int, settings: Settings) -> bool:
        """False when there is no such session of this user."""

    def turns(self, session: str, uid: int, offset: int, limit: int) -> tuple[Turn, ...]:
        """Oldest first."""

    def answered(self, session: str, uid: int, newest: int) -> tuple[int, tuple[Turn, ...]]:
        """(how many turns have an answer, the ``newest`` of them, oldest first)."""

    def between(
        self, session: str, uid: int, after: int, below: int, limit: int
    ) -> tuple[Turn, ...]:
        """Answered turns with numbers between both (neither included), oldest first."""

    def summarize(self, seen: Session, summary: str, upto: int) -> bool:
        """Keep it instead of the one ``seen``. False, and nothing changes, when the session
        is gone, or its summary is another one or turns of it were dropped since.
        """

    def begin_turn(self, session: str, uid: int, turn: Turn) -> Turn:
        """Write the question; gives it its number. Survives our crash, not a power cut."""

    def finish_turn(self, session: str, uid: int, turn: Turn) -> bool:
        """Write the end over the question of the same number; durable when it returns."""

    def drop_turn(self, session: str, uid: int, number: int) -> None: ...

    def trim(self, session: str, uid: int, limit_bytes: int) -> int:
        """Drop the oldest turns beyond the limit, counted in trimmed_turns; how many."""

    def fork(self, session: str, uid: int, copy: str, now_s: float) -> bool:
        """``copy`` becomes the id of a copy with all ended turns."""

    def delete(self, session: str, uid: int) -> bool:
        """Its text is overwritten; after ``checkpoint`` it is in no file of ours."""

    def settle(self, keep_partial: bool, now_s: float) -> int:
        """After a crash: end (or drop) turns that are still open; how many."""

    def shift(self, since_s: float, by_s: float) -> None:
        """The wall clock was set: move the times that were written since ``since_s``."""

    def log_bytes(self) -> int:
        """What waits to be folded into the file."""

    def checkpoint(self) -> bool:
        """Fold the log into the file and empty it; False if a reader is in the way."""


class SessionDoor(Protocol):
    """What the D-Bus door may ask; any thread, never blocks. NotFound = not there or not yours."""

    def listen(self, forgotten: Callable[[str], None]) -> None:
        """Told of each session that is gone, from the service's thread."""

    def create(self, owner: Owner, settings: Settings) -> Future[Session]: ...

    def sessions(self, owner: Owner) -> Future[tuple[Session, ...]]:
        """The caller's; for administrators everyone's, others' without their titles."""

    def get(self, session: str, owner: Owner) -> Future[Session]: ...

    def find(self, session: str, owner: Owner) -> Future[Session]:
        """As ``get``, but administrators find everyone's (to delete them)."""

    def configure(
        self, session: str, owner: Owner, change: Callable[[Settings], Settings]
    ) -> Future[Session]: ...

    def append(
        self,
        session: str,
        owner: Owner,
        ask: Ask,
        delivery: Delivery,
        stream_fd: int,
    ) -> Future[JobView]:
        """Ask ``ask.prompt`` with the conversation before it.

        ``stream_fd``: as with ``InferenceDoor.submit``, the service's from here on. The
        stream's first line tells the turn and how many turns were sent and left out.
        """

    def turns(
        self, session: str, owner: Owner, offset: int, limit: int
    ) -> Future[tuple[Turn, ...]]: ...

    def fork(self, session: str, owner: Owner) -> Future[Session]: ...

    def close(self, session: str, owner: Owner) -> Future[None]:
        """Frees what the runtime holds; the text stays."""

    def export(self, session: str, owner: Owner) -> Future[str]: ...

    def delete(self, session: str, owner: Owner) -> Future[None]:
        """Done when its text is in no file; its running answer is cancelled."""
