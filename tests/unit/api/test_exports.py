"""Objects on the bus are small to keep, and a call that was answered leaves nothing behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from gi.repository import GLib

from stoker.api import contract
from stoker.api.exports import Answer, Door, Exports, Later
from stoker.api.invocations import Reply
from stoker.api.job import Jobs
from stoker.errors import NotFound, StokerError
from stoker.events.inference import Owner
from stoker.ports.doors import JobView
from stoker.units import Seconds

ALICE = Owner(":1.1", 1000)


class Invocation:
    def __init__(self) -> None:
        self.said: list[str] = []

    def return_value(self, body: Any) -> None:
        self.said.append(body.print_(False))

    def return_dbus_error(self, name: str, _text: str) -> None:
        self.said.append(name)


class Connection:
    def __init__(self) -> None:
        self.closures: list[Any] = []

    def register_object_with_closures2(
        self, _path: str, _info: Any, closure: Any, _get: Any, _put: Any
    ) -> int:
        self.closures.append(closure)
        return len(self.closures)

    def unregister_object(self, _number: int) -> None:
        self.closures.clear()

    def call(self, interface: str, method: str, body: Any) -> Invocation:
        """Of the object that was registered last."""
        invocation = Invocation()
        self.closures[-1](None, ":1.1", "/x", interface, method, body, invocation)
        return invocation


class Bus:
    def __init__(self) -> None:
        self.con = Connection()


class Callers:
    def identify(self, _sender: str, then: Callable[[Owner | StokerError], None]) -> None:
        then(ALICE)


@contextmanager
def without_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def a_call(answer: Callable[[Future[int]], None]) -> tuple[list[str], Any, list[str]]:
    """What was said, what is left of the future, and what was released."""
    bus, future, released = Bus(), Future[int](), list[str]()
    exports = Exports(bus, Callers(), 1000)  # type: ignore[arg-type]
    later = Later(future, lambda value: Answer(([value],)), lambda: released.append("x"))
    exports.add("/x", Door(contract.INFERENCE, {"Tokenize": lambda _owner, _args: later}))
    left = weakref.ref(future)
    invocation = bus.con.call(contract.INFERENCE, "Tokenize", GLib.Variant("(s)", ("a",)))
    assert invocation.said == []
    answer(future)
    exports.remove(1)
    return invocation.said, left, released


def test_an_answered_call_is_gone_without_pythons_collector() -> None:
    """A ring for each call would be looked through with all the others, and holds up heat."""
    with without_collector():
        said, left, released = a_call(lambda future: future.set_result(7))
        assert (said, released) == (["([7],)"], ["x"])
        assert left() is None


def test_a_call_that_fails_is_answered_and_releases_what_it_held() -> None:
    said, _left, released = a_call(lambda future: future.set_exception(NotFound("cannot")))
    assert (said, released) == (["org.stoker.Error.NotFound"], ["x"])


def test_what_a_call_held_is_released_though_its_reply_cannot_go_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_reply: Reply, _error: BaseException) -> None:
        raise RuntimeError("the connection is gone")

    monkeypatch.setattr(Reply, "fail", broken)
    _said, _left, released = a_call(lambda future: future.set_exception(NotFound("cannot")))
    assert released == ["x"]


def test_a_jobs_object_is_few_things_for_the_collector() -> None:
    """They stay for a minute after the job, and thousands of short ones come in one."""
    bus = Bus()
    exports = Exports(bus, Callers(), 1000)  # type: ignore[arg-type]
    jobs = Jobs(bus, exports, None, None)  # type: ignore[arg-type]

    def some(first: int) -> int:
        for number in range(first, first + 100):
            jobs.accept(JobView(f"j{number}", ALICE, "queued", "normal", 0, Seconds(0)))
        gc.collect()
        return len(gc.get_objects())

    before = some(0)
    assert (some(100) - before) / 100 < 4
