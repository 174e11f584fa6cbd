"""The connection to the broker: kept up, subscriptions held, trouble told.

When to connect is ``core.fleet_session``'s decision; what is sent is ``fleet_sending``'s.
Fleet thread only; it understands no message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from stoker.core import fleet_session, fleet_words
from stoker.core.fleet_session import Link, Pace
from stoker.errors import StorageFailed
from stoker.events.fleet import (
    Connected,
    FleetSnapshot,
    Login,
    Lost,
    Published,
    Subscribed,
)
from stoker.ports.fleet import Letter
from stoker.services.fleet_sending import Sending, Ways

_log = logging.getLogger(__name__)
CONNECT_LIMIT_S: Final = 20.0
HEAL_S: Final = 5.0
"""The birth is told once more so long after a connect: a late will may have overtaken it."""
MAX_WARNINGS: Final = 8
TOLD_S: Final = 60.0  # between two log lines of one kind


@dataclass(frozen=True, slots=True)
class Parts(Ways):
    wall_s: Callable[[], float]
    pace: Pace
    clock_word: Callable[[], str]  # "ok" or "uncertain", for the birth


class FleetLink:
    def __init__(self, parts: Parts, device: str, status_topic: str) -> None:
        self._parts, self._device, self._status = parts, device, status_topic
        self._link = Link()
        self._connection = 0
        self._session = 0
        self._watched: tuple[str, ...] = ()
        self._heal_s = 0.0
        self._problem = ("", "")
        self._said_s = -TOLD_S
        self._since_wall_s = 0.0
        self._sending = Sending(parts, status_topic)

    # what the others ask of it

    @property
    def online(self) -> bool:
        return self._link.phase == "online"

    def watch(self, topics: Sequence[str]) -> None:
        """Hold exactly these subscriptions."""
        gone = [topic for topic in self._watched if topic not in topics]
        fresh = [topic for topic in topics if topic not in self._watched]
        self._watched = tuple(topics)
        if self.online:
            self._parts.broker.unsubscribe(gone)
            self._parts.broker.subscribe(fresh)

    def retain(self, topic: str, payload: bytes) -> None:
        """The newest value of a topic; told again after each connect."""
        self._sending.levels.hold(topic, payload)
        self._sending.tell_levels()

    def whisper(self, topic: str, payload: bytes) -> bool:
        """QoS 0, now or never. False when nobody hears it."""
        return self.online and self._parts.broker.publish(topic, payload, qos=0) != 0

    def post(self, letters: Sequence[Letter]) -> None:
        """Into the outbox, if the disk takes it."""
        self._sending.post(letters)

    def storage_failed(self, why: str) -> None:
        """Somebody could not keep something; "" = it can be kept again."""
        self._sending.storage_failed(why)

    @property
    def storage(self) -> str:
        """Why nothing can be kept; "" = it can."""
        return self._sending.storage

    def look_again(self) -> None:
        """Somebody wrote to the outbox."""
        self._sending.look_again()

    def hurry(self) -> None:
        """A certificate was renewed: no wait for the next try."""
        self._link = fleet_session.hurried(self._link, self._parts.monotonic_s())

    def snapshot(self, base: FleetSnapshot) -> FleetSnapshot:
        waiting = self._sending.headers()
        code, text = self._problem
        return replace(
            base,
            state=self._link.phase,
            protocol=self._link.protocol,
            session=self._session,
            since_s=self._since_wall_s,
            problem_code=code,
            problem_text=text,
            denied=tuple(sorted(self._sending.denied)),
            warnings=(*base.warnings, *self._sending.warnings()[:MAX_WARNINGS]),
            outbox=len(waiting),
            outbox_bytes=sum(item.size_bytes for item in waiting),
            dropped=self._sending.dropped,
        )

    # its turn

    def wake_s(self) -> float:
        """Seconds until something is due here."""
        now = self._parts.monotonic_s()
        if self._link.phase == "waiting":
            return max(0.0, self._link.wake_s - now)
        if self._link.phase == "connecting":
            return max(0.0, self._link.since_s + CONNECT_LIMIT_S - now)
        return max(
            0.0, min(at_s or now + 60.0 for at_s in (self._heal_s, self._sending.wake_s())) - now
        )

    def turn(self) -> None:
        now = self._parts.monotonic_s()
        self._link = fleet_session.settled(self._link, now, self._parts.pace)
        if fleet_session.due(self._link, now):
            self._connect(now)
        elif self._link.phase == "connecting" and now - self._link.since_s > CONNECT_LIMIT_S:
            self.lost(Lost(self._connection, "silent", "the broker does not answer"))
        if self.online and self._heal_s and now >= self._heal_s:
            self._heal_s = 0.0
            self._be_born()
        self._sending.turn()

    def _next_session(self) -> int:
        """A full disk does not keep us from connecting to say so."""
        store = self._parts.store
        try:
            number = store.next_session()
            while number <= self._session:  # those of a time when the disk was full
                number = store.next_session()
        except StorageFailed as error:
            self.storage_failed(error.message)
            return max(self._session, store.last_session()) + 1
        self.storage_failed("")
        return number

    def _connect(self, now: float) -> None:
        self._session = self._next_session()
        self._connection += 1
        self._link = fleet_session.begun(self._link, now)
        will = fleet_words.status(
            online=False, session=self._session, at_s=self._parts.wall_s(), why="lost"
        )
        login = Login(self._device, self._link.protocol, (self._status, will))
        self._parts.broker.connect(login, self._connection)

    def connected(self, event: Connected) -> None:
        if event.connection != self._connection:
            return
        now = self._parts.monotonic_s()
        self._link = fleet_session.online(self._link, now, resumed=event.session_present)
        self._since_wall_s = self._parts.wall_s()
        self._problem = ("", "")
        self._heal_s = now + HEAL_S
        _log.info("connected to the fleet's broker (session %d)", self._session)
        if event.client_id and event.client_id != self._device:
            self._problem = ("identity", f"the broker calls us {event.client_id}")
        self._parts.broker.subscribe(self._watched)
        self._be_born()
        self._sending.begin(event)

    def lost(self, event: Lost) -> None:
        """The connection, or the try to get one, is over."""
        if event.connection != self._connection or self._link.phase not in ("online", "connecting"):
            return
        now = self._parts.monotonic_s()
        self._parts.broker.drop()
        self._sending.end()
        self._link = fleet_session.lost(
            self._link, now, event.cause, self._parts.draw(), self._parts.pace
        )
        self._since_wall_s = self._parts.wall_s()
        if self._link.clash:
            self._problem = ("identity-clash", "another client seems to use this device's id")
        else:
            self._problem = (event.cause, event.text)
        if now - self._said_s >= TOLD_S:
            self._said_s = now
            wait = max(0.0, self._link.wake_s - now)
            _log.warning("no broker: %s; next try in %.0f s", self._problem[1], wait)

    def troubled(self, why: str) -> None:
        """Something here cannot be kept: hang up, and come back later."""
        self.lost(Lost(self._connection, "storage", why))

    def published(self, event: Published) -> None:
        if event.connection == self._connection:
            self._sending.published(event)

    def subscribed(self, event: Subscribed) -> None:
        if event.connection == self._connection:
            for topic, why in event.refused.items():
                self._sending.deny(topic, why)

    def stop(self, why: str) -> None:
        """The last word, then leave in order."""
        last = fleet_words.status(
            online=False, session=self._session, at_s=self._parts.wall_s(), why=why
        )
        farewell = (self._status, last) if self.online else None
        self._link = fleet_session.stopped(self._link, self._parts.monotonic_s())
        self._parts.broker.disconnect(farewell, 2.0)

    def _be_born(self) -> None:
        birth = fleet_words.status(
            online=True, session=self._session, at_s=self._parts.wall_s(),
            clock=self._parts.clock_word(),
        )  # fmt: skip
        self._sending.levels.hold(self._status, birth)
