"""Blobs retained at a broker, pulled by ``core/puller.py`` over a connection of their own.

See ``ports.fetching.ObjectSource`` (``MqttObject``) and ``drivers.documents.Shelf``
(``MqttShelf``). A payload is hashed here before anything else is done with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from stoker_ota.core import chunks, listing, puller
from stoker_ota.core.listing import Named
from stoker_ota.core.topics import Topics
from stoker_ota.drivers.mqtt_link import Heard, Link, News
from stoker_ota.errors import InvalidRequest, Unavailable
from stoker_ota.values.chunks import DEFAULT_CHUNK_BYTES, MAX_CHUNK_BYTES, ChunkIndex, Chunks
from stoker_ota.values.fetching import Broker
from stoker_ota.values.pulling import Action, Do, Event, What

SUFFIX: Final = "-bulk"
ANSWER_S: Final = 30.0
QUIET_S: Final = 3.0
"""A document that is not retained: nothing says so, it only does not come."""
MANIFEST_BYTES: Final = 4 << 10
"""What most of them have at most."""
_HEARD: Final = {
    Heard.CONNECTED: What.CONNECTED,
    Heard.DENIED: What.DENIED,
    Heard.DOWN: What.DISCONNECTED,
    Heard.REFUSED: What.REFUSED,
}


class Blobs:
    """``window`` subscriptions at a time, ``rate`` bytes a second; ``count`` hears what came."""

    def __init__(
        self, broker: Broker, window: int, rate: int = 0, count: Callable[[int], None] | None = None
    ) -> None:
        self._link, self.topics = Link(broker, SUFFIX), Topics(broker.root)
        self._window, self._rate, self._count = window, rate, count
        self._up = False
        self._asked: dict[int, list[str]] = {}  # by subscription

    def close(self) -> None:
        self._link.close()
        self._up = False

    def pull(self, names: Iterable[str], blob_bytes: int) -> Iterator[tuple[str, bytes]]:
        """Blobs by their hashes, as they come; what is not there is left out. Unavailable."""
        pull, todo = puller.begin(
            names, window=self._window, rate=self._rate, blob_bytes=blob_bytes,
            now_s=time.monotonic(),
        )  # fmt: skip
        kept: dict[str, bytes] = {}
        while True:
            self._carry_out(todo)  # before the yield: what comes next is under way meanwhile
            yield from kept.items()
            kept.clear()
            end = next((action for action in todo if action.do is Do.END), None)
            if end is not None:
                if end.reason:
                    self.close()
                    raise Unavailable(f"cannot pull: {end.reason}")
                return
            todo = ()
            for news in self._heard(puller.due_s(pull, time.monotonic())):
                pull, more = puller.step(pull, self._event(news), time.monotonic())
                todo += more
                if news is not None and any(action.do is Do.KEEP for action in more):
                    kept[news.topic.rpartition("/")[2]] = news.payload

    def one(self, name: str, most: int) -> bytes | None:
        """One small blob."""
        found = [data for _, data in self.pull([name], min(most, MAX_CHUNK_BYTES))]
        return found[0] if found else None

    def retained(self, topic: str, most: int) -> bytes | None:
        """What is retained under a topic; None when nothing comes. Unavailable."""
        self._connected()
        mid = self._link.subscribe([topic])
        limit_s = time.monotonic() + QUIET_S
        try:
            while (left_s := limit_s - time.monotonic()) > 0:
                news = self._wait(left_s)
                if news is None:
                    return None
                if news.heard is Heard.MESSAGE and news.topic == topic and news.payload:
                    if len(news.payload) > most:
                        raise Unavailable(f"cannot use {topic}: it has more than {most} bytes")
                    return news.payload
                if news.heard is Heard.DENIED and news.mid == mid:
                    raise Unavailable(f"cannot read {topic}: {news.reason}")
                if news.heard in (Heard.DOWN, Heard.REFUSED):
                    self.close()
                    raise Unavailable(f"cannot read {topic}: {news.reason}")
            return None
        finally:
            if self._up:
                self._link.unsubscribe([topic])

    def _connected(self) -> None:
        if self._up:
            return
        news = None
        for _ in range(2):  # the second time with the other version of MQTT
            self._link.connect()
            news = self._wait(ANSWER_S)
            if news is None or news.heard is not Heard.DOWN:
                break
        if news is None or news.heard is not Heard.CONNECTED:
            reason = news.reason if news is not None else "it does not answer"
            raise Unavailable(f"cannot reach the broker: {reason}")
        self._up = True

    def _carry_out(self, todo: Sequence[Action]) -> None:
        """One packet for all that is asked for and one for all that is not any more."""
        off = [action.blob for action in todo if action.do is Do.UNSUBSCRIBE]
        if off and self._up:
            self._link.unsubscribe([self.topics.blob(name) for name in off])
        for action in todo:
            if action.do is Do.CONNECT and self._up:  # that of before goes on
                self._link.news.put(News(Heard.CONNECTED))
            elif action.do is Do.CONNECT:
                time.sleep(random.uniform(0, action.delay_s))
                self._link.connect()
        on = [action.blob for action in todo if action.do is Do.SUBSCRIBE]
        if on and self._up:
            mid = self._link.subscribe([self.topics.blob(name) for name in on])
            self._asked[mid] = on
            while len(self._asked) > 4 * self._window:
                del self._asked[next(iter(self._asked))]

    def _heard(self, wait_s: float) -> Iterator[News | None]:
        """What comes next and what is there already, a window at most; None = nothing came."""
        news = self._wait(wait_s)
        yield news
        for _ in range(self._window - 1):
            if news is None or news.heard is not Heard.MESSAGE:
                return
            with contextlib.suppress(queue.Empty):
                news = self._link.news.get_nowait()
                yield news
                continue
            return

    def _event(self, news: News | None) -> Event:
        if news is None:
            return Event(What.TICK)
        if news.heard is Heard.MESSAGE:
            return self._message(news)
        if news.heard is Heard.DENIED:
            names = self._asked.get(news.mid, [])
            blob = names[news.index] if news.index < len(names) else ""
            return Event(What.DENIED, blob, reason=news.reason)
        if news.heard not in _HEARD:
            return Event(What.TICK)
        self._up = news.heard is Heard.CONNECTED
        if not self._up:
            self._asked.clear()
        return Event(_HEARD[news.heard], reason=news.reason)

    def _message(self, news: News) -> Event:
        size, name = len(news.payload), news.topic.rpartition("/")[2]
        if self._count is not None:
            self._count(size)
        good = 0 < size <= MAX_CHUNK_BYTES and hashlib.sha256(news.payload).hexdigest() == name
        return Event(What.MESSAGE, name, good, size)

    def _wait(self, seconds: float) -> News | None:
        try:
            return self._link.news.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None


class MqttObject:
    """One object's chunks among the blobs of a broker."""

    name = "mqtt:"

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def index(self, wanted: Chunks, total: int) -> ChunkIndex:
        root = self._blobs.one(wanted.root, MAX_CHUNK_BYTES)
        if root is None:
            raise Unavailable("the root of its chunks is not there")
        names = chunks.parse_root(root, wanted, total)
        pages = dict(self._blobs.pull(names, DEFAULT_CHUNK_BYTES))
        if len(pages) < len(set(names)):
            raise Unavailable("pages of its chunks' digests are not there")
        return chunks.of_pages(b"".join(pages[name] for name in names), wanted, total)

    def pull(self, index: ChunkIndex, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        where: dict[str, list[int]] = defaultdict(list)  # equal chunks are one blob
        for number in numbers:
            where[index.digest(number).hex()].append(number)
        for name, data in self._blobs.pull(where, index.size):
            for number in where[name]:
                yield number, data

    def whole(self, _offset: int, _size: int, _mark: str) -> tuple[int, str, Iterator[bytes]]:
        raise InvalidRequest("a broker has objects in chunks only")


class MqttShelf:
    """R/trust/N, R/catalog, and manifests as blobs."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def trust(self, version: int) -> bytes | None:
        return self._blobs.retained(self._blobs.topics.trust(version), listing.MAX_TRUST_BYTES)

    def catalog(self) -> bytes | None:
        return self._blobs.retained(self._blobs.topics.catalog(), listing.MAX_CATALOG_BYTES)

    def manifests(self, names: Sequence[Named]) -> Iterator[tuple[Named, bytes]]:
        """All at once: whoever asks one by one for what is not there waits for each."""
        by_hash = {named.sha256: named for named in names}
        with contextlib.suppress(Unavailable):
            for sha256, data in self._blobs.pull(by_hash, MANIFEST_BYTES):
                yield by_hash[sha256], data
