"""What a soak saw, judged: leaks, lost or mixed words, memory, fairness. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

MEMORY_SHARE: Final = 0.10
MEMORY_FLOOR_MB: Final = 12.0
FAIR: Final = 0.9
DIVERGED_SHARE: Final = 0.25  # of near ties; more would be another model


@dataclass(frozen=True, slots=True)
class Ending:
    """What is left when every app is gone; ``files`` and ``threads`` before and after."""

    queue: int = 0
    active: int = 0
    files: tuple[int, int] = (0, 0)
    threads: tuple[int, int] = (0, 0)
    free_slots: int = 0
    slots: int = 0
    sessions_left: int = 0  # listed, though their users were not killed
    rows_left: int = 0  # in the database beyond what is listed
    log_faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Soak:
    """One run. ``users``: the counts of each; ``memory_mb``: stokerd's, evenly in time."""

    users: Sequence[Mapping[str, int]]
    faults: Sequence[str]
    memory_mb: Sequence[float]
    ending: Ending
    kills: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def total(self, key: str) -> int:
        return sum(user.get(key, 0) for user in self.users)


def jain(shares: Sequence[float]) -> float:
    """Jain's fairness index (Jain, Chiu, Hawe 1984): 1 = all got the same, 1/n = one got all."""
    total = sum(shares)
    if not total:
        return 0.0
    return total * total / (len(shares) * sum(share * share for share in shares))


def growth_mb(memory_mb: Sequence[float]) -> float:
    """Median of the last quarter over that of the second: the first quarter is warming up."""
    quarter = len(memory_mb) // 4
    if quarter < 1:
        return 0.0
    late = statistics.median(memory_mb[-quarter:])
    return late - statistics.median(memory_mb[quarter : 2 * quarter])


def wrong(soak: Soak) -> list[str]:
    """Everything that must not be, in words; empty = passed."""
    found = [f"words: {fault}" for fault in soak.faults]
    if not found and soak.total("faults"):
        found.append(f"{soak.total('faults')} faults without words")
    if not soak.total("whole"):
        found.append("no answer was read whole")
    if soak.total("diverged") > DIVERGED_SHARE * (soak.total("whole") + soak.total("parts")):
        found.append(f"{soak.total('diverged')} greedy answers are not those of a single run")
    grown, first = growth_mb(soak.memory_mb), soak.memory_mb[0] if soak.memory_mb else 0.0
    if grown > max(MEMORY_FLOOR_MB, MEMORY_SHARE * first):
        found.append(f"memory grew by {grown:.1f} MB")
    return found + _left(soak.ending)


def _left(ending: Ending) -> list[str]:
    found = []
    if ending.queue or ending.active:
        found.append(f"{ending.queue} jobs wait and {ending.active} run after all have gone")
    if ending.files[1] > ending.files[0]:
        found.append(f"open files: {ending.files[0]} before, {ending.files[1]} after")
    if ending.threads[1] > ending.threads[0]:
        found.append(f"threads: {ending.threads[0]} before, {ending.threads[1]} after")
    if ending.free_slots < ending.slots:
        found.append(f"only {ending.free_slots} of {ending.slots} slots answer at once")
    if ending.sessions_left:
        found.append(f"{ending.sessions_left} conversations were not deleted")
    if ending.rows_left:
        found.append(f"{ending.rows_left} rows belong to no conversation or are still open")
    return found + [f"log: {line}" for line in ending.log_faults]


def lines(soak: Soak) -> list[str]:
    """The report for people."""
    shares = [float(user.get("tokens", 0)) for user in soak.users]
    counts: Counter[str] = Counter()
    for user in soak.users:
        counts.update(user)
    memory = soak.memory_mb or [0.0]
    return [
        f"answers read whole {counts['whole']}, in part {counts['parts']}, "
        f"words {counts['tokens']}, diverged {counts['diverged']}",
        "ended by: " + ", ".join(f"{key} {n}" for key, n in sorted(counts.items()) if "-" in key
                                 or key in ("busy", "cancelled", "unavailable", "preempted")),
        f"cancels {counts['cancels']}, closed pipes {counts['hung up']}, left the bus "
        f"{counts['vanished']}, kills of runners and users {soak.kills}",
        f"memory of stokerd {memory[0]:.1f} → {memory[-1]:.1f} MB, "
        f"growth {growth_mb(memory):+.1f} MB",
        f"open files {soak.ending.files[0]} → {soak.ending.files[1]}, threads "
        f"{soak.ending.threads[0]} → {soak.ending.threads[1]}",
        f"Jain's index over {len(shares)} users {jain(shares):.4f}",
    ]  # fmt: skip
