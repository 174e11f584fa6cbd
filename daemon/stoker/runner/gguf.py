"""A bounded look at a GGUF file before llama.cpp parses it.

Corrupt and truncated files shall be refused with a reason; some of them make the
library abort. This is no proof of health: flipped weights pass, only a hash finds those.
Format: ggml's docs/gguf.md, versions 2 and 3, little endian.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from typing import Final

from stoker.errors import ModelUnavailable

MAX_TENSORS: Final = 65_536
MAX_KEYS: Final = 65_536
MAX_KEY_BYTES: Final = 65_535
MAX_STRING_BYTES: Final = 64 * 1024 * 1024
MAX_ITEMS: Final = 16 * 1024 * 1024
_SIZES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING: Final = 8
_ARRAY: Final = 9
_U32: Final = 4
# ggml type -> (values in a block, bytes of a block); an unknown type is left to llama.cpp
_BLOCKS: Final = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    9: (32, 36), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    15: (256, 292), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 30: (1, 2),
}  # fmt: skip
_UNIQUE: Final = b"tokenizer.ggml.tokens"  # llama.cpp asserts that no token comes twice


def check(path: str) -> int:
    """Size of the file in bytes; raises ModelUnavailable with the reason it is refused."""
    try:
        with open(path, "rb", opener=_open) as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise _refuse(path, "it is not a regular file")
            if facts.st_size < 24:
                raise _refuse(path, f"it has only {facts.st_size} bytes")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                _Header(path, data, facts.st_size).check()
            return facts.st_size
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _refuse(path, reason or "it cannot be read") from error


def _open(path: str, flags: int) -> int:
    # a fifo with no writer would block for ever
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _refuse(path: str, reason: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"cannot load model {path}: {reason}",
        hint="check the path, or fetch the model again and compare its SHA-256",
    )


class _Header:
    def __init__(self, path: str, data: mmap.mmap, size: int) -> None:
        self._path = path
        self._data = data
        self._size = size
        self._at = 0
        self._alignment = 32

    def check(self) -> None:
        if self._data[:4] != b"GGUF":
            raise _refuse(self._path, "it is not a GGUF file")
        self._at = 4
        version = self._number("<I")
        if version not in (2, 3):
            raise _refuse(self._path, f"GGUF version {version} is not 2 or 3")
        tensors = self._bounded("<q", MAX_TENSORS, "tensors")
        keys = self._bounded("<q", MAX_KEYS, "metadata keys")
        if tensors < 1:
            raise _refuse(self._path, "it holds no tensors")
        for _ in range(keys):
            self._pair()
        end = max((self._tensor() for _ in range(tensors)), default=0)
        start = -(-self._at // self._alignment) * self._alignment
        if start + end > self._size:
            raise _refuse(
                self._path,
                f"it is cut short: {self._size} bytes of at least {start + end}",
            )

    def _pair(self) -> None:
        key = self._string(MAX_KEY_BYTES)
        kind = self._number("<I")
        if kind == _STRING:
            self._string(MAX_STRING_BYTES)
        elif kind == _ARRAY:
            self._array(key)
        elif key == b"general.alignment" and kind == _U32:
            self._alignment = self._number("<I")
            if self._alignment < 1 or self._alignment & (self._alignment - 1):
                raise _refuse(self._path, f"alignment {self._alignment} is no power of two")
        else:
            self._skip(self._width(kind))

    def _array(self, key: bytes) -> None:
        kind = self._number("<I")
        count = self._bounded("<Q", MAX_ITEMS, "items in an array")
        if kind == _STRING:
            self._strings(count, unique=key == _UNIQUE)
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
            raise _refuse(self._path, "its vocabulary holds a token twice")
        self._at = at

    def _tensor(self) -> int:
        """Where the data of the next tensor ends, from the start of the data section."""
        self._string(MAX_KEY_BYTES)
        dims = self._number("<I")
        if not 0 < dims <= 4:
            raise _refuse(self._path, f"a tensor has {dims} dimensions")
        values = 1
        first = 1
        for index in range(dims):
            extent = self._number("<q")
            if not 0 < extent < 1 << 40:
                raise _refuse(self._path, f"a tensor has {extent} values along one dimension")
            first = extent if index == 0 else first
            values *= extent
        kind, offset = self._number("<I"), self._number("<Q")
        block, width = _BLOCKS.get(kind, (1, 0))
        if first % block:
            raise _refuse(self._path, f"a row of {first} values does not fill its blocks")
        if offset % self._alignment:
            raise _refuse(self._path, "the data of a tensor is not aligned")
        return offset + values // block * width

    def _width(self, kind: int) -> int:
        if kind not in _SIZES:
            raise _refuse(self._path, f"metadata of unknown type {kind}")
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
            raise _refuse(self._path, f"its header claims {value} {what}")
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
        return _refuse(self._path, "its header is cut short")
