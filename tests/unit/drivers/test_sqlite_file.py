"""What only a disk can do to conversations: break, fill up, keep traces, be read by others."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from stoker.core import conversation
from stoker.drivers import session_schema
from stoker.drivers.session_store import SqliteSessionStore
from stoker.drivers.sqlite_file import migrate
from stoker.errors import StorageFailed, Unavailable
from stoker.events.sessions import Session, Settings, Turn
from stoker.units import Bytes

UID = 1000
SECRET = "sesame-open-4711"


def filled(path: Path, turns: int = 3, text: str = "words") -> SqliteSessionStore:
    store = SqliteSessionStore(path)
    store.open()
    store.create(Session("a", UID, Settings(title=text), 1.0, 1.0))
    for _ in range(turns):
        add(store, text)
    return store


def add(store: SqliteSessionStore, text: str) -> None:
    turn = store.begin_turn("a", UID, Turn(0, f"question {text}", asked_s=2.0))
    ended = conversation.ended(
        turn, f"answer {text}", finish_reason="stop", error_code="", truncated=False,
        tokens=(1, 1), now_s=3.0,
    )  # fmt: skip
    store.finish_turn("a", UID, ended)


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


def test_nobody_else_can_read_any_of_its_files(tmp_path: Path) -> None:
    store = filled(tmp_path / "s.db")
    names = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(names) == {"s.db", "s.db-wal", "s.db-shm"}
    assert set(names.values()) == {0o600}
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_it_is_set_up_as_promised(tmp_path: Path) -> None:
    store = filled(tmp_path / "s.db")
    with store.file.reading() as con:
        found = {
            name: con.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "secure_delete", "foreign_keys", "busy_timeout",
                         "wal_autocheckpoint", "synchronous", "user_version")
        }  # fmt: skip
    assert found == {
        "journal_mode": "wal", "secure_delete": 1, "foreign_keys": 1, "busy_timeout": 5000,
        "wal_autocheckpoint": 0, "synchronous": 2, "user_version": len(session_schema.STEPS),
    }  # fmt: skip
    store.close()


@pytest.mark.parametrize("size", [10, 400_000])
def test_deleted_text_is_in_no_file(tmp_path: Path, size: int) -> None:
    store = filled(tmp_path / "s.db", text=SECRET * (size // 10))
    store.create(Session("b", UID, Settings(title="stays"), 1.0, 1.0))
    assert SECRET.encode() in everything(tmp_path)
    store.checkpoint()
    assert store.delete("a", UID)
    assert store.checkpoint()
    assert SECRET.encode() not in everything(tmp_path)
    assert b"stays" in everything(tmp_path)
    store.close()


def test_trimmed_and_dropped_text_is_in_no_file_after_a_checkpoint(tmp_path: Path) -> None:
    store = filled(tmp_path / "s.db", text=SECRET)
    add(store, "short")
    store.configure("a", UID, Settings(title="t"))
    assert store.trim("a", UID, 1) == 3
    store.checkpoint()
    assert SECRET.encode() not in everything(tmp_path)
    store.close()


def test_a_checkpoint_tells_when_a_reader_is_in_the_way(tmp_path: Path) -> None:
    store = filled(tmp_path / "s.db")
    reader = sqlite3.connect(tmp_path / "s.db")
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM turns").fetchone()
    add(store, "more")
    with store.file.reading() as con:
        con.execute("PRAGMA busy_timeout = 50")
    assert not store.checkpoint()
    reader.close()
    assert store.log_bytes() > 0
    assert store.checkpoint()
    assert store.log_bytes() == 0
    store.close()


def test_free_pages_are_given_back(tmp_path: Path) -> None:
    store = filled(tmp_path / "s.db", text="x" * 100_000)
    store.checkpoint()
    before = (tmp_path / "s.db").stat().st_size
    store.delete("a", UID)
    store.checkpoint()
    assert (tmp_path / "s.db").stat().st_size < before / 4
    store.close()


@pytest.mark.parametrize("damage", ["no database", "a page", "half a header"])
def test_a_broken_file_is_set_aside_and_a_new_one_begun(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    filled(path, turns=200).close()
    data = bytearray(path.read_bytes())
    if damage == "no database":
        data = bytearray(b"hello" * 1000)
    elif damage == "a page":
        data[4096 * 3 : 4096 * 5] = b"\xa5" * 8192
    else:
        data[16:60] = b"\0" * 44
    path.write_bytes(data)
    store = SqliteSessionStore(path)
    store.open()
    assert store.everyone() == ()
    add_after = Session("new", UID, Settings(), 1.0, 1.0)
    store.create(add_after)
    store.close()
    kept = (tmp_path / "s.db.broken").read_bytes()
    assert kept[100:] == data[100:]  # the header counts how often it was opened
    assert "set aside" in caplog.text


def test_a_file_that_breaks_while_in_use_is_a_typed_error_and_then_a_new_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"
    store = filled(path, turns=200)
    store.checkpoint()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)
    with store.file.reading() as con:
        con.execute("PRAGMA cache_size = 0")
    with pytest.raises(Exception, match="cannot read stored sessions"):
        store.turns("a", UID, 0, 1000)
    assert store.everyone() == ()
    store.close()


def test_a_full_disk_is_a_typed_error_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    filled(path).close()
    store = SqliteSessionStore(path, max_pages=path.stat().st_size // 4096 + 2)
    store.open()
    before = store.turns("a", UID, 0, 100)
    with pytest.raises(StorageFailed) as caught:
        store.begin_turn("a", UID, Turn(0, "x" * 100_000))
    assert caught.value.details == {"full": True}
    assert caught.value.hint == "free some space"
    assert store.turns("a", UID, 0, 100) == before
    add(store, "short")
    store.close()
    again = SqliteSessionStore(path)
    again.open()
    assert len(again.turns("a", UID, 0, 100)) == len(before) + 1
    again.close()


def test_a_folder_that_cannot_be_made_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = SqliteSessionStore(tmp_path / "file" / "s.db")
    with pytest.raises(StorageFailed, match="cannot open stored sessions"):
        store.open()
    with pytest.raises(StorageFailed):
        store.everyone()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "s.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageFailed):
        SqliteSessionStore(tmp_path / "s.db").open()
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = filled(path)
    with store.file.reading() as con:
        con.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(Unavailable, match="version 99 is newer"):
        SqliteSessionStore(path).open()
    assert not (tmp_path / "s.db.broken").exists()


def test_steps_run_once_and_a_failed_one_leaves_the_version_before_it() -> None:
    con = sqlite3.connect(":memory:", isolation_level=None)
    first = ("CREATE TABLE a (x INTEGER)",)
    second = ("ALTER TABLE a ADD COLUMN y INTEGER DEFAULT 5", "INSERT INTO a (x) VALUES (1)")
    assert migrate(con, [first], "x") == 1
    assert migrate(con, [first], "x") == 0
    with pytest.raises(sqlite3.Error):
        migrate(con, [first, (*second, "nonsense")], "x")
    assert con.execute("PRAGMA user_version").fetchone() == (1,)
    assert con.execute("SELECT * FROM a").fetchall() == []
    assert migrate(con, [first, second], "x") == 1
    assert con.execute("SELECT x, y FROM a").fetchall() == [(1, 5)]


def test_a_file_of_the_first_version_gets_summaries_and_keeps_its_text(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    con = sqlite3.connect(path, isolation_level=None)
    assert migrate(con, session_schema.STEPS[:1], "x") == 1
    con.execute(
        "INSERT INTO sessions (id, uid, created_s, used_s, ttl_s, window_turns, window_tokens, "
        "next_turn, turns, own_bytes, size_bytes, model, title, system) "
        "VALUES ('a', 1000, 1.0, 2.0, 0.0, 5, 0, 2, 1, 513, 770, '', 't', '')"
    )
    con.execute(
        "INSERT INTO turns VALUES ('a', 1000, 1, 'done', 257, 0, 1, 1, 0, 1.0, 2.0, 'stop', '', "
        "'q', '')"
    )
    con.close()
    store = SqliteSessionStore(path)
    store.open()
    found = store.get("a", UID)
    assert found == Session("a", UID, Settings("t"), 1.0, 2.0, 1, 0, Bytes(770), "", 0)
    assert [turn.question for turn in store.turns("a", UID, 0, 9)] == ["q"]
    assert store.summarize(found, "short", 1)
    again = store.get("a", UID)
    assert again is not None
    assert (again.summary, again.summary_upto, again.size_bytes) == ("short", 1, 775)
    assert again.settings.summaries == ""
    store.close()
    assert not (tmp_path / "s.db.broken").exists()


def test_a_summary_that_was_replaced_or_deleted_is_in_no_file(tmp_path: Path) -> None:
    store = filled(tmp_path / "s.db")
    for number, text in enumerate(("first " + SECRET, "second"), 1):
        seen = store.get("a", UID)
        assert seen is not None
        assert store.summarize(seen, text, number)
        store.checkpoint()
        assert (SECRET.encode() in everything(tmp_path)) is (number == 1)
    assert b"second" in everything(tmp_path)
    store.delete("a", UID)
    store.checkpoint()
    assert b"second" not in everything(tmp_path)
    store.close()


def test_every_statement_on_kept_text_names_the_owner(root: Path) -> None:
    """Those for the house name none: everyone, holdings, settle, shift."""
    source = (root / "daemon/stoker/drivers/session_store.py").read_text()
    for name in ("get", "of_user", "configure", "turns", "answered", "begin_turn", "finish_turn",
                 "drop_turn", "trim", "fork", "delete", "between", "summarize"):  # fmt: skip
        body = source.split(f"def {name}(")[1].split("\n    def ")[0]
        body = (
            body.replace("_turns(", "uid = ?") if name in ("turns", "answered", "between") else body
        )
        assert "uid = ?" in body, name
