"""A simulated board's operating points, as ``stokerctl calibrate`` would find them there."""

from __future__ import annotations

import itertools

from stoker.core.operating_points import Fronts, fronts
from stoker.drivers.plants import PlantSpec
from stoker.drivers.token_model import Phase, TokenModel, placement, speed
from stoker.events.operating import Point, Setting
from stoker.units import KiloHertz, Watts


def all_points(spec: PlantSpec, model: TokenModel, phase: Phase) -> list[Point]:
    """Every thread count × every step of the clusters that it uses; the others at their lowest."""
    found = []
    for threads in range(1, sum(len(c.cpus) for c in spec.clusters) + 1):
        busy = placement(spec, threads)
        ranges = [range(len(c.opps)) if busy[c.policy] else range(1) for c in spec.clusters]
        for steps in itertools.product(*ranges):
            pairs = list(zip(spec.clusters, steps, strict=True))
            mhz = {c.policy: c.opps[s][0] for c, s in pairs}
            rate, activity = speed(model, spec, phase, threads, mhz)
            watts = sum(c.watts(s) * busy[c.policy] / len(c.cpus) for c, s in pairs) * activity
            caps = tuple((name, KiloHertz(int(clock * 1000))) for name, clock in mhz.items())
            found.append(Point(Setting(phase, threads, caps), Watts(watts), rate))
    return found


def fronts_of(spec: PlantSpec, model: TokenModel) -> Fronts:
    phases: tuple[Phase, ...] = ("prefill", "decode")
    found = fronts([p for phase in phases for p in all_points(spec, model, phase)])
    assert found is not None
    return found
