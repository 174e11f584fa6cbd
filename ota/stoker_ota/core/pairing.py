"""Which stretch of the target is which stretch of the source: tensors paired by what they are.

First by name, type and shape; then a tensor that was renamed or tied takes one of the same type
and shape whose bytes look alike. A wrong pair costs time, never correctness: the maker keeps the
smallest form of each window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stoker_ota.core.blocks import LAYOUTS, block_bytes
from stoker_ota.values.gguf import Layout, Tensor

SAMPLE_BYTES: Final = 4096
MAX_CANDIDATES: Final = 256
_ALIKE: Final = 0.05
"""Share of equal bytes from which two samples count as related; by chance it is some 0.01."""

ReadAt = Callable[[int, int], bytes]
"""(offset, length) -> bytes of a file."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the target, and where its like begins in the source (None: nowhere)."""

    dst_off: int
    length: int
    src_off: int | None
    kind: int = 0  # ggml's number of the tensors' type, where it is paired; 0 = mixed or plain

    @property
    def dst_end(self) -> int:
        return self.dst_off + self.length


def segments(source: Layout, target: Layout, read_old: ReadAt, read_new: ReadAt) -> list[Segment]:
    """The data part of the target, whole and in order; the header is not in it."""
    by_name = {tensor.name: tensor for tensor in source.tensors}
    pairs: dict[str, Tensor] = {}
    for new in target.tensors:
        old = by_name.get(new.name)
        if old and _same_kind(old, new):
            pairs[new.name] = old
    taken = {tensor.name for tensor in pairs.values()}
    alike: dict[tuple[int, tuple[int, ...]], list[Tensor]] = defaultdict(list)
    for old in source.tensors:
        alike[old.kind, old.shape].append(old)
    out: list[Segment] = []
    for new in target.tensors:
        old = pairs.get(new.name)
        if old is None:
            old = _relative(new, alike[new.kind, new.shape], taken, read_old, read_new)
            if old:
                taken.add(old.name)
        _append(out, new, old)
    return out


def _same_kind(old: Tensor, new: Tensor) -> bool:
    return old.kind == new.kind and old.shape == new.shape


def _relative(
    new: Tensor, candidates: list[Tensor], taken: set[str], read_old: ReadAt, read_new: ReadAt
) -> Tensor | None:
    """The most similar tensor of the same kind; one without a partner goes before others."""
    if not candidates or not new.length:
        return None
    offset = new.length // 2
    length = min(SAMPLE_BYTES, new.length - offset)
    sample = read_new(new.offset + offset, length)
    scored = [
        (_equal(sample, read_old(old.offset + offset, length)), old.name not in taken, -number)
        for number, old in enumerate(candidates[:MAX_CANDIDATES])
    ]
    best = max(scored)
    return candidates[-best[2]] if best[0] >= _ALIKE * length else None


def _equal(one: bytes, other: bytes) -> int:
    if len(one) != len(other):
        return 0
    width = len(one)
    both = int.from_bytes(one, "little") ^ int.from_bytes(other, "little")
    return both.to_bytes(width, "little").count(0)


def _append(out: list[Segment], new: Tensor, old: Tensor | None) -> None:
    """Adds a tensor; one that goes on where the last one ended makes that longer."""
    paired = min(new.length, old.length) if old else 0
    for off, length, src, kind in (
        (new.offset, paired, old.offset if old else None, new.kind),
        (new.offset + paired, new.length - paired, None, 0),
    ):
        if not length:
            continue
        last = out[-1] if out else None
        if last and _continues(last, src) and last.kind == kind and _whole(last):
            out[-1] = Segment(last.dst_off, last.length + length, last.src_off, kind)
        else:
            out.append(Segment(off, length, src, kind))


def _whole(last: Segment) -> bool:
    """The next one begins with a block, too."""
    return last.kind not in LAYOUTS or last.length % block_bytes(last.kind) == 0


def _continues(last: Segment, src_off: int | None) -> bool:
    if last.src_off is None or src_off is None:
        return last.src_off is src_off
    return last.src_off + last.length == src_off
