"""Puts retained blobs and documents on a broker from the build host, and takes them away again.

Asks first which are there, by exact subscriptions: what the broker has is not sent again. Each
blob is sent until the broker has acknowledged it, over as many connections as that takes.
"""

from __future__ import annotations

import hashlib
import queue
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from stoker_ota.core.topics import Topics
from stoker_ota.drivers.brake import Brake
from stoker_ota.drivers.mqtt_link import Heard, Link, News
from stoker_ota.errors import TooLarge, Unavailable
from stoker_ota.values.fetching import Broker

IN_FLIGHT: Final = 16
ASKED_AT_ONCE: Final = 7
MARK: Final = b"stoker: what was asked for before this is answered"
"""A blob of our own, asked for last: when it comes, the others have come or are not there."""
ANSWER_S: Final = 20.0
MAX_BREAKS: Final = 8
Blob = tuple[str, Callable[[], bytes]]
"""A topic, and its bytes when they are needed."""


class Publisher:
    """``rate`` bytes a second, 0 = no limit."""

    def __init__(self, broker: Broker, rate: int = 0) -> None:
        self._link, self._brake = Link(broker, "-publish"), Brake(rate)
        self._mark = Topics(broker.root).blob(hashlib.sha256(MARK).hexdigest())
        self.up = False

    def close(self) -> None:
        self._link.close()
        self.up = False

    def publish(self, blobs: Iterable[Blob], said: Callable[[int], None]) -> None:
        """All of them, acknowledged. ``said`` hears the bytes of each. Unavailable, TooLarge."""
        rest = iter(blobs)
        waiting: list[Blob] = []
        flying: dict[int, Blob] = {}
        breaks = 0
        while True:
            waiting += islice(rest, max(0, IN_FLIGHT - len(waiting) - len(flying)))
            if not waiting and not flying:
                return
            self._connected()
            while waiting and self.up:
                self._send(waiting, flying)
            news = self._wait(ANSWER_S)
            if news is not None and news.heard is Heard.PUBLISHED:
                breaks = 0
                self._acknowledged(flying.pop(news.mid, None), news, said)
            elif news is None or news.heard in (Heard.DOWN, Heard.REFUSED):
                breaks += 1
                if breaks >= MAX_BREAKS:
                    raise Unavailable("cannot publish: the broker breaks off again and again")
                self.close()
                waiting, flying = [*flying.values(), *waiting], {}
                time.sleep(random.uniform(0, min(30.0, 2.0**breaks)))

    def there(self, names: Sequence[str]) -> Iterator[str]:
        """Those of the blobs' topics that the broker has, with the right bytes."""
        self.publish([(self._mark, lambda: MARK)], lambda _size: None)
        for at in range(0, len(names), ASKED_AT_ONCE):
            yield from self._ask(names[at : at + ASKED_AT_ONCE])

    def clear(self, topics: Iterable[str], said: Callable[[int], None]) -> None:
        """Nothing is retained under them any more."""
        self.publish(((topic, bytes) for topic in topics), said)

    def _ask(self, names: Sequence[str]) -> Iterator[str]:
        self._connected()
        topics = [*names, self._mark]
        self._link.subscribe(topics)
        left = set(topics)
        until_s = time.monotonic() + ANSWER_S
        while topics[-1] in left and (wait_s := until_s - time.monotonic()) > 0:
            news = self._wait(wait_s)
            if news is None or news.heard in (Heard.DOWN, Heard.REFUSED):
                self.close()
                return
            if news.heard is Heard.MESSAGE and news.topic in left:
                left.discard(news.topic)
                self._brake(len(news.payload))
                digest = hashlib.sha256(news.payload).hexdigest()
                if news.topic in names and news.topic.endswith(f"/{digest}"):
                    yield news.topic
        self._link.unsubscribe(topics)

    def _send(self, waiting: list[Blob], flying: dict[int, Blob]) -> None:
        blob = waiting[0]
        data = blob[1]()
        if len(data) > self._link.most_bytes:
            raise TooLarge(
                f"cannot publish {blob[0]}: it has {len(data)} bytes, the broker takes "
                f"{self._link.most_bytes}",
                hint="a smaller chunk_size in the recipe",
            )
        mid = self._link.publish(blob[0], data)
        if not mid:
            self.up = False
            self._link.news.put(News(Heard.DOWN))
            return
        flying[mid] = waiting.pop(0)
        self._brake(len(data))

    def _acknowledged(self, blob: Blob | None, news: News, said: Callable[[int], None]) -> None:
        if blob is None:
            return
        if news.reason:
            raise Unavailable(
                f"cannot publish {blob[0]}: the broker says {news.reason}",
                hint="the operator's user needs to write below the root",
            )
        said(len(blob[1]()))

    def _connected(self) -> None:
        """Unavailable when the broker refuses, or does not answer for some time."""
        reason = "it does not answer"
        for attempt in range(MAX_BREAKS):
            if self.up:
                return
            self._link.connect()
            news = self._wait(ANSWER_S)
            if news is not None and news.heard is Heard.CONNECTED:
                self.up = True
                return
            reason = news.reason if news is not None else reason
            if news is not None and news.heard is Heard.REFUSED:
                break
            time.sleep(random.uniform(0, min(10.0, 0.25 * 2.0**attempt)))
        raise Unavailable(f"cannot reach the broker: {reason}")

    def _wait(self, seconds: float) -> News | None:
        try:
            news = self._link.news.get(timeout=seconds)
        except queue.Empty:
            return None
        if news.heard in (Heard.DOWN, Heard.REFUSED):
            self.up = False
        return news
