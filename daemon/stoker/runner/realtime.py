"""FIFO for compute threads, opt-in, with its guards: one thread a CPU, a probe, a canary.

A canary (an ordinary process on the same CPUs) beats; a watcher of a higher priority takes FIFO
back from us when it has not been heard for 2 s. Both are children that end with us: Python's own
lock must not stand between a starved thread and its rescue. Never touches a global setting.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import struct
import time
from collections.abc import Callable
from typing import Final

from stoker.runner.placement import Placement

STARVED_S: Final = 2.0
BEAT_S: Final = 0.1
HIGHEST: Final = 9  # LimitRTPRIO of the unit is 10, which the watcher needs
_PR_SET_PDEATHSIG: Final = 1
_SLOTS: Final = struct.Struct("dd")  # last beat of the canary, watching since


class RealTime:
    """``start`` before llama.cpp is loaded, ``apply`` once its threads are there."""

    def __init__(self, priority: int, placement: Placement) -> None:
        self._priority = min(max(priority, 1), HIGHEST)
        self._placement = placement
        self._page = mmap.mmap(-1, mmap.PAGESIZE)  # shared with the children
        self.refused = ""

    def start(self) -> None:
        """The children; or the reason why FIFO is not used."""
        self.refused = self._why_not()
        if self.refused:
            return
        me = os.getpid()
        _child(self._beat)
        _child(lambda: self._watch(me))

    def apply(self, threads: int) -> None:
        """Every compute thread becomes FIFO, if they are what we think they are."""
        if self.refused:
            return
        tasks = self._placement.compute_threads()
        if threads > len(self._placement.allowed):
            self.refused = f"{threads} threads on {len(self._placement.allowed)} CPUs"
        elif self._placement.pinning() != "one-to-one":
            self.refused = "compute threads are not pinned one to one"
        if self.refused:
            return
        self._put(1, time.monotonic())
        for task in tasks:
            try:
                # Threads that these start later begin as ordinary ones.
                flag = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
                os.sched_setscheduler(task, flag, os.sched_param(self._priority))
            except OSError as error:
                self.refused = f"thread {task}: {error.strerror}"
                take_back(tasks)
                return

    def _why_not(self) -> str:
        if not self._placement.pinned:
            return "compute threads are not pinned"
        status = _child_status(lambda: _try_fifo(self._priority + 1))
        if status:
            reason = os.strerror(status)
            return f"{reason}: RLIMIT_RTPRIO, or RT_GROUP_SCHED gives this cgroup nothing"
        return ""

    def _beat(self) -> None:
        """The canary: an ordinary process on the compute CPUs."""
        os.sched_setaffinity(0, self._placement.allowed)
        while True:
            self._put(0, time.monotonic())
            time.sleep(BEAT_S)

    def _watch(self, runner: int) -> None:
        """Above the compute threads, asleep nearly always."""
        _try_fifo(self._priority + 1)
        while True:
            time.sleep(STARVED_S / 4)
            since_s = max(self._get(0), self._get(1))
            if self._get(1) and time.monotonic() - since_s > STARVED_S:
                tasks = (int(name) for name in os.listdir(f"/proc/{runner}/task"))  # noqa: PTH208
                kept = take_back(tuple(tasks))
                said = f"is taken back: others starved for 2 s{kept and ', but ' + kept}"
                os.write(2, f"stoker.runner: FIFO {said}\n".encode())
                return

    def _put(self, slot: int, value: float) -> None:
        struct.pack_into("d", self._page, 8 * slot, value)

    def _get(self, slot: int) -> float:
        return float(_SLOTS.unpack_from(self._page)[slot])


def take_back(tasks: tuple[int, ...]) -> str:
    """What stayed real-time, and why. The flag must stay: only CAP_SYS_NICE may drop it, and a
    call that does is refused whole (sched_setscheduler(2))."""
    kept = ""
    for task in tasks:
        try:
            os.sched_setscheduler(task, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        except ProcessLookupError:
            continue
        except OSError as error:
            kept = f"thread {task} keeps it: {error.strerror}"
    return kept


def _try_fifo(priority: int) -> int:
    """0, or the errno."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError as error:
        return error.errno or 1
    return 0


def _child(work: Callable[[], object]) -> int:
    """A process of its own that ends with us and hears nobody's Ctrl-C."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.closerange(3, 1024)  # the agent must see the link close when the runner dies
        if os.getppid() == parent:
            work()
    finally:
        os._exit(0)


def _child_status(work: Callable[[], int]) -> int:
    """What a throw-away child returned: FIFO may be refused to this cgroup."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            status = work()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
