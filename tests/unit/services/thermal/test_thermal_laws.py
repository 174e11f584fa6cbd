"""The laws by name, hand-over from lower caps of others, sampling and several zones."""

from __future__ import annotations

import errno
from itertools import pairwise
from pathlib import Path

import pytest
from bench.thermal_service import Stoker
from tests.fakes.thermal import Rig, preset

from stoker.config.schema import ThermalConfig
from stoker.core import step_table
from stoker.core.opp import power_table
from stoker.core.thermal_plan import check_devfreq, check_sensors, make_plan
from stoker.drivers.plants import PLANTS, Plant
from stoker.errors import ConfigInvalid
from stoker.events.thermal import FrequencyPolicy, Sensor
from stoker.units import Celsius, Kelvin, KiloHertz, Seconds

TOP = 1_500_000


def rig_of(tmp_path: Path, plant: str = "pi4-bare", **settings: object) -> Rig:
    return Rig(tmp_path, plant, ThermalConfig(**settings))  # type: ignore[arg-type]


def test_open_loop_never_caps_and_crosses_the_wall(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, law="open-loop")
    rig.warm_to(78.0)
    rig.run(60)
    assert rig.files.writes == []
    assert rig.peak_c > 79.0
    assert (rig.service.snapshot().law, rig.service.snapshot().headroom) == ("open-loop", 1.0)


@pytest.mark.parametrize("law", ["open-loop", "step-table", "pi"])
def test_every_law_obeys_the_fail_safe(tmp_path: Path, law: str) -> None:
    rig = rig_of(tmp_path, law=law)
    rig.warm_to(60.0)
    rig.run(2.0)
    rig.files.faults["thermal_zone0/temp"] = errno.EIO
    rig.run(5.0)
    assert rig.service.snapshot().state == "safe"
    assert rig.limit_khz() <= 1_100_000
    rig.run(7.0)
    assert rig.pauses == [True]
    rig.files.faults.clear()
    rig.run(12.0, load=0.1)
    assert rig.pauses == [True, False]
    assert rig.service.snapshot().state == "ok"


def test_step_table_is_bang_bang_around_three_kelvin_above_the_wall(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, law="step-table")
    rig.warm_to(81.2)
    limits: list[int] = []
    rig.run(30.0, each=lambda: limits.append(rig.limit_khz()))
    assert rig.service.snapshot().period_s == 0.01
    assert 81.0 < rig.peak_c < 83.0  # wall 78.5 + 3, and what a lagging sensor adds
    moves = {after - before for before, after in pairwise(limits) if after != before}
    assert moves
    assert min(moves) == -200_000


def test_step_table_by_its_numbers() -> None:
    steps = tuple(KiloHertz(khz) for khz in range(600_000, 1_500_001, 100_000))
    policy = FrequencyPolicy("policy0", (0,), steps[0], steps[-1], steps, True)
    tables = {"policy0": power_table(policy, None)}

    def after(limit: int, above_k: float, *, may_rise: bool = True) -> int:
        now = {"policy0": KiloHertz(limit)}
        return step_table.step(tables, now, above_k, may_rise=may_rise)["policy0"]

    assert after(TOP, 3.0) == 1_300_000
    assert after(TOP, 2.9) == TOP
    assert after(1_000_000, -0.9) == 1_000_000
    assert after(1_000_000, -1.0) == 1_100_000
    assert after(1_000_000, -1.0, may_rise=False) == 1_000_000
    assert after(700_000, 9.0) == 600_000
    assert after(TOP, -9.0) == TOP
    assert step_table.step(tables, {}, 5.0) == {"policy0": 1_300_000}


def settle(law: Stoker, plant: Plant, seconds: float) -> list[float]:
    """Effective clocks while the loop runs on the plant."""
    clocks: list[float] = []
    end_s = plant.time_s + seconds
    while plant.time_s < end_s:
        caps, period_s = law.tick()
        left_s = period_s
        while left_s > 1e-9:
            step_s = min(left_s, 0.02)
            plant.advance(step_s, caps, 1.0)
            left_s -= step_s
        clocks.append(caps["policy0"])
    return clocks


