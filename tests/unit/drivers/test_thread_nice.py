"""The heat loop's thread goes before others, as far as it may, and no other thread does."""

from __future__ import annotations

import os
import resource
import threading

import pytest

from stoker.drivers.thread_nice import URGENT, favour_this_thread


class Kernel:
    """setpriority(2) with a floor; what was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, floor: int, limit: int, now: int = 0):
        self.floor, self.now = floor, now
        self.asked: list[int] = []
        self.threads: set[int] = set()
        monkeypatch.setattr(os, "setpriority", self.set)
        monkeypatch.setattr(os, "getpriority", lambda _which, _who: self.now)
        monkeypatch.setattr(resource, "getrlimit", lambda _which: (limit, limit))

    def set(self, which: int, who: int, nice: int) -> None:
        assert which == os.PRIO_PROCESS
        self.asked.append(nice)
        self.threads.add(who)
        if nice < self.floor:
            raise PermissionError(13, "EACCES")
        self.now = nice


@pytest.mark.parametrize(
    ("floor", "limit", "now", "asked", "reached"),
    [
        (-20, 0, 0, [URGENT], URGENT),  # CAP_SYS_NICE
        (-5, 25, 0, [URGENT, -5], -5),  # RLIMIT_NICE
        (0, 0, 0, [URGENT], 0),  # no right: nothing is asked twice
        (0, 30, 0, [URGENT, URGENT], 0),  # a filter refuses what the limit allows
        (-20, 0, -15, [], -15),  # never less urgent
        (0, 0, 5, [URGENT], 5),  # it was made nice, and stays so
    ],
)
def test_it_goes_as_far_as_it_may(
    monkeypatch: pytest.MonkeyPatch,
    floor: int,
    limit: int,
    now: int,
    asked: list[int],
    reached: int,
) -> None:
    kernel = Kernel(monkeypatch, floor=floor, limit=limit, now=now)
    assert favour_this_thread() == reached
    assert kernel.now == reached
    assert kernel.asked == asked


def test_only_the_calling_thread_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch, floor=-20, limit=0)
    ids: list[int] = []

    def other() -> None:
        ids.append(threading.get_native_id())
        favour_this_thread()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert kernel.threads == set(ids)
    assert ids != [os.getpid()]
