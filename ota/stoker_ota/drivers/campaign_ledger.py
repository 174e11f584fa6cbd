"""The operator's ledger of campaigns in SQLite: plans, what devices said, documents, a story.

It may be lost: the broker keeps the campaign in signed documents and devices keep saying how it
ended. One that is damaged is put aside. It decides nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from stoker_ota.core import campaign_section
from stoker_ota.core.campaign import Plan, State
from stoker_ota.core.campaign_count import Seen
from stoker_ota.errors import BadDocument, StorageFailed

T = TypeVar("T")
_SCHEMA: Final = """\
PRAGMA journal_mode = WAL;
PRAGMA user_version = 1;
CREATE TABLE IF NOT EXISTS campaign (id TEXT PRIMARY KEY, section TEXT NOT NULL,
    phase TEXT NOT NULL, since_s REAL NOT NULL, made_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS device (campaign TEXT, name TEXT, groups TEXT NOT NULL,
    session INTEGER NOT NULL, away_s REAL NOT NULL, state TEXT NOT NULL, number INTEGER NOT NULL,
    code TEXT NOT NULL, detail TEXT NOT NULL, PRIMARY KEY (campaign, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS story (campaign TEXT, at_s REAL NOT NULL, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS document (audience TEXT PRIMARY KEY, version INTEGER NOT NULL,
    data BLOB NOT NULL);
"""


class SqliteLedger:
    """Port ``Ledger``; several processes may use one file. ``close`` it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = self._open()
        except sqlite3.OperationalError as error:
            raise StorageFailed(f"cannot open {path}: {error}") from error
        except sqlite3.DatabaseError:
            for end in ("", "-wal", "-shm"):
                old = Path(f"{path}{end}")
                if old.exists():
                    old.replace(f"{path}.damaged{end}")
            self._db = self._open()
        except OSError as error:
            raise StorageFailed(f"cannot open {path}: {error.strerror}") from error

    def close(self) -> None:
        self._db.close()

    def campaigns(self) -> Sequence[tuple[Plan, State]]:
        rows = self._do(
            lambda db: db.execute(
                "SELECT section, phase, since_s FROM campaign ORDER BY made_s DESC, rowid DESC"
            ).fetchall()
        )
        found = []
        for text, phase, since_s in rows:
            read = campaign_section.parse(json.loads(text))
            if read is None:
                raise BadDocument(f"cannot read {self._path}: a campaign has no plan")
            plan, state = read
            found.append((plan, State(phase, state.at, state.turn, since_s)))
        return found

    def keep(self, plan: Plan, state: State, at_s: float, text: str = "") -> None:
        section = json.dumps(campaign_section.section(plan, state))

        def write(db: sqlite3.Connection) -> None:
            db.execute(
                "INSERT INTO campaign VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
                " section = excluded.section, phase = excluded.phase, since_s = excluded.since_s",
                (plan.id, section, state.phase, state.since_s, at_s),
            )
            if text:
                db.execute("INSERT INTO story VALUES (?, ?, ?)", (plan.id, at_s, text))

        self._do(write)

    def devices(self, campaign: str) -> Mapping[str, Seen]:
        rows = self._do(
            lambda db: db.execute(
                "SELECT name, groups, session, away_s, state, number, code, detail FROM device"
                " WHERE campaign = ?",
                (campaign,),
            ).fetchall()
        )
        return {name: Seen(tuple(json.loads(groups)), *rest) for name, groups, *rest in rows}

    def keep_devices(self, campaign: str, devices: Mapping[str, Seen]) -> None:
        rows = [
            (campaign, name, json.dumps(seen.groups), seen.session, seen.away_s, seen.state,
             seen.number, seen.code, seen.detail)
            for name, seen in devices.items()
        ]  # fmt: skip
        self._do(
            lambda db: db.executemany(
                "INSERT OR REPLACE INTO device VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
        )

    def story(self, campaign: str) -> Sequence[tuple[float, str]]:
        return self._do(
            lambda db: db.execute(
                "SELECT at_s, text FROM story WHERE campaign = ? ORDER BY rowid", (campaign,)
            ).fetchall()
        )

    def document(self, audience: str) -> bytes:
        row = self._do(
            lambda db: db.execute(
                "SELECT data FROM document WHERE audience = ?", (audience,)
            ).fetchone()
        )
        return bytes(row[0]) if row else b""

    def keep_document(self, audience: str, version: int, data: bytes) -> None:
        self._do(
            lambda db: db.execute(
                "INSERT INTO document VALUES (?, ?, ?) ON CONFLICT (audience) DO UPDATE SET"
                " version = excluded.version, data = excluded.data"
                " WHERE excluded.version >= document.version",
                (audience, version, data),
            )
        )

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=10.0)
        db.executescript(_SCHEMA)
        return db

    def _do(self, act: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._db:
                return act(self._db)
        except sqlite3.Error as error:
            raise StorageFailed(f"cannot use {self._path}: {error}") from error
