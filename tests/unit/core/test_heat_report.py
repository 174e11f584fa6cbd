"""The discovery report: what each thing is used for, and what would grant what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.thermal import preset

from stoker.config.schema import ThermalConfig
from stoker.core.heat_report import RULE, grant, report
from stoker.core.thermal_plan import GRANT, ThermalPlan, make_plan
from stoker.events.heat_finds import Finding, PowerMeter
from stoker.events.thermal import FrequencyPolicy, Sensor
from stoker.units import KiloHertz

STEPS = (KiloHertz(600_000), KiloHertz(1_500_000))
CAP = "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq"


def plan(
    board: str = "raspberrypi-4", *, writable: bool = True, devfreq: tuple[str, ...] = ()
) -> ThermalPlan:
    sensors = [Sensor("cpu-thermal", "zone", "/t"), Sensor("x86_pkg_temp", "zone", "/p")]
    policy = FrequencyPolicy("policy0", (0, 1, 2, 3), STEPS[0], STEPS[1], STEPS, writable)
    meters = [PowerMeter("core", "energy", "/c"), PowerMeter("package-0", "energy", "/e")]
    config = ThermalConfig(devfreq=devfreq)
    return make_plan(preset(board), config, sensors, [policy], meters)


def use(finding: Finding, known: ThermalPlan) -> str:
    (found,) = report(known, [finding])
    return found.use


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (Finding("zone", "cpu-thermal", "/t", "60 °C"), "holds policy0 below 78.5 °C"),
        (Finding("zone", "gpu-thermal", "/g", "60 °C"), "raspberrypi-4 does not name it"),
        (Finding("hwmon", "nvme/temp1", "/n", "", "EIO"), "cannot be read"),
        (Finding("cpufreq", "policy0", CAP, "…"), "capped for cpu-thermal"),
        (Finding("cpufreq", "policy7", CAP, "", "EIO"), "frequencies cannot be read"),
        (Finding("power", "package-0", "/e", "3 W"), "shown only"),
        (Finding("firmware", "get_throttled", "/f", "0"), "no cap of ours rises"),
        (Finding("devfreq", "gpu", "/d", "300 MHz"), "shown only"),
    ],
)
def test_every_thing_says_what_it_is_used_for(finding: Finding, words: str) -> None:
    assert words in use(finding, plan())


def test_the_preset_chooses_the_meter_that_measures() -> None:
    assert "frozen" in use(Finding("power", "package-0", "/e", "3 W"), plan("x86-generic"))
    assert use(Finding("power", "core", "/c", "1 W"), plan("x86-generic")) == "shown only"


def test_a_cap_without_permission_degrades_to_pacing_and_names_file_and_rule() -> None:
    (found,) = report(
        plan(writable=False), [Finding("cpufreq", "policy0", CAP, "…", "EACCES", "write")]
    )
    assert "answers are paced" in found.use
    assert GRANT in found.grant
    assert RULE in found.grant


GPU = Finding("devfreq", "gpu", "/sys/class/devfreq/gpu/cur_freq", "300 MHz")
STUCK = Finding("devfreq", "gpu", "/sys/class/devfreq/gpu/max_freq", "300 MHz", "EACCES", "write")


def test_a_device_that_the_configuration_names_is_not_called_shown_only() -> None:
    assert "thermal.devfreq does not name it" in use(GPU, plan())
    named = plan(devfreq=("gpu",))
    assert use(GPU, named).startswith("limited to the headroom")
    (found,) = report(named, [STUCK])
    assert found.use.startswith("not limited")
    assert GRANT in found.grant
    (found,) = report(named, [replace(STUCK, fault="EROFS")])
    assert "ReadWritePaths" in found.grant
    assert "cpu" not in found.grant


def test_a_clock_that_nobody_asked_for_lacks_no_right() -> None:
    (found,) = report(plan(), [STUCK])
    assert (found.grant, found.finding.fault, found.finding.denied) == ("", "", "")


def test_the_report_knows_every_file_that_the_package_grants(root: Path) -> None:
    lines = re.findall(r"^\$grant .*$", (root / "systemd/bin/grant").read_text(), re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        path = "/sys" + line.partition('"$sys"')[2]
        assert GRANT in grant(Finding("any", "x", path, "", "EACCES", "write")), line


def test_a_read_only_sys_is_not_blamed_on_the_rule() -> None:
    (found,) = report(plan(writable=False), [Finding("cpufreq", "p", CAP, "", "EROFS", "write")])
    assert "read-only" in found.grant
    assert RULE not in found.grant


def test_what_nothing_grants_says_so() -> None:
    (found,) = report(plan(), [Finding("hwmon", "secret/temp1", "/x", "", "EACCES", "read")])
    assert "no packaged rule" in found.grant


def test_the_snapshot_too_says_which_file_grants_a_cap() -> None:
    assert "scaling_max_freq of policy0" in plan(writable=False).notice
    assert GRANT in plan(writable=False).notice


def test_the_files_that_the_report_names_are_the_packaged_ones(root: Path) -> None:
    base = root
    assert GRANT in (base / "policies/udev/60-stoker.rules").read_text()
    assert GRANT in (base / "systemd/stoker.service").read_text()
    installed = (base / "debian/stoker.install").read_text()
    assert f"60-stoker.rules {RULE.rpartition('/')[0].removeprefix('/usr/')}" in installed
