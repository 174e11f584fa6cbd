"""Files as the services see them: read at an offset, write at an offset, sync."""

from __future__ import annotations

from typing import Protocol


class ReadAt(Protocol):
    """A file that does not change while it is read."""

    @property
    def size(self) -> int: ...

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes. FileUnreadable when the file ends before."""
        ...


class WriteAt(Protocol):
    """A file in the making. What is written may be lost until ``sync`` returned."""

    def write_at(self, offset: int, data: bytes) -> None:
        """NoSpace, StorageFailed."""
        ...

    def sync(self) -> None:
        """NoSpace, StorageFailed: then nothing written since the last sync may be believed."""
        ...


class Progress(Protocol):
    """Told how far a phase is, in bytes."""

    def __call__(self, phase: str, done: int, total: int) -> None: ...


def no_progress(phase: str, done: int, total: int) -> None:
    """For callers that do not want to know."""