def test_when_the_kernel_lets_go_of_its_lower_cap_the_clock_does_not_jump() -> None:
    plant = Plant(PLANTS["pi4-bare"])
    plant.warm_to(77.0)
    law = Stoker(plant, 78.5)
    settle(law, plant, 30.0)
    held = law.policies.slot_khz["policy0"]
    law.policies.kernel_khz["policy0"] = KiloHertz(800_000)
    settle(law, plant, 40.0)
    assert law.policies.slot_khz["policy0"] <= held
    before_c = plant.junction_c
    law.policies.kernel_khz.clear()
    clocks = settle(law, plant, 1.0)
    assert max(clocks[:3]) <= 1_000_000  # at most what was granted and a step or two
    assert before_c < 78.5
    settle(law, plant, 120.0)
    assert plant.junction_c < 78.5


@pytest.mark.parametrize("period_s", [0.01, 0.05])
def test_sampling_is_adaptive_down_to_ten_milliseconds(tmp_path: Path, period_s: float) -> None:
    rig = rig_of(tmp_path, period_min_s=Seconds(period_s))
    rig.run(30.0, load=0.0)
    assert rig.service.snapshot().period_s == 1.0
    rig.warm_to(78.0)
    rig.service = rig.new_service(ThermalConfig(period_min_s=Seconds(period_s)))
    rig.run(5.0)
    assert rig.service.snapshot().period_s == period_s
    assert rig.peak_c < 78.9


def test_a_policy_takes_the_lowest_step_that_any_of_its_zones_asks_for(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, "rk3588-small-heatsink")
    rig.warm_to(60.0)
    rig.run(3.0, load=0.2)
    assert rig.service.snapshot().cap_khz == {}
    # Only the first big cluster is hot: its zone binds policy4 and leaves policy6 alone.
    for milli in range(62_000, 86_000, 2_000):
        rig.files.texts["thermal_zone1/temp"] = str(milli)
        rig.run(0.5, load=0.2)
    rig.run(5.0, load=0.2)
    capped = rig.service.snapshot().cap_khz
    assert set(capped) == {"policy4"}
    assert rig.service.snapshot().sensor == "bigcore0-thermal"


def test_a_hot_package_holds_every_policy_whose_own_zone_is_cool(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, "rk3588-small-heatsink")
    rig.warm_to(60.0)
    rig.run(3.0, load=0.2)
    for milli in range(62_000, 86_000, 2_000):
        rig.files.texts["thermal_zone0/temp"] = str(milli)
        rig.run(0.5, load=0.2)
    rig.run(20.0, load=0.2)
    snapshot = rig.service.snapshot()
    assert snapshot.sensor == "package-thermal"
    assert set(snapshot.cap_khz) == {"policy0", "policy4", "policy6"}


def test_the_configuration_chooses_sensors_and_gains(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, "rk3588-small-heatsink", sensors=("bigcore2-thermal",))
    rig.run(2.0, load=0.1)
    assert rig.service.snapshot().sensor == "bigcore2-thermal"
    config = ThermalConfig(
        sensors=("gpu",), margin_k=Kelvin(4.0), gain_w_per_k=0.5, reset_s=Seconds(9.0)
    )
    plan = make_plan(preset("raspberrypi-4"), config, [Sensor("gpu", "zone", "/g")], ())
    gains = plan.zones[0].gains
    assert (gains.margin_k, gains.gain_w_per_k, gains.reset_s) == (4.0, 0.5, 9.0)


def test_an_unknown_sensor_is_refused_with_its_key_and_the_names_there_are() -> None:
    config = ThermalConfig(sensors=("cpu-thermal", "cpu-termal"))
    with pytest.raises(ConfigInvalid, match="cpu-termal") as caught:
        check_sensors(config, [Sensor("cpu-thermal", "zone", "/t")])
    assert caught.value.details["path"] == "thermal.sensors[1]"
    assert "cpu-thermal" in caught.value.hint
    check_sensors(ThermalConfig(wall_c=Celsius(70)), ())


def test_a_devfreq_device_that_is_not_there_is_refused_with_its_place() -> None:
    config = ThermalConfig(devfreq=("gpu", "gpv"))
    with pytest.raises(ConfigInvalid, match="'gpv'") as caught:
        check_devfreq(config, ("dmc", "gpu"))
    assert caught.value.details["path"] == "thermal.devfreq[1]"
    assert "dmc, gpu" in caught.value.hint
    check_devfreq(config, ("gpu", "gpv"))
