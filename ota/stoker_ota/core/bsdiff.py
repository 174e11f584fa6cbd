"""bsdiff's patch of one window: from and to bytes, and applied. Hostile input is its daily bread.

A payload is a BSDIFF40 file (Colin Percival 2003): 8s magic · i64 size of the packed control
stream · i64 size of the packed diff stream · i64 length of the result, then the three streams.
With bz2 any ``bspatch`` applies it; with zstd only the magic and the streams differ.
Integers are sign and magnitude, little-endian.

bsdiff4's C code does the work. Where it is not installed (Debian has no package of it) a window
can still be applied, in Python and some times slower; making one needs it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, NoReturn

from stoker_ota.core import streams
from stoker_ota.errors import BadDelta, Dependency
from stoker_ota.values.delta import MAX_CONTROLS, MAX_FILE_BYTES, Codec, Control, Patch

try:
    from bsdiff4 import core as _core
except ImportError:
    _core = None
core: Any = _core

MAGICS: Final = {Codec.BZ2: b"BSDIFF40", Codec.ZSTD: b"BSDIFFZS"}
_HEADER: Final = struct.Struct("<8sQQQ")
_TRIPLE: Final = struct.Struct("<QQQ")
CONTROL_BYTES: Final = _TRIPLE.size
_ADDED_BYTES: Final = 1 << 16  # at once without C: stays in the cache
_SIGN: Final = 1 << 63
NEGATED: Final = bytes(-byte & 0xFF for byte in range(256))


def search(source: bytes, target: bytes) -> Patch:
    """bsdiff's own suffix search: about 18 bytes of memory and a microsecond a byte."""
    return Patch(*_c().diff(source, target))


def subtract(new: bytes, old: bytes) -> bytes:
    """new − old, byte by byte modulo 256. The two are equally long.

    bsdiff4 has only the addition; old is negated first, which is exact modulo 256.
    """
    if not new:
        return b""
    everything = pack([(len(new), 0, 0)])
    difference: bytes = _c().patch(old.translate(NEGATED), len(new), everything, new, b"")
    return difference


def add(one: bytes, other: bytes) -> bytes:
    """Byte by byte modulo 256, with bsdiff4 or without it. The two are equally long."""
    if not one or core is None:
        return _add(one, other)
    made: bytes = core.patch(one, len(one), pack([(len(one), 0, 0)]), other, b"")
    return made


def pack(controls: Iterable[Control]) -> bytes:
    """Control triples as bsdiff writes them."""
    return b"".join(_TRIPLE.pack(*map(_to_wire, control)) for control in controls)


def encode(patch: Patch, new_len: int, codec: Codec, *, zstd_level: int) -> bytes:
    """The patch as a payload."""
    packed = [
        streams.compress(codec, part, zstd_level=zstd_level)
        for part in (patch.controls, patch.diff, patch.extra)
    ]
    header = _HEADER.pack(MAGICS[codec], len(packed[0]), len(packed[1]), new_len)
    return header + b"".join(packed)


def decode(payload: bytes, codec: Codec, *, src_len: int, new_len: int) -> Patch:
    """The patch of a payload, with every length judged before its stream is unpacked.

    ``src_len`` and ``new_len`` come from the index. BadDelta.
    """
    if len(payload) < _HEADER.size:
        _refuse("it is shorter than its header")
    magic, control_len, diff_len, length = _HEADER.unpack_from(payload)
    if magic != MAGICS[codec]:
        _refuse("it has another magic than its codec")
    if length != new_len:  # a set sign bit is a huge number here: refused too
        _refuse(f"it makes {length} bytes, the index says {new_len}")
    diff_at = _HEADER.size + control_len
    extra_at = diff_at + diff_len
    if extra_at > len(payload):
        _refuse("its streams are longer than the payload")
    at_most = MAX_CONTROLS * CONTROL_BYTES
    controls = streams.decompress(codec, payload[_HEADER.size : diff_at], at_most=at_most)
    diff_bytes, extra_bytes = _judge(unpack(controls), src_len, new_len)
    diff = streams.decompress(codec, payload[diff_at:extra_at], at_most=diff_bytes)
    extra = streams.decompress(codec, payload[extra_at:], at_most=extra_bytes)
    if len(diff) != diff_bytes or len(extra) != extra_bytes:
        _refuse("its streams are shorter than its controls say")
    return Patch(controls, diff, extra)


