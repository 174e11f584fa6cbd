"""What an error of an action means to the machine: an event that the phase has a row for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stoker_ota.core import fields, machine
from stoker_ota.core.journal import MAX_TEXT_BYTES
from stoker_ota.errors import (
    BadDelta,
    Cancelled,
    ChunkHash,
    FileUnreadable,
    NoMemory,
    NoSpace,
    OtaError,
    ResultHash,
    SourceMismatch,
    StorageFailed,
    Unavailable,
    Unhealthy,
)
from stoker_ota.values.deployment import Phase
from stoker_ota.values.moves import Event, What

_EVENTS: Final[Mapping[type[OtaError], What]] = {
    NoSpace: What.NO_SPACE,
    NoMemory: What.NO_MEMORY,
    Unavailable: What.RETRY,
    BadDelta: What.BROKEN,
    ChunkHash: What.BROKEN,
    ResultHash: What.BROKEN,
    SourceMismatch: What.BROKEN,  # a delta cannot be used: the whole file can
    FileUnreadable: What.BROKEN,
    Unhealthy: What.UNHEALTHY,
    Cancelled: What.CANCELLED,
    StorageFailed: What.ERROR,
}


def event(error: OtaError, phase: Phase) -> Event:
    what = next((what for kind, what in _EVENTS.items() if isinstance(error, kind)), What.ERROR)
    if (phase, what) not in machine.TABLE:
        what = What.ERROR  # every phase that works has a row for it
    return Event(what, code=error.code, reason=fields.plain(error.message, MAX_TEXT_BYTES))
