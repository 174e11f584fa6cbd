"""Length-prefixed frames between stokerd and the runner: pure bytes in, bodies out.

Layout, network byte order: ``magic "SK" | version u8 | kind u8 | length u32 | body``.
The body of kind 1 is one JSON object in UTF-8. Anything else (wrong magic, another
version, a length over the cap, a body that is no object) is a ``FrameError``: the
stream is then out of step and must be closed, never resynchronised.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Final

MAGIC: Final = b"SK"
VERSION: Final = 1
KIND_JSON: Final = 1
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
_HEADER: Final = struct.Struct("!2sBBI")
HEADER_BYTES: Final = _HEADER.size
# json.dumps with options builds an encoder each time; this runs once a token
_TO_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Body = dict[str, object]


class FrameError(Exception):
    """The byte stream breaks the framing; the only remedy is to close it."""


def encode(body: Mapping[str, object], *, max_body_bytes: int = MAX_BODY_BYTES) -> bytes:
    """One frame. Lone surrogates are escaped, so any ``str`` survives the trip."""
    try:
        data = _TO_JSON(body).encode("utf-8")
    except UnicodeEncodeError:
        data = json.dumps(body, separators=(",", ":")).encode("ascii")
    return pack(data, max_body_bytes=max_body_bytes)


def pack(data: bytes, *, max_body_bytes: int = MAX_BODY_BYTES) -> bytes:
    """One frame around a body that is JSON already."""
    if len(data) > max_body_bytes:
        raise FrameError(f"cannot send frame: body of {len(data)} bytes is over {max_body_bytes}")
    return _HEADER.pack(MAGIC, VERSION, KIND_JSON, len(data)) + data


class FrameDecoder:
    """Collects bytes as they come and gives back the bodies that are complete."""

    def __init__(self, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._max = max_body_bytes
        self._buffer = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes of an incomplete frame; more than 0 at end of file means a cut stream."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Body]:
        """Bodies completed by ``data``. The length is checked before the body is awaited."""
        self._buffer += data
        bodies: list[Body] = []
        at = 0
        while len(self._buffer) - at >= HEADER_BYTES:
            length = self._length(at)
            end = at + HEADER_BYTES + length
            if len(self._buffer) < end:
                break
            bodies.append(_parse(bytes(self._buffer[at + HEADER_BYTES : end])))
            at = end
        if at:
            del self._buffer[:at]
        return bodies

    def _length(self, at: int) -> int:
        magic, version, kind, length = _HEADER.unpack_from(self._buffer, at)
        if magic != MAGIC:
            raise FrameError(f"cannot read frame: bad magic {magic!r}")
        if version != VERSION:
            raise FrameError(f"cannot read frame: version {version}, this side speaks {VERSION}")
        if kind != KIND_JSON:
            raise FrameError(f"cannot read frame: unknown kind {kind}")
        if length > self._max:
            raise FrameError(f"cannot read frame: body of {length} bytes is over {self._max}")
        return int(length)


def _parse(data: bytes) -> Body:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"cannot read frame: {error}") from error
    if not isinstance(body, dict):
        raise FrameError("cannot read frame: body is not an object")
    return body
