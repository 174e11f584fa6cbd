"""What the next decode step holds: one token per decoding job, then prefill chunks.

The prefill budget comes from a time target and the learnt cost of a token, because a
constant that suits one board stalls everybody on another. Pure: no clock, no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ALONE_TARGET_MS: Final = 800.0
"""A step with no decoding job may last this long: the heartbeat comes between steps."""
MIN_CHUNK_TOKENS: Final = 8
_SMOOTHING: Final = 0.2


@dataclass(frozen=True, slots=True)
class Waiting:
    """A sequence with prompt tokens still to be evaluated."""

    seq: int
    remaining: int


@dataclass(frozen=True, slots=True)
class Part:
    """``count`` tokens of ``seq``; ``logits`` asks for the logits of the last of them."""

    seq: int
    count: int
    logits: bool


def compose(
    decoding: Sequence[int], prefilling: Sequence[Waiting], *, limit: int, budget: int
) -> list[Part]:
    """Parts of one batch of at most ``limit`` tokens. ``prefilling`` has the oldest first."""
    parts = [Part(seq, 1, True) for seq in decoding[:limit]]
    shares = _shares(prefilling, min(limit - len(parts), budget))
    return parts + [Part(item.seq, count, count == item.remaining) for item, count in shares]


def _shares(prefilling: Sequence[Waiting], room: int) -> list[tuple[Waiting, int]]:
    """Half of the room is the oldest prompt's, so that it ends; the others have the rest, the
    shortest first, so that a few words do not wait for pages.
    """
    if not prefilling or room <= 0:
        return []
    oldest, others = prefilling[0], sorted(prefilling[1:], key=lambda item: item.remaining)
    first = min(oldest.remaining, -(-room // 2) if others else room)
    left, shares = room - first, []
    for item in others:
        count = min(item.remaining, left)
        if count > 0:
            shares.append((item, count))
            left -= count
    return [(oldest, min(oldest.remaining, first + left)), *shares]


class Costs:
    """Learns milliseconds a token from the steps seen (exponential moving averages)."""

    __slots__ = ("decode_ms", "prefill_ms")

    def __init__(self) -> None:
        self.decode_ms = 0.0  # a step of decoding jobs only
        self.prefill_ms = 0.0  # one prompt token

    def learn(self, *, elapsed_ms: float, decoding: int, prefill_tokens: int) -> None:
        if prefill_tokens == 0:
            self.decode_ms = _average(self.decode_ms, elapsed_ms)
        elif prefill_tokens >= MIN_CHUNK_TOKENS:
            share = elapsed_ms - (self.decode_ms if decoding else 0.0)
            # a few tokens cost nearly as much as one step; never learn less than nothing
            self.prefill_ms = _average(self.prefill_ms, max(share, 0.0) / prefill_tokens)

    def budget(self, *, decoding: int, target_ms: float, limit: int) -> int:
        """Prompt tokens the next step may take, 1..limit. Unlearnt cost = the smallest chunk."""
        if limit <= MIN_CHUNK_TOKENS:
            return max(limit, 1)
        if self.prefill_ms <= 0.0:
            return min(4 * MIN_CHUNK_TOKENS, limit)
        time_ms = target_ms - self.decode_ms if decoding else max(target_ms, ALONE_TARGET_MS)
        return max(MIN_CHUNK_TOKENS, int(min(float(limit), time_ms / self.prefill_ms)))


def _average(old: float, new: float) -> float:
    return new if old <= 0.0 else old + _SMOOTHING * (new - old)
