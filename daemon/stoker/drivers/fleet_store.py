"""What the fleet client must remember: commands, floors, desired states, the outbox (fleet.db).

Everything is on the disk when a method returns. Floors of commands and of desired states and
the session number have a twin in a small file beside it: they outlive a database that had to
be set aside.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final

from stoker.core import fleet_floors
from stoker.core.fleet_desired import Kept
from stoker.core.fleet_floors import Floor
from stoker.drivers.sqlite_file import SqliteFile
from stoker.errors import NotFound, StokerError, StorageFailed
from stoker.events.fleet import FINAL, Parcel, Record
from stoker.ports.fleet import Letter
from stoker.ports.system import StateFile

STEPS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE commands (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            command TEXT NOT NULL,
            args TEXT NOT NULL,
            issuer TEXT NOT NULL,
            sequence INTEGER NOT NULL,
            issued_s REAL NOT NULL,
            expires_s REAL NOT NULL,
            state TEXT NOT NULL,
            attempts INTEGER NOT NULL,
            notes TEXT NOT NULL,
            code TEXT NOT NULL,
            text TEXT NOT NULL,
            data TEXT NOT NULL,
            results INTEGER NOT NULL
        ) STRICT""",
        """CREATE TABLE floors (
            issuer TEXT NOT NULL PRIMARY KEY,
            highest INTEGER NOT NULL,
            closed INTEGER NOT NULL
        ) STRICT""",
        "CREATE TABLE desired (audience TEXT NOT NULL PRIMARY KEY, document TEXT NOT NULL) STRICT",
        "CREATE TABLE notes (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT",
        """CREATE TABLE outbox (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            kind TEXT NOT NULL,
            topic TEXT NOT NULL,
            size_bytes INTEGER NOT NULL,
            made_s REAL NOT NULL,
            payload BLOB NOT NULL
        ) STRICT""",
    ),
)
_COLUMNS: Final = (
    "id, command, args, issuer, sequence, issued_s, expires_s, state, attempts, notes, code, "
    "text, data, results"
)
_SESSION: Final = "session"
_BORN: Final = "born"
_RAN: Final = "ran"
_LOG_BYTES: Final = 4 << 20


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SqliteFleetStore:
    """Port ``FleetStore``."""

    def __init__(
        self,
        path: Path,
        twin: StateFile,
        *,
        max_pages: int = 0,
        passed_s: Callable[[], float] = _since_boot,
    ) -> None:
        """``passed_s``: a clock that nobody sets; what waits ages by it, over restarts too."""
        self._file = SqliteFile(path, "fleet records", STEPS, max_pages=max_pages)
        self._twin, self._passed_s = twin, passed_s
        self._floors: dict[str, Floor] = {}
        self._versions: dict[str, int] = {}  # of desired states, by audience
        self._ran_s = 0.0  # before this process
        self._begun_s = passed_s()

    def open(self) -> None:
        self._file.open()
        with self._file.reading() as con:
            rows = con.execute("SELECT issuer, highest, closed FROM floors").fetchall()
        self._floors = {issuer: Floor(highest, closed) for issuer, highest, closed in rows}
        if not self.note(_BORN):
            self._begin_anew()
        self._versions = self._twin_versions()
        for audience, kept in self.desired().items():
            self._versions[audience] = max(kept.version, self._versions.get(audience, 0))
        self._resume_age()

    def close(self) -> None:
        with contextlib.suppress(StokerError):  # a full disk: some age is forgotten
            self.write_note(_RAN, str(self.age_s()))
        self._file.close()

    def age_s(self) -> float:
        """What ``Parcel.made_s`` is counted by: seconds in which somebody ran that could send."""
        return self._ran_s + max(0.0, self._passed_s() - self._begun_s)

    def _resume_age(self) -> None:
        """Moments from later than now are another clock's: an earlier version wrote the wall's."""
        self._begun_s = self._passed_s()
        with self._file.reading() as con:
            newest = con.execute("SELECT max(made_s) FROM outbox WHERE made_s < 1e9").fetchone()[0]
        with contextlib.suppress(ValueError):
            self._ran_s = float(self.note(_RAN) or 0.0)
        self._ran_s = max(self._ran_s, newest or 0.0)
        with contextlib.suppress(StorageFailed), self._file.writing() as con:
            con.execute("UPDATE outbox SET made_s = ? WHERE made_s >= 1e9", (self._ran_s,))

    def _begin_anew(self) -> None:
        """An empty database: what the twin says of the one before must hold in it."""
        twin = self._twin.load()
        kept = twin.get("floors")
        for issuer, highest in kept.items() if isinstance(kept, dict) else ():
            if isinstance(highest, int):
                self._floors[str(issuer)] = fleet_floors.records_lost(Floor(highest))
        session = twin.get(_SESSION, 0)
        with self._file.writing() as con:
            for audience, version in self._twin_versions().items():
                # that very document may come again, none before it
                _write_desired(con, Kept(audience, version - 1, 0.0))
            for issuer, floor in self._floors.items():
                _write_floor(con, issuer, floor)
            _write_note(con, _SESSION, str(session if isinstance(session, int) else 0))
            _write_note(con, _BORN, "1")

    def _twin_versions(self) -> dict[str, int]:
        kept = self._twin.load().get("desired")
        found = kept.items() if isinstance(kept, dict) else ()
        return {str(audience): version for audience, version in found if isinstance(version, int)}

    def next_session(self) -> int:
        number = self.last_session() + 1
        self._save_twin(number)
        self.write_note(_SESSION, str(number))
        return number

    def last_session(self) -> int:
        return int(self.note(_SESSION) or 0)

    # commands

    def command(self, identity: str) -> Record | None:
        found = self._records("WHERE id = ?", (identity,))
        return found[0] if found else None

    def add(
        self, record: Record, letters: Sequence[Letter], wish: tuple[str, str] | None = None
    ) -> None:
        floor = fleet_floors.accepted(self._floors.get(record.issuer, Floor()), record.sequence)
        if record.issuer:
            self._floors[record.issuer] = floor
            self._save_twin(self.last_session())
        marks = ", ".join("?" * 14)
        with self._file.writing() as con:
            con.execute(f"INSERT INTO commands ({_COLUMNS}) VALUES ({marks})", _values(record))
            if record.issuer:
                _write_floor(con, record.issuer, floor)
            if wish is not None:
                _write_note(con, f"wish:{wish[0]}", wish[1])
            self._post(con, letters)
        self._fold()

    def move(self, record: Record, letters: Sequence[Letter] = ()) -> None:
        with self._file.writing() as con:
            con.execute(
                "UPDATE commands SET state = ?, attempts = ?, notes = ?, code = ?, text = ?, "
                "data = ?, results = ? WHERE id = ?",
                (record.state, record.attempts, _json(record.notes), record.code, record.text,
                 _json(record.data), record.number, record.id),
            )  # fmt: skip
            self._post(con, letters)
        self._fold()

    def unfinished(self) -> Sequence[Record]:
        words = ", ".join(f"'{state}'" for state in FINAL)
        return self._records(f"WHERE state NOT IN ({words}) ORDER BY number", ())

    def recent(self, count: int) -> Sequence[Record]:
        return self._records("ORDER BY number DESC LIMIT ?", (count,))

    def replayed(self, issuer: str, sequence: int) -> bool:
        return fleet_floors.replayed(self._floors.get(issuer, Floor()), sequence)

    def forget(self, before_s: float, keep: int) -> None:
        words = ", ".join(f"'{state}'" for state in FINAL)
        old = self._records(
            f"WHERE state IN ({words}) AND expires_s < ? AND number NOT IN "
            "(SELECT number FROM commands ORDER BY number DESC LIMIT ?)",
            (before_s, keep),
        )
        if not old:
            return
        with self._file.writing() as con:
            for record in old:
                con.execute("DELETE FROM commands WHERE id = ?", (record.id,))
                if record.issuer:
                    floor = self._floors.get(record.issuer, Floor())
                    floor = fleet_floors.forgotten(floor, record.sequence)
                    self._floors[record.issuer] = floor
                    _write_floor(con, record.issuer, floor)

    # the desired state

    def desired(self) -> Mapping[str, Kept]:
        with self._file.reading() as con:
            rows = con.execute("SELECT audience, document FROM desired").fetchall()
        return {audience: _kept(audience, json.loads(text)) for audience, text in rows}

    def keep_desired(self, kept: Kept) -> None:
        self._versions[kept.audience] = kept.version
        self._save_twin(self.last_session())
        with self._file.writing() as con:
            _write_desired(con, kept)

    def wished(self, slot: str) -> str:
        return self.note(f"wish:{slot}")

    def note(self, name: str) -> str:
        with self._file.reading() as con:
            row = con.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    def write_note(self, name: str, value: str) -> None:
        with self._file.writing() as con:
            _write_note(con, name, value)

    # the outbox

    def put(self, letters: Sequence[Letter]) -> None:
        with self._file.writing() as con:
            self._post(con, letters)
        self._fold()

    def waiting(self) -> Sequence[Parcel]:
        with self._file.reading() as con:
            rows = con.execute(
                "SELECT number, kind, topic, size_bytes, made_s FROM outbox ORDER BY number"
            ).fetchall()
        return tuple(Parcel(*row) for row in rows)

    def payload(self, number: int) -> bytes:
        with self._file.reading() as con:
            row = con.execute("SELECT payload FROM outbox WHERE number = ?", (number,)).fetchone()
        if row is None:
            raise NotFound(f"cannot send message {number}: it is no longer in the outbox")
        return bytes(row[0])

    def take_out(self, numbers: Sequence[int]) -> None:
        with self._file.writing() as con:
            con.executemany("DELETE FROM outbox WHERE number = ?", [(n,) for n in numbers])
        self._fold()

    def _post(self, con: Connection, letters: Sequence[Letter]) -> None:
        for letter in letters:
            con.execute(
                "INSERT INTO outbox (kind, topic, size_bytes, made_s, payload) "
                "VALUES (?, ?, ?, ?, ?)",
                (letter.kind, letter.topic, len(letter.payload), self.age_s(), letter.payload),
            )

    def _records(self, rest: str, values: tuple[object, ...]) -> list[Record]:
        with self._file.reading() as con:
            rows = con.execute(f"SELECT {_COLUMNS} FROM commands {rest}", values).fetchall()
        return [_record(row) for row in rows]

    def _save_twin(self, session: int) -> None:
        floors = {issuer: floor.highest for issuer, floor in self._floors.items()}
        versions = dict(self._versions)
        self._twin.save({_SESSION: session, "floors": floors, "desired": versions})

    def _fold(self) -> None:
        if self._file.log_bytes() > _LOG_BYTES:
            self._file.checkpoint()


