"""How well the plants follow published traces of real boards: the rms of each trace.

A trace is driven by its measured watts where the file has them, else by its clock and load (or
by the two levels of its description). Free are only what no file tells: the air's temperature
and, where the board was not at rest before, how warm its slowest node was. Least squares.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from stoker.drivers.plants import PLANTS, PlantSpec

TRACES: Final = Path(__file__).resolve().parents[2] / "shared" / "vectors" / "thermal"


@dataclass(frozen=True, slots=True)
class Sample:
    """``watts`` heat from this moment to the next."""

    at_s: float
    watts: float
    measured_c: float


@dataclass(frozen=True, slots=True)
class Fit:
    name: str
    plant: str
    samples: int
    air_c: float
    rms_k: float
    worst_k: float


def chain(
    resistances: Sequence[float], taus: Sequence[float], samples: Sequence[Sample]
) -> list[float]:
    """Kelvins above the air at each sample; settled at the first power before the first."""
    nodes = [r * samples[0].watts for r in resistances]
    found = [sum(nodes)]
    for before, after in pairwise(samples):
        dt_s = after.at_s - before.at_s
        for i, (r, tau) in enumerate(zip(resistances, taus, strict=True)):
            nodes[i] += (r * before.watts - nodes[i]) * -math.expm1(-dt_s / tau)
        found.append(sum(nodes))
    return found


def fit(name: str, spec: PlantSpec, samples: Sequence[Sample], *, rested: bool) -> Fit:
    above_k = chain(spec.resistances, spec.taus, samples)
    differences = [s.measured_c - k for s, k in zip(samples, above_k, strict=True)]
    # What an unknown start of the slowest node leaves behind.
    fading = [math.exp(-(s.at_s - samples[0].at_s) / spec.taus[-1]) for s in samples]
    mean_d = math.fsum(differences) / len(differences)
    mean_f = math.fsum(fading) / len(fading)
    spread = math.fsum((f - mean_f) ** 2 for f in fading)
    pairs = zip(differences, fading, strict=True)
    part = math.fsum((d - mean_d) * (f - mean_f) for d, f in pairs) / spread
    part = 0.0 if rested else part
    air_c = mean_d - part * mean_f
    errors = [d - air_c - part * f for d, f in zip(differences, fading, strict=True)]
    rms_k = math.sqrt(math.fsum(e * e for e in errors) / len(errors))
    return Fit(name, spec.name, len(samples), air_c, rms_k, max(abs(e) for e in errors))


Rows = list[list[str]]


def _step(idle_w: float, busy_w: float) -> Callable[[Rows, PlantSpec], list[Sample]]:
    """Idle up to the first sample, then one power."""

    def read(rows: Rows, _spec: PlantSpec) -> list[Sample]:
        times = [(float(row[0]), float(row[1])) for row in rows]
        first = Sample(times[0][0] - 1e-3, idle_w, times[0][1])
        return [first, *(Sample(at_s, busy_w, value_c) for at_s, value_c in times)]

    return read


def _by_meter(rows: Rows, _spec: PlantSpec) -> list[Sample]:
    """The row's watts are those up to it: they heat from the row before."""
    found = []
    for row in rows:
        meter = re.search(r"([\d.]+)W", row[5])
        assert meter is not None
        found.append((float(row[0]), float(meter[1]), float(row[4])))
    watts = [w for _, w, _ in found[1:]] + [found[-1][1]]
    return [Sample(at, w, value) for (at, _, value), w in zip(found, watts, strict=True)]


def _by_clock(idle_w: float) -> Callable[[Rows, PlantSpec], list[Sample]]:
    """c·f·V² of the plant's clusters at the row's clocks, times its load."""

    def read(rows: Rows, spec: PlantSpec) -> list[Sample]:
        found = []
        for row in rows:
            little = len(spec.clusters) > 1
            clocks = [float(row[2] if little and i == 0 else row[1]) for i in
                      range(len(spec.clusters))]  # fmt: skip
            share = float(row[3]) / 100
            watts = idle_w
            for cluster, mhz in zip(spec.clusters, clocks, strict=True):
                low = cluster.watts(cluster.step_at(mhz * 1000))
                watts += low * share * max(1.0, mhz / cluster.opps[-1][0])
            found.append((float(row[0]), watts, float(row[4])))
        watts_after = [w for _, w, _ in found[1:]] + [found[-1][1]]
        return [Sample(a, w, c) for (a, _, c), w in zip(found, watts_after, strict=True)]

    return read


SOURCES: Final = {
    "pi4_pastebin_9zGtFR1e": ("pi4-bare", _step(2.3, 5.2)),
    "pi4_pastebin_zUbKrrLt": ("pi4-bare", _step(2.3, 5.2)),
    "pi4_pastebin_SCYd6L1v": ("pi4-cooler", _step(2.0, 5.2)),
    "sbcbench_1MFf": ("pi4-bare", _by_clock(2.3)),
    "sbcbench_1ULtUe": ("pi5-passive", _by_meter),
    "sbcbench_Au3jaA": ("pi5-passive", _by_meter),
    "sbcbench_frdzAn": ("pi5-passive", _by_meter),
    "sbcbench_4I1w": ("pi5-passive", _by_clock(2.6)),
    "sbcbench_3XTA": ("rk3588-small-heatsink", _by_clock(2.6)),
    "sbcbench_4qJG": ("rk3588-small-heatsink", _by_clock(2.6)),
}
"""Trace → plant and what drives it. Idle and busy watts as in docs/thermal.md."""


def rows_of(text: str) -> Rows:
    """Without the comment lines; the quoted last column has no comma inside."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line.split(",") for line in lines]


def all_fits(folder: Path = TRACES) -> list[Fit]:
    """[] where the traces are not beside the checkout."""
    found = []
    for name, (plant, read) in SOURCES.items():
        path = folder / f"{name}.csv"
        if path.is_file():
            spec = PLANTS[plant]
            samples = read(rows_of(path.read_text()), spec)
            found.append(fit(name, spec, samples, rested="pastebin" in name))
    return found
