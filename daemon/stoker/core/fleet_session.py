"""When to connect to the broker, with which protocol, and what a lost connection means.

Full jitter (the draw is given), no reset before a connection has lasted; a broker that
closes is given time, a second client with our id is not fought with. Pure: monotonic
seconds and random draws come in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

V5, V311 = 5, 4


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds. Waits are drawn evenly between 0 (or ``least``) and the bound."""

    first_s: float = 1.0
    cap_s: float = 300.0
    closed_s: float = 30.0  # after the broker closed: others come back too
    stable_s: float = 60.0  # online for so long: the backoff starts again
    takeover_window_s: float = 60.0
    takeover_least_s: float = 300.0
    takeover_most_s: float = 900.0
    suspect_least_s: float = 60.0
    suspect_most_s: float = 180.0


TAKEOVERS: Final = 2
"""So many in the window are no accident."""
BRIEF: Final = 4
"""So many connections in a row that went on with our session and were soon closed look like a
takeover, too: many brokers do not say why they close. It may as well be a broker in trouble."""


@dataclass(frozen=True, slots=True)
class Link:
    """``wake_s``: when to connect. ``phase``: waiting | connecting | online | stopped."""

    phase: str = "waiting"
    wake_s: float = 0.0
    since_s: float = 0.0
    attempt: int = 0
    protocol: int = V5
    takeovers: tuple[float, ...] = ()
    brief: int = 0
    clash: bool = False  # somebody else uses our id, surely or probably
    resumed: bool = False  # the broker had kept our session
    old_broker: bool = False  # it said that it does not speak MQTT 5


def due(link: Link, now_s: float) -> bool:
    return link.phase == "waiting" and now_s >= link.wake_s


def begun(link: Link, now_s: float) -> Link:
    return replace(link, phase="connecting", since_s=now_s)


def online(link: Link, now_s: float, *, resumed: bool = False) -> Link:
    """``resumed``: the broker had kept our session."""
    return replace(link, phase="online", since_s=now_s, resumed=resumed)


def settled(link: Link, now_s: float, pace: Pace) -> Link:
    """What a connection that has lasted lets us forget."""
    if link.phase != "online" or now_s - link.since_s < pace.stable_s:
        return link
    return replace(link, attempt=0, brief=0, takeovers=(), clash=False)


def lost(link: Link, now_s: float, cause: str, draw: float, pace: Pace) -> Link:
    """``draw``: 0 ≤ draw < 1. Said of a connection that was there or that did not come about."""
    link = settled(link, now_s, pace)
    was_online = link.phase == "online"
    base = replace(link, phase="waiting", since_s=now_s)
    if cause in ("protocol", "closed", "silent") and not was_online and link.protocol == V5:
        return replace(base, protocol=V311, old_broker=cause == "protocol", wake_s=now_s)
    if not link.old_broker:
        base = replace(base, protocol=V5)
    silent = was_online and cause == "closed" and link.resumed
    brief = link.brief + 1 if silent else 0
    taken = tuple(at for at in link.takeovers if now_s - at <= pace.takeover_window_s)
    if cause == "taken-over":
        taken = (*taken, now_s)
    base = replace(base, brief=brief, takeovers=taken, attempt=link.attempt + 1)
    if len(taken) >= TAKEOVERS:
        wait = pace.takeover_least_s + draw * (pace.takeover_most_s - pace.takeover_least_s)
        return replace(base, clash=True, wake_s=now_s + wait)
    if brief >= BRIEF:
        wait = pace.suspect_least_s + draw * (pace.suspect_most_s - pace.suspect_least_s)
        return replace(base, clash=True, wake_s=now_s + wait)
    bound = min(pace.cap_s, pace.first_s * 2.0 ** min(link.attempt, 20))
    if was_online and cause == "closed":
        bound = max(bound, min(pace.closed_s, pace.cap_s))
    if cause == "auth":
        bound = max(bound, min(60.0, pace.cap_s))
    return replace(base, wake_s=now_s + draw * bound)


def hurried(link: Link, now_s: float) -> Link:
    """Something has changed here that may have kept us out: tried at once. A clash stays one."""
    if link.phase != "waiting" or link.clash:
        return link
    return replace(link, attempt=0, wake_s=now_s)


def stopped(link: Link, now_s: float) -> Link:
    return replace(link, phase="stopped", since_s=now_s)
