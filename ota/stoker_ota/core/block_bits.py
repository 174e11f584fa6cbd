"""Six-bit numbers that lie in pieces in several bytes, and the change of all of them at once.

A long integer is many lanes of a byte each; masks keep a lane's bits out of its neighbour. Pure.
Source of the packing: ggml's ggml-common.h, get_scale_min_k4 and dequantize_row_q6_K.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

_WEIGHTS: Final = ((0, 0, 0), (1, 0, 2), (0, 4, 4), (1, 4, 6))
"""The four weights of a lane: which low plane, shifts of its low bits and of its upper ones."""

Planes = Sequence[bytes]


def weights(old: Planes, new: Planes) -> list[bytes]:
    """Q6_K's: two planes of low nibbles and one of upper bits, four weights a lane.

    Low planes: the difference modulo 16. Upper plane: what of the upper bits does not follow
    from that, if the weight went the short way: nearly always nothing.
    """
    count = len(old[2])
    before, after = _numbers(old), _numbers(new)
    out = [0, 0, 0]
    for plane, low, high in _WEIGHTS:
        was = _and(before[plane] >> low, 0x0F, count)
        now = _and(after[plane] >> low, 0x0F, count)
        change = _and((now | _lanes(16, count)) - was, 0x0F, count)
        upper = _and(after[2] >> high, 3, count) + _lanes(8, count) + _fell(change, count)
        upper -= _and(before[2] >> high, 3, count) + _carried(was, change, count)
        out[plane] |= change << low
        out[2] |= _and(upper, 3, count) << high
    return _bytes(out, count)


def weights_back(old: Planes, planes: Planes) -> list[bytes]:
    """The new planes."""
    count = len(old[2])
    before, given = _numbers(old), _numbers(planes)
    out = [0, 0, 0]
    for plane, low, high in _WEIGHTS:
        was = _and(before[plane] >> low, 0x0F, count)
        change = _and(given[plane] >> low, 0x0F, count)
        upper = _and(given[2] >> high, 3, count) + _and(before[2] >> high, 3, count)
        upper += _carried(was, change, count) + _lanes(4, count) - _fell(change, count)
        out[plane] |= _and(was + change, 0x0F, count) << low
        out[2] |= _and(upper, 3, count) << high
    return _bytes(out, count)


def scales(old: Planes, new: Planes) -> list[bytes]:
    """Q4_K's and Q5_K's scales and leasts: differences modulo 64, a plane of each.

    Three bytes of a lane hold two scales and two leasts.
    """
    count = len(old[0])
    changes = [
        _and((now | _lanes(64, count)) - was, 63, count)
        for was, now in zip(_scales(old, count), _scales(new, count), strict=True)
    ]
    first, second, third, fourth = _bytes(changes, count)
    return [first + second, third + fourth]


def scales_back(old: Planes, planes: Planes) -> list[bytes]:
    """The three new bytes of each lane. What is above 63 in a plane counts for nothing."""
    count = len(old[0])
    parts = [part for plane in planes for part in (plane[:count], plane[count:])]
    now = [
        _and(was + _and(change, 63, count), 63, count)
        for was, change in zip(_scales(old, count), _numbers(parts), strict=True)
    ]
    one, four, least, least_four = now
    out = [
        one | _and(four >> 4, 3, count) << 6,
        least | _and(least_four >> 4, 3, count) << 6,
        _and(four, 15, count) | _and(least_four, 15, count) << 4,
    ]
    return _bytes(out, count)


def _scales(planes: Planes, count: int) -> list[int]:
    """Scales of sub-blocks 0 to 3 and 4 to 7, then the leasts."""
    scale, least, low = _numbers(planes)
    return [
        _and(scale, 63, count),
        _and(low, 15, count) | _and(scale >> 6, 3, count) << 4,
        _and(least, 63, count),
        _and(low >> 4, 15, count) | _and(least >> 6, 3, count) << 4,
    ]


@lru_cache(maxsize=64)
def _lanes(byte: int, count: int) -> int:
    """The byte in each of so many lanes."""
    return int.from_bytes(bytes([byte]) * count, "little")


def _and(lanes: int, byte: int, count: int) -> int:
    return lanes & _lanes(byte, count)


def _carried(was: int, change: int, count: int) -> int:
    """1 where the low bits ran over."""
    return _and((was + change) >> 4, 1, count)


def _fell(change: int, count: int) -> int:
    """1 where the short way is down."""
    return _and(change >> 3, 1, count)


def _numbers(planes: Planes) -> list[int]:
    return [int.from_bytes(plane, "little") for plane in planes]


def _bytes(numbers: Sequence[int], count: int) -> list[bytes]:
    return [number.to_bytes(count, "little") for number in numbers]
