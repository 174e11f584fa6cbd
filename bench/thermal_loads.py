"""What the plants have to bear: loads, and the accidents that befall them meanwhile.

A load says how many CPUs are busy and until when that holds; a ``Chat`` also counts tokens.
An accident changes the plant or what the laws see of it. Seeded by nothing: all is scripted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from bench.thermal_law import Phase
from stoker.drivers.plants import PlantSpec
from stoker.drivers.token_model import TokenModel, placement, speed

IDLE_MS: Final = 30_000
IDLE_LOAD: Final = 0.15
GAP_LOAD: Final = 0.05
FOR_EVER_MS: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Demand:
    """``shares``: power of each cluster as a part of all its CPUs at full activity.
    ``busy``: what the kernel would call its load, in CPUs."""

    shares: tuple[float, ...]
    busy: tuple[float, ...]
    until_ms: int
    phase: Phase = "other"


class Load(Protocol):
    tokens: float

    def demand(self, now_ms: int, steps: Sequence[int], threads: int, /) -> Demand: ...
    def passed(self, dt_ms: int, /) -> None: ...


class Plain:
    """Every CPU at a load that switches at given times, repeating: ((ms, load), …)."""

    tokens = 0.0

    def __init__(self, spec: PlantSpec, pattern: Sequence[tuple[int, float]]) -> None:
        self._pattern = pattern
        self._cycle_ms = sum(ms for ms, _ in pattern)
        sizes = [len(c.cpus) for c in spec.clusters]
        loads = {IDLE_LOAD, *(load for _, load in pattern)}
        self._shares = {load: (load,) * len(sizes) for load in loads}
        self._busy = {load: tuple(load * n for n in sizes) for load in loads}

    def demand(self, now_ms: int, _steps: Sequence[int], _threads: int) -> Demand:
        if now_ms < IDLE_MS:
            return Demand(self._shares[IDLE_LOAD], self._busy[IDLE_LOAD], IDLE_MS)
        end_ms = now_ms - (now_ms - IDLE_MS) % self._cycle_ms
        load = 0.0
        for length_ms, own in self._pattern:
            end_ms, load = end_ms + length_ms, own
            if end_ms > now_ms:
                break
        until_ms = end_ms if len(self._pattern) > 1 else FOR_EVER_MS
        return Demand(self._shares[load], self._busy[load], until_ms)

    def passed(self, _dt_ms: int) -> None:
        return


class Chat:
    """Requests without a pause: a prompt is read, an answer written, the next one comes.
    ``threads`` per phase where the law orders none; 0 = all CPUs."""

    def __init__(
        self,
        spec: PlantSpec,
        model: TokenModel,
        request: tuple[int, int],
        threads: Mapping[str, int] | None = None,
    ) -> None:
        self.tokens = 0.0
        self._spec, self._model = spec, model
        self._length = {"prefill": float(request[0]), "decode": float(request[1])}
        self._phase: Phase = "prefill"
        self._left = self._length["prefill"]
        self._threads = threads or {}
        self._all = sum(len(c.cpus) for c in spec.clusters)
        self._rate = 0.0
        self._known: dict[tuple[Phase, int, tuple[int, ...]], tuple[float, Demand]] = {}

    def demand(self, now_ms: int, steps: Sequence[int], threads: int) -> Demand:
        if now_ms < IDLE_MS:
            sizes = [len(c.cpus) for c in self._spec.clusters]
            self._rate = 0.0
            busy = tuple(IDLE_LOAD * n for n in sizes)
            return Demand((IDLE_LOAD,) * len(sizes), busy, IDLE_MS)
        count = threads or self._threads.get(self._phase, 0) or self._all
        key = (self._phase, count, tuple(steps))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._look_up(*key)
        self._rate, demand = known
        until_ms = now_ms + max(1, math.ceil(self._left / self._rate * 1000))
        return Demand(demand.shares, demand.busy, until_ms, demand.phase)

    def passed(self, dt_ms: int) -> None:
        done = self._rate * dt_ms / 1000
        self.tokens += min(done, self._left)
        self._left -= done
        if self._left <= 1e-9:
            self._phase = "decode" if self._phase == "prefill" else "prefill"
            self._left = self._length[self._phase]

    def _look_up(self, phase: Phase, threads: int, steps: tuple[int, ...]) -> tuple[float, Demand]:
        spec = self._spec
        mhz = {c.policy: c.opps[s][0] for c, s in zip(spec.clusters, steps, strict=True)}
        assert phase != "other"
        rate, activity = speed(self._model, spec, phase, threads, mhz)
        placed = placement(spec, threads)
        busy = tuple(float(placed[c.policy]) for c in spec.clusters)
        shares = tuple(b * activity / len(c.cpus) for b, c in zip(busy, spec.clusters, strict=True))
        return rate, Demand(shares, busy, 0, phase)
