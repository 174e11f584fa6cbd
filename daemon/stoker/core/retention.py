"""Which conversations must go: too old, too many, too large. Pure.

One user's conversations never push out another's, except for the limit of all, where
the user who holds the most gives way first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stoker.events.sessions import Holding


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of what is kept; ``ttl_s`` 0 = for ever."""

    ttl_s: float
    per_user: int
    per_user_bytes: int
    all_bytes: int


@dataclass(frozen=True, slots=True)
class Farewell:
    """A session that goes, and why: expired | user-count | user-bytes | all-bytes."""

    id: str
    uid: int
    reason: str


def lifetime(ttl_s: float, limit_s: float) -> float:
    """The shorter of a session's own time and the configured one; 0 = for ever."""
    return min(filter(None, (ttl_s, limit_s)), default=0.0)


def expired(holdings: Iterable[Holding], bounds: Bounds, now_s: float) -> list[Farewell]:
    """Unused for longer than they live. A clock that went back makes nothing old."""
    out = []
    for item in holdings:
        limit = lifetime(item.ttl_s, bounds.ttl_s)
        if limit and not item.busy and now_s - item.used_s > limit:
            out.append(Farewell(item.id, item.uid, "expired"))
    return out


def overflowing(holdings: Iterable[Holding], bounds: Bounds) -> list[Farewell]:
    """The least recently used that must go so that every limit holds, in that order.

    Busy ones stay, so limits may be passed as long as answers are being made.
    """
    users: dict[int, list[Holding]] = {}
    for item in sorted(holdings, key=lambda item: (item.used_s, item.id)):
        users.setdefault(item.uid, []).append(item)
    out: list[Farewell] = []
    for uid, own in users.items():
        out += _shrink(own, bounds, uid)
    sizes = {uid: sum(item.size_bytes for item in own) for uid, own in users.items()}
    while sum(sizes.values()) > bounds.all_bytes:
        givers = [uid for uid, own in users.items() if any(not item.busy for item in own)]
        if not givers:
            break
        uid = max(givers, key=lambda uid: (sizes[uid], uid))
        gone = _pop_oldest(users[uid])
        sizes[uid] -= gone.size_bytes
        out.append(Farewell(gone.id, uid, "all-bytes"))
    return out


def refusal(holdings: Iterable[Holding], bounds: Bounds, uid: int, *, newcomer: bool) -> str:
    """Which limit stands against a new session or turn of ``uid``; "" = none."""
    everyone = list(holdings)
    own = [item for item in everyone if item.uid == uid]
    if newcomer and len(own) >= bounds.per_user:
        return "user-count"
    if sum(item.size_bytes for item in own) >= bounds.per_user_bytes:
        return "user-bytes"
    if sum(item.size_bytes for item in everyone) >= bounds.all_bytes:
        return "all-bytes"
    return ""


def _shrink(own: list[Holding], bounds: Bounds, uid: int) -> list[Farewell]:
    """Removes from ``own`` (oldest first) what passes the user's limits."""
    out = []
    size = sum(item.size_bytes for item in own)
    while any(not item.busy for item in own):
        if len(own) > bounds.per_user:
            reason = "user-count"
        elif size > bounds.per_user_bytes:
            reason = "user-bytes"
        else:
            break
        gone = _pop_oldest(own)
        size -= gone.size_bytes
        out.append(Farewell(gone.id, uid, reason))
    return out


def _pop_oldest(own: list[Holding]) -> Holding:
    index = next(i for i, item in enumerate(own) if not item.busy)
    return own.pop(index)
