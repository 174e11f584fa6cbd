"""A runner that says what the test tells it to, on real descriptors.

Keeps to ``ports.runner``; the contract test runs on it and on the real child.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from stoker.core.frames import MAX_BODY_BYTES
from stoker.errors import ModelUnavailable, RequestTooLarge
from stoker.events.inference import RunnerExit
from stoker.events.runner import (
    Answer,
    Delta,
    Deltas,
    Event,
    Hello,
    Inspect,
    Load,
    Loaded,
    Request,
)


class FakeRunner:
    """One life. ``say`` queues events; ``die`` ends it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.sent: list[Request] = []
        self.signals: list[int] = []
        self.closed = False
        self.inspected: Mapping[str, object] = {}  # what it answers to Inspect
        self._inbox: list[Event] | None = []
        self._exit: RunnerExit | None = None
        self._link = os.eventfd(0, os.EFD_NONBLOCK)
        self._end = os.eventfd(0, os.EFD_NONBLOCK)

    def say(self, *events: Event) -> None:
        assert self._inbox is not None
        self._inbox += events
        os.eventfd_write(self._link, 1)

    def hang_up(self) -> None:
        self._inbox = None
        os.eventfd_write(self._link, 1)

    def die(self, status: int | None = None, signal: int | None = None, oom: bool = False) -> None:
        self._exit = RunnerExit(status, signal, oom)
        os.eventfd_write(self._end, 1)

    def load(self) -> Load:
        """The Load it was sent; greets first, as a real one does."""
        return next(request for request in self.sent if isinstance(request, Load))

    def become_ready(self) -> None:
        load = self.load()
        self.say(Loaded(load.id, load.model, "fake", 1, 1, 128, 128, 32, load.slots, 1.0))

    def greet(self) -> None:
        self.say(Hello("fake", "none", "", self.pid))

    def stream(self, job: str, *texts: str, done: bool = False) -> None:
        self.say(*(Deltas((Delta(job, t=text, n=1),)) for text in texts))
        if done:
            usage = {"prompt_tokens": 3, "completion_tokens": len(texts)}
            last = {"finish_reason": "stop", "usage": usage}
            self.say(Deltas((Delta(job, done=last),)))

    def of_kind(self, kind: type) -> list[Request]:
        return [request for request in self.sent if isinstance(request, kind)]

    # The port.

    def fileno(self) -> int:
        return self._link

    def exit_fileno(self) -> int:
        return self._end

    def send(self, request: Request) -> None:
        if len(getattr(request, "prompt", "")) > MAX_BODY_BYTES:  # as a real link refuses it
            raise RequestTooLarge("cannot send request to the runner: too large")
        self.sent.append(request)
        if isinstance(request, Inspect) and self._inbox is not None:
            self.say(Answer(request.id, self.inspected))

    def flush(self) -> bool:
        return True

    def receive(self) -> list[Event] | None:
        if self._inbox is None:
            return None
        events, self._inbox = self._inbox, []
        if events:
            os.eventfd_read(self._link)
        return events

    def exited(self) -> RunnerExit | None:
        return self._exit

    def signal(self, signum: int) -> None:
        self.signals.append(signum)

    def memory_bytes(self) -> int:
        return 1

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._link)

    def release(self) -> None:
        os.close(self._end)


class FakeLauncher:
    """Gives a new FakeRunner at each start; ``broken`` makes starts fail."""

    def __init__(self) -> None:
        self.runners: list[FakeRunner] = []
        self.broken = False
        self.libraries: list[str] = []  # of each start
        self.inspected: Mapping[str, object] = {}

    @property
    def last(self) -> FakeRunner:
        return self.runners[-1]

    def start(self, libraries: str = "") -> FakeRunner:
        self.libraries.append(libraries)
        if self.broken:
            raise ModelUnavailable("cannot start runner: no such file")
        self.runners.append(FakeRunner(1000 + len(self.runners)))
        self.last.inspected = self.inspected
        return self.last
