"""What operating points can bring at most, and how the result depends on the token model.

The bound is arithmetic: tokens of the best mix of points at a mean power, over those of all CPUs
at one clock at the same power. Real laws lose from it what the chip's fast nodes heat up in a
prefill, since the peak must stay below the wall and not the mean. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from bench.thermal_ours import Tuning, plan_of
from bench.thermal_points import fronts_of
from stoker.core.operating_points import Fronts
from stoker.core.opp import ladder
from stoker.drivers.plants import PlantSpec
from stoker.drivers.token_model import TokenModel, speed
from stoker.events.operating import Point

Curve = list[tuple[float, float]]
"""(mean watts, tokens per second), ascending."""


@dataclass(frozen=True, slots=True)
class Variant:
    """``request``: tokens read and written. The others replace the board's token model."""

    name: str
    request: tuple[int, int] = (512, 128)
    rho: float = 1.0  # times the board's
    beta: float | None = None
    stall: float | None = None
    saturating: float | None = None

    def model(self, base: TokenModel) -> TokenModel:
        return replace(
            base,
            rho=base.rho * self.rho,
            beta=base.beta if self.beta is None else self.beta,
            stall=base.stall if self.stall is None else self.stall,
            saturating=base.saturating if self.saturating is None else self.saturating,
        )


VARIANTS: Final = (
    Variant("as assumed"),
    Variant("rho × 0.75", rho=0.75),
    Variant("rho × 1.5", rho=1.5),
    Variant("beta 0", beta=0.0),
    Variant("beta 0.4", beta=0.4),
    Variant("stall 0.5", stall=0.5),
    Variant("memory filled by 3 threads", saturating=3.0),
    Variant("128 read, 512 written", request=(128, 512)),
    Variant("1024 read, 128 written", request=(1024, 128)),
)


def bound(spec: PlantSpec, model: TokenModel, request: tuple[int, int], watts: float) -> float:
    """Ratio of tokens at ``watts`` of mean dynamic power; 1 = points bring nothing."""
    share = request[0] / sum(request)
    return at(mixed(fronts_of(spec, model), share), watts) / at(
        one_clock(spec, model, share), watts
    )


def mixed(fronts: Fronts, share: float) -> Curve:
    """Every pair of points, the best for its mean power."""
    found: Curve = []
    pairs = (mean(p, d, share) for p in fronts.prefill for d in fronts.decode)
    for watts, rate in sorted(pairs, key=lambda pair: (pair[0], -pair[1])):
        if not found or rate > found[-1][1]:
            found.append((watts, rate))
    return found


def mean(prefill: Point, decode: Point, share: float) -> tuple[float, float]:
    return _mean((prefill.watts, prefill.tokens_per_s), (decode.watts, decode.tokens_per_s), share)


def _mean(
    prefill: tuple[float, float], decode: tuple[float, float], share: float
) -> tuple[float, float]:
    """Of (watts, tokens per second) of both phases, by the time that each takes."""
    seconds = share / prefill[1], (1 - share) / decode[1]
    joules = prefill[0] * seconds[0] + decode[0] * seconds[1]
    return joules / sum(seconds), 1 / sum(seconds)


def one_clock(spec: PlantSpec, model: TokenModel, share: float) -> Curve:
    """All CPUs, both phases on the same rung of the ladder: what a governor can do."""
    tables = list(plan_of(spec, 80.0, Tuning()).tables.values())
    threads = sum(len(c.cpus) for c in spec.clusters)
    found: Curve = []
    for rung in ladder(tables).rungs:
        mhz = {c.policy: c.opps[rung.index[c.policy]][0] for c in spec.clusters}
        watts = sum(c.watts(rung.index[c.policy]) for c in spec.clusters)
        reading, _ = speed(model, spec, "prefill", threads, mhz)
        writing, activity = speed(model, spec, "decode", threads, mhz)
        found.append(_mean((watts, reading), (watts * activity, writing), share))
    return sorted(found)


def at(curve: Sequence[tuple[float, float]], watts: float) -> float:
    """Between two points a law dithers: the straight line."""
    for (low_w, low), (high_w, high) in pairwise(curve):
        if low_w <= watts <= high_w:
            return low + (high - low) * (watts - low_w) / (high_w - low_w)
    return curve[0][1] if watts < curve[0][0] else curve[-1][1]
