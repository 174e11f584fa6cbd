"""How quantised weights lie in blocks, and the change of a block field by field. Pure.

A block mixes a scale, whose change is noise, with weights, most of which do not change: one code
fits neither. So the fields of all blocks of a window are gathered into planes. The difference is
taken byte by byte, or of the numbers themselves where they lie in pieces (``block_bits``).
Source of the blocks: ggml's ggml-common.h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from stoker_ota.core import block_bits, bsdiff

_Columns = tuple[int, ...]
_Change = Callable[[Sequence[bytes], Sequence[bytes]], list[bytes]]


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Fields from ``first`` on that belong together; ``widths``: bytes a block of their planes."""

    first: int
    count: int
    widths: tuple[int, ...]
    change: _Change
    back: _Change


@dataclass(frozen=True, slots=True)
class _Layout:
    """The columns of each field. Together they are the block."""

    fields: tuple[_Columns, ...]
    pieces: _Pieces | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self.fields))

    @property
    def widths(self) -> tuple[int, ...]:
        """Bytes a block of each plane."""
        widths = [len(field) for field in self.fields]
        if self.pieces is not None:
            at, some = self.pieces.first, self.pieces.count
            widths[at : at + some] = self.pieces.widths
        return tuple(widths)


def _plain(*widths: int) -> _Layout:
    """Fields that follow one another."""
    fields, at = [], 0
    for width in widths:
        fields.append(tuple(range(at, at + width)))
        at += width
    return _Layout(tuple(fields))


def _with_scales(*widths: int) -> _Layout:
    """Two halves, low bytes and high bytes, then twelve bytes of scales, then the rest."""
    fields = _plain(4, 4, 4, 4, *widths).fields
    scales = _Pieces(2, 3, (8, 8), block_bits.scales, block_bits.scales_back)
    return _Layout(((0, 2), (1, 3), *fields[1:]), scales)


LAYOUTS: Final[dict[int, _Layout]] = {
    1: _plain(1, 1),  # F16: mantissa; sign and exponent
    2: _plain(2, 16),  # Q4_0: scale, weights
    3: _plain(4, 16),  # Q4_1: scale and least, weights
    6: _plain(2, 4, 16),  # Q5_0: scale, fifth bits, weights
    7: _plain(4, 4, 16),  # Q5_1
    8: _plain(2, 32),  # Q8_0
    10: _plain(16, 64, 4),  # Q2_K: scales, weights, scales of the scales
    11: _plain(32, 64, 12, 2),  # Q3_K: third bits, weights, scales, scale of the scales
    12: _with_scales(128),  # Q4_K
    13: _with_scales(32, 128),  # Q5_K: fifth bits, weights
    14: _Layout(  # Q6_K: low bits of two weights a byte, twice; upper bits of four; scales; scale
        (
            (*range(32), *range(64, 96)),
            (*range(32, 64), *range(96, 128)),
            tuple(range(128, 192)),
            tuple(range(192, 208)),
            (208, 209),
        ),
        _Pieces(0, 3, (64, 64, 64), block_bits.weights, block_bits.weights_back),
    ),
    30: _plain(1, 1),  # BF16
}
"""By ggml's number of the type."""


def block_bytes(kind: int) -> int:
    return LAYOUTS[kind].size


def sizes(kind: int, length: int) -> tuple[int, ...]:
    """Of each plane of a window of so many bytes; the last one is what is no whole block."""
    count, rest = divmod(length, LAYOUTS[kind].size)
    return (*(count * width for width in LAYOUTS[kind].widths), rest)


def split(kind: int, old: bytes, new: bytes) -> list[bytes]:
    """The planes of new − old. Both are equally long and begin with a block."""
    layout = LAYOUTS[kind]
    whole = len(new) // layout.size * layout.size
    difference = bsdiff.subtract(new, old)
    planes = [_gather(difference[:whole], layout.size, field) for field in layout.fields]
    pieces = layout.pieces
    if pieces is not None:
        fields = layout.fields[pieces.first : pieces.first + pieces.count]
        before, after = (
            [_gather(side[:whole], layout.size, field) for field in fields] for side in (old, new)
        )
        planes[pieces.first : pieces.first + pieces.count] = pieces.change(before, after)
    return [*planes, difference[whole:]]


def join(kind: int, old: bytes, planes: Sequence[bytes]) -> bytes:
    """The new bytes; ``planes`` have their ``sizes``."""
    layout = LAYOUTS[kind]
    whole = len(old) // layout.size * layout.size
    *parts, rest = planes
    pieces, fields = layout.pieces, layout.fields
    if pieces is not None:
        at, end = pieces.first, pieces.first + len(pieces.widths)
        before = [_gather(old[:whole], layout.size, f) for f in fields[at : at + pieces.count]]
        after = pieces.back(before, parts[at:end])
        parts[at:end] = [bsdiff.add(a, b.translate(bsdiff.NEGATED))
                         for a, b in zip(after, before, strict=True)]  # fmt: skip
    difference = bytearray(whole)
    for field, part in zip(fields, parts, strict=True):
        for number, column in enumerate(field):
            difference[column :: layout.size] = part[number :: len(field)]
    return bsdiff.add(old, bytes(difference) + rest)


def _gather(data: bytes, size: int, field: _Columns) -> bytes:
    """The field's columns, block after block."""
    out = bytearray(len(data) // size * len(field))
    for number, column in enumerate(field):
        out[number :: len(field)] = data[column::size]
    return bytes(out)
