"""The cpuset partition on a directory tree that behaves as the kernel's and systemd's would."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from stoker.core.cpu_choice import format_list
from stoker.drivers.partition import SLICE, Partition
from stoker.errors import Unavailable


class Systemd:
    """Writes cpuset.cpus as systemd does after AllowedCPUs= was set."""

    def __init__(self, root: Path, *, works: bool = True, refuses: bool = False) -> None:
        self.file = root / SLICE / "cpuset.cpus"
        self.works, self.refuses = works, refuses
        self.asked: list[tuple[int, ...]] = []

    def set_allowed_cpus(self, unit: str, cpus: Sequence[int]) -> None:
        assert unit == SLICE
        self.asked.append(tuple(cpus))
        if self.refuses:
            raise Unavailable("cannot SetUnitProperties stoker.slice: Access denied")
        if self.works:
            self.file.write_text(format_list(cpus) + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / SLICE).mkdir()
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu memory\n")
    (tmp_path / SLICE / "cpuset.cpus.partition").write_text("member\n")
    return tmp_path


def partition_file(root: Path) -> Path:
    return root / SLICE / "cpuset.cpus.partition"


def never(_seconds: float) -> None:
    raise AssertionError("nothing to wait for")


def test_a_partition_counts_when_it_reads_back_as_root(root: Path) -> None:
    systemd = Systemd(root)
    result = Partition(systemd, root, never).apply((1, 2, 3))
    assert (result.state, result.cpus, result.kernel) == ("partition", "1-3", "root")
    assert systemd.asked == [(1, 2, 3)]


def test_a_partition_that_the_kernel_calls_invalid_falls_back_to_a_cpuset(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.read_text
    invalid = "root invalid (Cpu list in cpuset.cpus not exclusive)\n"

    def read(path: Path, *args: str) -> str:
        text = real(path, *args)
        return invalid if path.name == "cpuset.cpus.partition" and text == "root\n" else text

    monkeypatch.setattr(Path, "read_text", read)
    result = Partition(Systemd(root), root, never).apply((1,))
    assert (result.state, result.kernel) == ("cpuset", invalid.strip())
    assert partition_file(root).read_text() == "member\n"


def test_an_old_kernel_without_partitions_leaves_a_plain_cpuset(root: Path) -> None:
    partition_file(root).unlink()
    partition_file(root).mkdir()  # cannot be written
    result = Partition(Systemd(root), root, never).apply((1,))
    assert result.state == "cpuset"
    assert "partition" in result.reason


def test_without_the_cpuset_controller_nothing_is_asked_for(root: Path) -> None:
    (root / "cgroup.controllers").write_text("cpu memory\n")
    systemd = Systemd(root)
    result = Partition(systemd, root, never).apply((1,))
    assert result.state == "none"
    assert "cpuset" in result.reason
    assert systemd.asked == []


def test_a_slice_that_never_gets_its_cpuset_is_given_up(root: Path) -> None:
    waits: list[float] = []
    result = Partition(Systemd(root, works=False), root, waits.append).apply((1,))
    assert result.state == "none"
    assert 1.0 < sum(waits) < 5.0


def test_a_refusal_of_systemd_is_reported(root: Path) -> None:
    result = Partition(Systemd(root, refuses=True), root, never).apply((1,))
    assert result.state == "none"
    assert "Access denied" in result.reason


def test_release_gives_the_cpus_back(root: Path) -> None:
    systemd = Systemd(root)
    partition = Partition(systemd, root, never)
    partition.apply((1,))
    partition.release()
    assert partition_file(root).read_text() == "member\n"
    assert systemd.asked[-1] == ()


def test_cpus_without_load_balancing_become_an_isolated_partition_also_anew(root: Path) -> None:
    partition = Partition(Systemd(root), root, never)
    made = partition.apply((2, 3), "isolated")
    assert (made.state, made.kernel) == ("partition", "isolated")
    partition_file(root).write_text("isolated invalid (No cpu available due to hotplug)\n")
    again = partition.again(made)
    assert again is not None
    assert (again.state, again.kernel) == ("partition", "isolated")


def test_a_lost_partition_is_made_anew_once_and_then_shared(root: Path) -> None:
    made = Partition(Systemd(root), root, never).apply((2, 3))
    partition = Partition(Systemd(root), root, never)
    assert partition.again(made) is None
    partition_file(root).write_text("root invalid (No cpu available due to hotplug)\n")
    repaired = partition.again(made)
    assert repaired is not None
    assert (repaired.state, repaired.losses) == ("partition", 1)
    assert "hotplug" in repaired.reason
    partition_file(root).write_text("root invalid (Cpu list in cpuset.cpus not exclusive)\n")
    shared = partition.again(repaired)
    assert shared is not None
    assert (shared.state, shared.cpus) == ("cpuset", "2-3")
    assert "lost 2 times" in shared.reason
    assert partition_file(root).read_text() == "member\n"
    assert partition.again(shared) is None
