"""What leaves for the broker: values that are told on each connect, and the outbox behind them.

All of it is counted against what the broker takes at once and in size; what is refused is
tried again later; what seems to end connections goes last. Fleet thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from stoker.core import fleet_outbox
from stoker.core.fleet_outbox import Caps, Name
from stoker.errors import NotFound, StorageFailed
from stoker.events.fleet import TELEMETRY, Connected, Parcel, Published
from stoker.ports.fleet import Broker, FleetStore, Letter
from stoker.services.fleet_levels import Levels

_log = logging.getLogger(__name__)
WINDOW: Final = 8
"""Messages of ours that may be on their way at once."""
HEAD_BYTES: Final = 512  # of a packet beside its payload, generously


@dataclass(frozen=True, slots=True)
class Ways:
    """What messages need to go out."""

    broker: Broker
    store: FleetStore
    monotonic_s: Callable[[], float]
    draw: Callable[[], float]
    caps: Caps


class Sending:
    def __init__(self, ways: Ways, first: str) -> None:
        """``first``: the topic that goes before all others."""
        self._ways, self.levels = ways, Levels(first)
        self._limits: Connected | None = None  # None = there is no connection
        self._under_way: dict[int, Parcel | str] = {}  # str = the topic of a level
        self._before: list[Name] = []  # under way when the connection before was lost
        self._suspect: set[Name] = set()
        self._refused: set[Name] = set()  # until it is tried again
        self._again_s, self._tries, self._held = 0.0, 0, False
        self._gone: set[int] = set()  # taken by the broker, and the disk could not forget it
        self._waiting: list[Parcel] | None = None  # as the store has them; None = look
        self.denied: dict[str, str] = {}
        self.dropped = 0
        self.storage = ""  # why nothing can be kept

    # what the link tells it

    def begin(self, limits: Connected) -> None:
        self._limits, self.denied = limits, {}
        self._refused.clear()
        self._again_s, self._tries, self._held = 0.0, 0, False
        self.levels.all_due()
        self.tell_levels()

    def end(self) -> None:
        """The connection was lost."""
        flying = [_key(item) for item in self._under_way.values()]
        if self._limits is not None:
            self._suspect |= fleet_outbox.suspects(flying, self._before)
            self._before = flying
        self._limits = None
        self._under_way.clear()

    def post(self, letters: Sequence[Letter]) -> None:
        """Into the outbox, if the disk takes it."""
        try:
            self._ways.store.put(letters)
        except StorageFailed as error:
            self.dropped += len(letters)
            self.storage_failed(error.message)
        self.look_again()

    def look_again(self) -> None:
        self._waiting = None

    def storage_failed(self, why: str) -> None:
        if why and not self.storage:
            _log.error("the fleet client cannot keep its records: %s", why)
        self.storage = why

    def wake_s(self) -> float:
        """When something is due; 0 = nothing is."""
        return self._again_s

    def published(self, event: Published) -> None:
        item = self._under_way.pop(event.token, None)
        if item is None:
            return
        key, topic = _key(item), item if isinstance(item, str) else item.topic
        if event.refused:
            self.deny(topic, event.refused)
            self._put_off(item, event.refused)
            return
        if self.denied.pop(topic, ""):
            self._tries = 0
        if key in self._before:
            self._before.remove(key)
        self._suspect.discard(key)
        if isinstance(item, Parcel):
            self._take_out([item.number])

    def deny(self, topic: str, why: str) -> None:
        if topic and topic not in self.denied:
            _log.warning("the broker denies %s: %s", topic, why)
            self.denied[topic] = why

    def warnings(self) -> list[str]:
        found = [f"nothing can be kept: {self.storage}"] if self.storage else []
        found += [f"the broker denies {topic}: {why}" for topic, why in self.denied.items()]
        if self._suspect:
            found.append(f"{len(self._suspect)} message(s) seem to end the connection")
        if self.dropped:
            found.append(f"{self.dropped} message(s) were given up unsent")
        return found

    def headers(self) -> list[Parcel]:
        if self._waiting is None:
            found = self._ways.store.waiting()
            self._waiting = [item for item in found if item.number not in self._gone]
        return self._waiting

    # its turn

    def turn(self) -> None:
        gone = fleet_outbox.excess(self.headers(), self._ways.caps, self._ways.store.age_s())
        if gone:
            self._give_up(gone)
        if self._limits is None:
            return
        if self._again_s and self._ways.monotonic_s() >= self._again_s:
            self._again_s, self._held = 0.0, False
            self.levels.due([key for key in self._refused if isinstance(key, str)])
            self._refused.clear()
        self.tell_levels()
        self._send_parcels()
        if not self._under_way:
            self.tell_levels(suspects=True)

    def _send_parcels(self) -> None:
        flying = {_key(item) for item in self._under_way.values()}
        for parcel in fleet_outbox.order(self.headers(), self._suspect):
            alone = parcel.number in self._suspect
            if self._room <= 0 or self._held or (alone and self._under_way):
                break
            if parcel.number in flying or parcel.number in self._refused:
                continue
            if self._too_large(parcel.topic, parcel.size_bytes):
                self._give_up([parcel.number])
            elif not self._put_on_the_way(parcel):
                break

    def tell_levels(self, *, suspects: bool = False) -> None:
        """As far as there is room. Suspects go alone, when nothing else is to be sent."""
        if self._limits is None:
            return
        for topic, payload in self.levels.waiting():
            if (topic in self._suspect) is not suspects or topic in self._under_way.values():
                continue
            if self._room <= 0:
                return
            if self._too_large(topic, len(payload)):
                self.levels.told(topic)
                self.deny(topic, "it is larger than the broker takes")
                continue
            token = self._ways.broker.publish(topic, payload, retain=True)
            if not token:
                return
            self._under_way[token] = topic
            self.levels.told(topic)
            if suspects:
                return

    @property
    def _room(self) -> int:
        most = self._limits.receive_maximum if self._limits is not None else 0
        return min(WINDOW, most) - len(self._under_way)

    def _put_off(self, item: Parcel | str, why: str) -> None:
        """Tried again later. What says nothing about our rights holds everything up."""
        passing = why in fleet_outbox.PASSING
        if isinstance(item, Parcel) and item.kind == TELEMETRY and not passing:
            self._give_up([item.number])
            return
        self._refused.add(_key(item))
        self._held = self._held or passing
        wait = fleet_outbox.retry_s(why, self._tries) * (0.5 + self._ways.draw() / 2)
        at_s = self._ways.monotonic_s() + wait
        if not self._again_s:
            self._tries += 1
        self._again_s = min(self._again_s or at_s, at_s)

    def _too_large(self, topic: str, size_bytes: int) -> bool:
        """It would make the broker hang up, again and again."""
        limit = self._limits.maximum_packet if self._limits is not None else 0
        if not limit or size_bytes + len(topic) + HEAD_BYTES <= limit:
            return False
        _log.warning("cannot send %s: %d bytes, the broker takes %d", topic, size_bytes, limit)
        return True

    def _put_on_the_way(self, parcel: Parcel) -> bool:
        try:
            payload = self._ways.store.payload(parcel.number)
        except NotFound:
            self._forget({parcel.number})
            return True
        token = self._ways.broker.publish(parcel.topic, payload)
        if token:
            self._under_way[token] = parcel
        return token != 0

    def _give_up(self, numbers: Sequence[int]) -> None:
        self.dropped += len(numbers)
        self._take_out(numbers)

    def _take_out(self, numbers: Sequence[int]) -> None:
        """A disk that is full now forgets them later; they are not sent again."""
        self._gone |= set(numbers)
        try:
            self._ways.store.take_out(sorted(self._gone))
        except StorageFailed as error:
            self.storage_failed(error.message)
        else:
            self._gone.clear()
        self._forget(set(numbers))

    def _forget(self, numbers: set[int]) -> None:
        self._suspect -= numbers
        self._refused -= numbers
        if self._waiting is not None:
            self._waiting = [item for item in self._waiting if item.number not in numbers]


def _key(item: Parcel | str) -> Name:
    return item if isinstance(item, str) else item.number
