"""A SessionStore in memory; ``full`` makes its disk refuse."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from stoker.core import conversation
from stoker.errors import StorageFailed
from stoker.events.sessions import FAILED, OPEN, Holding, Session, Settings, Turn
from stoker.units import Bytes


@dataclass
class _Kept:
    session: Session
    turns: list[Turn] = field(default_factory=list)
    next_turn: int = 1
    trimmed_answered: int = 0


class MemorySessionStore:
    def __init__(self) -> None:
        self.full = False
        self.checkpoints = 0
        self._kept: dict[str, _Kept] = {}

    def open(self) -> None: ...

    def close(self) -> None: ...

    def create(self, session: Session) -> None:
        self._write()
        self._kept[session.id] = _Kept(replace(session))
        self._recount(self._kept[session.id])

    def get(self, session: str, uid: int) -> Session | None:
        kept = self._find(session, uid)
        return kept.session if kept else None

    def of_user(self, uid: int) -> tuple[Session, ...]:
        return tuple(item for item in self.everyone() if item.uid == uid)

    def everyone(self) -> tuple[Session, ...]:
        found = (kept.session for kept in self._kept.values())
        return tuple(sorted(found, key=lambda item: (-item.used_s, item.id)))

    def holdings(self) -> tuple[Holding, ...]:
        return tuple(
            Holding(
                kept.session.id,
                kept.session.uid,
                kept.session.used_s,
                kept.session.size_bytes,
                kept.session.settings.ttl_s,
                any(turn.state == OPEN for turn in kept.turns),
            )
            for kept in self._kept.values()
        )

    def configure(self, session: str, uid: int, settings: Settings) -> bool:
        self._write()
        kept = self._find(session, uid)
        if kept is not None:
            kept.session = replace(kept.session, settings=settings)
            self._recount(kept)
        return kept is not None

    def turns(self, session: str, uid: int, offset: int, limit: int) -> tuple[Turn, ...]:
        kept = self._find(session, uid)
        return tuple(kept.turns[offset : offset + limit]) if kept else ()

    def answered(self, session: str, uid: int, newest: int) -> tuple[int, tuple[Turn, ...]]:
        kept = self._find(session, uid)
        if kept is None:
            return 0, ()
        found = [turn for turn in kept.turns if turn.state in conversation.ANSWERED]
        newest_ones = found[-newest:] if newest else []
        return kept.trimmed_answered + len(found), tuple(newest_ones)

    def between(
        self, session: str, uid: int, after: int, below: int, limit: int
    ) -> tuple[Turn, ...]:
        _count, turns = self.answered(session, uid, 1 << 30)
        return tuple(turn for turn in turns if after < turn.number < below)[:limit]

    def summarize(self, seen: Session, summary: str, upto: int) -> bool:
        self._write()
        kept = self._find(seen.id, seen.uid)
        if kept is None:
            return False
        now = kept.session
        if (now.summary_upto, now.trimmed_turns) != (seen.summary_upto, seen.trimmed_turns):
            return False
        kept.session = replace(now, summary=summary, summary_upto=upto)
        self._recount(kept)
        return True

    def begin_turn(self, session: str, uid: int, turn: Turn) -> Turn:
        self._write()
        kept = self._find(session, uid)
        assert kept is not None
        numbered = replace(turn, number=kept.next_turn, state=OPEN)
        kept.next_turn += 1
        kept.turns.append(numbered)
        self._use(kept, turn.asked_s)
        return numbered

    def finish_turn(self, session: str, uid: int, turn: Turn) -> bool:
        self._write()
        kept = self._find(session, uid)
        if kept is None:
            return False
        for index, item in enumerate(kept.turns):
            if item.number == turn.number and item.state == OPEN:
                kept.turns[index] = turn
                self._use(kept, turn.ended_s)
                return True
        self._use(kept, turn.ended_s)
        return False

    def drop_turn(self, session: str, uid: int, number: int) -> None:
        self._write()
        kept = self._find(session, uid)
        if kept is not None:
            kept.turns = [turn for turn in kept.turns if turn.number != number]
            self._recount(kept)

    def trim(self, session: str, uid: int, limit_bytes: int) -> int:
        self._write()
        kept = self._find(session, uid)
        if kept is None:
            return 0
        sizes = [conversation.turn_bytes(turn.question, turn.answer) for turn in kept.turns]
        fixed = conversation.session_bytes(kept.session.settings)
        fixed += len(kept.session.summary.encode())
        count = conversation.to_trim(sizes, fixed, limit_bytes)
        gone = kept.turns[:count]
        kept.turns = kept.turns[count:]
        kept.trimmed_answered += sum(turn.state in conversation.ANSWERED for turn in gone)
        trimmed = kept.session.trimmed_turns + count
        kept.session = replace(kept.session, trimmed_turns=trimmed)
        self._recount(kept)
        return count

    def fork(self, session: str, uid: int, copy: str, now_s: float) -> bool:
        self._write()
        kept = self._find(session, uid)
        if kept is None:
            return False
        twin = replace(kept.session, id=copy, created_s=now_s, used_s=now_s)
        turns = [turn for turn in kept.turns if turn.state != OPEN]
        self._kept[copy] = _Kept(twin, turns, kept.next_turn, kept.trimmed_answered)
        self._recount(self._kept[copy])
        return True

    def delete(self, session: str, uid: int) -> bool:
        self._write()
        found = self._find(session, uid)
        if found is not None:
            del self._kept[session]
        return found is not None

    def settle(self, keep_partial: bool, now_s: float) -> int:
        count = 0
        for kept in self._kept.values():
            ended = []
            for turn in kept.turns:
                if turn.state != OPEN:
                    ended.append(turn)
                    continue
                count += 1
                if keep_partial:
                    code = "unavailable"
                    ended.append(replace(turn, state=FAILED, error_code=code, ended_s=now_s))
            kept.turns = ended
            self._recount(kept)
        return count

    def shift(self, since_s: float, by_s: float) -> None:
        for kept in self._kept.values():
            session = kept.session
            if session.used_s >= since_s:
                moved = by_s if session.created_s >= since_s else 0.0
                kept.session = replace(
                    session, used_s=session.used_s + by_s, created_s=session.created_s + moved
                )

    def log_bytes(self) -> int:
        return 0

    def checkpoint(self) -> bool:
        self.checkpoints += 1
        return True

    def _find(self, session: str, uid: int) -> _Kept | None:
        kept = self._kept.get(session)
        return kept if kept is not None and kept.session.uid == uid else None

    def _use(self, kept: _Kept, when_s: float) -> None:
        kept.session = replace(kept.session, used_s=max(kept.session.used_s, when_s))
        self._recount(kept)

    def _recount(self, kept: _Kept) -> None:
        size = conversation.session_bytes(kept.session.settings)
        size += len(kept.session.summary.encode())
        size += sum(conversation.turn_bytes(turn.question, turn.answer) for turn in kept.turns)
        kept.session = replace(kept.session, turns=len(kept.turns), size_bytes=Bytes(size))

    def _write(self) -> None:
        if self.full:
            raise StorageFailed("cannot write stored sessions: the fake disk is full")
