"""Sensing as users' bug reports taught it: faults, late sensors after a sleep, things that come
and go. The real service and drivers on a simulated tree, in hand-moved time.
"""

from __future__ import annotations

import errno
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.thermal import TOP_KHZ, FaultyFiles, Rig

from stoker.core.thermal_plan import GRANT
from stoker.drivers.firmware_flags import SysfsFirmware
from stoker.drivers.heat_inventory import SysfsInventory
from stoker.drivers.power_meters import SysfsPower
from stoker.errors import Unavailable
from stoker.events.heat_finds import Finding, Found, PowerMeter, PowerReading
from stoker.services.thermal import ThermalService
from stoker.units import Seconds, Watts

TEMP = "thermal_zone0/temp"


@pytest.mark.parametrize("name", ["EAGAIN", "ENODATA", "EIO", "ETIMEDOUT"])
def test_one_missed_reading_changes_nothing(hot: Rig, name: str) -> None:
    before = hot.limit_khz()
    hot.files.faults[TEMP] = getattr(errno, name)
    hot.run(0.3)
    hot.files.faults.clear()
    assert hot.service.snapshot().state == "ok"
    assert hot.limit_khz() <= before
    hot.run(3.0)
    assert hot.service.snapshot().state == "ok"


@pytest.mark.parametrize("name", ["EAGAIN", "ENODATA", "EIO", "ETIMEDOUT"])
def test_a_flickering_sensor_neither_stops_us_nor_lets_the_wall_be_crossed(
    hot: Rig, name: str
) -> None:
    number = iter(range(10**6))

    def flicker() -> None:
        bad = next(number) % 3 != 0
        hot.files.faults = {TEMP: getattr(errno, name)} if bad else {}

    hot.run(60.0, each=flicker)
    assert hot.pauses == []
    assert hot.peak_c < 80.0


@pytest.mark.parametrize("text", ["0", "-274000", "-256000", "126000", "-40000", "99999999"])
def test_what_is_no_temperature_never_raises_the_clock(hot: Rig, text: str) -> None:
    hot.files.texts[TEMP] = text
    limits: list[int] = []
    hot.run(8.0, each=lambda: limits.append(hot.limit_khz()))
    assert limits == sorted(limits, reverse=True)
    assert hot.service.snapshot().state in ("safe", "stop")
    hot.run(6.0)
    assert hot.service.snapshot().state == "stop"
    assert hot.pauses == [True]


@pytest.mark.parametrize("jump", [20_000, -20_000])
def test_a_jump_faster_than_heat_moves_is_not_believed(hot: Rig, jump: int) -> None:
    hot.files.texts[TEMP] = str(78_000 + jump)
    hot.run(0.7)
    assert hot.service.snapshot().state in ("safe", "stop")


def test_a_zone_whose_index_changed_is_followed_by_its_type(hot: Rig) -> None:
    directory = hot.board.zone_dir("cpu-thermal")
    moved = directory.with_name("thermal_zone7")
    directory.rename(moved)
    (moved / "temp").write_text("77000\n")
    hot.run(4.0)
    (sensor, reading), *_ = hot.service.details().sensors
    assert sensor.path == str(moved / "temp")
    assert reading.temperature_c is not None
    assert hot.service.snapshot().state in ("ok", "degraded", "safe")
    assert hot.pauses == []


def test_a_zone_that_appears_later_is_found_and_controlled(rig: Rig) -> None:
    directory = rig.board.zone_dir("cpu-thermal")
    directory.rename(rig.board.root / "away")
    rig.run(5.0, load=0.1)
    assert rig.service.snapshot().state == "blind"
    (rig.board.root / "away").rename(directory)
    rig.run(32.0, load=0.1)
    assert (rig.service.snapshot().state, rig.service.snapshot().sensor) == ("ok", "cpu-thermal")


