"""The operator's ledger of campaigns in SQLite: plans, what devices said, documents, a story.

It may be lost: the broker keeps the campaign in signed documents and devices keep saying how it
ended. One that is damaged is put aside. It decides nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from stoker_ota.core import campaign_section
from stoker_ota.core.campaign import PHASES, Plan, State
from stoker_ota.core.campaign_count import Seen
from stoker_ota.errors import BadDocument, OtaError, StorageFailed

T = TypeVar("T")
VERSION: Final = 1
_SCHEMA: Final = f"""\
PRAGMA journal_mode = WAL;
PRAGMA user_version = {VERSION};
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
        return self._rows(
            "SELECT section, phase, since_s FROM campaign ORDER BY made_s DESC, rowid DESC",
            (), _campaign,
        )  # fmt: skip

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
        found = self._rows(
            "SELECT name, groups, session, away_s, state, number, code, detail FROM device"
            " WHERE campaign = ?", (campaign,), _device,
        )  # fmt: skip
        return dict(found)

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
        return self._rows(
            "SELECT at_s, text FROM story WHERE campaign = ? ORDER BY rowid", (campaign,), _line
        )

    def document(self, audience: str) -> bytes:
        found = self._rows(
            "SELECT data FROM document WHERE audience = ?", (audience,), lambda row: _bytes(*row)
        )
        return found[0] if found else b""

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
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            db.close()
            raise StorageFailed(
                f"cannot use {self._path}: a newer stoker-ota has written it (version {version})"
            )
        db.executescript(_SCHEMA)
        return db

    def _rows(
        self, query: str, values: tuple[object, ...], read: Callable[[Sequence[Any]], T]
    ) -> list[T]:
        """What ``read`` makes of each row; rows that somebody has changed are a typed error."""
        rows = self._do(lambda db: db.execute(query, values).fetchall())
        try:
            return [read(row) for row in rows]
        except (ValueError, TypeError, OtaError) as error:
            raise StorageFailed(
                f"cannot use {self._path}: a row makes no sense: {error}",
                hint="move it away: the broker and the devices say it again",
            ) from error

    def _do(self, act: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._db:
                return act(self._db)
        except sqlite3.Error as error:
            raise StorageFailed(f"cannot use {self._path}: {error}") from error


def _campaign(row: Sequence[Any]) -> tuple[Plan, State]:
    text, phase, since_s = row
    found = campaign_section.parse(json.loads(text))
    if found is None or phase not in PHASES:
        raise BadDocument("a campaign has no plan")
    plan, state = found
    return plan, State(phase, state.at, state.turn, float(since_s))


def _device(row: Sequence[Any]) -> tuple[str, Seen]:
    name, groups, session, away_s, state, number, code, detail = row
    told = json.loads(groups)
    if not isinstance(told, list):
        raise BadDocument("a device's groups are no list")
    return str(name), Seen(
        tuple(map(str, told)), int(session), float(away_s), str(state), int(number), str(code),
        str(detail),
    )  # fmt: skip


def _line(row: Sequence[Any]) -> tuple[float, str]:
    return float(row[0]), str(row[1])


def _bytes(data: object) -> bytes:
    if not isinstance(data, bytes):
        raise BadDocument("a document is no bytes")
    return data
