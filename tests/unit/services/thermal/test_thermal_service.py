"""The loop as a service on the real drivers and a simulated tree, in hand-moved time."""

from __future__ import annotations

import errno
import logging
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.fakes.thermal import TOP_KHZ, Rig, preset

from stoker.config.schema import ThermalConfig
from stoker.core.token_mix import Work
from stoker.errors import Unavailable
from stoker.events.thermal import Sensor, ThermalSnapshot
from stoker.ports.doors import ThermalListener
from stoker.services.thermal import ThermalService
from stoker.units import Celsius, Seconds


def test_a_cool_board_is_not_touched(rig: Rig) -> None:
    rig.run(60, load=0.2)
    snapshot = rig.service.snapshot()
    assert (snapshot.state, snapshot.headroom, snapshot.cap_khz) == ("ok", 1.0, {})
    assert rig.files.writes == []
    assert rig.journal.load() == ()
    assert snapshot.period_s == 1.0


def test_a_hot_board_is_held_below_its_wall_and_says_why(hot: Rig) -> None:
    snapshot = hot.service.snapshot()
    assert hot.peak_c < snapshot.wall_c
    assert snapshot.state == "ok"
    assert snapshot.sensor == "cpu-thermal"
    assert snapshot.cap_khz == {"policy0": hot.limit_khz()}
    assert 0.2 < snapshot.headroom < 1.0
    assert snapshot.actuator == "cpufreq"
    assert "78.5" in snapshot.reason
    assert snapshot.period_s < 1.0


def test_only_steps_of_the_table_are_written_and_never_twice_in_a_row(hot: Rig) -> None:
    (policy,) = hot.service.details().policies
    values = [int(text) for _, text in hot.files.writes]
    assert set(values) <= set(policy.steps_khz)
    assert all(a != b for a, b in pairwise(values))


def test_cooling_down_releases_the_cap_and_the_journal(hot: Rig) -> None:
    hot.run(120, load=0.0)
    assert hot.limit_khz() == TOP_KHZ
    assert hot.service.snapshot().cap_khz == {}
    assert hot.journal.load() == ()


@pytest.mark.parametrize("name", ["EAGAIN", "ENODATA", "EIO", "ETIMEDOUT"])
def test_a_dead_sensor_holds_then_takes_middle_steps_then_pauses(hot: Rig, name: str) -> None:
    before = hot.limit_khz()
    hot.files.faults["thermal_zone0/temp"] = getattr(errno, name)
    hot.run(2.0)
    assert hot.service.snapshot().state == "degraded"
    assert hot.limit_khz() <= before
    hot.run(3.0)
    snapshot = hot.service.snapshot()
    assert snapshot.state == "safe"
    assert snapshot.headroom <= 0.5
    assert hot.limit_khz() <= 1_100_000
    assert hot.pauses == []
    hot.run(7.0)
    snapshot = hot.service.snapshot()
    assert (snapshot.state, snapshot.headroom) == ("stop", 0.0)
    assert name in snapshot.reason
    assert hot.pauses == [True]
    hot.files.faults.clear()
    hot.run(10.0)
    assert hot.service.snapshot().state == "ok"
    assert hot.pauses == [True, False]


@pytest.mark.parametrize("text", ["0", "-274000", "-256000"])
def test_a_sentinel_is_never_taken_for_a_cool_board(hot: Rig, text: str) -> None:
    hot.files.texts["thermal_zone0/temp"] = text
    hot.run(5.0)
    assert hot.service.snapshot().state == "safe"
    assert hot.limit_khz() <= 1_100_000


def test_a_frozen_sensor_is_suspected_and_nothing_rises(hot: Rig) -> None:
    hot.files.texts["thermal_zone0/temp"] = "78600"
    limits: list[int] = []
    hot.run(120.0, each=lambda: limits.append(hot.limit_khz()))
    snapshot = hot.service.snapshot()
    assert snapshot.state == "safe"
    assert "frozen" in snapshot.reason
    assert limits == sorted(limits, reverse=True)


def test_a_vanished_zone_stops_inference_and_comes_back(hot: Rig) -> None:
    away = hot.board.root / "away"
    directory = hot.board.zone_dir("cpu-thermal")
    directory.rename(away)
    hot.run(12.0)
    assert hot.service.snapshot().state == "stop"
    assert "ENOENT" in hot.service.snapshot().reason
    away.rename(directory)
    hot.run(15.0)
    assert hot.service.snapshot().state == "ok"


