"""The search of everything: one at a time, and one that hangs does not stand for ever."""

from __future__ import annotations

import threading

import pytest
from tests.fakes.thermal import preset

from stoker.config.schema import ThermalConfig
from stoker.core.thermal_plan import ThermalPlan, make_plan
from stoker.errors import Busy, Unavailable
from stoker.events.heat_finds import Finding
from stoker.services.heat_search import MAX_HUNG, HeatSearch


def plan() -> ThermalPlan:
    return make_plan(preset("generic"), ThermalConfig(), (), ())


class Hanging:
    """The first ``times`` searches hang until ``go``."""

    def __init__(self, times: int) -> None:
        self.times, self.searches, self.go = times, 0, threading.Event()

    def findings(self) -> tuple[Finding, ...]:
        self.searches += 1
        if self.searches <= self.times:
            assert self.go.wait(10)
        return (Finding("zone", "x", "/x"),)


def test_after_a_search_that_hangs_there_is_another_one() -> None:
    inventory = Hanging(1)
    search = HeatSearch(inventory, limit_s=0.05)
    first = search.start(plan())
    assert search.start(plan()) is first
    with pytest.raises(Unavailable, match="did not answer"):
        first.result(5)
    assert search.start(plan()).result(5)[0].finding.name == "x"
    inventory.go.set()  # the late one's result is nobody's any more


def test_hung_searches_do_not_pile_up_without_end() -> None:
    inventory = Hanging(100)
    search = HeatSearch(inventory, limit_s=0.02)
    for _ in range(MAX_HUNG):
        with pytest.raises(Unavailable):
            search.start(plan()).result(5)
    with pytest.raises(Busy):
        search.start(plan()).result(5)
    assert inventory.searches == MAX_HUNG
    inventory.go.set()
    for thread in search._threads:
        thread.join(5)
    assert search.start(plan()).result(5)
