"""A sensor that stands still: found out under load before the wall, left alone where it may.

The real service and drivers on a simulated tree; inference tells how busy it is.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.thermal import TOP_KHZ, Rig, preset

from stoker.config.schema import ThermalConfig
from stoker.core.token_mix import Work
from stoker.services.thermal import ThermalService

FOUND_OUT_S = 25.0
"""From idle to full load; docs/thermal.md says 17 s from nothing at all."""


class Busy:
    """A rig whose service knows the load, as it does from inference."""

    def __init__(self, directory: Path, plant: str) -> None:
        self.rig = Rig(directory, plant)
        self.load = 0.1
        self.states: set[str] = set()
        self.reasons: set[str] = set()
        rig = self.rig
        board = preset(rig.plant.spec.board)
        rig.service = ThermalService(
            ThermalConfig(), board, rig.ports, work=lambda: Work("decode", self.load)
        )

    def run(self, seconds: float, load: float) -> None:
        """At the pace that the loop allows inference."""
        rig, self.load, self.states = self.rig, load, set()
        end_s = rig.clock.now_s + seconds
        while rig.clock.now_s < end_s - 1e-9:
            rig.service.tick()
            seen = rig.service.snapshot()
            rig.board.advance(seen.period_s, load * seen.duty)
            rig.peak_c = max(rig.peak_c, rig.plant.junction_c)
            rig.clock.now_s += seen.period_s
            self.states.add(seen.state)
            self.reasons.add(seen.reason)

    def freeze(self) -> None:
        for path in self.rig.board.root.glob("class/thermal/thermal_zone*/temp"):
            self.rig.files.texts[f"{path.parent.name}/temp"] = path.read_text().strip()


@pytest.mark.parametrize("plant", ["pi4-bare", "rk3588-small-heatsink"])
@pytest.mark.parametrize("warm_c", [43.0, 55.0])
def test_frozen_before_the_load_it_is_found_out_and_the_wall_holds(
    tmp_path: Path, plant: str, warm_c: float
) -> None:
    busy = Busy(tmp_path, plant)
    busy.rig.warm_to(warm_c)
    busy.run(20.0, 0.1)
    busy.freeze()
    busy.run(FOUND_OUT_S, 1.0)
    assert busy.rig.service.snapshot().state == "safe"
    assert "frozen" in busy.rig.service.snapshot().reason
    busy.run(600.0, 1.0)
    assert busy.states == {"safe"}
    assert busy.rig.service.snapshot().headroom <= 0.5
    assert busy.rig.peak_c <= busy.rig.service.snapshot().wall_c


def test_a_hot_sensor_that_jumps_to_a_constant_is_never_proven(hot: Rig) -> None:
    hot.files.texts["thermal_zone0/temp"] = "45000"
    states: set[str] = set()
    hot.peak_c = 0.0
    hot.run(2.0)
    hot.run(600.0, each=lambda: states.add(hot.service.snapshot().state))
    assert states == {"safe"}
    assert hot.limit_khz() < TOP_KHZ
    assert hot.peak_c <= hot.service.snapshot().wall_c
    hot.files.texts.clear()
    hot.run(10.0)
    assert hot.service.snapshot().state == "ok"


def test_on_an_idle_board_it_may_stand_still_for_an_hour(tmp_path: Path) -> None:
    busy = Busy(tmp_path, "pi4-bare")
    busy.run(5.0, 0.1)
    busy.freeze()
    for _ in range(12):
        busy.run(235.0, 0.1)
        assert busy.states == {"ok"}
        busy.run(5.0, 1.0)  # a short question
        assert busy.states == {"ok"}


@pytest.mark.parametrize(
    "plant", ["pi4-bare", "pi4-cooler", "pi5-passive", "rk3588-small-heatsink", "die-only"]
)
def test_a_living_sensor_of_whole_degrees_is_never_suspected(tmp_path: Path, plant: str) -> None:
    busy = Busy(tmp_path, plant)
    rig, read = busy.rig, busy.rig.files.read

    def coarse(path: Path) -> str:
        if path.name != "temp":
            return read(path)
        return str(round(rig.plant.junction_c) * 1000)  # without the noise that others have

    rig.ports.sensors._read = coarse  # type: ignore[attr-defined]
    rig.plant.settle(0.05)
    rig.board.publish()
    for seconds, load in ((60, 0.05), (300, 1.0), (100, 0.3), (200, 1.0), (10, 0.0), (100, 0.6)):
        busy.run(seconds, load)
        assert not any("frozen" in reason for reason in busy.reasons), (seconds, load)
