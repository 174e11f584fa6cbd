"""Applies a delta window by window. Memory is a few windows, whatever the files' sizes.

The caller owns the journal: it takes windows from ``windows``, writes each, and may begin again
at any number. Nothing here writes a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stoker_ota.core import delta_index, window
from stoker_ota.errors import BadDelta, ChunkHash, SourceMismatch
from stoker_ota.ports.files import Progress, ReadAt, WriteAt, no_progress
from stoker_ota.services.whole_file import content
from stoker_ota.values.delta import Index, Op


@dataclass(frozen=True, slots=True)
class Applied:
    """A verified window of the target. After it is on the disk, ``number + 1`` is next."""

    number: int
    dst_off: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Delta:
    """A delta file: its judged index, and where the payloads are."""

    index: Index
    index_bytes: int
    index_sha256: bytes
    file: ReadAt

    def payload(self, number: int) -> bytes:
        """Not yet verified: ``window.apply`` does that."""
        entry = self.index.windows[number]
        return self.file.read_at(self.index_bytes + entry.payload_off, entry.payload_len)


def open_delta(file: ReadAt, *, index_sha256: bytes | None = None) -> Delta:
    """Reads and judges the index. ``index_sha256`` is what a signed manifest says it must be.

    BadDelta; ChunkHash when it is another index than the manifest's.
    """
    head = file.read_at(0, min(file.size, delta_index.HEADER_BYTES))
    length = delta_index.index_bytes(head)
    if length > file.size:
        raise BadDelta("cannot read the delta: its index is cut off")
    data = file.read_at(0, length)
    found = delta_index.digest(data)
    if index_sha256 is not None and found != index_sha256:
        raise ChunkHash("cannot read the delta: its index is not the one the manifest names")
    index = delta_index.decode(data)
    if file.size != length + index.payload_bytes:
        raise BadDelta(
            f"cannot read the delta: it has {file.size} bytes, "
            f"its index says {length + index.payload_bytes}"
        )
    return Delta(index, length, found, file)


def check_source(index: Index, source: ReadAt, progress: Progress = no_progress) -> None:
    """SourceMismatch unless ``source`` is the file the delta was made from."""
    if source.size != index.source.size or content(source, "source", progress) != index.source:
        raise SourceMismatch(
            "cannot apply the delta: the source is not the file it was made from",
            hint="stoker-ota delta inspect shows the size and SHA-256 it needs",
        )


def windows(delta: Delta, source: ReadAt, *, first: int = 0) -> Iterator[Applied]:
    """The windows from ``first`` on, each with its hash verified.

    BadDelta, ChunkHash, ResultHash, and what ``source`` raises.
    """
    for number in range(first, len(delta.index.windows)):
        entry = delta.index.windows[number]
        stretch = source.read_at(entry.src_off, entry.src_len)
        made = window.apply(entry, stretch, delta.payload(number))
        yield Applied(number, entry.dst_off, made)


def intact(index: Index, part: ReadAt, *, at_most: int | None = None) -> int:
    """How many windows from the begin stand in ``part`` as they must: where to go on.

    ``at_most`` is what a journal says was synced; without one, the hashes tell.
    """
    limit = len(index.windows) if at_most is None else min(at_most, len(index.windows))
    for number in range(limit):
        entry = index.windows[number]
        if entry.dst_end > part.size:
            return number
        if not window.is_right(entry, part.read_at(entry.dst_off, entry.dst_len)):
            return number
    return limit


def write(
    delta: Delta,
    source: ReadAt,
    part: WriteAt,
    *,
    first: int = 0,
    progress: Progress = no_progress,
) -> None:
    """All windows from ``first`` on into ``part``, synced at the end."""
    total = delta.index.target.size
    for made in windows(delta, source, first=first):
        part.write_at(made.dst_off, made.data)
        progress("apply", made.dst_off + len(made.data), total)
    part.sync()


def check_payloads(delta: Delta, progress: Progress = no_progress) -> None:
    """That every payload is what the index says: all that can be told without the source."""
    total = delta.index.payload_bytes
    for number, entry in enumerate(delta.index.windows):
        if entry.op != Op.COPY and (
            delta_index.digest(delta.payload(number)) != entry.payload_sha256
        ):
            raise ChunkHash(f"cannot verify the delta: the payload of window {number} is damaged")
        progress("payloads", entry.payload_off + entry.payload_len, total)
