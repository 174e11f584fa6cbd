"""Which chunks of an object are here: a bitmap, and how it is written beside the part. Pure.

    8s magic "STKHAVE1" · 32s root's SHA-256 · u32 chunks · bits, chunk 0 the lowest of byte 0

A bit is set after its chunk was synced, so half a write of the bitmap can only forget
chunks. One of another root, or a damaged one, is worth nothing: all is fetched again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

MAGIC: Final = b"STKHAVE1"
SUFFIX: Final = ".have"
_HEAD: Final = struct.Struct("<8s32sI")


class Have:
    """``count`` chunks, of which some are here."""

    def __init__(self, root: str, count: int, bits: bytes = b"") -> None:
        self._root, self.count = bytes.fromhex(root), count
        self._bits = bytearray(bits or bytes(-(-count // 8)))
        self.held = sum(byte.bit_count() for byte in self._bits)

    def __contains__(self, number: int) -> bool:
        return bool(self._bits[number >> 3] >> (number & 7) & 1)

    def add(self, number: int) -> None:
        if not 0 <= number < self.count:
            raise IndexError(number)
        if number not in self:
            self._bits[number >> 3] |= 1 << (number & 7)
            self.held += 1

    @property
    def complete(self) -> bool:
        return self.held == self.count

    def missing(self) -> Iterator[int]:
        """Ascending."""
        for at, byte in enumerate(bytes(self._bits)):
            if byte != 0xFF:
                for number in range(at << 3, min((at << 3) + 8, self.count)):
                    if not byte >> (number & 7) & 1:
                        yield number

    def encode(self) -> bytes:
        return _HEAD.pack(MAGIC, self._root, self.count) + bytes(self._bits)


def encoded_bytes(count: int) -> int:
    return _HEAD.size + -(-count // 8)


def decode(data: bytes, root: str, count: int) -> Have:
    """What was written, or an empty one if it is of something else or damaged."""
    head = _HEAD.pack(MAGIC, bytes.fromhex(root), count)
    bits = data[len(head) :]
    if not data.startswith(head) or len(data) != encoded_bytes(count):
        return Have(root, count)
    if count % 8 and bits[-1] >> (count % 8):  # chunks that do not exist
        return Have(root, count)
    return Have(root, count, bits)
