"""How much the fleet thread lets a broker pile up, and when it hangs up."""

from __future__ import annotations

from stoker.events.fleet import Lost, Message
from stoker.services.fleet_inbox import MAX_BYTES, MAX_MESSAGES, Inbox

MEGABYTE = bytes(1 << 20)


def drained(inbox: Inbox) -> list[object]:
    found: list[object] = []
    while (item := inbox.get(0.0)) is not None:
        found.append(item)
    return found


def test_a_burst_of_small_messages_is_no_reason_to_hang_up() -> None:
    """Mosquitto was seen to have 78 of them on their way, of the 16 that it may."""
    inbox = Inbox()
    for number in range(1, 200):
        inbox.put(Message(1, "t", b"x" * 1100, token=number))
    assert not any(isinstance(item, Lost) for item in drained(inbox))


def test_as_many_bytes_as_are_too_many_are_hung_up_on_and_room_comes_back() -> None:
    inbox, most = Inbox(), MAX_BYTES // len(MEGABYTE)
    for number in range(most + 5):
        inbox.put(Message(1, "t", MEGABYTE, token=number + 1))
    found = drained(inbox)
    assert [type(item) for item in found] == [Message] * most + [Lost]
    inbox.put(Message(1, "t", b"", token=99))  # what was on its way of the old connection
    assert drained(inbox) == []
    for number in range(most):
        inbox.put(Message(2, "t", MEGABYTE, token=number + 1))
    assert len(drained(inbox)) == most


def test_so_many_messages_as_are_too_many_are_hung_up_on() -> None:
    inbox = Inbox()
    for number in range(MAX_MESSAGES + 1):
        inbox.put(Message(1, "t", b"", token=number + 1))
    assert isinstance(drained(inbox)[-1], Lost)
