"""Which evaluated prefixes are kept, which one a new job may reuse, and which go first.

A prefix is reused within one scope and one set of adapters only; across scopes no further
than a prompt that policy made public. Pure: it counts sequences and cells, and holds neither.
With at most 64 entries comparing each list is quicker than keeping a tree of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MIN_REUSE: Final = 4  # less is not worth a copy
_STRIDE: Final = 256


@dataclass(frozen=True, slots=True)
class Entry:
    """What a sequence holds. ``keep`` names the conversation, "" = none."""

    seq: int
    tokens: Sequence[int]
    scope: str
    variant: str = ""  # the adapters it was evaluated with
    keep: str = ""


@dataclass(frozen=True, slots=True)
class Match:
    """``take``: the new job goes on in that very sequence; else it gets a copy."""

    seq: int
    length: int
    take: bool


class Prefixes:
    """Least recently used first. ``public`` are token lists that scopes may share."""

    def __init__(self, *, entries: int, cells: int, public: Sequence[Sequence[int]] = ()) -> None:
        self._most, self._room = entries, cells
        self._public = public
        self._entries: dict[int, Entry] = {}
        self.cells = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def add(self, entry: Entry) -> list[Entry]:
        """Keep it; the entries that had to go for it, perhaps itself, oldest first."""
        gone = [self.take(old.seq) for old in list(self._entries.values()) if _replaces(entry, old)]
        if not self._most or len(entry.tokens) > self._room:
            return [*gone, entry]
        self._entries[entry.seq] = entry
        self.cells += len(entry.tokens)
        return gone + self.shrink(self._room)

    def shrink(self, cells: int) -> list[Entry]:
        """Let the oldest go until no more than ``cells`` are held."""
        gone: list[Entry] = []
        while self.cells > cells or len(self._entries) > self._most:
            gone.append(self.take(next(iter(self._entries))))
        return gone

    def evict(self) -> Entry | None:
        """The least recently used one, which is forgotten here."""
        return self.take(next(iter(self._entries))) if self._entries else None

    def take(self, seq: int) -> Entry:
        entry = self._entries.pop(seq)
        self.cells -= len(entry.tokens)
        return entry

    def forget(self, scope: str, keep: str = "") -> list[Entry]:
        """Everything of a scope, or of one conversation in it."""
        found = [e for e in self._entries.values() if e.scope == scope and keep in ("", e.keep)]
        return [self.take(entry.seq) for entry in found]

    def match(self, wanted: Entry, running: Iterable[Entry] = ()) -> Match | None:
        """The longest prefix that may be reused, at most all but one of the wanted tokens:
        the last one must be evaluated to have logits. A copied entry counts as used.
        """
        if not wanted.scope:
            return None
        best: Match | None = None
        for entry in self._entries.values():
            length = self._usable(wanted, entry)
            take = entry.scope == wanted.scope and _continues(wanted, entry, length)
            if best is None or (length, take) > (best.length, best.take):
                best = Match(entry.seq, length, take)
        for entry in running:
            length = self._usable(wanted, entry)
            if best is None or length > best.length:
                best = Match(entry.seq, length, False)
        if best is None or best.length < MIN_REUSE:
            return None
        if best.seq in self._entries:
            self._entries[best.seq] = self._entries.pop(best.seq)
        return best

    def _usable(self, wanted: Entry, entry: Entry) -> int:
        if entry.variant != wanted.variant or not entry.scope:
            return 0
        length = common(wanted.tokens, entry.tokens, len(wanted.tokens) - 1)
        if entry.scope == wanted.scope:
            return length
        shared = max((common(entry.tokens, public, length) for public in self._public), default=0)
        return min(length, shared)


def common(one: Sequence[int], other: Sequence[int], most: int) -> int:
    """Length of the common prefix, at most ``most``."""
    end = max(min(len(one), len(other), most), 0)
    at = 0
    while at < end and one[at : min(at + _STRIDE, end)] == other[at : min(at + _STRIDE, end)]:
        at += _STRIDE
    while at < end and one[at] == other[at]:
        at += 1
    return min(at, end)


def _continues(wanted: Entry, entry: Entry, length: int) -> bool:
    """The old state of the same conversation, or all of a text that nobody else claims."""
    if entry.keep and entry.keep == wanted.keep:
        return True
    return not entry.keep and length == len(entry.tokens)


def _replaces(new: Entry, old: Entry) -> bool:
    """Two states of one conversation, or a text that the new one holds whole."""
    if (old.scope, old.variant) != (new.scope, new.variant):
        return False
    if new.keep and old.keep == new.keep:
        return True
    most = len(old.tokens)
    return not old.keep and most <= len(new.tokens) and common(old.tokens, new.tokens, most) == most
