"""epoll with an eventfd to wake it. epoll, because a pipe's hang-up must be seen
while nothing is to be written: epoll reports it with an empty event mask.
"""

from __future__ import annotations

import contextlib
import os
import select

from stoker.ports.streams import Ready
from stoker.units import Seconds


class EpollPoller:
    """See ``ports.streams.Poller``."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._event, select.EPOLLIN)
        self._masks: dict[int, int] = {}

    def watch(self, fd: int, *, readable: bool = False, writable: bool = False) -> None:
        mask = (select.EPOLLIN if readable else 0) | (select.EPOLLOUT if writable else 0)
        known = self._masks.get(fd)
        if known is None:
            self._epoll.register(fd, mask)
        elif known != mask:
            self._epoll.modify(fd, mask)
        self._masks[fd] = mask

    def unwatch(self, fd: int) -> None:
        if self._masks.pop(fd, None) is not None:
            with contextlib.suppress(OSError, ValueError):
                self._epoll.unregister(fd)

    def wait(self, timeout_s: Seconds) -> list[Ready]:
        found: list[Ready] = []
        for fd, mask in self._epoll.poll(max(timeout_s, 0.0)):
            if fd == self._event:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(fd)
                continue
            hangup = bool(mask & (select.EPOLLERR | select.EPOLLHUP))
            readable, writable = bool(mask & select.EPOLLIN), bool(mask & select.EPOLLOUT)
            found.append(Ready(fd, readable, writable, hangup))
        return found

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # closed: nobody waits any more
            os.eventfd_write(self._event, 1)

    def close(self) -> None:
        self._epoll.close()
        os.close(self._event)
