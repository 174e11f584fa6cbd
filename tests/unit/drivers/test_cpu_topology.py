"""The topology of real kinds of machines, as trees of sysfs, and what is chosen of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from stoker.core.cpu_choice import Cpu, choose, format_list, held
from stoker.drivers.cpu_topology import read_cpus


class Machine:
    """Writes what the kernel of such a machine shows."""

    def __init__(self, root: Path, online: str) -> None:
        self.root = root
        self.put("devices/system/cpu/online", online)
        self.put("devices/system/cpu/isolated", "")

    def put(self, name: str, text: object) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def cpu(
        self,
        number: int,
        *,
        capacity: int = 0,
        khz: int = 0,
        siblings: Iterable[int] = (),
        cluster: int = 65535,
    ) -> None:
        base = f"devices/system/cpu/cpu{number}"
        if capacity:
            self.put(f"{base}/cpu_capacity", capacity)
        if khz:
            self.put(f"{base}/cpufreq/cpuinfo_max_freq", khz)
        self.put(f"{base}/topology/thread_siblings_list", format_list(siblings or [number]))
        self.put(f"{base}/topology/cluster_id", cluster)
        self.cache(number, 0, 1, [number])

    def cache(self, number: int, index: int, level: int, shared: Iterable[int]) -> None:
        base = f"devices/system/cpu/cpu{number}/cache/index{index}"
        self.put(f"{base}/level", level)
        self.put(f"{base}/shared_cpu_list", format_list(shared))


def test_rk3588_gives_both_pairs_of_big_cores(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0-7")
    for n in range(8):
        big = n >= 4
        machine.cpu(
            n, capacity=1024 if big else 530, khz=2_400_000 if big else 1_800_000,
            cluster=(0, 0, 1, 2)[n // 2],
        )  # fmt: skip
        machine.cache(n, 2, 2, [n])
        machine.cache(n, 3, 3, range(8))
    cpus = read_cpus(tmp_path)
    assert cpus[6] == Cpu(6, 1024, 2_400_000, (6,), cluster=2, cache=tuple(range(8)))
    assert choose(cpus) == held(cpus) == (4, 5, 6, 7)


def test_a_hybrid_intel_chip_gives_its_performance_cores(tmp_path: Path) -> None:
    """Four performance cores with two threads, two clusters of four efficient ones on an L2, and
    two more on the low-power island without L3."""
    machine = Machine(tmp_path, "0-17")
    machine.put("devices/cpu_core/cpus", "0-7")
    machine.put("devices/cpu_atom/cpus", "8-17")
    for n in range(18):
        pair = (n & ~1, n | 1) if n < 8 else (n,)
        near = pair if n < 8 else range(n & ~3, (n | 3) + 1) if n < 16 else (16, 17)
        machine.cpu(n, khz=5_000_000 if n < 8 else 4_100_000, siblings=pair, cluster=min(near))
        machine.cache(n, 2, 2, near)
        if n < 16:
            machine.cache(n, 3, 3, range(16))
    cpus = read_cpus(tmp_path)
    assert [cpu.kind for cpu in cpus] == ["core"] * 8 + ["atom"] * 10
    assert (cpus[9].cluster, cpus[9].cache) == (8, tuple(range(16)))
    assert cpus[17].cache == (16, 17)
    assert choose(cpus) == held(cpus) == (2, 4, 6)


def test_a_pc_with_two_threads_a_core_gives_one_of_each(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0-7")
    for n in range(8):
        machine.cpu(n, khz=4_000_000, siblings=(n % 4, n % 4 + 4))
        machine.cache(n, 2, 2, (n % 4, n % 4 + 4))
        machine.cache(n, 3, 3, range(8))
    assert choose(read_cpus(tmp_path)) == (1, 2, 3)
    assert held(read_cpus(tmp_path)) == ()


@pytest.mark.parametrize("khz", [1_500_000, 2_400_000])
def test_a_raspberry_pi_gives_three_of_its_four(tmp_path: Path, khz: int) -> None:
    """A 4 has one L2 for all, a 5 one each and an L3."""
    machine = Machine(tmp_path, "0-3")
    for n in range(4):
        machine.cpu(n, capacity=1024, khz=khz)
        machine.cache(n, 2, 2, range(4) if khz < 2_000_000 else [n])
        if khz > 2_000_000:
            machine.cache(n, 3, 3, range(4))
    cpus = read_cpus(tmp_path)
    assert cpus[1] == Cpu(1, 1024, khz, (1,), cache=(0, 1, 2, 3))
    assert choose(cpus) == (1, 2, 3)
    assert held(cpus) == ()


def test_isolated_cpus_are_left_to_whom_they_were_given(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0-3")
    for n in range(4):
        machine.cpu(n, capacity=1024)
    machine.put("devices/system/cpu/isolated", "3")
    assert [cpu.isolated for cpu in read_cpus(tmp_path)] == [False, False, False, True]
    assert choose(read_cpus(tmp_path)) == (1, 2)
    assert choose(read_cpus(tmp_path), "3") == (3,)


def test_a_cpu_that_tells_nothing_is_there_all_the_same(tmp_path: Path) -> None:
    Machine(tmp_path, "0-1")
    assert read_cpus(tmp_path) == (Cpu(0), Cpu(1))


@pytest.mark.parametrize("text", ["", "many", "\xb2"])
def test_files_that_make_no_sense_count_as_not_there(tmp_path: Path, text: str) -> None:
    machine = Machine(tmp_path, "0")
    machine.cpu(0)
    for name in ("cpu_capacity", "topology/cluster_id", "topology/thread_siblings_list"):
        machine.put(f"devices/system/cpu/cpu0/{name}", text)
    machine.cache(0, 2, 3, [0])
    machine.put("devices/system/cpu/cpu0/cache/index2/level", text)
    assert read_cpus(tmp_path) == (Cpu(0),)


def test_a_machine_without_topology_has_no_cpus_to_give(tmp_path: Path) -> None:
    assert read_cpus(tmp_path) == ()
