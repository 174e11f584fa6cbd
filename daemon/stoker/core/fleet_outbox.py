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


def order(waiting: Sequence[Parcel], suspect: Collection[int] = ()) -> list[Parcel]:
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


def suspects(under_way: Collection[int], before: Collection[int]) -> set[int]:
    """What was first on its way in this lost connection and in the one before: it may be why, and
    a poisoned message must not keep all others back.
    """
    if not under_way or not before:
        return set()
    return {min(under_way)} & {min(before)}
