"""Makes one window in every form that may pay and keeps the smallest. Pure: bytes in, bytes out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stoker_ota.core import bsdiff, planes, streams
from stoker_ota.core.delta_index import NO_HASH
from stoker_ota.core.plan import WindowPlan
from stoker_ota.errors import InvalidRequest
from stoker_ota.values.delta import MAX_CONTROLS, Codec, Op, Patch, Window

_GOOD: Final = 0.5
"""A patch of at most so much of the window is kept without trying plain data."""
CODECS: Final = {
    "zstd": (Codec.ZSTD,),
    "bz2": (Codec.BZ2,),
    "smallest": (Codec.ZSTD, Codec.BZ2),
}


@dataclass(frozen=True, slots=True)
class Choosing:
    """``codecs`` are tried in this order; the first of two equally small ones wins."""

    codecs: tuple[Codec, ...] = CODECS["smallest"]
    zstd_level: int = streams.DEFAULT_ZSTD_LEVEL
    by_blocks: bool = True  # quantised blocks as planes; else as bsdiff has them

    def __post_init__(self) -> None:
        if not 1 <= self.zstd_level <= streams.MAX_ZSTD_LEVEL:
            raise InvalidRequest(
                f"cannot make a delta: zstd level {self.zstd_level} is outside "
                f"1..{streams.MAX_ZSTD_LEVEL}"
            )


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of the source and where they stand."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Made:
    """A window without its place among the payloads, and its payload."""

    window: Window
    payload: bytes

    def placed(self, payload_off: int) -> Window:
        old = self.window
        return Window(
            old.op, old.codec, old.src_off, old.src_len, old.dst_off, old.dst_len,
            payload_off, old.payload_len, old.payload_sha256, old.dst_sha256, old.blocks,
        )  # fmt: skip


def make(plan: WindowPlan, target: bytes, paired: Stretch, near: Stretch, how: Choosing) -> Made:
    """``paired`` is what the plan's pieces read; ``near`` is where a search may look (or empty)."""
    copied = _copy(plan, target, paired) or _copy(plan, target, near)
    if copied:
        return copied
    best: Made | None = None
    if plan.kind:
        payload = planes.encode(
            plan.kind, paired.data, target, how.codecs,
            zstd_level=how.zstd_level,
        )  # fmt: skip
        best = _smaller(best, _made(Op.PLANES, Codec.NONE, plan, target, payload, paired))
    for patch, stretch in _patches(plan, target, paired, near):
        if len(patch.controls) > MAX_CONTROLS * bsdiff.CONTROL_BYTES:
            continue  # the reader would refuse it
        for codec in how.codecs:
            payload = bsdiff.encode(patch, len(target), codec, zstd_level=how.zstd_level)
            best = _smaller(best, _made(Op.BSDIFF, codec, plan, target, payload, stretch))
    if best is None or len(best.payload) > _GOOD * len(target):
        nothing = Stretch(0, b"")
        for codec in how.codecs:
            payload = streams.compress(codec, target, zstd_level=how.zstd_level)
            best = _smaller(best, _made(Op.DATA, codec, plan, target, payload, nothing))
        best = _smaller(best, _made(Op.DATA, Codec.NONE, plan, target, target, nothing))
    assert best is not None  # plain data always fits
    return best


def _copy(plan: WindowPlan, target: bytes, stretch: Stretch) -> Made | None:
    at = stretch.data.find(target)
    if at < 0:
        return None
    found = Stretch(stretch.offset + at, target)
    return _made(Op.COPY, Codec.NONE, plan, target, b"", found)


def _patches(
    plan: WindowPlan, target: bytes, paired: Stretch, near: Stretch
) -> Iterator[tuple[Patch, Stretch]]:
    if plan.pieces and not plan.kind:
        yield _aligned(plan, target, paired), paired
    if near.data:
        yield bsdiff.search(near.data, target), near


def _aligned(plan: WindowPlan, target: bytes, paired: Stretch) -> Patch:
    """A bsdiff patch without any search: what pairs is diff, the rest is extra."""
    new: list[bytes] = []
    old: list[bytes] = []
    extra: list[bytes] = []
    for piece in plan.pieces:
        begin = piece.dst_off - plan.dst_off
        part = target[begin : begin + piece.length]
        if piece.src_off is None:
            extra.append(part)
            continue
        begin = piece.src_off - paired.offset
        new.append(part)
        old.append(paired.data[begin : begin + piece.length])
    diff = bsdiff.subtract(b"".join(new), b"".join(old))
    return Patch(bsdiff.pack(plan.controls()), diff, b"".join(extra))


def _made(
    op: Op, codec: Codec, plan: WindowPlan, target: bytes, payload: bytes, stretch: Stretch
) -> Made:
    window = Window(
        op, codec, stretch.offset, len(stretch.data), plan.dst_off, plan.dst_len, 0,
        len(payload), hashlib.sha256(payload).digest() if op != Op.COPY else NO_HASH,
        hashlib.sha256(target).digest(), plan.kind if op == Op.PLANES else 0,
    )  # fmt: skip
    return Made(window, payload)


def _smaller(best: Made | None, other: Made) -> Made | None:
    if best is None or len(other.payload) < len(best.payload):
        return other if len(other.payload) <= other.window.dst_len else best
    return best
