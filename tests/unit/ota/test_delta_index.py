"""The index of a delta: what is right is read back, what is wrong is refused before it costs."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

import pytest

from stoker_ota.core import delta_index
from stoker_ota.errors import BadDelta
from stoker_ota.values.delta import Codec, Content, Index, Op, Window

SOURCE = Content(10_000, b"s" * 32)
SUM = b"h" * 32
COPY = Window(Op.COPY, Codec.NONE, 100, 4096, 0, 4096, 0, 0, delta_index.NO_HASH, SUM)
PATCH = Window(Op.BSDIFF, Codec.ZSTD, 0, 8192, 4096, 4096, 0, 70, SUM, SUM)
DATA = Window(Op.DATA, Codec.NONE, 0, 0, 8192, 100, 70, 100, SUM, SUM)
GOOD = Index(SOURCE, Content(8292, b"t" * 32), 4096, (COPY, PATCH, DATA))


def raw(index: Index) -> bytes:
    """As ``encode``, without its own check."""
    header = struct.pack(
        "<8sHHIIIQQ32s32sQ", b"STKDELTA", 1, 112, index.window_bytes, len(index.windows), 0,
        index.source.size, index.target.size, index.source.sha256, index.target.sha256,
        index.payload_bytes,
    )  # fmt: skip
    rows = [
        struct.pack(
            "<BBHIIIQQ32s32s", w.op, w.codec, w.blocks, w.src_len, w.dst_len, w.payload_len,
            w.src_off, w.payload_off, w.payload_sha256, w.dst_sha256,
        )
        for w in index.windows
    ]  # fmt: skip
    return sealed(header + b"".join(rows))


def sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def with_window(number: int, **changes: object) -> Index:
    windows = list(GOOD.windows)
    windows[number] = replace(windows[number], **changes)  # type: ignore[arg-type]
    return replace(GOOD, windows=tuple(windows))


def test_an_index_is_read_back_as_it_was() -> None:
    data = delta_index.encode(GOOD)
    assert delta_index.decode(data) == GOOD
    assert delta_index.index_bytes(data[: delta_index.HEADER_BYTES]) == len(data) == 112 + 288 + 32
    assert data == raw(GOOD)


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (with_window(0, dst_len=4095, src_len=4095), "make 8291 bytes of 8292"),
        (with_window(0, src_len=4095), "copies 4095 bytes into 4096"),
        (with_window(0, payload_sha256=SUM), "copies and has a payload"),
        (with_window(0, codec=Codec.BZ2), "COPY with codec BZ2"),
        (with_window(0, src_off=5905), "behind the end of the source"),
        (with_window(0, src_off=2**64 - 4096), "behind the end of the source"),
        (with_window(1, src_len=8193), "reads 8193 bytes of the source at once"),
        (with_window(1, dst_len=4097), "1 to 4096 are allowed"),
        (with_window(1, dst_len=0), "1 to 4096 are allowed"),
        (with_window(1, dst_len=2**32 - 1), "1 to 4096 are allowed"),
        (with_window(1, payload_len=4097), "larger than what it makes"),
        (with_window(1, payload_len=0), "no payload"),
        (with_window(1, codec=Codec.NONE), "BSDIFF with codec NONE"),
        (with_window(2, payload_off=69), "payload at 69, not at 70"),  # overlapping
        (with_window(2, payload_off=71), "payload at 71, not at 70"),  # a gap
        (with_window(1, blocks=12), "BSDIFF with blocks of type 12"),
        (with_window(1, op=Op.PLANES, codec=Codec.NONE, blocks=5), "PLANES with blocks of type 5"),
        (with_window(1, op=Op.PLANES, blocks=12), "PLANES with codec ZSTD"),
        (with_window(1, op=Op.PLANES, codec=Codec.NONE, blocks=12), "of planes over 8192"),
        (with_window(1, codec=Codec.DEFLATE), "BSDIFF with codec DEFLATE"),
        (with_window(2, src_len=1), "is data and names a source"),
        (with_window(2, payload_len=99), "plain data of another length"),
        (replace(GOOD, target=Content(8291, SUM)), "ends behind the target"),
        (replace(GOOD, target=Content(8293, SUM)), "make 8292 bytes of 8293"),
        (replace(GOOD, window_bytes=4095), "windows of 4095 bytes"),
        (replace(GOOD, window_bytes=4 * 2**20 + 1), "are not allowed"),
        (replace(GOOD, source=Content(2**41, SUM)), "1 TiB"),
        (replace(GOOD, windows=()), "make 0 bytes of 8292"),
    ],
)
def test_a_wrong_index_is_refused_with_its_reason(index: Index, reason: str) -> None:
    with pytest.raises(BadDelta, match=reason):
        delta_index.decode(raw(index))
    with pytest.raises(BadDelta):
        delta_index.encode(index)


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, b"STKDELTB", "not a delta"),
        (8, b"\2\0", "format version 2"),
        (10, b"\x71\0", "mean nothing"),
        (20, b"\1\0\0\0", "mean nothing"),
        (16, b"\4\0\0\0", "has 432 bytes, its header says 528"),
        (104, b"\0" * 8, "payloads are 170 bytes"),
        (112, b"\7", "unknown op 7"),
        (113, b"\7", "codec 7"),
        (114, b"\1", "COPY with blocks of type 1"),
        (112, b"\3", "PLANES with blocks of type 0"),
    ],
)
def test_a_wrong_byte_under_a_right_hash_is_refused(at: int, value: bytes, reason: str) -> None:
    body = bytearray(raw(GOOD)[:-32])
    body[at : at + len(value)] = value
    with pytest.raises(BadDelta, match=reason):
        delta_index.decode(sealed(bytes(body)))


def test_a_huge_count_is_refused_from_the_header_alone() -> None:
    head = bytearray(raw(GOOD)[:112])
    head[16:20] = b"\xff" * 4
    with pytest.raises(BadDelta, match="4294967295 windows are more than"):
        delta_index.index_bytes(bytes(head))


@pytest.mark.parametrize("length", [0, 1, 111, 112, 400, 431, 433])
def test_a_cut_index_is_refused(length: int) -> None:
    with pytest.raises(BadDelta):
        delta_index.decode((raw(GOOD) + b"\0")[:length])


def test_a_wrong_hash_is_refused() -> None:
    data = raw(GOOD)
    with pytest.raises(BadDelta, match="hash of its index"):
        delta_index.decode(data[:-1] + bytes([data[-1] ^ 1]))
