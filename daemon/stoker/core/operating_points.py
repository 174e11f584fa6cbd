"""Which threads and which clock give the most tokens for the watts there are. Pure.

Decoding is bound by memory bandwidth, reading a prompt by compute, and most of a board's heat
capacity averages over both: ``spend`` gives each phase its point, so that the mix of the two is
fastest within the mean power that the budget allows. Must not: know sensors or time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from stoker.core.opp import RISE_MARGIN
from stoker.events.operating import PHASES, Choice, Point
from stoker.units import Fraction, Watts

SHARE_STEP: Final = 0.05
"""Shares of a mix are rounded to it: the best rungs change slowly with them."""

SWING: Final = 0.25
"""Of the hotter phase's excess: it warms the chip's own fast nodes before a mean is reached, so
that its peak decides too (bench/thermal: 0.25 gives the most tokens on all plants)."""

MIX_POINTS: Final = 32
"""Of each phase at most, in a mix: all pairs of them are compared within a tick. A PC with a
clock for each CPU has hundreds, and comparing all of those took a second."""

Front = tuple[Point, ...]
"""Of one phase: watts and tokens/s both ascend strictly."""


@dataclass(frozen=True, slots=True, eq=False)
class Fronts:
    """One front a phase, made once for a table (compared by identity: it is a cache's key);
    ``few_…``: what is left of it for a mix."""

    prefill: Front
    decode: Front
    few_prefill: Front
    few_decode: Front

    def of(self, phase: str) -> Front:
        return self.prefill if phase == PHASES[0] else self.decode


@dataclass(frozen=True, slots=True)
class Pair:
    """A point for each phase and what a mix of both comes to."""

    prefill: Point
    decode: Point
    watts: Watts  # that count against the budget: the mean and some of the swing
    tokens_per_s: float  # of the mix


def fronts(points: Sequence[Point]) -> Fronts | None:
    """None: there is a phase without a point."""
    prefill, decode = (front(points, phase) for phase in PHASES)
    if not prefill or not decode:
        return None
    return Fronts(prefill, decode, thinned(prefill), thinned(decode))


def front(points: Iterable[Point], phase: str) -> Front:
    """The points of a phase that no other one beats in watts and in tokens/s."""
    kept: list[Point] = []
    own = (p for p in points if p.setting.phase == phase and p.watts > 0 and p.tokens_per_s > 0)
    for point in sorted(own, key=lambda p: (p.watts, -p.tokens_per_s, p.setting.threads)):
        if not kept or point.tokens_per_s > kept[-1].tokens_per_s:
            kept.append(point)
    return tuple(kept)


def thinned(known: Front, most: int = MIX_POINTS) -> Front:
    """At most so many points, the ends among them, and the largest step in tokens/s between two
    of them about as small as it can be: so much and no more is lost by taking the next lower one.
    """
    if len(known) <= most:
        return known
    low = 1.0
    high = (known[-1].tokens_per_s / known[0].tokens_per_s) ** (1.0 / (most - 2))
    found = _steps_of(known, high * (1 + 1e-9))
    for _ in range(8):
        middle = (low + high) / 2
        fewer = _steps_of(known, middle)
        if len(fewer) <= most:
            found, high = fewer, middle
        else:
            low = middle
    return found


def _steps_of(known: Front, ratio: float) -> Front:
    kept = [known[0]]
    for point in known[1:]:
        if point.tokens_per_s > kept[-1].tokens_per_s * ratio:
            kept.append(point)
    return tuple(kept) if kept[-1] is known[-1] else (*kept, known[-1])


def choose(
    known: Front, budget_w: Watts, *, held: Point | None = None, paces: bool = False
) -> Choice:
    """The most tokens/s of one phase for ``budget_w``, never above it. ``held``: what is used
    now; to more watts than that it rises only with a reserve, as noise would toggle it.
    ``paces``: no clock can be set, so a wide point may also be used a part of the time.
    """
    fits = _fastest(known, budget_w, held)
    best = None if fits is None else Choice(fits)
    if best is not None and not paces:
        return best
    if not paces:
        return Choice(known[0], _part(budget_w, known[0].watts))
    part_time = [Choice(p, _part(budget_w, p.watts)) for p in known if p.watts > budget_w]
    found = [*part_time, *([best] if best is not None else [])]
    return max(found, key=lambda choice: (choice.tokens_per_s, choice.duty))


def _fastest(known: Front, budget_w: Watts, held: Point | None) -> Point | None:
    """They ascend, so the last one that fits is the fastest."""
    if known[-1].watts <= budget_w:
        return known[-1]
    most_w = float(budget_w)
    fits = bisect_right(known, most_w, key=lambda point: point.watts)
    if held is not None and fits and known[fits - 1].watts > held.watts:
        kept = bisect_right(known, float(held.watts), key=lambda point: point.watts)
        fits = bisect_right(known, most_w, key=lambda point: point.watts * RISE_MARGIN)
        fits = max(kept, fits)
    return known[fits - 1] if fits else None


def spend(
    known: Fronts,
    prefill_share: float,
    budget_w: Watts,
    *,
    held: Mapping[str, Point] | None = None,
    paces: bool = False,
) -> dict[str, Choice]:
    """A choice for each phase. ``prefill_share`` 0..1: of the tokens of late, those read. Alone
    (0 or 1) a phase has the whole budget; in a mix the mean of both stays within it, so decoding
    may save for the next prompt what it would gain little from.
    """
    held = held or {}
    alone = {
        phase: choose(known.of(phase), budget_w, held=held.get(phase), paces=paces)
        for phase in PHASES
    }
    share = rounded(prefill_share)
    if not 0.0 < share < 1.0 or any(choice.duty < 1.0 for choice in alone.values()):
        return alone
    now = _pair(held[PHASES[0]], held[PHASES[1]], share) if len(held) == len(PHASES) else None
    best = _pair(alone[PHASES[0]].point, alone[PHASES[1]].point, share)
    ladder = rungs(known, share)
    for pair in ladder:
        rises = now is not None and pair.watts > now.watts and pair is not ladder[-1]
        fits = pair.watts * (RISE_MARGIN if rises else 1.0) <= budget_w
        if fits and pair.tokens_per_s > best.tokens_per_s:
            best = pair
    return {PHASES[0]: Choice(best.prefill), PHASES[1]: Choice(best.decode)}


@lru_cache(maxsize=4)
def rungs(known: Fronts, share: float) -> tuple[Pair, ...]:
    """The pairs worth having for a mix: watts and tokens/s both ascend. The share moves slowly:
    what is remembered is the one of now and what noise toggles it with."""
    pairs = [_pair(p, d, share) for p in known.few_prefill for d in known.few_decode]
    kept: list[Pair] = []
    for pair in sorted(pairs, key=lambda pair: (pair.watts, -pair.tokens_per_s)):
        if not kept or pair.tokens_per_s > kept[-1].tokens_per_s:
            kept.append(pair)
    return tuple(kept)


def _pair(prefill: Point, decode: Point, share: float) -> Pair:
    seconds = (share / prefill.tokens_per_s, (1.0 - share) / decode.tokens_per_s)
    joules = prefill.watts * seconds[0] + decode.watts * seconds[1]
    mean_w, peak_w = joules / sum(seconds), max(prefill.watts, decode.watts)
    watts = SWING * peak_w + (1.0 - SWING) * mean_w
    return Pair(prefill, decode, Watts(watts), 1.0 / sum(seconds))


def mean_watts(choices: Mapping[str, Choice], share: float) -> Watts:
    """What both phases burn in the mix; paced ones at most the hotter of them."""
    if not choices:
        return Watts(0.0)
    if not 0.0 < rounded(share) < 1.0:
        return choices[PHASES[0] if share > 0.5 else PHASES[1]].watts
    if any(choice.duty < 1.0 for choice in choices.values()):
        return max(choice.watts for choice in choices.values())
    return _pair(choices[PHASES[0]].point, choices[PHASES[1]].point, rounded(share)).watts


def rounded(share: float) -> float:
    """0 and 1: one phase as good as alone."""
    return round(share / SHARE_STEP) * SHARE_STEP


def _part(budget_w: Watts, watts: Watts) -> Fraction:
    return Fraction(max(0.0, budget_w) / watts)
