"""The loop is cheap: nothing grows with its ticks, and its lateness is counted in a fixed space."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from pathlib import Path
from statistics import median

import pytest
from tests.fakes.thermal import FaultyFiles, HandClock
from tests.unit.services.thermal.test_thermal_points import THREADS, Agent

from stoker.services.tick_pace import EDGES_MS, TickPace
from stoker.units import Seconds

TICKS = 400
LIMIT_BYTES = 40 * TICKS
"""The smallest object that is kept for each tick would be more."""


def test_nothing_grows_with_the_ticks(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    agent.rig.service.use_points(agent.table(), THREADS)
    agent.rig.warm_to(76.0)

    def some() -> None:
        for number in range(TICKS):
            agent.phase = ("prefill", "decode", "")[number // 7 % 3]
            agent.read += 3
            agent.written += 2
            agent.rig.service.tick(look=number % 3 > 0)
            agent.rig.board.advance(0.02, 0.8)
            agent.rig.clock.now_s += 0.25
        gc.collect()

    some()
    some()  # caches are full and every branch was taken
    tracemalloc.start()
    try:
        some()
        before = tracemalloc.get_traced_memory()[0]
        some()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert after - before < LIMIT_BYTES


@pytest.mark.parametrize(("plant", "warm_c"), [("pi5-bare", 40.0), ("pi5-bare", 78.0),
                                               ("rk3588-small-heatsink", 82.0)])  # fmt: skip
def test_a_tick_costs_half_a_percent_of_a_core_at_the_period_that_it_asks_for(
    tmp_path: Path, plant: str, warm_c: float
) -> None:
    """Half of the ticks, at least: others' work on this machine disturbs some. It is 0.1 %, so
    that a slow machine passes and ten times as much does not."""
    agent = Agent(tmp_path, plant)
    agent.rig.service.use_points(agent.table(), THREADS)
    agent.rig.warm_to(warm_c)
    agent.serve(3.0)
    parts: list[float] = []
    for _ in range(100):
        period_s = agent.rig.service.snapshot().period_s
        agent.rig.board.advance(period_s, 1.0)
        agent.rig.clock.now_s += period_s
        began_s = time.thread_time()
        agent.rig.service.tick()
        parts.append((time.thread_time() - began_s) / period_s)
    assert median(parts) < 0.005


def test_a_tick_reads_what_may_have_changed_and_makes_no_path_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(tmp_path)
    agent.serve(2.0)
    read: list[Path] = []
    files = agent.rig.files

    def counted(path: Path) -> str:
        read.append(path)
        return FaultyFiles.read(files, path)

    monkeypatch.setattr(agent.rig.ports.sensors, "_read", counted)
    monkeypatch.setattr(agent.rig.ports.policies, "_read", counted)
    for _ in range(10):
        agent.rig.clock.now_s += 0.25
        agent.rig.service.tick()
    assert [path.name for path in read] == ["temp", "scaling_max_freq"] * 10
    assert len({id(path) for path in read}) == 2  # paths of the ticks before


class LateClock(HandClock):
    """Each look at it takes some time, as on a busy machine."""

    def __init__(self, step_s: float) -> None:
        super().__init__()
        self._step_s = step_s

    def monotonic_s(self) -> Seconds:
        self.now_s += self._step_s
        return Seconds(self.now_s)


def test_lateness_is_counted_by_how_late_it_was() -> None:
    clock = LateClock(0.03)
    pace = TickPace(clock)
    pace.looked(Seconds(0.0))
    for _ in range(3):
        assert pace.wait(Seconds(0.0)) is True
        pace.looked(Seconds(clock.now_s))
    counts = pace.lateness()
    assert sum(counts.values()) == 3
    assert counts[100] == 3  # two looks at the clock
    assert set(counts) == {*EDGES_MS, 0}


def test_a_poke_ends_the_wait_without_a_look_and_a_stop_ends_it_all() -> None:
    clock = HandClock()
    pace = TickPace(clock)
    pace.looked(Seconds(0.0))
    pace.poke()
    assert pace.wait(Seconds(60.0)) is False
    assert sum(pace.lateness().values()) == 0
    threading.Thread(target=pace.stop).start()
    assert pace.wait(Seconds(60.0)) is None


def test_who_asks_hears_of_the_end_of_a_tick_that_began_later() -> None:
    pace = TickPace(HandClock())
    pace.looked(Seconds(0.0))
    pace.poke()
    assert pace.wait(Seconds(60.0)) is False  # a tick is under way
    over = pace.ask()
    assert pace.wait(Seconds(60.0)) is False  # it ended; it had begun before
    assert not over.is_set()
    pace.poke()
    pace.wait(Seconds(60.0))
    assert over.is_set()
