"""The file of a saved state: fixed numbers, a JSON header, the tokens, the engine's bytes.

Little-endian: magic, version, lengths of the three parts, CRC-32 of the first two, SHA-256 of
all three. The engine's own bytes carry no checksum and a truncated state file can abort it: so
everything is checked here before the engine sees any of it. Pure.
"""

from __future__ import annotations

import array
import hashlib
import json
import struct
import sys
import zlib
from dataclasses import asdict, dataclass
from typing import Final

MAGIC: Final = b"STOKERKV"
VERSION: Final = 1
_FIXED: Final = struct.Struct("<8sIIIQI32s")
FIXED_BYTES: Final = _FIXED.size
MAX_HEADER_BYTES: Final = 8192
MAX_TOKENS: Final = 1 << 20


class StateFormatError(Exception):
    """Not a state file of ours, cut off or changed."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a state belongs to; it fits only where model and kind are the same."""

    fingerprint: str
    kind: str  # cell types and library
    scope: str
    keep: str
    variant: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file; ``payload_at`` is where the engine's bytes begin."""

    facts: Facts
    tokens: list[int]
    payload_at: int
    payload_bytes: int
    digest: bytes

    @property
    def file_bytes(self) -> int:
        return self.payload_at + self.payload_bytes


def pack(facts: Facts, tokens: list[int], payload: memoryview) -> bytes:
    """Everything before the payload. Raises ValueError for what no reader would take."""
    header = json.dumps(asdict(facts)).encode()
    if len(header) > MAX_HEADER_BYTES or len(tokens) > MAX_TOKENS:
        raise ValueError("the header or the tokens are too long")
    body = _tokens_out(tokens)
    digest = _digest(header, body, payload)
    crc = zlib.crc32(header + body)
    fixed = _FIXED.pack(MAGIC, VERSION, len(header), len(tokens), payload.nbytes, crc, digest)
    return fixed + header + body


def head_bytes(fixed: bytes) -> int:
    """How many bytes come before the payload. Raises StateFormatError."""
    header, tokens, *_ = _lengths(fixed)
    return FIXED_BYTES + header + 4 * tokens


def parse(data: bytes, file_bytes: int) -> Head:
    """``data`` is all before the payload. Raises StateFormatError; the digest is not checked."""
    header_bytes, count, payload_bytes, crc, digest = _lengths(data[:FIXED_BYTES])
    at = FIXED_BYTES + header_bytes
    if len(data) != at + 4 * count or file_bytes != len(data) + payload_bytes:
        raise StateFormatError(f"{file_bytes} bytes are not the announced length")
    if zlib.crc32(data[FIXED_BYTES:]) != crc:
        raise StateFormatError("its beginning was changed")
    try:
        values = json.loads(data[FIXED_BYTES:at])
        facts = Facts(**values)
    except (ValueError, TypeError, RecursionError) as error:
        raise StateFormatError(f"its header cannot be read: {error}") from error
    if not all(isinstance(value, str) for value in values.values()):
        raise StateFormatError("its header holds something else than texts")
    return Head(facts, _tokens_in(data[at:]), len(data), payload_bytes, digest)


def check(data: bytes, payload: memoryview) -> None:
    """Raises StateFormatError if a byte differs from what was written."""
    header_bytes, *_, digest = _lengths(data[:FIXED_BYTES])
    at = FIXED_BYTES + header_bytes
    if _digest(data[FIXED_BYTES:at], data[at:], payload) != digest:
        raise StateFormatError("its checksum is wrong")


def _lengths(fixed: bytes) -> tuple[int, int, int, int, bytes]:
    if len(fixed) != FIXED_BYTES:
        raise StateFormatError("it is too short")
    magic, version, header, tokens, payload, crc, digest = _FIXED.unpack(fixed)
    if magic != MAGIC or version != VERSION:
        raise StateFormatError("it is no state file of this version")
    if header > MAX_HEADER_BYTES or tokens > MAX_TOKENS:
        raise StateFormatError("its header announces too much")
    return header, tokens, payload, crc, digest


def _digest(header: bytes, tokens: bytes, payload: memoryview) -> bytes:
    digest = hashlib.sha256(header)
    digest.update(tokens)
    digest.update(payload)
    return digest.digest()


def _tokens_out(tokens: list[int]) -> bytes:
    numbers = array.array("I", tokens)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _tokens_in(data: bytes) -> list[int]:
    numbers = array.array("I")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
