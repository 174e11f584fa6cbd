"""Tells systemd that the packaged runner is up and that its loop comes round.

Standard library only, and silent where nobody listens: a runner must not die of its manager.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

from stoker.events.runner import Beat, Event, LoadProgress
from stoker.runner.channel import Channel, Letter


def notify(text: str) -> None:
    """sd_notify(3); does nothing without NOTIFY_SOCKET."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(text.encode(), address)


class WatchedChannel(Channel):
    """A channel that feeds systemd's watchdog with each beat and each step of a load."""

    def __init__(
        self,
        sock: socket.socket,
        note: Callable[[Letter], None],
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        """``begin`` is the first thing that the reader's thread does."""
        super().__init__(sock, note)
        self._begin = begin
        self._watched = bool(os.environ.get("WATCHDOG_USEC"))

    def send(self, event: Event) -> None:
        super().send(event)
        if self._watched and isinstance(event, Beat | LoadProgress):
            notify("WATCHDOG=1")

    def _read(self) -> None:
        self._begin()
        super()._read()