def test_of_several_policies_one_that_goes_and_comes_leaves_the_others_capped(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, "rk3588-small-heatsink")
    rig.warm_to(82.0)
    rig.run(40.0)
    directory = rig.board.policy_dir("policy6")
    directory.rename(rig.board.root / "away")
    rig.run(10.0)
    names = [policy.name for policy in rig.service.details().policies]
    assert names == ["policy0", "policy4"]
    assert rig.service.snapshot().cap_khz
    (rig.board.root / "away").rename(directory)
    rig.write_limit(2_400_000, "policy6")
    rig.run(40.0)
    assert "policy6" in [policy.name for policy in rig.service.details().policies]
    assert rig.limit_khz("policy6") < 2_400_000


# Sleep and wake.


class Slept:
    def __init__(self, rig: Rig) -> None:
        self.seconds = 0.0
        rig.ports = replace(rig.ports, asleep_s=lambda: Seconds(self.seconds))
        rig.service = rig.new_service(None)


def test_after_a_sleep_the_loop_goes_on_without_a_bump(rig: Rig) -> None:
    slept = Slept(rig)
    rig.warm_to(78.0)
    rig.run(60)
    before = rig.limit_khz()
    slept.seconds = 3600.0
    rig.plant.settle(0.0, 600.0)  # cold again: a jump of tens of degrees
    rig.board.publish()
    rig.run(0.5)
    snapshot = rig.service.snapshot()
    assert snapshot.state == "ok"
    assert abs(rig.limit_khz() - before) <= 100_000


def test_sensors_may_be_late_for_some_seconds_after_a_sleep(rig: Rig) -> None:
    slept = Slept(rig)
    rig.warm_to(60.0)
    rig.run(5.0, load=0.3)
    rig.files.faults[TEMP] = errno.ENODATA
    slept.seconds = 60.0
    rig.run(5.0, load=0.0)
    assert rig.service.snapshot().state == "ok"
    assert rig.service.snapshot().temperature_c is None  # that of before the sleep is no news
    rig.run(4.0, load=0.0)
    assert rig.service.snapshot().state == "safe"
    rig.run(8.0, load=0.0)
    assert rig.service.snapshot().state == "stop"


def test_a_cap_that_a_sleep_undid_is_written_again_and_nobody_is_blamed(rig: Rig) -> None:
    slept = Slept(rig)
    rig.warm_to(78.0)
    rig.run(60)
    before = rig.limit_khz()
    slept.seconds = 30.0
    rig.write_limit(TOP_KHZ)
    rig.run(0.3)
    assert rig.limit_khz() <= before + 100_000
    assert "another program" not in rig.service.snapshot().reason
    rig.service.stop()
    assert rig.limit_khz() == TOP_KHZ


def test_a_stop_outlives_a_sleep_until_it_is_proven_cool(rig: Rig) -> None:
    slept = Slept(rig)
    rig.run(3.0, load=0.0)
    rig.files.faults[TEMP] = errno.EIO
    rig.run(12.0, load=0.0)
    assert rig.pauses == [True]
    slept.seconds = 100.0
    rig.run(1.0, load=0.0)
    assert rig.service.snapshot().state == "stop"
    rig.files.faults.clear()
    rig.run(8.0, load=0.0)
    assert rig.pauses == [True, False]


def test_a_sensor_that_was_found_frozen_is_not_proven_by_a_sleep(rig: Rig) -> None:
    slept = Slept(rig)
    rig.warm_to(78.0)
    rig.run(30.0)
    rig.files.texts[TEMP] = "45000"
    rig.run(5.0)
    assert rig.service.snapshot().state == "safe"
    slept.seconds = 60.0
    rig.run(60.0)
    assert rig.service.snapshot().state == "safe"
    rig.files.texts.clear()
    rig.run(10.0)
    assert rig.service.snapshot().state == "ok"


# Firmware and measured power.


def with_firmware(rig: Rig) -> Path:
    path = rig.board.root / "devices/platform/soc/soc:firmware/get_throttled"
    path.parent.mkdir(parents=True)
    path.write_text("0\n")
    rig.ports = replace(rig.ports, firmware=SysfsFirmware(rig.board.root, rig.files.read))
    rig.service = rig.new_service(None)
    return path


