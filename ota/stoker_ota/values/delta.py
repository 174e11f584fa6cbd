"""The parts of a delta: its header, its windows, and what one window is made of.

The byte layout is in ``core/delta_index.py``; this module only names things and fixes the
limits that both the maker and the reader keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from stoker_ota.units import KIB, MIB

MIN_WINDOW_BYTES: Final = 4 * KIB
MAX_WINDOW_BYTES: Final = 4 * MIB
DEFAULT_WINDOW_BYTES: Final = MIB
SPAN_WINDOWS: Final = 2
"""A window may read a stretch of the source of at most so many window sizes."""
MAX_WINDOWS: Final = 65536
MAX_FILE_BYTES: Final = 1 << 40
MAX_CONTROLS: Final = 16384
"""Control triples in one window. Decompressed they are 24 bytes each."""


class Op(IntEnum):
    """How a window of the target comes about."""

    COPY = 0  # the same bytes stand in the source
    BSDIFF = 1  # bsdiff's control, diff and extra, applied to a stretch of the source
    DATA = 2  # the payload is the window
    PLANES = 3  # the change of quantised blocks, field by field


class Codec(IntEnum):
    """How a payload is compressed."""

    NONE = 0
    BZ2 = 1
    ZSTD = 2
    DEFLATE = 3  # of planes only: Huffman's code alone fits noise best


@dataclass(frozen=True, slots=True)
class Content:
    """A whole file, by size and SHA-256."""

    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Window:
    """One entry of the index. ``dst_off`` follows from the entries before it."""

    op: Op
    codec: Codec
    src_off: int
    src_len: int
    dst_off: int
    dst_len: int
    payload_off: int  # from the first byte after the index
    payload_len: int
    payload_sha256: bytes
    dst_sha256: bytes
    blocks: int = 0  # of PLANES: ggml's number of the tensors' type

    @property
    def dst_end(self) -> int:
        return self.dst_off + self.dst_len


@dataclass(frozen=True, slots=True)
class Index:
    """Everything that is known before the first payload."""

    source: Content
    target: Content
    window_bytes: int
    windows: tuple[Window, ...]

    @property
    def payload_bytes(self) -> int:
        last = self.windows[-1] if self.windows else None
        return last.payload_off + last.payload_len if last else 0


Control = tuple[int, int, int]
"""bsdiff's triple: bytes of diff, bytes of extra, then a seek in the source."""


@dataclass(frozen=True, slots=True)
class Patch:
    """bsdiff's three streams, not compressed."""

    controls: bytes  # triples in bsdiff's own packing
    diff: bytes
    extra: bytes
