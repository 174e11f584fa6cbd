"""A broker that breaks the protocol, byte by byte: the connection ends, and nothing else does."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import pytest

from stoker.drivers.mqtt import PahoBroker
from stoker.drivers.mqtt_dial import BrokerAccess
from stoker.events.broker import BrokerAddress
from stoker.events.fleet import BrokerEvent, Connected, Login, Lost

# CONNACK of MQTT 5: accepted, no properties (MQTT 5, 3.2)
WELCOME = b"\x20\x03\x00\x00\x00"
HUGE = b"\x30\xff\xff\xff\x7f"  # PUBLISH with 268,435,455 bytes to come
ODD_TOPIC = b"\x30\x06\x00\x02\xff\xfe\x00x"  # a name that is no UTF-8
LOGIN = Login("dev-1", 5, ("will", b"gone"))


class Script:
    """Says its lines to whoever connects, and then keeps the connection."""

    def __init__(self, lines: bytes) -> None:
        self._lines = lines
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._server.accept()
            client.recv(4096)
            client.sendall(self._lines)
            while client.recv(4096):
                pass


@contextlib.contextmanager
def talking(script: Script) -> Iterator[queue.Queue[BrokerEvent]]:
    heard: queue.Queue[BrokerEvent] = queue.Queue()
    broker = PahoBroker(BrokerAccess(BrokerAddress("127.0.0.1", script.port)), heard.put)
    with script:
        broker.connect(LOGIN, 1)
        try:
            yield heard
        finally:
            broker.drop()


def ends(heard: queue.Queue[BrokerEvent]) -> Lost:
    while True:
        event = heard.get(timeout=10.0)
        if isinstance(event, Lost):
            return event


def test_a_packet_of_a_quarter_gigabyte_is_not_waited_for() -> None:
    with talking(Script(WELCOME + HUGE + b"x" * 65_536)) as heard:
        assert isinstance(heard.get(timeout=10.0), Connected)
        assert ends(heard).connection == 1


@pytest.mark.parametrize(
    "lines",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 64, b"\xff" * 64, WELCOME + b"\xf0\xff" * 20,
        WELCOME + b"\x30\x02\x00\x09", WELCOME + b"\x30\x00", WELCOME + ODD_TOPIC + b"\xf0\x00",
        WELCOME + b"\x32\x05\x00\x01t\x00", WELCOME + b"\x90\x00", WELCOME + b"\x40\x01\x00",
        b"\x20\x00", b"\x20\x02\x00\x05", b"\x20\x05\x00\x00\x02\x11\x00",
    ],
)  # fmt: skip
def test_bytes_that_are_no_mqtt_end_the_connection_or_are_passed_over(lines: bytes) -> None:
    died: list[object] = []
    hook = threading.excepthook
    threading.excepthook = lambda what: died.append(what.exc_value)
    try:
        with (
            contextlib.suppress(queue.Empty),
            talking(Script(lines)) as heard,
        ):
            while not isinstance(heard.get(timeout=0.3), Lost):
                pass
    finally:
        threading.excepthook = hook
    assert died == []