def apply(patch: Patch, source: bytes, new_len: int) -> bytes:
    """The new bytes. The patch comes from ``decode`` or from our own maker."""
    if core is None:
        return apply_without_c(patch, source)
    try:
        made: bytes = core.patch(source, new_len, patch.controls, patch.diff, patch.extra)
    except ValueError as error:
        raise BadDelta(f"cannot apply a window: {error}") from error
    return made


def apply_without_c(patch: Patch, source: bytes) -> bytes:
    """As ``apply``, which takes this way where bsdiff4 is missing."""
    parts: list[bytes] = []
    at = diff_at = extra_at = 0
    for diff_len, extra_len, seek in unpack(patch.controls):
        for begin in range(0, diff_len, _ADDED_BYTES):
            n = min(_ADDED_BYTES, diff_len - begin)
            old = source[at + begin : at + begin + n]
            parts.append(_add(old, patch.diff[diff_at + begin : diff_at + begin + n]))
        parts.append(patch.extra[extra_at : extra_at + extra_len])
        at, diff_at, extra_at = at + diff_len + seek, diff_at + diff_len, extra_at + extra_len
    return b"".join(parts)


def _add(one: bytes, other: bytes) -> bytes:
    """Byte by byte modulo 256, as two long integers whose top bits are kept from carrying."""
    low, high = _masks(len(one))
    a, b = int.from_bytes(one, "little"), int.from_bytes(other, "little")
    return (((a & low) + (b & low)) ^ ((a ^ b) & high)).to_bytes(len(one), "little")


@lru_cache(maxsize=16)
def _masks(length: int) -> tuple[int, int]:
    return int.from_bytes(b"\x7f" * length, "little"), int.from_bytes(b"\x80" * length, "little")


def _c() -> Any:
    if core is None:
        raise Dependency(
            "cannot make a delta: bsdiff4 is not installed", hint="pip install bsdiff4"
        )
    return core


def unpack(flat: bytes) -> Iterator[Control]:
    """The triples of a control stream. BadDelta when one is cut off."""
    if len(flat) % _TRIPLE.size:
        _refuse("its control stream ends inside a triple")
    for diff_len, extra_len, seek in _TRIPLE.iter_unpack(flat):
        yield _from_wire(diff_len), _from_wire(extra_len), _from_wire(seek)


def _judge(controls: Iterable[Control], src_len: int, new_len: int) -> tuple[int, int]:
    """Sums of diff and extra. Where bspatch reads zeros beside the source, we refuse."""
    diff_bytes = extra_bytes = at = 0
    for diff_len, extra_len, seek in controls:
        if diff_len < 0 or extra_len < 0:
            _refuse("a control length is negative")
        if diff_len and not 0 <= at <= src_len - diff_len:
            _refuse("it reads beside its source")
        if abs(seek) > MAX_FILE_BYTES:
            _refuse("it seeks further than any file is long")
        diff_bytes, extra_bytes = diff_bytes + diff_len, extra_bytes + extra_len
        if diff_bytes + extra_bytes > new_len:
            _refuse("its controls make more than the window")
        at += diff_len + seek
    if diff_bytes + extra_bytes != new_len:
        _refuse("its controls make less than the window")
    return diff_bytes, extra_bytes


def _to_wire(value: int) -> int:
    return _SIGN | -value if value < 0 else value


def _from_wire(value: int) -> int:
    return -(value & ~_SIGN) if value & _SIGN else value


def _refuse(reason: str) -> NoReturn:
    raise BadDelta(f"cannot read a bsdiff payload: {reason}")
