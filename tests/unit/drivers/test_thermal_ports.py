"""The contract of each thermal port, run on the real driver and on the in-memory fake."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.plant_ports import MemoryJournal, PlantPolicies, PlantSensors

from stoker.drivers.cap_journal import FileCapJournal, read_boot_id
from stoker.drivers.cpufreq import Cpufreq
from stoker.drivers.plants import PLANTS, Plant
from stoker.drivers.simulated_board import SimulatedBoard
from stoker.drivers.sysfs_thermal import SysfsThermal
from stoker.events.thermal import CapRecord
from stoker.ports.thermal import CapJournal, FrequencyPolicies, ThermalSensors
from stoker.units import KiloHertz

RK = "rk3588-small-heatsink"


def real_sensors(root: Path) -> ThermalSensors:
    SimulatedBoard(Plant(PLANTS[RK]), root)
    return SysfsThermal(root)


def real_policies(root: Path) -> FrequencyPolicies:
    SimulatedBoard(Plant(PLANTS[RK]), root)
    return Cpufreq(root)


@pytest.mark.parametrize("make", [real_sensors, lambda _: PlantSensors(Plant(PLANTS[RK]))])
def test_sensors(tmp_path: Path, make: Callable[[Path], ThermalSensors]) -> None:
    port = make(tmp_path)
    sensors = port.discover()
    assert [s.name for s in sensors] == list(PLANTS[RK].zones)
    assert {t.kind for t in sensors[0].trips} == {"passive", "critical"}
    for sensor in sensors:
        reading = port.read(sensor)
        assert reading.sensor == sensor.name
        assert reading.fault == ""
        assert reading.temperature_c is not None
        assert 15 < reading.temperature_c < 30


@pytest.mark.parametrize("make", [real_policies, lambda _: PlantPolicies(Plant(PLANTS[RK]))])
def test_policies(tmp_path: Path, make: Callable[[Path], FrequencyPolicies]) -> None:
    port = make(tmp_path)
    policies = port.discover()
    assert [p.name for p in policies] == ["policy0", "policy4", "policy6"]
    for policy in policies:
        assert policy.writable
        assert policy.steps_khz == tuple(sorted(policy.steps_khz))
        assert port.cap_khz(policy) == policy.max_khz == policy.steps_khz[-1]
    first = policies[0]
    assert port.set_cap(first, first.steps_khz[1]) is True
    assert port.fault(first) == ""
    assert port.cap_khz(first) == first.steps_khz[1]
    assert port.cap_khz(policies[1]) == policies[1].max_khz


@pytest.mark.parametrize(
    "make", [lambda p: FileCapJournal(p / "run" / "j"), lambda _: MemoryJournal()]
)
def test_journal(tmp_path: Path, make: Callable[[Path], CapJournal]) -> None:
    port = make(tmp_path)
    records = (
        CapRecord("policy0", KiloHertz(2), KiloHertz(1), "b"),
        CapRecord("policy4", KiloHertz(4), KiloHertz(3), "b"),
    )
    assert port.load() == ()
    port.clear()
    port.write(records)
    assert port.load() == records
    port.write(records[:1])
    assert port.load() == records[:1]
    port.clear()
    assert port.load() == ()


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"version": 2, "caps": []}', '{"version": 1}',
        '{"version": 1, "caps": [{"policy": "policy0"}]}',
        json.dumps({"version": 1, "caps": [
            {"policy": "p", "boot_id": "b", "original_khz": -1, "ours_khz": True}]}),
    ],
)  # fmt: skip
def test_a_damaged_journal_reads_as_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "j").write_text(text)
    assert FileCapJournal(tmp_path / "j").load() == ()


def test_a_journal_that_cannot_be_read_now_is_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileCapJournal(tmp_path / "j")
    journal.write([CapRecord("policy0", KiloHertz(2), KiloHertz(1), "b", free=True)])

    def full(*_args: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("os.open", full)
        with pytest.raises(OSError, match="too many"):
            journal.load()
    assert journal.load()[0].free


def test_a_line_of_an_older_version_can_be_read(tmp_path: Path) -> None:
    line = {"policy": "policy0", "original_khz": 2, "ours_khz": 1, "boot_id": "b"}
    (tmp_path / "j").write_text(json.dumps({"version": 1, "caps": [line]}))
    assert FileCapJournal(tmp_path / "j").load() == (
        CapRecord("policy0", KiloHertz(2), KiloHertz(1), "b"),
    )


def test_a_fifo_in_the_journals_place_does_not_hang_the_daemon(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "j")
    assert FileCapJournal(tmp_path / "j").load() == ()


def test_a_failed_write_keeps_the_old_journal_and_leaves_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileCapJournal(tmp_path / "j")
    old = (CapRecord("policy0", KiloHertz(2), KiloHertz(1), "b"),)
    journal.write(old)

    def full(_descriptor: int) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        journal.write(())
    monkeypatch.undo()
    assert journal.load() == old
    assert [path.name for path in tmp_path.iterdir()] == ["j"]


def test_the_boot_id_is_empty_when_the_kernel_gives_none(tmp_path: Path) -> None:
    assert read_boot_id(tmp_path / "absent") == ""
