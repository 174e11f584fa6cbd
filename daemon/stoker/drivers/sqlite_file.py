"""A SQLite file of ours: opened, migrated, checked, set aside when broken, its errors made ours.

WAL mode. It knows no table; the stores do (``session_store`` and others). One thread only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from stoker.errors import InternalError, StokerError, StorageFailed, Unavailable

_log = logging.getLogger(__name__)
_BUSY_MS: Final = 5000
_FREE_PAGES: Final = 256  # given back to the file system at once, so that a checkpoint stays short
_BROKEN: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DISK: Final = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
)


Steps = Sequence[Sequence[str]]
"""Step N takes a file from version N-1 to N (``user_version``), in one transaction. A step that was
released is never changed: a new one is added behind it."""


class SqliteFile:
    """A connection that survives its file: ``open`` after trouble begins anew."""

    def __init__(self, path: Path, what: str, steps: Steps, *, max_pages: int = 0) -> None:
        """``what`` is in it, for messages. ``max_pages`` of 4 KiB: the file never grows beyond
        (0 = no bound)."""
        self.path, self._what, self._steps = path, what, steps
        self._max_pages = max_pages
        self._con: sqlite3.Connection | None = None
        self._durable: bool | None = None

    def open(self) -> None:
        """A broken file becomes ``.broken`` and an empty one takes its place."""
        if self._con is not None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            try:
                self._con = self._connect()
            except sqlite3.DatabaseError as error:
                if _primary(error) not in _BROKEN:
                    raise
                self._set_aside(str(error))
                self._con = self._connect()
        except (OSError, sqlite3.Error) as error:
            raise self._typed(error, "open") from error

    def close(self) -> None:
        con, self._con, self._durable = self._con, None, None
        if con is not None:
            with contextlib.suppress(sqlite3.Error):
                con.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            with contextlib.suppress(sqlite3.Error):
                con.close()

    @contextlib.contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction. ``durable``: on the disk when it ends, with all before it."""
        con = self._connected()
        try:
            if durable is not self._durable:
                con.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            con.execute("BEGIN IMMEDIATE")
            yield con
            con.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(con)
            raise self._typed(error, "write") from error
        except BaseException:
            self._roll_back(con)
            raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._connected()
        except sqlite3.Error as error:
            raise self._typed(error, "read") from error

    def log_bytes(self) -> int:
        try:
            return self._beside("-wal").stat().st_size
        except OSError:
            return 0

    def checkpoint(self) -> bool:
        """Fold the log into the file, cut it to nothing, give free pages back."""
        with self.reading() as con:
            # A page a step, and execute() would take one step.
            con.executescript(f"PRAGMA incremental_vacuum({_FREE_PAGES})")
            busy, _log_pages, _folded = con.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def _connect(self) -> sqlite3.Connection:
        # Made by us, so that nobody else can read it in the moment before a chmod; SQLite
        # gives the log and its index the same mode.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        os.close(os.open(self.path, flags, 0o600))
        con = sqlite3.connect(self.path, timeout=_BUSY_MS / 1000, isolation_level=None)
        try:
            con.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has effect on an empty file only
            con.execute("PRAGMA journal_mode = WAL")
            con.execute("PRAGMA secure_delete = ON")
            con.execute("PRAGMA foreign_keys = ON")
            con.execute("PRAGMA temp_store = MEMORY")
            con.execute("PRAGMA wal_autocheckpoint = 0")  # ours: see ``checkpoint``
            if self._max_pages:
                con.execute(f"PRAGMA max_page_count = {self._max_pages}")
            found = con.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found == "ok" and con.execute("PRAGMA foreign_key_check").fetchone():
                found = "a row without the one it belongs to"
            if found != "ok":
                raise _corrupt(found)
            migrate(con, self._steps, self._what)
        except BaseException:
            con.close()
            raise
        return con

    def _connected(self) -> sqlite3.Connection:
        if self._con is None:
            self.open()
        assert self._con is not None
        return self._con

    def _roll_back(self, con: sqlite3.Connection) -> None:
        with contextlib.suppress(sqlite3.Error):
            if con.in_transaction:
                con.execute("ROLLBACK")

    def _set_aside(self, reason: str) -> None:
        _log.warning(
            "cannot use %s: %s; set aside as %s", self.path, reason, self._beside(".broken").name
        )
        self.path.replace(self._beside(".broken"))
        for tail in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                self._beside(tail).replace(self._beside(f".broken{tail}"))

    def _beside(self, tail: str) -> Path:
        return self.path.with_name(self.path.name + tail)

    def _typed(self, error: Exception, verb: str) -> StokerError:
        code = _primary(error)
        if code in _BROKEN:
            # The next call opens, checks and sets it aside.
            self.close()
            return InternalError(f"cannot {verb} {self._what}: {error}", hint="try again")
        if isinstance(error, OSError) or code in _DISK:
            full = code == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) == 28
            return StorageFailed(
                f"cannot {verb} {self._what}: {error}",
                hint="free some space" if full else f"look at {self.path.parent}",
                details={"full": full},
            )
        return InternalError(f"cannot {verb} {self._what}: {error}")


def migrate(con: sqlite3.Connection, steps: Steps, what: str) -> int:
    """Bring the file to the newest version; how many steps that took.

    Unavailable when a newer Stoker wrote it: it is left as it is. sqlite3.Error of a
    step leaves the file at the version before that step.
    """
    version = int(con.execute("PRAGMA user_version").fetchone()[0])
    if version > len(steps):
        raise Unavailable(
            f"cannot use {what}: version {version} is newer than ours, {len(steps)}",
            hint="install the newer stoker again, or move the file away",
        )
    for number, step in enumerate(steps[version:], version + 1):
        con.execute("BEGIN IMMEDIATE")
        try:
            for statement in step:
                con.execute(statement)
            con.execute(f"PRAGMA user_version = {number}")
            con.execute("COMMIT")
        except BaseException:
            if con.in_transaction:
                con.execute("ROLLBACK")
            raise
    return len(steps) - version


def _primary(error: Exception) -> int:
    """SQLite's result code without its extension; 0 for other errors."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _corrupt(reason: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(reason)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
