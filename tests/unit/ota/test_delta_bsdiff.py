"""bsdiff payloads: what bspatch would do with hostile ones, and that we do not."""

from __future__ import annotations

import bz2
import struct
import tracemalloc

import bsdiff4
import pytest
import zstandard

from stoker_ota.core import bsdiff, streams
from stoker_ota.errors import BadDelta, Dependency
from stoker_ota.values.delta import MAX_CONTROLS, Codec, Control, Patch

OLD = bytes(range(200)) * 5
NEW = OLD[300:800] + b"inserted" + OLD[:300]
BOTH = [Codec.BZ2, Codec.ZSTD]


def wire(value: int) -> bytes:
    return struct.pack("<Q", (1 << 63 | -value) if value < 0 else value)


def payload(
    controls: list[Control],
    diff: bytes = b"",
    extra: bytes = b"",
    *,
    new_len: int = 100,
    codec: Codec = Codec.BZ2,
) -> bytes:
    flat = b"".join(wire(number) for control in controls for number in control)
    parts = [streams.compress(codec, part) for part in (flat, diff, extra)]
    head = bsdiff.MAGICS[codec] + wire(len(parts[0])) + wire(len(parts[1])) + wire(new_len)
    return head + b"".join(parts)


def decode(data: bytes, codec: Codec = Codec.BZ2, new_len: int = 100) -> Patch:
    return bsdiff.decode(data, codec, src_len=1000, new_len=new_len)


@pytest.mark.parametrize("codec", BOTH)
def test_a_search_gives_a_patch_that_applies(codec: Codec) -> None:
    data = bsdiff.encode(bsdiff.search(OLD, NEW), len(NEW), codec, zstd_level=3)
    patch = bsdiff.decode(data, codec, src_len=len(OLD), new_len=len(NEW))
    assert bsdiff.apply(patch, OLD, len(NEW)) == NEW


def test_a_bz2_payload_is_a_file_that_other_bsdiffs_apply() -> None:
    data = bsdiff.encode(bsdiff.search(OLD, NEW), len(NEW), Codec.BZ2, zstd_level=3)
    assert bsdiff4.patch(OLD, data) == NEW


def test_a_payload_of_another_bsdiff_is_applied_here() -> None:
    patch = bsdiff.decode(bsdiff4.diff(OLD, NEW), Codec.BZ2, src_len=len(OLD), new_len=len(NEW))
    assert bsdiff.apply(patch, OLD, len(NEW)) == NEW


def test_without_bsdiff4_a_device_applies_and_a_maker_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patch = bsdiff.search(OLD, NEW)
    monkeypatch.setattr(bsdiff, "core", None)
    assert bsdiff.apply(patch, OLD, len(NEW)) == NEW
    for making in (bsdiff.search, bsdiff.subtract):
        with pytest.raises(Dependency, match="bsdiff4 is not installed"):
            making(OLD, OLD)


def test_subtracting_is_the_inverse_of_what_bspatch_adds() -> None:
    new, old = bytes(range(256)), bytes(range(255, -1, -1))
    assert bsdiff.subtract(new, old) == bytes((n - o) & 255 for n, o in zip(new, old, strict=True))
    assert bsdiff.subtract(b"", b"") == b""


@pytest.mark.parametrize("codec", BOTH)
@pytest.mark.parametrize(
    ("controls", "diff", "extra", "reason"),
    [
        ([(-1, 101, 0)], b"", b"e" * 101, "negative"),
        ([(0, -5, 0), (0, 105, 0)], b"", b"e" * 105, "negative"),
        ([(2**62, 0, 0)], b"", b"", "beside its source"),
        ([(1001, 0, 0)], b"", b"", "beside its source"),
        ([(0, 101, 0)], b"", b"e" * 101, "more than the window"),
        ([(50, 49, 0)], b"d" * 50, b"e" * 49, "less than the window"),
        ([], b"", b"", "less than the window"),
        ([(0, 50, 951), (50, 0, 0)], b"d" * 50, b"e" * 50, "beside its source"),  # far seek
        ([(0, 50, -1), (50, 0, 0)], b"d" * 50, b"e" * 50, "beside its source"),
        ([(0, 100, 2**60)], b"", b"e" * 100, "seeks further"),
        ([(0, 100, -(2**60))], b"", b"e" * 100, "seeks further"),
        ([(100, 0, 0)], b"d" * 99, b"", "shorter than its controls"),
        ([(100, 0, 0)], b"d" * 101, b"", "longer than it may be"),
        ([(0, 100, 0)], b"d", b"e" * 100, "longer than it may be"),
        ([(0, 100, 0)], b"", b"e" * 101, "longer than it may be"),
    ],
)
def test_hostile_controls_are_refused(
    controls: list[Control], diff: bytes, extra: bytes, reason: str, codec: Codec
) -> None:
    with pytest.raises(BadDelta, match=reason):
        decode(payload(controls, diff, extra, codec=codec), codec)


