"""The simulated board: plants by name, its tree, its thread, and the die-only plant's physics."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.fakes.thermal import HandClock

from stoker.config.schema import Config, DaemonConfig, ThermalConfig
from stoker.core.simulation import Simulation
from stoker.drivers.cpufreq import Cpufreq
from stoker.drivers.heat_ports import heat_root, thermal_ports
from stoker.drivers.plants import PLANTS, Plant
from stoker.drivers.simulated_board import BoardThread, SimulatedBoard, plant_of, run
from stoker.drivers.sysfs_thermal import SysfsThermal
from stoker.errors import ConfigInvalid


def test_a_plant_is_found_by_a_beginning_that_only_it_has() -> None:
    assert plant_of("rk3588").name == "rk3588-small-heatsink"
    assert plant_of("pi5-bare").name == "pi5-bare"
    for name in ("pi", "pi9", ""):
        with pytest.raises(ConfigInvalid, match="cannot simulate") as caught:
            plant_of(name)
        assert "pi5-bare" in caught.value.hint


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_the_real_drivers_read_every_plant(tmp_path: Path, name: str) -> None:
    SimulatedBoard(Plant(PLANTS[name]), tmp_path)
    sensors, policies = SysfsThermal(tmp_path), Cpufreq(tmp_path)
    assert [s.name for s in sensors.discover()] == list(PLANTS[name].zones)
    assert all(sensors.read(s).temperature_c for s in sensors.discover())
    assert [p.name for p in policies.discover()] == [c.policy for c in PLANTS[name].clusters]
    assert all(p.writable for p in policies.discover())


def test_the_die_alone_settles_in_a_few_of_its_time_constants() -> None:
    plant = Plant(PLANTS["die-only"])
    plant.settle(0.0)
    cold_c = plant.junction_c
    for _ in range(50):
        plant.advance(0.01, {}, 1.0)
    assert plant.junction_c - cold_c == pytest.approx(30.0, abs=0.5)  # 60 W · 0.5 K/W


def test_the_loop_is_faster_than_time_and_obeys_load_and_caps(tmp_path: Path) -> None:
    board = SimulatedBoard(Plant(PLANTS["pi5-bare"]), tmp_path)
    run(board, speed=50.0, load=lambda: 0.0, stop=threading.Event(), duration_s=0.3)
    idle = board.plant
    assert 10.0 < idle.time_s < 60.0
    assert idle.work == 0.0
    (tmp_path / "load").write_text("1\n")
    cap = board.policy_dir("policy0") / "scaling_max_freq"
    cap.write_text("1500000\n")
    run(board, speed=50.0, load=lambda: 0.0, stop=threading.Event(), duration_s=0.3)
    assert idle.work > 0.0
    assert (board.policy_dir("policy0") / "scaling_cur_freq").read_text().strip() == "1500000"


def test_the_thread_keeps_the_tree_alive_and_takes_it_away(tmp_path: Path) -> None:
    root = tmp_path / "board"
    (root / "left").mkdir(parents=True)
    work = [0.0]
    board = BoardThread(Simulation("pi4-bare", 40.0, None, 30.0, 70.0), root, lambda: work[0])
    temp = root / "class/thermal/thermal_zone0/temp"
    assert int(temp.read_text()) >= 69_000
    assert not (root / "left").exists()  # of a board that was killed
    board.start()
    end = time.monotonic() + 10.0
    while int(temp.read_text()) > 66_000 and time.monotonic() < end:
        time.sleep(0.02)
    assert int(temp.read_text()) <= 66_000  # the agent does nothing: it cools
    board.stop()
    board.stop()
    assert not root.exists()


def test_a_simulated_board_stands_in_the_runtime_directory_and_is_another_boot() -> None:
    config = Config(
        daemon=DaemonConfig(runtime_dir="/run/x"), thermal=ThermalConfig(board="sim:pi4-bare")
    )
    assert heat_root(config) == Path("/run/x/board")
    assert heat_root(Config()) == Path("/sys")
    simulated = thermal_ports(config, HandClock()).boot_id
    assert simulated != thermal_ports(Config(), HandClock()).boot_id
