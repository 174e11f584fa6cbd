"""Every law at its best: its set-point in steps of 0.25 K, the most work without a breach.

Comparing work at unequal time above the wall would reward the breach.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.thermal_cases import (
    HIGHEST_K,
    LOADS,
    SEED,
    STEP_K,
    Builder,
    forgiven_s,
    make_load,
)
from bench.thermal_loads import Load
from bench.thermal_run import Case, Outcome, Run

LOWEST_K: Final = -12.0
BELOW: Final = 3
"""Set-points that are tried below the first without a breach: less heat is mostly less work, but
noise may have it otherwise."""


@dataclass(frozen=True, slots=True)
class Best:
    at_k: float
    outcome: Outcome
    score: float


def score(outcome: Outcome, load: str) -> float:
    """Tokens per second where there are tokens, else percent of the unlimited work."""
    return outcome.tokens / outcome.seconds if load == "chat" else outcome.work_pct


def best(
    case: Case,
    law: str,
    build: Builder,
    load: str,
    *,
    seconds: float | None = None,
    seed: int = SEED,
    below: int = BELOW,
    load_of: Callable[[], Load] | None = None,
) -> Best | None:
    """None = above the wall at every set-point."""
    allowed_s = forgiven_s(case, load)
    length_s = LOADS[load] if seconds is None else seconds
    at_k, left, found = HIGHEST_K.get(law, 2.0), below, None
    while at_k >= LOWEST_K and left >= 0:
        work = load_of() if load_of else make_load(case, load)
        outcome = Run(case, build(at_k), work, seed=seed).go(length_s, stop_above_s=allowed_s)
        if outcome.above_s <= allowed_s:
            left -= 1
            value = score(outcome, load)
            if found is None or value > found.score:
                found = Best(at_k, outcome, value)
        elif law == "open-loop":
            return None
        at_k -= STEP_K
    return found
