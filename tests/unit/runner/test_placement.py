"""Masks and niceness of the runner's own threads: a process of its own, as a child would be."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from stoker.runner.placement import Placement

CPU = min(os.sched_getaffinity(0))
BASE = os.getpriority(os.PRIO_PROCESS, 0)  # whatever these tests run at
NICER = min(BASE + 5, 19)  # always allowed
# "online" is one CPU more than there are, so that one CPU suffices to test with.
SCRIPT = """
import json, os, resource, sys
from stoker.runner.placement import Placement
mode, cpus, nice, limit, online = json.loads(sys.argv[1])
if limit is not None:
    resource.setrlimit(13, (limit, limit))
p = Placement(mode, cpus=cpus, nice=nice, online=online)
p.pin(); p.prefer()
print(json.dumps([p.pinning(), list(p.cpus()), p.nice(), p.scheduling(), p.note()]))
"""
UNPRIVILEGED = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"]


def placed(
    env: dict[str, str],
    mode: str,
    cpus: list[int],
    nice: int = 0,
    *,
    limit: int | None = None,
    online: int = 4096,
    before: list[str] | None = None,
) -> list[Any]:
    words = json.dumps([mode, cpus, nice, limit, online])
    command = [*(before or []), sys.executable, "-c", SCRIPT, words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def test_threads_are_held_to_the_chosen_cpus_and_the_kernel_says_so(
    child_env: dict[str, str],
) -> None:
    pinning, cpus, _, scheduling, note = placed(child_env, "set", [CPU])
    assert (pinning, cpus) == ("one-to-one", [CPU])  # one thread on one CPU is both
    assert (scheduling, note) == ("other", "")


def test_off_changes_nothing_whatever_else_is_said(child_env: dict[str, str]) -> None:
    _, cpus, nice, _, note = placed(child_env, "off", [CPU], NICER)
    assert cpus == sorted(os.sched_getaffinity(0))
    assert (nice, note) == (BASE, "")


def test_a_cpu_that_is_not_there_leaves_the_threads_free_and_says_why(
    child_env: dict[str, str],
) -> None:
    _, cpus, nice, _, note = placed(
        child_env, "set", [8000], NICER, online=len(os.sched_getaffinity(0))
    )
    assert cpus == sorted(os.sched_getaffinity(0))
    assert note == "threads are not held to CPUs 8000: Invalid argument"
    assert nice == BASE


def test_what_the_kernel_leaves_of_the_chosen_cpus_is_told(child_env: dict[str, str]) -> None:
    _, cpus, _, _, note = placed(child_env, "set", [CPU, 8000])
    assert cpus == [CPU]
    assert note == f"of CPUs {CPU},8000 the kernel leaves {CPU}"


def test_compute_threads_become_nice_where_they_are_held(child_env: dict[str, str]) -> None:
    assert placed(child_env, "set", [CPU], NICER)[2] == NICER


def test_masks_of_all_cpus_give_no_advantage(child_env: dict[str, str]) -> None:
    everything = sorted(os.sched_getaffinity(0))
    assert placed(child_env, "set", everything, NICER, online=len(everything))[2] == BASE


def test_who_has_the_right_may_take_an_advantage(child_env: dict[str, str]) -> None:
    allowed = subprocess.run(["nice", "-n", "-20", "true"], capture_output=True, check=True)
    if allowed.stderr:
        pytest.skip("this user may not lower its niceness")
    assert placed(child_env, "set", [CPU], -10)[2:] == [-10, "other", ""]


def test_a_process_without_privileges_stays_as_it_is_and_says_why(
    child_env: dict[str, str],
) -> None:
    before = UNPRIVILEGED if os.geteuid() == 0 else []
    found = placed(child_env, "set", [CPU], -10, limit=0, before=before)
    reason = f"nice -10: Permission denied, it is {BASE} (RLIMIT_NICE is 0)"
    assert found[2:] == [BASE, "other", reason]


@pytest.mark.parametrize(
    ("limit", "nice", "note"),
    [
        (30, -10, ""),  # the unit's LimitNICE=-10
        (25, -5, "nice -10: Permission denied, it is -5 (RLIMIT_NICE is 25)"),
        (20, 0, "nice -10: Permission denied, it is 0 (RLIMIT_NICE is 20)"),
        (15, 0, "nice -10: Permission denied, it is 0 (RLIMIT_NICE is 15)"),
    ],
)
def test_the_limit_is_used_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch, limit: int, nice: int, note: str
) -> None:
    """As setpriority(2) has it: raising the limit itself takes a right that containers lack."""
    now: dict[int, int] = {}

    def setpriority(_which: int, task: int, value: int) -> None:
        if value < now.get(task, 0) and value < 20 - limit:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        now[task] = value

    monkeypatch.setattr(os, "setpriority", setpriority)
    monkeypatch.setattr(os, "getpriority", lambda _which, task: now.get(task, 0))
    monkeypatch.setattr("resource.getrlimit", lambda _which: (limit, limit))
    placement = Placement("set", cpus=sorted(os.sched_getaffinity(0)), nice=-10, online=4096)
    placement.prefer()
    assert (placement.nice(), placement.note()) == (nice, note)
    assert set(now.values()) <= {nice}


def test_a_filter_that_refuses_what_the_limit_allows_is_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def setpriority(*_words: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "setpriority", setpriority)
    monkeypatch.setattr("resource.getrlimit", lambda _which: (25, 25))
    placement = Placement("set", cpus=sorted(os.sched_getaffinity(0)), nice=-10, online=4096)
    placement.prefer()
    assert placement.note() == (
        f"nice -10: Operation not permitted, it is {BASE} (RLIMIT_NICE is 25)"
    )
