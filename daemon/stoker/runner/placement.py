"""Where the compute threads of this process run: one on each CPU, and real-time if asked for.

``pin`` must come before llama.cpp is loaded: libgomp reads its places then, and binds the calling
thread to the first one. What was reached is read back from /proc, never taken for granted.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PLACES: Final = "GOMP_CPU_AFFINITY"
MODES: Final = ("off", "one-to-one")
_TASKS: Final = Path("/proc/self/task")
_POLICIES: Final = {os.SCHED_FIFO: "fifo", os.SCHED_RR: "rr", os.SCHED_BATCH: "batch"}


class Placement:
    """``allowed``: CPUs of this process before anything was pinned."""

    def __init__(self, mode: str, *, allowed: Sequence[int] = (), online: int = 0) -> None:
        self.allowed = tuple(sorted(allowed or os.sched_getaffinity(0)))
        self._online = online or os.cpu_count() or 1
        self.pinned = mode == "one-to-one"

    def pin(self) -> None:
        """Tell libgomp: thread n on the n-th of our CPUs."""
        if self.pinned:
            os.environ[PLACES] = " ".join(map(str, self.allowed))

    def free(self) -> None:
        """The calling thread computes nothing: it may run on any of our CPUs."""
        if self.pinned:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self.allowed)

    def compute_threads(self) -> tuple[int, ...]:
        """Those of libgomp and the one that calls it; not the ones that Python started."""
        python = {t.native_id for t in threading.enumerate() if t is not threading.main_thread()}
        tasks = (int(path.name) for path in _TASKS.iterdir())
        return tuple(sorted(task for task in tasks if task not in python))

    def pinning(self) -> str:
        """one-to-one | set | free, as the kernel has it now."""
        masks = [mask for mask in map(_mask, self.compute_threads()) if mask]
        alone = [mask for mask in masks if len(mask) == 1]
        if masks and len(alone) == len(masks) == len(set(alone)):
            return "one-to-one"
        used = {cpu for mask in masks for cpu in mask}
        return "set" if len(used) < self._online else "free"

    def scheduling(self) -> str:
        """other, fifo:5, …"""
        kinds = {_kind(task) for task in self.compute_threads()} - {""}
        return ", ".join(sorted(kinds)) or "other"


def _mask(task: int) -> frozenset[int]:
    with contextlib.suppress(OSError):  # it has ended
        return frozenset(os.sched_getaffinity(task))
    return frozenset()


def _kind(task: int) -> str:
    with contextlib.suppress(OSError):
        policy = os.sched_getscheduler(task) & ~os.SCHED_RESET_ON_FORK
        word = _POLICIES.get(policy, "other")
        if policy in (os.SCHED_FIFO, os.SCHED_RR):
            return f"{word}:{os.sched_getparam(task).sched_priority}"
        return word
    return ""
