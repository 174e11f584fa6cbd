"""One window as files that the standard ``bspatch`` takes: proof that the format is bsdiff's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stoker_ota.core import bsdiff, window
from stoker_ota.errors import InvalidRequest
from stoker_ota.ports.files import ReadAt
from stoker_ota.services.delta_apply import Delta
from stoker_ota.values.delta import Codec, Op, Patch

_LEVEL: Final = 1  # of zstd, which is not used here


@dataclass(frozen=True, slots=True)
class Exported:
    """``patch`` is a BSDIFF40 file that turns ``source`` into the window."""

    source: bytes
    patch: bytes
    target_sha256: bytes


def export(delta: Delta, source: ReadAt, number: int) -> Exported:
    """InvalidRequest for a window that is not there; otherwise as applying does."""
    if number >= len(delta.index.windows):
        raise InvalidRequest(
            f"cannot export window {number}: the delta has {len(delta.index.windows)}"
        )
    entry = delta.index.windows[number]
    stretch = source.read_at(entry.src_off, entry.src_len)
    payload = delta.payload(number)
    made = window.apply(entry, stretch, payload)
    if entry.op == Op.BSDIFF and entry.codec == Codec.BZ2:
        return Exported(stretch, payload, entry.dst_sha256)  # it is one already
    match entry.op:
        case Op.BSDIFF:
            patch = bsdiff.decode(
                payload, entry.codec, src_len=entry.src_len, new_len=entry.dst_len
            )
        case Op.COPY:
            patch = Patch(bsdiff.pack([(len(made), 0, 0)]), bytes(len(made)), b"")
        case Op.PLANES:
            diff = bsdiff.add(made, stretch.translate(bsdiff.NEGATED))
            patch = Patch(bsdiff.pack([(len(made), 0, 0)]), diff, b"")
        case Op.DATA:
            patch = Patch(bsdiff.pack([(0, len(made), 0)]), b"", made)
    packed = bsdiff.encode(patch, len(made), Codec.BZ2, zstd_level=_LEVEL)
    return Exported(stretch, packed, entry.dst_sha256)
