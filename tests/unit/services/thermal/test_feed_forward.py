"""A change of phase wakes the loop where it would act on it, and only there: a tick costs some."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.fakes.thermal import HandClock
from tests.unit.services.thermal.test_thermal_points import THREADS, Agent

from stoker.services.feed_forward import FeedForward
from stoker.services.tick_pace import POKE_GAP_S, TickPace
from stoker.units import Seconds

SHORT_JOBS = ("prefill", "decode", "") * 100


class Loop:
    def __init__(self, *, follows_phase: bool) -> None:
        self.follows_phase = follows_phase
        self.pokes = 0

    def poke(self) -> None:
        self.pokes += 1


@pytest.mark.parametrize(
    ("follows", "governs", "pokes"),
    [(False, False, 0), (True, False, 300), (False, True, 200), (True, True, 300)],
)
def test_phases_that_change_nothing_wake_nobody(follows: bool, governs: bool, pokes: int) -> None:
    loop = Loop(follows_phase=follows)
    forward = FeedForward(loop, governs=governs)
    for phase in SHORT_JOBS:
        forward.heard(phase)
        forward.heard(phase)  # something else of the snapshot changed
    assert loop.pokes == pokes


def test_the_loop_follows_phases_with_operating_points_at_the_wall_only(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    service = agent.rig.service
    agent.rig.warm_to(78.0)
    agent.serve(20.0)
    assert service.snapshot().cap_khz
    assert not service.follows_phase  # limited, but all phases alike
    service.use_points(agent.table(), THREADS)
    service.tick()
    assert service.follows_phase
    agent.rig.warm_to(40.0)
    agent.phase = ""
    agent.serve(60.0)
    assert not service.follows_phase  # nothing limits


class HandEvent(threading.Event):
    """Waits in hand-moved time."""

    clock: HandClock

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self.clock.now_s += timeout or 0.0
        return self.is_set()


def test_pokes_without_a_pause_cost_one_tick_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandEvent.clock = HandClock()
    monkeypatch.setattr(threading, "Event", HandEvent)
    pace = TickPace(clock)
    woken = looks = 0
    for _ in range(1000):
        if clock.now_s >= 10.0:
            break
        pace.poke()
        if pace.wait(Seconds(0.1)):
            looks += 1
            pace.looked(Seconds(clock.now_s))
        else:
            woken += 1
    assert clock.now_s >= 10.0
    assert looks == pytest.approx(100, abs=2)  # none is late for them
    assert woken <= 10.0 / POKE_GAP_S - looks + 2


def test_the_first_poke_after_a_while_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandEvent.clock = HandClock()
    monkeypatch.setattr(threading, "Event", HandEvent)
    pace = TickPace(clock)
    pace.looked(Seconds(0.0))
    clock.now_s = 0.5
    pace.poke()
    assert pace.wait(Seconds(1.0)) is False
    assert clock.now_s == 0.5
