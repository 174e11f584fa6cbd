"""Where a GGUF file keeps its tensors, and files that were made to hurt the reader."""

from __future__ import annotations

import struct

import pytest
from tests.fakes.delta_files import FakeModel, FakeTensor

from stoker_ota.core import gguf_layout
from stoker_ota.errors import BadGguf

MODEL = FakeModel(
    (FakeTensor("a", b"A" * 40, 2, (4, 8)), FakeTensor("b", b"B" * 64), FakeTensor("c", b"")),
    {"general.name": "x", "tokens": ["one", "two", "three"], "n": 7},
)


def header(tensors: int = 0, keys: int = 0, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def name(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def tensor(label: bytes, offset: int, dimensions: int = 1) -> bytes:
    shape = struct.pack(f"<I{dimensions}Q", dimensions, *[32] * dimensions)
    return name(label) + shape + struct.pack("<IQ", 2, offset)


def test_tensors_are_found_with_their_stretches() -> None:
    data = MODEL.file()
    layout = gguf_layout.parse(data, len(data))
    assert [(t.name, t.kind, t.shape, t.length) for t in layout.tensors] == [
        ("a", 2, (4, 8), 64), ("b", 8, (32,), 64), ("c", 8, (32,), 0),
    ]  # fmt: skip
    first = layout.tensors[0]
    assert first.offset == layout.data_off
    assert data[first.offset : first.offset + 40] == b"A" * 40
    assert layout.tensors[-1].end == layout.size == len(data)


def test_another_alignment_is_obeyed() -> None:
    model = FakeModel(MODEL.tensors, {**MODEL.keys, "general.alignment": 128})
    data = model.file(128)
    layout = gguf_layout.parse(data, len(data))
    assert layout.data_off % 128 == 0
    assert data[layout.tensors[1].offset :][:64] == b"B" * 64


def test_every_cut_asks_for_more_or_is_refused() -> None:
    data = MODEL.file()
    end = gguf_layout.parse(data, len(data)).data_off - 31
    for length in range(end):
        with pytest.raises((gguf_layout.MoreNeeded, BadGguf)):
            gguf_layout.parse(data[:length], len(data))
        with pytest.raises(BadGguf):
            gguf_layout.parse(data[:length], length)


LIMITS = (
    header(version=1), header(version=3 << 24), b"GGML" + bytes(20),
    header(2**64 - 1), header(0, 2**63), header(65537), header(0, 65537),
    header(0, 1, name(b"k") + struct.pack("<I", 13)),
    header(0, 1, name(b"k") + struct.pack("<IQ", 8, 2**64 - 1)),
    header(0, 1, struct.pack("<Q", 2**64 - 8)),
    header(0, 1, name(b"k" * 1025)),
    header(0, 1, name(b"k") + struct.pack("<IIQ", 9, 8, 2**63)),
    header(0, 1, name(b"k") + struct.pack("<IIQ", 9, 10, 2**61)),
    header(0, 1, name(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9),
    header(0, 1, name(b"general.alignment") + struct.pack("<II", 4, 0)),
    header(0, 1, name(b"general.alignment") + struct.pack("<II", 4, 48)),
    header(0, 1, name(b"general.alignment") + struct.pack("<II", 4, 2**31)),
    header(0, 1, name(b"general.alignment") + struct.pack("<IQ", 10, 32)),
    header(1, 0, tensor(b"t", 0, 9)),
    header(1, 0, tensor(b"t", 7)), header(1, 0, tensor(b"t", 32)),
    header(1, 0, tensor(b"t", 2**63)), header(2, 0, tensor(b"t", 0) + tensor(b"u", 2**40)),
    header(2, 0, tensor(b"t", 0) + tensor(b"t", 32)),
)  # fmt: skip


@pytest.mark.parametrize("data", LIMITS, ids=range(len(LIMITS)))
def test_a_hostile_header_is_refused(data: bytes) -> None:
    padded = data + bytes(256)
    with pytest.raises(BadGguf):
        gguf_layout.parse(padded, len(padded))


def test_a_value_longer_than_any_header_is_refused_though_the_file_is_longer() -> None:
    data = header(0, 1, name(b"k") + struct.pack("<IQ", 8, 2**30))
    with pytest.raises(BadGguf, match="too long"):
        gguf_layout.parse(data, 2**40)