@pytest.mark.parametrize("codec", BOTH)
def test_too_many_controls_are_refused(codec: Codec) -> None:
    controls = [(0, 0, 0)] * (MAX_CONTROLS + 1)
    with pytest.raises(BadDelta, match="longer than it may be"):
        decode(payload(controls, codec=codec), codec)


@pytest.mark.parametrize("field", [8, 16, 24])
@pytest.mark.parametrize("value", [2**64 - 1, 2**63, 2**63 - 1, 2**40])
def test_a_header_with_huge_or_negative_lengths_is_refused(field: int, value: int) -> None:
    data = bytearray(payload([(0, 100, 0)], extra=b"e" * 100))
    data[field : field + 8] = struct.pack("<Q", value)
    with pytest.raises(BadDelta):
        decode(bytes(data))


@pytest.mark.parametrize("codec", BOTH)
def test_no_cut_payload_passes(codec: Codec) -> None:
    data = payload([(50, 50, 0)], b"d" * 50, b"e" * 50, codec=codec)
    assert decode(data, codec).diff == b"d" * 50
    for length in range(len(data)):
        with pytest.raises(BadDelta):
            decode(data[:length], codec)
    with pytest.raises(BadDelta):
        decode(data + b"\0", codec)


def test_the_magic_belongs_to_the_codec() -> None:
    with pytest.raises(BadDelta, match="another magic"):
        decode(payload([(0, 100, 0)], extra=b"e" * 100), Codec.ZSTD)


def zstd_bomb() -> bytes:
    return zstandard.ZstdCompressor(level=19).compress(bytes(256 << 20))


def streamed_zstd() -> bytes:
    """A frame that does not say how much it holds."""
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(bytes(16 << 20)) + packer.flush()


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (Codec.BZ2, bz2.compress(bytes(256 << 20))),
        (Codec.ZSTD, zstd_bomb()),
        (Codec.ZSTD, streamed_zstd()),
    ],
    ids=["bz2", "zstd", "zstd-streamed"],
)
def test_a_bomb_takes_no_memory(codec: Codec, bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadDelta):
            streams.decompress(codec, bomb, at_most=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_frame_that_lies_about_its_length_is_refused() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(b"x" * 200))
    assert frame[5] == 200  # magic, descriptor, then the length in one byte
    frame[5] = 201
    with pytest.raises(BadDelta):
        streams.decompress(Codec.ZSTD, bytes(frame), at_most=1000)


@pytest.mark.parametrize("codec", BOTH)
def test_a_second_stream_behind_the_first_is_refused(codec: Codec) -> None:
    one = streams.compress(codec, b"one")
    assert streams.decompress(codec, one, at_most=3) == b"one"
    with pytest.raises(BadDelta):
        streams.decompress(codec, one + one, at_most=6)
    with pytest.raises(BadDelta):
        streams.decompress(codec, one + b"\0", at_most=6)


@pytest.mark.parametrize("codec", [Codec.NONE, *BOTH])
def test_a_stream_may_be_exactly_as_long_as_allowed(codec: Codec) -> None:
    for length in (0, 1, 1000):
        data = streams.compress(codec, b"y" * length)
        assert streams.decompress(codec, data, at_most=length) == b"y" * length
        if length:
            with pytest.raises(BadDelta):
                streams.decompress(codec, data, at_most=length - 1)
