"""A call is answered once, and its reference is dropped only where GLib leaves one."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.api import invocations
from stoker.api.invocations import Reply
from stoker.errors import Busy


class FakeInvocation:
    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def return_value(self, body: Any) -> None:
        self.said.append(("value", body))

    def return_dbus_error(self, name: str, text: str) -> None:
        self.said.append((name, text))


class OldConnection:
    """GLib before 2.84."""

    def __init__(self) -> None:
        self.closure: Any = None

    def register_object(self, _path: str, _info: Any, closure: Any, get: Any, put: Any) -> int:
        assert get is None
        assert put is None
        self.closure = closure
        return 1


class NewConnection(OldConnection):
    register_object_with_closures2 = OldConnection.register_object

    def register_object(self, *_args: Any) -> int:
        raise AssertionError("the leaking call must not be used where there is a better one")


@pytest.mark.parametrize(("cls", "surplus"), [(OldConnection, 1), (NewConnection, 0)])
def test_the_workaround_follows_glib(
    cls: type[OldConnection], surplus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[Any] = []

    def release(self: Reply, invocation: Any) -> None:
        if self._surplus:
            released.append(invocation)

    monkeypatch.setattr(Reply, "_release", release)
    connection = cls()
    invocations.register(connection, "/x", None, lambda *call: call[-1].send(None))
    connection.closure(None, ":1.1", "/x", "i", "m", None, FakeInvocation())
    assert len(released) == surplus


def test_only_the_first_answer_counts() -> None:
    invocation = FakeInvocation()
    reply = Reply(invocation, surplus_reference=False)
    reply.send(None)
    reply.fail(Busy("cannot x: y"))
    reply.send(None)
    assert invocation.said == [("value", None)]


def test_a_fault_in_a_handler_is_answered_as_internal() -> None:
    connection = NewConnection()

    def fault(*_call: Any) -> None:
        raise ZeroDivisionError("oops")

    invocations.register(connection, "/x", None, fault)
    invocation = FakeInvocation()
    connection.closure(None, ":1.1", "/x", "i", "m", None, invocation)
    assert invocation.said[0][0] == "org.stoker.Error.Internal"
