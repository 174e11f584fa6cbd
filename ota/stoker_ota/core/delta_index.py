"""The first part of a delta file: header, one entry a window, and a hash over both.

    header   8s magic "STKDELTA" · u16 version 1 · u16 header size · u32 window size ·
             u32 entries · u32 zero · u64 source size · u64 target size ·
             32s source SHA-256 · 32s target SHA-256 · u64 payload bytes        (112 bytes)
    entry    u8 op · u8 codec · u16 blocks · u32 src_len · u32 dst_len · u32 payload_len ·
             u64 src_off · u64 payload_off · 32s payload SHA-256 · 32s window SHA-256   (96)
    hash     SHA-256 of all that

All little-endian; the payloads follow, one behind the other. Judged before anything is
allocated: destinations and payloads are contiguous and exact, sources are in range.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final, NoReturn

from stoker_ota.core.blocks import LAYOUTS
from stoker_ota.errors import BadDelta
from stoker_ota.values.delta import (
    MAX_FILE_BYTES,
    MAX_WINDOW_BYTES,
    MAX_WINDOWS,
    MIN_WINDOW_BYTES,
    SPAN_WINDOWS,
    Codec,
    Content,
    Index,
    Op,
    Window,
)

MAGIC: Final = b"STKDELTA"
VERSION: Final = 1
HASH_BYTES: Final = 32
NO_HASH: Final = bytes(HASH_BYTES)
_HEADER: Final = struct.Struct("<8sHHIIIQQ32s32sQ")
_ENTRY: Final = struct.Struct("<BBHIIIQQ32s32s")
HEADER_BYTES: Final = _HEADER.size
ENTRY_BYTES: Final = _ENTRY.size
_ALLOWED: Final = {
    Op.COPY: (Codec.NONE,),
    Op.BSDIFF: (Codec.BZ2, Codec.ZSTD),
    Op.DATA: (Codec.NONE, Codec.BZ2, Codec.ZSTD),
    Op.PLANES: (Codec.NONE,),  # each plane has its own
}


def encoded_bytes(entries: int) -> int:
    """How long an index of so many windows is."""
    return HEADER_BYTES + entries * ENTRY_BYTES + HASH_BYTES


def encode(index: Index) -> bytes:
    """The index as bytes; ``decode`` accepts them (a broken index raises BadDelta here too)."""
    header = _HEADER.pack(
        MAGIC, VERSION, HEADER_BYTES, index.window_bytes, len(index.windows), 0,
        index.source.size, index.target.size, index.source.sha256, index.target.sha256,
        index.payload_bytes,
    )  # fmt: skip
    parts = [header]
    for window in index.windows:
        parts.append(
            _ENTRY.pack(
                window.op, window.codec, window.blocks, window.src_len, window.dst_len,
                window.payload_len, window.src_off, window.payload_off, window.payload_sha256,
                window.dst_sha256,
            )
        )  # fmt: skip
    body = b"".join(parts)
    data = body + hashlib.sha256(body).digest()
    decode(data)
    return data


def index_bytes(head: bytes) -> int:
    """Length of the whole index, from its first ``HEADER_BYTES`` bytes. BadDelta."""
    return encoded_bytes(_header(head)[4])


def decode(data: bytes) -> Index:
    """The index, with every rule of the format held. BadDelta names the first one broken."""
    fields = _header(data[:HEADER_BYTES])
    window_bytes, count = fields[3], fields[4]
    if len(data) != encoded_bytes(count):
        _refuse(f"the index has {len(data)} bytes, its header says {encoded_bytes(count)}")
    if hashlib.sha256(data[:-HASH_BYTES]).digest() != data[-HASH_BYTES:]:
        _refuse("the hash of its index is wrong")
    source = Content(fields[6], fields[8])
    target = Content(fields[7], fields[9])
    windows: list[Window] = []
    dst_off = payload_off = 0
    entries = memoryview(data)[HEADER_BYTES:-HASH_BYTES]
    for number, raw in enumerate(_ENTRY.iter_unpack(entries)):
        window = _window(number, raw, dst_off)
        _judge(number, window, window_bytes, source, payload_off)
        dst_off, payload_off = window.dst_end, payload_off + window.payload_len
        if dst_off > target.size:
            _refuse(f"window {number} ends behind the target")
        windows.append(window)
    if dst_off != target.size:
        _refuse(f"its windows make {dst_off} bytes of {target.size}")
    if payload_off != fields[10]:
        _refuse(f"its payloads are {payload_off} bytes, its header says {fields[10]}")
    return Index(source, target, window_bytes, tuple(windows))


def _header(head: bytes) -> _Fields:
    if len(head) < HEADER_BYTES:
        _refuse("it is shorter than its header")
    fields: _Fields = _HEADER.unpack(head[:HEADER_BYTES])
    magic, version, size, window_bytes, count, zero, source_size, target_size = fields[:8]
    if magic != MAGIC:
        _refuse("this is not a delta")
    if version != VERSION:
        _refuse(f"format version {version} is not known here")
    if size != HEADER_BYTES or zero != 0:
        _refuse("its header has bytes that mean nothing")
    if not MIN_WINDOW_BYTES <= window_bytes <= MAX_WINDOW_BYTES:
        _refuse(f"windows of {window_bytes} bytes are not allowed")
    if count > MAX_WINDOWS:
        _refuse(f"{count} windows are more than {MAX_WINDOWS}")
    if max(source_size, target_size) > MAX_FILE_BYTES:
        _refuse("files of more than 1 TiB are not allowed")
    return fields


_Fields = tuple[bytes, int, int, int, int, int, int, int, bytes, bytes, int]


def _window(number: int, raw: tuple[int, ...], dst_off: int) -> Window:
    op, codec, kind_of_blocks, src_len, dst_len, payload_len, src_off, payload_off = raw[:8]
    hashes: tuple[bytes, bytes] = raw[8:]  # type: ignore[assignment]  # struct's two 32s
    try:
        kind, how = Op(op), Codec(codec)
    except ValueError:
        _refuse(f"window {number} has an unknown op {op} or codec {codec}")
    if how not in _ALLOWED[kind]:
        _refuse(f"window {number} is {kind.name} with codec {how.name}")
    if (kind_of_blocks in LAYOUTS) != (kind == Op.PLANES) or (kind != Op.PLANES and kind_of_blocks):
        _refuse(f"window {number} is {kind.name} with blocks of type {kind_of_blocks}")
    return Window(
        kind, how, src_off, src_len, dst_off, dst_len, payload_off, payload_len, *hashes,
        blocks=kind_of_blocks,
    )  # fmt: skip


def _judge(number: int, window: Window, most: int, source: Content, payload_off: int) -> None:
    name = f"window {number}"
    if not 0 < window.dst_len <= most:
        _refuse(f"{name} makes {window.dst_len} bytes; 1 to {most} are allowed")
    if window.src_len > SPAN_WINDOWS * most:
        _refuse(f"{name} reads {window.src_len} bytes of the source at once")
    if window.src_off + window.src_len > source.size:
        _refuse(f"{name} reads behind the end of the source")
    if window.payload_off != payload_off:
        _refuse(f"{name} has its payload at {window.payload_off}, not at {payload_off}")
    if window.payload_len > window.dst_len:
        _refuse(f"{name} has a payload larger than what it makes")
    _judge_op(name, window)


def _judge_op(name: str, window: Window) -> None:
    match window.op:
        case Op.COPY:
            if window.src_len != window.dst_len:
                _refuse(f"{name} copies {window.src_len} bytes into {window.dst_len}")
            if window.payload_len or window.payload_sha256 != NO_HASH:
                _refuse(f"{name} copies and has a payload")
        case Op.PLANES:
            if window.src_len != window.dst_len:
                _refuse(f"{name} makes {window.dst_len} bytes of planes over {window.src_len}")
        case Op.DATA:
            if window.src_len or window.src_off:
                _refuse(f"{name} is data and names a source")
            if window.codec == Codec.NONE and window.payload_len != window.dst_len:
                _refuse(f"{name} is plain data of another length")
    if window.op != Op.COPY and window.payload_len == 0:
        _refuse(f"{name} has no payload")


def _refuse(reason: str) -> NoReturn:
    raise BadDelta(f"cannot read the delta: {reason}")


def digest(data: bytes) -> bytes:
    """SHA-256, as the index and the manifest use it."""
    return hashlib.sha256(data).digest()
