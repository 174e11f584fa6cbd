"""Free memory and pressure from /proc and control groups, on made-up trees and the real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.system import FakeMemory

from stoker.drivers.memory import LinuxMemory
from stoker.ports.system import Memory

MIB = 1 << 20
KIB = 1 << 10
PSI = "some avg10={} avg60=0.00 avg300=0.00 total=1\nfull avg10={} avg60=0.00 avg300=0.00 total=0\n"


def write(root: Path, files: dict[str, str]) -> LinuxMemory:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return LinuxMemory(root)


MEMINFO = {"proc/meminfo": "MemTotal: 1000000 kB\nMemFree: 5 kB\nMemAvailable:  600000 kB\n"}
V2 = MEMINFO | {
    "proc/self/cgroup": "0::/system.slice/stoker.service\n",
    "proc/77/cgroup": "0::/stoker.slice/stoker-runner@a.service\n",
    "sys/fs/cgroup/cgroup.controllers": "memory\n",
    "sys/fs/cgroup/system.slice/stoker.service/memory.max": "max\n",
    "sys/fs/cgroup/system.slice/stoker.service/memory.current": f"{50 * MIB}\n",
    "sys/fs/cgroup/stoker.slice/memory.max": f"{400 * MIB}\n",
    "sys/fs/cgroup/stoker.slice/memory.high": "max\n",
    "sys/fs/cgroup/stoker.slice/memory.current": f"{300 * MIB}\n",
    "sys/fs/cgroup/stoker.slice/memory.stat":
        f"anon {200 * MIB}\ninactive_file {60 * MIB}\nactive_file {20 * MIB}\n",
    "sys/fs/cgroup/stoker.slice/stoker-runner@a.service/memory.max": "max\n",
    "sys/fs/cgroup/stoker.slice/stoker-runner@a.service/memory.current": "1\n",
}  # fmt: skip


@pytest.mark.parametrize("memory", [FakeMemory(), LinuxMemory()], ids=["fake", "real"])
def test_contract(memory: Memory) -> None:
    facts, seen = memory.facts(), memory.pressure()
    assert 0 < facts.available_bytes <= facts.total_bytes
    assert facts.source
    assert seen is None or 0 <= seen.full_pct <= 100
    assert memory.facts(4_000_000).available_bytes > 0  # no such process: the device's


def test_device_without_limits(tmp_path: Path) -> None:
    facts = write(tmp_path, V2).facts()
    assert (facts.total_bytes, facts.available_bytes) == (1_000_000 * KIB, 600_000 * KIB)
    assert facts.source == "MemAvailable"


def test_limit_above_the_process_counts_and_files_are_no_load(tmp_path: Path) -> None:
    facts = write(tmp_path, V2).facts(77)
    assert facts.available_bytes == (400 - 300 + 80) * MIB
    assert facts.source == "limit of /stoker.slice"


def test_memory_high_counts_where_it_is_tighter(tmp_path: Path) -> None:
    high = {"sys/fs/cgroup/stoker.slice/memory.high": f"{320 * MIB}\n"}
    assert write(tmp_path, V2 | high).facts(77).available_bytes == 100 * MIB


def test_group_that_is_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    over = {"sys/fs/cgroup/stoker.slice/memory.current": f"{900 * MIB}\n"}
    assert write(tmp_path, V2 | over).facts(77).available_bytes == 0


def test_old_control_groups(tmp_path: Path) -> None:
    v1 = MEMINFO | {
        "proc/self/cgroup": "4:memory:/box/one\n0::/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "5\n",
        "sys/fs/cgroup/memory/box/one/memory.limit_in_bytes": f"{100 * MIB}\n",
        "sys/fs/cgroup/memory/box/one/memory.usage_in_bytes": f"{90 * MIB}\n",
        "sys/fs/cgroup/memory/box/one/memory.stat":
            f"cache 1\ntotal_inactive_file {30 * MIB}\ntotal_active_file {MIB}\n",
    }  # fmt: skip
    facts = write(tmp_path, v1).facts()
    assert (facts.available_bytes, facts.source) == (41 * MIB, "limit of /one")


def test_container_that_sees_another_path_than_its_own(tmp_path: Path) -> None:
    """In a container /proc/self/cgroup may name a path of the world outside."""
    outside = V2 | {
        "proc/self/cgroup": "0::/docker/abc/../../..\n",
        "sys/fs/cgroup/memory.max": f"{128 * MIB}\n",
        "sys/fs/cgroup/memory.current": f"{28 * MIB}\n",
    }
    assert write(tmp_path, outside).facts().available_bytes == 100 * MIB


@pytest.mark.parametrize("text", ["", "MemTotal: x kB\n", "\xff\xfe", "MemAvailable\n" * 9])
def test_odd_meminfo_is_nothing_not_a_crash(tmp_path: Path, text: str) -> None:
    assert write(tmp_path, {"proc/meminfo": text}).facts().available_bytes == 0


def test_pressure_is_the_worse_of_machine_and_group(tmp_path: Path) -> None:
    memory = write(
        tmp_path,
        V2
        | {
            "proc/pressure/memory": PSI.format("12.50", "1.00"),
            "sys/fs/cgroup/stoker.slice/stoker-runner@a.service/memory.pressure":
                PSI.format("3.00", "2.75"),
        },
    )  # fmt: skip
    seen = memory.pressure(77)
    assert seen is not None
    assert (seen.some_pct, seen.full_pct) == (12.5, 2.75)


def test_no_pressure_file_is_none_and_a_named_one_is_read_alone(tmp_path: Path) -> None:
    write(tmp_path, V2)
    assert LinuxMemory(tmp_path).pressure() is None
    named = tmp_path / "psi"
    named.write_text(PSI.format("40.00", "0.00"))
    (tmp_path / "proc/pressure").mkdir()
    (tmp_path / "proc/pressure/memory").write_text(PSI.format("99.00", "99.00"))
    seen = LinuxMemory(tmp_path, str(named)).pressure()
    assert seen is not None
    assert (seen.some_pct, seen.full_pct) == (40.0, 0.0)


@pytest.mark.parametrize("text", ["", "some avg10=", "some avg10=1.2.3", "full avg10=1.0"])
def test_odd_pressure_is_none_or_a_number(tmp_path: Path, text: str) -> None:
    named = tmp_path / "psi"
    named.write_text(text)
    seen = LinuxMemory(tmp_path, str(named)).pressure()
    assert seen is None or seen.some_pct <= 100
