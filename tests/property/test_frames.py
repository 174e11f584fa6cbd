"""Any bodies, cut anywhere, come out as they went in; any bytes give bodies or FrameError."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.core.frames import FrameDecoder, FrameError, encode

_text = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates too
_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _text
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3)
)
_bodies = st.dictionaries(_text, _values, max_size=4)


@given(st.lists(_bodies, max_size=4), st.data())
def test_bodies_survive_any_cutting(bodies: list[dict[str, object]], data: st.DataObject) -> None:
    stream = b"".join(encode(body) for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    decoder = FrameDecoder()
    out: list[dict[str, object]] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        out += decoder.feed(stream[start:end])
    assert out == bodies
    assert decoder.pending_bytes == 0


@given(st.binary(max_size=64) | st.binary(max_size=40).map(lambda tail: b"SK\x01\x01" + tail))
def test_hostile_bytes_never_raise_anything_else(data: bytes) -> None:
    decoder = FrameDecoder(max_body_bytes=32)
    try:
        decoder.feed(data)
    except FrameError:
        return
    assert decoder.pending_bytes <= len(data)


@given(_bodies, st.integers(0, 200))
def test_one_flipped_byte_is_never_taken_for_more_frames(body: dict[str, object], at: int) -> None:
    frame = bytearray(encode(body))
    frame[at % len(frame)] ^= 0x20
    try:
        out = FrameDecoder().feed(bytes(frame))
    except FrameError:
        return
    assert len(out) <= 1
