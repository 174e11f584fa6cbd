"""Files in memory, small GGUF files, and a delta made or applied in one call."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stoker_ota.drivers.pool import InlinePool
from stoker_ota.errors import FileUnreadable
from stoker_ota.services import delta_apply, delta_make
from stoker_ota.services.delta_make import Making
from stoker_ota.values.report import Made

SMALL = Making(window_bytes=4096, max_ratio=2.0)


class MemoryFile:
    """Reads as a file does: short reads are errors. Counts the bytes it was asked for."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def read_at(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > len(self.data):
            raise FileUnreadable("cannot read the file: it ended early")
        return bytes(self.data[offset : offset + length])

    def write_at(self, offset: int, data: bytes) -> None:
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data

    def sync(self) -> None:
        self.synced += 1


def made(old: bytes, new: bytes, how: Making = SMALL) -> tuple[bytes, Made]:
    """The delta and its report."""
    out, source, target = MemoryFile(), MemoryFile(old), MemoryFile(new)
    report = delta_make.make(source, target, out, InlinePool(source, target), how)
    return bytes(out.data), report


def applied(delta: bytes, old: bytes) -> bytes:
    """What the delta makes of ``old``; any error of the package."""
    opened, out = delta_apply.open_delta(MemoryFile(delta)), MemoryFile()
    delta_apply.write(opened, MemoryFile(old), out)
    return bytes(out.data)


@dataclass(frozen=True, slots=True)
class FakeTensor:
    name: str
    data: bytes
    kind: int = 8
    shape: tuple[int, ...] = (32,)


@dataclass(frozen=True, slots=True)
class FakeModel:
    """``keys`` are strings; lists of strings become arrays."""

    tensors: Sequence[FakeTensor] = ()
    keys: Mapping[str, str | Sequence[str] | int] = field(default_factory=dict)

    def file(self, alignment: int = 32) -> bytes:
        head = [b"GGUF", struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))]
        for key, value in self.keys.items():
            head.append(_text(key) + _value(value))
        at, body = 0, b""
        for tensor in self.tensors:
            shape = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
            head.append(_text(tensor.name) + shape + struct.pack("<IQ", tensor.kind, at))
            body += _padded(tensor.data, alignment)
            at = len(body)
        return _padded(b"".join(head), alignment) + body


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: str | Sequence[str] | int) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))


def _padded(data: bytes, alignment: int) -> bytes:
    return data + bytes(-len(data) % alignment)
