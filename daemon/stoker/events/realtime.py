"""Values of CPU placement: what the kernel shows of the runner and what that amounts to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThreadFacts:
    """``policy`` as the kernel numbers it: 0 other, 1 FIFO, 2 RR, 3 batch, 5 idle, 6 deadline."""

    cpus: tuple[int, ...]
    policy: int = 0
    priority: int = 0
    nice: int = 0


@dataclass(frozen=True, slots=True)
class RtFacts:
    """``made`` and ``why`` are what stoker-slice wrote down; ``partition`` and ``effective`` what
    the slice's files read now ("" = there is none). ``threads`` is empty where the runner is
    another user's process that we may not see.
    """

    made: str = "unknown"
    why: str = ""
    partition: str = ""
    effective: str = ""
    online: tuple[int, ...] = ()
    threads: tuple[ThreadFacts, ...] = ()
    locked_bytes: int = 0
    running: bool = True  # there is a runner
    units: bool = True  # the runner is a unit in stoker.slice
    kernel: str = ""
    preemption: str = ""
    unheld: str = ""  # why the threads are not held by masks though there is no cpuset
    rt_runtime_us: int | None = None  # sched_rt_runtime_us; -1 = the kernel's guard is off


@dataclass(frozen=True, slots=True)
class RtView:
    """``level``: partition | cpuset | affinity | none; ``reason`` says why not more (or what was
    lost). ``pinning``: one-to-one | set | free | unseen. ``scheduling``: other, fifo:10 … | unseen.
    ``nice``: the lowest of its threads.
    """

    level: str
    reason: str
    cpus: str
    pinning: str = "unseen"
    scheduling: str = "unseen"
    locked_bytes: int = 0
    kernel: str = ""
    preemption: str = ""
    notes: tuple[str, ...] = ()
    nice: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """What the runner read back of its compute threads after a load; "" = nothing is loaded.
    ``note``: what was wanted and not reached, in a sentence."""

    pinning: str = ""
    scheduling: str = ""
    note: str = ""
    cpus: str = ""
    nice: int = 0
