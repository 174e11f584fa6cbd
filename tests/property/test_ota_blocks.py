"""Planes of quantised blocks: split and joined again for every type, whatever the bytes say."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker_ota.core import blocks, bsdiff, planes, streams
from stoker_ota.errors import BadDelta
from stoker_ota.values.delta import Codec

_kinds = st.sampled_from(sorted(blocks.LAYOUTS))
ALL = (Codec.ZSTD, Codec.BZ2, Codec.DEFLATE)
_SIZES = {
    1: 2,
    2: 18,
    3: 20,
    6: 22,
    7: 24,
    8: 34,
    10: 84,
    11: 110,
    12: 144,
    13: 176,
    14: 210,
    30: 2,
}


def test_the_blocks_are_as_long_as_ggml_s_and_every_byte_is_in_one_field() -> None:
    assert {kind: blocks.block_bytes(kind) for kind in blocks.LAYOUTS} == _SIZES
    for layout in blocks.LAYOUTS.values():
        columns = sorted(column for field in layout.fields for column in field)
        assert columns == list(range(layout.size))


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[int, bytes, bytes]:
    kind = draw(_kinds)
    length = draw(st.integers(0, 3)) * blocks.block_bytes(kind)
    length += draw(st.integers(0, blocks.block_bytes(kind) - 1))
    chance = random.Random(draw(st.integers(0, 1 << 32)))
    old = chance.randbytes(length)
    if draw(st.booleans()):
        return kind, old, chance.randbytes(length)
    near = bytes((byte + chance.choice((0, 0, 0, 1, 255, 16, 240))) & 255 for byte in old)
    return kind, old, near


@given(_pairs())
def test_what_was_split_is_joined_again_and_the_sizes_were_known(
    pair: tuple[int, bytes, bytes],
) -> None:
    kind, old, new = pair
    parts = blocks.split(kind, old, new)
    assert tuple(map(len, parts)) == blocks.sizes(kind, len(new))
    assert blocks.join(kind, old, parts) == new


@given(_pairs())
def test_it_is_joined_without_bsdiff4_too(pair: tuple[int, bytes, bytes]) -> None:
    kind, old, new = pair
    parts, kept = blocks.split(kind, old, new), bsdiff.core
    bsdiff.core = None
    try:
        assert blocks.join(kind, old, parts) == new
    finally:
        bsdiff.core = kept


@given(_pairs(), st.integers(0, 1 << 32))
def test_hostile_planes_make_a_window_of_the_right_length(
    pair: tuple[int, bytes, bytes], seed: int
) -> None:
    kind, old, _ = pair
    chance = random.Random(seed)
    parts = [chance.randbytes(size) for size in blocks.sizes(kind, len(old))]
    assert len(blocks.join(kind, old, parts)) == len(old)


@given(_pairs())
def test_nothing_changed_makes_planes_of_nothing(pair: tuple[int, bytes, bytes]) -> None:
    kind, old, _ = pair
    assert not any(map(any, blocks.split(kind, old, old)))


@given(_pairs(), st.sampled_from([(Codec.BZ2,), ALL, ()]))
def test_a_payload_gives_the_window_back(
    pair: tuple[int, bytes, bytes], codecs: tuple[Codec, ...]
) -> None:
    kind, old, new = pair
    payload = planes.encode(kind, old, new, codecs, zstd_level=3)
    assert planes.decode(kind, payload, old) == new


@given(_pairs(), st.data())
def test_a_changed_payload_is_refused_or_makes_another_window_of_the_same_length(
    pair: tuple[int, bytes, bytes], data: st.DataObject
) -> None:
    kind, old, new = pair
    payload = bytearray(planes.encode(kind, old, new, ALL, zstd_level=3))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(payload)))
    for changed in (bytes(payload), bytes(payload[:cut]), bytes(payload) + b"x"):
        try:
            assert len(planes.decode(kind, changed, old)) == len(old)
        except BadDelta:
            continue


@given(_kinds, st.binary(max_size=400), st.integers(0, 300))
def test_hostile_payloads_are_refused_and_nothing_else(kind: int, tail: bytes, length: int) -> None:
    for payload in (tail, planes.MAGIC + tail):
        try:
            assert len(planes.decode(kind, payload, bytes(length))) == length
        except BadDelta:
            continue


def test_a_small_change_of_six_bit_weights_leaves_their_upper_bits_alone() -> None:
    """The point of it: a weight that goes from 15 to 16 changes both, and one is told."""
    chance = random.Random(4)
    weights = [chance.randrange(4, 60) for _ in range(256)]
    moved = [value + chance.choice((-1, 0, 1)) for value in weights]
    _, _, upper, *_ = blocks.split(14, _q6(weights), _q6(moved))
    assert upper == bytes(64)
    assert any(bsdiff.subtract(_q6(moved), _q6(weights))[128:192])  # byte by byte both change


def _q6(values: list[int]) -> bytes:
    """One block as ggml packs it: dequantize_row_q6_K read backwards."""
    low, high = bytearray(128), bytearray(64)
    for number, value in enumerate(values):
        half, at = divmod(number, 128)
        row, lane = divmod(at, 32)
        low[64 * half + 32 * (row % 2) + lane] |= (value & 15) << (4 * (row // 2))
        high[32 * half + lane] |= (value >> 4) << (2 * row)
    return bytes(low + high) + bytes(18)


def test_scales_that_change_by_one_cost_a_byte_of_one() -> None:
    """Of Q4_K: scale 5 goes from 15 to 16, and so does a bit that lies eight bytes before."""
    old, new = bytearray(144), bytearray(144)
    old[13] = 15  # the low half of scale 5
    new[5], new[13] = 1 << 6, 0  # its upper bits lie over scale 1
    parts = blocks.split(12, bytes(old), bytes(new))
    assert [sum(map(bool, part)) for part in parts] == [0, 0, 1, 0, 0, 0]
    assert sorted(parts[2]) == [0] * 7 + [1]


@pytest.mark.parametrize("codec", [Codec.DEFLATE])
@pytest.mark.parametrize("length", [0, 1, 5000])
def test_a_deflate_stream_is_exactly_as_long_as_it_may_be(codec: Codec, length: int) -> None:
    data = random.Random(1).randbytes(length)
    packed = streams.compress(codec, data)
    assert streams.decompress(codec, packed, at_most=length) == data
    for bad in (packed[:-1], packed + b"x", b"", b"\xff" * 9):
        with pytest.raises(BadDelta):
            streams.decompress(codec, bad, at_most=length)
    if length:
        with pytest.raises(BadDelta, match="longer"):
            streams.decompress(codec, packed, at_most=length - 1)


def test_a_deflate_bomb_stops_at_the_first_byte_too_many() -> None:
    import zlib

    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = packer.compress(bytes(64 << 20)) + packer.flush()
    with pytest.raises(BadDelta, match="longer"):
        streams.decompress(Codec.DEFLATE, bomb, at_most=1000)


def test_a_payload_whose_lengths_lie_is_refused_before_anything_is_unpacked() -> None:
    old = bytes(144)
    head = planes.MAGIC + struct.pack("<BI", Codec.BZ2, 1 << 31) * len(blocks.sizes(12, 144))
    with pytest.raises(BadDelta, match="as long as"):
        planes.decode(12, head, old)
