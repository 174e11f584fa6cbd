"""Thread counts follow what the process may use, never what the machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.drivers import cpus


@pytest.fixture(autouse=True)
def _eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(8)))


def tree(root: Path, own: str, files: dict[str, str]) -> int:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "self").write_text(own)
    return cpus.usable_cpus(root, root / "self")


def test_without_any_cgroup_the_affinity_mask_counts(tmp_path: Path) -> None:
    assert cpus.usable_cpus(tmp_path, tmp_path / "absent") == 8


def test_a_quota_of_an_ancestor_counts_and_rounds_down(tmp_path: Path) -> None:
    files = {"a/cpu.max": "390000 100000\n", "a/b/cpu.max": "max 100000\n"}
    assert tree(tmp_path, "0::/a/b\n", files) == 3


def test_a_quota_below_one_cpu_is_still_one_thread(tmp_path: Path) -> None:
    assert tree(tmp_path, "0::/a\n", {"a/cpu.max": "20000 100000\n"}) == 1


def test_the_first_cgroup_version_is_read_too(tmp_path: Path) -> None:
    files = {
        "cpu,cpuacct/box/cpu.cfs_quota_us": "200000\n",
        "cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
    }
    assert tree(tmp_path, "4:cpu,cpuacct:/box\n0::/\n", files) == 2


def test_garbage_in_a_quota_file_is_no_quota(tmp_path: Path) -> None:
    assert tree(tmp_path, "0::/a\n", {"a/cpu.max": "what\n"}) == 8
