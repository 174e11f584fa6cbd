"""What waits to be sent: which goes first, and which is given up when there is too much.

Results first and given up last; telemetry the other way round. Caps are in bytes and in
seconds of age. Pure: headers in, numbers out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from stoker.events.fleet import RESULT, TELEMETRY, UPLOAD, Parcel

ORDER: Final = (RESULT, UPLOAD, TELEMETRY)


@dataclass(frozen=True, slots=True)
class Caps:
    max_bytes: int
    max_age_s: float


def order(waiting: Sequence[Parcel], suspect: Collection[Name] = ()) -> list[Parcel]:
    """As they are to be sent; suspects come last, and each goes alone."""
    return sorted(
        waiting,
        key=lambda item: (item.number in suspect, ORDER.index(item.kind), item.number),
    )


def excess(waiting: Sequence[Parcel], caps: Caps, now_s: float) -> list[int]:
    """Numbers to drop: what is too old, then telemetry oldest first, uploads, results last."""
    kept = [item for item in waiting if now_s - item.made_s <= caps.max_age_s]
    gone = [item.number for item in waiting if now_s - item.made_s > caps.max_age_s]
    total = sum(item.size_bytes for item in kept)
    if total <= caps.max_bytes:
        return gone
    for item in sorted(kept, key=lambda item: (-ORDER.index(item.kind), item.number)):
        if total <= caps.max_bytes:
            break
        gone.append(item.number)
        total -= item.size_bytes
    return gone


def upload_room(waiting: Sequence[Parcel], caps: Caps) -> int:
    """Bytes of an upload that would not be given up: a quarter of the outbox is for results."""
    taken = sum(item.size_bytes for item in waiting if item.kind == UPLOAD)
    return max(0, caps.max_bytes * 3 // 4 - taken)


Name = int | str
"""A message: its number in the outbox, or the topic of a value that is told on each connect."""


def suspects(under_way: Sequence[Name], before: Sequence[Name]) -> set[Name]:
    """What was first on its way in this lost connection and in the one before: it may be why, and
    a poisoned message must not keep all others back.
    """
    return set(under_way[:1]) & set(before[:1])


PASSING: Final = ("Quota exceeded", "Unspecified error", "Implementation specific error",
                  "Packet identifier in use", "Server busy")  # fmt: skip
"""What MQTT 5 calls refusals that say nothing about our rights."""


def retry_s(refused: str, tries: int) -> float:
    """Seconds until it is tried again after so many tries; also rights may be given."""
    first, most = (5.0, 300.0) if refused in PASSING else (300.0, 3600.0)
    return min(most, first * 2.0 ** min(tries, 20))
