"""Fills one object from its sources: in their order, chunk by chunk, each chunk judged.

A source that fails or lies is left and the next one goes on with what is missing. Without
chunks the bytes come from one source at a time, and only the whole hash can judge them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stoker_ota.core import chunks
from stoker_ota.errors import BadDocument, ChunkHash, InvalidRequest, OtaError, Unavailable
from stoker_ota.ports.fetching import ChunkPart, ObjectSource, WholePart
from stoker_ota.ports.files import Progress
from stoker_ota.values.chunks import ChunkIndex, Chunks
from stoker_ota.values.fetching import Wanted

_LEFT = (Unavailable, ChunkHash, BadDocument, InvalidRequest)
"""What makes a source one that is left; everything else ends the work."""


class Faults:
    """Why each source was left at last, in words."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def add(self, source: ObjectSource, error: OtaError) -> None:
        """That it cannot do what was asked at all says less than what went wrong before."""
        if isinstance(error, InvalidRequest):
            self._said.setdefault(source.name, error.message)
        else:
            self._said[source.name] = error.message

    def error(self) -> Unavailable:
        said = "; ".join(f"{name.rstrip(':')}: {why}" for name, why in self._said.items())
        return Unavailable(f"cannot fetch: {said or 'there is no source'}")


def by_chunks(
    wanted: Wanted,
    sources: Sequence[ObjectSource],
    open_part: Callable[[ChunkIndex], ChunkPart],
    progress: Progress,
) -> Faults | None:
    """Until the object is complete: None. Else why no source has the digests of its chunks.

    Unavailable when something is missing after the last source; what came is kept.
    """
    assert wanted.chunks is not None
    faults = Faults()
    index = _index(wanted.chunks, wanted.size, sources, faults)
    if index is None:
        return faults
    part = open_part(index)
    for source in sources:
        todo = tuple(part.have.missing())
        if not todo:
            break
        try:
            _from_one(source, index, todo, part, progress)
            if not part.have.complete:
                missing = part.have.count - part.have.held
                raise Unavailable(f"{missing} chunks are not there")
        except _LEFT as error:
            faults.add(source, error)
    if not part.have.complete:
        raise faults.error()
    part.finish()
    progress("fetch", wanted.size, wanted.size)
    return None


def whole(
    wanted: Wanted,
    sources: Sequence[ObjectSource],
    part: WholePart,
    progress: Progress,
    faults: Faults,
) -> None:
    """The object's bytes from begin to end, going on where the part ends. Bytes with another
    hash are dropped, and the next source begins anew.
    """
    for source in sources:
        try:
            _whole_from(source, wanted.size, part, progress)
            if part.sha256() == wanted.sha256:
                part.finish()
                return
            part.begin(0, "")
            raise ChunkHash("it has other bytes than promised")
        except _LEFT as error:
            faults.add(source, error)
    raise faults.error()


def _index(
    wanted: Chunks, total: int, sources: Sequence[ObjectSource], faults: Faults
) -> ChunkIndex | None:
    for source in sources:
        try:
            return source.index(wanted, total)
        except _LEFT as error:
            faults.add(source, error)
    return None


def _from_one(
    source: ObjectSource,
    index: ChunkIndex,
    todo: Sequence[int],
    part: ChunkPart,
    progress: Progress,
) -> None:
    done = sum(index.length(n) for n in range(index.count) if n in part.have)
    progress("fetch", done, index.total)
    for number, data in source.pull(index, todo):
        if not chunks.right(index, number, data):
            raise ChunkHash(f"cannot use chunk {number}: it has other bytes than promised")
        if number not in part.have:
            part.put(number, data)
            done += len(data)
            progress("fetch", done, index.total)


def _whole_from(source: ObjectSource, size: int, part: WholePart, progress: Progress) -> None:
    begun = min(part.size, size)
    if begun == size:
        return
    offset, mark, stream = source.whole(begun, size, part.mark)
    if offset != begun or mark != part.mark:
        part.begin(offset, mark)
    for data in stream:
        if part.size + len(data) > size:
            raise Unavailable(f"cannot use the file there: it has more than {size} bytes")
        part.append(data)
        progress("fetch", part.size, size)
    if part.size != size:
        raise Unavailable(f"cannot go on: it ended after {part.size} of {size} bytes")
