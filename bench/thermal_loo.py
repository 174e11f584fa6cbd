"""Leave one out: gains chosen on all plants but one, scored on the one they never saw.

Every candidate is scored as a part of tuned power_allocator's work, at its own best margin, on
the constant and the burst load.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.thermal_cases import Rival, ours, peers
from bench.thermal_ours import Tuning
from bench.thermal_run import Case
from bench.thermal_sweep import best

GAINS: Final = (0.5, 1.0, 2.0)  # of 1 / ΣR
RESETS_S: Final = (2.0, 4.0, 8.0)
SETTLED: Final = (0.5,)
SHIPPED: Final = Tuning(None, 1.0, 4.0, None, 0.5)
LOADS: Final = ("constant", "burst")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """``chosen`` on the other plants and its ratio here; the shipped gains' ratio here, and that
    of the best candidate for this very plant."""

    plant: str
    chosen: Tuning
    ratio: float
    shipped: float
    best: float


def candidates() -> list[Tuning]:
    return [Tuning(None, g, r, None, s) for g, r, s in itertools.product(GAINS, RESETS_S, SETTLED)]


def ratios(case: Case, tuned: Mapping[str, Rival], seconds: float) -> dict[Tuning, float]:
    found: dict[Tuning, float] = dict.fromkeys(candidates(), 0.0)
    for load in LOADS:
        build = peers(case, tuned[load])["ipa-tuned"]
        rival = best(case, "ipa-tuned", build, load, seconds=seconds, below=0)
        if rival is None:
            continue
        for tuning in found:
            own = best(case, "stoker", ours(case, tuning), load, seconds=seconds, below=0)
            found[tuning] += (own.score if own else 0.0) / rival.score / len(LOADS)
    return found


def leave_one_out(table: Mapping[str, Mapping[Tuning, float]]) -> list[LeftOut]:
    """``table``: plant → candidate → ratio. Pure."""
    found = []
    for plant, own in table.items():
        others: Sequence[Mapping[Tuning, float]] = [r for name, r in table.items() if name != plant]
        mean: Callable[[Tuning], float] = lambda t: sum(r[t] for r in others)  # noqa: B023, E731
        chosen = max(own, key=mean)
        found.append(LeftOut(plant, chosen, own[chosen], own[SHIPPED], max(own.values())))
    return found
