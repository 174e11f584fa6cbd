"""Power meters, firmware flags and the inventory on a tree: what is read, what is refused."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.fakes.thermal import FaultyFiles, HandClock

from stoker.drivers.firmware_flags import SysfsFirmware
from stoker.drivers.heat_inventory import SysfsInventory
from stoker.drivers.power_meters import SysfsPower
from stoker.events.heat_finds import Finding, FirmwareFlags

FLAGS = "devices/platform/soc/soc:firmware/get_throttled"


def put(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def rapl(tmp_path: Path) -> Path:
    folder = tmp_path / "class/powercap/intel-rapl:0"
    put(folder, name="package-0\n", energy_uj="1000000\n", max_energy_range_uj="5000000\n")
    put(tmp_path / "class/powercap/intel-rapl", enabled="1\n")
    return folder / "energy_uj"


def test_an_energy_counter_gives_watts_from_its_second_reading_on(
    tmp_path: Path, rapl: Path
) -> None:
    clock = HandClock()
    power = SysfsPower(tmp_path, clock.monotonic_s)
    (meter,) = power.discover()
    assert meter.name == "package-0"
    assert (power.read(meter).watts, power.read(meter).fault) == (None, "")
    clock.now_s, _ = 2.0, rapl.write_text("4000000\n")
    assert power.read(meter).watts == pytest.approx(1.5)
    clock.now_s, _ = 3.0, rapl.write_text("500000\n")  # wrapped at 5 J
    assert power.read(meter).watts == pytest.approx(1.5)


def test_two_looks_at_once_do_not_divide_by_nothing(tmp_path: Path, rapl: Path) -> None:
    clock = HandClock()
    power = SysfsPower(tmp_path, clock.monotonic_s)
    (meter,) = power.discover()
    power.read(meter)
    rapl.write_text("2000000\n")
    assert power.read(meter).watts is None


def test_a_counter_begins_anew_after_a_fault(tmp_path: Path, rapl: Path) -> None:
    clock, files = HandClock(), FaultyFiles()
    power = SysfsPower(tmp_path, clock.monotonic_s, files.read)
    (meter,) = power.discover()
    power.read(meter)
    files.faults["energy_uj"] = errno.EACCES
    assert power.read(meter).fault == "EACCES"
    files.faults.clear()
    clock.now_s, _ = 9.0, rapl.write_text("4900000\n")
    assert power.read(meter).watts is None


def test_hwmon_rails_are_volts_times_amperes_and_power_inputs_win(tmp_path: Path) -> None:
    put(tmp_path / "class/hwmon/hwmon2", name="ina3221\n", in1_input="5000\n",
        curr1_input="1200\n", in1_label="VDD_IN\n", in2_input="900\n")  # fmt: skip
    put(tmp_path / "class/hwmon/hwmon3", name="ina226\n", power1_input="2500000\n",
        in1_input="5000\n", curr1_input="500\n")  # fmt: skip
    power = SysfsPower(tmp_path, HandClock().monotonic_s)
    seen = {meter.name: power.read(meter).watts for meter in power.discover()}
    assert seen == {"ina3221/VDD_IN": pytest.approx(6.0), "ina226/power1": pytest.approx(2.5)}


def test_a_meter_that_says_nonsense_has_a_fault(tmp_path: Path, rapl: Path) -> None:
    rapl.write_text("lots\n")
    power = SysfsPower(tmp_path, HandClock().monotonic_s)
    assert power.read(power.discover()[0]).fault == "not a number"


def test_firmware_flags_are_hexadecimal_and_named(tmp_path: Path) -> None:
    put(tmp_path, **{FLAGS.replace("/", "__"): "d0006\n"})
    firmware = SysfsFirmware(tmp_path)
    assert firmware.read() is None  # not looked for yet
    firmware.discover()
    flags = firmware.read()
    assert flags is not None
    assert flags.now == ("frequency capped", "throttled")
    assert flags.since_boot == ("under-voltage", "throttled", "soft temperature limit")
    assert flags.limits


def test_under_voltage_alone_does_not_limit_the_clock() -> None:
    assert not FirmwareFlags(0b1).limits
    assert not FirmwareFlags(0xE0000).limits


@pytest.mark.parametrize("text", ["", "no", "1" * 40])
def test_flags_that_are_no_number_are_none_or_bounded(tmp_path: Path, text: str) -> None:
    put(tmp_path, **{FLAGS.replace("/", "__"): text})
    firmware = SysfsFirmware(tmp_path)
    firmware.discover()
    flags = firmware.read()
    assert flags is None or flags.bits < 1 << 32


def inventory(root: Path, files: FaultyFiles, refuse: str = "") -> dict[str, Finding]:
    def may_write(path: Path) -> str:
        return refuse

    search = SysfsInventory(root, HandClock().monotonic_s, files.read, may_write)
    return {f"{found.kind} {found.name}": found for found in search.findings()}


@pytest.fixture
def board(tmp_path: Path, rapl: Path) -> Path:
    put(tmp_path / "class/thermal/thermal_zone0", type="cpu-thermal\n", temp="61500\n",
        policy="step_wise\n", mode="enabled\n", trip_point_0_type="critical\n",
        trip_point_0_temp="110000\n")  # fmt: skip
    put(tmp_path / "class/hwmon/hwmon0", name="nvme\n", temp1_input="40850\n")
    put(tmp_path / "devices/system/cpu/cpufreq/policy0", cpuinfo_min_freq="600000\n",
        cpuinfo_max_freq="1500000\n", scaling_max_freq="1500000\n",
        scaling_governor="ondemand\n", scaling_driver="cpufreq-dt\n")  # fmt: skip
    put(tmp_path / "class/devfreq/fb000000.gpu", cur_freq="300000000\n", min_freq="300000000\n",
        max_freq="1000000000\n", governor="simple_ondemand\n")  # fmt: skip
    put(tmp_path, **{FLAGS.replace("/", "__"): "0\n"})
    return tmp_path


def test_the_inventory_shows_every_kind_of_thing_with_its_value(board: Path) -> None:
    found = inventory(board, FaultyFiles())
    assert {name: item.value for name, item in found.items()} == {
        "zone cpu-thermal": "61.5 °C, critical 110 °C, policy step_wise, mode enabled",
        "hwmon nvme/temp1": "40.9 °C",
        "power package-0": "energy counter",
        "cpufreq policy0": "600..1500 MHz, cap 1500 MHz, cpufreq-dt, ondemand",
        "devfreq fb000000.gpu": "300 MHz, 300..1000 MHz, simple_ondemand",
        "firmware get_throttled": "now nothing; since boot nothing",
    }
    assert not any(item.fault for item in found.values())


@pytest.mark.parametrize("name", ["EAGAIN", "ENODATA", "EIO", "ETIMEDOUT", "EACCES"])
@pytest.mark.parametrize(
    "end", ["zone0/temp", "hwmon0/temp1_input", "energy_uj", "scaling_max_freq", "cur_freq",
            "get_throttled"]
)  # fmt: skip
def test_a_fault_at_one_thing_is_named_there_and_hides_nothing(
    board: Path, end: str, name: str
) -> None:
    files = FaultyFiles()
    files.faults[end] = getattr(errno, name)
    found = inventory(board, files)
    assert len(found) == 6
    (bad,) = [item for item in found.values() if item.fault]
    assert (bad.fault, bad.denied) == (name, "read" if name == "EACCES" else "")
    assert bad.path.endswith(end)


def test_a_zone_whose_type_cannot_be_read_is_still_listed(board: Path) -> None:
    files = FaultyFiles()
    files.faults["zone0/type"] = errno.EIO
    assert inventory(board, files)["zone thermal_zone0"].fault == "EIO"


def test_a_cap_that_may_not_be_written_is_refused_for_writing(board: Path) -> None:
    found = inventory(board, FaultyFiles(), refuse="EROFS")["cpufreq policy0"]
    assert (found.fault, found.denied) == ("EROFS", "write")
    assert "cap 1500 MHz" in found.value


def test_an_empty_machine_has_an_empty_inventory(tmp_path: Path) -> None:
    assert inventory(tmp_path / "nothing", FaultyFiles()) == {}