def _values(record: Record) -> tuple[object, ...]:
    return (
        record.id, record.command, _json(record.args), record.issuer, record.sequence,
        record.issued_s, record.expires_s, record.state, record.attempts, _json(record.notes),
        record.code, record.text, _json(record.data), record.number,
    )  # fmt: skip


def _record(row: tuple[Any, ...]) -> Record:
    (identity, command, args, issuer, sequence, issued_s, expires_s, state, attempts, notes, code,
     text, data, number) = row  # fmt: skip
    return Record(
        identity, command, json.loads(args), issuer, sequence, issued_s, expires_s, state, attempts,
        json.loads(notes), code, text, json.loads(data), number,
    )  # fmt: skip


def _kept(audience: str, document: Mapping[str, Any]) -> Kept:
    return Kept(
        audience, document["version"], document["expires_s"], document["sections"],
        tuple(document["groups"]),
    )  # fmt: skip


def _write_floor(con: Connection, issuer: str, floor: Floor) -> None:
    con.execute(
        "INSERT OR REPLACE INTO floors VALUES (?, ?, ?)", (issuer, floor.highest, floor.closed)
    )


def _write_desired(con: Connection, kept: Kept) -> None:
    document = {
        "version": kept.version, "expires_s": kept.expires_s, "groups": list(kept.groups),
        "sections": {name: dict(values) for name, values in kept.sections.items()},
    }  # fmt: skip
    con.execute("INSERT OR REPLACE INTO desired VALUES (?, ?)", (kept.audience, _json(document)))


def _write_note(con: Connection, name: str, value: str) -> None:
    con.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, value))


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True)
