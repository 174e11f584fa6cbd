"""The device's own past: a slice a minute, and what happened. Pure.

A slice holds what changed in its minute (histograms, tokens) and the extremes of what was
seen (heat, caps, queue). Slices of a span add up, so that a day fits into any number of columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from stoker.core.latency import Histogram
from stoker.core.measures import Counted
from stoker.events.thermal import ThermalSnapshot
from stoker.units import Celsius, Fraction, KiloHertz, Seconds

_T = TypeVar("_T", bound=float)
SLICE_S: Final = Seconds(60.0)


@dataclass(frozen=True, slots=True)
class Answers:
    """What one model did in a slice."""

    between_tokens: Histogram = Histogram()
    duration: Histogram = Histogram()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    failed: int = 0

    def plus(self, other: Answers) -> Answers:
        return Answers(
            self.between_tokens.plus(other.between_tokens),
            self.duration.plus(other.duration),
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.failed + other.failed,
        )


@dataclass(frozen=True, slots=True)
class Slice:
    """``at_s`` is wall-clock time, in whole spans. None = never seen in it."""

    at_s: float
    span_s: float = SLICE_S
    temperature_c: Celsius | None = None  # the highest
    wall_c: Celsius | None = None
    headroom: Fraction | None = None  # the least
    cap_khz: KiloHertz | None = None  # the lowest of all policies; None = uncapped
    power_w: float | None = None  # mean
    above_wall_s: float = 0.0
    queue: int = 0  # the longest
    answers: Mapping[str, Answers] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Nothing worth a row: no heat was seen and nobody asked."""
        return not self.answers and self.temperature_c is None and not self.queue


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth a mark: ``kind`` is started, restart, model, heat or update."""

    at_s: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Extremes:
    """What was seen since the slice began."""

    temperature_c: Celsius | None = None
    wall_c: Celsius | None = None
    headroom: Fraction | None = None
    cap_khz: KiloHertz | None = None
    queue: int = 0

    def heard(self, seen: ThermalSnapshot) -> Extremes:
        """With one more look at the heat."""
        return replace(
            self,
            temperature_c=_highest(self.temperature_c, seen.temperature_c),
            wall_c=seen.wall_c if seen.temperature_c is not None else self.wall_c,
            headroom=_lowest(self.headroom, seen.headroom),
            cap_khz=_lowest(self.cap_khz, min(seen.cap_khz.values(), default=None)),
        )

    def queued(self, depth: int) -> Extremes:
        return replace(self, queue=max(self.queue, depth))


def slice_of(at_s: float, span_s: float, before: Counted, now: Counted, seen: Extremes) -> Slice:
    """The slice that ends now. ``before``: the counts when it began."""
    joules = now.heat.energy_j - before.heat.energy_j
    return Slice(
        at_s=at_s,
        span_s=span_s,
        temperature_c=seen.temperature_c,
        wall_c=seen.wall_c,
        headroom=seen.headroom,
        cap_khz=seen.cap_khz,
        power_w=joules / span_s if now.heat.metered and span_s > 0 else None,
        above_wall_s=max(0.0, now.heat.above_wall_s - before.heat.above_wall_s),
        queue=seen.queue,
        answers=_answers(before, now),
    )


def _answers(before: Counted, now: Counted) -> dict[str, Answers]:
    """By model, all classes together; a model that did nothing is left out."""
    found: dict[str, Answers] = {}
    for key, work in now.work.items():
        old = before.work.get(key)
        if old == work:
            continue
        fresh = Answers(
            work.between_tokens.minus(old.between_tokens) if old else work.between_tokens,
            work.duration.minus(old.duration) if old else work.duration,
            work.tokens.prompt - (old.tokens.prompt if old else 0),
            work.tokens.completion - (old.tokens.completion if old else 0),
            _failed(work.ends) - (_failed(old.ends) if old else 0),
        )
        found[key.model] = found.get(key.model, Answers()).plus(fresh)
    return found


GOOD_ENDS: Final = frozenset({"stop", "length", "stop-string", "tool-calls", "cancelled"})


def _failed(ends: Mapping[str, int]) -> int:
    return sum(count for how, count in ends.items() if how not in GOOD_ENDS)


def widened(slices: Iterable[Slice], span_s: float) -> tuple[Slice, ...]:
    """The same past in columns of ``span_s``, each begun at a multiple of it; none is empty."""
    columns: dict[float, Slice] = {}
    for one in slices:
        at_s = one.at_s // span_s * span_s
        columns[at_s] = _merged(columns.get(at_s, Slice(at_s, span_s=0.0)), one)
    return tuple(columns[at_s] for at_s in sorted(columns))


def _merged(column: Slice, one: Slice) -> Slice:
    """``column.span_s`` grows with what is in it: the time that was really watched."""
    answers = dict(column.answers)
    for model, found in one.answers.items():
        answers[model] = answers.get(model, Answers()).plus(found)
    span_s = column.span_s + one.span_s
    power_w = one.power_w if column.power_w is None else column.power_w
    if column.power_w is not None and one.power_w is not None and span_s > 0:
        power_w = (column.power_w * column.span_s + one.power_w * one.span_s) / span_s
    return Slice(
        at_s=column.at_s,
        span_s=span_s,
        temperature_c=_highest(column.temperature_c, one.temperature_c),
        wall_c=one.wall_c if one.wall_c is not None else column.wall_c,
        headroom=_lowest(column.headroom, one.headroom),
        cap_khz=_lowest(column.cap_khz, one.cap_khz),
        power_w=power_w,
        above_wall_s=column.above_wall_s + one.above_wall_s,
        queue=max(column.queue, one.queue),
        answers=answers,
    )


def _highest(one: _T | None, other: _T | None) -> _T | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _lowest(one: _T | None, other: _T | None) -> _T | None:
    return min((value for value in (one, other) if value is not None), default=None)
