"""When the scheduler must mind the headroom: only where frequency caps do not suffice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker.events.thermal import ThermalSnapshot
from stoker.heat_parts import Limits, pacing
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


class Inference:
    def __init__(self) -> None:
        self.told: list[tuple[float, ...]] = []

    def headroom(self, fraction: float) -> None:
        self.told.append((fraction,))

    def pace(self, threads: int, threads_batch: int, duty: float) -> None:
        self.told.append((threads, threads_batch, duty))


def test_inference_hears_of_heat_only_what_changed() -> None:
    """Each word wakes its loop; a tick ten times a second mostly has a new temperature."""
    inference = Inference()
    limits = Limits(inference)
    seen = ThermalSnapshot(
        "ok", Celsius(70.0), Celsius(75.0), Fraction(0.3), "board", actuator="cpufreq"
    )
    for tenth in range(10):
        limits.changed(replace(seen, temperature_c=Celsius(70.0 + tenth / 10)))
    assert inference.told == []
    paced = replace(seen, actuator="cpufreq+pacing", duty=Fraction(0.3), threads=2)
    for _ in range(3):
        limits.changed(paced)
    limits.changed(seen)
    assert inference.told == [(0.3,), (2, 0, 0.3), (1.0,), (0, 0, 1.0)]
