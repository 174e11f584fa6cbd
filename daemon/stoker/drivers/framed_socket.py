"""Frames over one stream socket, never blocking: what both ways to start a runner share.

Queues what does not fit, decodes what comes. It neither starts nor ends a process.
"""

from __future__ import annotations

import socket
from collections import deque

from stoker.core import frames
from stoker.errors import InvalidRequest, RequestTooLarge
from stoker.events.runner import Cancel, Event, Generate, Request, parse_event, to_body

_READ_BYTES = 256 * 1024


class FramedSocket:
    """The socket may come later (``attach``); until then everything is queued."""

    def __init__(self, link: socket.socket | None = None) -> None:
        self._decoder = frames.FrameDecoder()
        self._out: deque[tuple[str, bytes]] = deque()  # (the job it begins, frame)
        self._link: socket.socket | None = None
        if link is not None:
            self.attach(link)

    def attach(self, link: socket.socket) -> None:
        link.setblocking(False)
        self._link = link

    @property
    def empty(self) -> bool:
        """Nothing waits to be written."""
        return not self._out

    def fileno(self) -> int:
        return -1 if self._link is None else self._link.fileno()

    def send(self, request: Request) -> None:
        """Raises RequestTooLarge; then nothing was sent."""
        if isinstance(request, Cancel) and self._take_back(request.job):
            return
        job = request.job if isinstance(request, Generate) else ""
        try:
            data = frames.encode(to_body(request))
        except frames.FrameError as error:
            raise RequestTooLarge(
                f"cannot send request to the runner: more than {frames.MAX_BODY_BYTES} bytes",
                details={"limit_bytes": frames.MAX_BODY_BYTES},
            ) from error
        self._out.append((job, data))
        if len(self._out) == 1:
            self.flush()

    def _take_back(self, job: str) -> bool:
        """A job of which nothing has left yet: callers who ask and go away faster than the
        runner reads would fill our memory with prompts that nobody wants any more.
        """
        for index, (queued, _data) in enumerate(self._out):
            if queued == job:
                del self._out[index]
                return True
        return False

    def flush(self) -> bool:
        """True when nothing is left."""
        while self._out and self._link is not None:
            _job, data = self._out[0]
            try:
                count = self._link.send(data)
            except BlockingIOError:
                return False
            except OSError:  # the peer is gone: its exit will be seen
                self._out.clear()
                break
            if count < len(data):
                self._out[0] = ("", data[count:])  # begun: it must go to its end
            else:
                self._out.popleft()
        return not self._out

    def receive(self) -> list[Event] | None:
        """[] = nothing yet; None = the peer closed or broke the framing."""
        if self._link is None:
            return []
        try:
            data = self._link.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        try:
            return [parse_event(body) for body in self._decoder.feed(data)]
        except (frames.FrameError, InvalidRequest):
            return None  # out of step: never trust this stream again

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        self._out.clear()
