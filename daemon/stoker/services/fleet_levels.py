"""Values that are told on each connect: presence, state, what a guest sees. Newest value wins.

It says what is due; the link decides when there is room. No I/O.
"""

from __future__ import annotations

from collections.abc import Collection


class Levels:
    def __init__(self, first: str) -> None:
        """``first``: the topic that goes before all others."""
        self._first = first
        self._values: dict[str, bytes] = {}
        self._due: dict[str, None] = {}  # in the order in which they are to be told

    def hold(self, topic: str, payload: bytes) -> None:
        """It is due, on this connection or the next one."""
        self._values[topic] = payload
        self._due[topic] = None

    def all_due(self) -> None:
        """A connection begins: nobody was told anything."""
        rest = [topic for topic in self._values if topic != self._first]
        self._due = dict.fromkeys([self._first, *rest] if self._first in self._values else rest)

    def due(self, topics: Collection[str]) -> None:
        self._due |= {topic: None for topic in topics if topic in self._values}

    def waiting(self) -> tuple[tuple[str, bytes], ...]:
        return tuple((topic, self._values[topic]) for topic in self._due)

    def told(self, topic: str) -> None:
        self._due.pop(topic, None)
