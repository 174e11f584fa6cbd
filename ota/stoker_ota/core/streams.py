"""Compressed streams with a known length: never more than asked for, never less.

A stream says how long it must be before it is opened: a bomb is refused at the first byte too
many (bz2) or by its own frame header (zstd), before memory is taken.
"""

from __future__ import annotations

import bz2
import zlib
from functools import lru_cache
from typing import Final

import zstandard

from stoker_ota.errors import BadDelta
from stoker_ota.units import MIB
from stoker_ota.values.delta import Codec

DEFAULT_ZSTD_LEVEL: Final = 12
MAX_ZSTD_LEVEL: Final = 19
_BZ2_LEVEL: Final = 9
_RAW: Final = -15  # no head, no checksum: the window has a hash
_ZSTD_WINDOW_BYTES: Final = 8 * MIB


def compress(codec: Codec, data: bytes, *, zstd_level: int = DEFAULT_ZSTD_LEVEL) -> bytes:
    """One stream. The same bytes and the same library give the same stream."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.BZ2:
            return bz2.compress(data, _BZ2_LEVEL)
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(level=zstd_level).compress(data)
        case Codec.DEFLATE:
            packer = zlib.compressobj(9, zlib.DEFLATED, _RAW, 9, zlib.Z_HUFFMAN_ONLY)
            return packer.compress(data) + packer.flush()


def decompress(codec: Codec, data: bytes, *, at_most: int) -> bytes:
    """What the stream holds, at most ``at_most`` bytes. BadDelta for all that is wrong."""
    match codec:
        case Codec.NONE:
            if len(data) > at_most:
                raise BadDelta("cannot unpack a stream: it is longer than it may be")
            return data
        case Codec.BZ2:
            return _bz2(data, at_most)
        case Codec.ZSTD:
            return _zstd(data, at_most)
        case Codec.DEFLATE:
            return _deflate(data, at_most)


def _bz2(data: bytes, at_most: int) -> bytes:
    stream = bz2.BZ2Decompressor()
    try:
        # One byte more than allowed tells "ends here" from "goes on".
        out = stream.decompress(data, max_length=at_most + 1)
        while not stream.eof and len(out) <= at_most and not stream.needs_input:
            out += stream.decompress(b"", max_length=at_most + 1 - len(out))
    except (OSError, ValueError) as error:
        raise BadDelta("cannot unpack a stream: its bz2 is damaged") from error
    if len(out) > at_most:
        raise BadDelta("cannot unpack a stream: it is longer than it may be")
    if not stream.eof:
        raise BadDelta("cannot unpack a stream: its bz2 is cut off")
    if stream.unused_data:
        raise BadDelta("cannot unpack a stream: something follows its end")
    return out


def _deflate(data: bytes, at_most: int) -> bytes:
    """Raw deflate (RFC 1951), whatever it uses of it."""
    stream = zlib.decompressobj(_RAW)
    try:
        out = stream.decompress(data, at_most + 1)
    except zlib.error as error:
        raise BadDelta("cannot unpack a stream: its deflate is damaged") from error
    if len(out) > at_most:
        raise BadDelta("cannot unpack a stream: it is longer than it may be")
    if not stream.eof:
        raise BadDelta("cannot unpack a stream: its deflate is cut off")
    if stream.unused_data:
        raise BadDelta("cannot unpack a stream: something follows its end")
    return out


def _zstd(data: bytes, at_most: int) -> bytes:
    try:
        frame = zstandard.get_frame_parameters(data)
        size = frame.content_size
        if size in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR):
            raise BadDelta("cannot unpack a stream: its frame does not say its length")
        if size > at_most:
            raise BadDelta("cannot unpack a stream: it is longer than it may be")
        if frame.dict_id or frame.window_size > _ZSTD_WINDOW_BYTES:
            raise BadDelta("cannot unpack a stream: its frame asks for too much")
        # The library takes what the frame declares: it was judged above.
        out = _decompressor().decompress(data, max_output_size=at_most, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadDelta("cannot unpack a stream: its zstd is damaged") from error
    if len(out) != size:
        raise BadDelta("cannot unpack a stream: its frame lies about its length")
    return out


@lru_cache(maxsize=1)
def _decompressor() -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
