"""PropertiesChanged at most once a second per interface, with the newest values.

Snapshots come from service threads as often as they like; nobody queues behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from stoker.units import Seconds

T = TypeVar("T")
Values = Mapping[str, Any]

PERIOD_S = Seconds(1.0)


class Changes:
    """Main loop only. Compares with what was sent last, so equal values cost nothing."""

    def __init__(
        self,
        first: Values,
        send: Callable[[dict[str, Any]], None],
        now: Callable[[], float],
        after: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._sent: dict[str, Any] = dict(first)
        self._latest: Values = first
        self._send = send
        self._now = now
        self._after = after
        self._last_s = float("-inf")
        self._armed = False
        self._closed = False

    def offer(self, values: Values) -> None:
        self._latest = values
        if self._armed:
            return
        wait = self._last_s + PERIOD_S - self._now()
        if wait <= 0:
            self._flush()
        elif self._changed():
            self._armed = True
            self._after(wait, self._fire)

    def close(self) -> None:
        self._closed = True

    def _fire(self) -> None:
        self._armed = False
        self._flush()

    def _changed(self) -> dict[str, Any]:
        # NaN (no temperature) differs from itself: compare as text too.
        return {
            name: value
            for name, value in self._latest.items()
            if self._sent.get(name) != value and repr(self._sent.get(name)) != repr(value)
        }

    def _flush(self) -> None:
        changed = self._changed()
        if changed and not self._closed:
            self._sent.update(changed)
            self._last_s = self._now()
            self._send(changed)


class Latest(Generic[T]):
    """Hands the newest value to the main loop; many ``put`` before it runs make one call."""

    def __init__(
        self, post: Callable[[Callable[[], None]], None], deliver: Callable[[T], None]
    ) -> None:
        self._post = post
        self._deliver = deliver
        self._posted = False
        self._value: T | None = None

    def put(self, value: T) -> None:
        """Any thread."""
        self._value = value
        if not self._posted:
            self._posted = True
            self._post(self._run)

    def _run(self) -> None:
        # Cleared before the value is read: a put in between posts again, none is lost.
        self._posted = False
        value = self._value
        if value is not None:
            self._deliver(value)
