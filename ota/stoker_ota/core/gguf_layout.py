"""Reads where a GGUF file keeps its tensors, from its first bytes and nothing else.

The format is that of ggml's ``docs/gguf.md``, versions 2 and 3, little-endian. A file may be
hostile: every count has a limit before a loop runs, every length stays inside the header.
Types are not interpreted: a tensor ends where the next one begins, so types of the future work.
"""

from __future__ import annotations

import struct
from typing import Final, NoReturn

from stoker_ota.errors import BadGguf
from stoker_ota.units import MIB
from stoker_ota.values.gguf import Layout, Tensor

MAGIC: Final = b"GGUF"
MAX_HEADER_BYTES: Final = 256 * MIB
MAX_TENSORS: Final = 65536
MAX_KEYS: Final = 65536
MAX_NAME_BYTES: Final = 1024
MAX_ARRAY_ITEMS: Final = 1 << 24
MAX_DIMENSIONS: Final = 8
MAX_NESTING: Final = 4
_DEFAULT_ALIGNMENT: Final = 32
_MAX_ALIGNMENT: Final = MIB
_MAX_OFFSET: Final = 1 << 48
# uint8 int8 uint16 int16 uint32 int32 float32 bool; uint64 int64 float64
_SIZES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_UINT32: Final = 4
_STRING: Final = 8
_ARRAY: Final = 9


class MoreNeeded(Exception):
    """The header goes on behind the bytes that were given."""


def parse(head: bytes, file_size: int) -> Layout:
    """The layout of a file that begins with ``head``. BadGguf; MoreNeeded asks for more bytes."""
    reader = _Reader(head, file_size)
    if reader.take(4) != MAGIC:
        _refuse("its magic is missing")
    version = reader.u32()
    if version not in (2, 3):
        known = "big-endian files" if version in (2 << 24, 3 << 24) else f"version {version}"
        _refuse(f"{known} cannot be read here")
    tensor_count, key_count = reader.u64(), reader.u64()
    if tensor_count > MAX_TENSORS or key_count > MAX_KEYS:
        _refuse(f"{tensor_count} tensors and {key_count} keys are too many")
    alignment = _DEFAULT_ALIGNMENT
    for _ in range(key_count):
        key, kind = reader.text(), reader.u32()
        if key == b"general.alignment":
            if kind != _UINT32:
                _refuse("general.alignment is no uint32")
            alignment = reader.u32()
        else:
            reader.skip_value(kind)
    if not 1 <= alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        _refuse(f"an alignment of {alignment} is not allowed")
    found = [_tensor(reader, alignment) for _ in range(tensor_count)]
    data_off = -(-reader.at // alignment) * alignment
    return Layout(file_size, min(data_off, file_size), _placed(found, data_off, file_size))


class _Reader:
    """A cursor that never leaves the header."""

    def __init__(self, data: bytes, file_size: int) -> None:
        self._data = data
        self._file_size = file_size
        self.at = 0

    def take(self, length: int) -> bytes:
        start = self.at
        self.skip(length)
        return self._data[start : self.at]

    def skip(self, length: int) -> None:
        end = self.at + length
        if end > self._file_size:
            _refuse("it is cut off")
        if end > MAX_HEADER_BYTES:
            _refuse("its header is too long")
        if end > len(self._data):
            raise MoreNeeded
        self.at = end

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def text(self) -> bytes:
        length = self.u64()
        if length > MAX_NAME_BYTES:
            _refuse(f"a name of {length} bytes is not allowed")
        return self.take(length)

    def skip_value(self, kind: int, depth: int = 0) -> None:
        if kind in _SIZES:
            self.skip(_SIZES[kind])
        elif kind == _STRING:
            self.skip(self.u64())
        elif kind == _ARRAY:
            item, count = self.u32(), self.u64()
            if count > MAX_ARRAY_ITEMS or depth >= MAX_NESTING:
                _refuse("an array is too long or too deep")
            if item in _SIZES:
                self.skip(_SIZES[item] * count)
            elif item == _STRING:
                self._skip_strings(count)
            else:
                for _ in range(count):
                    self.skip_value(item, depth + 1)
        else:
            _refuse(f"a value has the unknown type {kind}")

    def _skip_strings(self, count: int) -> None:
        """As ``skip(u64())`` for each, but a vocabulary has some 10⁵ of them."""
        unpack, data = struct.Struct("<Q").unpack_from, self._data
        at, last = self.at, len(self._data) - 8
        for _ in range(count):
            if at > last:
                break
            at += 8 + unpack(data, at)[0]
        else:
            self.skip(at - self.at)
            return
        self.skip(at + 8 - self.at)  # raises: refused, or more is needed
        raise MoreNeeded


def _tensor(reader: _Reader, alignment: int) -> tuple[bytes, int, tuple[int, ...], int]:
    name = reader.text()
    dimensions = reader.u32()
    if dimensions > MAX_DIMENSIONS:
        _refuse(f"a tensor has {dimensions} dimensions")
    shape = tuple(reader.u64() for _ in range(dimensions))
    kind, offset = reader.u32(), reader.u64()
    if offset % alignment or offset > _MAX_OFFSET:
        _refuse("a tensor's offset is not aligned")
    return name, kind, shape, offset


def _placed(
    found: list[tuple[bytes, int, tuple[int, ...], int]], data_off: int, file_size: int
) -> tuple[Tensor, ...]:
    """Sorted by offset, each up to the next one."""
    if len({name for name, *_ in found}) != len(found):
        _refuse("two tensors have the same name")
    found.sort(key=lambda one: one[3])
    if found and found[0][3] != 0:
        _refuse("its first tensor does not begin with the data")
    starts = [data_off + offset for *_, offset in found]
    if any(start > file_size for start in starts):
        _refuse("a tensor begins behind the end of the file")
    ends = [*starts, file_size][1:]
    return tuple(
        Tensor(name.decode("utf-8", "backslashreplace"), kind, shape, start, end - start)
        for (name, kind, shape, _), start, end in zip(found, starts, ends, strict=True)
    )


def _refuse(reason: str) -> NoReturn:
    raise BadGguf(
        f"cannot read the GGUF file: {reason}",
        hint="--plain makes the delta without looking at tensors",
    )
