"""Cuts the target into windows: what each may read of the source, and what pairs inside it.

A window never mixes header and tensors, and a long stretch without a partner gets windows of its
own, so that suffix search has something to find and aligned windows stay pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stoker_ota.core.blocks import LAYOUTS, block_bytes
from stoker_ota.core.pairing import Segment
from stoker_ota.values.delta import SPAN_WINDOWS, Control

_ALONE = 16
"""A stretch without a partner of at least 1/16 window is cut off from paired neighbours."""


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """One window to be made. Empty ``pieces``: nothing pairs, a search must find the source."""

    dst_off: int
    dst_len: int
    pieces: tuple[Segment, ...] = ()
    kind: int = 0  # of the blocks, where the window is nothing else

    @property
    def source_range(self) -> tuple[int, int]:
        """(offset, length) that the paired pieces read."""
        spans = [
            (piece.src_off, piece.src_off + piece.length)
            for piece in self.pieces
            if piece.src_off is not None
        ]
        if not spans:
            return 0, 0
        low, high = min(low for low, _ in spans), max(high for _, high in spans)
        return low, high - low

    def controls(self) -> tuple[Control, ...]:
        """bsdiff's triples for the pieces: paired ones are diff, the others extra."""
        at, _ = self.source_range
        out: list[Control] = []
        for piece in self.pieces:
            if piece.src_off is None:
                diff, extra, seek = out.pop() if out else (0, 0, 0)
                out.append((diff, extra + piece.length, seek))
                continue
            if piece.src_off != at:
                diff, extra, seek = out.pop() if out else (0, 0, 0)
                out.append((diff, extra, seek + piece.src_off - at))
            out.append((piece.length, 0, 0))
            at = piece.src_off + piece.length
        return tuple(out)


def plain(start: int, end: int, window_bytes: int) -> Iterator[WindowPlan]:
    """Windows of one stretch in which nothing is paired."""
    for off in range(start, end, window_bytes):
        yield WindowPlan(off, min(window_bytes, end - off))


def aligned(
    segments: Iterable[Segment], window_bytes: int, *, by_blocks: bool = True
) -> Iterator[WindowPlan]:
    """Windows over segments that follow one another without a gap. ``by_blocks``: those of
    quantised blocks get windows of their own, which begin with a block.
    """
    pieces: list[Segment] = []
    for segment in segments:
        if by_blocks and _blocks(segment, window_bytes):
            yield from _closed(pieces)
            pieces = []
            yield from _of_blocks(segment, window_bytes)
            continue
        if segment.src_off is None and segment.length >= window_bytes // _ALONE:
            yield from _closed(pieces)
            pieces = []
            yield from plain(segment.dst_off, segment.dst_end, window_bytes)
            continue
        for part in _parts(segment, pieces, window_bytes):
            if not _fits(pieces, part, window_bytes):
                yield from _closed(pieces)
                pieces = []
            pieces.append(part)
    yield from _closed(pieces)


def _blocks(segment: Segment, window_bytes: int) -> bool:
    known = segment.kind in LAYOUTS and segment.src_off is not None
    return known and segment.length >= window_bytes // _ALONE


def _of_blocks(segment: Segment, window_bytes: int) -> Iterator[WindowPlan]:
    assert segment.src_off is not None, "paired"
    most = window_bytes // block_bytes(segment.kind) * block_bytes(segment.kind)
    for off in range(0, segment.length, most):
        length = min(most, segment.length - off)
        piece = Segment(segment.dst_off + off, length, segment.src_off + off, segment.kind)
        yield WindowPlan(piece.dst_off, length, (piece,), segment.kind)


def _parts(segment: Segment, pieces: list[Segment], window_bytes: int) -> Iterator[Segment]:
    """The segment in parts that fill the open window first, then whole ones."""
    off, left = 0, segment.length
    room = window_bytes - sum(piece.length for piece in pieces)
    if not _near(pieces, segment, min(room, left), window_bytes):
        room = 0
    while left:
        length = min(left, room or window_bytes)
        src = None if segment.src_off is None else segment.src_off + off
        yield Segment(segment.dst_off + off, length, src)
        off, left, room = off + length, left - length, 0


def _fits(pieces: list[Segment], part: Segment, window_bytes: int) -> bool:
    filled = sum(piece.length for piece in pieces)
    return filled + part.length <= window_bytes and _near(pieces, part, part.length, window_bytes)


def _near(pieces: list[Segment], part: Segment, length: int, window_bytes: int) -> bool:
    """Whether the open window may take it without reading too long a stretch of the source."""
    if part.src_off is None or not pieces:
        return True
    low, span = WindowPlan(0, 0, tuple(pieces)).source_range
    if not span:
        return True
    end = max(low + span, part.src_off + length)
    return end - min(low, part.src_off) <= SPAN_WINDOWS * window_bytes


def _closed(pieces: list[Segment]) -> Iterator[WindowPlan]:
    if not pieces:
        return
    length = sum(piece.length for piece in pieces)
    if all(piece.src_off is None for piece in pieces):
        yield WindowPlan(pieces[0].dst_off, length)
    else:
        yield WindowPlan(pieces[0].dst_off, length, tuple(pieces))
