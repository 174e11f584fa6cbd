"""Which level of CPU placement was reached, and why not the one above. Pure.

The ladder (docs/thermal.md): an exclusive cpuset partition, a cpuset that others share, the
affinity of the threads, nothing. What the kernel reads back counts, never what was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stoker.core.cpu_choice import format_list
from stoker.events.realtime import RtFacts, RtView, ThreadFacts

_VALID: Final = ("root", "isolated")
_POLICIES: Final = {1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline"}
_REAL_TIME: Final = (1, 2)


def judge(facts: RtFacts) -> RtView:
    level, reason, cpus = _level(facts)
    return RtView(
        level=level,
        reason=reason,
        cpus=cpus,
        pinning=_pinning(facts),
        scheduling=_scheduling(facts.threads),
        nice=min((thread.nice for thread in facts.threads), default=0),
        locked_bytes=facts.locked_bytes,
        kernel=facts.kernel,
        preemption=facts.preemption,
        notes=_notes(facts, level),
    )


def _level(facts: RtFacts) -> tuple[str, str, str]:
    if facts.units and facts.partition in _VALID:
        return "partition", facts.why, facts.effective
    if facts.units and facts.made == "partition":
        lost = facts.partition or "its cgroup is gone"
        level = "cpuset" if facts.effective else "none"
        return level, f"the partition was lost: {lost}", facts.effective
    if facts.units and facts.made == "cpuset":
        return "cpuset", facts.why or "the kernel refused a partition", facts.effective
    why = facts.why or _why_not(facts)
    if held := _held(facts):
        return "affinity", why, format_list({cpu for mask in held for cpu in mask})
    return "none", f"{why}; {facts.unheld}" if facts.unheld else why, ""


def _why_not(facts: RtFacts) -> str:
    if not facts.units:
        return "the runner is a child of stokerd, not a unit in stoker.slice"
    return "stoker-slice.service has not run: systemctl status stoker-slice"


def _pinning(facts: RtFacts) -> str:
    if not facts.threads:
        return "unseen"
    held = _held(facts)
    if not held:
        return "free"
    alone = {mask for mask in held if len(mask) == 1}
    return "one-to-one" if len(alone) == len(held) else "set"


def _held(facts: RtFacts) -> list[tuple[int, ...]]:
    """The masks of threads that may not run everywhere. The runner's reader computes nothing, and
    is free also where the others are pinned."""
    online = set(facts.online)
    return [thread.cpus for thread in facts.threads if set(thread.cpus) < online]


def _scheduling(threads: Sequence[ThreadFacts]) -> str:
    if not threads:
        return "unseen"
    kinds = {
        f"{_POLICIES[t.policy]}:{t.priority}" if t.policy in _REAL_TIME else _POLICIES[t.policy]
        for t in threads
        if t.policy in _POLICIES
    }
    return ", ".join(sorted(kinds)) or "other"


def _notes(facts: RtFacts, level: str) -> tuple[str, ...]:
    """What a reader should know beside the level."""
    notes: list[str] = []
    fifo = any(thread.policy in _REAL_TIME for thread in facts.threads)
    if not facts.running:
        notes.append("no model is loaded: there are no threads to look at")
    elif not facts.threads:
        notes.append("the runner's threads are another user's: stokerd cannot see their policy")
    elif not fifo:
        notes.append("compute threads are not real-time: alone on their CPUs it would add nothing")
    if fifo and level != "partition":
        notes.append("real-time threads without a partition can starve everything else")
    if facts.rt_runtime_us == -1:
        notes.append("sched_rt_runtime_us is -1: nothing stops a real-time thread that spins")
    if facts.threads and not facts.locked_bytes:
        notes.append("no memory is locked: mlock is off for the model, or LimitMEMLOCK is small")
    return tuple(notes)
