"""An OOM kill is told from a SIGKILL of a person's by the kernel's own counters."""

from __future__ import annotations

import select
import signal
from pathlib import Path

import pytest

from stoker.drivers.oom_kills import OomKills
from stoker.drivers.runner_child import ChildLauncher


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/vmstat").write_text("pgfault 1\noom_kill 7\n")
    return tmp_path


@pytest.fixture
def events(root: Path) -> Path:
    (root / "proc/self/cgroup").write_text("1:cpu:/x\n0::/system.slice/stoker.service\n")
    file = root / "sys/fs/cgroup/system.slice/stoker.service/memory.events"
    file.parent.mkdir(parents=True)
    file.write_text("low 0\noom 3\noom_kill 2\noom_group_kill 1\n")
    return file


def test_our_own_cgroup_counts_where_it_tells(root: Path, events: Path) -> None:
    assert OomKills(root).count() == 2


def test_without_a_cgroup_that_tells_the_whole_machine_counts(root: Path) -> None:
    assert OomKills(root).count() == 7
    (root / "proc/self/cgroup").write_text("0::/\n")
    assert OomKills(root).count() == 7


@pytest.mark.parametrize("text", ["", "oom_kill many\n", "oom_kill\n"])
def test_counters_that_say_nothing_count_nothing(root: Path, text: str) -> None:
    (root / "proc/vmstat").write_text(text)
    assert OomKills(root).count() == 0
    (root / "proc/vmstat").unlink()
    assert OomKills(root).count() == 0


@pytest.mark.parametrize("struck", [True, False])
def test_a_runner_killed_while_the_counter_rose_was_out_of_memory(
    root: Path, events: Path, struck: bool
) -> None:
    runner = ChildLauncher("echo", gomp_spincount=1000, oom_kills=OomKills(root)).start()
    if struck:
        events.write_text("oom_kill 3\n")
    runner.signal(signal.SIGKILL)
    assert select.select([runner.exit_fileno()], [], [], 10.0)[0]
    how = runner.exited()
    runner.close()
    runner.release()
    assert how is not None
    assert (how.signal, how.oom_killed) == (signal.SIGKILL, struck)
