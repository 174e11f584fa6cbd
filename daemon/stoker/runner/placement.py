"""Where the compute threads of this process run: one on each CPU, or held to some, and how nice.

``pin`` must come before llama.cpp is loaded: libgomp reads its places then, and binds the calling
thread to the first one. What was reached is read back from /proc, never taken for granted.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PLACES: Final = "GOMP_CPU_AFFINITY"
MODES: Final = ("off", "set", "one-to-one")
_RLIMIT_NICE: Final = 13  # asm-generic/resource.h; the module has no name for it
_NICE_ZERO: Final = 20  # the limit counts from 1 (nice 19) to 40 (nice -20)
_TASKS: Final = Path("/proc/self/task")
_POLICIES: Final = {os.SCHED_FIFO: "fifo", os.SCHED_RR: "rr", os.SCHED_BATCH: "batch"}


class Placement:
    """``allowed``: CPUs of this process before anything was pinned; ``cpus``: those to hold it to,
    in mode "set"; ``nice`` of the compute threads there, 0 = as they are."""

    def __init__(
        self,
        mode: str,
        *,
        cpus: Sequence[int] = (),
        nice: int = 0,
        allowed: Sequence[int] = (),
        online: int = 0,
    ) -> None:
        self.allowed = tuple(sorted(allowed or os.sched_getaffinity(0)))
        self._online = online or os.cpu_count() or 1
        self.pinned = mode == "one-to-one"
        self._cpus = frozenset(cpus) if mode == "set" else frozenset()
        self._nice = nice
        self._unheld = ""
        self._unnice = ""

    def pin(self) -> None:
        """Tell libgomp: thread n on the n-th of our CPUs. Or hold all threads that come to the
        chosen CPUs, between which the kernel may move them."""
        if self.pinned:
            os.environ[PLACES] = " ".join(map(str, self.allowed))
        elif self._cpus:
            wanted = ",".join(map(str, sorted(self._cpus)))
            try:
                os.sched_setaffinity(0, self._cpus)
            except OSError as error:
                self._unheld = f"threads are not held to CPUs {wanted}: {error.strerror}"
                self._cpus = frozenset()
                return
            if (left := _mask(0)) != self._cpus:  # a cpuset may take some away
                cpus = ",".join(map(str, sorted(left)))
                self._unheld = f"of CPUs {wanted} the kernel leaves {cpus}"

    def free(self) -> None:
        """The calling thread computes nothing: it may run on any of our CPUs."""
        if self.pinned:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self.allowed)

    def prefer(self) -> None:
        """Compute threads go before others' on the CPUs that they are held to, never on all of
        the machine's: there would be no other way out for those."""
        self._unnice = ""
        if not self._nice or not self._cpus or self.pinning() == "free":
            return
        for task in self.compute_threads():
            with contextlib.suppress(ProcessLookupError):
                self._unnice = self._prefer(task) or self._unnice

    def _prefer(self, task: int) -> str:
        """Without CAP_SYS_NICE as far as RLIMIT_NICE allows (setpriority(2), getrlimit(2))."""
        try:
            os.setpriority(os.PRIO_PROCESS, task, self._nice)
        except PermissionError as error:
            limit = resource.getrlimit(_RLIMIT_NICE)[0]
            floor = _NICE_ZERO - limit
            with contextlib.suppress(PermissionError):  # a filter may refuse what the limit allows
                if floor < os.getpriority(os.PRIO_PROCESS, task):
                    os.setpriority(os.PRIO_PROCESS, task, max(floor, self._nice))
            now = os.getpriority(os.PRIO_PROCESS, task)
            return f"nice {self._nice}: {error.strerror}, it is {now} (RLIMIT_NICE is {limit})"
        return ""

    def note(self) -> str:
        """What was wanted and not reached."""
        return "; ".join(filter(None, (self._unheld, self._unnice)))

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

    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted({cpu for task in self.compute_threads() for cpu in _mask(task)}))

    def nice(self) -> int:
        """The lowest of the compute threads."""
        return min((n for task in self.compute_threads() for n in _niceness(task)), default=0)

    def scheduling(self) -> str:
        """other, fifo:5, …"""
        kinds = {_kind(task) for task in self.compute_threads()} - {""}
        return ", ".join(sorted(kinds)) or "other"


def _mask(task: int) -> frozenset[int]:
    with contextlib.suppress(OSError):  # it has ended
        return frozenset(os.sched_getaffinity(task))
    return frozenset()


def _niceness(task: int) -> tuple[int, ...]:
    with contextlib.suppress(OSError):
        return (os.getpriority(os.PRIO_PROCESS, task),)
    return ()


def _kind(task: int) -> str:
    with contextlib.suppress(OSError):
        policy = os.sched_getscheduler(task) & ~os.SCHED_RESET_ON_FORK
        word = _POLICIES.get(policy, "other")
        if policy in (os.SCHED_FIFO, os.SCHED_RR):
            return f"{word}:{os.sched_getparam(task).sched_priority}"
        return word
    return ""
