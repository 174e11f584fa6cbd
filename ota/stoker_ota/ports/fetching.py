"""Where the pieces of an object come from, and where they are put."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from stoker_ota.core.have import Have
from stoker_ota.values.chunks import ChunkIndex, Chunks


class ObjectSource(Protocol):
    """One address of an object. Everything raises Unavailable when it is of no use (any more)."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    def index(self, wanted: Chunks, total: int) -> ChunkIndex:
        """The digests of all chunks, verified. Also ChunkHash, BadDocument."""
        ...

    def pull(self, index: ChunkIndex, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Chunks of these numbers in any order, each at most once; what it has not it leaves
        out. Their bytes are not judged here.
        """
        ...

    def whole(self, offset: int, size: int, mark: str, /) -> tuple[int, str, Iterator[bytes]]:
        """The object without chunks: where its bytes begin (``offset``, or 0 when the source
        cannot go on there), a mark of the version, and the bytes. ``mark`` is that of before.
        """
        ...


class ChunkPart(Protocol):
    """A file that is filled in any order. NoSpace, StorageFailed."""

    @property
    def have(self) -> Have: ...

    def put(self, number: int, data: bytes) -> None: ...

    def finish(self) -> None:
        """Complete: all is on the disk, and nothing says any more that something is missing."""
        ...


class WholePart(Protocol):
    """A file that grows at its end. NoSpace, StorageFailed."""

    @property
    def size(self) -> int: ...

    @property
    def mark(self) -> str:
        """Of the version whose begin is here; "" = not known."""
        ...

    def begin(self, offset: int, mark: str) -> None:
        """What stands from ``offset`` on goes."""
        ...

    def append(self, data: bytes) -> None: ...

    def sha256(self) -> str:
        """Of all that is here, in hex."""
        ...

    def finish(self) -> None: ...
