"""Clock, readiness, authority and small persistent facts."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Protocol

from stoker.events.inference import Owner, Standing
from stoker.events.memory import MemoryFacts, Pressure
from stoker.units import Seconds


class Clock(Protocol):
    def monotonic_s(self) -> Seconds: ...


class Part(Protocol):
    """Something of its own thread that the agent starts last and stops first."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Safe without a start, and twice."""


class Notifier(Protocol):
    """systemd's view of us; does nothing where NOTIFY_SOCKET is unset."""

    def ready(self) -> None: ...
    def status(self, text: str) -> None: ...
    def watchdog(self) -> None: ...
    def reloading(self) -> None: ...
    def stopping(self) -> None: ...
    def watchdog_interval_s(self) -> Seconds:
        """Half of WatchdogSec; 0 = no watchdog asked for."""


class Authority(Protocol):
    def may_manage(self, uid: int) -> bool:
        """Root, the daemon's own user or a member of the admin group; answers at once."""

    def admit(self, owner: Owner) -> Future[bool]:
        """Whether this caller may manage now, as the system's policy has it (polkit, where
        there is one). Main loop only; fails with Unavailable when the policy cannot be asked.
        """

    def speaks_for_others(self, uid: int) -> bool:
        """The gateway's user, and nobody else: not root either."""


class Standings(Protocol):
    def of(self, uid: int) -> Standing:
        """The classes and quotas of a user; whoever is not known has everybody's."""


class Memory(Protocol):
    """The device's memory as a process may use it; ``pid`` 0 = our own. Reads only."""

    def facts(self, pid: int = 0) -> MemoryFacts: ...

    def pressure(self, pid: int = 0) -> Pressure | None:
        """None where nobody tells it."""


class StateFile(Protocol):
    """A small JSON object that survives restarts (written to a temporary, synced, renamed)."""

    def load(self) -> Mapping[str, object]:
        """{} when absent; an unreadable file is set aside as ``.broken`` and reads as {}."""

    def save(self, state: Mapping[str, object]) -> None: ...
