"""Runs hostile but pure Python (a model's chat template) under CPU and memory limits.

Uses the process's virtual timer and its address-space limit, both put back afterwards.
Works in the main thread only, where signals arrive; elsewhere it bounds nothing.
"""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn


class OutOfBoundsError(Exception):
    """The bounded code took more time or memory than it gets."""


@contextmanager
def bounded(*, cpu_s: float, memory_bytes: int) -> Iterator[None]:
    """Raises OutOfBoundsError inside the block when a limit is passed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    old_handler = signal.signal(signal.SIGVTALRM, _expired)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_ceiling(memory_bytes, soft), hard))
        signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
        yield
    except MemoryError as error:
        raise OutOfBoundsError("it needs too much memory") from error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, old_handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _expired(_signum: int, _frame: object) -> NoReturn:
    raise OutOfBoundsError("it takes too long")


def _ceiling(more_bytes: int, soft: int) -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return soft
    wanted = pages * resource.getpagesize() + more_bytes
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, soft)
