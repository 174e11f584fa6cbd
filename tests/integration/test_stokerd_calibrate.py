"""``stokerctl calibrate`` with a real stokerd: it goes on after each end and leaves nothing."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gi.repository import GLib
from tests.fakes.default_model import default_model
from tests.integration.stokerctl_rig import COMMAND, Typed, ctl
from tests.integration.stokerd_rig import Stokerd, stokerd, until

from stoker.api import contract
from stoker.errors import Busy, InvalidRequest
from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus
TOP = 1_500_000
BOARD = ("--engine", "echo", "--board", "sim:pi4-bare,load=agent,speed=4")
CONFIG = '[models.echo]\npath = "/dev/null"\n[runner]\nthreads = 2\n'


@pytest.fixture
def daemon(private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]) -> Iterator[Stokerd]:
    with stokerd(private_bus, tmp_path, child_env, *BOARD, config=CONFIG) as running:
        running.wait_ready()
        yield running


def env_of(daemon: Stokerd, child_env: dict[str, str]) -> dict[str, str]:
    return {**child_env, "STOKER_BUS_ADDRESS": daemon.bus.address}


def cap_khz(daemon: Stokerd) -> int:
    path = daemon.home / "run/board/devices/system/cpu/cpufreq/policy0/scaling_max_freq"
    return int(path.read_text() or 0)


def points(daemon: Stokerd) -> list[Any]:
    table: dict[str, Any] = daemon.client.call(contract.THERMAL, "OperatingPoints")
    return list(table.get("points", ()))


def uncapped(daemon: Stokerd) -> None:
    until(lambda: cap_khz(daemon) == TOP, "the whole clock again", 5.0)
    until(lambda: not (daemon.home / "run/caps.json").exists(), "an empty journal", 5.0)


def test_ctrl_c_and_a_killed_stokerctl_give_the_clock_back_and_the_next_one_goes_on(
    daemon: Stokerd, child_env: dict[str, str]
) -> None:
    env = env_of(daemon, child_env)
    typed = Typed(env, *COMMAND, "calibrate")
    try:
        until(lambda: cap_khz(daemon) < TOP and len(points(daemon)) > 3, "some points")
        typed.enter("\x03")
        typed.see("clocks are the heat loop's again")
    finally:
        assert typed.process.wait(10) == 130
    assert cap_khz(daemon) == TOP
    uncapped(daemon)
    before = len(points(daemon))
    assert 0 < before < 20
    killed = subprocess.Popen([*COMMAND, "calibrate"], env=env, stdout=subprocess.DEVNULL)
    until(lambda: cap_khz(daemon) < TOP and len(points(daemon)) > before, "more points")
    killed.send_signal(signal.SIGKILL)
    killed.wait(10)
    uncapped(daemon)
    done = ctl(env, "--json", "calibrate")
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert table["complete"]
    assert len(table["points"]) == 20
    assert table["points"][0]["phase"] == "prefill"
    uncapped(daemon)
    facts = json.loads(ctl(env, "--json", "thermal").stdout)
    assert facts["points"] == "in use"
    assert facts["actuator"] == "cpufreq+threads"
    shown = ctl(env, "calibrate", "show").stdout
    assert "20 of 20 points" in shown
    assert "*  decode" in shown


def test_a_killed_stokerd_leaves_no_cap_and_no_lost_point(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    killed = Stokerd(private_bus, tmp_path, child_env, *BOARD, config=CONFIG)
    killed.wait_ready()
    begin(killed)
    until(lambda: cap_khz(killed) < TOP and len(points(killed)) > 4, "some points")
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait(10)
    killed.client.close()
    assert (tmp_path / "run/caps.json").exists()
    with stokerd(private_bus, tmp_path, child_env, *BOARD, config=CONFIG) as daemon:
        daemon.wait_ready()
        uncapped(daemon)
        until(lambda: len(points(daemon)) > 4, "the points that were kept")


def begin(daemon: Stokerd, **options: Any) -> None:
    daemon.client.call(contract.THERMAL, "Calibrate", GLib.Variant("(a{sv})", (options,)))


def test_options_are_checked_and_a_second_one_is_refused(daemon: Stokerd) -> None:
    with pytest.raises(InvalidRequest):
        begin(daemon, speed=GLib.Variant("b", True))
    begin(daemon)
    with pytest.raises(Busy):
        begin(daemon)
    daemon.client.call(contract.THERMAL, "CancelCalibration")
    assert daemon.client.get(contract.THERMAL, "Calibration") == "cancelled"
    uncapped(daemon)


@pytest.mark.real
def test_without_a_clock_the_real_model_is_measured_by_threads_and_still_answers(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("x86_pkg_temp\n")
    (zone / "temp").write_text("50000\n")
    config = f'[models.tiny]\npath = "{default_model()}"\n[runner]\nthreads = 2\n'
    options = ("--sysfs-root", str(tmp_path / "sys"))
    with stokerd(private_bus, tmp_path, child_env, *options, config=config) as daemon:
        daemon.wait_ready()
        env = env_of(daemon, child_env)
        table = json.loads(ctl(env, "--json", "calibrate").stdout)
        assert table["complete"]
        assert [(p["threads"], p["caps_khz"]) for p in table["points"]] == [(2, {})] * 2 + [
            (1, {})
        ] * 2
        facts = json.loads(ctl(env, "--json", "thermal").stdout)
        assert facts["points"] == "in use"
        assert facts["actuator"] == "threads"
        found = ctl(env, "ask", "--temperature", "0", "--max-tokens", "8", "--raw",
                    "The capital of France is")  # fmt: skip
        assert "Paris" in found.stdout
