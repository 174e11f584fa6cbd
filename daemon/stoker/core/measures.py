"""What is counted of answers and of heat since the start: pure folds over what happened.

Metrics, the device's own history and fleet telemetry read the same counts. Counts only grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from stoker.core.latency import Histogram
from stoker.events.inference import JobTimes, TokenTotals
from stoker.events.thermal import ThermalSnapshot
from stoker.units import Seconds

MAX_KEYS: Final = 64
"""Different (model, class) pairs; those beyond are counted as model "other"."""
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class Key:
    """What answers are counted by."""

    model: str
    job_class: str


@dataclass(frozen=True, slots=True)
class Work:
    """All answers of one key. ``ends``: how they ended (``stop``, ``length``, …, or the error's
    code) → how many.
    """

    ends: Mapping[str, int] = field(default_factory=dict)
    duration: Histogram = Histogram()
    queue_wait: Histogram = Histogram()
    first_token: Histogram = Histogram()
    between_tokens: Histogram = Histogram()
    tokens: TokenTotals = TokenTotals()

    def ended(self, how: str, times: JobTimes, tokens: TokenTotals) -> Work:
        """With one more answer."""
        first = self.first_token
        if times.first_token_s is not None:
            first = first.seen(times.first_token_s)
        return Work(
            ends={**self.ends, how: self.ends.get(how, 0) + 1},
            duration=self.duration.seen(times.took_s),
            queue_wait=self.queue_wait.seen(times.waited_s),
            first_token=first,
            between_tokens=self.between_tokens.plus(Histogram(times.gaps, times.decode_s)),
            tokens=TokenTotals(
                self.tokens.prompt + tokens.prompt,
                self.tokens.cached + tokens.cached,
                self.tokens.completion + tokens.completion,
            ),
        )


def fold(
    counted: Mapping[Key, Work], key: Key, how: str, times: JobTimes, tokens: TokenTotals
) -> dict[Key, Work]:
    """The counts with one more answer; the number of keys stays bounded."""
    if key not in counted and len(counted) >= MAX_KEYS:
        key = Key(OTHER, key.job_class)
    return {**counted, key: counted.get(key, Work()).ended(how, times, tokens)}


@dataclass(frozen=True, slots=True)
class Heat:
    """Integrals over time; a value is taken to hold until the next one is told."""

    above_wall_s: Seconds = Seconds(0.0)
    energy_j: float = 0.0
    busy_energy_j: float = 0.0  # of it, while an answer was being made
    metered: bool = False  # a power meter was read at least once
    seen: ThermalSnapshot | None = None
    busy: bool = False
    at_s: Seconds = Seconds(0.0)

    def until(self, now_s: Seconds) -> Heat:
        """With the time since the last word added."""
        seen, passed_s = self.seen, max(0.0, now_s - self.at_s)
        if seen is None:
            return replace(self, at_s=now_s)
        above = seen.temperature_c is not None and seen.temperature_c > seen.wall_c
        joules = passed_s * seen.power_w if seen.power_w is not None else 0.0
        return replace(
            self,
            above_wall_s=Seconds(self.above_wall_s + (passed_s if above else 0.0)),
            energy_j=self.energy_j + joules,
            busy_energy_j=self.busy_energy_j + (joules if self.busy else 0.0),
            at_s=now_s,
        )

    def heard(self, snapshot: ThermalSnapshot, now_s: Seconds) -> Heat:
        """The thermal loop told something new."""
        metered = self.metered or snapshot.power_w is not None
        return replace(self.until(now_s), seen=snapshot, metered=metered)

    def working(self, busy: bool, now_s: Seconds) -> Heat:
        """Answers are being made from now on, or none is."""
        return replace(self.until(now_s), busy=busy)


@dataclass(frozen=True, slots=True)
class Counted:
    """Everything at one moment."""

    work: Mapping[Key, Work] = field(default_factory=dict)
    heat: Heat = Heat()

    @property
    def joules_per_token(self) -> float | None:
        """Mean energy of an answer's token, prompts included; None where nothing measures."""
        tokens = sum(work.tokens.completion for work in self.work.values())
        return self.heat.busy_energy_j / tokens if self.heat.metered and tokens else None
