"""File descriptors as the inference loop sees them: one poller, many pipes to callers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stoker.units import Seconds


@dataclass(frozen=True, slots=True)
class Ready:
    """What a poll found on one descriptor; ``hangup`` = the other end is closed."""

    fd: int
    readable: bool = False
    writable: bool = False
    hangup: bool = False


class Poller(Protocol):
    def watch(self, fd: int, *, readable: bool = False, writable: bool = False) -> None:
        """Add or change. With neither flag only a hang-up is reported."""

    def unwatch(self, fd: int) -> None:
        """Unknown or closed descriptors are fine."""

    def wait(self, timeout_s: Seconds) -> Sequence[Ready]: ...

    def wake(self) -> None:
        """End a ``wait`` early; the one method for other threads."""

    def close(self) -> None: ...


class StreamSink(Protocol):
    """The write end of a caller's pipe. Never blocks; keeps what does not fit."""

    def fileno(self) -> int: ...

    @property
    def pending_bytes(self) -> int: ...

    @property
    def broken(self) -> bool:
        """The reader closed its end."""

    def write(self, data: bytes) -> None: ...

    def flush(self) -> int:
        """Bytes that went out now."""

    def close(self) -> None: ...


class StreamSinks(Protocol):
    def open(self, fd: int) -> StreamSink:
        """Take over a descriptor."""
