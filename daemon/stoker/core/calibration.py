"""What a calibration measures, what its numbers mean in watts, and whether they still fit. Pure.

The grid of settings, the estimate of a setting's power where no meter is, clocks between the
measured ones, and the table as it is kept on disk. Choosing by it is ``operating_points``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from stoker.core.opp import Ladder, PowerTable
from stoker.events.operating import DECODE, PHASES, Caps, Point, PointTable, Setting
from stoker.units import Watts

DECODE_ACTIVITY: Final = 0.8
"""Of the switching power of a busy CPU, while it waits for memory: a Pi 5 board draws 6.5 W
decoding on four threads and 7.4 W in a compute-bound test, 2.6 W of it its base."""

CLOCKS: Final = 5


def estimate_w(
    tables: Mapping[str, PowerTable],
    sizes: Mapping[str, int],
    setting: Setting,
    busy_cpus: float,
    full: tuple[Watts, int],
) -> Watts:
    """c·f·V²·util of ``core/opp``: busy CPUs are taken from the fastest policy first, as the
    scheduler does. ``sizes``: CPUs of each policy. ``full``: what the budget takes so many busy
    CPUs to burn, for boards without policies."""
    activity = DECODE_ACTIVITY if setting.phase == DECODE else 1.0
    caps = dict(setting.caps)
    if not tables:
        return Watts(full[0] * activity * min(1.0, busy_cpus / full[1]))
    left, watts = busy_cpus, 0.0
    fastest = sorted(tables.values(), key=lambda t: t.weight / sizes[t.policy], reverse=True)
    for table in fastest:
        used = min(left, float(sizes[table.policy]))
        left -= used
        step = table.floor_index(caps.get(table.policy, table.steps_khz[-1]))
        watts += table.watts[step] * used / sizes[table.policy]
    return Watts(watts * activity)


def usable(
    table: PointTable, tables: Mapping[str, PowerTable], threads: int, *, clocks: bool
) -> str:
    """Why these points do not fit the machine as it is now; "" = they do."""
    if not table.complete:
        return f"{len(table.points)} of {table.size} points are measured: stokerctl calibrate"
    if table.threads != threads:
        return f"it was measured with {table.threads} threads, not {threads}"
    for point in table.points:
        caps = dict(point.setting.caps)
        if set(caps) != (set(tables) if clocks else set()):
            return "it was measured with other frequency policies, or other rights to set them"
        if any(khz not in tables[name].steps_khz for name, khz in caps.items()):
            return "it was measured with other frequency steps"
    return ""


def scaled(table: PointTable, full_w: Watts) -> tuple[Point, ...]:
    """Metered watts in those of the budget: the hottest point burns the full power. Without a
    meter they are the budget's own kind already."""
    hottest = max((point.watts for point in table.points), default=0.0)
    if not table.metered or hottest <= 0:
        return table.points
    factor = full_w / hottest
    return tuple(replace(point, watts=Watts(point.watts * factor)) for point in table.points)


def filled(
    points: Sequence[Point], rungs: Ladder, tables: Mapping[str, PowerTable]
) -> tuple[Point, ...]:
    """With the rungs between two measured clocks: tokens along the clock, watts along c·f·V².
    Only some clocks are measured, as each costs seconds."""
    if not tables:
        return tuple(points)
    all_caps = [_caps(rung.index, tables) for rung in rungs.rungs]
    clocks = [_work(rung.index, tables) for rung in rungs.rungs]
    where = {caps: at for at, caps in enumerate(all_caps)}
    out = list(points)
    rows: dict[tuple[str, int], list[Point]] = {}
    for point in points:
        if point.setting.caps in where:
            rows.setdefault((point.setting.phase, point.setting.threads), []).append(point)
    for row in rows.values():
        row.sort(key=lambda point: where[point.setting.caps])
        for low, high in pairwise(row):
            ends = where[low.setting.caps], where[high.setting.caps]
            watts = [float(rungs.rungs[at].watts) for at in ends]
            works = [clocks[at] for at in ends]
            for at in range(ends[0] + 1, ends[1]):
                setting = replace(low.setting, caps=all_caps[at])
                power_w = _along(watts, rungs.rungs[at].watts, low.watts, high.watts)
                rate = _along(works, clocks[at], low.tokens_per_s, high.tokens_per_s)
                out.append(Point(setting, Watts(power_w), rate))
    return tuple(out)


def _along(ends: Sequence[float], place: float, first: float, last: float) -> float:
    span = ends[1] - ends[0]
    return first + (last - first) * ((place - ends[0]) / span if span > 0 else 0.0)


def _work(index: Mapping[str, int], tables: Mapping[str, PowerTable]) -> float:
    return sum(tables[name].steps_khz[at] * tables[name].weight for name, at in index.items())


def _caps(index: Mapping[str, int], tables: Mapping[str, PowerTable]) -> Caps:
    return tuple((name, tables[name].steps_khz[index[name]]) for name in sorted(index))


def grid(
    rungs: Ladder | None,
    tables: Mapping[str, PowerTable],
    threads: int,
    clocks: int = CLOCKS,
) -> tuple[Setting, ...]:
    """What to measure: thread counts up to ``threads`` at ``clocks`` rungs from the lowest to
    the highest, the hottest first: a board is coolest when it begins."""
    all_caps: list[Caps] = [()]
    if rungs is not None and tables:
        last = len(rungs.rungs) - 1
        at = sorted({round(last * i / max(1, clocks - 1)) for i in range(clocks)}, reverse=True)
        all_caps = [_caps(rungs.rungs[i].index, tables) for i in at]
    counts = sorted(thread_counts(threads), reverse=True)
    return tuple(Setting(p, count, caps) for caps in all_caps for count in counts for p in PHASES)


def thread_counts(most: int) -> tuple[int, ...]:
    """1, 2, 3, 4, then steps of about a third: many cores must not take an hour."""
    counts = [1]
    while counts[-1] < most:
        counts.append(min(most, max(counts[-1] + 1, round(counts[-1] * 1.4))))
    return tuple(counts)


def fits(table: PointTable, wanted: PointTable, settings: Sequence[Setting]) -> bool:
    """An unfinished table may be gone on with: the same grid, measured the same way."""
    same = (table.threads, table.size, table.metered) == (
        wanted.threads,
        wanted.size,
        wanted.metered,
    )
    return same and {point.setting for point in table.points} <= set(settings)