def test_while_the_firmware_throttles_nothing_rises_and_it_is_said(rig: Rig) -> None:
    path = with_firmware(rig)
    rig.warm_to(78.0)
    rig.run(60)
    path.write_text("60006\n")
    capped = rig.limit_khz()
    rig.run(60.0, load=0.0)
    assert rig.limit_khz() <= capped
    snapshot = rig.service.snapshot()
    assert snapshot.firmware == ("frequency capped", "throttled")
    assert "firmware" in snapshot.reason
    path.write_text("60000\n")
    rig.run(60.0, load=0.0)
    assert rig.limit_khz() == TOP_KHZ


@pytest.mark.parametrize("name", ["EIO", "ENOENT", "ETIMEDOUT"])
def test_flags_that_cannot_be_read_hold_nobody_up(rig: Rig, name: str) -> None:
    with_firmware(rig)
    rig.files.faults["get_throttled"] = getattr(errno, name)
    rig.run(10.0, load=0.1)
    assert (rig.service.snapshot().state, rig.service.snapshot().firmware) == ("ok", ())


class Meter:
    def __init__(self) -> None:
        self.watts: float | None = 3.0

    def discover(self) -> tuple[PowerMeter, ...]:
        return (PowerMeter("package-0", "power", "/p"),)

    def read(self, meter: PowerMeter) -> PowerReading:
        fault = "EIO" if self.watts is None else ""
        return PowerReading(meter.name, None if self.watts is None else Watts(self.watts), fault)


def measured(rig: Rig, meter: Meter) -> ThermalService:
    rig.ports = replace(rig.ports, meters=meter)
    board = replace(rig.new_service(None)._preset, power_meters=("package-0",))
    return ThermalService(rig.new_service(None)._config, board, rig.ports)


def test_measured_power_tells_a_frozen_sensor_from_a_steady_one(rig: Rig) -> None:
    meter = Meter()
    rig.service = measured(rig, meter)
    rig.files.texts[TEMP] = "55000"
    rig.run(70.0)
    assert rig.service.snapshot().state == "ok"
    assert rig.service.snapshot().power_w == 3.0
    meter.watts = 6.0
    rig.run(45.0)
    assert rig.service.snapshot().state == "safe"
    assert "frozen" in rig.service.snapshot().reason


def test_a_meter_that_fails_leaves_the_estimate(rig: Rig) -> None:
    meter = Meter()
    meter.watts = None
    rig.service = measured(rig, meter)
    rig.run(5.0, load=0.2)
    assert (rig.service.snapshot().state, rig.service.snapshot().power_w) == ("ok", None)


# The report.


def test_discover_tells_uses_and_grants(rig: Rig) -> None:
    inventory = SysfsInventory(
        rig.board.root, rig.clock.monotonic_s, rig.files.read, lambda _path: "EACCES"
    )
    rig.ports = replace(
        rig.ports,
        inventory=inventory,
        meters=SysfsPower(rig.board.root, rig.clock.monotonic_s),
    )
    rig.service = rig.new_service(None)
    rig.service.tick()
    found = {item.finding.name: item for item in rig.service.discover().result(timeout=5)}
    assert "holds policy0 below 78.5" in found["cpu-thermal"].use
    assert GRANT in found["policy0"].grant


def test_only_one_search_runs_and_all_who_ask_get_its_result(rig: Rig) -> None:
    class Slow:
        def __init__(self) -> None:
            self.go, self.searches = threading.Event(), 0

        def findings(self) -> tuple[Finding, ...]:
            self.searches += 1
            assert self.go.wait(5)
            return (Finding("zone", "x", "/x"),)

    slow = Slow()
    rig.ports = replace(rig.ports, inventory=slow)
    rig.service = rig.new_service(None)
    answers = [rig.service.discover() for _ in range(5)]
    slow.go.set()
    results: list[tuple[Found, ...]] = [answer.result(timeout=5) for answer in answers]
    assert slow.searches == 1
    assert all(result[0].finding.name == "x" for result in results)


def test_without_an_inventory_the_search_is_refused(rig: Rig) -> None:
    with pytest.raises(Unavailable):
        rig.service.discover().result(timeout=1)


def test_the_fault_injecting_opener_is_the_drivers_own_port() -> None:
    files = FaultyFiles()
    files.faults["x"] = errno.EIO
    with pytest.raises(OSError, match="EIO"):
        files.read(Path("/x"))
