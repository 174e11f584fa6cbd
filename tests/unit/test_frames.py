"""Frames between stokerd and the runner: limits, and streams that are out of step."""

from __future__ import annotations

import struct

import pytest

from stoker.core.frames import HEADER_BYTES, FrameDecoder, FrameError, encode


def _header(magic: bytes = b"SK", *, version: int = 1, kind: int = 1, length: int = 0) -> bytes:
    return struct.pack("!2sBBI", magic, version, kind, length)


def test_the_bytes_of_a_frame_are_as_documented() -> None:
    assert encode({"k": "ping"}) == b"SK\x01\x01\x00\x00\x00\x0c" + b'{"k":"ping"}'


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_header(b"XX"), "bad magic"),
        (_header(version=2), "version 2, this side speaks 1"),
        (_header(kind=9), "unknown kind 9"),
        (_header(length=1 << 31), "is over"),
        (_header(length=2) + b"[]", "not an object"),
        (_header(length=2) + b"{]", "cannot read frame"),
        (_header(length=1) + b"\xff", "cannot read frame"),
        (_header(length=200_000) + b"[" * 200_000, "cannot read frame"),
    ],
)
def test_what_breaks_the_framing_is_an_error(data: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        FrameDecoder().feed(data)


def test_a_length_over_the_cap_is_refused_before_its_body_comes() -> None:
    with pytest.raises(FrameError, match="body of 11 bytes is over 10"):
        FrameDecoder(max_body_bytes=10).feed(_header(length=11))


def test_the_sender_keeps_to_the_cap_too() -> None:
    with pytest.raises(FrameError, match="cannot send frame"):
        encode({"text": "x" * 100}, max_body_bytes=50)


def test_pending_bytes_tell_a_cut_stream_from_a_clean_end() -> None:
    frame = encode({"a": 1})
    decoder = FrameDecoder()
    assert decoder.feed(frame + frame[: HEADER_BYTES - 1]) == [{"a": 1}]
    assert decoder.pending_bytes == HEADER_BYTES - 1
    assert decoder.feed(frame[HEADER_BYTES - 1 :]) == [{"a": 1}]
    assert decoder.pending_bytes == 0


def test_frames_before_a_broken_one_in_the_same_bytes_do_not_hide_it() -> None:
    with pytest.raises(FrameError, match="bad magic"):
        FrameDecoder().feed(encode({"a": 1}) + _header(b"zz"))
