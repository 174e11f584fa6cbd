"""Reads what the kernel shows of the slice and of the runner's threads. Changes nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stoker.core.cpu_choice import parse_list
from stoker.drivers.attribute import ReadText, numbered
from stoker.drivers.cpu_share import read_cpu_share
from stoker.errors import StokerError
from stoker.events.realtime import RtFacts, ThreadFacts
from stoker.ports.doors import CpuShare

_SLICE: Final = "sys/fs/cgroup/stoker.slice"
_LARGEST: Final = 65536
_NICE, _PRIORITY, _POLICY = 16, 37, 38
"""nice, rt_priority and policy in proc_pid_stat(5), counted from the state behind the name."""


def read_proc(path: Path) -> str:
    """One file of /proc or the cgroup tree; raises OSError."""
    with path.open("rb") as file:
        return file.read(_LARGEST).decode("utf-8", "replace").strip()


def realtime_facts(
    runner_pid: int,
    *,
    units: bool,
    unheld: str = "",
    root: Path = Path("/"),
    read: ReadText = read_proc,
    share: Callable[[], CpuShare] = read_cpu_share,
) -> RtFacts:
    """Never raises: what cannot be read is left at its "unknown". 0 = there is no runner."""

    def text(path: str) -> str:
        try:
            return read(root / path)
        except OSError:
            return ""

    made = share() if units else CpuShare()
    runtime = text("proc/sys/kernel/sched_rt_runtime_us")
    process = root / "proc" / str(runner_pid)
    return RtFacts(
        made=made.state,
        why=made.reason,
        partition=text(f"{_SLICE}/cpuset.cpus.partition") if units else "",
        effective=text(f"{_SLICE}/cpuset.cpus.effective") if units else "",
        online=_list(text("sys/devices/system/cpu/online")),
        threads=_threads(process, read) if runner_pid > 0 else (),
        locked_bytes=1024 * _status(text(f"proc/{runner_pid}/status"), "VmLck"),
        running=runner_pid > 0,
        units=units,
        unheld=unheld,
        kernel=os.uname().release,
        preemption=_preemption(text("proc/version"), text("sys/kernel/realtime")),
        rt_runtime_us=int(runtime) if runtime.lstrip("-").isdecimal() else None,
    )


def _threads(process: Path, read: ReadText) -> tuple[ThreadFacts, ...]:
    """Of those that end while we look, nothing."""
    found: list[ThreadFacts] = []
    for task in numbered(process / "task", ""):
        with contextlib.suppress(OSError, ValueError, IndexError, StokerError):
            fields = read(task / "stat").rpartition(")")[2].split()
            status = read(task / "status").splitlines()
            cpus = next(row for row in status if row.startswith("Cpus_allowed_list:"))
            found.append(
                ThreadFacts(
                    parse_list(cpus.partition(":")[2].strip()),
                    policy=int(fields[_POLICY]),
                    priority=int(fields[_PRIORITY]),
                    nice=int(fields[_NICE]),
                )
            )
    return tuple(found)


def _status(text: str, key: str) -> int:
    for row in text.splitlines():
        name, _, value = row.partition(":")
        if name == key:
            word = value.split()[0] if value.split() else "0"
            return int(word) if word.isdecimal() else 0
    return 0


def _list(text: str) -> tuple[int, ...]:
    try:
        return parse_list(text)
    except StokerError:
        return ()


def _preemption(version: str, realtime: str) -> str:
    """As the kernel names itself: PREEMPT_RT, PREEMPT_DYNAMIC, PREEMPT, or none."""
    if realtime == "1":
        return "PREEMPT_RT"
    for word in ("PREEMPT_RT", "PREEMPT_DYNAMIC", "PREEMPT"):
        if word in version.split():
            return word
    return "none"
