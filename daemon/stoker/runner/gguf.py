"""A bounded look at a GGUF file before llama.cpp parses it.

Corrupt and truncated files shall be refused with a reason; some of them make the
library abort. This is no proof of health: flipped weights pass, only a hash finds those.
What the header says is kept as far as it is small; ``runner.facts`` makes sense of it.
Format: ggml's docs/gguf.md, versions 2 and 3, little endian.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
import struct
from dataclasses import dataclass, field
from typing import Final

from stoker.errors import ModelUnavailable

MAX_TENSORS: Final = 65_536
MAX_KEYS: Final = 65_536
MAX_KEY_BYTES: Final = 65_535
MAX_STRING_BYTES: Final = 64 * 1024 * 1024
MAX_ITEMS: Final = 16 * 1024 * 1024
MAX_KEPT: Final = 4096  # bytes or items; a longer value is no fact that anybody needs
MAX_KEPT_TOTAL: Final = 1 << 20
_SIZES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING: Final = 8
_ARRAY: Final = 9
_U32: Final = 4
_LAYOUTS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 7: "<?", 10: "<Q", 11: "<q",
}  # fmt: skip
# ggml type -> (values in a block, bytes of a block); an unknown type is left to llama.cpp
_BLOCKS: Final = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    9: (32, 36), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    15: (256, 292), 16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18),
    21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4),
    27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip
_UNIQUE: Final = b"tokenizer.ggml.tokens"  # llama.cpp asserts that no token comes twice


@dataclass(frozen=True, slots=True)
class Tensor:
    name: bytes
    kind: int  # ggml's number of the type
    extents: tuple[int, ...]  # the row first
    bytes: int  # 0 = of a type not known here


@dataclass(slots=True)
class Header:
    """Whole numbers, short texts and short lists of whole numbers, by key; and the tensors."""

    size_bytes: int = 0
    values: dict[str, int | str | tuple[int, ...]] = field(default_factory=dict)
    vocabulary: int = 0  # tokens listed
    tensors: list[Tensor] = field(default_factory=list)


def check(path: str) -> int:
    """Size of the file in bytes; raises ModelUnavailable with the reason it is refused."""
    return read(path).size_bytes


def read(path: str) -> Header:
    """The checked header; raises ModelUnavailable with the reason it is refused."""
    try:
        with open(path, "rb", opener=_open) as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise refuse(path, "it is not a regular file")
            if facts.st_size < 24:
                raise refuse(path, f"it has only {facts.st_size} bytes")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data, facts.st_size).read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise refuse(path, reason or "it cannot be read") from error


def _open(path: str, flags: int) -> int:
    # a fifo with no writer would block for ever
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def refuse(path: str, reason: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"cannot load model {path}: {reason}",
        hint="check the path, or fetch the model again and compare its SHA-256",
    )


class _Reader:
    def __init__(self, path: str, data: mmap.mmap, size: int) -> None:
        self._path = path
        self._data = data
        self._size = size
        self._at = 0
        self._alignment = 32
        self._header = Header(size)
        self._kept = 0

    def read(self) -> Header:
        if self._data[:4] != b"GGUF":
            raise refuse(self._path, "it is not a GGUF file")
        self._at = 4
        version = self._number("<I")
        if version not in (2, 3):
            raise refuse(self._path, f"GGUF version {version} is not 2 or 3")
        tensors = self._bounded("<q", MAX_TENSORS, "tensors")
        keys = self._bounded("<q", MAX_KEYS, "metadata keys")
        if tensors < 1:
            raise refuse(self._path, "it holds no tensors")
        for _ in range(keys):
            self._pair()
        end = max((self._tensor() for _ in range(tensors)), default=0)
        start = -(-self._at // self._alignment) * self._alignment
        if start + end > self._size:
            raise refuse(
                self._path,
                f"it is cut short: {self._size} bytes of at least {start + end}",
            )
        return self._header

    def _pair(self) -> None:
        key = self._string(MAX_KEY_BYTES)
        name = key.decode("utf-8", "replace")
        kind = self._number("<I")
        if kind == _STRING:
            text = self._string(MAX_STRING_BYTES)
            if self._room(len(text)):
                self._header.values[name] = text.decode("utf-8", "replace")
        elif kind == _ARRAY:
            self._array(key, name)
        elif kind in _LAYOUTS:
            value = self._number(_LAYOUTS[kind])
            if self._room(1):
                self._header.values[name] = value
            if key == b"general.alignment" and kind == _U32:
                self._align(value)
        else:
            self._skip(self._width(kind))

    def _room(self, size: int) -> bool:
        """A header may hold 65,536 keys: what is kept of them all is bounded too."""
        kept = self._kept + size + 64
        if size > MAX_KEPT or kept > MAX_KEPT_TOTAL:
            return False
        self._kept = kept
        return True

    def _align(self, value: int) -> None:
        self._alignment = value
        if value < 1 or value & (value - 1):
            raise refuse(self._path, f"alignment {value} is no power of two")

    def _array(self, key: bytes, name: str) -> None:
        kind = self._number("<I")
        count = self._bounded("<Q", MAX_ITEMS, "items in an array")
        if key == _UNIQUE:
            self._header.vocabulary = count
        if kind == _STRING:
            self._strings(count, unique=key == _UNIQUE)
        elif kind in _LAYOUTS and self._room(count):
            layout = _LAYOUTS[kind]
            self._header.values[name] = tuple(self._number(layout) for _ in range(count))
        else:
            self._skip(self._width(kind) * count)

    def _strings(self, count: int, *, unique: bool) -> None:
        """Walks them in one tight loop: a vocabulary has 50,000 to 300,000."""
        data, at, size, length = self._data, self._at, self._size, struct.Struct("<Q").unpack_from
        seen: set[bytes] = set()
        for _ in range(count):
            if at + 8 > size:
                raise self._cut()
            end = at + 8 + length(data, at)[0]
            if end > size:
                raise self._cut()
            if unique:
                seen.add(data[at + 8 : end])
            at = end
        if unique and len(seen) != count:
            raise refuse(self._path, "its vocabulary holds a token twice")
        self._at = at

    def _tensor(self) -> int:
        """Where the data of the next tensor ends, from the start of the data section."""
        name = self._string(MAX_KEY_BYTES)
        dims = self._number("<I")
        if not 0 < dims <= 4:
            raise refuse(self._path, f"a tensor has {dims} dimensions")
        extents = tuple(self._number("<q") for _ in range(dims))
        for extent in extents:
            if not 0 < extent < 1 << 40:
                raise refuse(self._path, f"a tensor has {extent} values along one dimension")
        first = extents[0]
        kind, offset = self._number("<I"), self._number("<Q")
        block, width = _BLOCKS.get(kind, (1, 0))
        if first % block:
            raise refuse(self._path, f"a row of {first} values does not fill its blocks")
        if offset % self._alignment:
            raise refuse(self._path, "the data of a tensor is not aligned")
        size = math.prod(extents) // block * width
        self._header.tensors.append(Tensor(name, kind, extents, size))
        return offset + size

    def _width(self, kind: int) -> int:
        if kind not in _SIZES:
            raise refuse(self._path, f"metadata of unknown type {kind}")
        return _SIZES[kind]

    def _number(self, layout: str) -> int:
        width = struct.calcsize(layout)
        if self._at + width > self._size:
            raise self._cut()
        value = int(struct.unpack_from(layout, self._data, self._at)[0])
        self._at += width
        return value

    def _bounded(self, layout: str, high: int, what: str) -> int:
        value = self._number(layout)
        if not 0 <= value <= high:
            raise refuse(self._path, f"its header claims {value} {what}")
        return value

    def _string(self, high: int) -> bytes:
        length = self._bounded("<Q", high, "bytes in a string")
        self._skip(length)
        return self._data[self._at - length : self._at]

    def _skip(self, count: int) -> None:
        if self._at + count > self._size:
            raise self._cut()
        self._at += count

    def _cut(self) -> ModelUnavailable:
        return refuse(self._path, "its header is cut short")
