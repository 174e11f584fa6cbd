"""A large object in pieces that can be fetched from anywhere, in any order, each with its hash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DIGEST_BYTES: Final = 32
DEFAULT_CHUNK_BYTES: Final = 61_440
"""Below the 64 KB that small brokers retain, with room for a header."""
MIN_CHUNK_BYTES: Final = 1 << 10
MAX_CHUNK_BYTES: Final = 120 << 10
"""Of chunks and of everything else that is one message of a broker (AWS IoT: 128 KB)."""
PAGE_DIGESTS: Final = 1920
MAX_CHUNKS: Final = 1 << 20
"""64 GB in chunks of the default size; 32 MiB of digests."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """What a signed manifest says: chunks of ``size`` bytes (the last may be shorter), and the
    hex SHA-256 of the root that leads to their digests.
    """

    size: int
    root: str


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """The digests of all chunks of an object of ``total`` bytes, one behind the other."""

    total: int
    size: int
    digests: bytes

    @property
    def count(self) -> int:
        return len(self.digests) // DIGEST_BYTES

    def digest(self, number: int) -> bytes:
        return self.digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]

    def offset(self, number: int) -> int:
        return number * self.size

    def length(self, number: int) -> int:
        return min(self.size, self.total - number * self.size)
