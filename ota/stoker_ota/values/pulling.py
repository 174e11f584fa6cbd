"""What a puller of retained blobs is told, what it does, and all it knows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from stoker_ota.values.pace import Pace


class What(Enum):
    CONNECTED = "connected"
    DENIED = "denied"  # the subscription
    MESSAGE = "message"
    DISCONNECTED = "disconnected"
    REFUSED = "refused"  # the connection, and trying again would not help
    TICK = "tick"  # time went by


@dataclass(frozen=True, slots=True)
class Event:
    what: What
    blob: str = ""  # hex SHA-256 of the topic it is about
    good: bool = False  # MESSAGE: the payload has that hash
    size: int = 0  # MESSAGE: bytes of the payload
    reason: str = ""


class Do(Enum):
    CONNECT = "connect"  # after a random part of ``delay_s``
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    KEEP = "keep"  # the payload of the message that was just told
    LOST = "lost"  # not to be had here; another source may have it
    END = "end"  # nothing is left to do here; ``reason`` if that is a failure


@dataclass(frozen=True, slots=True)
class Action:
    do: Do
    blob: str = ""
    delay_s: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Flight:
    """A blob that was subscribed to."""

    blob: str
    since_s: float
    tries: int  # that came to nothing before


@dataclass(frozen=True, slots=True)
class Pull:
    """``wanted`` in order and each once; before ``position`` all were begun."""

    wanted: tuple[str, ...]
    pace: Pace
    blob_bytes: int  # of most blobs: what a subscription is expected to bring
    most: int  # subscriptions at a time
    window: int = 1  # at most now
    position: int = 0
    again: tuple[Flight, ...] = ()  # to be begun once more
    flying: tuple[Flight, ...] = ()
    connected: bool = False
    greeted: bool = False  # it was connected once
    over: bool = False
    rtt_s: float = 0.0  # smoothed, from subscription to message; 0 = not known yet
    steady: bool = False  # something came late once: the window grows slowly
    row: int = 0  # blobs that came since the window grew
    heard_s: float = 0.0  # when the last good blob came, or the connection
    late: int = 0  # blobs in a row that did not come in time
    absent: int = 0  # blobs in a row given up
    drops: int = 0  # connections in a row that brought nothing
