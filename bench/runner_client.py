"""A plain client of one runner process, for benchmarks and integration tests.

It speaks the same frames as stokerd but blocks; it decides nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from stoker.core import frames
from stoker.events.runner import (
    Answer,
    Cancel,
    Delta,
    Deltas,
    Event,
    Failed,
    Generate,
    Hello,
    Load,
    Loaded,
    Request,
    parse_event,
    to_body,
)

DEFAULT_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def default_model() -> Path:
    """``$STOKER_TEST_MODEL``, else the model that ``make run`` puts in the cache."""
    named = os.environ.get("STOKER_TEST_MODEL")
    if named:
        return Path(named)
    cache = Path(os.environ.get("STOKER_CACHE") or Path.home() / ".cache" / "stoker")
    return cache / "models" / DEFAULT_MODEL


class RunnerClient:
    """One runner and its socket. ``received`` keeps every event, in order."""

    def __init__(
        self,
        engine: str = "llama",
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        pings: bool = False,
    ) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        fd = theirs.fileno()
        command = [sys.executable, "-m", "stoker.runner", "--fd", str(fd), "--engine", engine]
        if not pings:
            command.append("--no-ping")
        self.process = subprocess.Popen(
            [*command, *arguments],
            pass_fds=[fd],
            env={**os.environ, **_environment(), **(environment or {})},
        )
        theirs.close()
        self.received: list[Event] = []
        self.arrived_s: list[float] = []
        self._decoder = frames.FrameDecoder()
        self._at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self, timeout_s: float = 10.0) -> int:
        """Closes our end; the exit status of the runner."""
        self.socket.close()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def send(self, request: Request) -> None:
        self.socket.sendall(frames.encode(to_body(request)))

    def next(self, timeout_s: float = 30.0) -> Event:
        """The next event that was not looked at; raises EOFError, TimeoutError."""
        while self._at >= len(self.received):
            self.socket.settimeout(timeout_s)
            data = self.socket.recv(1 << 18)
            if not data:
                raise EOFError("the runner closed the socket")
            now_s = time.monotonic()
            for body in self._decoder.feed(data):
                self.received.append(parse_event(body))
                self.arrived_s.append(now_s)
        self._at += 1
        return self.received[self._at - 1]

    def hello(self) -> Hello:
        event = self.next()
        assert isinstance(event, Hello), event
        return event

    def answer(self, request: Request, timeout_s: float = 60.0) -> Answer | Failed | Loaded:
        """Sends a query or a Load and waits for its result; other events stay in ``received``."""
        self.send(request)
        wanted = getattr(request, "id", "")
        until_s = time.monotonic() + timeout_s
        while True:
            event = self.next(max(until_s - time.monotonic(), 0.001))
            if isinstance(event, Answer | Failed | Loaded) and event.id == wanted:
                return event

    def load(self, path: Path | str, **settings: object) -> Loaded:
        """Loads or raises RuntimeError with the runner's reason."""
        request = Load(id="load", model="test", path=str(path), **settings)  # type: ignore[arg-type]
        result = self.answer(request)
        if not isinstance(result, Loaded):
            raise RuntimeError(str(result))
        return result

    def deltas(self, job: str, timeout_s: float = 60.0) -> Iterator[Delta]:
        """Deltas of one job until its last; those of others are passed over."""
        until_s = time.monotonic() + timeout_s
        while True:
            event = self.next(max(until_s - time.monotonic(), 0.001))
            for item in event.items if isinstance(event, Deltas) else ():
                if item.job == job:
                    yield item
                    if item.done is not None or item.error is not None:
                        return

    def finish(self, *jobs: str, timeout_s: float = 60.0) -> dict[str, list[Delta]]:
        """All deltas of some jobs, once each has had its last."""
        out: dict[str, list[Delta]] = {job: [] for job in jobs}
        open_jobs = set(jobs)
        until_s = time.monotonic() + timeout_s
        while open_jobs:
            event = self.next(max(until_s - time.monotonic(), 0.001))
            for item in event.items if isinstance(event, Deltas) else ():
                if item.job in open_jobs:
                    out[item.job].append(item)
                    if item.done is not None or item.error is not None:
                        open_jobs.discard(item.job)
        return out

    def ask(self, request: Generate, timeout_s: float = 60.0) -> list[Delta]:
        self.send(request)
        return list(self.deltas(request.job, timeout_s))

    def cancel(self, job: str) -> None:
        with contextlib.suppress(OSError):
            self.send(Cancel(job))


def text(deltas: Sequence[Delta]) -> str:
    return "".join(item.t for item in deltas)


def _environment() -> dict[str, str]:
    root = Path(__file__).resolve().parent.parent
    path = os.pathsep.join([str(root / "daemon"), os.environ.get("PYTHONPATH", "")])
    return {
        "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "3000"),
        "GGML_NO_BACKTRACE": "1",
        "PYTHONPATH": path.rstrip(os.pathsep),
    }
