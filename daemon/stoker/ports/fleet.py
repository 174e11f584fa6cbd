"""The fleet client's outside: a broker, a store, a judge of signatures; and its door.

Everything but the door belongs to the fleet thread. Brokers tell what happens through the
queue they were given, and never wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from stoker.core.fleet_desired import Kept
from stoker.events.fleet import (
    BrokerEvent,
    FleetSnapshot,
    Login,
    Message,
    Parcel,
    ProbeStep,
    Record,
)

Tell = Callable[[BrokerEvent], None]
"""Any thread; must only hand over."""


class Broker(Protocol):
    """One connection at a time. Raises nothing: what goes wrong is told as an event."""

    def connect(self, login: Login, connection: int) -> None:
        """Begins; ``Connected`` or ``Lost`` follows."""

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> int:
        """A token that ``Published`` names; 0 = there is no connection."""

    def subscribe(self, topics: Sequence[str]) -> int:
        """Exact topics, QoS 1; a token that ``Subscribed`` names."""

    def unsubscribe(self, topics: Sequence[str]) -> None: ...

    def acknowledge(self, message: Message) -> None:
        """Only when what it said is on the disk."""

    def drop(self) -> None:
        """Hang up without a word: the will is published."""

    def disconnect(self, farewell: tuple[str, bytes] | None, timeout_s: float) -> None:
        """Publish the farewell (retained), then leave in order. Waits so long at most."""

    def certificate_expires(self) -> float:
        """Seconds since 1970 of our certificate's end; 0 = there is none or it is unreadable."""

    def enroll(self, device: str) -> str:
        """Make a new key; PEM of a request for its certificate. StokerError."""

    def adopt(self, device: str, pem: bytes) -> None:
        """Take a certificate into use once the broker has let us in with it. Blocks."""

    def test(
        self, device: str, topics: Sequence[str], writes: Sequence[str]
    ) -> Sequence[ProbeStep]:
        """Certificate, DNS, TCP, TLS, login and rights, on a connection of its own. Blocks."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A message to put into the outbox."""

    kind: str
    topic: str
    payload: bytes


class FleetStore(Protocol):
    """Durable when a method returns. Raises StorageFailed, InternalError."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def next_session(self) -> int:
        """One more than ever before."""

    def last_session(self) -> int:
        """0 before the first one."""

    def command(self, identity: str) -> Record | None: ...

    def add(self, record: Record, letters: Sequence[Letter], wish: tuple[str, str] | None) -> None:
        """Record, floor of its issuer, results and what was wished: all or nothing."""

    def move(self, record: Record, letters: Sequence[Letter]) -> None: ...

    def unfinished(self) -> Sequence[Record]:
        """In the order in which they came."""

    def recent(self, count: int) -> Sequence[Record]:
        """Newest first."""

    def replayed(self, issuer: str, sequence: int) -> bool:
        """Of an id that is not on record."""

    def forget(self, before_s: float, keep: int) -> None:
        """Records that are over and expired before, beyond the newest ``keep``; their sequences
        are closed.
        """

    def desired(self) -> Mapping[str, Kept]: ...

    def keep_desired(self, kept: Kept) -> None: ...

    def wished(self, slot: str) -> str:
        """Digest of the wish tried last; "" = none was."""

    def note(self, name: str) -> str: ...

    def write_note(self, name: str, value: str) -> None: ...

    def put(self, letters: Sequence[Letter]) -> None: ...

    def waiting(self) -> Sequence[Parcel]: ...

    def age_s(self) -> float:
        """Now, as ``Parcel.made_s`` counts: no clock that somebody may set."""

    def payload(self, number: int) -> bytes: ...

    def take_out(self, numbers: Sequence[int]) -> None: ...


@dataclass(frozen=True, slots=True)
class Moment:
    """Effective time: ``at_s`` since 1970, never before what signatures prove."""

    at_s: float
    trusted: bool


class Judge(Protocol):
    """Who may speak for the fleet. Raises StokerError for everything that is not to be believed."""

    def now(self) -> Moment: ...

    def remember(self, proven_s: float) -> None:
        """A signed document says that it is not earlier than this."""

    def command(self, data: bytes) -> tuple[Record, str, Callable[[Addressee], bool]]:
        """(record, "" or expired or not-yet, whether it is meant for an addressee)."""

    def desired(self, data: bytes) -> Kept: ...

    def trust_version(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Addressee:
    device: str
    groups: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FleetListener:
    """Called from the fleet thread; must only hand over."""

    changed: Callable[[FleetSnapshot], None] = field(default=lambda _snapshot: None)


class FleetDoor(Protocol):
    """Any thread; never blocks."""

    def listen(self, listener: FleetListener) -> None: ...

    def snapshot(self) -> FleetSnapshot: ...

    def test(self) -> Future[Sequence[ProbeStep]]:
        """Unavailable where no broker is configured."""

    def enroll(self) -> Future[str]:
        """See ``Broker``."""

    def adopt(self, pem: str) -> Future[None]:
        """See ``Broker``; the next connection uses it."""

    def recent(self) -> Future[Sequence[Record]]:
        """Commands on record, newest first."""
