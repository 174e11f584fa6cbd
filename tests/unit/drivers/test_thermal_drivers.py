"""sysfs drivers on a real tree: names, trips, every read fault, grids, refused writes."""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.fakes.thermal import BOARDS, FaultyFiles

from stoker.core.boards import BoardFacts, choose_board
from stoker.drivers.board_files import load_boards, read_board_facts
from stoker.drivers.cpufreq import Cpufreq
from stoker.drivers.plants import PLANTS, Plant
from stoker.drivers.simulated_board import SimulatedBoard
from stoker.drivers.sysfs_thermal import SysfsThermal
from stoker.errors import ConfigInvalid
from stoker.events.thermal import Trip
from stoker.units import Celsius, KiloHertz


def put(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def zone(root: Path, number: int, kind: str, temp: str = "50000\n", **more: str) -> None:
    directory = root / "class/thermal" / f"thermal_zone{number}"
    put(directory, type=f"{kind}\n", temp=temp, **more)


def policy(root: Path, number: int, **files: str) -> Path:
    directory = root / "devices/system/cpu/cpufreq" / f"policy{number}"
    defaults = {
        "related_cpus": "0 1\n",
        "cpuinfo_min_freq": "800000\n",
        "cpuinfo_max_freq": "2000000\n",
        "scaling_max_freq": "2000000\n",
    }
    put(directory, **(defaults | files))
    return directory


def test_zones_are_named_by_type_whatever_their_index(tmp_path: Path) -> None:
    zone(tmp_path, 10, "cpu-thermal")
    zone(tmp_path, 2, "gpu-thermal")
    names = [sensor.name for sensor in SysfsThermal(tmp_path).discover()]
    assert names == ["gpu-thermal", "cpu-thermal"]


def test_two_zones_of_one_type_keep_apart(tmp_path: Path) -> None:
    zone(tmp_path, 0, "acpitz")
    zone(tmp_path, 1, "acpitz")
    assert [s.name for s in SysfsThermal(tmp_path).discover()] == ["acpitz", "acpitz#2"]


def test_trips_at_or_below_zero_or_absurd_are_rejected(tmp_path: Path) -> None:
    zone(tmp_path, 0, "cpu", trip_point_0_type="passive\n", trip_point_0_temp="0\n",
         trip_point_1_type="passive\n", trip_point_1_temp="-32768000\n",
         trip_point_2_type="critical\n", trip_point_2_temp="110000\n",
         trip_point_3_type="hot\n", trip_point_3_temp="what\n")  # fmt: skip
    (sensor,) = SysfsThermal(tmp_path).discover()
    assert sensor.trips == (Trip("critical", Celsius(110.0)),)


def test_hwmon_is_the_fallback_with_chip_and_label(tmp_path: Path) -> None:
    chip = tmp_path / "class/hwmon/hwmon3"
    put(chip, name="coretemp\n", temp1_input="61000\n", temp1_label="Package id 0\n",
        temp1_crit="100000\n", temp2_input="60000\n", temp2_label="Core 0\n")  # fmt: skip
    put(tmp_path / "class/hwmon/hwmon4", name="nvme\n", temp1_input="40000\n")
    driver = SysfsThermal(tmp_path)
    first, second = driver.discover()
    assert (first.name, second.name) == ("coretemp/Package id 0", "coretemp/Core 0")
    assert first.trips == (Trip("critical", Celsius(100.0)),)
    assert driver.read(first).temperature_c == 61.0


def test_a_zone_is_not_listed_again_through_its_hwmon_twin(tmp_path: Path) -> None:
    zone(tmp_path, 0, "cpu_thermal")
    put(tmp_path / "class/hwmon/hwmon0", name="cpu_thermal\n", temp1_input="50000\n")
    assert len(SysfsThermal(tmp_path).discover()) == 1


@pytest.mark.parametrize("name", ["EAGAIN", "ENODATA", "EIO", "ETIMEDOUT", "EINVAL", "EBUSY"])
def test_a_read_fault_is_named_and_never_raised(tmp_path: Path, name: str) -> None:
    zone(tmp_path, 0, "cpu")
    files = FaultyFiles()
    driver = SysfsThermal(tmp_path, files.read)
    (sensor,) = driver.discover()
    files.faults["thermal_zone0/temp"] = getattr(errno, name)
    reading = driver.read(sensor)
    assert (reading.temperature_c, reading.fault) == (None, name)


def test_one_broken_zone_does_not_hide_the_others(tmp_path: Path) -> None:
    zone(tmp_path, 0, "iwlwifi_1")
    zone(tmp_path, 1, "cpu")
    files = FaultyFiles()
    files.faults["thermal_zone0/temp"] = errno.ENODATA
    driver = SysfsThermal(tmp_path, files.read)
    readings = {s.name: driver.read(s) for s in driver.discover()}
    assert readings["cpu"].temperature_c == 50.0
    assert readings["iwlwifi_1"].fault == "ENODATA"


@pytest.mark.parametrize("text", ["", "warm\n", "12.5\n"])
def test_what_is_no_number_is_a_fault(tmp_path: Path, text: str) -> None:
    zone(tmp_path, 0, "cpu", temp=text)
    driver = SysfsThermal(tmp_path)
    assert driver.read(driver.discover()[0]).fault == "not a number"


def test_an_empty_or_absent_root_reads_as_nothing(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "absent"):
        assert SysfsThermal(root).discover() == ()
        assert Cpufreq(root).discover() == ()


def test_listed_frequencies_become_ascending_steps_within_the_limits(tmp_path: Path) -> None:
    policy(tmp_path, 4, scaling_available_frequencies="2000000 1200000 800000 2400000 \n")
    (found,) = Cpufreq(tmp_path).discover()
    assert found.name == "policy4"
    assert found.steps_khz == (800_000, 1_200_000, 2_000_000)
    assert found.cpus == (0, 1)


@pytest.mark.parametrize(("low", "high"), [(800_000, 2_000_000), (400_123, 5_700_000), (7, 7)])
def test_without_a_list_a_grid_is_made_between_the_limits(
    tmp_path: Path, low: int, high: int
) -> None:
    policy(tmp_path, 0, cpuinfo_min_freq=f"{low}\n", cpuinfo_max_freq=f"{high}\n")
    (found,) = Cpufreq(tmp_path).discover()
    assert found.steps_khz[0] == low
    assert found.steps_khz[-1] == high
    assert list(found.steps_khz) == sorted(set(found.steps_khz))
    assert len(found.steps_khz) <= 66


def test_a_policy_without_limits_is_left_out(tmp_path: Path) -> None:
    (policy(tmp_path, 0) / "cpuinfo_max_freq").unlink()
    policy(tmp_path, 1)
    assert [p.name for p in Cpufreq(tmp_path).discover()] == ["policy1"]


def test_a_shorter_value_leaves_no_digit_of_the_longer_one(tmp_path: Path) -> None:
    directory = policy(tmp_path, 0)
    driver = Cpufreq(tmp_path)
    (found,) = driver.discover()
    assert driver.set_cap(found, KiloHertz(800_000))
    assert (directory / "scaling_max_freq").read_text() == "800000\n"
    assert driver.cap_khz(found) == 800_000


def test_a_vanished_policy_is_none_refused_and_not_created(tmp_path: Path) -> None:
    directory = policy(tmp_path, 0)
    driver = Cpufreq(tmp_path)
    (found,) = driver.discover()
    (directory / "scaling_max_freq").unlink()
    assert driver.cap_khz(found) is None
    assert driver.set_cap(found, KiloHertz(800_000)) is False
    assert not (directory / "scaling_max_freq").exists()


def test_a_read_only_file_is_seen_as_not_writable(child_env: dict[str, str]) -> None:
    """In a child that gives root up: root may write everything."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (policy(root, 0) / "scaling_max_freq").chmod(0o444)
        program = (
            "import os, sys, pathlib; from stoker.drivers.cpufreq import Cpufreq\n"
            "if os.geteuid() == 0: os.setgroups([]); os.setresuid(65534, 65534, 65534)\n"
            "print([p.writable for p in Cpufreq(pathlib.Path(sys.argv[1])).discover()])"
        )
        command = [sys.executable, "-c", program, name]
        said = subprocess.run(command, env=child_env, capture_output=True, text=True, check=True)
        assert said.stdout == "[False]\n"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EBUSY, errno.EINVAL])
def test_a_refused_write_is_false_not_an_exception(tmp_path: Path, number: int) -> None:
    policy(tmp_path, 0)
    files = FaultyFiles()
    files.faults["write:scaling_max_freq"] = number
    driver = Cpufreq(tmp_path, files.read, files.write)
    (found,) = driver.discover()
    assert driver.set_cap(found, KiloHertz(800_000)) is False
    assert driver.fault(found).endswith(f"policy0/scaling_max_freq: {errno.errorcode[number]}")
    files.faults.clear()
    assert driver.set_cap(found, KiloHertz(800_000))
    assert driver.fault(found) == ""


def test_the_board_says_its_names(tmp_path: Path) -> None:
    SimulatedBoard(Plant(PLANTS["pi5-bare"]), tmp_path)
    assert read_board_facts(tmp_path).compatible == ("raspberrypi,5-model-b", "brcm,bcm2712")
    put(tmp_path / "class/dmi/id", sys_vendor="QEMU\n", product_name="Standard PC\n")
    facts = read_board_facts(tmp_path)
    assert isinstance(facts, BoardFacts)
    assert facts.dmi == "QEMU Standard PC"


def own_preset(folder: Path, name: str, wall_c: float, match: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"my-{name}.toml"
    path.write_text(
        f'name = "{name}"\ntitle = "mine"\nwall_c = {wall_c}\nmargin_k = 1.0\n'
        f"resistances_k_per_w = [5.0]\n[match]\n{match}\n[[sensors]]\nnames = ['cpu']\n"
    )
    return path


def test_a_site_s_own_preset_takes_the_place_of_the_packaged_one_or_comes_first(
    tmp_path: Path,
) -> None:
    own = tmp_path / "boards"
    packaged = load_boards(BOARDS)
    assert load_boards(BOARDS, own) == packaged  # no folder
    own_preset(own, "raspberrypi-4", 70.0, "")
    own_preset(own, "mine", 60.0, 'compatible = ["raspberrypi,5-model-b"]')
    (own / ".my-swap.toml").write_text("half")
    found = load_boards(BOARDS, own)
    assert len(found) == len(packaged) + 1
    walls = {preset.name: preset.wall_c for preset in found}
    assert (walls["raspberrypi-4"], walls["generic"]) == (70.0, 78.0)
    chosen = choose_board(found, BoardFacts(("raspberrypi,5-model-b",)))
    assert (chosen.name, chosen.wall_c) == ("mine", 60.0)


def test_a_fault_in_a_site_s_own_preset_names_its_file_and_key(tmp_path: Path) -> None:
    path = own_preset(tmp_path / "boards", "mine", 500.0, "")
    with pytest.raises(ConfigInvalid, match="wall_c") as caught:
        load_boards(BOARDS, path.parent)
    assert str(path) in caught.value.message
    own_preset(path.parent, "other", 60.0, "")
    path.write_text((path.parent / "my-other.toml").read_text())
    with pytest.raises(ConfigInvalid, match="exists twice"):
        load_boards(BOARDS, path.parent)


def test_a_broken_preset_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("name = ")
    with pytest.raises(ConfigInvalid, match=r"mine\.toml"):
        load_boards(tmp_path)
