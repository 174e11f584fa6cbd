"""The chunk format: pages of digests, and a root that names the pages. Pure.

    chunk   the object's bytes [n · size, (n + 1) · size)
    page    up to 1920 digests of chunks, SHA-256, 32 bytes each
    root    8s magic "STKROOT1" · u32 chunk size · u32 zero · u64 object's bytes ·
            the pages' digests

Little-endian. Every one of them is a blob under the hex SHA-256 of its bytes; the signed
manifest names the root's, and through it every chunk is bound, wherever it comes from. A web
server has all pages in one file, OBJECT.chunks.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NoReturn

from stoker_ota.errors import BadDocument, ChunkHash
from stoker_ota.values.chunks import (
    DIGEST_BYTES,
    MAX_CHUNK_BYTES,
    MAX_CHUNKS,
    MIN_CHUNK_BYTES,
    PAGE_DIGESTS,
    ChunkIndex,
    Chunks,
)

MAGIC: Final = b"STKROOT1"
PAGE_BYTES: Final = PAGE_DIGESTS * DIGEST_BYTES
SUFFIX: Final = ".chunks"
_HEAD: Final = struct.Struct("<8sIIQ")


def count(total: int, size: int) -> int:
    """Chunks of an object. BadDocument when the format does not hold so many."""
    if not MIN_CHUNK_BYTES <= size <= MAX_CHUNK_BYTES:
        _refuse(f"chunks of {size} bytes are not allowed")
    found = -(-total // size)
    if found > MAX_CHUNKS:
        _refuse(f"{found} chunks are more than {MAX_CHUNKS}")
    return found


def index_of(pieces: Iterable[bytes], total: int, size: int) -> ChunkIndex:
    """Of an object's bytes, chunk by chunk."""
    digests = b"".join(hashlib.sha256(piece).digest() for piece in pieces)
    if len(digests) != count(total, size) * DIGEST_BYTES:
        _refuse("the object has another number of chunks than its size says")
    return ChunkIndex(total, size, digests)


def pages(index: ChunkIndex) -> tuple[bytes, ...]:
    starts = range(0, len(index.digests), PAGE_BYTES)
    return tuple(index.digests[at : at + PAGE_BYTES] for at in starts)


def root(index: ChunkIndex) -> bytes:
    """The root blob."""
    head = _HEAD.pack(MAGIC, index.size, 0, index.total)
    return head + b"".join(hashlib.sha256(page).digest() for page in pages(index))


def of_index(index: ChunkIndex) -> Chunks:
    return Chunks(index.size, hashlib.sha256(root(index)).hexdigest())


def root_bytes(total: int, size: int) -> int:
    """How long the root of such an object is."""
    return _HEAD.size + -(-count(total, size) // PAGE_DIGESTS) * DIGEST_BYTES


def pages_bytes(total: int, size: int) -> int:
    """How long all pages are together."""
    return count(total, size) * DIGEST_BYTES


def parse_root(data: bytes, wanted: Chunks, total: int) -> tuple[str, ...]:
    """The pages' hex digests. ChunkHash when it is not the blob that ``wanted`` names,
    BadDocument when it says other things than the manifest.
    """
    if hashlib.sha256(data).hexdigest() != wanted.root:
        raise ChunkHash("cannot use the root of the chunks: its hash is wrong")
    if len(data) != root_bytes(total, wanted.size):
        _refuse("the root has another length than it must have")
    if _HEAD.unpack_from(data) != (MAGIC, wanted.size, 0, total):
        _refuse("the root is that of another object")
    body = data[_HEAD.size :]
    starts = range(0, len(body), DIGEST_BYTES)
    return tuple(body[at : at + DIGEST_BYTES].hex() for at in starts)


def of_pages(data: bytes, wanted: Chunks, total: int) -> ChunkIndex:
    """All pages, one behind the other, as an index. ChunkHash, BadDocument."""
    if len(data) != pages_bytes(total, wanted.size):
        raise ChunkHash("cannot use the digests of the chunks: there are more or fewer")
    index = ChunkIndex(total, wanted.size, data)
    if of_index(index) != wanted:
        raise ChunkHash("cannot use the digests of the chunks: they are not those of the manifest")
    return index


def right(index: ChunkIndex, number: int, data: bytes) -> bool:
    """Whether these are the bytes of that chunk."""
    length = index.length(number)
    return len(data) == length and hashlib.sha256(data).digest() == index.digest(number)


def runs(numbers: Iterable[int], most: int) -> Iterator[tuple[int, int]]:
    """Ascending numbers as (first, how many) of neighbours, at most ``most`` together."""
    first, length = 0, 0
    for number in numbers:
        if length and (number != first + length or length == most):
            yield first, length
            length = 0
        if not length:
            first = number
        length += 1
    if length:
        yield first, length


def _refuse(reason: str) -> NoReturn:
    raise BadDocument(f"cannot use chunks: {reason}")
