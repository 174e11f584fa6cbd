"""Broken model files are refused with a reason before llama.cpp sees them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from stoker.errors import ModelUnavailable
from stoker.runner import gguf


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _tokens(*tokens: bytes) -> bytes:
    body = b"".join(map(_text, tokens))
    return _text(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, len(tokens)) + body


def _file(
    *,
    version: int = 3,
    keys: tuple[bytes, ...] = (),
    claims: tuple[int, int] | None = None,
    extents: tuple[int, ...] = (32, 2),
    kind: int = 8,
    offset: int = 0,
    data: int = 68,
) -> bytes:
    """A GGUF with one tensor; by default a healthy one (two rows of Q8_0)."""
    tensors, count = claims or (1, len(keys))
    head = b"GGUF" + struct.pack("<Iqq", version, tensors, count) + b"".join(keys)
    info = _text(b"weight") + struct.pack("<I", len(extents))
    info += struct.pack(f"<{len(extents)}q", *extents) + struct.pack("<IQ", kind, offset)
    padding = -(len(head) + len(info)) % 32
    return head + info + b"\0" * (padding + data)


_ALIGNMENT = _text(b"general.alignment") + struct.pack("<II", 4, 32)
_NAME = _text(b"general.name") + struct.pack("<I", 8) + _text(b"na\xffme")


def _check(tmp_path: Path, content: bytes) -> int:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    return gguf.check(str(path))


def test_healthy_file_passes_and_tells_its_size(tmp_path: Path) -> None:
    content = _file(keys=(_ALIGNMENT, _NAME, _tokens(b"a", b"b")))
    assert _check(tmp_path, content) == len(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "only 0 bytes"),
        (b"GGUF", "only 4 bytes"),
        (b"PK\3\4" + b"\0" * 60, "not a GGUF file"),
        (_file(version=1), "version 1"),
        (_file(version=1 << 24), "version"),
        (_file(claims=(1 << 62, 0)), "tensors"),
        (_file(claims=(-1, 0)), "tensors"),
        (_file(claims=(0, 0)), "no tensors"),
        (_file(claims=(1, 1 << 40)), "metadata keys"),
        (_file(data=67), "cut short"),
        (_file(offset=1 << 40), "cut short"),
        (_file(offset=7), "not aligned"),
        (_file(extents=(1 << 50, 1)), "along one dimension"),
        (_file(extents=(-4, 1)), "along one dimension"),
        (_file(extents=(1, 1, 1, 1, 1)), "5 dimensions"),
        (_file(extents=(33, 1)), "fill its blocks"),
        (_file(keys=(_text(b"k") + struct.pack("<I", 99),)), "unknown type 99"),
        (_file(keys=(struct.pack("<Q", 1 << 60),)), "bytes in a string"),
        (_file(keys=(_text(b"k") + struct.pack("<IIQ", 9, 4, 1 << 60),)), "items"),
        (_file(keys=(_text(b"k") + struct.pack("<IIQ", 9, 8, 1 << 20),)), "cut short"),
        (_file(keys=(_text(b"k") + struct.pack("<IIQ", 9, 9, 1),)), "unknown type 9"),
        (_file(keys=(_text(b"general.alignment") + struct.pack("<II", 4, 3),)), "power of two"),
        (_file(keys=(_tokens(b"a", b"a"),)), "token twice"),
    ],
)
def test_broken_file_is_refused_with_its_reason(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    with pytest.raises(ModelUnavailable, match=reason) as caught:
        _check(tmp_path, content)
    assert str(tmp_path) in caught.value.message
    assert caught.value.hint


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    content = _file(keys=(_ALIGNMENT, _NAME, _tokens(b"a", b"b")))
    for end in range(len(content)):
        with pytest.raises(ModelUnavailable):
            _check(tmp_path, content[:end])


def test_things_that_are_no_file_are_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path, tmp_path / "missing", fifo):
        with pytest.raises(ModelUnavailable):
            gguf.check(str(path))
