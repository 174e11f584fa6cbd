"""A process that sleeps until fixed times and writes how late it woke: one arm of ``rt probe``.

    python -m stoker.cli.rt_sleeper SECONDS INTERVAL_US CPU PRIORITY

CPU -1 is any, PRIORITY 0 is not FIFO. Memory is locked, garbage collection off. It prints
JSON: {"counts": {µs: n}} or {"refused": …}.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import sys
import time
from array import array
from typing import Final

from stoker.cli.latency import counts_of

_MCL_CURRENT_AND_FUTURE: Final = 1 | 2
_TIMER_ABSTIME: Final = 1
_CLOCK_MONOTONIC: Final = 1
_RUNAWAY_US: Final = 500_000  # a FIFO thread that computes for so long without sleeping is killed
_WARM_UP: Final = 20


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def main() -> int:
    seconds, interval_us, cpu, priority = float(sys.argv[1]), *map(int, sys.argv[2:5])
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        locked = libc.mlockall(_MCL_CURRENT_AND_FUTURE) == 0
        _place(cpu, priority)
    except OSError as error:
        sys.stdout.write(json.dumps({"refused": error.strerror or str(error)}))
        return 0
    late_ns = measure(libc, seconds, interval_us)
    sys.stdout.write(json.dumps({"counts": counts_of(late_ns), "locked": locked}))
    return 0


def _place(cpu: int, priority: int) -> None:
    if cpu >= 0:
        os.sched_setaffinity(0, {cpu})
    if priority > 0:
        resource.setrlimit(resource.RLIMIT_RTTIME, (_RUNAWAY_US, _RUNAWAY_US))
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(priority))


def measure(libc: ctypes.CDLL, seconds: float, interval_us: int) -> array[int]:
    """Nanoseconds late, one for each wake-up; nothing is allocated on the way."""
    count = max(1, int(seconds * 1e6 / interval_us)) + _WARM_UP
    late_ns = array("q", bytes(8 * count))
    wanted = _Timespec()
    pointer, sleep, now = ctypes.byref(wanted), libc.clock_nanosleep, time.monotonic_ns
    step_ns = interval_us * 1000
    gc.collect()
    gc.disable()
    next_ns = now() + step_ns
    for index in range(count):
        wanted.seconds, wanted.nanoseconds = divmod(next_ns, 1_000_000_000)
        sleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, pointer, None)
        woke_ns = now()
        late_ns[index] = woke_ns - next_ns
        next_ns += step_ns
        if next_ns < woke_ns:  # overrun: those wake-ups are gone, they must not count as late
            next_ns = woke_ns + step_ns
    gc.enable()
    return late_ns[_WARM_UP:]


if __name__ == "__main__":
    sys.exit(main())
