"""What a soak saw, judged: leaks, lost or mixed words, memory, fairness. Pure.

``wrong`` decides; ``lines`` and ``metrics`` say the same numbers for people and for the page of
results.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MEMORY_SHARE: Final = 0.10
MEMORY_FLOOR_MB: Final = 12.0
FAIR: Final = 0.9
FAIR_AFTER_S: Final = 60.0  # shorter runs are chance: a user is killed now and then
LIFE_SAMPLES: Final = 4  # a runner that was seen less often tells nothing of its memory
LIVES: Final = 6  # fewer are compared each with itself
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
    """One run. ``users``: the counts of each; ``memory_mb``: stokerd's, evenly in time;
    ``runners_mb``: the same of each runner that lived, in their order; ``real_users``: they are
    of different user IDs, so that shares are judged.
    """

    users: Sequence[Mapping[str, int]]
    faults: Sequence[str]
    memory_mb: Sequence[float]
    ending: Ending
    kills: int = 0
    runners_mb: Sequence[Sequence[float]] = ()
    seconds: float = 0.0
    real_users: bool = False

    def total(self, key: str) -> int:
        return sum(user.get(key, 0) for user in self.users)

    @property
    def fairness(self) -> float:
        return jain([float(user.get("tokens", 0)) for user in self.users])

    @property
    def judges_fairness(self) -> bool:
        return self.real_users and self.seconds >= FAIR_AFTER_S


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


def runner_growth_mb(runners_mb: Sequence[Sequence[float]]) -> float:
    """Runners are killed, at any age: of many the peaks of the last third of lives over those of
    the first, of few the worst growth within one life.
    """
    lives = [life for life in runners_mb if len(life) >= LIFE_SAMPLES]
    if len(lives) < LIVES:
        return max((growth_mb(life) for life in lives), default=0.0)
    peaks, third = [max(life) for life in lives], len(lives) // 3
    return statistics.median(peaks[-third:]) - statistics.median(peaks[:third])


def wrong(soak: Soak) -> list[str]:
    """Everything that must not be, in words; empty = passed."""
    found = [f"words: {fault}" for fault in soak.faults]
    if not found and soak.total("faults"):
        found.append(f"{soak.total('faults')} faults without words")
    if not soak.total("whole"):
        found.append("no answer was read whole")
    if soak.total("diverged") > DIVERGED_SHARE * (soak.total("whole") + soak.total("parts")):
        found.append(f"{soak.total('diverged')} greedy answers are not those of a single run")
    for whose, grown, limit in _growths(soak):
        if grown > limit:
            found.append(f"memory of {whose} grew by {grown:.1f} MB")
    if soak.judges_fairness and soak.fairness < FAIR:
        found.append(f"Jain's index over {len(soak.users)} users is {soak.fairness:.3f}")
    return found + _left(soak.ending)


def _growths(soak: Soak) -> list[tuple[str, float, float]]:
    """(whose, MB more, MB allowed)."""
    first = soak.memory_mb[0] if soak.memory_mb else 0.0
    runner = max(soak.runners_mb[0]) if soak.runners_mb and soak.runners_mb[0] else 0.0
    return [
        ("stokerd", growth_mb(soak.memory_mb), max(MEMORY_FLOOR_MB, MEMORY_SHARE * first)),
        (
            "the runner",
            runner_growth_mb(soak.runners_mb),
            max(MEMORY_FLOOR_MB, MEMORY_SHARE * runner),
        ),
    ]


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
        f"growth {growth_mb(memory):+.1f} MB, of {len(soak.runners_mb)} runners "
        f"{runner_growth_mb(soak.runners_mb):+.1f} MB",
        f"open files {soak.ending.files[0]} → {soak.ending.files[1]}, threads "
        f"{soak.ending.threads[0]} → {soak.ending.threads[1]}",
        f"Jain's index over {len(soak.users)} users {soak.fairness:.4f}",
    ]  # fmt: skip


def metrics(soak: Soak, engine: str) -> dict[str, dict[str, object]]:
    """The rows of ``bench/results/soak.json`` of one engine."""
    ending, unit = soak.ending, f"in {soak.seconds:.0f} s"
    read = soak.total("whole") + soak.total("parts")
    stokerd, runner = _growths(soak)
    faults = len(wrong(soak))
    rows: dict[str, dict[str, object]] = {
        "whole_answers": {"value": soak.total("whole"), "unit": unit},
        "cut_answers": {"value": soak.total("parts"), "unit": unit},
        "kills": {"value": soak.kills, "unit": "of runners and users"},
        "diverged": _most(soak.total("diverged"), int(DIVERGED_SHARE * read), "near ties"),
        "wrong": _most(faults, 0),
        "jain": {"value": round(soak.fairness, 4), "unit": f"over {len(soak.users)} users"},
        "stokerd_growth_mb": _most(round(stokerd[1], 1), round(stokerd[2], 1), "MB"),
        "runner_growth_mb": _most(round(runner[1], 1), round(runner[2], 1), "MB"),
        "files_left": _most(ending.files[1] - ending.files[0], 0),
        "threads_left": _most(ending.threads[1] - ending.threads[0], 0),
    }
    if soak.judges_fairness:
        rows["jain"] |= {"target": f"≥ {FAIR:g}", "met": soak.fairness >= FAIR}
    return {f"soak.{engine}.{key}": row for key, row in rows.items()}


def _most(value: float, limit: float, unit: str = "") -> dict[str, object]:
    return {"value": value, "unit": unit, "target": f"≤ {limit:g}", "met": value <= limit}
