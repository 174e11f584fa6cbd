"""The hash of a whole file, read in pieces."""

from __future__ import annotations

import hashlib

from stoker_ota.ports.files import Progress, ReadAt, no_progress
from stoker_ota.units import MIB
from stoker_ota.values.delta import Content

_PIECE = MIB


def content(file: ReadAt, phase: str, progress: Progress = no_progress) -> Content:
    """Size and SHA-256. FileUnreadable when it shrinks meanwhile."""
    hasher = hashlib.sha256()
    size = file.size
    for offset in range(0, size, _PIECE):
        progress(phase, offset, size)
        hasher.update(file.read_at(offset, min(_PIECE, size - offset)))
    progress(phase, size, size)
    return Content(size, hasher.digest())
