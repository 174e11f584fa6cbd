"""One window made from its payload and its stretch of the source, hashes before and after.

Nothing is unpacked before the payload's hash is right, and nothing is returned before the
window's is.
"""

from __future__ import annotations

import hashlib

from stoker_ota.core import bsdiff, planes, streams
from stoker_ota.errors import BadDelta, ChunkHash, ResultHash
from stoker_ota.values.delta import Op, Window


def apply(window: Window, source: bytes, payload: bytes) -> bytes:
    """The bytes of the target. BadDelta, ChunkHash (payload), ResultHash (source or maker)."""
    if len(source) != window.src_len or len(payload) != window.payload_len:
        raise BadDelta("cannot apply a window: its source or payload is cut off")
    if window.op != Op.COPY and hashlib.sha256(payload).digest() != window.payload_sha256:
        raise ChunkHash("cannot apply a window: its payload has another hash than the index says")
    match window.op:
        case Op.COPY:
            made = source
        case Op.DATA:
            made = streams.decompress(window.codec, payload, at_most=window.dst_len)
        case Op.BSDIFF:
            patch = bsdiff.decode(
                payload, window.codec, src_len=window.src_len, new_len=window.dst_len
            )
            made = bsdiff.apply(patch, source, window.dst_len)
        case Op.PLANES:
            made = planes.decode(window.blocks, payload, source)
    if not is_right(window, made):
        raise ResultHash(
            "cannot apply a window: the result has another hash than the index says",
            hint="the source differs from the one the delta was made from, or the disk lies",
        )
    return made


def is_right(window: Window, made: bytes) -> bool:
    """Whether these are the window's bytes."""
    return len(made) == window.dst_len and hashlib.sha256(made).digest() == window.dst_sha256
