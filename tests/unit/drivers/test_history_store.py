"""The device's past is kept as it was given, for as long as it was asked: fake and real alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.history import PAST, WARM, MemoryHistoryStore

from stoker.core.history import Event, Slice
from stoker.drivers.history_store import SqliteHistoryStore
from stoker.errors import StorageFailed
from stoker.ports.history import HistoryStore


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HistoryStore]:
    made: HistoryStore = (
        SqliteHistoryStore(tmp_path / "h.db") if request.param == "sqlite" else MemoryHistoryStore()
    )
    made.open()
    yield made
    made.close()


def test_it_comes_back_as_it_was(store: HistoryStore) -> None:
    store.add(PAST.slices, PAST.events, keep_from_s=0.0)
    assert store.read(0.0, 1e9) == PAST


def test_a_span_has_its_begin_and_not_its_end(store: HistoryStore) -> None:
    store.add(PAST.slices, PAST.events, keep_from_s=0.0)
    assert store.read(600.0, 660.0).slices == (WARM,)
    assert store.read(660.0, 700.0).events == ()


def test_what_is_too_old_goes_with_all_that_belongs_to_it(store: HistoryStore) -> None:
    store.add(PAST.slices, PAST.events, keep_from_s=0.0)
    store.add((), (Event(1000.0, "model", "x"),), keep_from_s=650.0)
    left = store.read(0.0, 1e9)
    assert [one.at_s for one in left.slices] == [660.0]
    assert [event.text for event in left.events] == ["x"]
    store.add((WARM,), (), keep_from_s=0.0)  # its answers are not there twice
    assert store.read(600.0, 601.0).slices == (WARM,)


def test_a_slice_of_the_same_moment_takes_the_place_of_the_first(store: HistoryStore) -> None:
    """A clock that was set back lives through a minute twice."""
    store.add((WARM,), (), keep_from_s=0.0)
    store.add((Slice(WARM.at_s, queue=9),), (), keep_from_s=0.0)
    assert store.read(0.0, 1e9).slices == (Slice(WARM.at_s, queue=9),)


def test_the_file_has_a_bound(tmp_path: Path) -> None:
    store = SqliteHistoryStore(tmp_path / "h.db", max_pages=16)
    store.open()
    events = [Event(float(number), "model", "x" * 300) for number in range(1000)]
    with pytest.raises(StorageFailed, match="the device's history"):
        store.add((), events, keep_from_s=0.0)
    assert store.read(0.0, 1e9).events == ()
    store.close()
