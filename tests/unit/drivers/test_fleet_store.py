"""What the fleet client remembers: over restarts, a lost database, a full disk."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from stoker.core.fleet_desired import Kept, is_news
from stoker.drivers.fleet_store import SqliteFleetStore
from stoker.drivers.state_file import JsonStateFile
from stoker.errors import NotFound, StorageFailed
from stoker.events.fleet import RESULT, Record
from stoker.ports.fleet import Letter


def opened(folder: Path, max_pages: int = 0) -> SqliteFleetStore:
    twin = JsonStateFile(folder / "fleet-floors.json")
    store = SqliteFleetStore(folder / "fleet.db", twin, max_pages=max_pages, passed_s=lambda: 1.0)
    store.open()
    return store


def record(identity: str, sequence: int, state: str = "accepted") -> Record:
    return Record(identity, "x", {"a": 1}, "ops", sequence, 1.0, 2.0, state, 1, {"n": 2})


def fill(store: SqliteFleetStore) -> None:
    for _ in range(100):
        store.put([Letter(RESULT, "t", b"x" * 8192)])


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    kept = Kept("g:blue", 4, 9.0, {"policy": {"a": 1}}, ())
    store.add(record("1", 5), [Letter(RESULT, "t", b"hello")])
    store.keep_desired(kept)
    store.write_note("paused", "1")
    assert store.next_session() == 1
    store.close()
    store = opened(tmp_path)
    assert store.command("1") == record("1", 5)
    assert store.command("2") is None
    assert store.desired() == {"g:blue": kept}
    assert store.note("paused") == "1"
    assert store.next_session() == 2
    (parcel,) = store.waiting()
    assert store.payload(parcel.number) == b"hello"
    store.take_out([parcel.number])
    with pytest.raises(NotFound):
        store.payload(parcel.number)
    assert [item.id for item in store.unfinished()] == ["1"]
    store.close()


def test_floors_and_sessions_outlive_a_damaged_database(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add(record("1", 70), [])
    store.next_session()
    assert not store.replayed("ops", 69)
    store.close()
    (tmp_path / "fleet.db").write_bytes(b"no database at all" * 1000)
    store = opened(tmp_path)
    assert (tmp_path / "fleet.db.broken").exists()
    assert store.command("1") is None
    assert store.replayed("ops", 69)
    assert store.replayed("ops", 70)
    assert not store.replayed("ops", 71)
    assert not store.replayed("others", 1)
    assert store.next_session() == 2
    store.close()


def test_only_what_is_over_and_expired_is_forgotten(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add(record("1", 1), [])
    store.add(record("2", 2), [])
    store.move(record("2", 2, "succeeded"))
    store.add(record("3", 3), [])
    store.move(record("3", 3, "succeeded"))
    store.forget(1.5, 0)
    assert len(store.recent(9)) == 3
    store.forget(5.0, 1)
    assert [item.id for item in store.recent(9)] == ["3", "1"]
    assert store.replayed("ops", 2)
    assert not store.replayed("ops", 3)
    store.close()


def test_a_full_disk_is_a_typed_error_and_loses_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path, max_pages=40)
    store.add(record("1", 1), [])
    with pytest.raises(StorageFailed):
        fill(store)
    held = len(store.waiting())
    assert 0 < held < 40
    with pytest.raises(StorageFailed):
        store.add(record("2", 2), [Letter(RESULT, "t", b"x" * 20_000)])
    assert store.command("2") is None
    assert len(store.waiting()) == held
    store.take_out([item.number for item in store.waiting()])
    store.add(record("2", 2), [Letter(RESULT, "t", b"x")])
    store.close()


def test_older_desired_states_are_replays_after_the_database_was_lost(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.keep_desired(Kept("d:x", 118, 9e9, {"update": {}}, ("blue",)))
    store.keep_desired(Kept("g:blue", 1, 9e9, {}, ()))
    store.close()
    for _ in range(2):  # damaged again before anything came
        (tmp_path / "fleet.db").write_bytes(b"no database at all" * 1000)
        store = opened(tmp_path)
        assert not is_news(store.desired(), "d:x", 3)
        assert not is_news(store.desired(), "d:x", 117)
        assert is_news(store.desired(), "d:x", 118)  # that one itself comes again from the broker
        assert is_news(store.desired(), "g:blue", 1)
        store.next_session()
        store.close()


def test_what_waits_does_not_age_by_the_clock_on_the_wall(tmp_path: Path) -> None:
    passed = [5.0]
    store = SqliteFleetStore(
        tmp_path / "fleet.db", JsonStateFile(tmp_path / "f.json"), passed_s=lambda: passed[0]
    )
    store.open()
    store.put([Letter(RESULT, "t", b"1")])
    passed[0] += 100.0
    assert store.age_s() - store.waiting()[0].made_s == 100.0
    store.close()
    passed[0] = 1.0  # booted anew
    store.open()
    passed[0] += 10.0
    assert store.age_s() - store.waiting()[0].made_s == 110.0
    store.close()
    with sqlite3.connect(tmp_path / "fleet.db") as con:  # as an earlier version wrote it
        con.execute("UPDATE outbox SET made_s = 1796000000.0")
    store.open()
    assert store.age_s() - store.waiting()[0].made_s == 0.0
    store.close()


def test_a_store_that_is_full_of_records_gets_room_by_forgetting(tmp_path: Path) -> None:
    store = opened(tmp_path, max_pages=64)
    number = 0

    def fill_up() -> None:
        nonlocal number
        while number < 5000:
            number += 1
            store.add(replace(record(str(number), number, "succeeded"), text="x" * 500), [])

    with pytest.raises(StorageFailed):
        fill_up()
    assert number > 100
    store.forget(math.inf, 16)
    assert len(store.recent(9999)) == 16
    store.add(record("fresh", number + 1), [])
    assert store.replayed("ops", number - 20)
    store.close()
