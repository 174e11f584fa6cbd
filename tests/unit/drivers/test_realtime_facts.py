"""What /proc and the cgroup tree show of the runner: a made-up tree, and this very process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.drivers.realtime_facts import realtime_facts
from stoker.ports.doors import CpuShare

STAT = "7 (py) thon) S 1 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 {nice} 1 0 9 0 0 " + "0 " * 15
"""Up to field 39; rt_priority and policy follow."""


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    put(tmp_path, "sys/fs/cgroup/stoker.slice/cpuset.cpus.partition", "root\n")
    put(tmp_path, "sys/fs/cgroup/stoker.slice/cpuset.cpus.effective", "2-3\n")
    put(tmp_path, "sys/devices/system/cpu/online", "0-3\n")
    put(tmp_path, "proc/sys/kernel/sched_rt_runtime_us", "950000\n")
    put(tmp_path, "proc/version", "Linux version 6.1 #1 SMP PREEMPT_RT Debian\n")
    put(tmp_path, "proc/7/status", "Name:\tpy\nVmLck:\t    2048 kB\n")
    put(tmp_path, "proc/7/task/7/status", "Name:\tpy\nCpus_allowed_list:\t2\n")
    put(tmp_path, "proc/7/task/7/stat", STAT.format(nice="20 0") + "10 1 0\n")
    put(tmp_path, "proc/7/task/9/status", "Name:\tpy\nCpus_allowed_list:\t2-3\n")
    put(tmp_path, "proc/7/task/9/stat", STAT.format(nice="10 -10") + "0 0 0\n")
    return tmp_path


def share() -> CpuShare:
    return CpuShare("partition", "2-3")


def test_everything_is_read_where_it_may_be(tree: Path) -> None:
    facts = realtime_facts(7, units=True, root=tree, share=share)
    assert (facts.made, facts.partition, facts.effective) == ("partition", "root", "2-3")
    assert (facts.online, facts.locked_bytes) == ((0, 1, 2, 3), 2048 * 1024)
    seen = [(thread.cpus, thread.policy, thread.priority, thread.nice) for thread in facts.threads]
    assert seen == [((2,), 1, 10, 0), ((2, 3), 0, 0, -10)]
    assert (facts.preemption, facts.rt_runtime_us) == ("PREEMPT_RT", 950_000)


def test_a_runner_that_may_not_be_seen_or_is_not_there_has_no_threads(tree: Path) -> None:
    for pid in (0, 8):
        facts = realtime_facts(pid, units=True, root=tree, share=share)
        assert (facts.threads, facts.locked_bytes) == ((), 0)


def test_a_thread_that_ends_while_we_look_is_left_out(tree: Path) -> None:
    (tree / "proc/7/task/9/stat").unlink()
    put(tree, "proc/7/task/7/stat", "7 (py) S 1\n")
    assert realtime_facts(7, units=True, root=tree, share=share).threads == ()


def test_a_child_says_nothing_of_the_slice(tree: Path) -> None:
    facts = realtime_facts(7, units=False, root=tree, share=share)
    assert (facts.made, facts.partition, facts.effective) == ("unknown", "", "")


def test_an_empty_machine_is_unknown_and_no_fault(tmp_path: Path) -> None:
    facts = realtime_facts(7, units=True, root=tmp_path, share=CpuShare)
    assert (facts.online, facts.rt_runtime_us, facts.preemption) == ((), None, "none")


def test_this_process_reads_as_the_kernel_has_it() -> None:
    facts = realtime_facts(os.getpid(), units=False)
    main = facts.threads[0]
    assert set(main.cpus) == os.sched_getaffinity(0)
    assert main.policy == os.sched_getscheduler(0)
    assert main.priority == 0
