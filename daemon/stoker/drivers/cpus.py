"""How many CPUs this process may really use: affinity, then the cgroup's quota.

A thread count taken from the machine while a quota allows less makes decoding tens of
times slower (spin barriers under throttling), so quotas round down, never below one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
SELF = Path("/proc/self/cgroup")


def usable_cpus(cgroup: Path = CGROUP, own: Path = SELF) -> int:
    """Whole CPUs: the least of the affinity mask and every quota above us."""
    count = len(os.sched_getaffinity(0))
    for quota in _quotas(cgroup, own):
        count = min(count, int(quota))
    return max(count, 1)


def _quotas(cgroup: Path, own: Path) -> Iterator[float]:
    """CPUs granted by each cgroup from ours up to the root; v2, then v1 where mounted."""
    with contextlib.suppress(OSError):
        for row in own.read_text().splitlines():
            _, controllers, path = row.split(":", 2)
            if controllers == "":
                yield from _ancestors(cgroup, path, _quota_v2)
            elif "cpu" in controllers.split(","):
                for mount in (cgroup / controllers, cgroup / "cpu"):
                    yield from _ancestors(mount, path, _quota_v1)


def _ancestors(mount: Path, path: str, read: Callable[[Path], float]) -> Iterator[float]:
    parts = [part for part in path.split("/") if part]
    for depth in range(len(parts), -1, -1):
        with contextlib.suppress(OSError, ValueError):
            quota = read(mount.joinpath(*parts[:depth]))
            if quota > 0:
                yield quota


def _quota_v2(folder: Path) -> float:
    limit, period = (folder / "cpu.max").read_text().split()
    return 0.0 if limit == "max" else int(limit) / int(period)


def _quota_v1(folder: Path) -> float:
    limit = int((folder / "cpu.cfs_quota_us").read_text())
    return limit / int((folder / "cpu.cfs_period_us").read_text()) if limit > 0 else 0.0
