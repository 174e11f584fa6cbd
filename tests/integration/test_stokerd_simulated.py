"""``stokerd --board sim:…``: the whole daemon holds a simulated board and leaves nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.integration.stokerd_rig import Stokerd, stokerd, until

from stoker.api import contract
from stoker.drivers.plants import PLANTS, Plant
from stoker.drivers.simulated_board import SimulatedBoard
from stoker.tour.private_bus import PrivateBus

pytestmark = pytest.mark.bus
HOT = ("--engine", "echo", "--board", "sim:pi4-bare,speed=8,ambient=35,warm=76")


def heat(daemon: Stokerd) -> dict[str, Any]:
    found: dict[str, Any] = daemon.client.get_all(contract.THERMAL)
    return found


def cap_file(daemon: Stokerd) -> Path:
    return daemon.home / "run/board/devices/system/cpu/cpufreq/policy0/scaling_max_freq"


def test_the_wall_of_a_simulated_board_is_held_and_its_tree_goes_with_us(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    with stokerd(private_bus, tmp_path, child_env, *HOT) as daemon:
        until(lambda: heat(daemon)["Cap"], "a cap")
        assert int(cap_file(daemon).read_text()) < 1_500_000
        assert heat(daemon)["Wall"] == 78.5
        assert heat(daemon)["State"] == "ok"
        found = daemon.client.call(contract.THERMAL, "Discover")
        assert {item["name"]: item["kind"] for item in found} == {
            "cpu-thermal": "zone", "policy0": "cpufreq",
        }  # fmt: skip
        assert all("fault" not in item for item in found)
        assert "simulated" in daemon.text()
    assert not (tmp_path / "run/board").exists()
    assert not (tmp_path / "run/caps.json").exists()


def test_after_sigkill_the_next_start_begins_with_an_uncapped_board(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    killed = Stokerd(private_bus, tmp_path, child_env, *HOT)
    until(lambda: heat(killed)["Cap"], "a cap")
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait(10)
    killed.client.close()
    assert (tmp_path / "run/caps.json").exists()
    cold = ("--engine", "echo", "--board", "sim:pi4-bare,load=0")
    with stokerd(private_bus, tmp_path, child_env, *cold) as daemon:
        assert int(cap_file(daemon).read_text()) == 1_500_000
        assert heat(daemon)["Cap"] == 0
        assert not (tmp_path / "run/caps.json").exists()


def test_without_a_partition_real_time_says_why_there_is_none(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    config = '[models.echo]\npath = "/dev/null"\n'
    cold = ("--engine", "echo", "--board", "sim:pi4-bare,load=agent")
    with stokerd(private_bus, tmp_path, child_env, *cold, config=config) as daemon:
        daemon.wait_ready()
        found = daemon.client.get_all(contract.REALTIME)
    assert found["Level"] in ("none", "affinity")
    assert "child of stokerd" in found["Reason"]
    assert found["Level"] == "affinity" or "alike" in found["Reason"]
    assert found["Scheduling"] == "other"
    assert found["Pinning"] in ("free", "set", "one-to-one")
    assert found["Kernel"]


@pytest.mark.skipif(sorted(os.sched_getaffinity(0))[:2] != [0, 1], reason="needs CPUs 0 and 1")
def test_masks_that_were_asked_for_are_the_third_level(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    """As root the threads become nice, as anybody else a note says why they do not."""
    config = '[runner]\npin = "set"\nnice = -10\n[models.echo]\npath = "/dev/null"\n'
    cold = ("--engine", "echo", "--board", "sim:pi4-bare,load=agent")
    with stokerd(private_bus, tmp_path, child_env, *cold, config=config) as daemon:
        daemon.wait_ready()
        found = daemon.client.get_all(contract.REALTIME)
    assert found["Level"] == "affinity"
    assert "0" not in found["Cpus"].split("-")
    assert "alike" not in found["Reason"]
    assert found["Nice"] == -10 or "RLIMIT_NICE" in " ".join(found["Notes"])


def test_what_a_killed_stokerd_capped_is_given_back_by_the_next_one(
    private_bus: PrivateBus, tmp_path: Path, child_env: dict[str, str]
) -> None:
    """On a tree that outlives it, as a real /sys does."""
    tree = tmp_path / "sys"
    plant = Plant(PLANTS["pi4-bare"])
    plant.warm_to(80.0)
    board = SimulatedBoard(plant, tree)
    cap = board.policy_dir("policy0") / "scaling_max_freq"
    options = ("--engine", "echo", "--sysfs-root", str(tree))
    killed = Stokerd(private_bus, tmp_path, child_env, *options)
    until(lambda: int(cap.read_text() or 0) < 1_500_000, "a cap")
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait(10)
    killed.client.close()
    assert int(cap.read_text()) < 1_500_000
    (board.zone_dir("cpu-thermal") / "temp").write_text("45000\n")
    with stokerd(private_bus, tmp_path, child_env, *options) as daemon:
        assert int(cap.read_text()) == 1_500_000
        assert heat(daemon)["Cap"] == 0
