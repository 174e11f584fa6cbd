"""The runner as services see it: one life of a process that speaks frames.

Two drivers, same frames: a child over a socketpair (development, tests, systems
without systemd) and the packaged unit ``stoker-runner@.service`` behind a socket.
"""

from __future__ import annotations

from typing import Protocol

from stoker.events.inference import RunnerExit
from stoker.events.runner import Event, Request


class RunnerProcess(Protocol):
    """One life. Nothing here blocks; a dead peer is an exit, never an exception."""

    @property
    def pid(self) -> int: ...

    def fileno(self) -> int:
        """Readable when events wait or the peer closed."""

    def send(self, request: Request) -> None:
        """Queue a request; what does not fit in the socket waits for ``flush``. Raises
        RequestTooLarge when it does not fit in a frame.
        """

    def flush(self) -> bool:
        """Write what is queued; True when nothing is left."""

    def receive(self) -> list[Event] | None:
        """Events that arrived ([] = none yet); None = the peer closed or broke the framing."""

    def exit_fileno(self) -> int:
        """Readable once the process has ended (a pidfd)."""

    def exited(self) -> RunnerExit | None:
        """How it ended, once it has (and is reaped)."""

    def signal(self, signum: int) -> None: ...

    def memory_bytes(self) -> int:
        """Proportional set size where the kernel tells, else resident; 0 if unknown."""

    def close(self) -> None:
        """Close our end. The runner ends by itself at end of file."""

    def release(self) -> None:
        """After the exit was seen: give back what is left (``exit_fileno``)."""


class RunnerLauncher(Protocol):
    def start(self, libraries: str = "") -> RunnerProcess:
        """Start a new runner process; raises ModelUnavailable if it cannot be executed.

        ``libraries``: the folder of the engine's libraries, "" = the package's own.
        """


class ModelFiles(Protocol):
    def size_bytes(self, path: str) -> int:
        """-1 when there is no readable regular file."""
