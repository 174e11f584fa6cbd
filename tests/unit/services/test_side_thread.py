"""Work that hangs is nobody else's trouble."""

from __future__ import annotations

import threading

import pytest

from stoker import errors
from stoker.services.side_thread import MAX_WAITING, SideThread


def test_answers_come_and_a_fault_ends_only_its_own_call() -> None:
    side = SideThread("test")
    failed = side.call(lambda: 1 // 0)
    assert side.call(lambda: 7).result(5) == 7
    with pytest.raises(ZeroDivisionError):
        failed.result(5)


def test_while_one_look_hangs_others_wait_and_too_many_are_told_to_come_back() -> None:
    side, hold, began = SideThread("test"), threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        hold.wait(10)

    side.call(hang)
    assert began.wait(5)
    waiting = [side.call(lambda: 1) for _ in range(MAX_WAITING)]
    with pytest.raises(errors.Busy) as caught:
        side.call(lambda: 1).result(5)
    assert caught.value.details["retry_after_ms"] == 1000
    assert not any(future.done() for future in waiting)
    hold.set()
    assert [future.result(5) for future in waiting] == [1] * MAX_WAITING
