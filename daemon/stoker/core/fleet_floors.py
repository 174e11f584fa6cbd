"""Sequence floors of issuers: what came before cannot come again, even when records are lost.

Ids on record tell duplicates; the floor tells replays of what is no longer on record. A
window below the highest number stays open for commands that overtake each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

WINDOW: Final = 64


@dataclass(frozen=True, slots=True)
class Floor:
    """``closed``: nothing at or below it is new, whatever the records say."""

    highest: int = 0
    closed: int = 0


def replayed(floor: Floor, sequence: int) -> bool:
    """Of a command whose id is not on record."""
    return sequence <= max(floor.closed, floor.highest - WINDOW)


def accepted(floor: Floor, sequence: int) -> Floor:
    return replace(floor, highest=max(floor.highest, sequence))


def forgotten(floor: Floor, sequence: int) -> Floor:
    """A record is dropped: it and what was before it must never come back."""
    return replace(floor, closed=max(floor.closed, sequence))


def records_lost(floor: Floor) -> Floor:
    """The floor outlived the records: everything up to it may have been done."""
    return replace(floor, closed=max(floor.closed, floor.highest))
