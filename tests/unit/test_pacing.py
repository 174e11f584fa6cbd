"""When the scheduler must mind the headroom: only where frequency caps do not suffice."""

from __future__ import annotations

import pytest

from stoker.events.thermal import ThermalSnapshot
from stoker.heat_parts import pacing
from stoker.units import Celsius, Fraction


@pytest.mark.parametrize(
    ("state", "actuator", "headroom"),
    [
        ("ok", "cpufreq", 1.0),
        ("degraded", "cpufreq", 1.0),
        ("ok", "none", 1.0),
        ("ok", "cpufreq+pacing", 0.3),
        ("watching", "pacing", 0.3),
        ("ok", "cpufreq+threads", 1.0),
        ("watching", "threads+pacing", 0.3),
        ("safe", "cpufreq", 0.3),
        ("stop", "cpufreq", 0.3),
    ],
)
def test_headroom_paces_jobs_only_where_the_ladder_ends(
    state: str, actuator: str, headroom: float
) -> None:
    seen = ThermalSnapshot(
        state, Celsius(70.0), Celsius(75.0), Fraction(0.3), "board", actuator=actuator
    )
    assert pacing(seen) == headroom
