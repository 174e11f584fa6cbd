"""The history of updates: one JSON line each, chained by hashes, so that gaps show.

A line holds what happened and the hash of the line before it. A power cut may leave half
a line at the end; that is no damage, everything before it still proves itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stoker_ota.core import strict_json
from stoker_ota.errors import OtaError

START: Final = "0" * 64
MAX_LINE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class History:
    """Records oldest first, the hash that the next one names, and whether the chain holds."""

    records: tuple[Mapping[str, object], ...]
    tip: str
    whole: bool
    good_bytes: int  # of the file; what follows is half a line, or damage
    damaged: bool = False  # a whole line of it cannot be believed


def line(record: Mapping[str, object], tip: str) -> tuple[bytes, str]:
    """The bytes to append after ``tip``, and the new tip."""
    data = strict_json.dumps({**record, "after": tip})
    return data + b"\n", hashlib.sha256(data).hexdigest()


def read(data: bytes | None, start: str = START) -> History:
    """Never raises: what cannot be believed ends the reading. None = nobody could read it."""
    if data is None:
        return History((), start, False, 0, damaged=True)
    records: list[Mapping[str, object]] = []
    tip, at, whole = start, 0, True
    while (end := data.find(b"\n", at)) >= 0:
        text = data[at:end]
        try:
            value = strict_json.loads(text, max_bytes=MAX_LINE_BYTES, what="history")
        except OtaError:
            value = None
        if not isinstance(value, dict) or (value.get("after") != tip and records):
            return History(tuple(records), tip, False, at, damaged=True)
        if not records:  # the file before this one was rotated away: its tip is taken as said
            whole = value.get("after") == start or start == START
        tip = hashlib.sha256(text).hexdigest()
        records.append({key: item for key, item in value.items() if key != "after"})
        at = end + 1
    return History(tuple(records), tip, whole, at)
