"""The thread that keeps the device's past: minutes, marks, a disk that refuses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.fakes.doors import FakeInference, FakeThermal
from tests.fakes.history import MemoryHistoryStore
from tests.fakes.system import FakeClock
from tests.fakes.update_door import FakeUpdates

from stoker.config.schema import HistoryConfig
from stoker.errors import InvalidRequest, Unavailable
from stoker.events.updates import UpdateSnapshot
from stoker.ports.doors import InferenceSnapshot
from stoker.services.history import MAX_WAITING, HistoryService
from stoker.services.measures import Measures


class Rig:
    """A wall clock that jumps a minute at a time; the thread only reads it."""

    def __init__(self, config: HistoryConfig | None = None) -> None:
        self.now_s = 6000.0
        self.store, self.clock = MemoryHistoryStore(), FakeClock()
        self.thermal, self.measures = FakeThermal(), Measures(self.clock)
        self.measures.listen_to(FakeInference(), self.thermal)
        self.history = HistoryService(
            config or HistoryConfig(), self.store, self.measures, lambda: self.now_s
        )
        self.history.listen_to(FakeInference(), self.thermal, FakeUpdates())

    def minutes(self, count: int) -> None:
        """Each closes a slice: a read makes the thread come round."""
        for _ in range(count):
            self.history._warmed(self.thermal.snapshot())
            self.now_s += 60.0
            self.history.read(0.0, 60.0, 60.0).result(5)
            _until(lambda: self.history._begun_s == self.now_s)


def _until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not check():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    made.history.start()
    yield made
    made.history.stop()


def test_a_minute_becomes_a_column_that_is_read_back(rig: Rig) -> None:
    rig.minutes(2)
    found = rig.history.read(0.0, 1e5, 60.0).result(5)
    assert [one.at_s for one in found.slices] == [6000.0, 6060.0, 6120.0]  # and the one begun
    assert found.slices[0].temperature_c == rig.thermal.snapshot().temperature_c
    assert [event.kind for event in found.events] == ["started"]


def test_the_last_piece_is_written_at_the_end(rig: Rig) -> None:
    rig.history._warmed(rig.thermal.snapshot())
    rig.now_s += 20.0
    rig.history.stop()
    assert [one.span_s for one in rig.store.slices.values()] == [20.0]


def test_a_clock_that_was_set_back_makes_no_slice_of_years(rig: Rig) -> None:
    rig.minutes(1)
    rig.now_s = 100.0
    rig.history._warmed(rig.thermal.snapshot())
    rig.history.read(0.0, 60.0, 60.0).result(5)
    _until(lambda: rig.history._begun_s == 100.0)
    rig.minutes(1)
    spans = [one.span_s for one in rig.history.read(0.0, 1e5, 60.0).result(5).slices]
    assert all(0.0 <= span_s <= 120.0 for span_s in spans)


def test_a_disk_that_refuses_costs_a_bounded_memory_and_no_thread(rig: Rig) -> None:
    rig.store.full = True
    for _ in range(MAX_WAITING + 50):
        rig.history._note("model", "x")
    with pytest.raises(Exception, match="full"):
        rig.history.read(0.0, 60.0, 60.0).result(5)
    assert len(rig.history._events) <= MAX_WAITING
    rig.store.full = False
    assert len(rig.history.read(0.0, 1e6, 600.0).result(5).events) == MAX_WAITING


def test_restarts_models_and_updates_leave_a_mark(rig: Rig) -> None:
    base = InferenceSnapshot(state="ready", model="tiny")
    rig.history._asked(base)
    rig.history._asked(replace(base, state="restarting", runner_restarts=1, reason="killed"))
    rig.history._asked(replace(base, runner_restarts=1))
    rig.history._updated(UpdateSnapshot(current=1))
    rig.history._updated(UpdateSnapshot(current=1, error_code="unhealthy", error_text="slow"))
    found = rig.history.read(0.0, 1e6, 600.0).result(5).events
    assert [(event.kind, event.text) for event in found] == [
        ("started", "stokerd started"),
        ("model", "tiny serves"),
        ("restart", "killed"),
        ("update", "set 0 → 1"),
        ("update", "unhealthy: slow"),
    ]


@pytest.mark.parametrize("span_s", [0.0, 1.0, -60.0, float("nan")])
def test_columns_without_a_width_are_refused(rig: Rig, span_s: float) -> None:
    with pytest.raises(InvalidRequest):
        rig.history.read(0.0, 1000.0, span_s).result(5)


def test_more_columns_than_anybody_can_look_at_are_refused(rig: Rig) -> None:
    with pytest.raises(InvalidRequest):
        rig.history.read(0.0, 1e9, 60.0).result(5)


def test_switched_off_it_says_so() -> None:
    rig = Rig(HistoryConfig(enabled=False))
    rig.history.start()
    with pytest.raises(Unavailable):
        rig.history.read(0.0, 60.0, 60.0).result(5)
    rig.history.stop()
