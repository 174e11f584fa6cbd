"""The socket to stokerd: a thread reads requests, the loop's thread writes events.

The reader never blocks behind the engine, so that a Cancel can end a step that runs and
end of file is noticed in the middle of one. Writes wait only so long: an agent that does
not read is as good as dead.
"""

from __future__ import annotations

import json.encoder
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final

from stoker.core import frames
from stoker.errors import StokerError
from stoker.events.runner import Deltas, Event, Request, parse_request, to_body

WRITE_LIMIT_S: Final = 10.0
STUCK_AFTER_S: Final = 2.0
_CHUNK_BYTES: Final = 256 * 1024
_quote: Final[Callable[[str], str]] = json.encoder.encode_basestring
_FLAGS: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


@dataclass(frozen=True, slots=True)
class Closed:
    """The agent is gone."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The stream is out of step and cannot be used any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A request that does not parse; it names its query or job."""

    query: str
    job: str
    error: StokerError


Letter = Request | Closed | Broken | Rejected


class ChannelLostError(Exception):
    """Nothing can be written any more; ``full`` = the agent does not read."""

    def __init__(self, *, full: bool) -> None:
        super().__init__("the agent does not read" if full else "the agent is gone")
        self.full = full


class Channel:
    """``note`` is called in the reader's thread with each letter, before it is queued."""

    def __init__(self, sock: socket.socket, note: Callable[[Letter], None]) -> None:
        sock.setblocking(True)
        self._socket = sock
        self._note = note
        self._inbox: SimpleQueue[Letter] = SimpleQueue()
        self._writable = select.poll()
        self._writable.register(sock, select.POLLOUT)
        self._on_stuck: Callable[[], None] | None = None

    def start(self, on_stuck: Callable[[], None] | None = None) -> None:
        """``on_stuck`` is called when the agent is gone and we are still here a while later."""
        self._on_stuck = on_stuck
        threading.Thread(target=self._read, name="reader", daemon=True).start()

    def next(self, timeout_s: float) -> Letter | None:
        """The next letter; 0 = only one that is there already."""
        if timeout_s <= 0 and self._inbox.empty():
            return None
        try:
            return self._inbox.get(timeout=max(timeout_s, 0.0))
        except Empty:
            return None

    def send(self, event: Event) -> None:
        """Raises ChannelLostError."""
        data = _texts(event) if type(event) is Deltas else None
        data = data or frames.encode(to_body(event))
        try:
            sent = self._socket.send(data, _FLAGS)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise ChannelLostError(full=False) from error
        if sent < len(data):
            self._send_rest(memoryview(data)[sent:])

    def _send_rest(self, data: memoryview) -> None:
        """The socket is full: wait for room, but not for ever."""
        deadline_s = 0.0
        while data:
            try:
                data = data[self._socket.send(data, _FLAGS) :]
                continue
            except BlockingIOError:
                now_s = time.monotonic()
                deadline_s = deadline_s or now_s + WRITE_LIMIT_S
            except OSError as error:
                raise ChannelLostError(full=False) from error
            if now_s >= deadline_s:
                raise ChannelLostError(full=True)
            self._writable.poll(int((deadline_s - now_s) * 1000) + 1)

    def _read(self) -> None:
        last = self._read_until_end()
        self._deliver(last)
        if self._on_stuck:
            time.sleep(STUCK_AFTER_S)
            self._on_stuck()

    def _read_until_end(self) -> Letter:
        decoder = frames.FrameDecoder()
        while True:
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except OSError:
                return Closed()
            if not data:
                if decoder.pending_bytes:
                    return Broken("the stream ends inside a frame")
                return Closed()
            try:
                bodies = decoder.feed(data)
            except frames.FrameError as error:
                return Broken(str(error))
            for body in bodies:
                letter = _parse(body)
                if isinstance(letter, Broken):
                    return letter
                self._deliver(letter)

    def _deliver(self, letter: Letter) -> None:
        self._note(letter)
        self._inbox.put(letter)


def _texts(event: Deltas) -> bytes | None:
    """The frame of deltas that hold text and its tokens only, which is nearly every one: a third
    of the time."""
    parts = []
    for item in event.items:
        if item.r or item.tools or item.p is not None or item.lp is not None or item.e:
            return None
        if item.done is not None or item.error is not None:
            return None
        parts.append(f'{{"job":{_quote(item.job)},"t":{_quote(item.t)},"n":{item.n}}}')
    body = '{"k":"deltas","items":[' + ",".join(parts) + "]}"
    try:
        return frames.pack(body.encode("utf-8"))
    except UnicodeEncodeError:  # a lone surrogate in the name of the job
        return None


def _parse(body: frames.Body) -> Letter:
    try:
        return parse_request(body)
    except StokerError as error:
        query, job = body.get("id"), body.get("job")
        if isinstance(job, str) and body.get("k") == "generate":
            return Rejected("", job, error)
        if isinstance(query, str):
            return Rejected(query, "", error)
        return Broken(error.message)
