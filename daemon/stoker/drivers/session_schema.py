"""The tables of sessions.db, as numbered steps for ``sqlite_file.migrate``."""

from __future__ import annotations

from typing import Final

# The owner is part of the key, so that no statement can reach a turn without it. Small
# columns stand first: reading them leaves the pages with long text alone.
_FIRST: Final = (
    """CREATE TABLE sessions (
        id TEXT NOT NULL PRIMARY KEY,
        uid INTEGER NOT NULL,
        created_s REAL NOT NULL,
        used_s REAL NOT NULL,
        ttl_s REAL NOT NULL,
        window_turns INTEGER NOT NULL,
        window_tokens INTEGER NOT NULL,
        next_turn INTEGER NOT NULL DEFAULT 1,
        turns INTEGER NOT NULL DEFAULT 0,
        trimmed_turns INTEGER NOT NULL DEFAULT 0,
        trimmed_answered INTEGER NOT NULL DEFAULT 0,
        own_bytes INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL,
        model TEXT NOT NULL,
        title TEXT NOT NULL,
        system TEXT NOT NULL,
        UNIQUE (id, uid)
    ) STRICT""",
    "CREATE INDEX sessions_by_use ON sessions (uid, used_s)",
    """CREATE TABLE turns (
        session TEXT NOT NULL,
        uid INTEGER NOT NULL,
        number INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('open', 'done', 'partial', 'failed')),
        bytes INTEGER NOT NULL,
        truncated INTEGER NOT NULL,
        prompt_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL,
        omitted_turns INTEGER NOT NULL,
        asked_s REAL NOT NULL,
        ended_s REAL NOT NULL,
        finish_reason TEXT NOT NULL,
        error_code TEXT NOT NULL,
        question TEXT NOT NULL,
        answer TEXT NOT NULL,
        PRIMARY KEY (session, number),
        FOREIGN KEY (session, uid) REFERENCES sessions (id, uid) ON DELETE CASCADE
    ) STRICT""",
    "CREATE INDEX turns_open ON turns (session) WHERE state = 'open'",
)

_SUMMARY: Final = (
    "ALTER TABLE sessions ADD COLUMN summary TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN summary_upto INTEGER NOT NULL DEFAULT 0",
)

_SUMMARIES: Final = ("ALTER TABLE sessions ADD COLUMN summaries TEXT NOT NULL DEFAULT ''",)

STEPS: Final[tuple[tuple[str, ...], ...]] = (_FIRST, _SUMMARY, _SUMMARIES)
