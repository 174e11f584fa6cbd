"""What telemetry says of tokens: of the time since the last word, from the agent's one count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from stoker.core.measures import Counted, Heat, Key, fold
from stoker.events.inference import JobTimes, TokenTotals
from stoker.services.fleet_meter import Meter
from stoker.units import Seconds

SLOW = JobTimes(Seconds(0.0), Seconds(0.1), Seconds(1.0), Seconds(0.5), (0, 0, 0, 0, 0, 0, 0, 4))
FAST = JobTimes(Seconds(0.0), Seconds(0.1), Seconds(1.0), Seconds(0.5), (0, 8))


class World:
    """An agent that counts."""

    def __init__(self, *, metered: bool) -> None:
        self.now = Counted(heat=Heat(metered=metered))
        totals = SimpleNamespace(tokens=TokenTotals())
        door = SimpleNamespace(snapshot=lambda: totals, listen=lambda _listener: None)
        self.meter = Meter(cast("Any", door), lambda: 0.0, lambda: self.now)

    def answer(self, times: JobTimes, tokens: int, joules: float) -> None:
        work = fold(self.now.work, Key("m", "normal"), "stop", times, TokenTotals(1, 0, tokens))
        spent = self.now.heat.busy_energy_j + joules
        self.now = Counted(work, Heat(busy_energy_j=spent, metered=self.now.heat.metered))


def test_gaps_between_tokens_are_those_since_the_last_word() -> None:
    world = World(metered=False)
    world.answer(SLOW, 5, 0.0)
    first = world.meter.take()
    assert 0.064 < cast("float", first["token_p50_s"]) <= 0.128
    world.answer(FAST, 9, 0.0)
    second = world.meter.take()
    assert 0.001 < cast("float", second["token_p99_s"]) <= 0.002
    assert world.meter.take()["token_p99_s"] == 0.0


def test_energy_a_token_is_told_only_where_a_meter_is_and_tokens_came() -> None:
    world = World(metered=True)
    assert "joules_per_token" not in world.meter.take()
    world.answer(FAST, 10, 25.0)
    assert world.meter.take()["joules_per_token"] == 2.5
    blind = World(metered=False)
    blind.answer(FAST, 10, 0.0)
    assert "joules_per_token" not in blind.meter.take()
