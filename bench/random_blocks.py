"""Random weights as GGUF holds them: whole blocks of random bytes with a scale that is not.

Every byte pattern is a valid block of these kinds; only the scale decides how large the values
are, so that a gigabyte of plausible weights costs seconds. Nothing is quantised here.
Block layouts: ggml's ggml-common.h (block_q4_K, block_q6_K, block_q8_0).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """``number`` is ggml's name of the type; ``spread`` the deviation of values at scale 1."""

    number: int
    values: int
    bytes: int
    spread: float


F32: Final = Kind(0, 1, 4, 1.0)
F16: Final = Kind(1, 1, 2, 1.0)
Q8_0: Final = Kind(8, 32, 34, 73.9)  # one signed byte: sqrt((2^16 - 1) / 12)
Q4_K: Final = Kind(12, 256, 144, 258.0)  # sc * q - 7.5 * m, sc and m in 0..63, q in 0..15
Q6_K: Final = Kind(14, 256, 210, 1366.0)  # sc * q, sc in -128..127, q in -32..31
_MIDDLE: Final = 7.5  # of q in Q4_K: what takes the mean away
_PART: Final = 1 << 22  # values made at a time: bounds memory


def kind_for(row: int, wanted: Kind) -> Kind:
    """``wanted`` if a row of so many values fills its blocks, else the next that fits."""
    return next(kind for kind in (wanted, Q8_0, F16) if row % kind.values == 0)


def size(kind: Kind, values: int) -> int:
    return values // kind.values * kind.bytes


def weights(kind: Kind, values: int, deviation: float, random: Random) -> Iterator[bytes]:
    """``values`` weights around 0 with about this standard deviation, in GGUF's bytes."""
    for at in range(0, values, _PART):
        yield _part(kind, min(_PART, values - at), deviation, random)


def _part(kind: Kind, values: int, deviation: float, random: Random) -> bytes:
    if kind in (F32, F16):
        plain = [random.gauss(0.0, deviation) for _ in range(values)]
        return struct.pack(f"<{values}{'f' if kind is F32 else 'e'}", *plain)
    count = values // kind.values
    blocks = bytearray(random.randbytes(count * kind.bytes))
    scale = deviation / kind.spread
    if kind is Q4_K:  # d, dmin, then 12 bytes of scales and 128 of values
        _put(blocks, kind, 0, struct.pack("<2e", scale, scale * _MIDDLE))
    elif kind is Q6_K:  # d comes last
        _put(blocks, kind, 208, struct.pack("<e", scale))
    else:  # Q8_0: d comes first
        _put(blocks, kind, 0, struct.pack("<e", scale))
    return bytes(blocks)


def _put(blocks: bytearray, kind: Kind, at: int, same: bytes) -> None:
    """Writes the same bytes into every block at one place."""
    count = len(blocks) // kind.bytes
    for index, byte in enumerate(same):
        blocks[at + index :: kind.bytes] = bytes([byte]) * count
