"""Cuts a file into chunks on the build host: their digests, and each chunk as it stands there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stoker_ota.core import chunks
from stoker_ota.drivers.files import SourceFile
from stoker_ota.values.chunks import ChunkIndex, Chunks


def index_of(path: Path, size: int) -> ChunkIndex:
    """FileUnreadable; BadDocument for more chunks than the format holds."""
    with SourceFile(path) as file:
        chunks.count(file.size, size)
        return chunks.index_of(_pieces(file, size), file.size, size)


def chunks_of(path: Path, size: int) -> Chunks | None:
    """As a manifest names them; None for an empty file or size 0."""
    if not size or not path.stat().st_size:
        return None
    return chunks.of_index(index_of(path, size))


def _pieces(file: SourceFile, size: int) -> Iterator[bytes]:
    for at in range(0, file.size, size):
        yield file.read_at(at, min(size, file.size - at))