def test_a_zone_that_stays_away_is_told_once_for_each_state(
    hot: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(hot.board.zone_dir("cpu-thermal"))
    with caplog.at_level(logging.INFO, "stoker.services.thermal"):
        hot.run(300.0)
    said = [record.getMessage() for record in caplog.records]
    states = [text.split(":")[0] for text in said if text.startswith("thermal state")]
    assert states == ["thermal state degraded", "thermal state safe", "thermal state stop"]
    assert "no reading for 3" in hot.service.snapshot().reason  # it still counts


@pytest.mark.parametrize("text", ["", "banana", "-5", "0"])
def test_what_is_no_clock_is_no_other_programs_cap(hot: Rig, text: str) -> None:
    hot.files.texts["scaling_max_freq"] = text
    hot.run(5.0)
    assert "another program" not in hot.service.snapshot().reason
    hot.files.texts.clear()
    hot.run(20.0)
    assert hot.service.snapshot().state == "ok"
    hot.service.stop()
    assert hot.limit_khz() == TOP_KHZ


def test_a_hotplugged_policy_is_found_again_and_capped_again(hot: Rig) -> None:
    directory = hot.board.policy_dir("policy0")
    directory.rename(hot.board.root / "away")
    hot.run(6.0)
    assert hot.service.details().policies == ()
    assert hot.service.snapshot().state == "watching"
    (hot.board.root / "away").rename(directory)
    hot.write_limit(TOP_KHZ)
    hot.run(90.0)
    assert hot.limit_khz() < TOP_KHZ


def test_a_read_only_tree_is_watched_and_tried_again_only_rarely(rig: Rig) -> None:
    rig.files.faults["write:scaling_max_freq"] = errno.EROFS
    rig.warm_to(78.0)
    attempts: list[str] = []
    original = rig.files.write

    def write(path: Path, text: str) -> None:
        attempts.append(text)
        original(path, text)

    rig.ports.policies._write = write  # type: ignore[attr-defined]
    rig.run(65.0)
    snapshot = rig.service.snapshot()
    assert snapshot.state == "watching"
    assert snapshot.cap_khz == {}
    assert "refused" in snapshot.reason
    assert snapshot.headroom < 1.0
    assert 1 <= len(attempts) <= 4


def test_a_foreign_writer_is_reported_and_not_fought_in_a_tight_loop(hot: Rig) -> None:
    before = len(hot.files.writes)
    hot.run(20.0, each=lambda: hot.write_limit(TOP_KHZ))
    assert "another program" in hot.service.snapshot().reason
    assert 1 <= len(hot.files.writes) - before <= 21


def test_the_kernel_capping_lower_is_followed_without_writes(rig: Rig) -> None:
    rig.warm_to(60.0)
    rig.run(5.0)
    rig.write_limit(900_000)
    rig.run(30.0, load=0.5)
    assert rig.files.writes == []
    assert rig.service.snapshot().headroom == 1.0


def test_without_zones_and_policies_it_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(tmp_path)
    shutil.rmtree(rig.board.root)
    rig.board.root.mkdir()
    with caplog.at_level(logging.INFO, "stoker"):
        rig.run(120.0)
    snapshot = rig.service.snapshot()
    assert (snapshot.state, snapshot.headroom, snapshot.temperature_c) == ("blind", 1.0, None)
    assert [r.message for r in caplog.records if "no thermal zone" in r.message] == [
        "thermal state blind: no thermal zone and no known hwmon chip on this machine"
    ]


def test_zones_without_cpufreq_are_watched_and_headroom_still_falls(rig: Rig) -> None:
    shutil.rmtree(rig.board.root / "devices")
    rig.warm_to(78.0)
    rig.run(120.0)
    snapshot = rig.service.snapshot()
    assert snapshot.state == "watching"
    assert snapshot.actuator == "pacing"
    assert "cpufreq" in snapshot.reason
    assert snapshot.headroom < 0.8


def test_actuate_false_watches_only(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=ThermalConfig(actuate=False))
    rig.warm_to(78.0)
    rig.run(60.0)
    assert rig.files.writes == []
    assert rig.service.snapshot().state == "watching"


def test_a_new_wall_is_taken_with_the_next_tick(hot: Rig) -> None:
    hot.service.reconfigure(ThermalConfig(wall_c=Celsius(65.0)))
    hot.run(1.0)
    assert hot.service.snapshot().wall_c == 65.0


def test_listeners_hear_changes_and_a_broken_one_does_not_end_the_loop(rig: Rig) -> None:
    heard: list[ThermalSnapshot] = []

    def broken(_snapshot: ThermalSnapshot) -> None:
        raise ValueError("mine")

    rig.service.listen(ThermalListener(broken))
    rig.service.listen(ThermalListener(heard.append))
    rig.run(3.0)
    assert heard
    assert heard[-1] == rig.service.snapshot()
    assert rig.service.last_tick_s() == pytest.approx(rig.clock.now_s, abs=1.01)


class Throwing:
    """Drivers that break their contract in every call."""

    def discover(self) -> tuple[Sensor, ...]:
        raise Unavailable("cannot list anything: test")

    def read(self, sensor: Sensor) -> object:
        raise OSError(errno.EIO, "test")

    cap_khz = set_cap = read


def test_the_tick_survives_drivers_that_throw(hot: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for port in (hot.ports.sensors, hot.ports.policies):
        for name in ("discover", "read", "cap_khz", "set_cap"):
            if hasattr(port, name):
                method = getattr(Throwing(), name if name == "discover" else "read")
                monkeypatch.setattr(port, name, lambda *a, m=method: m(*a[:1]))
    hot.run(15.0)
    assert hot.service.snapshot().state == "stop"
    assert hot.service.last_tick_s() == pytest.approx(hot.clock.now_s, abs=0.5)


def test_a_bug_in_the_tick_does_not_end_the_thread_but_stops_the_watchdog(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.run(2.0)
    last: Seconds | None = rig.service.last_tick_s()

    def bug() -> Work:
        raise ZeroDivisionError

    monkeypatch.setattr(rig.service, "_work", bug)
    rig.run(5.0)
    assert rig.service.last_tick_s() == last


def test_on_rk3588_every_cluster_has_its_zone_and_the_wall_follows_the_trip(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, "rk3588-small-heatsink")
    rig.warm_to(80.0)
    rig.run(60.0)
    snapshot = rig.service.snapshot()
    assert snapshot.wall_c == 83.0
    assert rig.peak_c < 83.5
    assert set(snapshot.cap_khz) <= {"policy0", "policy4", "policy6"}
    assert snapshot.cap_khz


def test_one_dead_zone_of_several_does_not_stop_the_device(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "rk3588-small-heatsink")
    rig.warm_to(70.0)
    rig.run(5.0)
    rig.files.faults["thermal_zone1/temp"] = errno.ENODATA
    rig.run(30.0)
    snapshot = rig.service.snapshot()
    assert snapshot.state == "degraded"
    assert "bigcore0-thermal" in snapshot.reason
    assert snapshot.headroom > 0.5
    assert rig.pauses == []


def test_the_disabled_loop_says_so(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    service = ThermalService(ThermalConfig(enabled=False), preset("raspberrypi-4"), rig.ports)
    service.tick()
    assert service.snapshot().reason == "thermal.enabled is false"
    assert service.last_tick_s() is not None


def test_a_second_writer_is_told_once_an_episode(
    hot: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "stoker"):
        hot.run(20.0, each=lambda: hot.write_limit(TOP_KHZ))
        assert caplog.text.count("another program set policy0 to 1500000 kHz") == 1
        hot.run(70.0)
        hot.run(5.0, each=lambda: hot.write_limit(TOP_KHZ))
    assert caplog.text.count("another program set policy0") == 2


def test_a_refused_cap_degrades_to_pacing_and_says_where_to_look(rig: Rig) -> None:
    rig.files.faults["write:scaling_max_freq"] = errno.EACCES
    rig.warm_to(78.0)
    rig.run(65.0)
    snapshot = rig.service.snapshot()
    assert snapshot.actuator == "pacing"
    assert "stokerctl thermal discover" in snapshot.reason


def test_a_policy_that_may_not_be_written_leaves_the_others_to_hold_the_wall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, "rk3588-small-heatsink")
    found = tuple(
        replace(policy, writable=policy.name != "policy6")
        for policy in rig.ports.policies.discover()
    )
    monkeypatch.setattr(rig.ports.policies, "discover", lambda: found)
    rig.warm_to(81.0)
    rig.run(60.0)
    snapshot = rig.service.snapshot()
    assert "policy6" not in {policy for policy, _ in rig.files.writes}
    assert snapshot.state == "ok"
    assert set(snapshot.cap_khz) <= {"policy0", "policy4"}
    assert snapshot.cap_khz
