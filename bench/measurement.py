"""What a paired measurement is: who is compared, in which unit, against which target."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.pairs import Pair, Summary
from stoker.config.schema import RunnerConfig

NOISE_LIMIT: Final = 0.25
SPINCOUNT: Final = os.environ.get("GOMP_SPINCOUNT", str(RunnerConfig().gomp_spincount))


@dataclass(frozen=True, slots=True)
class Setting:
    """``model`` is small and real, ``big`` has the shape of 1.5B and random weights."""

    model: Path
    big: Path
    threads: int
    tokens: int
    pairs: int
    quiet_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """``run`` yields pairs as they come; ``higher`` = more is better; ``share`` = this part of
    the pairs that were asked for (some cost a minute each). Without a target it only tells."""

    key: str
    title: str
    unit: str
    peer: str
    target: float | None
    run: Callable[[Setting], Iterator[Pair]]
    higher: bool = True
    difference: bool = False  # what is added to the peer's number, not the ratio to it
    share: float = 1.0
    slow: bool = False  # left out by --quick

    def met(self, summary: Summary) -> bool:
        """A median between two far ends of noise proves nothing, so it does not count, unless both
        ends are on the right side."""
        assert self.target is not None
        worst = summary.low if self.higher else summary.high
        if worst >= self.target if self.higher else worst <= self.target:
            return True
        limit = self.target if self.difference else NOISE_LIMIT * summary.ratio
        if summary.high - summary.low > limit:
            return False
        return summary.ratio >= self.target if self.higher else summary.ratio <= self.target


def wait_for_quiet(limit_s: float, *, busy: float = 0.1) -> bool:
    """Waits until others use less than ``busy`` of the machine; False = they did not stop."""
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        before = _cpu_ticks()
        time.sleep(0.25)
        after = _cpu_ticks()
        if after[0] - before[0] < busy * (after[1] - before[1]):
            return True
    return False


def _cpu_ticks() -> tuple[int, int]:
    """(busy, all) of all CPUs since boot; idle and iowait are the 4th and 5th number."""
    numbers = [int(part) for part in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(numbers) - numbers[3] - numbers[4], sum(numbers)
