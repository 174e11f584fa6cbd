"""Conversations in SQLite: the statements, each with its owner in it.

It decides nothing (what is trimmed is core.conversation's word) and opens nothing
(``sqlite_file``). One thread only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from stoker.core import conversation
from stoker.drivers.session_schema import STEPS
from stoker.drivers.sqlite_file import SqliteFile
from stoker.events.sessions import FAILED, OPEN, Holding, Session, Settings, Turn
from stoker.units import Bytes, Seconds

_SESSION: Final = (
    "id, uid, created_s, used_s, ttl_s, window_turns, window_tokens, turns, trimmed_turns, "
    "size_bytes, model, title, system, summary, summary_upto, summaries"
)
_TURN: Final = (
    "number, state, truncated, prompt_tokens, completion_tokens, omitted_turns, asked_s, "
    "ended_s, finish_reason, error_code, question, answer"
)
_SUMMARY_BYTES: Final = "length(CAST(summary AS BLOB))"
_ANSWERED: Final = "state IN ('done', 'partial')"


class SqliteSessionStore:
    """Port ``SessionStore``."""

    def __init__(self, path: Path, *, max_pages: int = 0) -> None:
        self.file = SqliteFile(path, "stored sessions", STEPS, max_pages=max_pages)

    def open(self) -> None:
        self.file.open()

    def close(self) -> None:
        self.file.close()

    def create(self, session: Session) -> None:
        want = session.settings
        own = conversation.session_bytes(want)
        values = (
            session.id, session.uid, session.created_s, session.used_s, want.ttl_s,
            want.window_turns, want.window_tokens, own, own, want.model, want.title, want.system,
            want.summaries,
        )  # fmt: skip
        with self.file.writing() as con:
            con.execute(
                "INSERT INTO sessions (id, uid, created_s, used_s, ttl_s, window_turns, "
                "window_tokens, own_bytes, size_bytes, model, title, system, summaries) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )

    def get(self, session: str, uid: int) -> Session | None:
        found = self._sessions("WHERE id = ? AND uid = ?", (session, uid))
        return found[0] if found else None

    def of_user(self, uid: int) -> tuple[Session, ...]:
        return self._sessions("WHERE uid = ? ORDER BY used_s DESC, id", (uid,))

    def everyone(self) -> tuple[Session, ...]:
        return self._sessions("ORDER BY used_s DESC, id", ())

    def holdings(self) -> tuple[Holding, ...]:
        statement = (
            "SELECT id, uid, used_s, size_bytes, ttl_s, EXISTS (SELECT 1 FROM turns "
            "WHERE session = sessions.id AND state = 'open') FROM sessions"
        )
        with self.file.reading() as con:
            rows = con.execute(statement).fetchall()
        return tuple(
            Holding(key, uid, used_s, size, ttl_s, busy=bool(busy))
            for key, uid, used_s, size, ttl_s, busy in rows
        )

    def configure(self, session: str, uid: int, settings: Settings) -> bool:
        own = conversation.session_bytes(settings)
        with self.file.writing() as con:
            done = con.execute(
                "UPDATE sessions SET ttl_s = ?, window_turns = ?, window_tokens = ?, model = ?, "
                "title = ?, system = ?, summaries = ?, "
                f"size_bytes = size_bytes - own_bytes + ? + {_SUMMARY_BYTES}, "
                f"own_bytes = ? + {_SUMMARY_BYTES} WHERE id = ? AND uid = ?",
                (settings.ttl_s, settings.window_turns, settings.window_tokens, settings.model,
                 settings.title, settings.system, settings.summaries, own, own, session, uid),
            )  # fmt: skip
            return done.rowcount == 1

    def turns(self, session: str, uid: int, offset: int, limit: int) -> tuple[Turn, ...]:
        return self._turns("ORDER BY number LIMIT ? OFFSET ?", (session, uid, limit, offset))

    def answered(self, session: str, uid: int, newest: int) -> tuple[int, tuple[Turn, ...]]:
        found = self._turns(f"AND {_ANSWERED} ORDER BY number DESC LIMIT ?", (session, uid, newest))
        with self.file.reading() as con:
            row = con.execute(
                "SELECT trimmed_answered + (SELECT count(*) FROM turns WHERE session = ? AND "
                f"uid = ? AND {_ANSWERED}) FROM sessions WHERE id = ? AND uid = ?",
                (session, uid, session, uid),
            ).fetchone()
        return (int(row[0]) if row else 0), found[::-1]

    def between(
        self, session: str, uid: int, after: int, below: int, limit: int
    ) -> tuple[Turn, ...]:
        rest = f"AND {_ANSWERED} AND number > ? AND number < ? ORDER BY number LIMIT ?"
        return self._turns(rest, (session, uid, after, below, limit))

    def summarize(self, seen: Session, summary: str, upto: int) -> bool:
        size = len(summary.encode())
        with self.file.writing() as con:
            done = con.execute(
                f"UPDATE sessions SET size_bytes = size_bytes - {_SUMMARY_BYTES} + ?, "
                f"own_bytes = own_bytes - {_SUMMARY_BYTES} + ?, summary = ?, summary_upto = ? "
                "WHERE id = ? AND uid = ? AND summary_upto = ? AND trimmed_turns = ?",
                (size, size, summary, upto, seen.id, seen.uid, seen.summary_upto,
                 seen.trimmed_turns),
            )  # fmt: skip
            return done.rowcount == 1

    def begin_turn(self, session: str, uid: int, turn: Turn) -> Turn:
        # The model reads the prompt while a later sync makes this durable: a power cut may
        # take the unfinished turn and nothing else.
        with self.file.writing(durable=False) as con:
            row = con.execute(
                "UPDATE sessions SET next_turn = next_turn + 1, used_s = max(used_s, ?) "
                "WHERE id = ? AND uid = ? RETURNING next_turn - 1",
                (turn.asked_s, session, uid),
            ).fetchone()
            numbered = _numbered(turn, int(row[0]) if row else 0)
            con.execute(
                f"INSERT INTO turns (session, uid, bytes, {_TURN}) VALUES (?, ?, ?, "
                "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (session, uid, conversation.turn_bytes(turn.question, ""), *_row(numbered)),
            )
            _recount(con, session, uid)
        return numbered

    def finish_turn(self, session: str, uid: int, turn: Turn) -> bool:
        size = conversation.turn_bytes(turn.question, turn.answer)
        with self.file.writing() as con:
            done = con.execute(
                "UPDATE turns SET bytes = ?, state = ?, truncated = ?, prompt_tokens = ?, "
                "completion_tokens = ?, ended_s = ?, finish_reason = ?, error_code = ?, "
                "answer = ? WHERE session = ? AND uid = ? AND number = ? AND state = 'open'",
                (size, turn.state, turn.truncated, turn.prompt_tokens, turn.completion_tokens,
                 turn.ended_s, turn.finish_reason, turn.error_code, turn.answer,
                 session, uid, turn.number),
            )  # fmt: skip
            con.execute(
                "UPDATE sessions SET used_s = max(used_s, ?) WHERE id = ? AND uid = ?",
                (turn.ended_s, session, uid),
            )
            _recount(con, session, uid)
            return done.rowcount == 1

    def drop_turn(self, session: str, uid: int, number: int) -> None:
        with self.file.writing() as con:
            con.execute(
                "DELETE FROM turns WHERE session = ? AND uid = ? AND number = ?",
                (session, uid, number),
            )
            _recount(con, session, uid)

    def trim(self, session: str, uid: int, limit_bytes: int) -> int:
        with self.file.reading() as con:
            row = con.execute(
                "SELECT own_bytes, size_bytes FROM sessions WHERE id = ? AND uid = ?",
                (session, uid),
            ).fetchone()
            if row is None or row[1] <= limit_bytes:
                return 0
            sizes = con.execute(
                "SELECT number, bytes FROM turns WHERE session = ? AND uid = ? ORDER BY number",
                (session, uid),
            ).fetchall()
        count = conversation.to_trim([size for _number, size in sizes], row[0], limit_bytes)
        if not count:
            return 0
        key = (session, uid, sizes[count - 1][0])
        chosen = "FROM turns WHERE session = ? AND uid = ? AND number <= ?"
        with self.file.writing() as con:
            con.execute(
                "UPDATE sessions SET trimmed_turns = trimmed_turns + ?, trimmed_answered = "
                f"trimmed_answered + (SELECT count(*) {chosen} AND {_ANSWERED}) "
                "WHERE id = ? AND uid = ?",
                (count, *key, session, uid),
            )
            con.execute(f"DELETE {chosen}", key)
            _recount(con, session, uid)
        return count

    def fork(self, session: str, uid: int, copy: str, now_s: float) -> bool:
        with self.file.writing() as con:
            made = con.execute(
                "INSERT INTO sessions (id, uid, created_s, used_s, ttl_s, window_turns, "
                "window_tokens, next_turn, trimmed_turns, trimmed_answered, own_bytes, "
                "size_bytes, model, title, system, summary, summary_upto, summaries) "
                "SELECT ?, uid, ?, ?, ttl_s, window_turns, window_tokens, next_turn, "
                "trimmed_turns, trimmed_answered, own_bytes, size_bytes, model, title, system, "
                "summary, summary_upto, summaries FROM sessions WHERE id = ? AND uid = ?",
                (copy, now_s, now_s, session, uid),
            )
            con.execute(
                f"INSERT INTO turns (session, uid, bytes, {_TURN}) SELECT ?, uid, bytes, {_TURN} "
                "FROM turns WHERE session = ? AND uid = ? AND state != 'open'",
                (copy, session, uid),
            )
            _recount(con, copy, uid)
            return made.rowcount == 1

    def delete(self, session: str, uid: int) -> bool:
        with self.file.writing() as con:
            gone = con.execute("DELETE FROM sessions WHERE id = ? AND uid = ?", (session, uid))
            return gone.rowcount == 1

    def settle(self, keep_partial: bool, now_s: float) -> int:
        with self.file.writing() as con:
            hurt = con.execute("SELECT session, uid FROM turns WHERE state = 'open'").fetchall()
            if keep_partial:
                con.execute(
                    "UPDATE turns SET state = ?, error_code = 'unavailable', ended_s = ? "
                    "WHERE state = 'open'",
                    (FAILED, now_s),
                )
            else:
                con.execute("DELETE FROM turns WHERE state = 'open'")
            for session, uid in hurt:
                _recount(con, session, uid)
            return len(hurt)

    def shift(self, since_s: float, by_s: float) -> None:
        with self.file.writing() as con:
            con.execute(
                "UPDATE sessions SET used_s = used_s + ?, created_s = CASE WHEN created_s >= ? "
                "THEN created_s + ? ELSE created_s END WHERE used_s >= ?",
                (by_s, since_s, by_s, since_s),
            )

    def log_bytes(self) -> int:
        return self.file.log_bytes()

    def checkpoint(self) -> bool:
        return self.file.checkpoint()

    def _sessions(self, where: str, values: tuple[object, ...]) -> tuple[Session, ...]:
        with self.file.reading() as con:
            rows = con.execute(f"SELECT {_SESSION} FROM sessions {where}", values).fetchall()
        return tuple(_session(row) for row in rows)

    def _turns(self, rest: str, values: tuple[object, ...]) -> tuple[Turn, ...]:
        statement = f"SELECT {_TURN} FROM turns WHERE session = ? AND uid = ? {rest}"
        with self.file.reading() as con:
            rows: Iterable[tuple[object, ...]] = con.execute(statement, values).fetchall()
        return tuple(_turn(row) for row in rows)


def _recount(con: sqlite3.Connection, session: str, uid: int) -> None:
    """Counts and sizes follow the turns, in the transaction that changed them."""
    con.execute(
        "UPDATE sessions SET (turns, size_bytes) = (SELECT count(*), "
        "sessions.own_bytes + coalesce(sum(bytes), 0) FROM turns WHERE session = ? AND uid = ?) "
        "WHERE id = ? AND uid = ?",
        (session, uid, session, uid),
    )


def _session(row: tuple[object, ...]) -> Session:
    (key, uid, created_s, used_s, ttl_s, window_turns, window_tokens, turns, trimmed, size,
     model, title, system, summary, upto, summaries) = row  # fmt: skip
    settings = Settings(
        title=str(title),
        system=str(system),
        model=str(model),
        window_turns=_whole(window_turns),
        window_tokens=_whole(window_tokens),
        ttl_s=Seconds(_real(ttl_s)),
        summaries=str(summaries),
    )
    return Session(
        id=str(key),
        uid=_whole(uid),
        settings=settings,
        created_s=_real(created_s),
        used_s=_real(used_s),
        turns=_whole(turns),
        trimmed_turns=_whole(trimmed),
        size_bytes=Bytes(_whole(size)),
        summary=str(summary),
        summary_upto=_whole(upto),
    )


def _row(turn: Turn) -> tuple[object, ...]:
    """In the order of ``_TURN``."""
    return (
        turn.number, OPEN, turn.truncated, turn.prompt_tokens, turn.completion_tokens,
        turn.omitted_turns, turn.asked_s, turn.ended_s, turn.finish_reason, turn.error_code,
        turn.question, turn.answer,
    )  # fmt: skip


def _turn(row: tuple[object, ...]) -> Turn:
    (number, state, truncated, prompt, completion, omitted, asked_s, ended_s, reason, code,
     question, answer) = row  # fmt: skip
    return Turn(
        number=_whole(number),
        question=str(question),
        answer=str(answer),
        state=str(state),
        finish_reason=str(reason),
        error_code=str(code),
        truncated=bool(truncated),
        prompt_tokens=_whole(prompt),
        completion_tokens=_whole(completion),
        omitted_turns=_whole(omitted),
        asked_s=_real(asked_s),
        ended_s=_real(ended_s),
    )


def _numbered(turn: Turn, number: int) -> Turn:
    return Turn(number, turn.question, omitted_turns=turn.omitted_turns, asked_s=turn.asked_s)


def _whole(value: object) -> int:
    assert isinstance(value, int)  # STRICT tables hold nothing else
    return value


def _real(value: object) -> float:
    assert isinstance(value, float)
    return value
