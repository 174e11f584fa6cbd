"""PropertiesChanged goes out at most once a second, with the newest values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from stoker.api.changes import Changes, Latest


class World:
    """A clock, a timer and what was sent."""

    def __init__(self, first: dict[str, Any]) -> None:
        self.now_s = 100.0
        self.sent: list[dict[str, Any]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.changes = Changes(first, self.sent.append, lambda: self.now_s, self._after)

    def _after(self, wait_s: float, work: Callable[[], None]) -> None:
        self.timers.append((self.now_s + wait_s, work))

    def go_to(self, now_s: float) -> None:
        self.now_s = now_s
        due = [timer for timer in self.timers if timer[0] <= now_s]
        self.timers = [timer for timer in self.timers if timer[0] > now_s]
        for _when, work in due:
            work()


def test_the_first_change_goes_at_once_and_the_rest_wait_a_second() -> None:
    world = World({"A": 0, "B": 0})
    world.changes.offer({"A": 1, "B": 0})
    for value in range(2, 1000):
        world.changes.offer({"A": value, "B": 7})
    assert world.sent == [{"A": 1}]
    assert len(world.timers) == 1
    world.go_to(101.0)
    assert world.sent == [{"A": 1}, {"A": 999, "B": 7}]


def test_a_change_that_was_taken_back_sends_nothing() -> None:
    world = World({"A": 0})
    world.changes.offer({"A": 1})
    world.changes.offer({"A": 2})
    world.changes.offer({"A": 1})
    world.go_to(101.0)
    assert world.sent == [{"A": 1}]


def test_a_missing_temperature_is_no_news_each_second() -> None:
    world = World({"T": math.nan})
    world.changes.offer({"T": math.nan})
    assert world.sent == []
    world.changes.offer({"T": 20.0})
    assert world.sent == [{"T": 20.0}]


def test_nothing_is_sent_after_close() -> None:
    world = World({"A": 0})
    world.changes.offer({"A": 1})
    world.changes.offer({"A": 2})
    world.changes.close()
    world.go_to(101.0)
    assert world.sent == [{"A": 1}]


def test_many_snapshots_make_one_delivery_of_the_newest() -> None:
    posted: list[Callable[[], None]] = []
    seen: list[int] = []
    latest = Latest(posted.append, seen.append)
    for value in range(1000):
        latest.put(value)
    assert len(posted) == 1
    posted.pop()()
    assert seen == [999]
    latest.put(5)
    posted.pop()()
    assert seen == [999, 5]
