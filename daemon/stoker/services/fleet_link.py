"""The connection to the broker: kept up, subscriptions held, the outbox emptied, trouble told.

When to connect is ``core.fleet_session``'s decision and what goes first ``fleet_outbox``'s.
Fleet thread only; it understands no message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from stoker.core import fleet_outbox, fleet_session, fleet_words
from stoker.core.fleet_outbox import Caps
from stoker.core.fleet_session import Link, Pace
from stoker.errors import NotFound
from stoker.events.fleet import (
    TELEMETRY,
    Connected,
    FleetSnapshot,
    Login,
    Lost,
    Parcel,
    Published,
    Subscribed,
)
from stoker.ports.fleet import Broker, FleetStore, Letter

_log = logging.getLogger(__name__)
WINDOW: Final = 8
"""Messages of ours that may be on their way at once."""
CONNECT_LIMIT_S: Final = 20.0
HEAL_S: Final = 5.0
"""The birth is told once more so long after a connect: a late will may have overtaken it."""
HEAD_BYTES: Final = 512  # of a packet beside its payload, generously
MAX_WARNINGS: Final = 8
TOLD_S: Final = 60.0  # between two log lines of one kind


@dataclass(frozen=True, slots=True)
class Parts:
    broker: Broker
    store: FleetStore
    monotonic_s: Callable[[], float]
    wall_s: Callable[[], float]
    draw: Callable[[], float]
    caps: Caps
    pace: Pace
    clock_word: Callable[[], str]  # "ok" or "uncertain", for the birth


class FleetLink:
    def __init__(self, parts: Parts, device: str, status_topic: str) -> None:
        self._parts, self._device, self._status = parts, device, status_topic
        self._link = Link()
        self._connection = 0
        self._session = 0
        self._limits = Connected(0)
        self._watched: tuple[str, ...] = ()
        self._levels: dict[str, bytes] = {}
        self._under_way: dict[int, Parcel | None] = {}
        self._names: dict[int, str] = {}
        self._before: set[int] = set()  # under way when the connection before was lost
        self._suspect: set[int] = set()
        self._refused: set[int] = set()  # by this connection's rights
        self._heal_s = 0.0
        self._denied: dict[str, str] = {}
        self._problem = ("", "")
        self._dropped = 0
        self._said_s = -TOLD_S
        self._since_wall_s = 0.0
        self._waiting: list[Parcel] | None = None  # as the store has them; None = look

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
        self._levels[topic] = payload
        if self.online:
            self._tell_level(topic, payload)

    def whisper(self, topic: str, payload: bytes) -> bool:
        """QoS 0, now or never. False when nobody hears it."""
        return self.online and self._parts.broker.publish(topic, payload, qos=0) != 0

    def post(self, letters: Sequence[Letter]) -> None:
        """Into the outbox."""
        self._parts.store.put(letters)
        self.look_again()

    def look_again(self) -> None:
        """Somebody wrote to the outbox."""
        self._waiting = None

    def hurry(self) -> None:
        """A certificate was renewed: no wait for the next try."""
        self._link = fleet_session.hurried(self._link, self._parts.monotonic_s())

    def snapshot(self, base: FleetSnapshot) -> FleetSnapshot:
        waiting = self._headers()
        code, text = self._problem
        return replace(
            base,
            state=self._link.phase,
            protocol=self._link.protocol,
            session=self._session,
            since_s=self._since_wall_s,
            problem_code=code,
            problem_text=text,
            denied=tuple(sorted(self._denied)),
            warnings=(*base.warnings, *self._warnings()),
            outbox=len(waiting),
            outbox_bytes=sum(item.size_bytes for item in waiting),
            dropped=self._dropped,
        )

    # its turn

    def wake_s(self) -> float:
        """Seconds until something is due here."""
        now = self._parts.monotonic_s()
        if self._link.phase == "waiting":
            return max(0.0, self._link.wake_s - now)
        if self._link.phase == "connecting":
            return max(0.0, self._link.since_s + CONNECT_LIMIT_S - now)
        return max(0.0, self._heal_s - now) if self._heal_s else 60.0

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
        self._send()

    def _connect(self, now: float) -> None:
        self._session = self._parts.store.next_session()
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
        self._limits, self._problem, self._denied = event, ("", ""), {}
        self._refused.clear()
        self._heal_s = now + HEAL_S
        _log.info("connected to the fleet's broker (session %d)", self._session)
        if event.client_id and event.client_id != self._device:
            self._problem = ("identity", f"the broker calls us {event.client_id}")
        self._parts.broker.subscribe(self._watched)
        self._be_born()
        for topic, payload in self._levels.items():
            self._tell_level(topic, payload)

    def lost(self, event: Lost) -> None:
        """The connection, or the try to get one, is over."""
        if event.connection != self._connection or self._link.phase not in ("online", "connecting"):
            return
        now, was_online = self._parts.monotonic_s(), self.online
        self._parts.broker.drop()
        flying = {parcel.number for parcel in self._under_way.values() if parcel is not None}
        if was_online:
            self._suspect |= fleet_outbox.suspects(flying, self._before)
            self._before = flying
        self._under_way.clear()
        self._names.clear()
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
        if event.connection != self._connection or event.token not in self._under_way:
            return
        parcel = self._under_way.pop(event.token)
        name = self._names.pop(event.token, "")
        if event.refused:
            self._deny(name, event.refused)
            if parcel is not None and parcel.kind == TELEMETRY:
                self._give_up([parcel.number])
            elif parcel is not None:
                self._refused.add(parcel.number)
        elif parcel is not None:
            self._parts.store.take_out([parcel.number])
            self._forget({parcel.number})
            self._before.discard(parcel.number)

    def subscribed(self, event: Subscribed) -> None:
        if event.connection == self._connection:
            for topic, why in event.refused.items():
                self._deny(topic, why)

    def stop(self, why: str) -> None:
        """The last word, then leave in order."""
        last = fleet_words.status(
            online=False, session=self._session, at_s=self._parts.wall_s(), why=why
        )
        farewell = (self._status, last) if self.online else None
        self._link = fleet_session.stopped(self._link, self._parts.monotonic_s())
        self._parts.broker.disconnect(farewell, 2.0)

    # sending

    def _send(self) -> None:
        waiting = self._headers()
        gone = fleet_outbox.excess(waiting, self._parts.caps, self._parts.store.age_s())
        if gone:
            self._give_up(gone)
        if not self.online:
            return
        flying = {parcel.number for parcel in self._under_way.values() if parcel is not None}
        room = min(WINDOW, self._limits.receive_maximum) - len(flying)
        for parcel in fleet_outbox.order(self._headers(), self._suspect):
            alone = parcel.number in self._suspect
            if room <= 0 or (alone and flying):
                break
            if parcel.number in flying or parcel.number in self._refused:
                continue
            if self._too_large(parcel):
                continue
            if not self._put_on_the_way(parcel):
                break
            flying.add(parcel.number)
            room -= 1

    def _too_large(self, parcel: Parcel) -> bool:
        """It would make the broker hang up, again and again."""
        limit = self._limits.maximum_packet
        if not limit or parcel.size_bytes + len(parcel.topic) + HEAD_BYTES <= limit:
            return False
        _log.warning("cannot send %s: %d bytes, the broker takes %d", parcel.topic,
                     parcel.size_bytes, limit)  # fmt: skip
        self._give_up([parcel.number])
        return True

    def _put_on_the_way(self, parcel: Parcel) -> bool:
        try:
            payload = self._parts.store.payload(parcel.number)
        except NotFound:
            self._forget({parcel.number})
            return True
        token = self._parts.broker.publish(parcel.topic, payload)
        if token:
            self._under_way[token] = parcel
            self._names[token] = parcel.topic
        return token != 0

    def _tell_level(self, topic: str, payload: bytes) -> None:
        token = self._parts.broker.publish(topic, payload, retain=True)
        if token:
            self._under_way[token] = None
            self._names[token] = topic

    def _be_born(self) -> None:
        birth = fleet_words.status(
            online=True, session=self._session, at_s=self._parts.wall_s(),
            clock=self._parts.clock_word(),
        )  # fmt: skip
        self._tell_level(self._status, birth)

    def _give_up(self, numbers: Sequence[int]) -> None:
        self._parts.store.take_out(numbers)
        self._dropped += len(numbers)
        self._forget(set(numbers))

    def _forget(self, numbers: set[int]) -> None:
        self._suspect -= numbers
        self._refused -= numbers
        if self._waiting is not None:
            self._waiting = [item for item in self._waiting if item.number not in numbers]

    def _headers(self) -> list[Parcel]:
        if self._waiting is None:
            self._waiting = list(self._parts.store.waiting())
        return self._waiting

    def _deny(self, topic: str, why: str) -> None:
        if topic and topic not in self._denied:
            _log.warning("the broker denies %s: %s", topic, why)
            self._denied[topic] = why

    def _warnings(self) -> tuple[str, ...]:
        found = [f"the broker denies {topic}: {why}" for topic, why in self._denied.items()]
        if self._suspect:
            found.append(f"{len(self._suspect)} message(s) seem to end the connection")
        if self._dropped:
            found.append(f"{self._dropped} message(s) were given up unsent")
        return tuple(found[:MAX_WARNINGS])
