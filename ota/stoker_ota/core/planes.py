"""A window's planes as a payload: each plane a stream under the code that makes it smallest.

    8s magic "STKPLANE" · one u8 codec and u32 length a plane · the streams

Which planes there are and how long they must be follows from the window, not from the payload:
``core/blocks.py``. Hostile input, judged before a stream is unpacked.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NoReturn

from stoker_ota.core import blocks, streams
from stoker_ota.errors import BadDelta
from stoker_ota.values.delta import Codec

MAGIC: Final = b"STKPLANE"
_STREAM: Final = struct.Struct("<BI")
_NOISE: Final = 0.3
"""Share from which on a plane is noise: nobody shortens it further than Huffman's code."""
_SMALL_BYTES: Final = 64 << 10


def encode(kind: int, old: bytes, new: bytes, codecs: Sequence[Codec], *, zstd_level: int) -> bytes:
    """Each plane in the shortest way, the first of equally short ones. ``codecs`` are tried
    where Huffman's code, which is always tried, leaves something to be found.
    """
    heads, packed = [], []
    for plane in blocks.split(kind, old, new):
        codec, stream = _shortest(plane, codecs, zstd_level)
        heads.append(_STREAM.pack(codec, len(stream)))
        packed.append(stream)
    return MAGIC + b"".join(heads) + b"".join(packed)


def _shortest(plane: bytes, codecs: Sequence[Codec], zstd_level: int) -> tuple[Codec, bytes]:
    if not plane:
        return Codec.NONE, plane
    simple = streams.compress(Codec.DEFLATE, plane)
    ways = [(Codec.NONE, plane), (Codec.DEFLATE, simple)]
    if len(plane) < _SMALL_BYTES or len(simple) < _NOISE * len(plane):
        ways += [(c, streams.compress(c, plane, zstd_level=zstd_level)) for c in codecs]
    return min(ways, key=lambda way: len(way[1]))


def decode(kind: int, payload: bytes, old: bytes) -> bytes:
    """The window. ``old`` is as long as it. BadDelta for all that is wrong."""
    sizes = blocks.sizes(kind, len(old))
    at = len(MAGIC) + len(sizes) * _STREAM.size
    if payload[: len(MAGIC)] != MAGIC or len(payload) < at:
        _refuse("it has no head")
    heads = list(_STREAM.iter_unpack(payload[len(MAGIC) : at]))
    if at + sum(length for _, length in heads) != len(payload):
        _refuse("its streams are not as long as its head says")
    planes = []
    for (number, length), size in zip(heads, sizes, strict=True):
        try:
            codec = Codec(number)
        except ValueError:
            _refuse(f"codec {number} is not known")
        plane = streams.decompress(codec, payload[at : at + length], at_most=size)
        if len(plane) != size:
            _refuse(f"a plane has {len(plane)} bytes of {size}")
        planes.append(plane)
        at += length
    return blocks.join(kind, old, planes)


def _refuse(reason: str) -> NoReturn:
    raise BadDelta(f"cannot read a payload of planes: {reason}")
