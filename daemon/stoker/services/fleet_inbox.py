"""What the fleet thread has yet to hear. Whoever puts something in never waits; it is bounded.

A broker that sends more than we can hold is hung up on: what was not acknowledged comes
again, and the library's thread, which must answer pings, is never held up.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

from stoker.events.fleet import BrokerEvent, Lost, Message

MAX_BYTES: Final = 16 << 20
"""A broker that keeps to our receive maximum sends 16 messages of at most a megabyte."""
MAX_MESSAGES: Final = 1024
"""Far more than that maximum: Mosquitto 2.0 goes beyond it under load, with small messages that
are no danger, and hanging up would only make more load.
"""
Item = BrokerEvent | Callable[[], None]


class Inbox:
    def __init__(self) -> None:
        self._queue: queue.Queue[Item] = queue.Queue()
        self._lock = threading.Lock()
        self._messages = self._bytes = 0
        self._cut = -1  # the connection that was too much

    def put(self, item: Item) -> None:
        """Any thread; never waits."""
        with self._lock:
            if isinstance(item, Message):
                size = self._bytes + len(item.payload)
                full = self._messages >= MAX_MESSAGES or size > MAX_BYTES
                if full or item.connection == self._cut:
                    self._too_much(item)
                    return
                self._messages, self._bytes = self._messages + 1, size
            self._queue.put(item)

    def get(self, timeout_s: float) -> Item | None:
        try:
            item = self._queue.get(timeout=timeout_s) if timeout_s else self._queue.get_nowait()
        except queue.Empty:
            return None
        if isinstance(item, Message):
            with self._lock:
                self._messages -= 1
                self._bytes -= len(item.payload)
        return item

    def _too_much(self, message: Message) -> None:
        """One of QoS 0 is lost, as it may be; one of QoS 1 must come again."""
        if message.token and message.connection != self._cut:
            self._cut = message.connection
            self._queue.put(Lost(message.connection, "closed", "it sends more than we take"))
